//! What people read about an AgentMachine that gets no host now.

use agent_forge_crds::conditions::Reason;

use super::DemandReason;

/// Reason and sentence of a [`DemandReason`].
#[must_use]
pub fn explain(why: &DemandReason) -> (Reason, String) {
    match why {
        DemandReason::Deleting => (Reason::Deleting, "it is being deleted".to_owned()),
        DemandReason::Paused => (
            Reason::Paused,
            "the annotation cluster.x-k8s.io/paused of the AgentMachine pauses it".to_owned(),
        ),
        DemandReason::MachinePending => (Reason::MachinePending, "its owner Machine is not there yet".to_owned()),
        DemandReason::NotWaiting => (Reason::NotWaiting, "it does not report NoSuitableAgents".to_owned()),
        DemandReason::SearchFailed(error) => (
            Reason::AgentSearchFailed,
            format!("the agent provider cannot look for an Agent, so nobody asks for one: {error}"),
        ),
        DemandReason::Debouncing => (Reason::Debouncing, "seen waiting only just now".to_owned()),
        DemandReason::FreeAgentFits(agent) => {
            (Reason::FreeAgentFits, format!("free Agent {agent} fits; the provider is given time to bind it"))
        }
        DemandReason::ForeignAgentCounts(agent) => (
            Reason::FreeAgentFits,
            format!(
                "free Agent {agent}, which is not a VM of agent-forge, fits; spec.hosts.countForeign is true, so no VM is made while \
                 it is free"
            ),
        ),
        DemandReason::ConditionsMissing => (
            Reason::ConditionsMissing,
            "it has no conditions and no agentRef; agent provider and AgentMachine CRD may be of different generations"
                .to_owned(),
        ),
        DemandReason::ProviderNotAccepting => (
            Reason::ProviderNotAccepting,
            "the agent provider has not put its finalizer on it: it does not accept the owner Machine (check that the \
             provider's release fits the CAPI API version), so no VM is made"
                .to_owned(),
        ),
        DemandReason::NamespaceNotAllowed(sentence) => (Reason::NamespaceNotAllowed, sentence.clone()),
        DemandReason::LabelRefused(sentence) => (Reason::InvalidSpec, sentence.clone()),
        DemandReason::PoolConflict(other) => {
            (Reason::PoolConflict, format!("VsphereAgentPool {other} claims it too; neither creates a VM until one lets go"))
        }
        DemandReason::HostOfAnotherPool(other) => (
            Reason::HostOfAnotherPool,
            format!(
                "VsphereAgent {other} of another pool is for it; that pool lets its VM go, and this pool makes one then. If the \
                 VsphereAgent stays, its status says why; delete it to go on"
            ),
        ),
        DemandReason::SelectorUnsatisfiable(why) => (Reason::SelectorUnsatisfiable, why.clone()),
        DemandReason::Guarded(guard) => (guard.reason.clone(), guard.message.clone()),
    }
}
