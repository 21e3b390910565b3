//! The project's CRDs in the real API server. Bad objects are refused with the name of the field. Unusual objects that
//! the predecessor accepts are still accepted. Everything that the predecessor stored can be stored again without loss.

use std::fs;

use agent_forge_lab::{
    apply_yaml,
    lab::{
        apply::{api_of, documents},
        manifest::merge,
    },
    tools::{repository, shared_or_skipped},
};
use anyhow::{Context as _, Result, bail, ensure};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::lab;

/// A row of the tables; their header explains the fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    name: String,
    kind: String,
    #[serde(default)]
    patch: Value,
    before: Option<Value>,
    must_mention: Option<String>,
    subresource: Option<String>,
    #[serde(rename = "byRule", default)]
    _by_rule: bool,
}

fn fixture(name: &str) -> Result<String> {
    let path = repository().join("crds/tests/fixtures").join(name);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

fn table(name: &str) -> Result<Vec<Row>> {
    let rows: Vec<Row> = serde_saphyr::from_str(&fixture(name)?)
        .with_context(|| format!("read the table {name}"))?;
    ensure!(!rows.is_empty(), "the table {name} is empty");
    Ok(rows)
}

fn sample(kind: &str) -> Result<Value> {
    let name = match kind {
        "VsphereAgentPool" => "pool.yaml",
        "VsphereAgent" => "agent.yaml",
        other => bail!("no sample of kind {other}"),
    };
    documents(&fixture(name)?)?
        .into_iter()
        .next()
        .with_context(|| format!("{name} is empty"))
}

async fn create(client: &Client, object: &Value) -> Result<DynamicObject> {
    let (api, object) = (api_of(client, object).await?, object.clone());
    let object = serde_json::from_value(object)?;
    Ok(api.create(&PostParams::default(), &object).await?)
}

async fn patch_status(client: &Client, object: &Value, patch: &Value) -> Result<DynamicObject> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let api = api_of(client, object).await?;
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    Ok(api.patch_status(name, &params, &patch).await?)
}

/// Performs the steps of a row. Returns the outcome of the last step.
async fn run(
    client: &Client,
    namespace: &str,
    row: &Row,
    number: usize,
) -> Result<Result<DynamicObject>> {
    let mut object = sample(&row.kind)?;
    object["metadata"]["name"] = format!("row-{number}").into();
    object["metadata"]["namespace"] = namespace.into();
    let in_status = match row.subresource.as_deref() {
        None => row.before.is_some(),
        Some("status") => true,
        Some(other) => bail!("unknown subresource {other}"),
    };
    if !in_status {
        let status = row.patch.get("status").cloned();
        merge(&mut object, &row.patch);
        let created = create(client, &object).await;
        return Ok(match (created, status) {
            (Ok(_), Some(status)) => {
                patch_status(client, &object, &json!({"status": status})).await
            }
            (created, _) => created,
        });
    }
    create(client, &object)
        .await
        .context("the sample itself is refused")?;
    let step = async |patch: &Value| match row.subresource {
        Some(_) => patch_status(client, &object, patch).await,
        None => {
            let api = api_of(client, &object).await?;
            Ok(api
                .patch(
                    &format!("row-{number}"),
                    &PatchParams::default(),
                    &Patch::Merge(patch),
                )
                .await?)
        }
    };
    if let Some(before) = &row.before {
        step(before).await.context("what comes before is refused")?;
    }
    Ok(step(&row.patch).await)
}

#[tokio::test]
async fn bad_objects_are_refused_by_the_name_of_the_field() -> Result<()> {
    let lab = lab().await?;
    let (client, namespace) = (lab.admin(), lab.namespace("refused").await?);
    let mut wrong = Vec::new();
    let rows = table("refused.yaml")?;
    for (number, row) in rows.iter().enumerate() {
        let expected = row
            .must_mention
            .as_deref()
            .with_context(|| format!("{}: no mustMention", row.name))?;
        match run(&client, &namespace, row, number)
            .await
            .with_context(|| row.name.clone())?
        {
            Ok(_) => wrong.push(format!("{}: accepted", row.name)),
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(status))
                    if status.code == 422 && status.message.contains(expected) => {}
                _ => wrong.push(format!(
                    "{}: does not mention {expected}: {error:#}",
                    row.name
                )),
            },
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    Ok(())
}

