//! Demand: which AgentMachines of this pool ask for a host, and why the others do not.
//!
//! Pure. Each AgentMachine of the pool's NodePool gets exactly one [`Demand`]. A "not now" always has its reason.

pub mod words;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::VsphereAgentPool,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{boundary::Grants, foreign::ForeignHosts};
use crate::{
    domain::{
        belonging,
        names::ObjectKey,
        sizes::Sizes,
        upstream::{self, MachineFacts, WaitingSign},
    },
    iso::infra_env_guards::Guard,
};

/// How long an AgentMachine must wait before a VM is made for it: the provider claims a free Agent that fits within tens of
/// milliseconds.
pub const DEBOUNCE: Duration = Duration::from_millis(500);
/// How long the provider may leave a fitting free Agent unclaimed. After that the operator makes a VM.
pub const FREE_AGENT_GRACE: Duration = Duration::from_secs(60);
/// How long an AgentMachine may lack conditions or the provider's finalizer before the pool reports it and acts.
pub const PROVIDER_GRACE: Duration = Duration::from_secs(60);

/// The most characters of a provider's error that a message repeats.
const LONGEST_ERROR: usize = 300;

/// Whether one AgentMachine asks for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemandState {
    /// Needs a host now.
    Host,
    /// Needs a host, but the provider writes no conditions: only one VM until one such AgentMachine is served.
    HostUnconfirmed,
    /// One of our VsphereAgents is for it already.
    InFlight,
    /// Has, or is just getting, an Agent.
    Served,
    /// Does not ask (deleting, paused, no owner Machine, another state).
    NotRequested(DemandReason),
    /// Would ask, but not now.
    NotNow {
        /// Why.
        why: DemandReason,
        /// When to look again, if time alone changes the answer.
        again: Option<Duration>,
    },
}

/// Why an AgentMachine gets no VM now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemandReason {
    /// It or its Machine is being deleted.
    Deleting,
    /// CAPI's paused annotation.
    Paused,
    /// No owner Machine yet (`NoSuitableAgents` is written before any search then).
    MachinePending,
    /// It does not report `NoSuitableAgents`.
    NotWaiting,
    /// The provider cannot look for an Agent, and reports why.
    SearchFailed(String),
    /// It has just begun to wait.
    Debouncing,
    /// A free Agent fits: the provider should bind it, and has [`FREE_AGENT_GRACE`] for that.
    FreeAgentFits(String),
    /// A free foreign Agent counts for it: no VM is made as long as that Agent is free.
    ForeignAgentCounts(String),
    /// No conditions yet.
    ConditionsMissing,
    /// The provider's finalizer is missing.
    ProviderNotAccepting,
    /// A namespace does not allow the pool: the sentence that names it.
    NamespaceNotAllowed(String),
    /// `spec.agent.labels` of the pool has this key, which another service uses.
    LabelRefused(String),
    /// Another pool claims it as well.
    PoolConflict(ObjectKey),
    /// A VsphereAgent of another pool is for it.
    HostOfAnotherPool(ObjectKey),
    /// Its selector cannot be met.
    SelectorUnsatisfiable(String),
    /// The pool's InfraEnv is not one to make VMs from.
    Guarded(Guard),
}

/// One AgentMachine, and whether it asks for a host.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The AgentMachine.
    pub agent_machine: Arc<AgentMachine>,
    /// Its owner Machine, if it exists.
    pub machine: Option<MachineFacts>,
    /// Whether it asks, and if not, why.
    pub state: DemandState,
    /// What its conditions show, without regard to other facts.
    pub sign: WaitingSign,
    /// The class of hosts that its selector chooses. `None`: that of `spec.template`.
    pub class: Option<String>,
}

impl Demand {
    /// uid of the AgentMachine.
    #[must_use]
    pub fn uid(&self) -> String {
        self.agent_machine.uid().unwrap_or_default()
    }

    /// Name of the AgentMachine.
    #[must_use]
    pub fn name(&self) -> String {
        self.agent_machine.name_any()
    }
}

