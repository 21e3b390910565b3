//! The operator under test, as a process of its own.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{ports, process::Process};
use crate::patience::ANSWER;

/// What to start, and how.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// The operator's program.
    pub program: PathBuf,
    /// Its kubeconfig. [`crate::Lab::kubeconfig_for_operator`] gives one for a ServiceAccount of the lab.
    pub kubeconfig: PathBuf,
    /// More arguments.
    pub args: Vec<String>,
    /// More environment variables. Only `PATH` is inherited.
    pub env: Vec<(String, String)>,
    /// Value of `RUST_LOG`.
    pub log_filter: String,
}

impl OperatorOptions {
    /// The operator `program` with this kubeconfig. It allows what a lab needs: ISO sources and vCenters on loopback,
    /// and a vCenter without TLS. Its log is for people.
    pub fn new(program: impl Into<PathBuf>, kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            kubeconfig: kubeconfig.into(),
            args: Vec::new(),
            // Not as flags, so that a test can set these flags itself.
            env: vec![
                ("AGENT_FORGE_ISO_ALLOW_LOCAL_SOURCE".into(), "true".into()),
                ("AGENT_FORGE_VSPHERE_ALLOW_HTTP".into(), "true".into()),
                ("AGENT_FORGE_LOG_FORMAT".into(), "human".into()),
                (
                    "AGENT_FORGE_VSPHERE_ALLOW_LOCAL_SERVER".into(),
                    "true".into(),
                ),
            ],
            log_filter: env::var("AGENT_FORGE_LAB_LOG").unwrap_or_else(|_| "info".into()),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    /// The program.
    pub process: Process,
    metrics: u16,
    health: u16,
    debug: u16,
    web: u16,
    http: reqwest::Client,
}

impl Operator {
    /// Starts it with its log in `dir` and waits until `/readyz` reports success.
    ///
    /// # Errors
    /// It does not become ready; the error has the end of its log.
    pub async fn start(dir: &Path, options: &OperatorOptions) -> Result<Self> {
        ports::with_fresh_ports(|| async {
            let operator = Self::spawn(dir, options)?;
            operator.until_ready().await?;
            Ok(operator)
        })
        .await
    }

    /// Starts it without waiting, for a start that is expected to fail or to take long.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(dir: &Path, options: &OperatorOptions) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        crate::install_tls_provider();
        let [metrics, health, debug, web] = ports::free()?;
        let mut command = Command::new(&options.program);
        command
            // A developer's environment (proxies, OTEL_*, KUBECONFIG) must not change what is tested.
            .env_clear()
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .env("KUBECONFIG", &options.kubeconfig)
            .env("RUST_LOG", &options.log_filter)
            .env("RUST_BACKTRACE", "1")
            .envs(options.env.iter().map(|(name, value)| (name, value)))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{health}"))
            .arg(format!("--debug-bind-address=127.0.0.1:{debug}"))
            .arg(format!("--web-bind-address=127.0.0.1:{web}"))
            .args(&options.args);
        let log = dir.join(format!(
            "operator-{}.log",
            STARTED.fetch_add(1, Ordering::Relaxed)
        ));
        let (process, _) = Process::spawn("the operator", command, &log, false)?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(ANSWER)
            .build()
            .context("make an HTTP client")?;
        Ok(Self {
            process,
            metrics,
            health,
            debug,
            web,
            http,
        })
    }

    /// Waits until `/readyz` reports success.
    ///
    /// # Errors
    /// It does not become ready; the error has the end of its log.
    pub async fn until_ready(&self) -> Result<()> {
        let url = format!("{}/readyz", self.health_url());
        self.process.until_answers(&self.http, &url).await
    }

    /// URL of its metrics.
    pub fn metrics_url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.metrics)
    }

    /// Root of its debug endpoint.
    pub fn debug_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.debug)
    }

    /// Root of its web page. An address in [`OperatorOptions::args`] takes its place.
    pub fn web_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.web)
    }

    /// Root of its health endpoint (`/healthz`, `/readyz`).
    pub fn health_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.health)
    }

    /// The body of a successful answer of `/readyz`.
    ///
    /// # Errors
    /// It does not answer, or is not ready.
    pub async fn readiness(&self) -> Result<String> {
        let url = format!("{}/readyz", self.health_url());
        let answer = self.http.get(&url).send().await?.error_for_status()?;
        Ok(answer.text().await?.trim().to_owned())
    }

    /// Its metrics in the Prometheus text format.
    ///
    /// # Errors
    /// It does not answer, or not with 200.
    pub async fn metrics(&self) -> Result<String> {
        let url = self.metrics_url();
        let answer = self
            .http
            .get(&url)
            .send()
            .await
            .with_context(|| format!("read {url}"))?;
        let answer = answer
            .error_for_status()
            .with_context(|| format!("read {url}"))?;
        answer.text().await.with_context(|| format!("read {url}"))
    }

    /// Its whole log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn log(&self) -> Result<String> {
        let path = self.process.log();
        std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
    }

    /// Kills it as a crash of its node would (SIGKILL).
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub async fn kill(&self) -> Result<ExitStatus> {
        self.process.kill().await
    }

    /// Ends it as a rollout would (SIGTERM, 30 s of grace).
    ///
    /// # Errors
    /// It did not end by itself in that time.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.process.stop(Duration::from_secs(30)).await
    }
}
