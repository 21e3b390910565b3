//! Asks for a host for each AgentMachine that waits. The one that was created first comes first. It gets a host of the buffer, a
//! VM in the making that is no longer needed, a free host of another pool, or a new one ([`super::matching`]).

use std::{collections::BTreeSet, sync::Arc};

use agent_forge_crds::{
    conditions::{Phase, Policy, Reason},
    external::agent_machine::AgentMachine,
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;

use super::{
    buffer,
    caps::Room,
    lend,
    matching::{ForMachine, Supply},
    planned::{Action, Plan},
};
use crate::{
    demand::prepare,
    domain::{
        belonging,
        machine_state::MachineState,
        managed_vm::ManagedVm,
        moving,
        names::ObjectKey,
        upstream::{self, MachineFacts, WaitingSign},
    },
    placement::request,
    pool::{
        index::{Records, served_by_child},
        observed::Observed,
    },
    world::classify::{Demand, DemandReason, DemandState, words},
};

/// Why an AgentMachine that may have got a host gets no other one.
const UNSURE: &str = "nobody knows yet whether it got a host of another pool: it gets no other one until the watch shows that";

/// Names that are tried for the VsphereAgent of one AgentMachine.
const MOST_NAMES: usize = 9;

/// Name of the VsphereAgent (and its VM) for an AgentMachine. It is the AgentMachine's own name, unless a VsphereAgent
/// for another AgentMachine has it.
fn child_name(s: &Observed, am: &AgentMachine) -> String {
    let name = am.name_any();
    let is_taken = |name: &String| {
        let mut all = s.children.iter().filter(|c| c.key.name == *name);
        s.group.taken_names.contains(name)
            || all.any(|c| !c.is_for(am) || s.serves_elsewhere(c).is_some())
    };
    if is_taken(&name) {
        let uid: String = am
            .uid()
            .unwrap_or_default()
            .chars()
            .filter(|c| *c != '-')
            .take(8)
            .collect();
        let other = format!("{name}-{uid}");
        // Each of these names may be taken as well: its Agent may have moved to another control plane in turn.
        let numbered = (2..=MOST_NAMES).map(|n| format!("{other}-{n}"));
        let mut all = std::iter::once(other.clone()).chain(numbered);
        return all.find(|name| !is_taken(name)).unwrap_or(other);
    }
    name
}

/// The hosts about which nothing else is decided in this pass, and what is left for others that ask.
pub(super) fn assign_hosts<'a>(
    s: &'a Observed,
    records: &Records,
    plan: &mut Plan,
) -> (BTreeSet<ObjectKey>, Supply<'a>) {
    // Nothing is done with a host that was given away, until the watch shows for whom it is.
    let given: BTreeSet<&String> = s.pending.given.values().collect();
    let given = s.children.iter().filter(|c| given.contains(&c.uid));
    let mut reassigned: BTreeSet<ObjectKey> = given.map(|c| c.key.clone()).collect();
    let demands = plan.demands.clone();
    follow_agents(s, records, &demands, &mut reassigned, plan);
    let mut supply = Supply {
        own: own_hosts(s, records, &demands, &reassigned, plan),
        of_group: lend::hosts(s),
        begun: s.pending.begun.clone(),
        unsure: s.pending.unsure.clone(),
        begun_places: s.pending.begun_for_buffer.clone(),
        arriving: s.arriving() + s.pending.unsure.len(),
        room: Room::of(s),
        ..Supply::default()
    };
    let mut trial = Trial::of(&demands);
    for demand in by_age(&demands) {
        if pins_early(s, demand) {
            pin_if_needed(s, &demand.agent_machine, plan);
        }
        if !asks_now(demand, &mut trial, plan) {
            continue;
        }
        let Some(machine) = demand.machine.clone() else {
            continue;
        };
        pin_if_needed(s, &demand.agent_machine, plan);
        let want = lend::want(s, demand);
        let assigned = supply.for_machine(&demand.uid(), &want);
        if matches!(assigned, ForMachine::New) {
            lend::tell_refused(s, &want);
        }
        if let ForMachine::Own(child) = assigned {
            reassigned.insert(child.key.clone());
        }
        let action = carry_out(s, demand, machine, assigned, plan);
        plan.actions.extend(action);
    }
    (reassigned, supply)
}

/// What is done for an AgentMachine that asks. If it gets nothing, the plan says why.
fn carry_out(
    s: &Observed,
    demand: &Demand,
    machine: MachineFacts,
    assigned: ForMachine,
    plan: &mut Plan,
) -> Option<Action> {
    let agent_machine = demand.agent_machine.clone();
    match assigned {
        ForMachine::Own(child) => Some(Action::Reassign {
            child: child.clone(),
            agent_machine,
            machine: Some(machine),
        }),
        ForMachine::OfGroup(host) => Some(Action::Take {
            host: host.clone(),
            to: agent_machine,
            machine,
            class: demand.class.clone(),
        }),
        ForMachine::New => Some(Action::CreateChild {
            name: child_name(s, &agent_machine),
            agent_machine,
            machine,
            class: demand.class.clone(),
        }),
        ForMachine::AtLimit(limit) => {
            let ahead = plan.capped.len();
            let message = format!("{limit}; AgentMachines ahead: {ahead}");
            plan.wait(demand.name(), Reason::CreateCapReached, message);
            plan.capped.insert(demand.uid());
            None
        }
        ForMachine::Unsure => {
            plan.wait(demand.name(), Reason::TakingHost, UNSURE);
            None
        }
    }
}

