//! What the pool does for each VsphereAgent: prepare or fence its Agent, keep or release it.

use std::time::Duration;

use agent_forge_crds::{
    agent::{NextLife, VmStatus},
    conditions::Reason,
    duration,
    external::agent::Agent,
    pool::ReleaseSpec,
};

use super::{
    buffer, lend,
    offer::{dispute, prepare_agent},
    planned::{Action, Plan},
    stay::{self, HOPE},
    unsure::{has_vanished, is_elsewhere, is_outdated, is_unknown},
};
use crate::{
    demand::applied,
    domain::{
        belonging,
        machine_state::MachineState,
        managed_vm::ManagedVm,
        moving,
        names::ObjectKey,
        recycle::{self, Stage},
        upstream::{self, WaitingSign},
    },
    lifecycle::{End, Fate, FreeVm, ReleaseReason, Renewal},
    pool::{
        index::{Records, served_by_child},
        observed::Observed,
    },
    world::{
        classify::{Demand, DemandReason, DemandState},
        host::Host,
    },
};

/// How long a VM is kept whose AgentMachine disappeared before its Agent was approved. Cluster API replaces a Machine
/// 1-2 s later. The new AgentMachine needs an owner and has to be accepted before it counts as waiting.
pub const OFFER: Duration = Duration::from_secs(10);

/// How long a surplus VM is still kept for this AgentMachine. `None`: it is not kept for it.
pub(super) fn keeps(s: &Observed, demand: &Demand) -> Option<Duration> {
    match &demand.state {
        DemandState::Host | DemandState::HostUnconfirmed | DemandState::InFlight => {
            Some(Duration::MAX)
        }
        DemandState::NotNow {
            why:
                DemandReason::Debouncing
                | DemandReason::FreeAgentFits(_)
                | DemandReason::ConditionsMissing,
            ..
        } => Some(Duration::MAX),
        DemandState::NotNow { .. } | DemandState::NotRequested(DemandReason::MachinePending) => {
            let age = upstream::age(demand.agent_machine.as_ref(), s.wall);
            let left = HOPE.saturating_sub(age);
            (demand.sign != WaitingSign::Other && !left.is_zero()).then_some(left)
        }
        DemandState::Served | DemandState::NotRequested(_) => None,
    }
}

/// Plans for one VsphereAgent.
pub(super) fn plan_vm(
    s: &Observed,
    child: &ManagedVm,
    records: &Records,
    pool_deleting: bool,
    plan: &mut Plan,
) {
    if lend::is_half_moved(s, child, plan) {
        return;
    }
    let host = s.host(child);
    if is_unknown(child, &host.machine, plan)
        || is_outdated(child, plan)
        || is_elsewhere(s, child, &host.machine, plan)
        || has_vanished(child, host, plan)
    {
        return;
    }
    let demand = records.find(&plan.demands, child.agent_machine.as_ref());
    let subject = Subject {
        s,
        child,
        host,
        demand: demand.cloned(),
        serves_elsewhere: s.serves_elsewhere(child),
        pool_deleting,
        buffered: plan.buffered.contains(&child.uid),
    };
    if let Some(foreign) = &subject.serves_elsewhere {
        let message = format!(
            "its Agent serves AgentMachine {foreign} of another control plane; the VM stays while it does, and the AgentMachine \
             that it was made for gets another one"
        );
        plan.wait(child.key.name.clone(), Reason::AgentElsewhere, message);
    }
    let surplus = subject.is_surplus();
    if !subject.fence_or_prepare(surplus, plan) && !child.deleting {
        subject.release(surplus, plan);
    }
}

/// One VsphereAgent that is decided about.
struct Subject<'a> {
    s: &'a Observed,
    child: &'a ManagedVm,
    host: &'a Host,
    /// The demand of the AgentMachine that it is for.
    demand: Option<Demand>,
    /// The AgentMachine of another control plane that its Agent serves.
    serves_elsewhere: Option<ObjectKey>,
    pool_deleting: bool,
    /// It stays in the buffer.
    buffered: bool,
}

