//! Whether this user has the rights of the operator: each rule of config/rbac, asked by SelfSubjectAccessReview.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, api::PostParams};
use serde::Deserialize;

use super::Check;
use crate::{args::Args, cluster::scope::Scope, servers};

const MANAGER: &str = include_str!("../../../config/rbac/manager_role.yaml");
const CREDENTIALS: &str = include_str!("../../../config/rbac/credentials_role.yaml");
const LEADER: &str = include_str!("../../../config/rbac/leader_election_role.yaml");
const METRICS: &str = include_str!("../../../config/rbac/metrics_auth_role.yaml");
const BYOH: &str = include_str!("../../../config/overlays/byoh-installer/byoh_installer_role.yaml");

/// Reviews at the same time.
const AT_ONCE: usize = 8;

/// One right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

impl Right {
    /// Whether it is about that resource.
    #[cfg(test)]
    pub fn is_on(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }
}

/// Rights, and the namespace where they are needed. `None`: in all namespaces.
type Asked = (Option<String>, Right);

/// All rights in the operator's roles, where it needs them. Those on Secrets: in the namespaces of the Secrets that pools
/// and VMs name. Those on Leases: in its own namespace.
#[must_use]
pub fn wanted(args: &Args, own: &str, secrets: &BTreeSet<String>) -> Vec<Asked> {
    let parts = Scope::of(&args.namespaces).parts();
    let mut all = Vec::new();
    let mut add = |role: &str, places: &[Option<String>]| {
        for right in of_role(role) {
            // Namespaces belong to no namespace. With --namespaces the operator does not need them.
            let places = places
                .iter()
                .filter(|p| p.is_none() || right.resource != "namespaces");
            all.extend(places.map(|place| (place.clone(), right.clone())));
        }
    };
    add(MANAGER, &parts);
    let secrets: Vec<_> = secrets.iter().cloned().map(Some).collect();
    add(CREDENTIALS, &secrets);
    let lease = args.lease.leader_election_namespace.as_deref();
    add(LEADER, &[Some(lease.unwrap_or(own).to_owned())]);
    if servers::reviews_tokens(args) {
        add(METRICS, &[None]);
    }
    if args.byoh_installer {
        add(BYOH, &[None]);
    }
    all
}

fn of_role(text: &str) -> BTreeSet<Right> {
    /// A Role or a ClusterRole.
    #[derive(Deserialize)]
    struct Role {
        rules: Vec<PolicyRule>,
    }
    let role = serde_saphyr::from_str::<Role>(text).ok();
    let rules = role.into_iter().flat_map(|role| role.rules);
    rules.flat_map(of_rule).collect()
}

fn of_rule(rule: PolicyRule) -> Vec<Right> {
    let mut all = Vec::new();
    let names = rule.resource_names.unwrap_or_default();
    let names: Vec<Option<String>> = if names.is_empty() {
        vec![None]
    } else {
        names.into_iter().map(Some).collect()
    };
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                all.extend(rule.verbs.iter().map(|verb| Right {
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    all
}

/// One check for all rights. `secrets`: the namespaces of the Secrets that pools and VMs name.
pub async fn checks(args: &Args, client: &Client, secrets: &BTreeSet<String>) -> Vec<Check> {
    let about = "cluster";
    let asked = wanted(args, &args.home(client), secrets);
    let answers: Vec<_> = stream::iter(asked)
        .map(|(part, right)| async move {
            let answer = allowed(client, part.as_deref(), &right).await;
            (part, right, answer)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (part, right, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => {
                let object = format!("{}.{}", right.resource, right.group);
                let object = object.trim_end_matches('.');
                let place = part.map(|namespace| format!(" in namespace {namespace}"));
                let object = format!("{object}{}", place.unwrap_or_default());
                missing.entry(object).or_default().push(right.verb);
            }
            Err(e) => {
                let says = format!("rights could not be asked: {e}");
                return vec![
                    Check::yellow("rights", about, says).todo("Ask with another user.", PAGE),
                ];
            }
        }
    }
    if missing.is_empty() {
        let says = "this user has all rights in config/rbac";
        return vec![Check::green("rights", about, says)];
    }
    let row = |(object, mut verbs): (String, Vec<String>)| {
        verbs.sort();
        verbs.dedup();
        format!("{object} ({})", verbs.join(", "))
    };
    let all: Vec<String> = missing.into_iter().map(row).collect();
    let says = format!("this user lacks rights of the operator: {}", all.join("; "));
    let todo = "As the operator's ServiceAccount: apply config/rbac. As a person: run doctor as a Job to check the operator's rights.";
    vec![Check::red("rights", about, says).todo(todo, PAGE)]
}

const PAGE: &str = "docs/reference/administrators.md";

#[expect(
    clippy::disallowed_methods,
    reason = "the API server answers a review and stores nothing"
)]
async fn allowed(client: &Client, namespace: Option<&str>, right: &Right) -> kube::Result<bool> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, below)) => (resource.to_owned(), Some(below.to_owned())),
        None => (right.resource.clone(), None),
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource),
                subresource,
                name: right.name.clone(),
                namespace: namespace.map(str::to_owned),
                verb: Some(right.verb.clone()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
