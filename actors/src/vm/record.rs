//! What the record of a VM says once something is known. Pure.
//!
//! Guarantee: what cannot be taken back follows from what was read live in the same pass ([`Sources::live`]).

use std::time::Duration;

use agent_forge_crds::{
    agent::{BootRepair, RecycleStatus, VmStatus},
    external::agent::Agent,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{boot_repair, memory::Memory, observed::Observed, step::Entry};
use crate::{
    demand::applied,
    domain::{
        disk, network,
        recycle::{self, Stage, Why},
        seconds,
        trace::TraceId,
    },
    iso::content,
    ports::vcenter::{PowerState, VmObservation},
};

/// Most MAC addresses that are kept on record, the VM's own first.
const MOST_MACS: usize = 16;

/// What a record is made from.
pub struct Sources<'a> {
    /// The VsphereAgent, as the caches show it.
    pub observed: &'a Observed,
    /// What this actor has seen.
    pub memory: &'a Memory,
    /// The Agent of the VM, read live in this pass.
    pub live: Option<&'a Agent>,
    /// Wall clock.
    pub now: Timestamp,
    /// How long a guest may take until its Agent registers.
    pub patience: Duration,
}

/// The record with `entry`. `None`: what was read does not show it.
#[must_use]
pub fn with(entry: Entry, known: &Sources<'_>) -> Option<VmStatus> {
    let mut vm = known.vm();
    match entry {
        Entry::Seen => return Some(seen(known.shown()?, known)),
        Entry::Marks => known.memory.seen.marks().record(&mut vm),
        Entry::LeftBound => {
            known.live?;
            vm.machine_vanished_paused = Some(true);
        }
        Entry::NextLife => next_life(&mut vm, known)?,
        Entry::Begun(life) => begun(&mut vm, life, known)?,
        Entry::Life(life) => {
            let shown = known.shown()?;
            let disk = shown.disk_now().filter(|_| shown.is_fresh_in(life));
            let asked = known.observed.child.replace_annotation();
            vm = recycle::in_life(&vm, life, disk, asked, Some(known.second()));
        }
        Entry::Stamped => {
            vm.taken_from.as_mut()?.stamped = Some(true);
            if let Some(shown) = known.shown() {
                vm.may_serve = may_serve(shown);
            }
        }
        Entry::Restarted => {
            let way = vm.recycle.as_mut()?;
            let agent = known.live.filter(|a| recycle::has_restarted(way, a));
            way.restarted = agent.map(|_| true);
            agent?;
        }
        Entry::Back => {
            let is_over = |a: &&Agent| a.is_claimed_or_bound() || recycle::is_back(&vm, a);
            known.live.filter(is_over)?;
            if matches!(known.observed.child.recycling(), Stage::Recorded(_)) {
                // Its life is not over.
                let life = i64::from(recycle::generation(&vm));
                vm.lives.retain(|past| i64::from(past.generation) < life);
            }
            vm.recycle = None;
        }
        Entry::Vcenter => known.memory.reached.as_ref()?.record(&mut vm),
        Entry::Reset => vm.boot_repair = Some(reset(&vm, known)?),
        // The status is rendered without what is over.
        Entry::Unbound => {}
    }
    Some(vm)
}

impl<'a> Sources<'a> {
    fn vm(&self) -> VmStatus {
        self.observed.vm().cloned().unwrap_or_default()
    }

    fn shown(&self) -> Option<&'a VmObservation> {
        self.memory.seen.ours()
    }

    fn second(&self) -> Time {
        Time(seconds::whole(self.now))
    }
}

fn may_serve(shown: &VmObservation) -> Option<String> {
    shown.may_serve.as_ref().map(ToString::to_string)
}

/// It is to begin another life.
fn next_life(vm: &mut VmStatus, known: &Sources<'_>) -> Option<()> {
    let observed = known.observed;
    let (life, why) = match observed.child.recycling() {
        Stage::Asked(life) => (life, Why::MachineGone),
        Stage::No => (recycle::generation(vm) + 1, Why::GuestDead),
        Stage::Recorded(_) | Stage::Begun => return None,
    };
    let agent = observed.candidate();
    let host = agent.and_then(|a| {
        let own = || a.inventory()?.hostname.clone();
        a.spec.hostname.clone().or_else(own)
    });
    // The pool may have moved the VM into the buffer by now.
    let served = vm.agent_machine_ref.as_ref().and_then(|r| r.uid.as_deref());
    let trace = served.map_or_else(|| observed.child.trace(), TraceId::of_machine);
    vm.lives = recycle::lives(vm, host, trace, Some(known.second()));
    vm.recycle = Some(RecycleStatus {
        generation: i32::try_from(life).unwrap_or(i32::MAX),
        started_at: Some(known.second()),
        reason: Some(why.as_str().to_owned()),
        resource_class: agent.and_then(|a| applied::class_of_people(a).map(str::to_owned)),
        ..RecycleStatus::default()
    });
    Some(())
}

