//! `agent-forge hosts`: which host served which hosted cluster and Machine, and when. Hosts that are there come from the
//! VsphereAgents, hosts that are gone from the statuses of the pools.
//!
//! It lists pools and VsphereAgents with the rights of the person, and asks no vCenter.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_actors::domain::{
    belonging, goal, host_lives, managed_vm::ManagedVm, names::ObjectKey,
};
use agent_forge_crds::{VsphereAgent, VsphereAgentPool, pool::PastHost};
use anyhow::Context as _;
use clap::Args as ClapArgs;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Asked,
    report::{self, Report, Verdict},
    sight,
};
use crate::{
    args::Args,
    cluster::scope::{self, Part, Scope},
};

/// What `agent-forge hosts` shows.
#[derive(Clone, Debug, ClapArgs)]
pub struct HostsArgs {
    /// Only hosts of this InfraEnv.
    #[arg(
        long,
        env = "AGENT_FORGE_INFRA_ENV",
        value_name = "NAMESPACE/NAME",
        value_parser = infra_env
    )]
    pub infra_env: Option<String>,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,
}

fn infra_env(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(text.to_owned())
        }
        _ => Err("namespace and name of an InfraEnv: demo/workers".to_owned()),
    }
}

/// The hosts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hosts {
    hosts: Vec<Row>,
}

/// One life of one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// `null`: not on record.
    infra_env: Option<String>,
    vm: String,
    life: i32,
    pool: String,
    vsphere_agent: String,
    /// Namespace of the control plane of the hosted cluster; `null`: it served none yet.
    control_plane: Option<String>,
    machine: Option<String>,
    since: Option<Timestamp>,
    /// `null`: until now.
    until: Option<Timestamp>,
    /// Its VsphereAgent is gone.
    gone: bool,
}

/// Shows the hosts.
///
/// # Errors
/// The API server does not answer, or the person may not list pools or VsphereAgents.
pub async fn run(args: &Args, asked: &HostsArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let own = asked.asked.place.namespace.clone().map(|n| vec![Some(n)]);
    let parts = own.unwrap_or_else(|| Scope::of(&args.namespaces).parts());
    let pools = listed::<VsphereAgentPool>(client, &parts).await?;
    let children = listed::<VsphereAgent>(client, &parts).await?;
    let mut hosts = rows(&pools, children);
    if let Some(wanted) = &asked.infra_env {
        hosts.retain(|row| row.infra_env.as_ref() == Some(wanted));
    }
    report::print(&Hosts { hosts }, asked.asked.output)
}

async fn listed<K>(client: &Client, parts: &[Part]) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let kind = K::plural(&());
    let mut all = Vec::new();
    for part in parts {
        let api: Api<K> = scope::api(client, part);
        let listed = api.list(&ListParams::default()).await;
        let listed = listed.with_context(|| match part {
            None => format!(
                "listing {kind} of all namespaces; without the right for that, name one with -n, or several with --namespaces"
            ),
            Some(namespace) => format!("listing {kind} of namespace {namespace}"),
        });
        all.extend(listed?.items);
    }
    Ok(all)
}

/// A row for each life of each host, by InfraEnv, VM and life.
fn rows(pools: &[VsphereAgentPool], children: Vec<VsphereAgent>) -> Vec<Row> {
    let by_key: BTreeMap<ObjectKey, &VsphereAgentPool> =
        pools.iter().map(|p| (ObjectKey::of(p), p)).collect();
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for child in children {
        let user = goal::user(&child);
        let of_pool = by_key
            .get(&user)
            .and_then(|p| belonging::infra_envs(p).into_iter().next());
        let child = ManagedVm::read(Arc::new(child));
        for life in host_lives::lives(&child) {
            known.insert((life.uid.clone(), life.life));
            let infra_env = life.infra_env.clone();
            let infra_env = infra_env.or_else(|| of_pool.as_ref().map(ToString::to_string));
            all.push(row(&user, infra_env, life, false));
        }
    }
    for (key, pool) in &by_key {
        let status = pool.status.as_ref();
        let past = status.map(|s| s.past_hosts.clone()).unwrap_or_default();
        // Two pools may tell of one host, and a VsphereAgent that is being deleted is still there.
        let fresh = past
            .into_iter()
            .filter(|p| known.insert((p.uid.clone(), p.life)));
        all.extend(fresh.map(|p| row(key, p.infra_env.clone(), p, true)));
    }
    all.sort();
    all
}

