//! What the pool does for each VsphereAgent: prepare or fence its Agent, keep or release it.

use std::time::Duration;

use agent_forge_crds::{
    agent::VmStatus, conditions::Reason, duration, external::agent::Agent, pool::ReleaseSpec,
};
use kube::ResourceExt;

use super::{
    buffer, demand, lend,
    planned::{Action, Plan},
};
use crate::{
    demand::{buffer as waiting, prepare},
    domain::{
        belonging,
        machine_state::MachineState,
        managed_vm::ManagedVm,
        names::ObjectKey,
        recycle::{self, Says, Stage},
        upstream::{self, WaitingSign},
        vanished::{STAYS, Vanished, vanished},
    },
    guard,
    lifecycle::{End, Fate, FreeVm, ReleaseReason, Renewal, Stay},
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

/// A surplus VM is kept for an AgentMachine that cannot get it now, until that AgentMachine is this old. Its Machine may
/// still come, and a person may correct provider, pools or labels.
pub const HOPE: Duration = Duration::from_secs(1800);

/// What to do about a bound Agent that matches a VM only in part.
const UNPROVEN: &str = "it names this VM and matches it in part only: if it is another host, delete that Agent, or delete the \
     VsphereAgent with the annotation agent-forge.containeroo.ch/force-delete=true";

/// What becomes of a VM that cannot be made ready and has data.
const HAS_DATA: &str = "in a day of tries the VM could not be made ready for its next life, and spec.release.disk Keep keeps its disk: it \
     is tried further. If its data may go, delete this VsphereAgent: that removes the VM";

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
    if lend::is_lent(s, child, plan) {
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
        self.demand_is(&DemandState::Served) && !self.serves_its_own()
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
            } else {
                prepare_agent(s, child, self.demand.as_ref(), agent, plan);
            }
        }
        false
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
            pool_recycles: s
                .pool
                .spec
                .release
                .as_ref()
                .is_some_and(ReleaseSpec::recycles),
            may_recycle: self.recycles(why, plan.buffer_room),
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
            Fate::Stay(stay) => self.stay(stay, plan),
            Fate::End(End::NextLife) => {
                plan.buffer_room -= 1;
                plan.actions.push(Action::Recycle {
                    child: self.child.clone(),
                    request: self.next_life(),
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
            && room > 0
            && s.guard().is_none()
            && s.refused_source().is_none();
        let usable = match &self.host.agent {
            Some(agent) => {
                !agent.is_bare_metal_host()
                    && recycle::says(Some(agent), false) != Says::Serves
                    && self.host.misfit(agent).is_none()
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

    /// The request for its next life, if the present one is over.
    fn next_life(&self) -> Option<String> {
        let vm = self.child.vm().filter(|_| self.is_used());
        vm.map(recycle::request)
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

    /// Reports why it stays for now.
    fn stay(&self, stay: Stay, plan: &mut Plan) {
        let name = self.child.key.name.clone();
        match (stay, &self.host.serving) {
            (Stay::Bound, Some(agent)) => {
                let (reason, words) = if self.host.misfit(agent).is_some() {
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
                let policy = self.s.policy_of(self.child);
                let message = format!("{policy} keeps VM and Agent; the Agent is fenced");
                plan.wait(name, Reason::Retained, message);
            }
            (Stay::HasData, _) => {
                let renewed = Renewal::of(self.child, &self.s.pool).is_some();
                let words = if renewed { HAS_DATA } else { buffer::OLD_DATA };
                plan.wait(name, Reason::Retained, words);
            }
        }
    }
}

/// It is unknown whether its Machine exists: nothing is decided until that is known.
fn is_unknown(child: &ManagedVm, machine_state: &MachineState, plan: &mut Plan) -> bool {
    let MachineState::Unknown(why) = machine_state else {
        return false;
    };
    let message = format!("{why}; nothing is fenced or released until that is settled");
    plan.wait(child.key.name.clone(), Reason::MachineStateUnknown, message);
    true
}

/// The VM says in vCenter that it may serve an AgentMachine that the record does not know of: it may be a node, and a person
/// decides.
fn is_outdated(child: &ManagedVm, plan: &mut Plan) -> bool {
    let outdated = child.is_outdated();
    if outdated {
        plan.wait(
            child.key.name.clone(),
            Reason::RecordOutdated,
            guard::OUTDATED,
        );
    }
    outdated
}

/// Its Machine lives in another control plane than the pool's current one: it is neither prepared nor released.
fn is_elsewhere(
    s: &Observed,
    child: &ManagedVm,
    machine_state: &MachineState,
    plan: &mut Plan,
) -> bool {
    let (home, own) = (child.home(&s.pool), &s.pool.spec.control_plane_namespace);
    let lives = *machine_state == MachineState::Alive && home != own;
    if lives {
        let message = format!(
            "its Machine lives in namespace {home}, spec.controlPlaneNamespace of the pool says {own}: it is kept as it is \
             until that Machine goes, and not prepared for it"
        );
        plan.wait(child.key.name.clone(), Reason::MachineStateUnknown, message);
    }
    lives
}

/// Its Machine disappeared and left its Agent bound: it is neither fenced nor released, unless a person forces that.
fn has_vanished(child: &ManagedVm, host: &Host, plan: &mut Plan) -> bool {
    let own = host.own.as_deref();
    let paused = child
        .vm()
        .is_some_and(|vm| vm.agent_machine_paused == Some(true));
    let node = child.has_served(&[]) || child.guest_may_be_node();
    let held = vanished(child, &host.machine, own, paused, node) == Vanished::Held && !child.forced;
    if held {
        plan.wait(child.key.name.clone(), Reason::MachineVanishedPaused, STAYS);
    }
    held
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

/// Reports why no Agent of this VM is approved, if an Agent names it.
fn dispute(s: &Observed, child: &ManagedVm, plan: &mut Plan) -> bool {
    let Some(doubt) = s.host(child).doubt.clone() else {
        return false;
    };
    plan.wait(child.key.name.clone(), doubt.reason, doubt.message);
    true
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

fn prepare_agent(
    s: &Observed,
    child: &ManagedVm,
    demand: Option<&Demand>,
    agent: &Agent,
    plan: &mut Plan,
) {
    // The VM was given up, and its Agent comes late. The VM actor fences the Agent and removes the VM.
    // Or it is on its way into another life, and what its Agent shows is out of date.
    if child.given_up || child.recycling() != Stage::No {
        return;
    }
    // Once its Agent is prepared, it may serve at any moment. The VM says so first: the VM actor sees to that.
    if !child.adopted && !child.is_marked() {
        return;
    }
    let Some(demand) = demand.filter(|c| c.state == DemandState::InFlight) else {
        return;
    };
    let home = agent.namespace().unwrap_or_default();
    if !s.grants.admit(&home, &s.pool) {
        let own = s.pool.namespace().unwrap_or_default();
        let message = s.grants.sentence(&[home], &own);
        plan.wait(demand.name(), Reason::NamespaceNotAllowed, message);
        return;
    }
    if s.host(child).approvable.is_none() && dispute(s, child, plan) {
        return;
    }
    let am = &demand.agent_machine;
    // The pin must be in the AgentMachine before its Agent can be chosen.
    let Some(pin) = belonging::pinned(am) else {
        demand::pin_if_needed(s, am, plan);
        return;
    };
    // A host of the buffer has its hostname already: then the claim changes labels only.
    let name = if child.is_of_buffer() {
        waiting::hostname(child)
    } else {
        am.name_any()
    };
    // Two Nodes cannot have one name: if another Agent has this one, the name gets a suffix.
    let hostname = if s.is_hostname_taken(&name, agent) {
        prepare::pin_value(am, true)
    } else {
        name
    };
    let prepared = prepare::prepare_as(&s.pool, am, pin, &hostname, agent);
    match prepared.map(|patch| lend::with_end(s, child, agent, patch)) {
        Ok(Some(patch)) => plan.actions.push(Action::Prepare {
            patch,
            child: child.clone(),
        }),
        Ok(None) if prepare::awaits_approval(&s.pool, agent) => {
            plan.wait(
                child.key.name.clone(),
                Reason::ApprovalRequired,
                format!(
                    "spec.agent.approve is false: approve Agent {} to let it join",
                    agent.name_any()
                ),
            );
        }
        Ok(None) => {}
        Err(why) => plan.wait(
            demand.name(),
            Reason::SelectorUnsatisfiable,
            why.to_string(),
        ),
    }
}