#[tokio::test]
async fn odd_objects_that_the_predecessor_accepts_stay_accepted_and_both_versions_show_them()
-> Result<()> {
    let lab = lab().await?;
    let (client, namespace) = (lab.admin(), lab.namespace("accepted").await?);
    let mut wrong = Vec::new();
    for (number, row) in table("accepted.yaml")?.iter().enumerate() {
        let stored = run(&client, &namespace, row, number)
            .await
            .with_context(|| row.name.clone())?;
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                wrong.push(format!("{}: {error:#}", row.name));
                continue;
            }
        };
        let other = json!({
            "apiVersion": "agent-forge.containeroo.ch/v1beta1", "kind": row.kind,
            "metadata": {"name": format!("row-{number}"), "namespace": namespace},
        });
        let api = api_of(&client, &other).await?;
        let shown = api.get(&format!("row-{number}")).await?;
        if shown.data != stored.data {
            wrong.push(format!("{}: as v1beta1 {}", row.name, shown.data));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Fields of `recorded` that are missing or different in `stored`.
fn lost(recorded: &Value, stored: &Value, path: &str, into: &mut Vec<String>) {
    match (recorded, stored) {
        (Value::Object(fields), Value::Object(_)) => {
            for (key, value) in fields {
                lost(value, &stored[key], &format!("{path}.{key}"), into);
            }
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                lost(item, other, &format!("{path}[{index}]"), into);
            }
        }
        _ if recorded == stored => {}
        _ => into.push(format!("{path}: {recorded} became {stored}")),
    }
}

#[tokio::test]
async fn what_the_predecessor_stored_is_stored_again_without_loss() -> Result<()> {
    let Some(directory) = shared_or_skipped("predecessor") else {
        return Ok(());
    };
    let lab = lab().await?;
    let client = lab.admin();
    let text = fs::read_to_string(directory.join("agentforge_v1alpha1_vsphereagentpool.yaml"))?;
    apply_yaml(
        &client,
        "{apiVersion: v1, kind: Namespace, metadata: {name: demo}}",
    )
    .await?;
    apply_yaml(&client, &text)
        .await
        .context("the predecessor's sample")?;

    let (mut objects, mut losses) = (0, Vec::new());
    for file in fs::read_dir(directory.join("recorded"))? {
        let path = file?.path();
        let lists: Value = serde_saphyr::from_str(&fs::read_to_string(&path)?)?;
        let namespace = lab.namespace("recorded").await?;
        for recorded in lists
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, list)| list.as_array())
            .flatten()
        {
            if !recorded["apiVersion"]
                .as_str()
                .is_some_and(|version| version.starts_with("agent-forge."))
            {
                continue;
            }
            let mut object = recorded.clone();
            // Fields that the API server assigns cannot be set, and the old owner does not exist here.
            object["metadata"] = json!({
                "name": recorded["metadata"]["name"], "namespace": namespace, "labels": recorded["metadata"]["labels"],
                "annotations": recorded["metadata"]["annotations"]
            });
            let subject = format!("{} {}", path.display(), recorded["metadata"]["name"]);
            let created = create(&client, &object)
                .await
                .with_context(|| subject.clone())?;
            lost(
                &recorded["spec"],
                &created.data["spec"],
                &format!("{subject}: spec"),
                &mut losses,
            );
            if let Some(status) = recorded.get("status") {
                let stored = patch_status(&client, &object, &json!({"status": status})).await;
                let stored = stored.with_context(|| subject.clone())?;
                lost(
                    status,
                    &stored.data["status"],
                    &format!("{subject}: status"),
                    &mut losses,
                );
            }
            objects += 1;
        }
    }
    ensure!(objects > 0, "no recorded object was found");
    ensure!(losses.is_empty(), "{}", losses.join("\n"));
    Ok(())
}
