//! What the cluster says about a pool: its spec, its neighbours, its InfraEnv, and the time limits around it.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_actors::{
    domain::{belonging, moving},
    placement::request,
    pool::{observed::Observed, plan::Plan},
    runtime::holds::home_of_hosted_cluster,
};
use agent_forge_crds::{
    VsphereAgentPool,
    conditions::{Reason, Who},
    duration,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

use super::Check;
use crate::{
    args::Args,
    machines::waits::{
        Wait, by_people, failed_steps, invalid_pause, next_effects_of_pool, standing,
    },
};

/// The cluster autoscaler of a hosted cluster gives a node up after this time.
const AUTOSCALER: Duration = Duration::from_secs(15 * 60);
/// The MachineHealthCheck that HyperShift makes for `autoRepair` gives a node up after this time.
const HEALTH_CHECK: Duration = Duration::from_secs(20 * 60);

/// The checks that need nothing but the objects.
#[must_use]
pub fn checks(about: &str, s: &Observed, plan: &Plan) -> Vec<Check> {
    let mut all = vec![
        spec(about, &s.pool),
        neighbours(about, s),
        infra_env(about, s),
    ];
    all.extend(sharing(about, s));
    all.extend(newer(about, s));
    let refusing = s.refusing();
    if !refusing.is_empty() {
        let message = s.grants.sentence(&refusing, &s.key.namespace);
        all.push(Check::because(
            "namespaces",
            about,
            &Reason::NamespaceNotAllowed,
            message,
        ));
    }
    all.extend(holds(about, s, plan));
    all.extend(steps(about, s));
    for wait in &plan.waiting {
        let known = wait.reason.about();
        let told = all.iter().any(|c| c.says.starts_with(wait.reason.as_str()));
        if known.who != Who::Nobody && !told {
            let message = format!("{}: {}", wait.subject, wait.message);
            all.push(Check::because("demand", about, &wait.reason, message));
        }
    }
    all
}

/// Pauses and vetoes, and what was meant as a pause.
fn holds(about: &str, s: &Observed, plan: &Plan) -> Vec<Check> {
    let check = "holds";
    let next = next_effects_of_pool(s, plan);
    let mut all: Vec<Check> = Vec::new();
    for wait in by_people(&s.holds, &next, s.wall)
        .into_iter()
        .chain(invalid_pause(&s.holds))
    {
        let found = Check::yellow(check, about, wait.message).todo(wait.remedy, wait.page);
        if !all.contains(&found) {
            all.push(found);
        }
    }
    for veto in standing(&s.holds, &next) {
        let says = format!("nothing waits for it now: {veto}");
        all.push(Check::green(check, about, says));
    }
    // What holds a single VM, as the operator told it last.
    let status = s.pool.status.iter().flat_map(|s| &s.waiting_on);
    for wait in status.filter(|w| matches!(w.reason, Reason::Paused | Reason::Vetoed)) {
        let says = format!("{}: {}", wait.subject, wait.message);
        let known = wait.reason.about();
        if all.iter().all(|c| !c.says.contains(&wait.message)) {
            all.push(Check::yellow(check, about, says).todo(known.remedy, known.section.page()));
        }
    }
    all
}

/// Steps that failed on VsphereAgents and stop nothing else: one check for each reason.
fn steps(about: &str, s: &Observed) -> Vec<Check> {
    let mut all: BTreeMap<String, Vec<Wait>> = BTreeMap::new();
    for wait in s.children.iter().filter_map(|c| failed_steps(&c.object)) {
        all.entry(wait.reason.to_string()).or_default().push(wait);
    }
    let check = |(reason, waits): (String, Vec<Wait>)| {
        let first = waits.first()?;
        let more = match waits.len() - 1 {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let says = format!("{reason}: {}: {}{more}", first.subject, first.message);
        Some(Check::yellow("steps", about, says).todo(first.remedy, first.page))
    };
    all.into_iter().filter_map(check).collect()
}

fn spec(about: &str, pool: &VsphereAgentPool) -> Check {
    let check = "spec";
    if let Some(message) = belonging::refused_label(pool) {
        return Check::because(check, about, &Reason::InvalidSpec, message);
    }
    match request::place_request(pool) {
        Ok(_) => Check::green(check, about, "each field can be used"),
        Err(e) => Check::because(check, about, &e.reason, e.message),
    }
}

/// Hosts that it shares with pools of other namespaces: what a roll-back has to know of them.
fn sharing(about: &str, s: &Observed) -> Option<Check> {
    let used = s.children.iter().filter(|c| c.maker() != s.key).count();
    let given = s.group.shared.len();
    let says = format!(
        "hosts of other namespaces that it uses: {used}; its hosts that other namespaces use: {given}. Before a roll-back to a release \
         without spec.goal.pool, read docs/how-to/upgrade-and-roll-back.md"
    );
    (used + given > 0).then(|| Check::green("sharing", about, says))
}

/// Classes, and hosts that people move: what an earlier release does not read.
fn newer(about: &str, s: &Observed) -> Option<Check> {
    let classes = s.pool.spec.classes.len();
    let of_class = s.children.iter().filter(|c| c.class().is_some()).count();
    let moving = s.children.iter();
    let moving = moving
        .filter(|c| moving::to(&c.object, s.wall).is_some())
        .count();
    let says = format!(
        "size classes: {classes}; hosts of them: {of_class}; hosts that go to another pool: {moving}. An earlier release takes each host \
         for one of spec.template: before a roll-back, read docs/how-to/upgrade-and-roll-back.md"
    );
    (classes + of_class + moving > 0).then(|| Check::green("classes", about, says))
}

fn neighbours(about: &str, s: &Observed) -> Check {
    let check = "neighbours";
    if !s.pool.has_node_pool() {
        let group = s.pool.spec.group().unwrap_or("?");
        let says = format!(
            "it has no NodePool and keeps hosts for group {group}. Earlier releases cannot read it: delete it before a roll-back"
        );
        return Check::green(check, about, says);
    }
    let name = &s.pool.spec.node_pool_ref.name;
    let twin = s
        .other_pools
        .iter()
        .find(|p| p.spec.node_pool_ref.name == *name);
    match twin {
        None => Check::green(
            check,
            about,
            format!("no other pool claims NodePool {name}"),
        ),
        Some(twin) => {
            let other = format!(
                "{}/{}",
                twin.namespace().unwrap_or_default(),
                twin.name_any()
            );
            let message = format!("VsphereAgentPool {other} claims NodePool {name} too");
            Check::because(check, about, &Reason::PoolConflict, message)
        }
    }
}

fn infra_env(about: &str, s: &Observed) -> Check {
    let check = "infraenv";
    if s.refused_source().is_some() {
        let refused = s.grants.refused_homes(&s.pool);
        let message = s.grants.sentence(&refused, &s.key.namespace);
        return Check::because(check, about, &Reason::NamespaceNotAllowed, message);
    }
    let Some(found) = &s.infra_env else {
        let message = format!("InfraEnv {} does not exist", s.infra_env_key);
        return Check::because(check, about, &Reason::InfraEnvNotFound, message);
    };
    if let Some(guard) = s.guard() {
        return Check::because(check, about, &guard.reason, guard.message);
    }
    if found.iso_download_url().is_none() {
        let message = format!("InfraEnv {} offers no ISO", s.infra_env_key);
        return Check::because(check, about, &Reason::IsoUrlPending, message);
    }
    Check::green(
        check,
        about,
        format!("InfraEnv {} offers an ISO", s.infra_env_key),
    )
}

/// Whether others give a machine up before the operator has replaced its VM.
pub async fn time_limits(
    args: &Args,
    client: &Client,
    about: &str,
    pool: &VsphereAgentPool,
) -> Check {
    if !pool.has_node_pool() {
        let says = "it has no NodePool, so nobody gives a machine of it up";
        return Check::green("timelimits", about, says);
    }
    let name = &pool.spec.node_pool_ref.name;
    let unknown = |why: String| {
        let todo = format!("Compare the time limits of NodePool {name} by hand.");
        let page = "docs/how-to/replace-or-force-a-vm.md";
        Check::yellow("timelimits", about, why).todo(todo, page)
    };
    let Some(namespace) = home_of_hosted_cluster(pool) else {
        return unknown(format!(
            "spec.controlPlaneNamespace does not tell the namespace of HostedCluster {}",
            pool.spec.hosted_cluster_ref.name
        ));
    };
    let gvk = GroupVersionKind::gvk("hypershift.openshift.io", "v1beta1", "NodePool");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "nodepools");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    // `get` is no right of the operator, and `list` is.
    let listed = match api.list(&Default::default()).await {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let says = "no NodePools are served here, so none gives a machine up";
            return Check::green("timelimits", about, says);
        }
        Err(e) => return unknown(format!("NodePools of {namespace} cannot be listed: {e}")),
    };
    let mut found = listed.items.into_iter().filter(|n| n.name_any() == *name);
    let Some(node_pool) = found.next() else {
        return unknown(format!("there is no NodePool {namespace}/{name}"));
    };
    let own = pool.spec.agent.discovery_timeout.as_deref();
    let own = own.and_then(|t| duration::parse(t).ok());
    let own = own.filter(|d| !d.is_zero());
    let own = own.unwrap_or(args.agent_discovery_timeout);
    judge_limits(about, &node_pool.data["spec"], own)
}

