//! Settings of the client and the hook for its measurements.

use std::{fmt, sync::Arc, time::Duration};

use agent_forge_actors::sessions::ledger::Ledger;
use tokio::time::Instant;

use super::transport::Transport;
use crate::clock::SystemClock;

/// Settings that all clients of one connector share.
#[derive(Clone)]
pub struct Options {
    /// Tasks in flight per vCenter (`--max-concurrent-vcenter-tasks`).
    pub max_concurrent_tasks: usize,
    /// Bound of one call, connection included. Long polls and uploads have their own bounds.
    pub call_timeout: Duration,
    /// How long vCenter may be silent before those who wait for tasks hear of it.
    pub wait_patience: Duration,
    /// `User-Agent`; vCenter shows it on the session.
    pub user_agent: String,
    /// Accept `http://` servers (labs only): credentials then travel in the clear.
    pub allow_http: bool,
    /// Accept servers whose name resolves to a loopback or link-local address (labs only).
    pub allow_local: bool,
    /// Where refused passwords are written down.
    pub ledger: Arc<Ledger>,
    /// Hears of every request.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// What carries the requests instead of the network; trust settings are not looked at then.
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

/// What there is to know of one finished request.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord<'a> {
    /// `host[:port]` of the vCenter.
    pub server: &'a str,
    /// Method or operation (`CreateVM_Task`); few distinct values.
    pub operation: &'static str,
    /// `None` for success, else the fault's name or the kind of failure (`NoAnswer`); few distinct values.
    pub failure: Option<&'a str>,
    /// From the first byte sent to the last one received.
    pub duration: Duration,
}

/// Hears of every request that a client made, for metrics, and of the tasks that it awaits by itself. Called inline: must be
/// quick.
pub trait RequestObserver: Send + Sync {
    /// One request ended.
    fn request(&self, record: &RequestRecord<'_>);
    /// A task is awaited from now on.
    fn awaits(&self, server: &str, task: &'static str);
    /// It is not any more, however it ended.
    fn awaited(&self, server: &str, task: &'static str, took: Duration);
}

/// A task that a client awaits by itself, told of until this is dropped.
pub(crate) struct Awaited {
    observer: Option<Arc<dyn RequestObserver>>,
    server: String,
    task: &'static str,
    since: Instant,
}

impl Awaited {
    /// One that is about to be submitted to `server`.
    pub(crate) fn begin(options: &Options, server: &str, task: &'static str) -> Self {
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
