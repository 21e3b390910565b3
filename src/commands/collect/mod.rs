//! `agent-forge collect`: a support archive. It has objects, statuses, Events and the answers of other commands, redacted.
//! It never has a Secret: none is read.

mod consoles;
mod operator;
mod redact;

use std::path::{Path, PathBuf};

use agent_forge_actors::{
    domain::{goal, names::ObjectKey},
    ports::cluster::View as _,
};
use anyhow::Context as _;
use clap::{Args as ClapArgs, builder::BoolishValueParser};
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde::Serialize;
use serde_json::{Value, json};

use self::redact::Redactor;
use super::{
    Place, console, plan,
    report::{self, Verdict},
    sight::{self, Sight},
};
use crate::{
    args::Args,
    machines::{self, chain::Live, decide, explain, found::Kind, row::Machine},
};

/// Where the archive goes.
#[derive(Clone, Debug, ClapArgs)]
pub struct CollectArgs {
    /// The archive. Default: `agent-forge-<time>.tar.gz` in the present directory.
    #[arg(
        long,
        env = "AGENT_FORGE_ARCHIVE",
        value_name = "FILE",
        conflicts_with = "directory"
    )]
    pub archive: Option<PathBuf>,

    /// Write plain files into this directory instead of an archive, as `oc adm must-gather` wants them.
    #[arg(long, env = "AGENT_FORGE_DIRECTORY", value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,

    /// Add pictures of the consoles of guests that did not register in time, at most 5. This logs in to vCenter with the
    /// credentials of the pools. The vCenter user needs `VirtualMachine.Interact.ConsoleInteract`.
    #[arg(long, env = "AGENT_FORGE_CONSOLES", value_parser = BoolishValueParser::new())]
    pub consoles: bool,

    /// Which pools and VsphereAgents, with what belongs to them.
    #[command(flatten)]
    pub place: Place,
}

/// One file of the archive.
type Entry = (String, Vec<u8>);

/// Writes the archive, and prints its name. What could not be read is in `errors.txt`.
///
/// # Errors
/// Nothing can be read, or the file cannot be written.
pub async fn run(args: &Args, asked: &CollectArgs) -> anyhow::Result<Verdict> {
    let now = Timestamp::now();
    let (client, args) = &sight::connect(args).await?;
    let (sight, mut refused) = Sight::of_what_is_listed(args, client).await;
    let namespace = asked.place.namespace.as_deref();
    let mut entries = objects(&sight, namespace)?;
    let (answers, failed) = answers(args, &sight, namespace, now)?;
    refused.extend(failed);
    entries.extend(answers);
    let (operator, failed) = operator::entries(client, args.target.operator.as_deref()).await?;
    refused.extend(failed);
    entries.extend(operator);
    entries.extend(events(&sight.client, &sight, namespace).await?);
    if asked.consoles {
        let (pictures, failed) = consoles::entries(args, &sight, namespace, now).await;
        refused.extend(failed);
        entries.extend(pictures);
    }
    if let (true, Some(error)) = (entries.is_empty(), refused.pop()) {
        return Err(error);
    }
    entries.push((
        "README.txt".to_owned(),
        readme(&sight, asked.consoles, now).into_bytes(),
    ));
    entries.extend(errors(&Redactor::new()?, &refused));
    let place = match &asked.directory {
        Some(directory) => {
            files(directory, &entries)?;
            directory.clone()
        }
        None => {
            let name = format!("agent-forge-{}.tar.gz", now.as_second());
            let path = asked.archive.clone().unwrap_or_else(|| PathBuf::from(name));
            archive(&path, &entries, now)?;
            path
        }
    };
    report::write(&format!("{} files in {}\n", entries.len(), place.display()))?;
    if refused.is_empty() {
        return Ok(Verdict::Nothing);
    }
    let count = refused.len();
    report::write(&format!(
        "{count} things could not be read: see errors.txt in it\n"
    ))?;
    Ok(Verdict::Findings)
}

/// Why something is missing in the archive, if something is. An error may quote a URL or an object.
fn errors(redactor: &Redactor, refused: &[anyhow::Error]) -> Option<Entry> {
    let line = |e: &anyhow::Error| redactor.text(&format!("{e:#}")) + "\n";
    let lines: String = refused.iter().map(line).collect();
    (!refused.is_empty()).then(|| ("errors.txt".to_owned(), lines.into_bytes()))
}

fn file(redactor: &Redactor, path: String, object: &impl Serialize) -> anyhow::Result<Entry> {
    let mut value = serde_json::to_value(object).context("reading an object")?;
    redactor.object(&mut value);
    let text = serde_saphyr::to_string(&value).context("writing an object")?;
    Ok((path, text.into_bytes()))
}