/// The oldest first. The records name places in the list itself, so its order stays.
fn by_age(demands: &[Demand]) -> Vec<&Demand> {
    let mut all: Vec<&Demand> = demands.iter().collect();
    all.sort_by_cached_key(|demand| {
        let created = demand.agent_machine.metadata.creation_timestamp.as_ref();
        (created.map(|t| t.0), demand.name())
    });
    all
}

/// The Agent shows which AgentMachine its VM serves. If the provider bound it to another one, the record follows.
fn follow_agents(
    s: &Observed,
    records: &Records,
    demands: &[Demand],
    reassigned: &mut BTreeSet<ObjectKey>,
    plan: &mut Plan,
) {
    let settled =
        |c: &&ManagedVm| !c.deleting && !is_half_moved(s, c) && !reassigned.contains(&c.key);
    let settled: Vec<&ManagedVm> = s.children.iter().filter(settled).collect();
    for child in settled {
        if let Some((agent_machine, machine)) = belongs_to(s, records, demands, child) {
            reassigned.insert(child.key.clone());
            plan.actions.push(Action::Reassign {
                child: child.clone(),
                agent_machine,
                machine,
            });
        }
    }
}

/// The hosts of the pool that an AgentMachine can get. The best one is the last: a host that is ready serves at once, whatever
/// else comes up.
fn own_hosts<'a>(
    s: &'a Observed,
    records: &Records,
    demands: &[Demand],
    reassigned: &BTreeSet<ObjectKey>,
    plan: &mut Plan,
) -> Vec<&'a ManagedVm> {
    let spare = s.children.iter();
    let spare = spare.filter(|c| !reassigned.contains(&c.key) && !is_half_moved(s, c));
    let spare: Vec<&ManagedVm> = spare.filter(|c| is_spare(s, records, demands, c)).collect();
    plan.spare = spare.iter().map(|c| c.uid.clone()).collect();
    let (ready, mut making) = buffer::hosts(s, reassigned);
    making.retain(|c| is_sound(c) && s.host(c).is_in_the_making(c, s.wall));
    let best_first = ready.into_iter().chain(spare).chain(making).collect();
    let best_first = own_data(s, best_first);
    best_first.into_iter().rev().collect()
}

/// Another VsphereAgent takes that host over.
fn is_half_moved(s: &Observed, child: &ManagedVm) -> bool {
    s.group.half_moved.contains_key(&child.uid)
}

/// The one VM that is tried where the provider writes no conditions.
struct Trial {
    /// An AgentMachine without conditions has got an Agent.
    confirmed: bool,
    running: bool,
}

impl Trial {
    fn of(demands: &[Demand]) -> Self {
        let unconfirmed = |c: &&Demand| c.sign == WaitingSign::NoConditions;
        let served = |c: &Demand| c.agent_machine.agent_ref().is_some();
        let begun = |c: &Demand| matches!(c.state, DemandState::InFlight | DemandState::Served);
        Self {
            confirmed: demands.iter().filter(unconfirmed).any(served),
            running: demands.iter().filter(unconfirmed).any(begun),
        }
    }

    /// Whether one more AgentMachine without conditions may get a host.
    fn admits(&mut self) -> bool {
        let admits = self.confirmed || !self.running;
        self.running |= admits;
        admits
    }
}

/// Whether it needs a host now. If not, the plan says why, where somebody waits for it.
fn asks_now(demand: &Demand, trial: &mut Trial, plan: &mut Plan) -> bool {
    let why = match &demand.state {
        DemandState::Host => return true,
        DemandState::HostUnconfirmed if trial.admits() => return true,
        DemandState::HostUnconfirmed => {
            plan.wait(
                demand.name(),
                Reason::ConditionsMissing,
                "the provider writes no conditions; one VM is tried until one such AgentMachine gets an Agent",
            );
            return false;
        }
        DemandState::NotNow { why, again } => {
            if let Some(after) = again {
                plan.look_again(*after);
            }
            why
        }
        DemandState::NotRequested(
            why @ (DemandReason::MachinePending
            | DemandReason::Paused
            | DemandReason::SearchFailed(_)),
        ) => why,
        DemandState::NotRequested(_) | DemandState::InFlight | DemandState::Served => return false,
    };
    let (reason, message) = words::explain(why);
    plan.wait(demand.name(), reason, message);
    false
}

