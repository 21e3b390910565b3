//! The tables of one pass: which objects have a name or uid, or refer to another object. [`super::index`] fills and asks them.

use std::{collections::HashMap, sync::OnceLock};

use crate::{domain::identity::BiosUuid, world::host::Host};

/// Positions in a list.
pub type Places = Vec<usize>;

/// Objects of one kind by name and by uid.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    pub names: HashMap<String, Places>,
    pub uids: HashMap<String, Places>,
}

/// Where objects are in the lists.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Agents by the machines that they name.
    pub machines_of_agents: HashMap<BiosUuid, Places>,
    pub agent_names: HashMap<String, Places>,
    /// Agents by the name that their host is to have.
    pub hostnames: HashMap<String, Places>,
    /// Agents by the name in their claim label.
    pub claims: HashMap<String, Places>,
    pub machines: Positions,
    pub agent_machines: Positions,
    /// AgentMachines by the name of the Agent that their status names.
    pub reservations: HashMap<String, Places>,
    /// VsphereAgents by the recorded uid of their AgentMachine, or by its name if no uid is recorded.
    pub children: Positions,
}

/// The tables and the hosts, filled at the first question.
#[derive(Clone, Debug, Default)]
pub struct Index {
    pub tables: OnceLock<Tables>,
    /// By uid of the VsphereAgent.
    pub hosts: OnceLock<HashMap<String, Host>>,
}
