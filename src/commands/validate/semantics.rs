//! What the API server accepts and the operator cannot use.

use std::{collections::BTreeMap, sync::Arc};

use agent_forge_actors::{
    demand::buffer::Size,
    domain::{belonging, names::DatastorePath, selector, sizes::Sizes, start_after},
    placement::request,
};
use agent_forge_crds::{VsphereAgentPool, duration};
use jiff::Timestamp;
use serde_json::Value;

use crate::commands::manifest_file::Document;

/// What is wrong with a pool that the schema accepts.
#[must_use]
pub fn problems(object: &Value) -> Vec<String> {
    let pool: VsphereAgentPool = match serde_json::from_value(object.clone()) {
        Ok(pool) => pool,
        Err(e) => return vec![format!("it cannot be read: {e}")],
    };
    let mut found = Vec::new();
    if let Err(e) = request::place_request(&pool) {
        found.push(e.message);
    }
    let sizes = Sizes::of(&Arc::new(pool.clone()));
    for class in sizes.names().flatten() {
        if let Err(e) = request::hardware(sizes.pool(Some(class))) {
            found.push(format!("spec.classes: class {class:?}: {}", e.message));
        }
    }
    found.extend(unreachable(&pool));
    if let Some(after) = start_after::own_name(&pool) {
        found.push(after);
    }
    found.extend(belonging::refused_label(&pool));
    found.extend(labels(&pool));
    let prefix = pool.iso_path_prefix();
    let path = format!("[{}] {prefix}", pool.spec.vsphere.iso_datastore);
    if let Err(e) = DatastorePath::parse(&path) {
        found.push(format!("spec.iso.pathPrefix: {e}"));
    }
    let interval = pool.spec.check_interval();
    if duration::parse(interval).is_err() {
        found.push(format!(
            "spec.iso.checkInterval: {interval:?} is no duration; write it like 10m"
        ));
    }
    let scaling = pool.spec.scaling.clone().unwrap_or_default();
    let release = pool.spec.release.clone().unwrap_or_default();
    found.extend(Size::read(&scaling, release.recycles(), Timestamp::now()).1);
    let sizes = pool.spec.classes.iter().map(|class| class.buffer_agents);
    let mut sizes = sizes.chain([scaling.buffer_agents]).flatten();
    let keeps = sizes.any(|n| n > 0) || !scaling.buffer_schedule.is_empty();
    if !pool.has_node_pool() && !keeps {
        found.push(
            "spec.scaling: a pool without nodePoolRef keeps hosts for its group, and this one keeps none; set bufferAgents, also of a \
             class, or a bufferSchedule"
                .to_owned(),
        );
    }
    let own = pool.metadata.name.as_deref().unwrap_or_default();
    if own.len() > 63 {
        found.push(format!(
            "metadata.name: {own:?} is longer than 63 characters, and is the value of a label"
        ));
    }
    found
}

/// Classes that no selector chooses, since an earlier one has the same labels.
fn unreachable(pool: &VsphereAgentPool) -> Vec<String> {
    let classes = pool.spec.classes.iter().enumerate();
    let hidden = classes.filter_map(|(at, class)| {
        let mut before = pool.spec.classes[..at].iter();
        let other = before.find(|other| other.labels == class.labels)?;
        Some(format!(
            "spec.classes: class {:?} has the labels of class {:?}, which comes first; no NodePool can choose it",
            class.name, other.name
        ))
    });
    hidden.collect()
}

/// Labels that no Agent can carry.
fn labels(pool: &VsphereAgentPool) -> Vec<String> {
    let classes = pool.spec.classes.iter();
    let classes = classes.map(|class| {
        (
            format!("spec.classes: class {:?}", class.name),
            &class.labels,
        )
    });
    let agent = ("spec.agent.labels".to_owned(), &pool.spec.agent.labels);
    let all = std::iter::once(agent).chain(classes);
    let wrong = all.flat_map(|(field, labels)| {
        let bad = labels.iter().filter(|(key, value)| {
            !(selector::is_label_key(key) && selector::is_label_value(value))
        });
        bad.map(move |(key, value)| format!("{field}: {key:?}: {value:?} cannot be a label"))
            .collect::<Vec<_>>()
    });
    wrong.collect()
}

/// Pools of one file that claim the same NodePool. Neither would act.
#[must_use]
pub fn conflicts(documents: &[Document]) -> Vec<(String, String)> {
    let mut owners: BTreeMap<(String, String), &Document> = BTreeMap::new();
    let mut found = Vec::new();
    let claims =
        |d: &&Document| d.kind == "VsphereAgentPool" && d.object["spec"]["nodePoolRef"].is_object();
    for document in documents.iter().filter(claims) {
        let spec = &document.object["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let served = (
            text(&spec["controlPlaneNamespace"]),
            text(&spec["nodePoolRef"]["name"]),
        );
        if let Some(other) = owners.insert(served.clone(), document) {
            found.push((
                format!("VsphereAgentPool {}", document.name),
                format!(
                    "spec.nodePoolRef: pool {} of this file claims NodePool {} too; neither would act (PoolConflict)",
                    other.name, served.1
                ),
            ));
        }
    }
    found
}
