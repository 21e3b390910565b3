//! Certificates that are not trusted are refused before any credentials are sent. There are three ways to trust them.

use std::collections::BTreeSet;

use agent_forge_lab::parts::VCenterOptions;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    shared::MENDED_WITHIN,
    world::{Setup, World},
};

/// Another digest with the same length and notation.
fn another_digest(digest: &str) -> String {
    let turn = |c: char| match c {
        '0' => '1',
        c if c.is_ascii_hexdigit() => '0',
        separator => separator,
    };
    digest.chars().map(turn).collect()
}

/// Host and port of a URL.
fn authority(url: &str) -> &str {
    let rest = url.split("://").nth(1).unwrap_or(url);
    rest.split('/').next().unwrap_or(rest)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_certificate_is_refused_before_a_credential_byte() -> Result<()> {
    let world = World::without_pool(Setup::named()).await?;
    let vcenter = world.lab.start_vcenter(VCenterOptions::default()).await?;
    let admin = vcenter.admin()?;
    let base = json!({
        "server": vcenter.url(),
        "username": vcenter.options().username,
        "password": vcenter.options().password,
    });
    let with = |key: &str, value: &str| -> Value {
        let mut data = base.clone();
        data[key] = json!(value);
        data
    };
    let foreign = world.process.ca_pem();
    let digest = vcenter.thumbprint();
    let refused = [
        ("system-roots", base.clone()),
        ("foreign-ca", with("caBundle", foreign)),
        (
            "other-thumbprint",
            with("thumbprint", &another_digest(digest)),
        ),
        // A key with `false` must be as strict as no key.
        ("not-insecure", with("insecure", "false")),
    ];
    for (name, data) in &refused {
        world
            .set_secret_data(world.namespace(), name, data.clone())
            .await?;
        let patch = json!({"vsphere": {"credentialsSecretRef": {"name": name}}});
        world.create_pool(name, &patch).await?;
    }
    for (name, _) in &refused {
        let said = world
            .until_refused(name, "VsphereReady", "UntrustedCertificate")
            .await?;
        for named in [authority(vcenter.url()), "caBundle", "thumbprint"] {
            ensure!(said.contains(named), "{name}: {named} is told: {said}");
        }
    }
    let calls = admin.calls().await?;
    ensure!(calls.total == 0, "something was sent: {calls:?}");

    let mended = Instant::now();
    let ways = [
        ("system-roots", json!({"insecure": "true"})),
        ("foreign-ca", json!({"caBundle": vcenter.ca_pem()})),
        ("other-thumbprint", json!({"thumbprint": digest})),
        ("not-insecure", json!({"caBundle": vcenter.ca_pem()})),
    ];
    for (name, change) in &ways {
        world
            .set_secret_data(world.namespace(), name, change.clone())
            .await?;
    }
    for (name, _) in &ways {
        let said = world.until_true(name, "VsphereReady").await?;
        ensure!(
            said.contains("WARNING") == (*name == "system-roots"),
            "an unchecked certificate, and nothing else, warns; {name}: {said}"
        );
    }
    ensure!(mended.elapsed() <= MENDED_WITHIN, "{:?}", mended.elapsed());
    let logins = admin.calls().await?.logins;
    ensure!(logins.get("refused").is_none_or(|n| *n == 0), "{logins:?}");
    // Each way to trust has a session of its own.
    ensure!(logins.get("vim") >= Some(&3), "{logins:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_does_not_show_why_a_host_that_nobody_named_is_no_vcenter() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let vcenter = &world.process;
    let with_a_stranger = json!({"server": vcenter.url()});
    let refused = json!({"server": "https://127.0.0.1:1"});
    let mut texts = BTreeSet::new();
    for (name, data) in [("untrusted", &with_a_stranger), ("refused", &refused)] {
        let mut data = data.clone();
        data["username"] = json!(vcenter.options().username);
        data["password"] = json!(vcenter.options().password);
        let server = data["server"].as_str().unwrap_or_default();
        let host = authority(server).to_owned();
        world.set_secret_data(world.namespace(), name, data).await?;
        let patch = json!({"vsphere": {"credentialsSecretRef": {"name": name}}});
        world.create_pool(name, &patch).await?;
        let said = world
            .until_refused(name, "VsphereReady", "VCenterUnreachable")
            .await?;
        ensure!(said.contains("--allowed-vcenters"), "{name}: {said}");
        texts.insert(said.replace(&host, "HOST"));
    }
    ensure!(texts.len() == 1, "{texts:#?}");
    let log = world.operator()?.log()?;
    for cause in ["is not trusted", "no connection"] {
        ensure!(log.contains(cause), "the log says {cause}");
    }
    Ok(())
}
