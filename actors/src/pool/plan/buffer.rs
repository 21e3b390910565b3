//! The buffer of a pool: which hosts stay in it, which come and which go. Pure.
//!
//! Guarantees
//! - AgentMachines that wait come first: the limits of the pool leave to the buffer what they do not need.
//! - A host that serves, may serve or has served is not of the buffer, whatever its record says. A host on its way into
//!   another life is.
//! - A host whose VM may serve in a way that the record does not know of is not of the buffer either.
//! - Hosts that are outdated or old are replaced one at a time, and only while no other one is missing. One that has the data of
//!   a life before stays.

mod places;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VmStatus, conditions::Reason, external::agent::Agent, pool::DeletePolicy,
};

pub(in crate::pool) use self::places::BUFFER;
use self::places::{Asks, bring, take_places};
use super::{
    lend,
    matching::Supply,
    planned::{Action, BufferCount, Plan},
};
use crate::{
    demand::buffer::{self, Size, since},
    domain::{
        belonging, disk, identity::BootSource, machine_state::MachineState, managed_vm::ManagedVm,
        moving, names::ObjectKey, recycle::Stage,
    },
    iso::{
        content,
        infra_env_guards::{self, Guard},
    },
    lifecycle::{self, End, Policy, Renewal, Unneeded},
    placement::request,
    pool::observed::Observed,
};

/// What is said of a host that has data and that the pool would replace otherwise.
pub(super) const OLD_DATA: &str = "the host is not as the pool makes them now, or too old, and its disk has, or may have, data of its life before \
     (spec.release.disk Keep): it is not replaced for that. If its data may go, delete this VsphereAgent: that removes the VM";

/// What is said of a host that waits and that nobody gets.
const OTHERS_DATA: &str = "the disk of the host has, or may have, data of another hosted cluster (spec.release.disk Keep): no \
     AgentMachine of this pool gets it. If its data may go, delete this VsphereAgent: that removes the VM";

/// The hosts that wait in the buffer, also those that a person gives to another pool, and that no action of this pass is about.
fn waiting<'a>(
    s: &'a Observed,
    taken: &BTreeSet<ObjectKey>,
) -> impl Iterator<Item = &'a ManagedVm> {
    let here = s.children.iter();
    let here = here.filter(|c| c.in_buffer && !c.deleting && !taken.contains(&c.key));
    here.filter(|c| !s.group.half_moved.contains_key(&c.uid))
        .filter(|c| !c.has_served(&[]) || c.recycling() != Stage::No)
        .filter(|c| {
            let renewal = Renewal::of(c, &s.pool);
            renewal.is_none_or(|r| has_next_life(s, c, Unneeded::Renewal(r)))
        })
        .filter(|c| !s.host(c).serves())
}

/// The hosts in the buffer that no action of this pass is about: those that are ready, and the others. First come those
/// that are as the pool wants them now, then the oldest.
pub(super) fn hosts<'a>(
    s: &'a Observed,
    taken: &BTreeSet<ObjectKey>,
) -> (Vec<&'a ManagedVm>, Vec<&'a ManagedVm>) {
    let mut all: Vec<&ManagedVm> = waiting(s, taken)
        .filter(|c| moving::to(&c.object, s.wall).is_none())
        .collect();
    all.sort_by_cached_key(|c| (is_outdated(s, c), since(c), c.uid.clone()));
    all.into_iter().partition(|c| is_ready(s, c))
}

/// It goes on to another Machine.
fn has_next_life(s: &Observed, child: &ManagedVm, why: Unneeded) -> bool {
    lifecycle::end(why, s.policy_of(child)) == End::NextLife
}

/// The pool wants other hardware, its InfraEnv is another one, or it puts something else into the ISO.
pub(super) fn is_outdated(s: &Observed, child: &ManagedVm) -> bool {
    let changes = |vm| !request::template_changes(s.pool_of(child), vm).is_empty();
    let booted = child.identity.as_ref().and_then(|i| i.infra_env.as_ref());
    let source = s.infra_env.as_deref().map(BootSource::of);
    let same = booted
        .zip(source.as_ref())
        .is_none_or(|(a, b)| a.is_same(b));
    !same || child.vm().is_some_and(changes) || has_other_content(s, child)
}

