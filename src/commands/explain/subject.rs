//! What the user asks about.

use std::{fmt, str::FromStr};

use agent_forge_actors::{
    domain::{managed_vm::ManagedVm, names::ObjectKey},
    ports::cluster::View as _,
};
use kube::ResourceExt;

use crate::{
    cluster::view::Caches,
    machines::{
        found::{Found, Kind, hostname},
        join::Join,
    },
};

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
            "vsphereagentpool" | "vsphereagentpools" | "vap" => Kind::VsphereAgentPool,
            _ => {
                return Err(
                    "write KIND/NAME with a kind of AgentMachine, Machine, VsphereAgent (va), VM, Agent, Node, \
                     VsphereAgentPool (vap)"
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
        Kind::VsphereAgentPool => {
            let mut all = caches.pools();
            all.retain(|pool| pool.name_any() == name && here(pool.namespace()));
            found.pool = Some(only(all, subject, namespace, |pool| key(pool.as_ref()))?);
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
    Ok(Join::new(caches).complete(found))
}

fn key<K: ResourceExt>(object: &K) -> String {
    ObjectKey::of(object).to_string()
}
