//! Whether the guest of a VM may be a node: what has to be known of it, and of its Agent, before the VM is touched.

use agent_forge_crds::conditions::Reason;

use super::{
    facts::Facts,
    steps::{AgentWork, Step},
    wait::{MISSING_PROBE, Met, hold},
};
use crate::domain::recycle::{Says, Stage};

/// What is said of a VM that may be a node, and whose Agent is silent.
pub(super) const SILENT: &str =
    "its Agent does not answer, and the VM may serve in a way that this hub has forgotten";

/// What the Agent shows is known here. Otherwise nothing is done to the VM, unless a person forces its deletion.
pub(super) fn agent_state_is_known(f: &Facts<'_>) -> Met {
    if f.recycle.says != Says::Unknown || f.object.forced {
        return Ok(());
    }
    Err(hold(
        Reason::AgentStateUnknown,
        "its Agent shows a state that the operator does not know, or none yet (status.debugInfo.state): nothing is done to the VM",
        Some(MISSING_PROBE),
    ))
}

/// No AgentMachine can choose its Agent.
pub(super) fn agent_is_fenced(f: &Facts<'_>) -> Met {
    if f.agent.present && !f.agent.fenced {
        Err(Step::Agent(AgentWork::Fence))
    } else {
        Ok(())
    }
}

/// Its Agent is deleted. That comes after the VM is proven absent.
pub(super) fn agent_is_deleted(f: &Facts<'_>) -> Met {
    if f.agent.present {
        Err(Step::Agent(AgentWork::Delete))
    } else {
        Ok(())
    }
}

/// The Agent of the VM answers, or the VM says something in vCenter of its present life.
pub(super) fn silence_is_explained(f: &Facts<'_>) -> Met {
    if !f.is_silent_and_unsaid() {
        return Ok(());
    }
    let message = format!(
        "{SILENT}: it gets no other life until its Agent answers. If its guest is no node, delete this VsphereAgent with the \
         annotation agent-forge.containeroo.ch/force-delete=true"
    );
    Err(hold(
        Reason::MachineStateUnknown,
        message,
        Some(MISSING_PROBE),
    ))
}

/// The VM does not say in vCenter that it may serve an AgentMachine that the record does not know of.
pub(super) fn record_is_current(f: &Facts<'_>) -> Met {
    if !f.mark.forgotten {
        return Ok(());
    }
    let attempt = f.record.vm.and_then(|vm| vm.attempt).unwrap_or(1);
    // On its way into another life, nobody's wish for a replacement counts.
    let replaced = (f.recycle.stage == Stage::No).then(|| {
        format!(
            "To have it replaced, annotate the VsphereAgent with agent-forge.containeroo.ch/replace={attempt}. "
        )
    });
    let message = format!(
        "the VM says in vCenter that it may serve an AgentMachine that this hub does not know of (was the hub restored from a \
         backup?): it may be a node, so it is left alone. {}To have it removed, delete the VsphereAgent with the annotation \
         agent-forge.containeroo.ch/force-delete=true",
        replaced.unwrap_or_default()
    );
    Err(hold(Reason::RecordOutdated, message, Some(MISSING_PROBE)))
}
