//! The operator's own user: a ServiceAccount with exactly the rules that the project ships.

use std::{fs, path::Path, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ServiceAccount,
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, api::PostParams, config::Kubeconfig};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::apply::{apply, documents};
use crate::{parts::kubeconfig, patience::ANSWER};

/// Lifetime of a token in seconds: longer than any test, because nothing renews it.
const TOKEN_SECONDS: i64 = 24 * 3600;
/// Pause between two checks whether a rule is known. Nothing can be watched for that.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// How the operator under test reaches the API server.
#[derive(Clone, Debug)]
pub struct OperatorAccess {
    /// Its kubeconfig file. The default namespace in the file is the operator's own.
    pub kubeconfig: PathBuf,
    /// Its user name in the audit log.
    pub user: String,
    /// Its namespace.
    pub namespace: String,
    /// Name of its ServiceAccount.
    pub service_account: String,
}

impl OperatorAccess {
    /// A client of that user. It belongs to the async runtime of the caller.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        let file = Kubeconfig::read_from(&self.kubeconfig).context("read a kubeconfig")?;
        kubeconfig::client(&kubeconfig::config(file).await?)
    }
}

/// Applies the rules of `directory` for an operator in `namespace`. Returns the name of its ServiceAccount.
///
/// Namespaced objects and the subjects of bindings move to `namespace`. ClusterRoleBindings get the namespace's name as
/// a suffix, so that operators of several namespaces can exist side by side.
pub(super) async fn grant(client: &Client, directory: &Path, namespace: &str) -> Result<String> {
    let mut account = None;
    let objects = rules(directory)?;
    for mut object in objects.clone() {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "ServiceAccount" => {
                account = object["metadata"]["name"].as_str().map(str::to_owned);
                object["metadata"]["namespace"] = namespace.into();
            }
            "Role" => object["metadata"]["namespace"] = namespace.into(),
            "RoleBinding" => {
                object["metadata"]["namespace"] = namespace.into();
                move_subjects(&mut object, namespace);
            }
            "ClusterRoleBinding" => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                object["metadata"]["name"] = format!("{name}-{namespace}").into();
                move_subjects(&mut object, namespace);
            }
            "ClusterRole" => {}
            _ => continue,
        }
        apply(client, &object).await?;
    }
    let account = account.with_context(|| {
        format!(
            "{} holds no ServiceAccount for the operator",
            directory.display()
        )
    })?;
    for binding in objects
        .iter()
        .filter(|object| object["roleRef"].is_object())
    {
        let role = objects.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
        });
        let role = role.with_context(|| format!("no such role: {}", binding["roleRef"]))?;
        let user = user(namespace, &account);
        known(client, &user, namespace, &role["rules"]).await?;
    }
    Ok(account)
}

/// Applies the rules in `objects` that are bound to the first ServiceAccount in them, which is the operator's. Returns its
/// namespace and name.
pub(super) async fn grant_bound(client: &Client, objects: &[Value]) -> Result<(String, String)> {
    let text = |object: &Value, pointer: &str| -> Result<String> {
        let found = object.pointer(pointer).and_then(Value::as_str);
        Ok(found
            .with_context(|| format!("{pointer} of {object}"))?
            .to_owned())
    };
    let accounts = objects.iter().find(|o| o["kind"] == "ServiceAccount");
    let account = accounts.context("no ServiceAccount")?;
    apply(client, account).await?;
    let namespace = text(account, "/metadata/namespace")?;
    let account = text(account, "/metadata/name")?;
    let is_bound = |o: &&Value| {
        let subjects = o["subjects"].as_array().into_iter().flatten();
        o["roleRef"].is_object() && subjects.clone().any(|s| s["name"] == account.as_str())
    };
    for binding in objects.iter().filter(is_bound) {
        let place = &binding["metadata"]["namespace"];
        let of = |o: &&Value| {
            let named = ["kind", "name"].map(|key| &binding["roleRef"][key]);
            let cluster = o["kind"] == "ClusterRole";
            named == [&o["kind"], &o["metadata"]["name"]]
                && (cluster || o["metadata"]["namespace"] == *place)
        };
        let role = objects.iter().find(of);
        let role = role.with_context(|| format!("no such role: {binding}"))?;
        apply(client, role).await?;
        apply(client, binding).await?;
        let place = place.as_str().unwrap_or_default();
        known(client, &user(&namespace, &account), place, &role["rules"]).await?;
    }
    Ok((namespace, account))
}