/// What its InfraEnv puts into the ISO has changed since it booted.
fn has_other_content(s: &Observed, child: &ManagedVm) -> bool {
    let iso = s
        .pool
        .status
        .as_ref()
        .and_then(|status| status.iso.as_ref());
    let booted = child.vm().and_then(|vm| vm.iso_created.as_ref());
    let macs = child.identity.as_ref().map_or(&[][..], |i| &i.macs);
    content::is_outdated(iso, booted, macs)
}

fn is_ready(s: &Observed, child: &ManagedVm) -> bool {
    let settled = !child.given_up && child.recycling() == Stage::No;
    let agent = s.host(child).approvable.as_ref().filter(|_| settled);
    agent.is_some_and(|agent| buffer::is_ready(s.pool_of(child), child, agent))
}

/// Plans which hosts stay in the buffer, and which come. The others are surplus, and so are all of a class that the pool does
/// not have any more.
pub(super) fn fill<'a>(
    s: &'a Observed,
    taken: &mut BTreeSet<ObjectKey>,
    supply: Supply<'a>,
    plan: &mut Plan,
) {
    let (ready, making) = hosts(s, taken);
    let (spare, coming) = spare(s, taken, plan);
    let mut asks = Asks {
        supply: Supply {
            spare,
            coming,
            ..supply
        },
        taken,
        new: admits_new(s),
        names: Box::new(free_names(s)),
        replaces: !s.children.iter().any(|c| c.in_buffer && c.deleting),
        given: Vec::new(),
    };
    // They go to other pools, and take no place here.
    let leaves = |c: &&ManagedVm| moving::to(&c.object, s.wall).is_some();
    let leaving: Vec<String> = waiting(s, asks.taken)
        .filter(leaves)
        .map(|c| c.uid.clone())
        .collect();
    plan.buffered.extend(leaving);
    asks.given = lend::given(s, &asks.supply, plan);
    for class in s.sizes.names() {
        let of_class = |all: &[&'a ManagedVm]| -> Vec<&'a ManagedVm> {
            let own = all.iter().filter(|c| c.class() == class);
            own.copied().collect()
        };
        let hosts = (of_class(&ready), of_class(&making));
        fill_class(s, class, hosts, &mut asks, plan);
    }
}

/// The same for one class.
fn fill_class(
    s: &Observed,
    class: Option<&str>,
    (ready, making): (Vec<&ManagedVm>, Vec<&ManagedVm>),
    asks: &mut Asks<'_, '_>,
    plan: &mut Plan,
) {
    let size = size(s, class, plan);
    let mut all: Vec<&ManagedVm> = ready.iter().chain(&making).copied().collect();
    all.sort_by_key(|c| since(c));
    let unseen = s.pending.made_for_buffer.values();
    let unseen = unseen.filter(|of| of.as_deref() == class).count();
    let here = all.len() + unseen;
    let scaling = s.pool.spec.scaling.clone().unwrap_or_default();
    remove_surplus(&mut all, size.most, scaling.delete_policy());
    for child in all.iter().filter(|c| has_data_of_others(s, c)) {
        plan.wait(child.key.name.clone(), Reason::Retained, OTHERS_DATA);
    }
    for child in all.iter().filter(|c| stays_with_data(s, c)) {
        if is_outdated(s, child) || age_left(s, child, &size) == Some(Duration::ZERO) {
            plan.wait(child.key.name.clone(), Reason::Retained, OLD_DATA);
        }
    }
    if asks.replaces && making.is_empty() && unseen == 0 && here >= size.wanted {
        asks.replaces = !replace_one(s, &mut all, &size, plan);
    }
    let stays: BTreeSet<String> = all.iter().map(|c| c.uid.clone()).collect();
    let brought = bring(class, size.most.saturating_sub(here), asks, plan);
    let (moved, made) = take_places(s, class, (here + brought, &size), asks, plan);
    let used = all.len() + unseen + brought + moved + made;
    let room = size.most.saturating_sub(used);
    let count = |of: &[&ManagedVm]| of.iter().filter(|c| stays.contains(&c.uid)).count();
    let buffer = BufferCount {
        wanted: size.wanted,
        ready: count(&ready),
        making: count(&making) + unseen + brought + moved + made,
    };
    plan.buffered.extend(stays);
    plan.buffer.add(buffer);
    plan.buffer_room.insert(class.map(str::to_owned), room);
    plan.buffer_classes
        .extend(class.map(|class| (class.to_owned(), buffer)));
}

/// How many hosts of that class the buffer is to have.
fn size(s: &Observed, class: Option<&str>, plan: &mut Plan) -> Size {
    let pool = s.sizes.pool(class);
    let scaling = pool.spec.scaling.clone().unwrap_or_default();
    let policy = Policy::Cleanup(Some(pool.spec.cleanup_policy()));
    let recycles = s.recycles() && !policy.leaves_to_people();
    let (size, wrong) = Size::read(&scaling, recycles, s.wall);
    // The fields that may be wrong are the same for all classes.
    for wrong in wrong.into_iter().filter(|_| class.is_none()) {
        let message = format!("{wrong}. Until that is corrected, the field has no effect");
        plan.wait(BUFFER, Reason::InvalidSpec, message);
    }
    if let Some(left) = size.left {
        plan.look_again(left.max(Duration::from_secs(1)));
    }
    size
}

/// VMs in the making that no AgentMachine needs, and that the buffer may have: those that can come now, the best one last, and
/// those that are about to come.
///
/// One whose Machine is not gone yet stays on record for it: the watch may be late, and an Agent that is bound is freed only
/// for the Machine on record. One whose Agent has to be fenced comes after that.
fn spare<'a>(
    s: &'a Observed,
    taken: &BTreeSet<ObjectKey>,
    plan: &Plan,
) -> (Vec<&'a ManagedVm>, Vec<&'a ManagedVm>) {
    // What else speaks against new VMs passes by itself.
    let unavailable = |guard: Guard| guard.reason == Reason::LateBindingUnavailable;
    if s.guard().is_some_and(unavailable) || s.refused_source().is_some() {
        return (Vec::new(), Vec::new());
    }
    let unfenced = |agent: &Arc<Agent>| !agent.is_deleting() && s.fence(agent).is_some();
    let waits = |c: &&ManagedVm| {
        let host = s.host(c);
        host.machine == MachineState::Leaving || host.own.as_ref().is_some_and(unfenced)
    };
    let spare = s.children.iter().rev();
    let spare = spare.filter(|c| plan.spare.contains(&c.uid) && !taken.contains(&c.key));
    let spare = spare.filter(|c| c.recycling() == Stage::No && is_as_wanted(s, c));
    let spare = spare.filter(|c| has_next_life(s, c, Unneeded::Spare));
    let (coming, now): (Vec<&ManagedVm>, Vec<&ManagedVm>) = spare.partition(waits);
    (now, coming)
}

