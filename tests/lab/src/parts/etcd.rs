//! etcd, the API server's store.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{ports, process::Process};
use crate::tools;

/// A running etcd.
#[derive(Debug)]
pub struct Etcd {
    /// The program.
    pub process: Process,
    url: String,
}

impl Etcd {
    /// Starts etcd with its data and log in `dir`.
    ///
    /// # Errors
    /// It does not start; the error has the end of its log.
    pub async fn start(dir: &Path) -> Result<Self> {
        let program = tokio::task::spawn_blocking(tools::etcd)
            .await
            .context("find etcd")??;
        ports::with_fresh_ports(|| Self::start_once(&program, dir)).await
    }

    /// The data directory of the etcd that [`Etcd::start`] starts in `dir`. Its present content is the first data of
    /// that etcd.
    pub fn data(dir: &Path) -> PathBuf {
        dir.join("etcd")
    }

    async fn start_once(program: &Path, dir: &Path) -> Result<Self> {
        let [client, peer] = ports::free()?;
        let (url, peer) = (
            format!("http://127.0.0.1:{client}"),
            format!("http://127.0.0.1:{peer}"),
        );
        let mut command = Command::new(program);
        command
            .args(["--name", "lab", "--data-dir"])
            .arg(Self::data(dir))
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("lab={peer}")])
            // The data is removed with the lab, so durability would only cost time.
            .args(["--unsafe-no-fsync", "--log-level", "warn"]);
        let (process, _) = Process::spawn("etcd", command, &dir.join("etcd.log"), false)?;
        let health = format!("{url}/health");
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .context("make an HTTP client")?;
        process.until_answers(&http, &health).await?;
        Ok(Self { process, url })
    }

    /// Its URL for clients.
    pub fn url(&self) -> &str {
        &self.url
    }
}
