//! The operator's own user: a ServiceAccount with exactly the rules that the project ships.

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use super::apply::{apply, documents};

/// Token life in seconds: longer than any test, and nothing renews it.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// How the operator under test reaches the API server.
#[derive(Clone, Debug)]
pub struct OperatorAccess {
    /// Its kubeconfig file; the default namespace in it is the operator's own.
    pub kubeconfig: PathBuf,
    /// Its user name as the audit log has it.
    pub user: String,
    /// Its namespace.
    pub namespace: String,
    /// Name of its ServiceAccount.
    pub service_account: String,
}

/// Applies the rules of `directory` for an operator in `namespace`; returns the name of its ServiceAccount.
///
/// Namespaced objects and the subjects of bindings move to `namespace`. Bindings of the whole cluster get the
/// namespace's name as a suffix, so that operators of several namespaces live side by side.
pub(super) async fn grant(client: &Client, directory: &Path, namespace: &str) -> Result<String> {
    let mut account = None;
    for mut object in rules(directory)? {
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
    account.with_context(|| {
        format!(
            "{} holds no ServiceAccount for the operator",
            directory.display()
        )
    })
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

/// A token for a ServiceAccount, which is made where it does not exist.
pub(super) async fn token(client: &Client, namespace: &str, account: &str) -> Result<String> {
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}});
    apply(client, &object).await?;
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