fn row(pool: &ObjectKey, infra_env: Option<String>, life: PastHost, gone: bool) -> Row {
    Row {
        infra_env,
        vm: life.vm_name,
        life: life.life,
        pool: pool.to_string(),
        vsphere_agent: ObjectKey::new(life.namespace, life.name).to_string(),
        control_plane: life.control_plane,
        machine: life.machine,
        since: life.since.map(|t| t.0),
        until: life.until.map(|t| t.0),
        gone,
    }
}

/// Columns of an InfraEnv.
const COLUMNS: [&str; 7] = [
    "VM",
    "POOL",
    "CONTROL PLANE",
    "MACHINE",
    "FROM",
    "TO",
    "LIFE",
];

impl Report for Hosts {
    fn text(&self) -> String {
        if self.hosts.is_empty() {
            return "there are no hosts, and none on record that is gone\n".to_owned();
        }
        let mut by_infra_env: BTreeMap<&Option<String>, Vec<&Row>> = BTreeMap::new();
        for row in &self.hosts {
            by_infra_env.entry(&row.infra_env).or_default().push(row);
        }
        let tables = by_infra_env.into_iter().map(|(infra_env, rows)| {
            let name = infra_env.as_deref().unwrap_or("not on record");
            let cells = rows.into_iter().map(cells);
            format!("InfraEnv {name}\n{}", report::table(&COLUMNS, cells))
        });
        tables.collect::<Vec<_>>().join("\n")
    }

    fn verdict(&self) -> Verdict {
        Verdict::Nothing
    }
}

fn cells(row: &Row) -> Vec<String> {
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let at = |at: Timestamp| format!("{at:.0}");
    let to = match (row.until, row.gone) {
        (Some(until), true) => format!("{} (gone)", at(until)),
        (Some(until), false) => at(until),
        (None, _) => "now".to_owned(),
    };
    vec![
        row.vm.clone(),
        row.pool.clone(),
        word(&row.control_plane),
        word(&row.machine),
        row.since.map_or_else(|| "?".to_owned(), at),
        to,
        row.life.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{CHILD_UID, World};

    fn shown(world: &World) -> Hosts {
        let pool = serde_json::from_value(world.pool.clone()).expect("a pool");
        let child = serde_json::from_value(world.child.clone());
        let children = child.into_iter().collect();
        Hosts {
            hosts: rows(&[pool], children),
        }
    }

    fn world() -> World {
        let mut world = World::serving();
        let vm = &mut world.child["status"]["vm"];
        vm["generation"] = json!(2);
        vm["generationSince"] = json!("2026-01-02T00:00:00Z");
        vm["machineRef"] = json!({"name": "m-2", "namespace": "demo-demo"});
        vm["infraEnvRef"] = json!({"name": "infra", "namespace": "demo"});
        vm["lives"] = json!([{
            "generation": 1, "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T12:00:00Z", "machine": "m-1",
            "controlPlane": "other",
        }]);
        let past = |uid: &str, infra_env: &str| {
            json!({"namespace": "demo", "name": "w-0", "uid": uid, "life": 1, "vmName": "w-0", "infraEnv": infra_env,
                "controlPlane": "demo-demo", "machine": "m-0", "since": "2025-12-01T00:00:00Z",
                "until": "2025-12-31T00:00:00Z"})
        };
        world.pool["status"]["pastHosts"] =
            json!([past("gone", "demo/old"), past(CHILD_UID, "demo/infra")]);
        world
    }

    #[test]
    fn present_and_past_lives_are_rows_by_infra_env_and_each_is_told_once() {
        let text = shown(&world()).text();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let vm = |life: &str| {
            let row = lines
                .iter()
                .find(|l| l.first() == Some(&"w-1") && l.last() == Some(&life));
            row.unwrap_or_else(|| panic!("{life}: {text}")).clone()
        };
        assert_eq!(lines[0], ["InfraEnv", "demo/infra"]);
        assert_eq!(
            vm("1"),
            [
                "w-1",
                "demo/workers",
                "other",
                "m-1",
                "2026-01-01T00:00:00Z",
                "2026-01-01T12:00:00Z",
                "1"
            ]
        );
        assert_eq!(vm("2")[3..], ["m-2", "2026-01-02T00:00:00Z", "now", "2"]);
        assert!(text.contains("InfraEnv demo/old\n"), "{text}");
        assert!(text.contains("2025-12-31T00:00:00Z (gone)"), "{text}");
        assert_eq!(text.matches("m-0").count(), 1, "{text}");
    }

    #[test]
    fn an_infra_env_is_named_with_its_namespace() {
        assert!(infra_env("demo/infra").is_ok());
        for bad in ["infra", "/infra", "demo/", "a/b/c"] {
            assert!(infra_env(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_is_said_in_a_sentence() {
        let none = Hosts { hosts: Vec::new() };
        assert!(none.text().starts_with("there are no hosts"));
    }
}
