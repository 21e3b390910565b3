//! The orphan scan finds marked VMs without a VsphereAgent, and VsphereAgents whose VM is missing.
//!
//! Flow of a pass: every `--orphan-scan-interval`, for each vCenter:
//! - The scan lists the marked VMs page by page, and the pure [`judge`] compares them with the VsphereAgents.
//! - It counts and announces the orphans, again every [`SAID`].
//! - It passes recorded VMs that are missing or powered off to their VM actors as suspects. The VM actors look for
//!   themselves.
//!
//! The scan asks all vCenters in parallel, each for at most [`SCAN_WITHIN`].
//!
//! The operator does not trust names from a vCenter. An Event is written only in a namespace whose pools or VsphereAgents
//! use that vCenter. A scan writes at most [`SAID_AT_ONCE`] Events for one vCenter, and each Event
//! quotes such names.
//!
//! Guarantees: the scan destroys a VM only if all of this holds:
//! - Our own create made the VM, and it never ran.
//! - It was an orphan in two scans.
//! - A live read and a fresh look at the VM prove that it has no owner.
//! - No pool of its namespace keeps it, and nobody holds one back, as the API server has them.
//!
//! A VM whose mark names a namespace of which a part is unknown is no orphan: its VsphereAgent may be left out.
//!
//! The scan waits for each task only a limited time. A VM counts as gone only if vCenter reports that the task succeeded, or
//! does not have the VM any more. If a vCenter does not answer, or a VM cannot be destroyed, the earlier knowledge stays.

mod announce;
pub mod judge;
mod remove;
mod sight;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::watch;
use tracing::Instrument as _;

pub use self::{announce::SAID, sight::MOST_MARKED};
use self::{
    announce::{LastScan, Place, announce},
    judge::Orphan,
    remove::remove,
    sight::{Marked, Users, is_of_missing, sessions, unending},
};
use crate::{
    context::{Context, SuspectVms},
    domain::{failure::ReconcileError, names::ObjectKey},
    ports::instruments::Instruments,
    runtime::shell::{Verdict, Worker},
};

/// The first scan waits this long after the start, or one interval if that is shorter: other work is more urgent then.
pub const FIRST: Duration = Duration::from_secs(60);

/// How often the scan looks whether a Secret is back that was missing.
pub const SECRET_AGAIN: Duration = Duration::from_secs(60);

/// A scan of one vCenter that takes longer is stopped. The earlier knowledge of that vCenter stays.
pub const SCAN_WITHIN: Duration = Duration::from_secs(300);

/// How many orphans of one vCenter a scan announces. The next scans announce the others.
pub const SAID_AT_ONCE: usize = 20;

/// What the scan remembers: a cache.
#[derive(Default)]
pub struct Memory {
    /// When (monotonic) the next scan is due.
    due: Option<Duration>,
    /// Secrets that were missing in the last scan, each with the namespace that names it.
    missing: Vec<(ObjectKey, String)>,
    /// What the last scan of each vCenter left.
    known: BTreeMap<String, LastScan>,
}

/// Worker of the scan.
pub struct OrphanScan {
    /// Ports.
    pub context: Context,
    /// Publishes the suspect VMs.
    pub doubts: Arc<watch::Sender<SuspectVms>>,
}

impl Worker for OrphanScan {
    type Memory = Memory;

    fn kind(&self) -> &'static str {
        "orphans"
    }

    fn key(&self) -> String {
        String::new()
    }

    fn instruments(&self) -> &dyn Instruments {
        self.context.instruments.as_ref()
    }

    fn debounce(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn pass(&self, memory: Memory) -> BoxFuture<'static, (Memory, Verdict)> {
        Box::pin(run(self.context.clone(), self.doubts.clone(), memory))
    }
}

async fn run(
    context: Context,
    doubts: Arc<watch::Sender<SuspectVms>>,
    mut memory: Memory,
) -> (Memory, Verdict) {
    let now = context.clock.monotonic();
    let interval = context.settings.orphan_scan_interval;
    let due = *memory.due.get_or_insert(now + FIRST.min(interval));
    let mut verdict = Verdict::default();
    let within = SCAN_WITHIN.min(interval.max(FIRST));
    let ready = context.view.ready();
    let waits = now < due && !(ready && is_back(&context, within, &memory.missing).await);
    if waits || !ready {
        let left = due.saturating_sub(now);
        let looks = (!memory.missing.is_empty()).then_some(SECRET_AGAIN);
        let again = looks.map_or(left, |looks| looks.min(left));
        verdict.again = Some(again.max(Duration::from_secs(1)));
        return (memory, verdict);
    }
    memory.due = Some(now + interval);
    memory.missing.clear();
    let reached = sessions(&context, within, &mut memory.missing, &mut verdict).await;
    // Only a scan that reached all vCenters knows that one is not named any more.
    if verdict.waiting_on.is_empty() {
        let named: BTreeSet<&str> = reached.keys().map(String::as_str).collect();
        forget_others(&named, &doubts, &mut memory);
    }
    let scans = reached.iter().map(|(server, users)| {
        let mut known = memory.known.get(server).cloned().unwrap_or_default();
        let (context, doubts) = (&context, &doubts);
        async move {
            let mut troubles = Verdict::default();
            let scan = scan(context, (server, users), doubts, &mut known, &mut troubles);
            let ended = tokio::time::timeout(within, scan).await;
            let trouble = match ended {
                Ok(Ok(())) => return (server, Some(known), troubles),
                Ok(Err(trouble)) => trouble,
                Err(_) => unending(server, within),
            };
            tell(server, trouble, &mut troubles);
            (server, None, troubles)
        }
    });
    for (server, known, troubles) in futures::future::join_all(scans).await {
        if let Some(known) = known {
            memory.known.insert(server.clone(), known);
        }
        verdict.waiting_on.extend(troubles.waiting_on);
    }
    let known = memory.known.iter();
    let left = known.map(|(server, known)| (server.clone(), known.vms.len()));
    context.instruments.orphans(&left.collect());
    let looks = (!memory.missing.is_empty()).then_some(SECRET_AGAIN);
    verdict.again = Some(looks.map_or(interval, |looks| looks.min(interval)));
    (memory, verdict)
}

