//! Destroys an orphan that never ran, after live proof.

use std::{collections::BTreeSet, sync::Arc};

use agent_forge_crds::conditions::{Reason, event};

use super::{
    announce::{Place, notify, quoted},
    judge::{self, Orphan},
};
use crate::{
    context::Context,
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{MoRef, ObjectKey},
    },
    guard::{Found, Stray},
    ports::{
        permit::Permit,
        slots::turns::Errand,
        vcenter::{Fault, TASK_PATIENCE, TaskEnd, VCenter, VmAt},
    },
};

/// Proves by live reads that a VM has no owner, and destroys a VM that never ran, as any user that may do so. `true`: it is
/// gone.
pub(super) async fn remove(
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

pub(super) async fn remove_as(
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
pub(super) async fn destroy(
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

pub(super) fn endless(orphan: &Orphan) -> ReconcileError {
    let message = format!(
        "Destroy_Task of VM {} ({}) has not ended within {} s; look at the VM's recent tasks in the vSphere client",
        quoted(&orphan.vm.name),
        quoted(&orphan.vm.moref.id),
        TASK_PATIENCE.as_secs()
    );
    ReconcileError::transient(ErrorSource::Vsphere, Reason::VmBusy, message)
}