/// The AgentMachine that a VsphereAgent should record, if it records another one, or if its label is not that one's
/// name.
fn belongs_to(
    s: &Observed,
    records: &Records,
    demands: &[Demand],
    child: &ManagedVm,
) -> Option<(Arc<AgentMachine>, Option<MachineFacts>)> {
    let agent = s.host(child).own.as_ref();
    if let Some(served) = agent.and_then(|a| records.served_by(demands, a)) {
        // Another VsphereAgent that was made for that AgentMachine is then surplus, or serves another AgentMachine.
        let moved = !child.is_for(&served.agent_machine);
        let found = || (served.agent_machine.clone(), served.machine.clone());
        return moved
            .then(found)
            .or_else(|| relabelled(demands, records, child));
    }
    // The provider may have bound it to an AgentMachine of another NodePool. It then belongs to that one's Machine, and
    // its own AgentMachine asks again.
    let foreign = agent.and_then(|a| {
        let mut named = s.agent_machines_named(a.claimed_by().unwrap_or_default());
        named.find(|am| upstream::claims(a, am) && !child.is_for(am))
    });
    if let Some(am) = foreign.filter(|_| !child.adopted) {
        let owner = am.owner_machine();
        let mut machines = s.machines.iter();
        let machine = machines.find(|m| owner.is_some_and(|o| o.uid == m.uid))?;
        return Some((am.clone(), Some(machine.clone())));
    }
    relabelled(demands, records, child)
}

/// Its AgentMachine by uid, if a person removed or changed the label. The label is then restored.
fn relabelled(
    demands: &[Demand],
    records: &Records,
    child: &ManagedVm,
) -> Option<(Arc<AgentMachine>, Option<MachineFacts>)> {
    let record = child.agent_machine.as_ref().filter(|r| r.uid.is_some());
    let demand = records.find(demands, record)?;
    let label = child.object.labels().get(AGENT_MACHINE_LABEL);
    let machine = demand.machine.clone()?;
    let right = label == Some(&demand.name());
    (!right).then(|| (demand.agent_machine.clone(), Some(machine)))
}

/// It waits or is about to, no VM is made for it yet, and the provider could bind no free Agent. Without a pin it would
/// take the first of our Agents that becomes valid, even one that is meant for another AgentMachine.
fn pins_early(s: &Observed, demand: &Demand) -> bool {
    let am = demand.agent_machine.as_ref();
    let about_to_ask = matches!(
        demand.state,
        DemandState::HostUnconfirmed
            | DemandState::NotRequested(DemandReason::MachinePending)
            | DemandState::NotNow {
                why: DemandReason::Debouncing
                    | DemandReason::ConditionsMissing
                    | DemandReason::ProviderNotAccepting,
                ..
            }
    );
    about_to_ask
        && !s.other_pools.iter().any(|p| s.grants.serves(p, am))
        && s.foreign.of(am).is_none()
        && !s
            .home_agents()
            .any(|a| belonging::is_free_for(a, am) && !s.foreign.counts(a))
}

pub(super) fn pin_if_needed(s: &Observed, am: &Arc<AgentMachine>, plan: &mut Plan) {
    let uid = am.metadata.uid.as_ref();
    let done =
        belonging::pinned(am).is_some() || uid.is_some_and(|uid| s.pending.pinned.contains(uid));
    if !done && plan.pins.insert(uid.cloned().unwrap_or_default()) {
        let pin = prepare::pin_value(am, s.ambiguous_names.contains(&am.name_any()));
        plan.actions.push(Action::Pin {
            agent_machine: am.clone(),
            pin,
        });
    }
}

/// A VM in the making that no AgentMachine waits for any more. Its Agent is not approved and may still come, so the VM
/// can serve another one, if the pool still wants VMs like it.
fn is_spare(s: &Observed, records: &Records, demands: &[Demand], child: &ManagedVm) -> bool {
    let outdated = |vm| !request::template_changes(s.pool_of(child), vm).is_empty();
    let leaves = moving::to(&child.object, s.wall).is_some();
    if leaves
        || child.deleting
        || child.adopted
        || !is_sound(child)
        || child.vm().is_some_and(outdated)
    {
        return false;
    }
    let host = s.host(child);
    let mut agents = host.possible.iter();
    let untouched = agents.all(|a| !a.spec.approved && !a.is_claimed_or_bound());
    let wanted = match host.machine {
        MachineState::Leaving | MachineState::Gone => false,
        MachineState::Alive => records
            .find(demands, child.agent_machine.as_ref())
            .is_none_or(|c| c.state != DemandState::Served || served_by_child(s, c, child)),
        MachineState::Nobody | MachineState::Buffer | MachineState::Unknown(_) => true,
    };
    untouched && !wanted && host.is_in_the_making(child, s.wall)
}

/// Those whose disk has no data of another hosted cluster.
fn own_data<'a>(s: &Observed, mut all: Vec<&'a ManagedVm>) -> Vec<&'a ManagedVm> {
    all.retain(|c| !buffer::has_data_of_others(s, c));
    all
}

/// Nothing prevents its VM from serving. A VM whose name conflicts, or that cannot be found, is of no use.
fn is_sound(child: &ManagedVm) -> bool {
    let status = child.object.status.as_ref();
    let orphaned = status
        .and_then(|s| s.vm.as_ref()?.phase.as_ref())
        .is_some_and(|p| *p == Phase::Orphaned);
    let in_trouble = child.obstacle().is_some_and(|o| o.has(Policy::Useless));
    !orphaned && !in_trouble
}
