//! The facts of a decision, from what was gathered and what this actor remembers.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgentStatus, conditions::Reason, external::agent::Agent, pool::VsphereAgentPool,
};

use super::{Observed, STUCK_GRACE};
use crate::{
    context::Context,
    domain::{
        identity::{AgentMatch, BiosUuid, Misfit, agent_runs_on},
        machine_state::MachineState,
        reassign::{self, Taking},
        recycle::Stage,
        upstream,
    },
    iso::of_pool,
    placement::request,
    ports::vcenter::PowerState,
    sessions::secret_ref,
    vm::{
        boot_repair::{self, Repair},
        drive, lost,
        memory::Memory,
        news::{has_news, is_doubted},
        ownership::Ownership,
        place,
        power_policy::{self, Again},
        step::{
            AgentState, Change, CreateState, Facts, Loss, MarkState, ObjectState, OwnerState,
            PlacementCheck, PoolState, ReassignState, Record, SUSPENDED_TRIES, Step, VmState,
        },
    },
};

/// Longer than a first pass needs to write something to a new VsphereAgent. Its age is told by the steady clock. If the wall clock
/// was behind when the process began, a lost status of a young object looks new for longer.
const FIRST_PASS: Duration = Duration::from_secs(60);

/// The last look showed that the VM says that its host was offered to nobody in its present life.
fn is_unoffered(memory: &Memory) -> bool {
    let says = memory.seen.ours().and_then(|shown| shown.may_serve_now());
    says.is_some_and(|mark| mark.machine.is_none())
}

/// How long after its start a process counts with a request of the one before that vCenter has not carried out yet.
const LATE_REQUESTS: Duration = Duration::from_secs(600);

impl Observed {
    /// What the next step is decided from.
    #[must_use]
    pub fn facts<'a>(&'a self, context: &Context, memory: &'a Memory) -> Facts<'a> {
        let now = context.clock.monotonic();
        Facts {
            object: self.object_state(context),
            record: self.record_state(context, memory),
            pool: self.pool_state(context),
            vm: self.vm_state(context, memory, now),
            create: CreateState {
                not_sent: memory.create_not_sent,
                path_taken: memory.path_taken,
                place: self.site(memory, now),
            },
            agent: self.agent_state(context, memory),
            owner: OwnerState {
                state: &self.host.machine,
                vanished: self.vanished(memory),
                left_bound: self.is_left_bound(),
                has_another_host: self.machine_has_another,
                stuck_on_guest: memory
                    .stuck_since
                    .is_some_and(|t| now.saturating_sub(t) >= STUCK_GRACE),
            },
            arrival: self.arrival(context, memory),
            recycle: self.recycle(context, memory),
            reassign: ReassignState {
                taking: self.child.taking(),
                may_change: reassign::may_have_asked(self.vm()) && now < LATE_REQUESTS,
                lent: &self.lent,
            },
            mark: self.mark_state(memory),
            now,
        }
    }

    /// What the VM says in vCenter of its guest: by the last look, or else by what is on record of it.
    fn mark_state(&self, memory: &Memory) -> MarkState {
        let child = &self.child;
        let shown = memory.seen.ours();
        let says = shown.and_then(|shown| shown.may_serve_now());
        let last = match shown {
            Some(_) => says.cloned(),
            None => child.may_serve_now(),
        };
        let marked = last.as_ref().is_some_and(|mark| child.is_own(mark));
        let recorded = self.vm().and_then(|vm| vm.may_serve.as_deref());
        MarkState {
            forgotten: match shown {
                Some(_) => says.is_some_and(|mark| child.forgets(mark)),
                None => child.is_outdated(),
            },
            offered_to_nobody: is_unoffered(memory),
            unsaid: shown.is_some() && says.is_none(),
            missing: !marked && self.is_to_be_marked(memory, last.is_some()),
            unseen: child.in_buffer && !memory.looked,
            recorded: shown.is_none_or(|shown| {
                shown.may_serve.as_ref().map(ToString::to_string).as_deref() == recorded
            }),
        }
    }

