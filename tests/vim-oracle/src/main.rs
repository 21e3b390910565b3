//! Checks the client and the simulated vCenter against a third party.
//!
//! Both have the same authors, who may have misread the documentation once for both. `vim_rs` has types and calls that
//! are generated from the vendor's specification. This program makes each of our recorded requests with `vim_rs`, and
//! runs the simulated vCenter through the life of a VM. It lists all differences, and each one is a failure. How to run
//! it: docs/reference/vsphere.md.

mod bodies;
mod compare;
mod ear;
mod life;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use agent_forge_lab::parts::{VCenterOptions, VCenterProcess};
use anyhow::Result;
use vim_rs::core::{Client, ClientBuilder};

/// The number of agreements, and the differences.
#[derive(Default)]
struct Findings {
    agreed: usize,
    differ: Vec<String>,
}

impl Findings {
    fn note(&mut self, what: &str, differences: &[String]) {
        if differences.is_empty() {
            self.agreed += 1;
            println!("agree   {what}");
        }
        for difference in differences {
            println!("DIFFER  {what}: {difference}");
            self.differ.push(format!("{what}: {difference}"));
        }
    }

    fn check(&mut self, what: &str, holds: bool) {
        let differences = ["is not so".to_owned()];
        self.note(what, if holds { &[] } else { &differences });
    }
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/vsphere/golden")
}

async fn connect(
    vcenter: &VCenterProcess,
    password: &str,
) -> vim_rs::core::client::Result<Arc<Client>> {
    let trusted = reqwest::Certificate::from_pem(vcenter.ca_pem().as_bytes())?;
    let http = reqwest::Client::builder()
        .tls_certs_only([trusted])
        .no_proxy()
        .build()?;
    let server = vcenter.url().trim_start_matches("https://");
    ClientBuilder::new(server, http)
        .basic_authn(&vcenter.options().username, password)
        .app_details("vim-oracle", env!("CARGO_PKG_VERSION"))
        .build()
        .await
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    agent_forge_lab::install_tls_provider();
    let dir = tempfile::tempdir()?;
    let vcenter = VCenterProcess::start(dir.path(), VCenterOptions::default()).await?;
    let mut findings = Findings::default();
    let client = connect(&vcenter, &vcenter.options().password).await?;
    println!("connected; release {}", client.api_release());
    bodies::check(&client, &mut findings).await?;
    life::play(&vcenter, client, &mut findings).await?;
    println!(
        "{} agree, {} differ",
        findings.agreed,
        findings.differ.len()
    );
    Ok(if findings.differ.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
