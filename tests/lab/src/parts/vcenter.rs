//! The simulated vCenter as a process of its own.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{ChildStdout, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{process::Process, vcenter_admin::VCenterAdmin};
use crate::{patience::HANG, tools};

/// Options of the simulated vCenter.
#[derive(Clone, Debug)]
pub struct VCenterOptions {
    /// The only user that may log in.
    pub username: String,
    /// Its password.
    pub password: String,
    /// Whether it serves HTTPS with a certificate of its own; otherwise plain HTTP.
    pub tls: bool,
    /// How long a CreateVM task takes.
    pub create_delay: Duration,
    /// How long a PowerOnVM task takes.
    pub power_on_delay: Duration,
    /// How long a PowerOffVM task takes.
    pub power_off_delay: Duration,
    /// How long a ReconfigVM task takes.
    pub reconfigure_delay: Duration,
    /// How long a Destroy task takes.
    pub destroy_delay: Duration,
    /// Whether its clusters have DRS.
    pub drs: bool,
    /// Newest API release of its VI/JSON interface, for instance `8.0.1.0`; `None` keeps its default.
    pub api_release: Option<String>,
    /// More flags of the program.
    pub flags: Vec<String>,
}

impl Default for VCenterOptions {
    /// TLS, DRS, and tasks that end quickly but overlap.
    fn default() -> Self {
        Self {
            username: "operator@vsphere.local".into(),
            password: "correct horse battery staple".into(),
            tls: true,
            create_delay: Duration::from_millis(300),
            power_on_delay: Duration::from_millis(200),
            power_off_delay: Duration::from_millis(100),
            reconfigure_delay: Duration::from_millis(100),
            destroy_delay: Duration::from_millis(100),
            drs: true,
            api_release: None,
            flags: Vec::new(),
        }
    }
}

impl VCenterOptions {
    /// Task times of a small real vCenter: 3 s to create, 2 s to power on. The documented figures use them.
    #[must_use]
    pub fn realistic() -> Self {
        Self {
            create_delay: Duration::from_secs(3),
            power_on_delay: Duration::from_secs(2),
            power_off_delay: Duration::from_secs(1),
            reconfigure_delay: Duration::from_millis(500),
            destroy_delay: Duration::from_secs(1),
            ..Self::default()
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--listen=127.0.0.1:0".to_owned(),
            format!("--tls={}", self.tls),
            format!("--username={}", self.username),
            format!("--password={}", self.password),
            format!("--no-drs={}", !self.drs),
        ];
        for (flag, delay) in [
            ("create-delay", self.create_delay),
            ("power-on-delay", self.power_on_delay),
            ("power-off-delay", self.power_off_delay),
            ("reconfigure-delay", self.reconfigure_delay),
            ("destroy-delay", self.destroy_delay),
        ] {
            arguments.push(format!("--{flag}={}ms", delay.as_millis()));
        }
        arguments.extend(
            self.api_release
                .as_ref()
                .map(|release| format!("--api-release={release}")),
        );
        arguments.extend(self.flags.iter().cloned());
        arguments
    }
}

/// A running simulated vCenter.
#[derive(Debug)]
pub struct VCenterProcess {
    /// The program.
    pub process: Process,
    options: VCenterOptions,
    address: Address,
}

/// The line that the program prints on its standard output when it is ready.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    url: String,
    #[serde(default)]
    thumbprint: String,
    #[serde(default)]
    ca_pem: String,
}

impl VCenterProcess {
    /// Starts it with its log in `dir`.
    ///
    /// # Errors
    /// It cannot be built or does not start; the error has the end of its log.
    pub async fn start(dir: &Path, options: VCenterOptions) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        crate::install_tls_provider();
        let program = tokio::task::spawn_blocking(tools::vcenter)
            .await
            .context("find the simulated vCenter")??;
        let mut command = Command::new(program);
        command
            .args(options.arguments())
            // Its datastores are directories. They are removed with the lab's directory.
            .env("TMPDIR", dir);
        let log = dir.join(format!(
            "vcenter-{}.log",
            STARTED.fetch_add(1, Ordering::Relaxed)
        ));
        let (process, stdout) = Process::spawn("the simulated vCenter", command, &log, true)?;
        let line = first_line(stdout.context("the simulated vCenter has no output")?);
        let line = match tokio::time::timeout(HANG, line).await {
            Ok(Ok(Ok(line))) if !line.trim().is_empty() => line,
            Ok(Ok(Err(error))) => {
                return Err(error).context("read the output of the simulated vCenter");
            }
            _ => {
                return Err(anyhow!(
                    "the simulated vCenter did not start; its log ends with:\n{}",
                    process.tail()
                ));
            }
        };
        let address = serde_json::from_str(&line)
            .with_context(|| format!("read the output of the simulated vCenter: {line}"))?;
        Ok(Self {
            process,
            options,
            address,
        })
    }

    /// Its URL, for instance `https://127.0.0.1:34567`.
    pub fn url(&self) -> &str {
        &self.address.url
    }

    /// SHA-256 of its certificate as the `thumbprint` of a credentials Secret; empty without TLS.
    pub fn thumbprint(&self) -> &str {
        &self.address.thumbprint
    }

    /// Certificate to trust, PEM; empty without TLS.
    pub fn ca_pem(&self) -> &str {
        &self.address.ca_pem
    }

    /// The options of its start.
    pub fn options(&self) -> &VCenterOptions {
        &self.options
    }

    /// A client for its admin endpoint, with which tests and the demo control it.
    ///
    /// # Errors
    /// Its certificate cannot be read.
    pub fn admin(&self) -> Result<VCenterAdmin> {
        VCenterAdmin::new(self.url(), self.ca_pem())
    }
}

/// The first line of `output`. The rest is read and dropped, so that the program never blocks on a full pipe.
fn first_line(output: ChildStdout) -> oneshot::Receiver<std::io::Result<String>> {
    let (send, receive) = oneshot::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut line = String::new();
        let read = reader.read_line(&mut line).map(|_| line);
        // After a timeout the receiver is gone.
        let _ = send.send(read);
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    receive
}
