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

pub mod judge;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    conditions::{Reason, event},
    docs,
};
use futures::future::BoxFuture;
use tokio::sync::watch;
use tracing::Instrument as _;

use self::judge::Orphan;
use crate::{
    context::{Context, SuspectVms},
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{MoRef, ObjectKey},
    },
    guard::{Found, Stray},
    ports::{
        cluster::{Notice, Regarding},
        instruments::Instruments,
        permit::Permit,
        slots::turns::Errand,
        vcenter::{Fault, MarkedVm, TASK_PATIENCE, TaskEnd, VCenter, VmAt},
    },
    runtime::{
        announcer::{Announcer, Due, Pace},
        shell::{Verdict, Worker},
    },
    sessions::users,
};

/// The first scan waits this long after the start, or one interval if that is shorter: other work is more urgent then.
pub const FIRST: Duration = Duration::from_secs(60);

/// How often the scan looks whether a Secret is back that was missing.
pub const SECRET_AGAIN: Duration = Duration::from_secs(60);

/// How long an announcement of an orphan counts. After that the scan announces it again, while it is still an orphan. API
/// servers keep an Event for an hour by default (`--event-ttl`). So with a scan every ten minutes one Event is always
/// visible.
pub const SAID: Duration = Duration::from_secs(3000);
const PACE: Pace = Pace {
    again: Some(SAID),
    ..Pace::NEWS
};

/// A scan of one vCenter that takes longer is stopped. The earlier knowledge of that vCenter stays.
pub const SCAN_WITHIN: Duration = Duration::from_secs(300);

/// How many orphans of one vCenter a scan announces. The next scans announce the others.
pub const SAID_AT_ONCE: usize = 20;

/// The most characters of a name from vCenter that a message repeats.
const QUOTED: usize = 80;
/// The most marked VMs of one vCenter that the scan lists and judges, over all its Secrets together. All clusters of a
/// vCenter together have fewer.
pub const MOST_MARKED: usize = 20_000;

/// What the scan remembers: a cache.
#[derive(Default)]
pub struct Memory {
    /// When (monotonic) the next scan is due.
    due: Option<Duration>,
    /// Secrets that were missing in the last scan, each with the namespace that names it.
    missing: Vec<(ObjectKey, String)>,
    /// What the last scan of each vCenter left.
    known: BTreeMap<String, Known>,
}

/// What is remembered of one vCenter.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Orphans of the last scan.
    vms: BTreeSet<MoRef>,
    /// Which of them were announced.
    announcer: Announcer<MoRef>,
}

/// The vCenter that an orphan was found on, and who uses it.
struct Place<'a> {
    server: &'a str,
    namespaces: &'a BTreeSet<String>,
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