impl Subject<'_> {
    fn demand_is(&self, state: &DemandState) -> bool {
        self.demand.as_ref().is_some_and(|d| d.state == *state)
    }

    /// Its AgentMachine belongs to a NodePool that this pool no longer serves.
    fn is_moved(&self) -> bool {
        self.demand.is_none() && !self.child.adopted && is_of_another_node_pool(self.s, self.child)
    }

    /// It has served another control plane, and its AgentMachine has another VsphereAgent since.
    fn is_replaced(&self) -> bool {
        self.serves_elsewhere.is_none()
            && self.child.has_served(&[])
            && self.demand_is(&DemandState::InFlight)
            && has_other(self.s, self.child)
    }

    /// No AgentMachine of this pool needs it.
    fn is_surplus(&self) -> bool {
        self.demand_is(&DemandState::Served) && !self.serves_its_own() && !self.child.adopting
            || self.host.machine == MachineState::Nobody && !self.child.adopted
            || self.host.machine == MachineState::Buffer && !self.buffered
            || self.is_moved()
            || self.is_replaced()
    }

    /// Its AgentMachine has its Agent from this VM.
    fn serves_its_own(&self) -> bool {
        let demand = self
            .demand
            .as_ref()
            .filter(|c| c.state == DemandState::Served);
        demand.is_some_and(|c| served_by_child(self.s, c, self.child))
    }

    /// No Machine will get it any more.
    fn is_leaving(&self, surplus: bool) -> bool {
        let ends = matches!(
            self.host.machine,
            MachineState::Leaving | MachineState::Gone
        );
        let unneeded = self.child.deleting || self.pool_deleting || surplus;
        ends && self.serves_elsewhere.is_none() || !self.host.serves() && unneeded
    }

    /// Fences the Agent of a VM that is leaving, and prepares that of any other. Returns whether it fences now: then nothing
    /// else is decided about the VM in this pass.
    fn fence_or_prepare(&self, surplus: bool, plan: &mut Plan) -> bool {
        let (s, child) = (self.s, self.child);
        // Until the VM is its own, so is the Agent of another pool.
        if child.is_taking() {
            return false;
        }
        let leaving = self.is_leaving(surplus);
        let Some(agent) = &self.host.agent else {
            if !leaving && !self.host.serves() {
                dispute(s, child, plan);
            }
            return false;
        };
        if leaving {
            let fence = s.fence(agent).map(|patch| Action::Fence {
                patch,
                child: child.clone(),
            });
            let fences = fence.is_some();
            plan.actions.extend(fence);
            return fences;
        }
        let serving = self.host.serving.as_ref();
        let is_free = serving.is_none_or(|a| self.host.misfit(a).is_some());
        if !agent.is_claimed_or_bound() && is_free {
            if self.buffered {
                buffer::prepare(s, child, agent, plan);
                return false;
            }
            prepare_agent(s, child, self.demand.as_ref(), agent, plan);
        }
        self.withdraw(agent, plan);
        false
    }

    /// Takes the class of OSAC off an Agent that is not free in the buffer, unless it is prepared now: that does the same.
    fn withdraw(&self, agent: &Agent, plan: &mut Plan) {
        let Some(patch) = applied::withdrawn(agent) else {
            return;
        };
        let prepares = |action: &Action| matches!(action, Action::Prepare { child, .. } if child.uid == self.child.uid);
        if !plan.actions.iter().any(prepares) {
            let child = self.child.clone();
            plan.actions.push(Action::Fence { patch, child });
        }
    }

    /// Why no Machine needs it.
    fn unneeded(&self, surplus: bool) -> Option<ReleaseReason> {
        if self.host.machine == MachineState::Gone && !self.child.adopted {
            Some(ReleaseReason::MachineGone)
        } else if self.pool_deleting {
            Some(ReleaseReason::PoolDeleting)
        } else {
            surplus.then_some(ReleaseReason::Surplus)
        }
    }

    /// Releases it if no Machine needs it and nothing keeps it.
    fn release(&self, surplus: bool, plan: &mut Plan) {
        let Some(why) = self.unneeded(surplus) else {
            return;
        };
        let (s, name) = (self.s, self.child.key.name.clone());
        let moved = self.is_moved();
        if moved && !self.host.serves() {
            plan.wait(
                name.clone(),
                Reason::NodePoolMoved,
                "its AgentMachine belongs to a NodePool that this pool does not serve any more; the VM goes when no Machine has it",
            );
        }
        let vm = FreeVm {
            why,
            pool_deleting: self.pool_deleting,
            pool_recycles: s.recycles(),
            may_recycle: self.recycles(why, *plan.room_for(self.child)),
            renewal: Renewal::of(self.child, &s.pool),
            // In the buffer, such a host goes only if there are too many.
            outdated_with_data: !self.child.in_buffer
                && self.child.has_old_data()
                && !self.child.has_served(&[])
                && !buffer::is_as_wanted(s, self.child),
            serves_elsewhere: self.serves_elsewhere.is_some(),
            is_bound: self.host.serves(),
            // A Machine that only waits for an Agent loses nothing except a VM in the making.
            machine_remains: self.host.machine == MachineState::Leaving || self.serves_its_own(),
            offer_left: offer_left(s, self.child, plan),
            wait_left: plan.wait_left.filter(|_| !moved),
        };
        match vm.fate(s.policy_of(self.child)) {
            Fate::Stay(stay) => stay::tell(s, self.child, self.host, stay, plan),
            Fate::End(End::NextLife) => {
                let room = plan.room_for(self.child);
                *room = room.saturating_sub(1);
                plan.actions.push(Action::Recycle {
                    child: self.child.clone(),
                    life: self.next_life(),
                });
            }
            // The VM actor asks the same about the VM.
            Fate::End(End::Remove | End::LeaveToPeople) => plan.actions.push(Action::Release {
                child: self.child.clone(),
                why,
            }),
            Fate::End(End::Hold) => {}
        }
    }

    /// Its VM may be kept for the next AgentMachine. `room`: how many more hosts may stay in the buffer.
    fn recycles(&self, why: ReleaseReason, room: usize) -> bool {
        let (s, child) = (self.s, self.child);
        let Some(release) = s.pool.spec.release.as_ref().filter(|r| r.recycles()) else {
            return false;
        };
        let Some(vm) = child
            .vm()
            .filter(|vm| vm.attempt.is_some() && vm.vm_path.is_some())
        else {
            return false;
        };
        let admitted = why == ReleaseReason::MachineGone
            && !child.is_taking()
            && !self.pool_deleting
            && (room > 0 || moving::to(&child.object, s.wall).is_some())
            && s.guard().is_none()
            && s.refused_source().is_none();
        let usable = match &self.host.agent {
            Some(agent) => {
                // Its state may be late. It delays the life, which the VM's actor decides, and not the request for it.
                !agent.is_bare_metal_host() && self.host.misfit(agent).is_none()
            }
            None => !child.has_served(&[]) && !child.given_up,
        };
        admitted && buffer::is_as_wanted(s, child) && usable && !self.is_worn_out(release, vm)
    }

    /// Its present life is over. Not if its guest never served, or is on its way back already. The record of a binding may be
    /// late, so a guest that has ever registered counts as used.
    fn is_used(&self) -> bool {
        let registered = self.child.agent.is_some() || self.host.agent.is_some();
        let used = registered || self.child.has_served(&[]);
        used && self.child.recycling() == Stage::No
    }

    /// Its next life, if the present one is over.
    fn next_life(&self) -> Option<NextLife> {
        let vm = self.child.vm().filter(|_| self.is_used());
        vm.map(recycle::next)
    }

    /// It has served as many Machines, or is as old, as the pool admits.
    fn is_worn_out(&self, release: &ReleaseSpec, vm: &VmStatus) -> bool {
        // A life that has not served does not count yet.
        let over = match self.child.recycling() {
            Stage::No => self.is_used(),
            Stage::Asked(_) | Stage::Recorded(_) => true,
            Stage::Begun => false,
        };
        let uses = recycle::generation(vm) - u32::from(!over);
        let uses = i32::try_from(uses).unwrap_or(i32::MAX);
        let used_up = release.max_uses.is_some_and(|most| uses >= most);
        let limit = release.max_age.as_deref().filter(|text| !text.is_empty());
        // A text that is no duration is refused by the schema, and has no effect.
        let limit = limit
            .and_then(|text| duration::parse(text).ok())
            .filter(|age| !age.is_zero());
        // A VM that changed its pool has a younger VsphereAgent.
        let since = vm.first_powered_on.as_ref().map(|t| t.0);
        let age = since.map_or_else(
            || upstream::age(self.child.object.as_ref(), self.s.wall),
            |since| Duration::try_from(self.s.wall.duration_since(since)).unwrap_or_default(),
        );
        used_up || limit.is_some_and(|limit| age >= limit)
    }
}

/// The AgentMachine that it was made for exists, and belongs to another NodePool than the pool's.
fn is_of_another_node_pool(s: &Observed, child: &ManagedVm) -> bool {
    let am = child.agent_machine.as_ref();
    let am = am.and_then(|record| s.recorded_agent_machine(record));
    am.is_some_and(|am| !belonging::belongs(&s.pool, am))
}

/// Another VsphereAgent that has not served is for the same AgentMachine.
fn has_other(s: &Observed, child: &ManagedVm) -> bool {
    let mut others = s.children_of(child.agent_machine.as_ref());
    others
        .any(|c| c.uid != child.uid && c.agent_machine == child.agent_machine && !c.has_served(&[]))
}

/// How long a VM in the making is still kept for the next AgentMachine. `None`: no longer, or no other AgentMachine can have
/// it.
fn offer_left(s: &Observed, child: &ManagedVm, plan: &Plan) -> Option<Duration> {
    if !plan.spare.contains(&child.uid) {
        return None;
    }
    let since = s.spare_since.get(&child.uid).unwrap_or(&s.now);
    let left = OFFER.saturating_sub(s.now.saturating_sub(*since));
    (!left.is_zero()).then_some(left)
}
