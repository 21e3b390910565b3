//! Whether the kubeconfig that a pool names for its Nodes can be used, seen from here.

use agent_forge_actors::{
    domain::failure::ReconcileError,
    nodes::follow::{self, Source},
    pool::observed::Observed,
    ports::nodes::HostedNodes,
};
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
    s: &Observed,
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
        Ok(text) => hosted.nodes(&text).await.map(|nodes| {
            let count = nodes.len();
            format!("the Nodes of the hosted cluster can be listed: {count}")
        }),
    };
    Some(told(about, result))
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
    use agent_forge_crds::conditions::Reason;

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
}