/// The VM is ready: from now on nothing that was before says anything about its guest.
fn begun(vm: &mut VmStatus, life: u32, known: &Sources<'_>) -> Option<()> {
    let (shown, before) = (known.shown()?, known.live);
    vm.disk = disk::record(vm, life, shown.disk_now());
    vm.generation = i32::try_from(life).ok();
    vm.generation_since = Some(known.second());
    // Somebody may have switched it on already. That is recorded with the deadline of its guest.
    let rests = shown.power != PowerState::On;
    vm.power_state = rests.then(|| shown.power.as_str().to_owned());
    vm.served = None;
    vm.may_serve = may_serve(shown);
    vm.iso_ejected = None;
    vm.guest_may_be_node = None;
    vm.discovery_deadline = None;
    vm.agent_lost_since = None;
    vm.phase = None;
    vm.reason = None;
    vm.switched_on_again.clear();
    vm.boot_repair = None;
    vm.replace_ignored = known.observed.child.replace_annotation();
    let pool = known.observed.pool.as_ref();
    let iso = pool.and_then(|p| p.status.as_ref()?.iso.as_ref());
    if let Some(source) = iso.and_then(|iso| iso.infra_env_ref.clone()) {
        vm.infra_env_ref = Some(source);
    }
    vm.iso_created = iso.and_then(content::created);
    if let Some(way) = &mut vm.recycle {
        way.new_disk = recycle::new_disk(before, shown.hardware.disk_uuid.as_deref());
        let state = before.map(|a| a.state().to_owned());
        way.state_before = state.filter(|s| !s.is_empty());
        way.report_before = before.and_then(Agent::inventory_time);
    }
    Some(())
}

/// The next reset of the VM.
fn reset(vm: &VmStatus, known: &Sources<'_>) -> Option<BootRepair> {
    let agent = known.observed.host.agent.as_deref()?;
    let before = boot_repair::last(vm.boot_repair.as_ref(), known.memory.reset.as_ref());
    let before = before.map_or(0, |repair| repair.count);
    Some(BootRepair {
        count: before.saturating_add(1),
        at: Some(known.second()),
        state_updated_at: boot_repair::occurrence(agent),
    })
}

/// What vCenter shows of a VM that runs.
fn seen(shown: &VmObservation, known: &Sources<'_>) -> VmStatus {
    let (was, memory) = (known.vm(), known.memory);
    let patience = SignedDuration::try_from(known.patience).ok();
    let deadline = patience.and_then(|t| known.now.checked_add(t).ok());
    // Tags depend on the reference of the VM. A VM that the predecessor left is not tagged. If no reference is on
    // record, only this actor's memory proves the tags. A process that died meanwhile may have tagged a VM that was
    // registered again under another reference since.
    let tagged = memory.tagged.as_ref().map(|t| &t.moref);
    let reference = was.moref.as_ref().or(tagged);
    let again = was.attempt.is_some()
        && reference.is_none_or(|m| *m != shown.moref.id)
        && known.observed.wants_tags();
    let first_start = first_start(&was, known);
    let mut vm = with_observation(
        known.observed,
        was,
        shown,
        deadline.map(|at| Time(seconds::whole(at))),
    );
    if shown.power == PowerState::On && vm.first_powered_on.is_none() {
        vm.first_powered_on = first_start;
    }
    if again {
        vm.tags_missing = Some(true);
    }
    // The VM is proven in this vCenter, whatever the address was when it was made.
    if let Some(reached) = &memory.reached {
        reached.record(&mut vm);
    }
    vm
}

/// Since when Agents of this VM can exist. If this actor switched the VM on, since then. Otherwise since the
/// creation of its VsphereAgent, because its uuid was not known before. `None` if the first start is past and was
/// not recorded.
fn first_start(was: &VmStatus, known: &Sources<'_>) -> Option<Time> {
    let child = &known.observed.child;
    let is_first = was.attempt.is_some() && was.discovery_deadline.is_none() && !child.reborn;
    let created = child.object.metadata.creation_timestamp.as_ref();
    let at = known.memory.switched_on_at.or(created.map(|t| t.0));
    let at = at.filter(|_| is_first)?;
    Some(Time(seconds::whole(at)))
}

/// The record `vm` with what vCenter shows. `deadline`: until when its Agent is awaited.
#[must_use]
pub fn with_observation(
    observed: &Observed,
    mut vm: VmStatus,
    shown: &VmObservation,
    deadline: Option<Time>,
) -> VmStatus {
    // It has no reference yet, so it was made a moment ago.
    if vm.moref.is_none()
        && let Some(template) = &mut vm.template
    {
        let place = vm.placement.as_ref().and_then(|p| p.network.as_deref());
        let plan = place.map(network::nics).unwrap_or_default();
        template.network_cards = network::record(&plan, &shown.hardware);
    }
    vm.moref = Some(shown.moref.id.clone());
    vm.instance_uuid.clone_from(&shown.instance_uuid);
    let before = std::mem::take(&mut vm.mac_addresses);
    vm.mac_addresses = shown.macs.iter().map(ToString::to_string).collect();
    // An Agent with the MAC address of a replaced network card belongs to this VM as well.
    let known = vm.mac_addresses.clone();
    let replaced = before.into_iter().filter(|mac| !known.contains(mac));
    vm.mac_addresses.extend(replaced);
    vm.mac_addresses.truncate(MOST_MACS);
    vm.mac_address = shown.macs.first().map(|m| m.hyphenated());
    vm.task_id = None;
    if shown.life() > recycle::generation(&vm) && vm.recycle.is_none() {
        // The record is older than the VM.
        let disk = shown.disk_now();
        let disk = disk.filter(|_| shown.is_fresh_in(shown.life()));
        let asked = observed.child.replace_annotation();
        vm = recycle::in_life(&vm, shown.life(), disk, asked, None);
    }
    vm.may_serve = may_serve(shown);
    vm.attempt = vm.attempt.or(Some(1));
    vm.power_state = Some(shown.power.as_str().to_owned());
    if shown.power == PowerState::On && vm.discovery_deadline.is_none() {
        vm.discovery_deadline = deadline;
    }
    vm
}