/// Facts that the classification needs.
pub struct Facts<'a> {
    /// The pool.
    pub pool: &'a VsphereAgentPool,
    /// The pool as each of its classes sees it.
    pub sizes: &'a Sizes,
    /// What namespaces allow.
    pub grants: &'a Grants,
    /// Other pools of the same control plane namespace that are not being deleted.
    pub other_pools: &'a [Arc<VsphereAgentPool>],
    /// AgentMachines of the control plane namespace.
    pub agent_machines: &'a [Arc<AgentMachine>],
    /// Machines of the control plane namespace.
    pub machines: &'a [MachineFacts],
    /// Agents that may run on the pool's VMs.
    pub agents: &'a [Arc<Agent>],
    /// The InfraEnv's namespace: the provider chooses among its Agents.
    pub agent_namespace: &'a str,
    /// The foreign hosts of the pool's InfraEnv.
    pub foreign: &'a ForeignHosts,
    /// Whether one of our VsphereAgents is for that AgentMachine.
    pub in_flight: &'a dyn Fn(&AgentMachine) -> bool,
    /// Whether a VM is on record for it. Users can create a VsphereAgent, but only the operator writes its record.
    pub on_record: &'a dyn Fn(&AgentMachine) -> bool,
    /// VsphereAgents of other pools, by the uid of the AgentMachine that they are for.
    pub made_by_others: &'a BTreeMap<String, ObjectKey>,
    /// Why no VM may be made from the pool's InfraEnv.
    pub guard: Option<&'a Guard>,
    /// Since when (monotonic) each AgentMachine was seen waiting, by uid.
    pub waiting_since: &'a BTreeMap<String, Duration>,
    /// Monotonic now.
    pub now: Duration,
    /// Wall clock, for ages.
    pub wall: Timestamp,
}

/// Classifies every AgentMachine of the pool, in name order.
#[must_use]
pub fn classify(facts: &Facts<'_>) -> Vec<Demand> {
    let sorted = Sorted::of(facts);
    facts
        .agent_machines
        .iter()
        // Of an AgentMachine that the pool may not see, it learns only that its own VM is on record for it.
        .filter(|am| belonging::belongs(facts.pool, am))
        .filter(|am| facts.grants.shows(facts.pool, am) || (facts.on_record)(am))
        .map(|am| {
            let machine = am.owner_machine().and_then(|owner| {
                let mut named = sorted.machines.get(owner.name.as_str())?.iter().copied();
                named.find(|m| owner.uid.is_empty() || m.uid == owner.uid)
            });
            let sign = upstream::waiting_sign(am);
            let state = state(facts, &sorted, am, machine, sign);
            Demand {
                agent_machine: am.clone(),
                machine: machine.cloned(),
                state,
                sign,
                class: facts.sizes.of_machine(am).ok().flatten().map(str::to_owned),
            }
        })
        .collect()
}

/// The facts that each AgentMachine asks for, sorted once.
struct Sorted<'a> {
    /// Machines by name.
    machines: HashMap<&'a str, Vec<&'a MachineFacts>>,
    /// Agents by the name of the AgentMachine that their claim label has.
    claimants: HashMap<&'a str, Vec<&'a Agent>>,
    /// Agents that the provider could bind now.
    free: Vec<&'a Agent>,
}

impl<'a> Sorted<'a> {
    fn of(facts: &Facts<'a>) -> Self {
        let mut sorted = Self {
            machines: HashMap::new(),
            claimants: HashMap::new(),
            free: Vec::new(),
        };
        for machine in facts.machines {
            let named = sorted.machines.entry(machine.key.name.as_str());
            named.or_default().push(machine);
        }
        for agent in facts.agents.iter().map(AsRef::as_ref) {
            if let Some(name) = agent.claimed_by() {
                sorted.claimants.entry(name).or_default().push(agent);
            }
            let at_home = agent.metadata.namespace.as_deref() == Some(facts.agent_namespace);
            if at_home && upstream::claimable(agent) {
                sorted.free.push(agent);
            }
        }
        sorted
    }

    fn is_claimed_for(&self, am: &AgentMachine) -> bool {
        let named = am.metadata.name.as_deref();
        let claimants = named.and_then(|name| self.claimants.get(name));
        let mut claimants = claimants.into_iter().flatten();
        claimants.any(|agent| upstream::claims(agent, am))
    }
}

fn state(
    facts: &Facts<'_>,
    sorted: &Sorted<'_>,
    am: &AgentMachine,
    machine: Option<&MachineFacts>,
    sign: WaitingSign,
) -> DemandState {
    if am.is_deleting() || machine.is_some_and(|m| m.deleting) {
        return DemandState::NotRequested(DemandReason::Deleting);
    }
    let served = am.agent_ref().is_some() || sorted.is_claimed_for(am);
    if let Some(why) = refused(facts, am).filter(|_| !served) {
        return DemandState::NotNow { why, again: None };
    }
    let Some(_) = machine else {
        return DemandState::NotRequested(DemandReason::MachinePending);
    };
    if served {
        return DemandState::Served;
    }
    if am.is_paused() {
        return DemandState::NotRequested(DemandReason::Paused);
    }
    if let Some(served) = has_host(facts, am) {
        return served;
    }
    if let Some(why) = not_yet(facts, am, sign) {
        return why;
    }
    let waited = facts
        .waiting_since
        .get(&am.uid().unwrap_or_default())
        .map_or(Duration::ZERO, |since| facts.now.saturating_sub(*since));
    if waited < DEBOUNCE {
        return DemandState::NotNow {
            why: DemandReason::Debouncing,
            again: Some(DEBOUNCE.saturating_sub(waited)),
        };
    }
    if let Some(left) = left_to_provider(facts, sorted, am, waited) {
        return left;
    }
    if sign == WaitingSign::NoConditions {
        DemandState::HostUnconfirmed
    } else {
        DemandState::Host
    }
}

