//! The API server: definitions, clock, and the predecessor's Lease.

use agent_forge_actors::migration::lease;
use agent_forge_crds::{manifest, names};
use http::{Request, header};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use k8s_openapi::{
    api::coordination::v1::Lease,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, client::Body};

use super::Check;
use crate::{
    args::Args,
    cluster::{definitions, machines},
};

/// Clocks may differ so much: the identity of an Agent allows five minutes.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// All checks of this file.
pub async fn checks(args: &Args, client: &Client) -> Vec<Check> {
    let (own, capi, clock, lease) = tokio::join!(
        installed(client),
        machine_versions(client),
        clock(client),
        predecessor(args, client)
    );
    own.into_iter().chain([capi, clock]).chain(lease).collect()
}

const INSTALL: &str = "docs/how-to/upgrade-and-roll-back.md";

/// The operator's own definitions, compared with those of this binary.
async fn installed(client: &Client) -> Vec<Check> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut all = Vec::new();
    for ours in [manifest::pool(), manifest::agent()] {
        let name = ours.metadata.name.clone().unwrap_or_default();
        let about = format!("CRD {name}");
        all.push(match api.get_opt(&name).await {
            Ok(Some(theirs)) => {
                let (ours, theirs) = (definitions::schema(&ours), definitions::schema(&theirs));
                compared(&about, definitions::missing(&ours, &theirs))
            }
            Ok(None) => Check::red("definitions", &about, "it is not installed")
                .todo("Apply config/crd.", INSTALL),
            // The operator itself has no right to read definitions.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                published(client, &ours.spec.names.kind, &about).await
            }
            Err(e) => Check::yellow("definitions", &about, format!("it cannot be read: {e}"))
                .todo("Ask again.", INSTALL),
        });
    }
    all
}

/// The same by the schemas that the API server publishes.
async fn published(client: &Client, kind: &str, about: &str) -> Check {
    match definitions::dropped(client).await {
        Ok(all) => {
            let lacks = all.into_iter().find(|(of, _)| of == kind);
            compared(about, lacks.map(|(_, lacks)| lacks).unwrap_or_default())
        }
        Err(e) => Check::red(
            "definitions",
            about,
            format!("{} is not served: {e}", names::API_VERSION),
        )
        .todo("Apply config/crd.", INSTALL),
    }
}

/// `missing`: fields that this binary knows and the installed definition lacks. The API server would drop them.
fn compared(about: &str, missing: Vec<String>) -> Check {
    if missing.is_empty() {
        return Check::green("definitions", about, "it has all fields of this release");
    }
    let says = format!("it is of another release and lacks {}", missing.join(", "));
    Check::red("definitions", about, says).todo("Apply config/crd of this release.", INSTALL)
}

async fn machine_versions(client: &Client) -> Check {
    let (check, about) = ("machines", "Cluster API");
    match machines::served_version(client).await {
        Ok(version) => Check::green(check, about, format!("{} is served", version.api_version())),
        Err(e) => Check::red(check, about, e.to_string()).todo(
            "Install Cluster API with its CRDs, as HyperShift does.",
            "docs/getting-started.md",
        ),
    }
}

/// This machine's clock against the API server's.
#[expect(
    clippy::disallowed_methods,
    reason = "a GET: only a raw request shows the answer's date"
)]
async fn clock(client: &Client) -> Check {
    let (check, about) = ("clock", "API server");
    let page = "docs/reference/administrators.md";
    let unknown = |why: String| {
        Check::yellow(
            check,
            about,
            format!("the API server's time is not known: {why}"),
        )
        .todo("Compare the clocks by hand.", page)
    };
    let request = match Request::get("/version").body(Body::empty()) {
        Ok(request) => request,
        Err(e) => return unknown(e.to_string()),
    };
    let answer = match client.send(request).await {
        Ok(answer) => answer,
        Err(e) => return unknown(e.to_string()),
    };
    let date = answer
        .headers()
        .get(header::DATE)
        .and_then(|d| d.to_str().ok());
    let Some(Ok(there)) = date.map(rfc2822::parse) else {
        return unknown("it sends no date".to_owned());
    };
    judge_clock(Timestamp::now().duration_since(there.timestamp()))
}

fn judge_clock(skew: SignedDuration) -> Check {
    let (check, about) = ("clock", "API server");
    let seconds = skew.as_secs();
    if skew.abs() <= SKEW {
        return Check::green(check, about, "this clock and the API server's agree");
    }
    Check::red(
        check,
        about,
        format!("this clock differs from the API server's by {seconds} s"),
    )
    .todo(
        "Correct the clock (NTP) of the one that is wrong.",
        "docs/reference/administrators.md",
    )
}