    /// An AgentMachine is to have the host, or somebody has bound it in the buffer. A VM of an older release that serves is left
    /// alone, unless it waited in the buffer: what a restored hub forgets first. `says`: the VM says something of its present
    /// life.
    fn is_to_be_marked(&self, memory: &Memory, says: bool) -> bool {
        let child = &self.child;
        let ours = child.vm().is_some_and(|vm| vm.attempt.is_some());
        let serves = self.host.serves() || self.has_served(memory);
        let wanted = match self.host.machine {
            MachineState::Alive => child.offered_to().is_some(),
            // An AgentMachine was faster than the fence.
            MachineState::Buffer => child.has_served(&[]) && self.host.serves(),
            _ => false,
        };
        let stays = match child.recycling() {
            Stage::No => true,
            // Who has claimed the host has it in this life.
            Stage::Asked(_) => self.host.serves(),
            Stage::Recorded(_) | Stage::Begun => false,
        };
        ours && wanted
            && stays
            && !child.adopted
            && !child.given_up
            && !child.deleting
            && !child.is_taking()
            && (child.is_of_buffer() || !serves || says)
    }

    fn object_state(&self, context: &Context) -> ObjectState {
        let status = self.child.object.status.as_ref();
        let recorded_cluster = status.and_then(|s| s.cluster_id.as_deref());
        ObjectState {
            has_finalizer: self.child.has_finalizer,
            deleting: self.child.deleting,
            adopted: self.child.adopted,
            adopting: self.child.adopting,
            forced: self.child.forced,
            cluster_changed: recorded_cluster.is_some_and(|c| c != context.view.cluster_id()),
        }
    }

