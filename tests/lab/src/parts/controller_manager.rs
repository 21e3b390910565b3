//! kube-controller-manager with only the controllers that a cluster without nodes needs.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::{api_server::ApiServer, kubeconfig, ports, process::Process};
use crate::tools;

/// Garbage collection by owner reference, namespace deletion, aggregated roles, and the `default` service account that
/// pods need.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller,serviceaccount-controller";

/// A running kube-controller-manager.
#[derive(Debug)]
pub struct ControllerManager {
    /// The program.
    pub process: Process,
}

impl ControllerManager {
    /// Starts it with `server` as API server.
    ///
    /// Caveat: garbage collection looks for new resource kinds every 30 s, so apply CRDs before.
    ///
    /// # Errors
    /// It cannot be built or does not start; the error has the end of its log.
    pub async fn start(dir: &Path, server: &ApiServer) -> Result<Self> {
        let program = tokio::task::spawn_blocking(tools::kube_controller_manager)
            .await
            .context("find kube-controller-manager")??;
        let path = dir.join("kube-controller-manager.kubeconfig");
        let kubeconfig = kubeconfig::kubeconfig(
            server.endpoint(),
            "system:kube-controller-manager",
            server.controller_manager(),
            "default",
        );
        kubeconfig::write(&kubeconfig, &path)?;
        ports::with_fresh_ports(|| Self::start_once(&program, dir, &path, server)).await
    }

    async fn start_once(
        program: &Path,
        dir: &Path,
        kubeconfig: &Path,
        server: &ApiServer,
    ) -> Result<Self> {
        let [port] = ports::free()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!(
                "--service-account-private-key-file={}",
                server.token_key().display()
            ))
            .arg(format!(
                "--cert-dir={}",
                dir.join("kube-controller-manager").display()
            ))
            .arg(format!("--controllers={CONTROLLERS}"))
            .arg(format!("--secure-port={port}"))
            .args([
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--use-service-account-credentials=false",
            ])
            // With the default of 20 requests a second, the deletion of a namespace with many kinds is slow.
            .args(["--kube-api-qps=200", "--kube-api-burst=400"]);
        let (process, _) = Process::spawn(
            "kube-controller-manager",
            command,
            &dir.join("kube-controller-manager.log"),
            false,
        )?;
        // It signs its serving certificate itself. That protects nothing here: only /healthz is read.
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_danger_accept_invalid_certs(true)
            .build()
            .context("make an HTTPS client")?;
        let healthz = format!("https://127.0.0.1:{port}/healthz");
        process.until_answers(&http, &healthz).await?;
        Ok(Self { process })
    }
}
