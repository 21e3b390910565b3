//! What each reason means to people: its meaning, who can end the wait, the remedy, and the page about it.
//!
//! One table, and one `match`: a new reason does not compile before it has its row. A test compares the rows with
//! docs/reference/reasons.md.

mod table;

use serde::Serialize;

pub use self::table::about;

/// What people need to know about a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// What it means.
    pub meaning: &'static str,
    /// Who can end the wait.
    pub who: Who,
    /// What that person does.
    pub remedy: &'static str,
    /// The section of docs/reference/reasons.md.
    pub section: Section,
}

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Who {
    /// The operator goes on without help.
    Nobody,
    /// The owner of the pool: its spec, its Secret, its VsphereAgents.
    PoolOwner,
    /// The owner of NodePool, InfraEnv, agent provider and assisted service.
    Hub,
    /// The administrator of vCenter.
    Vcenter,
    /// The administrator of the network between hub, vCenter and VMs.
    Network,
    /// The administrator of this operator.
    Operator,
    /// The person who set the pause or the veto.
    Holder,
}

impl Who {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nobody => "nobody has to: the operator goes on by itself",
            Self::PoolOwner => "the owner of the pool",
            Self::Hub => "the owner of NodePool, InfraEnv and assisted service",
            Self::Vcenter => "the administrator of vCenter",
            Self::Network => "the administrator of the network",
            Self::Operator => "the administrator of agent-forge",
            Self::Holder => "the person who set it",
        }
    }
}

/// A section of docs/reference/reasons.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// "Good states".
    Good,
    /// "Demand: AgentMachines and NodePools".
    Demand,
    /// "InfraEnv".
    InfraEnv,
    /// "Discovery ISO".
    Iso,
    /// "Credentials and connection to vCenter".
    Access,
    /// "spec.vsphere and resources".
    Place,
    /// "VM".
    Vm,
    /// "Agent".
    Agent,
    /// "Deletion".
    Deletion,
    /// "Holds by people".
    Holds,
    /// "The operator itself".
    Operator,
    /// A name that vCenter gave to a fault. The page has no row for it.
    Foreign,
}

impl Section {
    /// Where it is: page and anchor.
    #[must_use]
    pub const fn page(self) -> &'static str {
        match self {
            Self::Good => "docs/reference/reasons.md#good-states",
            Self::Demand => "docs/reference/reasons.md#demand-agentmachines-and-nodepools",
            Self::InfraEnv => "docs/reference/reasons.md#infraenv",
            Self::Iso => "docs/reference/reasons.md#discovery-iso",
            Self::Access => "docs/reference/reasons.md#credentials-and-connection-to-vcenter",
            Self::Place => "docs/reference/reasons.md#specvsphere-and-resources",
            Self::Vm => "docs/reference/reasons.md#vm",
            Self::Agent => "docs/reference/reasons.md#agent",
            Self::Deletion => "docs/reference/reasons.md#deletion",
            Self::Holds => "docs/reference/reasons.md#holds-by-people",
            Self::Operator => "docs/reference/reasons.md#the-operator-itself",
            Self::Foreign => "docs/reference/reasons.md#where-reasons-appear",
        }
    }
}