/// The objects that the operator reads. Of foreign kinds only the fields that it reads.
fn objects(sight: &Sight, namespace: Option<&str>) -> anyhow::Result<Vec<Entry>> {
    let redactor = Redactor::new()?;
    let caches = &sight.caches;
    let mut all = Vec::new();
    let path =
        |kind: &str, key: &ObjectKey| format!("objects/{kind}/{}/{}.yaml", key.namespace, key.name);
    let own = |n: &str| namespace.is_none_or(|wanted| wanted == n);
    let pools: Vec<_> = caches
        .pools()
        .into_iter()
        .filter(|p| own(&p.namespace().unwrap_or_default()))
        .collect();
    // What belongs to these pools is in their namespaces, and in those that they name.
    let named = |n: &str| {
        own(n)
            || pools.iter().any(|p| {
                p.control_plane() == n || p.spec.infra_env_ref.namespace.as_deref() == Some(n)
            })
    };
    for o in &pools {
        all.push(file(
            &redactor,
            path("VsphereAgentPool", &ObjectKey::of(o.as_ref())),
            o.as_ref(),
        )?);
    }
    for o in caches.all_children() {
        let key = ObjectKey::of(o.as_ref());
        if own(&key.namespace) || own(&goal::user(&o).namespace) {
            all.push(file(&redactor, path("VsphereAgent", &key), o.as_ref())?);
        }
    }
    for o in caches.all_agent_machines() {
        let key = ObjectKey::of(o.as_ref());
        if named(&key.namespace) {
            all.push(file(&redactor, path("AgentMachine", &key), o.as_ref())?);
        }
    }
    for o in caches.agents.all() {
        let key = ObjectKey::of(o.as_ref());
        if named(&key.namespace) {
            all.push(file(&redactor, path("Agent", &key), o.as_ref())?);
        }
    }
    for o in caches.infra_envs.all() {
        let key = ObjectKey::of(o.as_ref());
        if named(&key.namespace) {
            all.push(file(&redactor, path("InfraEnv", &key), o.as_ref())?);
        }
    }
    for o in caches.machines.all() {
        if named(&o.key.namespace) {
            let facts = json!({"uid": o.uid, "deleting": o.deleting, "paused": o.paused, "apiVersion": o.api_version});
            all.push(file(&redactor, path("Machine", &o.key), &facts)?);
        }
    }
    for (kind, cache) in &caches.pausables {
        for o in cache.all() {
            if named(&o.key.namespace) {
                let facts = json!({"cluster": o.cluster, "annotated": o.annotated, "paused": o.paused, "pausedUntil": o.paused_until});
                all.push(file(&redactor, path(kind.as_str(), &o.key), &facts)?);
            }
        }
    }
    Ok(all)
}

/// What `explain` and `plan` say now, without vCenter.
fn answers(
    args: &Args,
    sight: &Sight,
    namespace: Option<&str>,
    now: Timestamp,
) -> anyhow::Result<(Vec<Entry>, Vec<anyhow::Error>)> {
    let redactor = Redactor::new()?;
    let mut failed = Vec::new();
    let own = |key: &ObjectKey| namespace.is_none_or(|wanted| wanted == key.namespace);
    let bound = args.secret_bound();
    let mut all = Vec::new();
    let caches = &sight.caches;
    let mut pools = machines::machines(caches, now).pools;
    pools.retain(|pool| own(&pool.key));
    for of_pool in &pools {
        let key = &of_pool.key;
        // One decision for all machines of the pool.
        let decided = decide::decide(caches, key, bound, now);
        let plan = decided.as_ref().map(|(_, plan)| plan);
        let recorded = |m: &&Machine| m.kind == Kind::VsphereAgent;
        for Machine { found, key, .. } in of_pool.machines.iter().filter(recorded) {
            let path = format!("answers/explain/{}/{}.yaml", key.namespace, key.name);
            let words = (format!("{}/{}", Kind::VsphereAgent, key.name), None);
            let explained = explain::explain(caches, found, (&Live::NotAsked, plan), words, now);
            all.push(file(&redactor, path, &explained)?);
        }
        if of_pool.pool.is_some() {
            let path = format!("answers/plan/{}/{}.yaml", key.namespace, key.name);
            match plan::of_pool(caches, key, bound, now) {
                Ok(planned) => all.push(file(&redactor, path, &planned)?),
                Err(e) => failed.push(e.context(path)),
            }
        }
    }
    Ok((all, failed))
}