fn judge_limits(about: &str, node_pool: &Value, discovery: Duration) -> Check {
    let check = "timelimits";
    let limits = [
        (
            node_pool["autoScaling"].is_object(),
            "the cluster autoscaler",
            AUTOSCALER,
        ),
        (
            node_pool["management"]["autoRepair"] == true,
            "the MachineHealthCheck",
            HEALTH_CHECK,
        ),
    ];
    let shorter = limits
        .into_iter()
        .find(|(used, _, limit)| *used && discovery >= *limit);
    let minutes = |d: Duration| d.as_secs() / 60;
    match shorter {
        None => Check::green(
            check,
            about,
            "nobody gives a machine up before its VM is replaced",
        ),
        Some((_, who, limit)) => {
            let says = format!(
                "{who} gives a machine up after {} min, and a VM whose Agent does not come is replaced after {} min",
                minutes(limit),
                minutes(discovery)
            );
            let todo = format!(
                "Set spec.agent.discoveryTimeout to less than {} minutes, such as 10m.",
                minutes(limit)
            );
            Check::yellow(check, about, says).todo(todo, "docs/how-to/replace-or-force-a-vm.md")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::doctor::Color;

    #[test]
    fn a_limit_counts_only_where_it_is_used() {
        let minutes = |m: u64| Duration::from_secs(m * 60);
        for (spec, discovery, color) in [
            (json!({}), 30, Color::Green),
            (json!({"autoScaling": {"min": 1}}), 30, Color::Yellow),
            (json!({"autoScaling": {"min": 1}}), 14, Color::Green),
            (
                json!({"management": {"autoRepair": true}}),
                15,
                Color::Green,
            ),
            (
                json!({"management": {"autoRepair": true}}),
                20,
                Color::Yellow,
            ),
        ] {
            let check = judge_limits("p", &spec, minutes(discovery));
            assert_eq!(check.color, color, "{spec} {discovery}");
        }
    }
}
