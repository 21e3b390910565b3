//! What the Agents that name one VM are to each other: which one is the VM's own, and which ones block its approval. Pure.
//!
//! Guarantees: if two Agents match one VM, the operator approves neither, whichever came first. An Agent that was bound
//! before stays the VM's own when others come later. An Agent that matches only in part is never the VM's own.

use std::sync::Arc;

use agent_forge_crds::{conditions::Reason, external::agent::Agent};

use super::{AgentMatch, Misfit, agent_runs_on};
use crate::domain::{managed_vm::ManagedVm, names::ObjectKey};

/// The Agents that name one VM.
#[derive(Clone, Debug, Default)]
pub struct Lineup<'a> {
    /// The VM's own.
    pub own: Option<&'a Arc<Agent>>,
    /// Others that match as well, or may match later. If no Agent is the VM's own, all of them are here.
    pub rivals: Vec<&'a Arc<Agent>>,
    /// Agents that match only in part, each with the fact that differs.
    pub doubtful: Vec<(&'a Arc<Agent>, Misfit)>,
}

/// Why the operator approves no Agent of the VM, as a reason and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Why, as one word.
    pub reason: Reason,
    /// Sentence.
    pub message: String,
}

impl ManagedVm {
    /// The Agents that name its VM, and what they are to each other.
    #[must_use]
    pub fn lineup<'a>(&self, agents: impl IntoIterator<Item = &'a Arc<Agent>>) -> Lineup<'a> {
        Lineup::of(self, agents)
    }
}

impl<'a> Lineup<'a> {
    /// The lineup of the VM of that VsphereAgent.
    #[must_use]
    pub fn of(child: &ManagedVm, agents: impl IntoIterator<Item = &'a Arc<Agent>>) -> Self {
        let mut lineup = Self::default();
        let Some(identity) = child.identity.as_ref() else {
            return lineup;
        };
        let (mut matching, mut awaited) = (Vec::new(), Vec::new());
        for agent in agents {
            match agent_runs_on(agent, identity) {
                AgentMatch::Same => matching.push(agent),
                AgentMatch::Partly(_) if child.was_bound_to(agent) => matching.push(agent),
                AgentMatch::Partly(misfit) => lineup.doubtful.push((agent, misfit)),
                AgentMatch::NotYet => awaited.push(agent),
                AgentMatch::Other => {}
            }
        }
        // A guest registers a moment before its inventory arrives. An Agent is not the VM's own only because its inventory
        // came first.
        lineup.own = own(child, &matching, awaited.is_empty());
        let is_own = |a: &Arc<Agent>| lineup.own.is_some_and(|own| Arc::ptr_eq(own, a));
        matching.extend(awaited);
        if let [_] = matching[..] {
            // The only Agent that names the VM has no rival, even while evidence is missing.
            matching.clear();
        }
        matching.retain(|a| !is_own(a));
        lineup.rivals = matching;
        lineup
    }

    /// The Agent that may be prepared and approved.
    #[must_use]
    pub fn approvable(&self) -> Option<&'a Arc<Agent>> {
        self.own.filter(|_| self.rivals.is_empty())
    }

    /// What blocks the approval of the VM's Agent, in words.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        if !self.rivals.is_empty() {
            let all = self.own.into_iter().chain(self.rivals.iter().copied());
            return Some(Doubt {
                reason: Reason::RivalAgents,
                message: format!(
                    "Agents {} all name this VM, and nothing tells them apart: none of them is approved. Find out which host is not the VM, stop it and \
                     delete its Agent",
                    names(all)
                ),
            });
        }
        let (agent, misfit) = self.doubtful.first().filter(|_| self.own.is_none())?;
        if *misfit == Misfit::Mac {
            return Some(mac_differs(agent));
        }
        Some(Doubt {
            reason: Reason::AgentUnproven,
            message: format!(
                "Agent {} names this VM and is not approved: {misfit}. If it is another host, delete that Agent",
                ObjectKey::of(agent.as_ref())
            ),
        })
    }
}

/// The doubt about an Agent that matches a VM except for its MAC addresses.
#[must_use]
pub fn mac_differs(agent: &Agent) -> Doubt {
    Doubt {
        reason: Reason::MacDiffers,
        message: format!(
            "Agent {} names this VM and has none of its MAC addresses. If somebody replaced the VM's network card, this ends when \
             vCenter shows the new one and the guest reports it. If it is another host, delete that Agent",
            ObjectKey::of(agent)
        ),
    }
}

fn names<'a>(agents: impl Iterator<Item = &'a Arc<Agent>>) -> String {
    let mut names: Vec<String> = agents
        .map(|a| ObjectKey::of(a.as_ref()).to_string())
        .collect();
    names.sort();
    names.join(" and ")
}

/// The VM's own Agent: the only one that matches, if it is `alone` in naming the VM. Else the one that was bound before the
/// others came.
fn own<'a>(child: &ManagedVm, matching: &[&'a Arc<Agent>], alone: bool) -> Option<&'a Arc<Agent>> {
    if let [only] = matching
        && alone
    {
        return Some(only);
    }
    let mut bound = matching
        .iter()
        .filter(|a| child.was_bound_to(a) || child.is_bound_to(a));
    match (bound.next(), bound.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
