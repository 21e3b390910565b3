//! Metrics over HTTPS, with the tokens and rights of a real API server.

use std::{fs, path::Path};

use agent_forge_lab::lab::apply::apply;
use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use reqwest::Certificate;
use serde_json::json;

use crate::{
    shared::flags,
    web::token,
    world::{Setup, World},
};

/// The status and the body of a scrape. With `root`, the certificate must lead to it.
async fn scrape(
    world: &World,
    token: Option<&str>,
    root: Option<&[u8]>,
) -> Result<(StatusCode, String)> {
    let url = world.operator()?.metrics_url();
    let url = url.replace("http://127.0.0.1", "https://localhost");
    let mut http = reqwest::Client::builder().no_proxy();
    http = match root {
        Some(pem) => http.tls_certs_only([Certificate::from_pem(pem)?]),
        None => http.danger_accept_invalid_certs(true),
    };
    let mut asked = http.build()?.get(url);
    if let Some(token) = token {
        asked = asked.bearer_auth(token);
    }
    let answer = asked.send().await?;
    Ok((answer.status(), answer.text().await?))
}

/// A certificate for this host, with its key, in the files of a mounted Secret.
fn issue(folder: &Path) -> Result<Vec<u8>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem())?;
    let pem = made.cert.pem();
    fs::write(folder.join("tls.crt"), &pem)?;
    Ok(pem.into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_needs_a_token_with_the_right_to_it_and_a_new_certificate_is_shown() -> Result<()>
{
    let folder = tempfile::tempdir()?;
    let first = issue(folder.path())?;
    let path = folder.path().display();
    let mut setup = Setup::own_lab();
    setup.operator_args.extend(flags());
    setup.operator_args.extend([
        "--metrics-secure".to_owned(),
        format!("--metrics-cert-path={path}"),
        "--tls-min-version=VersionTLS13".to_owned(),
    ]);
    let world = World::without_pool(setup).await?;
    let user = async |name: &str| {
        let access = world
            .lab
            .kubeconfig_with(world.namespace(), name, &json!([]))
            .await?;
        token(&access)
    };
    let (stranger, scraper) = (user("stranger").await?, user("scraper").await?);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "scraper"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agent-forge-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": world.namespace()}],
    });
    let reader = fs::read_to_string(
        agent_forge_lab::tools::repository().join("config/rbac/metrics_reader_role.yaml"),
    )?;
    agent_forge_lab::apply_yaml(&world.client, &reader).await?;
    apply(&world.client, &binding).await?;

    let root = Some(first.as_slice());
    for sent in [None, Some("not-a-token")] {
        let (status, body) = scrape(&world, sent, root).await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{status}: {body}");
    }
    let (status, body) = scrape(&world, Some(&stranger), root).await?;
    ensure!(status == StatusCode::FORBIDDEN, "{status}: {body}");
    ensure!(body.contains("agent-forge-metrics-reader"), "{body}");
    // The authorizer learns of a binding by a watch.
    world
        .until("metrics for who may read them", async || {
            let (status, body) = scrape(&world, Some(&scraper), root).await?;
            Ok(status == StatusCode::OK && body.contains("agent_forge_build_info"))
        })
        .await?;

    let second = issue(folder.path())?;
    world
        .until("the new certificate", async || {
            let shown = scrape(&world, Some(&scraper), Some(&second)).await;
            Ok(shown.is_ok_and(|(status, _)| status == StatusCode::OK))
        })
        .await?;
    let old = scrape(&world, Some(&scraper), root).await;
    ensure!(old.is_err(), "the certificate before it is still accepted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_may_not_review_tokens_shows_no_metrics_and_says_what_it_lacks()
-> Result<()> {
    // Its rights are those of config/overlays/namespaced.
    let world = World::without_pool(Setup::args(["--metrics-secure"])).await?;
    let access = world
        .lab
        .kubeconfig_with(world.namespace(), "scraper", &json!([]))
        .await?;
    let (status, body) = scrape(&world, Some(&token(&access)?), None).await?;
    ensure!(
        status == StatusCode::SERVICE_UNAVAILABLE,
        "{status}: {body}"
    );
    let log = world.operator()?.log()?;
    let said = log.lines().find(|l| l.contains("agent-forge-metrics-auth"));
    said.context("the log names the rights")?;
    Ok(())
}
