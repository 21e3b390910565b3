//! Whether the Agent of the VM is awaited: after its first start, when it falls silent, and in a new life.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VmStatus,
    external::agent::Agent,
    pool::{ReleaseSpec, ReleasedDisk},
};
use jiff::Timestamp;

use super::Observed;
use crate::{
    context::Context,
    domain::{
        disk,
        recycle::{self, Says, Stage},
    },
    ports::{effect::EffectKind, vcenter::PowerState},
    runtime::holds,
    vm::{
        arrival::{self, Arrival, Sight},
        drift::{Outdated, Progress},
        lost::{self, Lost},
        memory::Memory,
        ownership::Ownership,
        step::RecycleState,
    },
};

impl Observed {
    /// Whether the Agent of the VM is awaited, overdue, or given up.
    #[must_use]
    pub fn arrival(&self, context: &Context, memory: &Memory) -> Arrival {
        let Some(vm) = self.vm() else {
            return Arrival::Awaited;
        };
        let object = &self.child.object;
        let failure = object.status.as_ref().and_then(|s| s.last_failure.as_ref());
        let sight = match self.lost(context, memory) {
            // It gets its time again after a hold.
            _ if self.child.recycling() == Stage::Begun && self.was_held(context, memory) => {
                Sight::There
            }
            _ if self.child.recycling() == Stage::Begun => Sight::NotBack,
            // A VM of the new template may pass where this one does not, so it does not count as one that failed.
            Some(Lost::Insufficient) if self.outdated(context, memory).is_replaced() => {
                Sight::Outdated
            }
            Some(lost) => Sight::Lost(lost, self.lost_left(context, vm, memory)),
            None if self.outdated(context, memory).is_replaced() => Sight::Outdated,
            None if self.host.possible.is_empty() => Sight::Unseen,
            None if self.sends_no_inventory() => Sight::NoInventory,
            None => Sight::There,
        };
        let next = self.source();
        let now = memory.discovery_time(vm, context.clock.as_ref());
        arrival::arrival(vm, (failure, next.as_ref()), sight, self.asked(), now)
    }

    /// It waits in the buffer, and the only Agent that names it is free and has sent no inventory. For an AgentMachine that
    /// waits, a person decides.
    pub(super) fn sends_no_inventory(&self) -> bool {
        let candidate = self.candidate().filter(|_| self.host.possible.len() == 1);
        self.child.in_buffer && !self.child.adopted && candidate.is_some_and(lost::has_no_inventory)
    }

    /// What decides whether the VM is replaced because its template changed.
    pub(super) fn outdated(&self, context: &Context, memory: &Memory) -> Outdated {
        let registered = self.vm().is_some_and(|vm| vm.agent_ref.is_some());
        let failing = |a: &Agent| lost::failing(a, context.clock.steady()).is_ok();
        let progress = match self.candidate() {
            None if self.host.possible.is_empty() && !registered => Progress::Unregistered,
            Some(agent) if failing(agent) => Progress::Failing,
            _ => Progress::Other,
        };
        Outdated {
            changed: !self.template_changes.is_empty(),
            serves: self.host.serves() || self.has_served(memory),
            may_be_node: self.guest_may_be_node(memory),
            is_kept: self.lifecycle().leaves_to_people(),
            progress,
        }
    }

    /// How far the VM is on its way into another life.
    pub(super) fn recycle(&self, context: &Context, memory: &Memory) -> RecycleState {
        let off = matches!(&memory.seen, Ownership::Ours(vm) if vm.power == PowerState::Off);
        let record = self.vm().and_then(|vm| vm.recycle.as_ref());
        let now = context.clock.wall();
        let says = |agent: &Agent| recycle::says(Some(agent), off);
        let own = self.candidate().map_or(Says::Free, says);
        // One that only may run there counts with a word that nobody knows. Without any state it is no host that the service
        // ever had, and a stranger's Agent must not keep the VM.
        let named = |agent: &&Arc<Agent>| !agent.state().is_empty();
        let mut possible = self.host.possible.iter().filter(named);
        let unknown = own == Says::Unknown || possible.any(|a| says(a) == Says::Unknown);
        let says = match own {
            _ if self.host.serves() && !matches!(own, Says::Returns(_)) => Says::Serves,
            _ if unknown => Says::Unknown,
            Says::Returns(patience) => Says::Returns(recycle::left(record, patience, now)),
            other => other,
        };
        let release = self.pool.as_ref().and_then(|p| p.spec.release.as_ref());
        let recycles = release.is_some_and(ReleaseSpec::recycles);
        RecycleState {
            stage: self.child.recycling(),
            overdue: self.vm().is_some_and(recycle::is_overdue),
            says,
            back: self
                .vm()
                .zip(self.host.agent.as_deref())
                .is_some_and(|(vm, agent)| recycle::is_back(vm, agent)),
            claimed: self
                .host
                .agent
                .as_ref()
                .is_some_and(|a| a.is_claimed_or_bound()),
            restarted: record
                .zip(self.host.agent.as_deref())
                .is_some_and(|(record, agent)| recycle::has_restarted(record, agent)),
            cleanup_hangs: memory.looks_for_cluster(context.clock.monotonic())
                && self.cleanup_hangs(now),
            keeps_disk: match self.child.recycling() {
                // What the renewal did, whatever the pool says since.
                Stage::Begun => self.vm().is_some_and(disk::keeps),
                Stage::No => self.child.has_old_data(),
                Stage::Asked(_) | Stage::Recorded(_) => {
                    release.and_then(|r| r.disk) == Some(ReleasedDisk::Keep)
                }
            },
            frees_hook: recycles
                && !self.lifecycle().leaves_to_people()
                && self.template_changes.is_empty()
                && !self.child.adopted
                && self
                    .vm()
                    .is_some_and(|vm| vm.attempt.is_some() && vm.vm_path.is_some())
                && self
                    .host
                    .agent
                    .as_ref()
                    .is_some_and(|a| matches!(a.state(), "unbinding" | "binding")),
        }
    }

