//! Settings of the client, and the hook for its metrics.

use std::{fmt, sync::Arc, time::Duration};

use agent_forge_actors::vcenter::ledger::Ledger;
use tokio::time::Instant;

use super::transport::Transport;
use crate::clock::SystemClock;

/// Settings that all clients of one connector share.
#[derive(Clone)]
pub struct Options {
    /// Running tasks per vCenter (`--max-concurrent-vcenter-tasks`).
    pub max_concurrent_tasks: usize,
    /// Time limit of one call, connection included. Long polls and uploads have their own limits.
    pub call_timeout: Duration,
    /// How long vCenter may be silent before the callers that wait for tasks get an error.
    pub wait_patience: Duration,
    /// `User-Agent`. vCenter shows it on the session.
    pub user_agent: String,
    /// Accept `http://` servers (labs only). Credentials travel unencrypted.
    pub allow_http: bool,
    /// Accept servers whose name resolves to a loopback or link-local address (labs only).
    pub allow_local: bool,
    /// The record of refused passwords.
    pub ledger: Arc<Ledger>,
    /// Gets a record of every request.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// Carries the requests instead of the network. Trust settings are then ignored.
    pub transport: Option<Arc<dyn Transport>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_concurrent_tasks: 8,
            call_timeout: Duration::from_secs(30),
            wait_patience: Duration::from_secs(60),
            user_agent: concat!("agent-forge/", env!("CARGO_PKG_VERSION")).to_owned(),
            allow_http: false,
            allow_local: false,
            ledger: Arc::new(Ledger::new(Arc::new(SystemClock::default()))),
            observer: None,
            transport: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("max_concurrent_tasks", &self.max_concurrent_tasks)
            .field("call_timeout", &self.call_timeout)
            .field("wait_patience", &self.wait_patience)
            .field("user_agent", &self.user_agent)
            .field("allow_http", &self.allow_http)
            .field("allow_local", &self.allow_local)
            .finish_non_exhaustive()
    }
}

/// The measurements of one finished request.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord<'a> {
    /// `host[:port]` of the vCenter.
    pub server: &'a str,
    /// Method or operation (`CreateVM_Task`). There are few distinct values.
    pub operation: &'static str,
    /// `None` for success, else the fault's name or the kind of failure (`NoAnswer`). There are few distinct values.
    pub failure: Option<&'a str>,
    /// From the first byte sent to the last one received.
    pub duration: Duration,
}

/// Gets every request that a client sends, and the tasks that the client itself awaits, for metrics. The client calls
/// it directly, so it must be quick.
pub trait RequestObserver: Send + Sync {
    /// One request ended.
    fn request(&self, record: &RequestRecord<'_>);
    /// The client now awaits a task.
    fn awaits(&self, server: &str, task: &'static str);
    /// The client no longer awaits the task, whatever the result is.
    fn awaited(&self, server: &str, task: &'static str, took: Duration);
}

/// A task that a client itself awaits. The observer counts it until this is dropped.
pub(super) struct Awaited {
    observer: Option<Arc<dyn RequestObserver>>,
    server: String,
    task: &'static str,
    since: Instant,
}

impl Awaited {
    /// A task that is about to be submitted to `server`.
    pub(super) fn begin(options: &Options, server: &str, task: &'static str) -> Self {
        if let Some(observer) = &options.observer {
            observer.awaits(server, task);
        }
        Self {
            observer: options.observer.clone(),
            server: server.to_owned(),
            task,
            since: Instant::now(),
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.awaited(&self.server, self.task, self.since.elapsed());
        }
    }
}