/// The rule about free Agents: the provider is to bind one, so no VM is made yet. A foreign one that counts for the
/// AgentMachine is left to the provider as long as it is free. Any other one that fits is left to it for
/// [`FREE_AGENT_GRACE`], unless it counts for another AgentMachine.
fn left_to_provider(
    facts: &Facts<'_>,
    sorted: &Sorted<'_>,
    am: &AgentMachine,
    waited: Duration,
) -> Option<DemandState> {
    if let Some(agent) = facts.foreign.of(am) {
        return Some(DemandState::NotNow {
            why: DemandReason::ForeignAgentCounts(agent.to_owned()),
            again: None,
        });
    }
    if waited >= FREE_AGENT_GRACE {
        return None;
    }
    let mut free = sorted.free.iter();
    let fits = free.find(|a| belonging::is_free_for(a, am) && !facts.foreign.counts(a))?;
    Some(DemandState::NotNow {
        why: DemandReason::FreeAgentFits(fits.name_any()),
        again: Some(FREE_AGENT_GRACE.saturating_sub(waited)),
    })
}

/// A host is made for it, or another pool serves it.
fn has_host(facts: &Facts<'_>, am: &AgentMachine) -> Option<DemandState> {
    let mut others = facts.other_pools.iter();
    if let Some(other) = others.find(|p| facts.grants.serves(p, am)) {
        return Some(DemandState::NotNow {
            why: DemandReason::PoolConflict(ObjectKey::of(other.as_ref())),
            again: None,
        });
    }
    if (facts.in_flight)(am) {
        return Some(DemandState::InFlight);
    }
    let uid = am.metadata.uid.as_deref().unwrap_or_default();
    let other = facts.made_by_others.get(uid)?;
    Some(DemandState::NotNow {
        why: DemandReason::HostOfAnotherPool(other.clone()),
        again: Some(PROVIDER_GRACE),
    })
}

/// Why an AgentMachine that nothing serves gets no host now, however long it has waited.
fn not_yet(facts: &Facts<'_>, am: &AgentMachine, sign: WaitingSign) -> Option<DemandState> {
    let age = upstream::age(am, facts.wall);
    let never = |why| Some(DemandState::NotNow { why, again: None });
    match sign {
        WaitingSign::Other => return Some(DemandState::NotRequested(not_asking(am))),
        WaitingSign::NoConditions if age < PROVIDER_GRACE => {
            return Some(DemandState::NotNow {
                why: DemandReason::ConditionsMissing,
                again: Some(PROVIDER_GRACE.saturating_sub(age)),
            });
        }
        WaitingSign::NoConditions | WaitingSign::NoSuitableAgents => {}
    }
    if !am.has_provider_finalizer() {
        let again = (age < PROVIDER_GRACE).then(|| PROVIDER_GRACE.saturating_sub(age));
        return Some(DemandState::NotNow {
            why: DemandReason::ProviderNotAccepting,
            again,
        });
    }
    if let Err(why) = facts.sizes.of_machine(am) {
        return never(DemandReason::SelectorUnsatisfiable(why));
    }
    let guard = facts.guard?;
    never(DemandReason::Guarded(guard.clone()))
}

/// Why the pool may not do anything for the AgentMachine.
fn refused(facts: &Facts<'_>, am: &AgentMachine) -> Option<DemandReason> {
    if let Some(namespace) = facts.grants.lacking(facts.pool, am) {
        let own = facts.pool.namespace().unwrap_or_default();
        let sentence = facts.grants.sentence(&[namespace], &own);
        return Some(DemandReason::NamespaceNotAllowed(sentence));
    }
    belonging::refused_label(facts.pool).map(DemandReason::LabelRefused)
}

/// Why an AgentMachine does not ask, if it does not report that it waits.
fn not_asking(am: &AgentMachine) -> DemandReason {
    let Some(error) = am.search_error() else {
        return DemandReason::NotWaiting;
    };
    let first = error.lines().next().unwrap_or_default();
    DemandReason::SearchFailed(first.chars().take(LONGEST_ERROR).collect())
}

#[cfg(test)]
mod tests;