/// It has the hardware that the pool wants, booted from its InfraEnv, and nobody has changed it in vCenter.
pub(super) fn is_as_wanted(s: &Observed, child: &ManagedVm) -> bool {
    let drifts = |vm: &VmStatus| !vm.hardware_drift.is_empty();
    !is_outdated(s, child) && !child.vm().is_some_and(drifts)
}

/// Leaves that many hosts in `all`, sorted by age.
fn remove_surplus(all: &mut Vec<&ManagedVm>, most: usize, policy: DeletePolicy) {
    let surplus = all.len().saturating_sub(most);
    match policy {
        DeletePolicy::Oldest => drop(all.drain(..surplus)),
        DeletePolicy::Newest => all.truncate(most),
    }
}

/// Its disk has, or may have, data of another hosted cluster than that of the pool.
pub(super) fn has_data_of_others(s: &Observed, child: &ManagedVm) -> bool {
    let home = s.pool.control_plane();
    child.vm().is_some_and(|vm| disk::is_of_another(vm, home))
}

/// Its pool would replace it, and its disk has, or may have, data: only a person ends it.
fn stays_with_data(s: &Observed, child: &ManagedVm) -> bool {
    replaced(s, child) == End::Hold
}

/// What becomes of it when its pool wants another one in its place.
fn replaced(s: &Observed, child: &ManagedVm) -> End {
    let outdated = Unneeded::Outdated {
        keeps_disk: child.has_old_data(),
    };
    lifecycle::end(outdated, s.policy_of(child))
}

