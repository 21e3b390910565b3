//! Whether the kubeconfig that a pool names for its Nodes can be used, seen from here, and whether the Nodes fit to the VMs.

use agent_forge_actors::{
    domain::failure::ReconcileError,
    nodes::{
        follow::{self, Source},
        judge::Judgement,
    },
    pool::{nodes, observed::Observed},
    ports::{cluster::View, nodes::HostedNodes},
};
use agent_forge_crds::conditions::Reason;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::Check;
use crate::{args::Args, cluster::writer::secret_read, hosted_nodes::HttpHostedNodes};

const PAGE: &str = "docs/how-to/check-nodes.md";

/// The check, if the pool asks for its Nodes. `offline`: the hosted cluster is not asked.
pub async fn check(
    args: &Args,
    client: &Client,
    about: &str,
    (view, s): (&dyn View, &Observed),
    offline: bool,
) -> Option<Check> {
    let source = match Source::of(&s.pool, &s.secret_namespaces) {
        Ok(source) => source?,
        Err(refused) => return Some(told(about, Err(refused))),
    };
    let api: Api<Secret> = Api::namespaced(client.clone(), &source.secret.namespace);
    let found = match api.get_opt(&source.secret.name).await {
        Ok(found) => found.map(secret_read),
        Err(e) => {
            let says = format!("Secret {} cannot be read: {e}", source.secret);
            return Some(Check::yellow("nodes", about, says).todo("Ask with another user.", PAGE));
        }
    };
    let hosted = HttpHostedNodes::new(args.server_rule(), true);
    let result = match follow::kubeconfig(&source, found) {
        Err(refused) => Err(refused),
        Ok(text) if offline => match hosted.judge(&text) {
            Ok(()) => Ok(format!(
                "Secret {} has a kubeconfig that can be used",
                source.secret
            )),
            Err(refused) => Err(refused),
        },
        Ok(text) => match hosted.nodes(&text).await {
            Err(failed) => Err(failed),
            Ok(listed) => match nodes::compare(view, s, &listed) {
                Err(unknown) => Err(unknown),
                Ok(judged) => return Some(compared(about, &judged)),
            },
        },
    };
    Some(told(about, result))
}

/// What the comparison found. Nothing waits for a finding.
fn compared(about: &str, judged: &Judgement) -> Check {
    let (_, reason, message) = nodes::told(judged);
    if reason == Reason::NodesMatch {
        let says = format!("the Nodes of the hosted cluster can be listed, and fit: {message}");
        return Check::green("nodes", about, says);
    }
    let says = format!("{reason}: {message}");
    Check::yellow("nodes", about, says).todo(reason.about().remedy, PAGE)
}

/// Nothing waits for the Nodes, so no failure is red.
fn told(about: &str, result: Result<String, ReconcileError>) -> Check {
    match result {
        Ok(says) => Check::green("nodes", about, says),
        Err(e) => {
            let says = format!("{}: {}", e.reason, e.message);
            Check::yellow("nodes", about, says).todo(e.reason.about().remedy, PAGE)
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::{
        domain::{
            identity::{BiosUuid, ShownMachine},
            node::NodeFacts,
        },
        nodes::judge::{HostVm, Known, judge},
    };

    use super::*;
    use crate::commands::doctor::Color;

    #[test]
    fn a_kubeconfig_that_is_refused_is_yellow_and_says_why() {
        let refused = ReconcileError::blocked(
            agent_forge_actors::domain::failure::ErrorSource::Kubernetes,
            Reason::KubeconfigRefused,
            "users[].user.exec is not accepted",
        );
        let check = told("pool demo/workers", Err(refused));
        assert_eq!(check.color, Color::Yellow);
        assert!(check.says.contains("users[].user.exec"), "{}", check.says);
        assert_eq!(check.page, PAGE);
        let good = told("pool demo/workers", Ok("3 Nodes".to_owned()));
        assert_eq!(good.color, Color::Green);
    }

    #[test]
    fn a_finding_is_yellow_and_named() {
        let found = |version| {
            let uuid = BiosUuid::derive("cluster", "w-0", 1);
            let vm = HostVm {
                name: "w-0".to_owned(),
                uuid,
                judged: true,
                gone: false,
                agent: None,
                installed: None,
                hardware_version: Some(version),
            };
            let node = NodeFacts {
                name: "node-0".to_owned(),
                provider_id: Some("agent://a".to_owned()),
                ..NodeFacts::default()
            };
            let known = Known {
                vms: vec![vm],
                agents: [("a".to_owned(), ShownMachine::Vm(uuid))].into(),
            };
            let judged = judge(&[node], &known, jiff::Timestamp::UNIX_EPOCH);
            compared("pool demo/workers", &judged)
        };
        let old = found(13);
        assert_eq!(old.color, Color::Yellow);
        let named = old.says.contains("node-0") && old.says.contains("hardware version 13");
        assert!(named, "{}", old.says);
        assert_eq!(found(15).color, Color::Green);
    }
}