/// One of these Secrets is not missing any more.
async fn is_back(context: &Context, within: Duration, missing: &[(ObjectKey, String)]) -> bool {
    let asked = missing.iter().map(|(secret, namespace)| async move {
        let asked = context.sessions.session(secret, namespace);
        let session = tokio::time::timeout(within, asked).await;
        session.is_ok_and(|s| s.err().is_none_or(|t| !is_of_missing(&t)))
    });
    let all = futures::future::join_all(asked).await;
    all.into_iter().any(|back| back)
}

/// Forgets vCenters that no pool and no record names any more.
fn forget_others(named: &BTreeSet<&str>, doubts: &watch::Sender<SuspectVms>, memory: &mut Memory) {
    memory
        .known
        .retain(|server, _| named.contains(server.as_str()));
    doubts.send_if_modified(|all| {
        let before = all.len();
        all.retain(|server, _| named.contains(server.as_str()));
        all.len() != before
    });
}

fn tell(server: &str, trouble: ReconcileError, verdict: &mut Verdict) {
    tracing::warn!(server, reason = %trouble.reason, "orphan scan: {trouble}");
    verdict.waiting_on.push((trouble.reason, trouble.message));
}

async fn scan(
    context: &Context,
    (server, users): (&str, &Users),
    doubts: &watch::Sender<SuspectVms>,
    known: &mut LastScan,
    verdict: &mut Verdict,
) -> Result<(), ReconcileError> {
    let before = context.view.all_children();
    let marked = Marked::list(&users.sessions).await?;
    let vms = &marked.vms;
    // A VM that was created in the meantime already has its record: the record is written before the create.
    // A namespace that comes over its bound meanwhile, or below it, is in one of both.
    let mut unknown = context.view.all_over_bound();
    let children = context.view.all_children();
    unknown.extend(context.view.all_over_bound());
    let missing_in_scan = judge::missing_in_scan(server, vms, before.iter().map(AsRef::as_ref));
    doubts.send_if_modified(|all| {
        all.insert(server.to_owned(), missing_in_scan.clone()) != Some(missing_in_scan)
    });
    let cluster_id = context.view.cluster_id();
    let mut orphans = judge::orphans(vms, children.iter().map(AsRef::as_ref), &cluster_id);
    orphans.retain(|orphan| !unknown.contains(&orphan.vm.marker.namespace));
    let pools = context.view.pools();
    let mut left = BTreeSet::new();
    let mut quota = SAID_AT_ONCE;
    for orphan in orphans {
        let place = Place {
            server,
            namespaces: &users.namespaces,
        };
        let may_go = judge::may_go(&orphan, &known.vms, pools.iter().map(AsRef::as_ref));
        let removed = if may_go {
            let users = marked.users(&orphan.vm.moref);
            let work = remove(context, users, &orphan, &known.vms, &place);
            work.instrument(about(&orphan)).await
        } else {
            Ok(false)
        };
        let fate = match removed {
            Ok(true) => continue,
            Ok(false) => "it is left alone".to_owned(),
            // The other VMs may still be removed.
            Err(trouble) => {
                let fate = format!("it could not be destroyed: {trouble}");
                about(&orphan).in_scope(|| tell(server, trouble, verdict));
                fate
            }
        };
        // At the first scan the view may not show its record yet.
        if known.vms.contains(&orphan.vm.moref) && quota > 0 {
            let said = || announce(context, &place, &orphan, &fate, known);
            quota -= usize::from(about(&orphan).in_scope(said));
        }
        left.insert(orphan.vm.moref);
    }
    known.announcer.keep(|moref| left.contains(moref));
    known.vms = left;
    Ok(())
}

/// A span that adds the former VsphereAgent to every log line. Its machine, and so the trace, is no longer known.
fn about(orphan: &Orphan) -> tracing::Span {
    let marker = &orphan.vm.marker;
    tracing::error_span!(
        "orphan.vm",
        object = %ObjectKey::new(&marker.namespace, &marker.name),
        uid = %marker.uid,
    )
}