    /// Whether the Agent of the VM hangs in the clean-up of the hosted cluster of its pool.
    fn cleanup_hangs(&self, now: Timestamp) -> bool {
        let agent = self.vm().zip(self.host.agent.as_deref());
        agent
            .zip(self.pool.as_ref())
            .is_some_and(|((vm, agent), pool)| {
                recycle::cleanup_hangs(vm, agent, pool.control_plane(), now)
            })
    }

    /// The attempt whose replacement a person asks for. What was asked for in an earlier life of the VM does not count.
    fn asked(&self) -> Option<i32> {
        let earlier = self.vm().and_then(|vm| vm.replace_ignored);
        let asked = self.child.replace_annotation();
        asked.filter(|asked| earlier != Some(*asked))
    }

    /// People hold the VM, or keep it: nothing is done on its way into another life.
    pub(in crate::vm) fn is_held(&self, now: Timestamp) -> bool {
        let held = holds::who_holds(EffectKind::Renew, &self.holds, now).is_some();
        held || self.lifecycle().leaves_to_people()
    }

    /// This actor saw that people held the VM, less than a discovery timeout ago.
    fn was_held(&self, context: &Context, memory: &Memory) -> bool {
        let gone_by = |at| context.clock.monotonic().saturating_sub(at);
        let patience = self.patience(context);
        memory.held_at.is_some_and(|at| gone_by(at) < patience)
    }

    /// A person asks for another VM.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let attempt = self.vm().filter(|vm| vm.bios_uuid.is_some());
        let attempt = attempt.and_then(|vm| vm.attempt);
        attempt.is_some() && attempt == self.asked()
    }

    /// Why its Agent cannot be claimed.
    #[must_use]
    pub fn lost(&self, context: &Context, memory: &Memory) -> Option<Lost> {
        let served = self.host.serves() || self.has_served(memory);
        lost::lost(
            &self.child,
            &self.host.possible,
            served,
            context.clock.steady(),
        )
    }

    /// How long a lost Agent is still awaited: by the record, and by this actor's own clock if it saw the loss.
    fn lost_left(&self, context: &Context, vm: &VmStatus, memory: &Memory) -> Duration {
        let patience = self.patience_with_lost(context, memory);
        let since = vm.agent_lost_since.as_ref();
        // A host of the buffer may have failed its validations before it fell silent.
        let silent = self.candidate().and_then(lost::silent_since);
        let by_record = since.map_or(patience, |t| {
            let since = silent.map_or(t.0, |silent| silent.max(t.0));
            lost::left(since, patience, context.clock.wall())
        });
        let now = context.clock.monotonic();
        let own = memory.lost_since.map_or(Duration::ZERO, |since| {
            patience.saturating_sub(now.saturating_sub(since))
        });
        by_record.max(own)
    }

    /// How long an Agent may take to register, and a lost one to come back.
    #[must_use]
    pub fn patience(&self, context: &Context) -> Duration {
        let pool = self.pool.as_ref();
        let own = pool.and_then(|p| p.spec.agent.discovery_timeout.as_deref());
        own.and_then(|t| agent_forge_crds::duration::parse(t).ok())
            .unwrap_or(context.settings.discovery_timeout)
    }

    /// How long a lost Agent may take to come back. Nobody waits for a host of the buffer, so a silent one goes sooner.
    #[must_use]
    pub fn patience_with_lost(&self, context: &Context, memory: &Memory) -> Duration {
        let patience = self.patience(context);
        if self.child.in_buffer && self.lost(context, memory) == Some(Lost::Disconnected) {
            patience.min(lost::SILENT_IN_BUFFER)
        } else {
            patience
        }
    }
}
