//! The form that equal states share: memory without ages, versions without history.

use std::collections::BTreeMap;

use agent_forge_actors::{
    ports::vcenter::VmObservation,
    report::vm::{Told, Topic},
    vm::{memory::Memory, ownership::Ownership},
};
use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentStatus},
    conditions::{Phase, Policy},
};
use kube::ResourceExt;

use super::{List, Stale, THEN, World, number};
use crate::shared::Shared;

/// No version is recorded: the watch shows what was written.
const SHOWN: u64 = 0;

fn renumber<K: ResourceExt + std::fmt::Debug + Clone + Send + Sync + 'static>(
    live: &mut List<K>,
    shown: Option<&mut List<K>>,
    written: bool,
    mut remembered: impl FnMut(&str, u64, Option<u64>, &dyn Fn(u64) -> u64),
) {
    let mut shown = shown;
    let first = |o: &Shared<K>| o.meta().resource_version.as_deref() == Some("1");
    if shown.is_none() && !written && live.iter().all(first) {
        return;
    }
    let both = live.iter().chain(shown.iter().flat_map(|s| s.iter()));
    let mut uids: Vec<String> = both.filter_map(|o| o.uid()).collect();
    uids.sort_unstable();
    uids.dedup();
    for uid in uids {
        let is_it = |o: &Shared<K>| o.meta().uid.as_deref() == Some(uid.as_str());
        let version = |o: &Shared<K>| number(o.meta().resource_version.as_deref());
        let lives = live.iter().find(|o| is_it(o)).map(version);
        let shows = shown.as_ref();
        let shows = shows.and_then(|s| s.iter().find(|o| is_it(o)).map(version));
        // The watch shows the same version or an earlier one. Of the versions between them, memory contains at most our
        // own write.
        let oldest = shows.or(lives).unwrap_or(1).min(lives.unwrap_or(u64::MAX));
        let rank = |v: u64| -> u64 {
            if v <= oldest {
                1
            } else if Some(v) == lives {
                3
            } else {
                2
            }
        };
        remembered(&uid, oldest, lives, &rank);
        for all in std::iter::once(&mut *live).chain(shown.as_deref_mut()) {
            let Some(at) = all.iter().position(is_it) else {
                continue;
            };
            let was = version(&all[at]);
            let want = rank(was);
            if was != want {
                let set = |o: &mut K| o.meta_mut().resource_version = Some(want.to_string());
                all[at].change_so(want, set);
            }
        }
    }
}

impl World {
    /// Versions of VMs without history: only whether the VM changed since the late request was decided.
    fn settle_versions(&mut self) {
        if !self.lives {
            return;
        }
        let mut late = self.late.as_ref().map(Shared::as_ref_clone);
        let decided = late.as_mut().and_then(|late| {
            let vm = late.order.vm()?.clone();
            Some((vm, late.order.version()?))
        });
        let (about, mut decided) = decided.unzip();
        for vm in self.vms.iter_mut() {
            let seen = decided
                .as_mut()
                .filter(|_| about.as_ref() == Some(&vm.moref));
            let same = seen
                .as_ref()
                .is_none_or(|seen| vm.change_version.as_ref() == Some(**seen));
            if let Some(seen) = seen {
                FIRST.clone_into(seen);
            }
            let want = if same { FIRST } else { SECOND };
            if vm.change_version.as_deref().is_some_and(|v| v != want) {
                let set = |vm: &mut VmObservation| vm.change_version = Some(want.to_owned());
                vm.change_so(number(Some(want)), set);
            }
        }
        self.late = late.map(Shared::new);
    }

