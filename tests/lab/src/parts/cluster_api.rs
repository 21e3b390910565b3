//! The real controllers of Cluster API.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::{ports, process::Process};
use crate::tools;

/// The running controllers of Cluster, MachineDeployment, MachineSet and Machine, for all namespaces.
#[derive(Debug)]
pub struct ClusterApi {
    /// The program.
    pub process: Process,
}

impl ClusterApi {
    /// Starts it with the user of the file `kubeconfig`, and its log in `dir`.
    ///
    /// Assumption: the API server has the CRDs of [`tools::cluster_api_crds`].
    ///
    /// # Errors
    /// It cannot be built or does not start; the error has the end of its log.
    pub async fn start(dir: &Path, kubeconfig: &Path) -> Result<Self> {
        let program = tokio::task::spawn_blocking(tools::cluster_api)
            .await
            .context("find the controllers of Cluster API")??;
        ports::with_fresh_ports(|| Self::start_once(&program, dir, kubeconfig)).await
    }

    async fn start_once(program: &Path, dir: &Path, kubeconfig: &Path) -> Result<Self> {
        let [port] = ports::free()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--health-addr=127.0.0.1:{port}"))
            .arg("--v=2");
        let log = dir.join("cluster-api.log");
        let (process, _) = Process::spawn("Cluster API", command, &log, false)?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .context("make an HTTP client")?;
        let readyz = format!("http://127.0.0.1:{port}/readyz");
        process.until_answers(&http, &readyz).await?;
        Ok(Self { process })
    }
}
