//! Why a host stays that no Machine needs. Pure.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;
use kube::ResourceExt;

use super::{buffer, planned::Plan};
use crate::{
    domain::managed_vm::ManagedVm,
    lifecycle::{Renewal, Stay},
    pool::observed::Observed,
    world::host::Host,
};

/// A surplus VM is kept for an AgentMachine that cannot get it now, until that AgentMachine is this old. Its Machine may
/// still come, and a person may correct provider, pools or labels.
pub const HOPE: Duration = Duration::from_secs(1800);

/// What to do about a bound Agent that matches a VM only in part.
const UNPROVEN: &str = "it names this VM and matches it in part only: if it is another host, delete that Agent, or delete the \
     VsphereAgent with the annotation agent-forge.containeroo.ch/force-delete=true";

/// What becomes of a VM that cannot be made ready and has data.
const HAS_DATA: &str = "in a day of tries the VM could not be made ready for its next life, and spec.release.disk Keep keeps its disk: it \
     is tried further. If its data may go, delete this VsphereAgent: that removes the VM";

/// Reports why a host that no Machine needs stays for now.
pub(super) fn tell(s: &Observed, child: &ManagedVm, host: &Host, stay: Stay, plan: &mut Plan) {
    let name = child.key.name.clone();
    match (stay, &host.serving) {
        (Stay::Bound, Some(agent)) => {
            let (reason, words) = if host.misfit(agent).is_some() {
                (Reason::AgentUnproven, UNPROVEN)
            } else {
                (Reason::AgentBound, "the VM goes when that is unbound")
            };
            let message = format!("Agent {} is bound; {words}", agent.name_any());
            plan.wait(name, reason, message);
        }
        // The reason was given before.
        (Stay::ServesElsewhere, _) | (Stay::Bound, None) => {}
        (Stay::MachineRemains, _) => plan.wait(
            name,
            Reason::MachineRemains,
            "its Machine is not gone yet; it goes when its Machine is gone",
        ),
        (Stay::Offered(left), _) => {
            plan.look_again(left);
            plan.wait(
                    name,
                    Reason::Offered,
                    "its AgentMachine went before its Agent was approved; the VM is kept a moment for the next one that waits",
                );
        }
        (Stay::Awaited(left), _) => {
            if left <= HOPE {
                plan.look_again(left);
            }
            plan.wait(
                name,
                Reason::SurplusKept,
                "kept while an AgentMachine of this pool waits",
            );
        }
        (Stay::Kept, _) => {
            let policy = s.policy_of(child);
            let message = format!("{policy} keeps VM and Agent; the Agent is fenced");
            plan.wait(name, Reason::Retained, message);
        }
        (Stay::HasData, _) => {
            let renewed = Renewal::of(child, &s.pool).is_some();
            let words = if renewed { HAS_DATA } else { buffer::OLD_DATA };
            plan.wait(name, Reason::Retained, words);
        }
    }
}