/// The operator's Events, one file for each namespace. A namespace whose Events may not be listed has a note instead.
async fn events(
    client: &Client,
    sight: &Sight,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<Entry>> {
    let redactor = Redactor::new()?;
    let mut namespaces: Vec<String> = sight
        .caches
        .pools()
        .iter()
        .filter_map(|p| p.namespace())
        .collect();
    namespaces.retain(|n| namespace.is_none_or(|wanted| wanted == n));
    namespaces.sort();
    namespaces.dedup();
    let mut all = Vec::new();
    for namespace in namespaces {
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let path = format!("events/{namespace}.yaml");
        let listed = api.list(&ListParams::default()).await;
        let shown = match listed {
            Ok(listed) => {
                let own = |e: &Event| e.reporting_controller.as_deref() == Some("agent-forge");
                let rows = listed.items.into_iter().filter(own).map(|e| {
                    let about = e.regarding.unwrap_or_default();
                    json!({
                        "at": e.event_time, "type": e.type_, "reason": e.reason, "note": e.note,
                        "about": format!("{} {}", about.kind.unwrap_or_default(), about.name.unwrap_or_default()),
                    })
                });
                Value::Array(rows.collect())
            }
            Err(e) => json!({"notListed": e.to_string()}),
        };
        all.push(file(&redactor, path, &shown)?);
    }
    Ok(all)
}

fn readme(sight: &Sight, consoles: bool, now: Timestamp) -> String {
    let secrets = match consoles {
        false => "No Secret was read.",
        true => {
            "console/ has pictures of the consoles of guests that did not register in time. The credentials of vCenter were read for \
             them, and are not in here."
        }
    };
    format!(
        "Support archive of agent-forge {} at {now}.\n\
         Cluster id: {}\n\n\
         objects/  what the operator reads. Of foreign kinds only the fields that it reads.\n\
         answers/  what `agent-forge explain` and `agent-forge plan` say now, without vCenter.\n\
         events/   the operator's Events.\n\
         operator/ its Deployment, Pods, Leases and logs, and the versions of its kinds.\n\
         errors.txt  what could not be read, and why. It is missing if everything could.\n\n\
         {secrets} URLs are without tokens and queries. Annotations that the operator does not read are \
         left out. Look through it before you send it.\n\n\
         Metrics are not in here. Add them yourself, with a ServiceAccount that may read them:\n\
         kubectl port-forward -n agent-forge-system deploy/agent-forge 8443 &\n\
         curl -k -H \"Authorization: Bearer $(kubectl create token SERVICEACCOUNT -n NAMESPACE)\" \
         https://127.0.0.1:8443/metrics\n",
        env!("CARGO_PKG_VERSION"),
        sight.caches.cluster_id(),
    )
}

fn files(directory: &Path, entries: &[Entry]) -> anyhow::Result<()> {
    for (name, bytes) in entries {
        let path = directory.join(name);
        let about = || format!("writing {}", path.display());
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above).with_context(about)?;
        }
        std::fs::write(&path, bytes).with_context(about)?;
    }
    Ok(())
}

fn archive(path: &Path, entries: &[Entry], now: Timestamp) -> anyhow::Result<()> {
    let about = || format!("writing {}", path.display());
    let file = console::of_owner(path).with_context(about)?;
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or(0));
        tar.append_data(&mut header, format!("agent-forge/{name}"), bytes.as_slice())
            .with_context(about)?;
    }
    let zip = tar.into_inner().with_context(about)?;
    zip.finish()
        .and_then(|file| file.sync_all())
        .with_context(about)
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn only_its_owner_reads_an_archive_also_where_one_was_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.tar.gz");
        let entries = [("README.txt".to_owned(), b"text".to_vec())];
        let mode = || {
            std::fs::metadata(&path)
                .expect("a file")
                .permissions()
                .mode()
                & 0o777
        };
        archive(&path, &entries, Timestamp::UNIX_EPOCH).expect("written");
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("open to all");
        archive(&path, &entries, Timestamp::UNIX_EPOCH).expect("written");
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn the_errors_of_an_archive_quote_no_token() {
        let redactor = Redactor::new().expect("patterns");
        let e = anyhow::anyhow!("GET https://img.example/byapikey/S3CRET/x.iso?token=S3CRET: 401")
            .context("Bearer S3CRET");
        let (name, text) = errors(&redactor, &[e]).expect("an error");
        let text = String::from_utf8(text).expect("text");
        assert_eq!(name, "errors.txt");
        assert!(
            text.contains("img.example") && !text.contains("S3CRET"),
            "{text}"
        );
    }
}