/// The Secret is missing. One of another namespace that is missing admits nobody.
fn is_of_missing(trouble: &ReconcileError) -> bool {
    matches!(
        trouble.reason,
        Reason::SecretNotFound | Reason::SecretNamespaceRefused
    )
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

fn unending(server: &str, within: Duration) -> ReconcileError {
    let message = format!(
        "{server}: the scan for VMs that are nobody's did not end within {} s",
        within.as_secs()
    );
    ReconcileError::transient(ErrorSource::Vsphere, Reason::VcenterUnreachable, message)
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

/// The users of one vCenter, and the namespaces whose pools or records name them. Each user may see other folders.
#[derive(Default)]
struct Users {
    sessions: Vec<Arc<dyn VCenter>>,
    namespaces: BTreeSet<String>,
}

/// Sessions of all credentials that pools or records name, by vCenter. Notes in `missing` which Secrets do not exist.
async fn sessions(
    context: &Context,
    within: Duration,
    missing: &mut Vec<(ObjectKey, String)>,
    verdict: &mut Verdict,
) -> BTreeMap<String, Users> {
    let named = users::all(context.view.as_ref(), &context.settings.secret_namespaces).into_iter();
    let asked = named.map(|user| async move {
        let (secret, namespace) = (user.secret, user.namespace);
        let asked = context.sessions.session(&secret, &namespace);
        let session = tokio::time::timeout(within, asked).await;
        let session = session.unwrap_or_else(|_| Err(unending(&secret.to_string(), within)));
        (secret, namespace, session)
    });
    let mut found: BTreeMap<String, Users> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (secret, namespace, session) in futures::future::join_all(asked).await {
        match session {
            Ok(session) => {
                let users = found.entry(session.server().to_owned()).or_default();
                users.namespaces.insert(namespace);
                if seen.insert(secret) {
                    users.sessions.push(session);
                }
            }
            Err(trouble) => {
                if is_of_missing(&trouble) {
                    missing.push((secret, namespace));
                }
                verdict.waiting_on.push((trouble.reason, trouble.message));
            }
        }
    }
    found
}

/// All VMs with a marker, with the users that see them.
struct Marked {
    vms: Vec<MarkedVm>,
    seen_by: BTreeMap<MoRef, Vec<Arc<dyn VCenter>>>,
}

impl Marked {
    async fn list(users: &[Arc<dyn VCenter>]) -> Result<Self, ReconcileError> {
        let mut all = Self {
            vms: Vec::new(),
            seen_by: BTreeMap::new(),
        };
        for user in users {
            let survey = user.survey().await?;
            let listed = &survey.marked;
            if all.vms.len() + listed.len() > MOST_MARKED {
                let server = user.server();
                let message = format!(
                    "{server} shows more than {MOST_MARKED} VMs with our mark to the Secrets that lead there; no orphan is \
                     looked for on it"
                );
                let reason = Reason::VcenterReplyUnusable;
                return Err(ReconcileError::blocked(
                    ErrorSource::Vsphere,
                    reason,
                    message,
                ));
            }
            for vm in listed {
                let seen_by = all.seen_by.entry(vm.moref.clone()).or_default();
                if seen_by.is_empty() {
                    all.vms.push(vm.clone());
                }
                seen_by.push(user.clone());
            }
        }
        Ok(all)
    }

    fn users(&self, vm: &MoRef) -> &[Arc<dyn VCenter>] {
        self.seen_by.get(vm).map_or(&[], Vec::as_slice)
    }
}

fn tell(server: &str, trouble: ReconcileError, verdict: &mut Verdict) {
    tracing::warn!(server, reason = %trouble.reason, "orphan scan: {trouble}");
    verdict.waiting_on.push((trouble.reason, trouble.message));
}

async fn scan(
    context: &Context,
    (server, users): (&str, &Users),
    doubts: &watch::Sender<SuspectVms>,
    known: &mut Known,
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

/// Proves by live reads that a VM has no owner, and destroys a VM that never ran, as any user that may do so. `true`: it is
/// gone.
async fn remove(
    context: &Context,
    users: &[Arc<dyn VCenter>],
    orphan: &Orphan,
    known: &BTreeSet<MoRef>,
    place: &Place<'_>,
) -> Result<bool, ReconcileError> {
    let mut removed = Ok(false);
    for user in users {
        removed = remove_as(context, user, orphan, known, place).await;
        let refused = |t: &ReconcileError| t.reason == Reason::NoPermission;
        if !removed.as_ref().is_err_and(refused) {
            break;
        }
    }
    removed
}

async fn remove_as(
    context: &Context,
    session: &Arc<dyn VCenter>,
    orphan: &Orphan,
    known: &BTreeSet<MoRef>,
    place: &Place<'_>,
) -> Result<bool, ReconcileError> {
    let marker = &orphan.vm.marker;
    // The wait for a slot comes before the looks, because the looks would be out of date after it. The VM's pool is not
    // known, so all these VMs share one line.
    let ticket = session
        .slots()
        .ask(Errand::Remove, &ObjectKey::new("", "orphans"));
    let _slot = ticket.granted().await;
    let stray = Stray {
        owner: ObjectKey::new(&marker.namespace, &marker.name),
        moref: &orphan.vm.moref,
        is_nobodys: &|live| judge::is_nobodys(orphan, live),
        may_go: &|pools| judge::may_go(orphan, known, pools.iter().map(AsRef::as_ref)),
        is_unchanged: &|shown| judge::is_unchanged_and_ours(orphan, shown),
    };
    let permit = match stray.permit(context, session.as_ref()).await? {
        Found::Stays => return Ok(false),
        Found::Gone => return Ok(true),
        Found::MayGo(permit) => permit,
    };
    let gone = destroy(context, session.as_ref(), &permit, orphan).await;
    let done = matches!(gone, Ok(true));
    context.instruments.vm_operation("destroy_orphan", done);
    if !gone? {
        return Ok(false);
    }
    let note = format!(
        "VM {} ({}) was destroyed: {}, and it never ran",
        quoted(&orphan.vm.name),
        quoted(&orphan.vm.moref.id),
        orphan.why.explain()
    );
    tracing::warn!(server = session.server(), "{note}");
    notify(
        context,
        place,
        orphan,
        (false, event::ORPHAN_VM_DESTROYED),
        note,
    );
    Ok(true)
}

/// Runs one task, with the same time limit as other tasks. `true`: the VM is gone. If the end of the task is unknown, a look
/// at the VM decides.
async fn destroy(
    context: &Context,
    session: &dyn VCenter,
    permit: &Permit<VmAt>,
    orphan: &Orphan,
) -> Result<bool, ReconcileError> {
    let moref = &orphan.vm.moref;
    let ended = {
        let _running = context.in_flight(session.server(), permit.effect().kind);
        match session.destroy(permit).await {
            Ok(task) => {
                let end = async { session.wait(&task).await.flatten() };
                tokio::time::timeout(TASK_PATIENCE, end).await
            }
            Err(e) => Ok(Err(e)),
        }
    };
    match ended {
        Ok(Ok(TaskEnd::Success(_))) => return Ok(true),
        Ok(Err(e)) if !matches!(e.fault(), Some(Fault::ManagedObjectNotFound(_))) => {
            return Err(e.into());
        }
        _ => {}
    }
    let gone = session.observe(moref).await?.is_none();
    match ended {
        // The task continues in vCenter, and the next scan finds its result.
        Err(_) if !gone => Err(endless(orphan)),
        _ => Ok(gone),
    }
}

fn endless(orphan: &Orphan) -> ReconcileError {
    let message = format!(
        "Destroy_Task of VM {} ({}) has not ended within {} s; look at the VM's recent tasks in the vSphere client",
        quoted(&orphan.vm.name),
        quoted(&orphan.vm.moref.id),
        TASK_PATIENCE.as_secs()
    );
    ReconcileError::transient(ErrorSource::Vsphere, Reason::VmBusy, message)
}

/// A name from vCenter as a quotation, so that no part of it looks like the operator's own text.
fn quoted(text: &str) -> String {
    let short: String = text.chars().take(QUOTED).collect();
    format!("{short:?}")
}

/// `fate`: what happened to it in this scan, as a clause. `true`: it was announced now.
fn announce(
    context: &Context,
    place: &Place<'_>,
    orphan: &Orphan,
    fate: &str,
    known: &mut Known,
) -> bool {
    let (now, vm) = (context.clock.monotonic(), &orphan.vm);
    let announcer = &mut known.announcer;
    if announcer.announce(vm.moref.clone(), "", now, PACE) != Due::Now {
        return false;
    }
    let note = format!(
        "VM {} ({}, {}) on {} carries our mark ({}), and {}; {fate}. If nothing needs it, remove it by hand: \
         {} says how",
        quoted(&vm.name),
        quoted(&vm.moref.id),
        vm.power.as_str(),
        place.server,
        vm.marker,
        orphan.why.explain(),
        docs::linked("docs/runbooks/AgentForgeOrphanVMs.md"),
    );
    tracing::warn!("{note}");
    notify(context, place, orphan, (true, event::ORPHAN_VM), note);
    true
}

/// Writes an Event about the VsphereAgent in the marker. It does so only if its namespace uses that vCenter, because the
/// name comes from the vCenter.
fn notify(
    context: &Context,
    place: &Place<'_>,
    orphan: &Orphan,
    (warning, reason): (bool, &'static str),
    note: String,
) {
    let marker = &orphan.vm.marker;
    if !place.namespaces.contains(&marker.namespace) {
        tracing::info!("no Event: no pool and no VsphereAgent of that namespace uses this vCenter");
        return;
    }
    context.cluster.notify(Notice {
        regarding: Regarding {
            api_version: agent_forge_crds::names::API_VERSION.to_owned(),
            kind: "VsphereAgent".to_owned(),
            key: ObjectKey::new(&marker.namespace, &marker.name),
            uid: marker.uid.clone(),
        },
        warning,
        reason,
        action: "ScanForOrphans",
        note,
    });
}