    /// Brings equal states into one form: memory without ages, versions without history.
    pub fn settle(&mut self) {
        if let Some(stale) = &self.stale {
            let caught_up = match stale {
                Stale::Children(old) => *old == self.children,
                Stale::Agents(old) => *old == self.agents,
                Stale::Demand(am, m) => *am == self.agent_machines && *m == self.machines,
            };
            if caught_up {
                self.stale = None;
            }
        }
        if self.stale.is_none() {
            self.missed = 0;
        }
        self.settle_versions();
        // An actor ends with its object.
        let mut memory = std::mem::take(&mut self.memory);
        let shown = self.shown_children();
        let lives = |name: &String| shown.iter().any(|c| c.metadata.name.as_ref() == Some(name));
        if !memory.keys().all(lives) {
            memory.retain(|name, _| lives(name));
        }
        self.memory = memory;
        let memory = &mut self.memory;
        let mut stale = self.stale.take();
        let old_children = match &mut stale {
            Some(Stale::Children(old)) => Some(old),
            _ => None,
        };
        let written = memory.values().any(|m| m.status.pending().is_some());
        let named = |c: &Shared<VsphereAgent>| (c.uid().unwrap_or_default(), c.name_any());
        let uid_of: BTreeMap<String, String> = if written {
            let old = old_children.iter().flat_map(|old| old.iter());
            self.children.iter().chain(old).map(named).collect()
        } else {
            BTreeMap::new()
        };
        renumber(
            &mut self.children,
            old_children,
            written,
            |uid, shown, _, rank| {
                let Some(known) = uid_of.get(uid).and_then(|name| memory.get_mut(name)) else {
                    return;
                };
                let Some(written) = known.status.pending() else {
                    return;
                };
                let version = number(Some(written));
                let want = rank(version);
                if version <= shown {
                    known.change_so(SHOWN, |m| m.status.written = None);
                } else if version != want {
                    known.change_so(want, |m| {
                        let written = m.status.written.as_mut();
                        written.expect("it is pending").resource_version = want.to_string();
                    });
                }
            },
        );
        let old_agents = match &mut stale {
            Some(Stale::Agents(old)) => Some(old),
            _ => None,
        };
        renumber(&mut self.agents, old_agents, false, |_, _, _, _| {});
        let old_demand = match &mut stale {
            Some(Stale::Demand(old, _)) => Some(old),
            _ => None,
        };
        renumber(&mut self.agent_machines, old_demand, false, |_, _, _, _| {});
        self.stale = stale;
    }
}

/// The version of a VM that no request on its way was decided from, and of one that a request was.
pub(super) const FIRST: &str = "1";

/// The version of a VM that changed since a request on its way was decided.
const SECOND: &str = "2";

/// Brings memory into one form: every moment is [`THEN`], and what only informs people is left out.
pub fn ageless(memory: &mut Memory) {
    // It is used for traces and Events only.
    let mut announcer = std::mem::take(&mut memory.told.announcer);
    announcer.keep(|topic| *topic == Topic::Host);
    memory.told = Told {
        announcer,
        ..Told::default()
    };
    // Nothing clears a record.
    memory.recorded = None;
    // Each pass begins without a failed write, or finds it again.
    memory.status = memory.status.with_write_only();
    if let Some(written) = &mut memory.status.written {
        bare(&mut written.status);
    }
    memory.known_since = None;
    // Both clocks run alike here.
    memory.discovery = None;
    memory.lost_since = None;
    // No hosted cluster of these worlds hangs.
    memory.cluster_seen = None;
    // No VM of these worlds takes hours to be made ready, and no pause outlasts its guest's deadline.
    memory.held_at = None;
    memory.trying_since = None;
    memory.hours_tried = None;
    // Every pass comes later than the pause between two proofs.
    memory.proof_at = None;
    // Any time passes between two passes.
    memory.looked_at = None;
    memory.seen_since = (memory.seen != Ownership::NotAsked).then_some(THEN);
    memory.stuck_since = memory.stuck_since.map(|_| THEN);
    // No pool of these worlds switches a VM on again, and no optional step fails for good.
    memory.off_seen = None;
    memory.failed_steps.clear();
    memory.tried.clear();
    match &mut memory.seen {
        Ownership::Foreign { at, what, .. } => {
            *at = THEN;
            what.clear();
        }
        // A request carries the version that was seen directly before it.
        Ownership::Ours(vm) | Ownership::Lenders(vm) => vm.change_version = None,
        _ => {}
    }
    if let Some(refused) = &mut memory.create_refused {
        refused.at = THEN;
    }
}

/// Removes the parts of a VsphereAgent's status that only inform people.
pub fn bare(status: &mut VsphereAgentStatus) {
    status.timeline.clear();
    status.conditions.clear();
    status.waiting_on.retain_mut(|w| {
        w.message.clear();
        w.reason.has(Policy::Useless)
    });
    if let Some(vm) = &mut status.vm {
        vm.last_transition_time = None;
        // Decisions read them only of a disk whose data nobody knows. These worlds record what becomes of each disk.
        vm.lives.clear();
        // Decisions depend on the phase of an orphan only.
        if vm.phase != Some(Phase::Orphaned) {
            vm.phase = None;
        }
    }
}
