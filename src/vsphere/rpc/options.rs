//! Settings of the client, and the observer of its requests.

use std::{fmt, sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::server::ServerRule, ports::slots::turns::Limits, sessions::ledger::Ledger,
};
use tokio::time::Instant;

use super::transport::Transport;
use crate::clock::SystemClock;

/// Settings that all clients of one connector share.
#[derive(Clone)]
pub struct Options {
    /// Tasks in flight per vCenter.
    pub tasks: Limits,
    /// Time limit of one call, connection included. Long polls and uploads have limits of their own.
    pub call_timeout: Duration,
    /// How long vCenter may be silent before those who wait for tasks get an error.
    pub wait_patience: Duration,
    /// `User-Agent`; vCenter shows it on the session.
    pub user_agent: String,
    /// Accept `http://` servers (labs only): credentials then travel in the clear.
    pub allow_http: bool,
    /// Accept servers whose name resolves to a loopback or link-local address (labs only).
    pub allow_local: bool,
    /// Hosts that this rule does not name fail with one text for each cause: the authors of pools read it. `None`: each
    /// failure is told in full, as for the commands of an administrator.
    pub discreet: Option<ServerRule>,
    /// Remembers refused passwords.
    pub ledger: Arc<Ledger>,
    /// Learns of every request.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// Carries the requests instead of the network. The client then ignores its trust settings.
    pub transport: Option<Arc<dyn Transport>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tasks: Limits::tasks(8),
            call_timeout: Duration::from_secs(30),
            wait_patience: Duration::from_secs(60),
            user_agent: concat!("agent-forge/", env!("CARGO_PKG_VERSION")).to_owned(),
            allow_http: false,
            allow_local: false,
            discreet: None,
            ledger: Arc::new(Ledger::new(Arc::new(SystemClock::default()))),
            observer: None,
            transport: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("tasks", &self.tasks)
            .field("call_timeout", &self.call_timeout)
            .field("wait_patience", &self.wait_patience)
            .field("user_agent", &self.user_agent)
            .field("allow_http", &self.allow_http)
            .field("allow_local", &self.allow_local)
            .field("discreet", &self.discreet)
            .finish_non_exhaustive()
    }
}

/// One finished request.
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

/// Learns of every request and of every task that a client awaits by itself, for metrics. It is called inline and must
/// be quick.
pub trait RequestObserver: Send + Sync {
    /// One request ended.
    fn request(&self, record: &RequestRecord<'_>);
    /// The client begins to await a task.
    fn awaits(&self, server: &str, task: &'static str);
    /// The client awaits the task no more, however it ended.
    fn awaited(&self, server: &str, task: &'static str, took: Duration);
}

/// A task that a client awaits by itself. The observer learns of its begin, and of its end on drop.
pub(crate) struct Awaited {
    observer: Option<Arc<dyn RequestObserver>>,
    server: String,
    task: &'static str,
    since: Instant,
}

impl Awaited {
    /// Begins with a task that is about to go to `server`.
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