/// The Lease of the predecessor, where the operator would look for it.
async fn predecessor(args: &Args, client: &Client) -> Vec<Check> {
    let own = args.lease.leader_election_namespace.clone();
    let own = own.unwrap_or_else(|| args.home(client));
    let mut namespaces: Vec<String> = args
        .lease
        .guards(&own, args.dry_run)
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    namespaces.extend(["agent-forge-system".to_owned()]);
    namespaces.sort();
    namespaces.dedup();
    let mut all = Vec::new();
    for namespace in namespaces {
        let api: Api<Lease> = Api::namespaced(client.clone(), &namespace);
        all.push(match api.get_opt(lease::LEASE).await {
            Ok(found) => judge_lease(&namespace, found.as_ref(), Timestamp::now()),
            Err(e) => {
                let about = format!("Lease {namespace}/{}", lease::LEASE);
                let says = format!("whether the predecessor acts is not known: {e}");
                let page = "docs/how-to/take-over-from-the-predecessor.md";
                Check::yellow("predecessor", &about, says)
                    .todo("Ask with a user that may read this Lease.", page)
            }
        });
    }
    all
}

fn judge_lease(namespace: &str, found: Option<&Lease>, now: Timestamp) -> Check {
    let (check, about) = ("predecessor", format!("Lease {namespace}/{}", lease::LEASE));
    let spec = found.and_then(|lease| lease.spec.as_ref());
    let holder = spec
        .and_then(|s| s.holder_identity.as_deref())
        .filter(|h| !h.is_empty());
    let renewed = spec.and_then(|s| s.renew_time.as_ref()).map(|t| t.0);
    let lasts = SignedDuration::from_secs(
        spec.and_then(|s| s.lease_duration_seconds)
            .unwrap_or(15)
            .into(),
    );
    let fresh = renewed.is_some_and(|renewed| now.duration_since(renewed) < lasts);
    match holder {
        // Our own replicas hold it while they act.
        Some(holder) if fresh && !holder.starts_with("agent-forge/") => {
            let says = format!("the predecessor ({holder}) acts, so this operator does not");
            Check::red(check, &about, says).todo(
                "Scale the predecessor to zero.",
                "docs/how-to/take-over-from-the-predecessor.md",
            )
        }
        _ => Check::green(check, &about, "no predecessor acts"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::doctor::Color;

    #[test]
    fn a_definition_of_another_release_is_named_with_what_it_lacks() {
        let ours = definitions::schema(&manifest::pool());
        let compared_with = |old| compared("c", definitions::missing(&ours, old));
        assert_eq!(compared_with(&ours).color, Color::Green);
        let mut old = ours.clone();
        let spec = &mut old["properties"]["spec"];
        let iso = spec["properties"]["iso"]["properties"]
            .as_object_mut()
            .expect("fields");
        assert!(iso.remove("caBundleRef").is_some());
        let check = compared_with(&old);
        assert_eq!(check.color, Color::Red);
        assert!(
            check.says.contains("spec.iso.caBundleRef"),
            "{}",
            check.says
        );
    }

    #[test]
    fn a_clock_that_differs_and_a_predecessor_that_acts_are_red() {
        for (seconds, color) in [
            (0, Color::Green),
            (-30, Color::Green),
            (31, Color::Red),
            (-600, Color::Red),
        ] {
            assert_eq!(
                judge_clock(SignedDuration::from_secs(seconds)).color,
                color,
                "{seconds}"
            );
        }
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let lease = |holder: &str, renewed: &str| -> Lease {
            serde_json::from_value(json!({"spec": {
                "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15,
            }}))
            .expect("a Lease")
        };
        for (found, color) in [
            (None, Color::Green),
            (
                Some(lease("old_1", "2025-12-31T23:59:50.000000Z")),
                Color::Red,
            ),
            (
                Some(lease("old_1", "2025-12-31T23:59:40.000000Z")),
                Color::Green,
            ),
            (Some(lease("", "2025-12-31T23:59:59.000000Z")), Color::Green),
            (
                Some(lease("agent-forge/ns/x", "2025-12-31T23:59:59.000000Z")),
                Color::Green,
            ),
        ] {
            assert_eq!(
                judge_lease("n", found.as_ref(), now).color,
                color,
                "{found:?}"
            );
        }
    }
}
