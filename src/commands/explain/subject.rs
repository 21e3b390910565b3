//! What the user asks about, and the objects of its machine.

use std::{fmt, str::FromStr, sync::Arc};

use agent_forge_actors::{
    domain::{belonging, managed_vm::ManagedVm, names::ObjectKey, upstream::MachineFacts},
    ports::cluster::View as _,
};
use agent_forge_crds::{
    VsphereAgentPool,
    agent::Milestone,
    conditions::Phase,
    external::{agent::Agent, agent_machine::AgentMachine},
};
use kube::ResourceExt;
use serde::Serialize;

use super::join::Join;
use crate::cluster::view::Caches;

/// The kinds of objects of a machine, in the order of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// The demand.
    AgentMachine,
    /// Its owner in Cluster API.
    Machine,
    /// The operator's record.
    VsphereAgent,
    /// In vCenter.
    VM,
    /// The host that booted the discovery ISO.
    Agent,
    /// In the hosted cluster.
    Node,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// `KIND/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Kind.
    pub kind: Kind,
    /// Name.
    pub name: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once('/').unwrap_or((text, ""));
        let kind = match kind.to_ascii_lowercase().as_str() {
            "agentmachine" | "agentmachines" => Kind::AgentMachine,
            "machine" | "machines" => Kind::Machine,
            "vsphereagent" | "vsphereagents" | "va" => Kind::VsphereAgent,
            "vm" => Kind::VM,
            "agent" | "agents" => Kind::Agent,
            "node" | "nodes" => Kind::Node,
            _ => {
                return Err(
                    "write KIND/NAME with a kind of AgentMachine, Machine, VsphereAgent (va), VM, Agent, Node"
                        .to_owned(),
                );
            }
        };
        if name.is_empty() {
            return Err(format!("write {kind}/NAME"));
        }
        let name = name.to_owned();
        Ok(Self { kind, name })
    }
}

/// The objects of one machine, as far as they exist.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// AgentMachine.
    pub agent_machine: Option<Arc<AgentMachine>>,
    /// Machine.
    pub machine: Option<Arc<MachineFacts>>,
    /// VsphereAgent, with what it records of its VM.
    pub child: Option<ManagedVm>,
    /// Agent.
    pub agent: Option<Arc<Agent>>,
    /// The pool of the VsphereAgent; without one, the pool that may serve the AgentMachine, or may see it.
    pub pool: Option<Arc<VsphereAgentPool>>,
    /// Why a pool that names the NodePool of the AgentMachine may not see it, if no other one may.
    pub refused: Option<String>,
}

impl Found {
    /// Whether its VM is being removed, or its Machine goes.
    #[must_use]
    pub fn leaves(&self) -> bool {
        let goes = |child: &ManagedVm| {
            let phase = child.vm().and_then(|vm| vm.phase.as_ref());
            child.deleting || child.given_up || phase == Some(&Phase::Released)
        };
        let am = self.agent_machine.as_ref();
        self.child.as_ref().is_some_and(goes)
            || am.is_some_and(|am| am.is_deleting())
            || self.machine.as_ref().is_some_and(|m| m.deleting)
    }

    /// What happened to its VM, and when.
    #[must_use]
    pub fn timeline(&self) -> &[Milestone] {
        let status = self.child.as_ref().and_then(|c| c.object.status.as_ref());
        status.map(|s| s.timeline.as_slice()).unwrap_or_default()
    }
}

/// The name of the host that an Agent is: it becomes the name of the Node.
#[must_use]
pub fn hostname(agent: &Agent) -> Option<&str> {
    let wanted = agent.spec.hostname.as_deref().filter(|h| !h.is_empty());
    wanted.or_else(|| agent.inventory()?.hostname.as_deref())
}

fn is_vm(child: &ManagedVm, name: &str) -> bool {
    let vm = child.vm();
    let recorded = vm.is_some_and(|vm| {
        vm.name == name || [&vm.moref, &vm.bios_uuid].contains(&&Some(name.to_owned()))
    });
    recorded || child.vm_name == name
}

/// The only one; else a sentence that says what to add.
fn only<T>(
    all: Vec<T>,
    subject: &Subject,
    namespace: Option<&str>,
    key: impl Fn(&T) -> String,
) -> anyhow::Result<T> {
    let keys: Vec<String> = all.iter().map(key).collect();
    let mut all = all.into_iter();
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => anyhow::bail!(
            "{subject} is not unique: {}; add -n NAMESPACE",
            keys.join(", ")
        ),
        _ => {
            let place = namespace.map_or("any namespace".to_owned(), |n| format!("namespace {n}"));
            let hint = match subject.kind {
                Kind::VM => {
                    "; no VsphereAgent records it. `agent-forge orphans` lists VMs without a record"
                }
                Kind::Node => {
                    "; no Agent has that hostname. A Node that no VM of agent-forge runs is not known here"
                }
                _ => "",
            };
            anyhow::bail!("there is no {subject} in {place}{hint}")
        }
    }
}

