//! What all other parts do: guests, the agent provider, Cluster API, people. One act at a time, at any moment.

use std::fmt;

use agent_forge_actors::ports::vcenter::{PowerState, VmObservation};
use agent_forge_crds::external::{
    NamespacedName,
    agent::{AGENT_MACHINE_REF_LABEL, AGENT_MACHINE_REF_NAMESPACE_ANNOTATION, Agent, BOUND},
    agent_machine::{AGENT_RESERVED, AgentMachine},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::{
    binding,
    objects::{self, CONTROL_PLANE, condition},
    shared::Shared,
    world::{Harm, World, bump, is_ours},
};

/// An act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The guest of that VM registers its Agent.
    Registers(String),
    /// The provider binds an Agent to an AgentMachine.
    Binds(String, String),
    /// A person deletes that Machine.
    Leaves(String),
    /// Cluster API deletes its AgentMachine.
    Follows(String),
    /// The provider unbinds the Agent of an AgentMachine that is being deleted.
    Unbinds(String),
    /// The same, and the service reclaims the host.
    Reclaims(String),
    /// The guest of that VM is reclaimed, and reboots into discovery.
    Reboots(String),
    /// The provider removes its finalizer from that AgentMachine.
    Forgets(String),
    /// Cluster API removes its finalizer from that Machine.
    Ends(String),
    /// A person renames the foreign VM.
    Renames,
    /// A person creates that Machine of the first pool.
    Comes(String),
    /// An administrator switches on a VM that waits for its next life.
    SwitchesOn,
    /// The guest of that VM boots the discovery ISO again, and the service hears of it.
    Restarts(String),
    /// The service has the inventory of that VM's guest.
    Reports(String),
    /// An hour passes.
    Hour,
    /// The late request arrives.
    Arrives,
    /// The watch catches up.
    CatchesUp,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registers(vm) => write!(f, "guest of {vm} registers"),
            Self::Binds(am, agent) => write!(f, "provider binds Agent {agent} to {am}"),
            Self::Leaves(m) => write!(f, "a person deletes Machine {m}"),
            Self::Follows(m) => write!(f, "AgentMachine {m} is being deleted"),
            Self::Unbinds(m) => write!(f, "provider unbinds the Agent of {m}"),
            Self::Reclaims(m) => write!(f, "the Agent of {m} is unbound and reclaimed"),
            Self::Reboots(vm) => write!(f, "guest of {vm} is reclaimed and reboots"),
            Self::Forgets(m) => write!(f, "AgentMachine {m} is gone"),
            Self::Ends(m) => write!(f, "Machine {m} is gone"),
            Self::Renames => write!(f, "a person renames the foreign VM"),
            Self::Comes(m) => write!(f, "a person creates Machine {m}"),
            Self::SwitchesOn => write!(f, "an administrator switches the VM on"),
            Self::Restarts(vm) => write!(f, "guest of {vm} boots the ISO again"),
            Self::Reports(vm) => write!(f, "guest of {vm} has reported again"),
            Self::Hour => write!(f, "an hour goes by"),
            Self::Arrives => write!(f, "the late request arrives"),
            Self::CatchesUp => write!(f, "the watch catches up"),
        }
    }
}

/// Whether the provider may bind them.
fn fit(am: &AgentMachine, agent: &Agent) -> bool {
    let asked = am.spec.agent_label_selector.as_ref();
    let asked = asked.and_then(|s| s.match_labels.as_ref());
    let has = |(k, v): (&String, &String)| agent.labels().get(k) == Some(v);
    agent.is_valid_for_claim()
        && agent.claimed_by().is_none()
        && !agent.is_deleting()
        && asked.into_iter().flatten().all(has)
}

fn named<K: ResourceExt + fmt::Debug>(all: &mut [Shared<K>], name: &str) -> Option<usize> {
    all.iter().position(|o| o.name_any() == name)
}