    fn record_state(&self, context: &Context, memory: &Memory) -> Record<'_> {
        let status = self.child.object.status.as_ref();
        let ejection = status.and_then(|s| s.iso_ejection.as_ref());
        let reached = memory.reached.as_ref().zip(self.vm());
        Record {
            vm: self.vm(),
            has_identity: self.child.identity.is_some(),
            loss: self.loss(context, memory),
            vcenter: reached.map(|(reached, vm)| reached.is_recorded(vm)),
            ejecting: ejection.is_some_and(|e| e.disconnect_started),
        }
    }

    fn pool_state(&self, context: &Context) -> PoolState<'_> {
        let pool = self.pool.as_deref();
        let is_held = |p: &VsphereAgentPool| {
            secret_ref::secret(p, &context.settings.secret_namespaces)
                // A wrong reference is reported where it is used.
                .map_or(true, |secret| secret_ref::holds(p, &secret))
        };
        PoolState {
            exists: pool.is_some(),
            policy: self.lifecycle(),
            guard: self.guard.as_ref(),
            iso_ready: pool.is_some_and(|p| of_pool::iso_path(p).is_some()),
            credentials_held: pool.is_some_and(is_held),
            refused: self.refused.as_deref(),
            power_on_after: pool.and_then(|p| {
                let at = p.spec.power_on_after.as_ref()?.0;
                let left = at.duration_since(context.clock.wall());
                let left = Duration::try_from(left).ok()?;
                (!left.is_zero()).then_some((at, left))
            }),
            start_after: self.start_after.as_deref(),
        }
    }

    fn vm_state<'a>(&'a self, context: &Context, memory: &'a Memory, now: Duration) -> VmState<'a> {
        let agent_is_awaited =
            !memory.agent_seen || self.lost(context, memory).is_some() || self.sends_no_inventory();
        VmState {
            seen: &memory.seen,
            missing_in_scan: memory.missed
                || has_news(context, self.vm(), memory)
                || self.misses_mac()
                || self.vm().is_some_and(|vm| is_doubted(context, vm)),
            folder_deleted: memory.folder_deleted,
            stays_suspended: memory.suspended >= SUSPENDED_TRIES,
            powered_on_by_us: self.child.recycling() == Stage::Begun && is_unoffered(memory)
                || memory.powered_on && agent_is_awaited,
            switched_off_by_us: memory.switched_off
                && memory
                    .seen
                    .ours()
                    .is_none_or(|vm| vm.power == PowerState::Off),
            // What has failed in this pass is tried again in the next one.
            tagged: self.is_tagged(memory) || memory.tried.contains(Step::Tag.name()),
            eject: self.is_to_eject(context, memory),
            again: self.again(context, memory),
            repair: self.repair(context, memory),
            resting: memory.busy.as_ref().and_then(|busy| busy.rests(now)),
        }
    }

    /// The ISO is to be taken out of the drive, and that has not failed in this pass.
    fn is_to_eject(&self, context: &Context, memory: &Memory) -> bool {
        let pool = self.pool.as_deref();
        let agent = self.host.agent.as_deref();
        let installed = drive::is_to_be_emptied(pool, self.child.adopted, self.vm(), agent);
        let inserted = || match (&memory.seen, pool) {
            (Ownership::Ours(shown), Some(pool)) => !drive::isos_of(pool, &shown.cdroms).is_empty(),
            _ => false,
        };
        let resets = || matches!(self.repair(context, memory), Repair::Due | Repair::Recorded);
        let failed = memory.tried.contains(Step::Configure(Change::Eject).name());
        !failed && (installed || inserted() && resets())
    }

    /// The Agent of the VM says that its guest booted the discovery ISO instead of its disk.
    fn boots_image(&self) -> Option<&Agent> {
        let wanted = self.host.machine == MachineState::Alive && !self.child.adopted;
        let agent = self.host.agent.as_deref().filter(|_| wanted)?;
        boot_repair::is_needed(&self.child, agent).then_some(agent)
    }

    /// What is to be done because the guest booted the discovery ISO instead of its disk.
    fn repair(&self, context: &Context, memory: &Memory) -> Repair {
        let before = self.vm().and_then(|vm| vm.boot_repair.as_ref());
        let clock = context.clock.as_ref();
        self.boots_image().map_or(Repair::NotNeeded, |agent| {
            let occurrence = boot_repair::occurrence(agent);
            let now = (clock.wall(), clock.monotonic());
            boot_repair::repair(before, occurrence.as_ref(), memory.reset.as_ref(), now)
        })
    }

    /// What becomes of the VM if somebody has switched it off.
    fn again(&self, context: &Context, memory: &Memory) -> Again {
        let policy = self.pool.as_ref().map(|p| p.spec.power());
        let before = self.vm().map_or(&[][..], |vm| &vm.switched_on_again);
        let now = context.clock.wall();
        power_policy::again(policy.unwrap_or_default(), memory.off_seen, before, now)
    }

    fn agent_state(&self, context: &Context, memory: &Memory) -> AgentState<'_> {
        // Where a request of ours may have switched the VM on, the Agent may be its own.
        let early = self.early.as_deref();
        AgentState {
            present: self.host.agent.is_some(),
            fenced: self.is_fenced(context),
            bound: self.host.serves(),
            unproven: self.unproven.as_deref(),
            early: early.filter(|_| memory.switched_on_at.is_none()),
            has_served: memory.seen_bound || self.child.has_served(memory.told.milestones()),
            registered: self.candidate().is_some()
                || self.vm().is_some_and(|vm| vm.agent_ref.is_some()),
            answers: self.candidate().is_some_and(|a| !lost::is_silent(a)),
            guest_may_be_node: self.guest_may_be_node(memory),
        }
    }

    /// The current tags of the pool are attached, or need not be. A host that serves, or did, is left alone, unless its
    /// record says that tags are missing.
    fn is_tagged(&self, memory: &Memory) -> bool {
        let recorded = self.vm().and_then(|vm| vm.moref.as_ref());
        let shown = memory.seen.ours();
        let reference = shown.map(|shown| &shown.moref.id).or(recorded);
        let attached =
            reference.is_some() && self.tagged_as(memory) == reference.map(String::as_str);
        let serves = self.host.serves() || self.has_served(memory);
        !self.wants_tags() || attached || (serves && !self.lacks_tags())
    }

    /// The record says that tags are missing. A record of an earlier release says that only in `waitingOn`.
    fn lacks_tags(&self) -> bool {
        let status = self.child.object.status.as_ref();
        let mut waiting = status.into_iter().flat_map(|s| &s.waiting_on);
        let recorded = self.vm().is_some_and(|vm| vm.tags_missing == Some(true));
        recorded || waiting.any(|w| w.reason == Reason::TaggingFailed)
    }

    /// Whether somebody removed the record. Signs are a VM of it in vCenter, this actor's memory, or an empty status that is
    /// older than a first pass.
    pub(in crate::vm) fn loss(&self, context: &Context, memory: &Memory) -> Loss {
        let vm = self.vm();
        // What became of a VM that it was to take over is found out when it asks for that.
        let asks = self.child.taking() == Taking::Asked;
        if asks || self.child.adopted || vm.is_some_and(|vm| vm.bios_uuid.is_some()) {
            return Loss::None;
        }
        // After a VM is proven absent, one write removes all but the number.
        let numbered = vm.is_some_and(|vm| vm.attempt.is_some());
        let torn = vm.is_some_and(|vm| vm.moref.is_some() || vm.vm_path.is_some());
        let first = BiosUuid::derive(&context.view.cluster_id(), self.child.owner_uid(1), 1);
        let object = self.child.object.as_ref();
        let untouched = || {
            let nothing = VsphereAgentStatus::default();
            upstream::age(object, context.clock.steady()) > FIRST_PASS
                && object.status.as_ref().is_none_or(|s| *s == nothing)
        };
        match &memory.seen {
            _ if torn => Loss::Unrecoverable,
            Ownership::Ours(shown) if shown.bios_uuid == Some(first) && !numbered => {
                Loss::Restorable
            }
            Ownership::Ours(_) | Ownership::Several(_) => Loss::Unrecoverable,
            _ if numbered => Loss::None,
            _ if memory.lost || memory.recorded == Some(first) => Loss::Restorable,
            _ if memory.recorded.is_some() => Loss::Unrecoverable,
            _ if untouched() => Loss::Restorable,
            _ => Loss::None,
        }
    }

    /// An Agent matches in all but its MAC addresses. Somebody may have replaced a network card; a look shows that.
    fn misses_mac(&self) -> bool {
        let identity = self.child.identity.as_ref();
        let differs = |a: &Arc<Agent>| {
            identity.is_some_and(|vm| agent_runs_on(a, vm) == AgentMatch::Partly(Misfit::Mac))
        };
        self.host.possible.iter().any(differs)
    }

    /// The cache shows that its Machine is gone and its Agent still bound to it, and the record does not say so yet.
    fn is_left_bound(&self) -> bool {
        let marked = self
            .vm()
            .is_none_or(|vm| vm.machine_vanished_paused == Some(true));
        let bound = |a: &Arc<Agent>| self.child.is_bound_to(a);
        !marked
            && self.host.machine == MachineState::Gone
            && self.host.agent.as_ref().is_some_and(bound)
    }

    /// No selector matches the Agent. That takes a look at all AgentMachines, so it is checked only for a VM that is to be
    /// removed.
    fn is_fenced(&self, context: &Context) -> bool {
        let Some(agent) = &self.host.agent else {
            return true;
        };
        let recycles = self.child.recycling() != Stage::No;
        if !self.child.deleting && !self.child.given_up && !recycles {
            return true;
        }
        self.fencing(context, agent).is_none()
    }

    /// Whether the recorded place is still right.
    pub(in crate::vm) fn site(&self, memory: &Memory, now: Duration) -> PlacementCheck {
        let (Some(vm), Some(pool)) = (self.vm(), &self.pool) else {
            return PlacementCheck::Fits;
        };
        if self.source_changed() || !self.template_changes.is_empty() {
            return PlacementCheck::Elsewhere;
        }
        let request = request::place_request(pool).ok();
        let refused = memory.create_refused.as_ref();
        place::site(vm, request.as_ref(), refused, pool.metadata.generation, now)
    }
}