/// Applies the rules of `config/overlays/namespaced` for an operator in `namespace` that serves `pools`, a namespace with
/// pools, and `others`. Returns the name of its ServiceAccount.
pub(super) async fn grant_served(
    client: &Client,
    config: &Path,
    namespace: &str,
    pools: &str,
    others: &[String],
) -> Result<String> {
    let overlay = config.join("overlays/namespaced");
    let mut objects = Vec::new();
    for mut object in rules(&config.join("rbac"))?
        .into_iter()
        .chain(rules(&overlay)?)
    {
        let of_operator = ["ServiceAccount", "Role", "RoleBinding"].map(Value::from);
        if of_operator.contains(&object["kind"]) {
            // The operator reads the Namespace that it runs in.
            if object["metadata"]["name"] == "agent-forge-identity" && object["kind"] == "Role" {
                object["rules"][0]["resourceNames"] = json!([namespace]);
            }
            object["metadata"]["namespace"] = namespace.into();
            objects.push(object);
        }
    }
    let (of_each, of_pools) = (
        rules(&overlay.join("served"))?,
        rules(&overlay.join("pools"))?,
    );
    let of_others = others.iter().map(|other| (other.as_str(), &of_each));
    for (place, roles) in of_others.chain([(pools, &of_each), (pools, &of_pools)]) {
        for mut object in roles.clone() {
            if object["kind"].is_string() && object["kind"] != "Kustomization" {
                object["metadata"]["namespace"] = place.into();
                // Operators of several namespaces may serve the same one.
                if object["kind"] == "RoleBinding" {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    object["metadata"]["name"] = format!("{name}-{namespace}").into();
                }
                objects.push(object);
            }
        }
    }
    for object in &mut objects {
        move_subjects(object, namespace);
    }
    let (_, account) = grant_bound(client, &objects).await?;
    Ok(account)
}

/// Creates the ServiceAccount `account` with these rules (of a Role) in its own namespace.
pub(super) async fn grant_rules(
    client: &Client,
    namespace: &str,
    account: &str,
    rules: &Value,
) -> Result<()> {
    let metadata = json!({"name": account, "namespace": namespace});
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]}),
    ] {
        apply(client, &object).await?;
    }
    known(client, &user(namespace, account), namespace, rules).await
}

/// Waits until the API server's authorizer knows `rules`. It reads roles and bindings through watches of its own, so a
/// rule that was accepted a moment ago may not be in effect yet.
async fn known(client: &Client, user: &str, namespace: &str, rules: &Value) -> Result<()> {
    let rules = Vec::<PolicyRule>::deserialize(rules).context("read the rules of a role")?;
    for rule in rules {
        let review = review(user, namespace, &rule);
        let said = timeout(ANSWER, allowed(client, &review)).await;
        said.with_context(|| format!("{user} never got the granted right: {rule:?}"))??;
    }
    Ok(())
}

/// A review that asks whether `user` may do the first thing that `rule` allows.
fn review(user: &str, namespace: &str, rule: &PolicyRule) -> SubjectAccessReview {
    let first = |list: &Option<Vec<String>>| list.as_ref().and_then(|list| list.first().cloned());
    let resource = first(&rule.resources).unwrap_or_default();
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
        None => (resource, None),
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                group: first(&rule.api_groups),
                resource: Some(resource),
                subresource,
                name: first(&rule.resource_names),
                verb: rule.verbs.first().cloned(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

async fn allowed(client: &Client, review: &SubjectAccessReview) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    loop {
        let answer = reviews.create(&PostParams::default(), review).await;
        let answer = answer.context("ask what a user may do")?;
        if answer.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        sleep(ASK_AGAIN).await;
    }
}

/// User name of a ServiceAccount in the API server.
pub(super) fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

fn rules(directory: &Path) -> Result<Vec<Value>> {
    ensure!(
        directory.is_dir(),
        "{} is missing, and the operator under test runs with exactly the rules in it",
        directory.display()
    );
    let listing =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut files = listing
        .map(|item| item.map(|item| item.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        objects.extend(documents(&text).with_context(|| file.display().to_string())?);
    }
    Ok(objects)
}

fn move_subjects(binding: &mut Value, namespace: &str) {
    for subject in binding["subjects"].as_array_mut().into_iter().flatten() {
        if subject["kind"] == "ServiceAccount" {
            subject["namespace"] = namespace.into();
        }
    }
}

/// A token for a ServiceAccount.
pub(super) async fn token(client: &Client, namespace: &str, account: &str) -> Result<String> {
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await;
    let answer = answer
        .with_context(|| format!("request a token for ServiceAccount {namespace}/{account}"))?;
    Ok(answer.status.context("the API server gave no token")?.token)
}