/// Finds the subject, and everything that belongs to it.
///
/// # Errors
/// It does not exist, or several objects have that name.
pub fn find(caches: &Caches, subject: &Subject, namespace: Option<&str>) -> anyhow::Result<Found> {
    let here = |n: Option<String>| namespace.is_none() || n.as_deref() == namespace;
    let name = subject.name.as_str();
    let mut found = Found::default();
    match subject.kind {
        Kind::AgentMachine => {
            let mut all = caches.all_agent_machines();
            all.retain(|am| am.name_any() == name && here(am.namespace()));
            let one = only(all, subject, namespace, |am| key(am.as_ref()))?;
            found.agent_machine = Some(one);
        }
        Kind::Machine => {
            let mut all = caches.machines.all();
            all.retain(|m| m.key.name == name && here(Some(m.key.namespace.clone())));
            found.machine = Some(only(all, subject, namespace, |m| m.key.to_string())?);
        }
        Kind::VsphereAgent | Kind::VM => {
            let all = caches.all_children().into_iter().map(ManagedVm::read);
            let is_it = |c: &ManagedVm| match subject.kind {
                Kind::VM => is_vm(c, name),
                _ => c.key.name == name,
            };
            let all = all.filter(|c| is_it(c) && here(Some(c.key.namespace.clone())));
            let one = only(all.collect(), subject, namespace, |c| c.key.to_string())?;
            found.child = Some(one);
        }
        Kind::Agent | Kind::Node => {
            let mut all = caches.agents.all();
            all.retain(|agent| {
                let is_it = match subject.kind {
                    Kind::Node => hostname(agent) == Some(name),
                    _ => agent.name_any() == name,
                };
                is_it && here(agent.namespace())
            });
            let one = only(all, subject, namespace, |a| key(a.as_ref()))?;
            found.agent = Some(one);
        }
    }
    complete(caches, &mut found);
    Ok(found)
}

fn key<K: ResourceExt>(object: &K) -> String {
    ObjectKey::of(object).to_string()
}

/// Adds what belongs to the objects that are found. Each one may lead to the next, in both directions.
fn complete(caches: &Caches, found: &mut Found) {
    let join = Join::new(caches);
    let asked_for_agent = found.agent.is_some();
    for _ in 0..3 {
        let child = found.child.as_ref();
        found.agent_machine = found.agent_machine.take().or_else(|| {
            let by_machine = found.machine.as_deref().and_then(|m| join.owned(m));
            let by_child = || join.agent_machine_of(child?);
            let by_agent = || join.claimant(found.agent.as_deref()?);
            let all = by_machine.or_else(by_child).or_else(by_agent);
            all.filter(|am| child.is_none_or(|c| join.may_be_for(c, am)))
        });
        let am = found.agent_machine.as_deref();
        found.child = found.child.take().or_else(|| {
            let by_agent = found.agent.as_deref().and_then(|a| join.runs_agent(a));
            let by_agent = by_agent.filter(|c| am.is_none_or(|am| join.may_be_for(c, am)));
            by_agent.or_else(|| join.made_for(am?).cloned())
        });
        let child = found.child.as_ref();
        found.agent = found.agent.take().or_else(|| {
            let by_child = child.and_then(|c| join.agent_of(c));
            let all = by_child.or_else(|| join.reserved(am?));
            all.filter(|agent| child.is_none_or(|c| join.may_see(c, agent)))
        });
    }
    found.machine = found
        .machine
        .take()
        .or_else(|| join.machine_of(found.agent_machine.as_deref()?));
    match (&found.child, found.agent_machine.as_deref()) {
        (Some(child), _) => {
            let name = &child.object.spec.pool_ref.name;
            found.pool = caches.pool(&ObjectKey::new(&child.key.namespace, name));
        }
        (None, Some(am)) => {
            let pools = caches.pools();
            let serves = |pool: &&Arc<VsphereAgentPool>| join.grants().serves(pool, am);
            // One that lacks only the grant of its InfraEnv waits for that, and says so.
            let sees = |pool: &&Arc<VsphereAgentPool>| {
                belonging::belongs(pool, am) && join.grants().shows(pool, am)
            };
            let serving = pools.iter().find(serves);
            found.pool = serving.or_else(|| pools.iter().find(sees)).cloned();
            if found.pool.is_none() {
                found.refused = pools.iter().find_map(|pool| refused(&join, pool, am));
            }
        }
        (None, None) => {}
    }
    let agent = found.agent.as_deref().filter(|_| !asked_for_agent);
    if let (None, Some(pool), Some(agent)) = (&found.child, &found.pool, agent) {
        let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
        if !join.grants().admit(namespace, pool) {
            found.agent = None;
        }
    }
}

/// Why the pool may not serve an AgentMachine of its NodePool.
fn refused(join: &Join<'_>, pool: &VsphereAgentPool, am: &AgentMachine) -> Option<String> {
    let belongs = belonging::belongs(pool, am);
    let lacking = join.grants().lacking(pool, am).filter(|_| belongs)?;
    let own = pool.namespace().unwrap_or_default();
    let why = join.grants().sentence(&[lacking], &own);
    Some(format!("VsphereAgentPool {}: {why}", key(pool)))
}