/// How long until it is as old as the pool admits. `None`: there is no limit.
fn age_left(s: &Observed, child: &ManagedVm, size: &Size) -> Option<Duration> {
    let age = since(child).map_or(Duration::ZERO, |t| {
        Duration::try_from(s.wall.duration_since(t)).unwrap_or_default()
    });
    size.max_age.map(|limit| limit.saturating_sub(age))
}

/// One host of `all`, sorted by age, goes that is outdated, or too old. The next pass makes another one. Returns whether one goes.
fn replace_one(s: &Observed, all: &mut Vec<&ManagedVm>, size: &Size, plan: &mut Plan) -> bool {
    let may_go = |c: &ManagedVm| {
        let policy = s.policy_of(c);
        match replaced(s, c) {
            End::LeaveToPeople => policy.lets_record_go(s.recycles()),
            end => end != End::Hold,
        }
    };
    if let Some(place) = all.iter().position(|c| may_go(c) && is_outdated(s, c)) {
        all.remove(place);
        return true;
    }
    let Some(oldest) = all.iter().position(|c| may_go(c)) else {
        return false;
    };
    match age_left(s, all[oldest], size) {
        Some(Duration::ZERO) => {
            all.remove(oldest);
            return true;
        }
        Some(left) => plan.look_again(left),
        None => {}
    }
    false
}

/// Whether VMs are made for the buffer at all. `Err(None)`: why not is told elsewhere.
fn admits_new(s: &Observed) -> Result<(), Option<(Reason, String)>> {
    if belonging::refused_label(&s.pool).is_some() || s.refused_source().is_some() {
        return Err(None);
    }
    s.guard().map_or(Ok(()), |guard| {
        let message = format!("no host is made for the buffer: {}", guard.message);
        Err(Some((guard.reason, message)))
    })
}

/// Names for new VsphereAgents of the buffer.
fn free_names(s: &Observed) -> impl Iterator<Item = String> {
    let used: BTreeSet<&str> = s
        .children
        .iter()
        .map(|c| c.key.name.as_str())
        .chain(s.pending.made_for_buffer.keys().map(String::as_str))
        .chain(s.pending.begun_for_buffer.keys().map(String::as_str))
        .chain(s.group.taken_names.iter().map(String::as_str))
        .collect();
    let names = (0..).map(|place| buffer::name(&s.pool, place));
    names.filter(move |name| !used.contains(name.as_str()))
}

/// Plans what an Agent in the buffer lacks, or has too much.
pub(super) fn prepare(s: &Observed, child: &ManagedVm, agent: &Agent, plan: &mut Plan) {
    if child.given_up || child.recycling() != Stage::No {
        return;
    }
    let approved = infra_env_guards::approves(s.infra_env.as_deref(), agent);
    let proven = s.host(child).approvable.is_some();
    let patch = buffer::wait(
        s.pool_of(child),
        child,
        &s.choosers,
        approved,
        proven,
        agent,
    );
    let Some(patch) = patch else {
        return;
    };
    let child = child.clone();
    if buffer::takes_away(&patch) {
        plan.actions.push(Action::Fence { patch, child });
        return;
    }
    let host = s.host(&child);
    match host.doubt.clone().filter(|_| host.approvable.is_none()) {
        Some(doubt) => plan.wait(child.key.name.clone(), doubt.reason, doubt.message),
        None => plan.actions.push(Action::Prepare { patch, child }),
    }
}