/// What may happen next. `people` is what people may do in addition.
pub fn possible(w: &World, people: &[Deed]) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for vm in w.vms.iter().filter(|v| is_ours(v)) {
        if vm.power == PowerState::On {
            deeds.extend(binding::of_guest(w, vm));
        }
    }
    for am in w.agent_machines.iter() {
        let name = am.name_any();
        let machine = w.machines.iter().find(|m| m.key.name == name);
        let leaves = machine.is_some_and(|m| m.deleting);
        match (am.is_deleting(), am.agent_ref()) {
            (false, _) if leaves => deeds.push(Deed::Follows(name)),
            (false, None) => {
                for agent in w.agents.iter().filter(|a| fit(am, a)) {
                    deeds.push(Deed::Binds(name.clone(), agent.name_any()));
                }
            }
            (false, Some(_)) => {}
            (true, reference) => {
                let bound = w.agents.iter().any(|a| {
                    reference.is_some_and(|r| r.name == a.name_any())
                        && a.claimed_by() == Some(name.as_str())
                });
                let reclaims = w.reclaims && bound;
                deeds.extend(reclaims.then(|| Deed::Reclaims(name.clone())));
                deeds.push(if bound {
                    Deed::Unbinds(name)
                } else {
                    Deed::Forgets(name)
                });
            }
        }
    }
    for m in w.machines.iter().filter(|m| m.deleting) {
        if !w
            .agent_machines
            .iter()
            .any(|am| am.name_any() == m.key.name)
        {
            deeds.push(Deed::Ends(m.key.name.clone()));
        }
    }
    if w.late.is_some() {
        deeds.push(Deed::Arrives);
    }
    if w.stale.is_some() {
        deeds.push(Deed::CatchesUp);
    }
    for deed in people {
        let now = match deed {
            Deed::Leaves(name) => {
                let mut lives = w.machines.iter().filter(|m| !m.deleting);
                lives.any(|m| m.key.name == *name)
            }
            Deed::Renames => {
                let wanted = |v: &Shared<_>| w.machines.iter().any(|m| names_it(v, &m.key.name));
                w.vms.iter().any(wanted)
            }
            Deed::Comes(name) => binding::may_come(w, name),
            Deed::SwitchesOn => binding::rests(w).is_some(),
            _ => false,
        };
        if now {
            deeds.push(deed.clone());
        }
    }
    deeds
}

fn names_it(vm: &Shared<VmObservation>, name: &str) -> bool {
    vm.marker.is_none() && vm.name == name
}

/// Whether time matters: a VM waits for its Agent, or the operator pauses after it gave one up.
pub fn waits_for_time(w: &World) -> bool {
    w.children.iter().any(|c| {
        let Some(status) = &c.status else {
            return false;
        };
        let Some(vm) = &status.vm else {
            return false;
        };
        let unseen = || {
            let mut vms = w.vms.iter();
            let awaited = |v: &_| w.agent_on(v).is_none() || vm.recycle.is_some();
            vms.any(|v| Some(&v.moref.id) == vm.moref.as_ref() && awaited(v))
        };
        let resting = vm.bios_uuid.is_none()
            && status.last_failure.as_ref().is_some_and(|f| {
                let at = objects::at(600 + 3600 * i64::from(w.hours));
                f.time.as_ref().is_some_and(|t| t.0 >= at)
            });
        let awaited = vm
            .discovery_deadline
            .as_ref()
            .is_some_and(|d| d.0 > objects::at(600 + 3600 * i64::from(w.hours)));
        let lost = w.lives && vm.agent_lost_since.is_some();
        c.metadata.deletion_timestamp.is_none() && (resting || lost || awaited && unseen())
    })
}

