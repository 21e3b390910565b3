//! Events and answers of a process that does not lead.

use std::sync::Arc;

use agent_forge_actors::{
    domain::{holds::Mode, names::ObjectKey},
    ports::{
        cluster::{Notice, Regarding},
        effect::Gate,
    },
    runtime::lease::{Barrier, Leadership},
};
use agent_forge_crds::{VsphereAgentPool, conditions::event};
use kube::{Resource as _, ResourceExt as _};
use tokio::{sync::watch, time::Duration};

use crate::{
    cluster::{client::Clients, events::EventSink, view::Caches},
    telemetry::metrics::Metrics,
};

/// A sink for Events that are recorded before this process leads. The predecessor reads none of them.
pub fn events(clients: &Clients, gate: Arc<dyn Gate>, within: Duration) -> EventSink {
    let host = std::env::var("HOSTNAME").ok();
    EventSink::start(clients.request.clone(), gate, host, within)
}

/// The answer of `/readyz`.
pub fn readiness(standing: &Leadership) -> String {
    match standing {
        Leadership::Barred(barrier) => format!("ok: standing by: {barrier}\n"),
        _ => "ok: standing by\n".to_owned(),
    }
}

/// The sentence for people who look at an instance that does not act.
pub fn sentence(standing: &Leadership) -> String {
    let why = match standing {
        Leadership::Barred(barrier) => barrier.to_string(),
        _ => "another one acts, or begins to".to_owned(),
    };
    format!("This instance stands by and changes nothing: {why}. What it shows is up to date.")
}

/// Resolves when this process leads. The value is `true` if another process acted before. While another process acts,
/// each pool gets one Event that names it.
pub async fn until_leading(
    standing: &mut watch::Receiver<Leadership>,
    caches: &Caches,
    events: &EventSink,
    metrics: &Metrics,
) -> bool {
    let mut told = None;
    loop {
        let now = standing.borrow_and_update().clone();
        if matches!(now, Leadership::Leading { .. }) {
            metrics.barred(false);
            return told.is_some();
        }
        if let Leadership::Barred(barrier) = now {
            metrics.barred(true);
            let news = told.as_ref() != Some(&barrier);
            for pool in caches.pools.all().iter().filter(|_| news) {
                events.record(notice(pool, &barrier));
            }
            told = Some(barrier);
        }
        if standing.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Sets the mode of a dry run: silent while the predecessor acts, or may act. Returns whether that is a change, or `None`
/// if this process does not lead.
pub fn rehearses(standing: &Leadership, caches: &Caches, metrics: &Metrics) -> Option<bool> {
    let mode = match standing {
        Leadership::Leading { .. } => Mode::DryRun,
        Leadership::Barred(_) => Mode::Silent,
        _ => return None,
    };
    metrics.barred(mode == Mode::Silent);
    Some(caches.set_mode(mode))
}

/// Resolves when a dry run may begin: this process leads, or only the predecessor's Lease is in the way.
pub async fn until_rehearsing(
    standing: &mut watch::Receiver<Leadership>,
    caches: &Caches,
    metrics: &Metrics,
) {
    while rehearses(&standing.borrow_and_update(), caches, metrics).is_none() {
        if standing.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

fn notice(pool: &VsphereAgentPool, barrier: &Barrier) -> Notice {
    Notice {
        regarding: Regarding {
            api_version: VsphereAgentPool::api_version(&()).into_owned(),
            kind: VsphereAgentPool::kind(&()).into_owned(),
            key: ObjectKey::of(pool),
            uid: pool.uid().unwrap_or_default(),
        },
        warning: true,
        reason: event::PREDECESSOR_ACTS,
        action: "StandBy",
        note: format!("this operator does not act: {barrier}"),
    }
}
