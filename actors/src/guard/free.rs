//! What is proven live before a pool takes a free host of another one: what people hold, the VM, and its Agents.

use std::sync::Arc;

use agent_forge_crds::{conditions::Reason, external::agent::Agent};

use super::{
    OUTDATED,
    of_pool::{LiveReads, PATIENCE, PoolCase},
};
use crate::{
    domain::{
        disk,
        failure::ReconcileError,
        holds::VmMarks,
        names::MoRef,
        recycle::{self, Says},
    },
    ports::{
        effect::EffectKind,
        vcenter::{PowerState, VmObservation},
    },
    runtime::holds,
    sessions::of_vm,
};

/// Why a host stays where it is.
type Stays = Option<(Reason, String)>;

fn stays(why: impl Into<String>) -> Stays {
    Some((Reason::TakingHost, why.into()))
}

impl PoolCase<'_> {
    /// Why the host is not for another pool now. The pool of the case is the one that has it.
    ///
    /// # Errors
    /// A read failed.
    pub(super) async fn stays(&self, reads: &LiveReads) -> Result<Stays, ReconcileError> {
        let (holds, now) = (self.holds(reads).await?, self.context.clock.wall());
        // A host under a veto is not given either.
        let kinds = [EffectKind::DeleteChild, EffectKind::PowerOn];
        let mut held = kinds
            .into_iter()
            .filter_map(|kind| holds::who_holds(kind, &holds, now));
        if let Some(hold) = held.next() {
            return Ok(Some((hold.reason, hold.why)));
        }
        let looked = tokio::time::timeout(PATIENCE, self.look()).await;
        let Ok(shown) = looked else {
            return Ok(Some((
                Reason::VcenterNoAnswer,
                "its VM is looked at before it is given, and vCenter has not answered yet"
                    .to_owned(),
            )));
        };
        if let Some(why) = self.vm_stays(shown?.as_ref()) {
            return Ok(Some(why));
        }
        self.agents_stay().await
    }

    async fn look(&self) -> Result<Option<VmObservation>, ReconcileError> {
        let Some(moref) = self.child.vm().and_then(|vm| vm.moref.as_deref()) else {
            return Ok(None);
        };
        let namespaces = &self.context.settings.secret_namespaces;
        let sessions = self.context.sessions.as_ref();
        let (session, _) =
            of_vm::session(sessions, namespaces, self.child, Some(self.pool)).await?;
        let vm = MoRef::new("VirtualMachine", moref);
        let shown = session.observe(&vm).await?;
        let marker = self.child.marker(self.context.view.cluster_id());
        Ok(shown.filter(|vm| vm.marker.as_ref() == Some(&marker)))
    }

    /// By what vCenter shows of the VM.
    fn vm_stays(&self, shown: Option<&VmObservation>) -> Stays {
        let Some(shown) = shown else {
            return stays("vCenter shows no VM with its mark");
        };
        if shown.marks != VmMarks::default() {
            return stays("an administrator of vCenter has marked its VM");
        }
        if shown.power != PowerState::On {
            return stays("its VM is off");
        }
        let as_shown = |vm| disk::is_as_shown(vm, shown.life(), shown.disk_now());
        if !self.child.vm().is_some_and(as_shown) {
            return stays("its VM is in another life than its record says, or has other disks");
        }
        let mark = shown.may_serve_now();
        mark.filter(|mark| self.child.forgets(mark))
            .map(|_| (Reason::RecordOutdated, OUTDATED.to_owned()))
    }

    /// By what the API server has of its Agents.
    async fn agents_stay(&self) -> Result<Stays, ReconcileError> {
        let mut free = false;
        for key in &self.agents {
            let agent = self.context.cluster.live_agent(key).await?;
            let Some(agent) = agent.map(Arc::new) else {
                continue;
            };
            let serves = |a: &Agent| a.is_claimed_or_bound() || a.cluster_order().is_some();
            if serves(&agent) || recycle::says(Some(&agent), false) != Says::Free {
                let state = agent.state();
                return Ok(stays(format!(
                    "Agent {key} serves, or shows the state {state:?}"
                )));
            }
            free |= !agent.is_deleting();
        }
        Ok((!free).then(|| stays("its Agent is gone")).flatten())
    }
}