/// Carries the act out.
pub fn act(w: &mut World, deed: &Deed) {
    match deed {
        Deed::Registers(vm) => {
            let vm = w.vms.iter().find(|v| v.moref.id == *vm);
            if let Some((vm, mut agent)) = vm.and_then(|vm| Some((vm, objects::agent_on(vm)?))) {
                if w.lives {
                    binding::show_life(&mut agent, binding::life(vm), w.hours);
                }
                w.agents.push(Shared::new(agent));
                w.agents.sort_by_key(|a| a.name_any());
                // No request takes as long as a boot.
                w.late.take_if(|_| w.lives);
            }
        }
        Deed::Binds(am, agent) => {
            let (Some(am), Some(agent)) = (
                named(&mut w.agent_machines, am),
                named(&mut w.agents, agent),
            ) else {
                return;
            };
            let name = w.agent_machines[am].name_any();
            let reference = NamespacedName {
                name: w.agents[agent].name_any(),
                namespace: w.agents[agent].namespace().unwrap_or_default(),
            };
            if !binding::runs(w, &w.agents[agent]) {
                w.harmed(Harm::StaleBound);
            }
            let lives = w.lives;
            w.agents[agent].change(|a| {
                if lives {
                    binding::set_state(a, "added-to-existing-cluster");
                }
                a.labels_mut()
                    .insert(AGENT_MACHINE_REF_LABEL.to_owned(), name);
                a.annotations_mut().insert(
                    AGENT_MACHINE_REF_NAMESPACE_ANNOTATION.to_owned(),
                    CONTROL_PLANE.to_owned(),
                );
                a.spec.cluster_deployment_name = Some(NamespacedName {
                    name: "demo".to_owned(),
                    namespace: CONTROL_PLANE.to_owned(),
                });
                let status = a.status.get_or_insert_default();
                status.conditions = vec![condition(BOUND, "True", "Bound")];
                bump(a);
            });
            w.agent_machines[am].change(|am| {
                let status = am.status.get_or_insert_default();
                status.agent_ref = Some(reference);
                status.conditions = vec![condition(AGENT_RESERVED, "True", "AgentReserved")];
                bump(am);
            });
        }
        Deed::Leaves(name) => {
            for m in w.machines.iter_mut() {
                if m.key.name == *name {
                    m.change(|m| m.deleting = true);
                }
            }
        }
        Deed::Follows(name) => {
            if let Some(at) = named(&mut w.agent_machines, name) {
                w.agent_machines[at].change(|am| {
                    am.metadata.deletion_timestamp = Some(Time(objects::at(600)));
                    bump(am);
                });
            }
        }
        Deed::Reboots(vm) => binding::reboots(w, vm),
        Deed::Unbinds(name) | Deed::Reclaims(name) => {
            let state = match deed {
                Deed::Reclaims(_) => binding::state::RECLAIMING,
                _ => binding::state::PENDING,
            };
            let lives = w.lives;
            for agent in w.agents.iter_mut() {
                if agent.claimed_by() == Some(name.as_str()) {
                    agent.change(|a| {
                        a.labels_mut().remove(AGENT_MACHINE_REF_LABEL);
                        a.annotations_mut()
                            .remove(AGENT_MACHINE_REF_NAMESPACE_ANNOTATION);
                        a.spec.cluster_deployment_name = None;
                        a.status.get_or_insert_default().conditions = objects::free();
                        if lives {
                            binding::set_state(a, state);
                        }
                        bump(a);
                    });
                }
            }
        }
        Deed::Forgets(name) => w.agent_machines.retain(|am| am.name_any() != *name),
        Deed::Ends(name) => w.machines.retain(|m| m.key.name != *name),
        Deed::Renames => {
            for vm in w.vms.iter_mut().filter(|v| v.marker.is_none()) {
                vm.change(|vm| vm.name = "renamed".to_owned());
            }
        }
        Deed::Comes(name) => binding::comes(w, name),
        Deed::SwitchesOn => binding::switches_on(w),
        Deed::Restarts(vm) => binding::restarts(w, vm),
        Deed::Reports(vm) => binding::reports(w, vm),
        Deed::Hour => {
            w.hours += 1;
            binding::fall_silent(w);
            // No request takes an hour: it arrived before, or it never does.
            w.late = None;
        }
        Deed::Arrives => {
            if let Some(late) = w.late.take() {
                let _ = w.obey(&late.order, &late.by);
            }
        }
        Deed::CatchesUp => w.stale = None,
    }
}
