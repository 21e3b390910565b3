//! The CD-ROM drive of an installed host is emptied: the only write to a VM that serves.

use super::{After, Done, Hand, defect};
use crate::{
    effect::EffectKind,
    error::{Side, Trouble},
    model::names::ObjectKey,
    vm::memory::Memory,
};

impl Hand<'_> {
    /// Takes the ISO out, after a live look at the Agent: while it installs, it reads from there.
    pub(super) async fn eject(&self, memory: &mut Memory) -> Done {
        let shown = self.shown(memory)?;
        let agent = self.scene.agent.as_ref();
        let key = agent.map(|a| ObjectKey::of(a.as_ref()));
        let key = key.ok_or_else(|| defect("no Agent runs on the VM"))?;
        let live = self.context.cluster.live_agent(&key).await?;
        if !live.is_some_and(|a| a.is_installed()) {
            let message =
                format!("Agent {key} is not installed any more; its CD-ROM drive is left as it is");
            return Err(Trouble::transient(
                Side::Upstream,
                "AgentNotInstalled",
                message,
            ));
        }
        let session = self.session().await?;
        let slots = session.slots();
        let _slot = slots.acquire().await.map_err(|_| defect("shutting down"))?;
        let ended = session
            .eject_isos(&self.effect(EffectKind::EjectIso), &shown.moref)
            .await;
        self.context
            .instruments
            .vm_operation("eject", ended.is_ok());
        ended.map_err(|e| Trouble {
            side: Side::Vsphere,
            reason: "EjectFailed".to_owned(),
            message: format!("spec.iso.ejectAfterInstall: {e}; the host is not touched otherwise"),
            class: e.class(),
        })?;
        let mut vm = self.vm();
        vm.iso_ejected = Some(true);
        Ok(After::Object(
            self.save(EffectKind::RecordObservation, vm, memory).await?,
        ))
    }
}
