//! Credentials that do not work. Each refusal has its reason, correcting the Secret is enough, and no restart tries
//! refused credentials again.

use agent_forge_lab::lab::{
    apply::apply,
    manifest::{credentials, namespace},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    look::merge,
    shared::{MENDED_WITHIN, kill},
    tokens::shown_isos,
    world::{LIMIT, Setup, World},
};

fn secret(name: &str) -> Value {
    json!({"vsphere": {"credentialsSecretRef": {"name": name}}})
}

/// Waits until each of these Secrets has been read again.
async fn until_looked_at_again(world: &World, secrets: &[&str]) -> Result<()> {
    for name in secrets {
        world.until_read_again(&path(world, name)).await?;
    }
    Ok(())
}

/// Path of a Secret at the API server.
fn path(world: &World, secret: &str) -> String {
    format!("/api/v1/namespaces/{}/secrets/{secret}", world.namespace())
}

/// Checks that one login was refused since the beginning.
async fn refused_once(world: &World, when: &str) -> Result<()> {
    let logins = world.vcenter.calls().await?.logins;
    ensure!(logins.get("refused") == Some(&1), "{when}: {logins:?}");
    Ok(())
}

/// Waits until the status of each of these pools records that its Secret (of the same name) was refused with its
/// present content.
async fn until_recorded(world: &World, pools: &[&str]) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), world.namespace());
    for pool in pools {
        let what = format!("status.refusedCredentials of {pool}");
        let recorded = async || {
            let stands = secrets.get(pool).await?.metadata;
            let status = world.pools().get(pool).await?.status.unwrap_or_default();
            let record = status.refused_credentials.unwrap_or_default();
            Ok(record.refused_at.is_some()
                && stands.uid == Some(record.secret_uid)
                && stands.resource_version == Some(record.secret_resource_version))
        };
        world.until(&what, recorded).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_tried_once_and_every_refusal_heals_without_a_restart() -> Result<()> {
    let mut world = World::without_pool(Setup::own_lab()).await?;
    apply(&world.client, &namespace("vault")).await?;
    let options = world.process.options().clone();
    let good = credentials(&world.process);
    world.set_secret_data("vault", "creds", good).await?;
    // Two Secrets with the same content are one login, so the account is not locked.
    for name in ["wrong-1", "wrong-2"] {
        world.set_secret(name, "not the password").await?;
    }
    for name in ["wrong-1", "wrong-2", "missing"] {
        world.create_pool(name, &secret(name)).await?;
    }
    let elsewhere =
        json!({"vsphere": {"credentialsSecretRef": {"name": "creds", "namespace": "vault"}}});
    world.create_pool("elsewhere", &elsewhere).await?;
    let nodes = world.node_pool_named("wrong-1").await?;
    nodes.scale(1);

    for pool in ["wrong-1", "wrong-2"] {
        let said = world
            .until_refused(pool, "VsphereReady", "InvalidCredentials")
            .await?;
        let host = url_host(world.process.url());
        ensure!(
            said.contains(host) && said.contains(&options.username),
            "server and user are named: {said}"
        );
        ensure!(!said.contains("not the password"), "{said}");
    }
    let said = world
        .until_refused("missing", "VsphereReady", "SecretNotFound")
        .await?;
    ensure!(said.contains("demo/missing"), "{said}");
    let said = world
        .until_refused("elsewhere", "VsphereReady", "SecretNamespaceRefused")
        .await?;
    ensure!(
        said.contains("vault") && said.contains("allow-pools-from: demo"),
        "{said}"
    );

    // The operator reads the Secret again and again, but never sends the password again.
    world
        .until("three more looks at the wrong Secret", async || {
            Ok(world.reads(&path(&world, "wrong-1")).await? >= 4)
        })
        .await?;
    refused_once(&world, "after some looks").await?;
    ensure!(world.vcenter.calls().await?.logins("vim") == 0);
    // It does not send the password either when the session actor is killed: the new actor knows of the refusal.
    ensure!(
        kill(&world, "sessions", false).await? == 1,
        "no session actor was there"
    );
    until_looked_at_again(&world, &["wrong-1", "wrong-2"]).await?;
    refused_once(&world, "after a kill").await?;
    // Nor when the process is killed: the status of the pools records the refusal.
    until_recorded(&world, &["wrong-1", "wrong-2"]).await?;
    world.crash().await?;
    until_looked_at_again(&world, &["wrong-1", "wrong-2"]).await?;
    until_recorded(&world, &["wrong-1", "wrong-2"]).await?;
    refused_once(&world, "after a restart").await?;

    let mended = Instant::now();
    for name in ["wrong-1", "wrong-2", "missing"] {
        world.set_secret(name, &options.password).await?;
    }
    for pool in ["wrong-1", "wrong-2", "missing"] {
        world.until_true(pool, "VsphereReady").await?;
    }
    ensure!(mended.elapsed() <= MENDED_WITHIN, "{:?}", mended.elapsed());
    nodes
        .wait_running(1, LIMIT)
        .await
        .with_context(|| "after the Secret was mended")?;
    refused_once(&world, "in the end").await?;
    let logins = world.vcenter.calls().await?.logins("vim");
    ensure!(logins == 1, "equal credentials share one session: {logins}");

    // The Secret itself decides whether pools of other namespaces may use it. No restart is needed.
    world
        .until_refused("elsewhere", "VsphereReady", "SecretNamespaceRefused")
        .await?;
    // The subcommand `iso` may not read more than the operator.
    let turned_away = "vault/creds: spec.vsphere.credentialsSecretRef";
    let shown = shown_isos(&world, 2).await?;
    ensure!(
        shown.contains(turned_away) && shown.contains("allow-pools-from: demo"),
        "{shown}"
    );
    let admits = json!({"metadata": {"annotations": {
        agent_forge_crds::names::ALLOW_POOLS_FROM_ANNOTATION: world.namespace(),
    }}});
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "vault");
    merge(&secrets, "creds", admits).await?;
    world.until_true("elsewhere", "VsphereReady").await?;
    let shown = shown_isos(&world, 0).await?;
    ensure!(!shown.contains(turned_away), "{shown}");
    Ok(())
}

fn url_host(url: &str) -> &str {
    let rest = url.split("://").nth(1).unwrap_or(url);
    rest.split([':', '/']).next().unwrap_or(rest)
}
