//! Why a pool gives nothing, or a host is not given.

use std::fmt;

use agent_forge_crds::agent::HardwareDifference;

use crate::domain::{names::ObjectKey, template};

/// Why a pool gives nothing, or a host is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// One of the two namespaces does not allow pools of the other one.
    NotGranted(String),
    /// It is of another group, or of none.
    OtherGroup,
    /// It uses another InfraEnv, or its InfraEnv does not exist.
    OtherInfraEnv,
    /// It uses another credentials Secret.
    OtherCredentials,
    /// It is being deleted.
    Deleting,
    /// An AgentMachine of its own asks for a host.
    AsksItself,
    /// People hold it back: a pause, a veto, a dry run, or a mark in vCenter.
    Held,
    /// The host is not free and ready.
    NotReady,
    /// Its disk may have data of another hosted cluster, or the taker wants a new one.
    Disk(String),
    /// The pools of the taker's namespace have as many hosts of that maker as it gives one namespace.
    NamespaceLimit(String),
    /// A person gives it to that pool.
    Reserved(ObjectKey),
    /// It has less, or other, hardware than the taker wants.
    Hardware(Vec<HardwareDifference>),
}

impl Refusal {
    pub(super) fn not_granted((to, from): (String, String)) -> Self {
        Self::NotGranted(format!(
            "namespace {to} does not admit pools of namespace {from}"
        ))
    }

    /// Only a change of the pools or of their namespaces ends it.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::NotGranted(_) | Self::OtherInfraEnv | Self::OtherCredentials
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(sentence) | Self::NamespaceLimit(sentence) => f.write_str(sentence),
            Self::OtherGroup => f.write_str("it is of another group, or of none"),
            Self::OtherInfraEnv => {
                f.write_str("it has another InfraEnv, or its InfraEnv does not exist")
            }
            Self::OtherCredentials => f.write_str("it has another credentials Secret"),
            Self::Deleting => f.write_str("it is being deleted"),
            Self::AsksItself => f.write_str("an AgentMachine of its own asks for a host"),
            Self::Held => f.write_str("people hold it back: a pause, a veto, a dry run or a mark"),
            Self::NotReady => f.write_str("it is not free and ready"),
            Self::Disk(why) => f.write_str(why),
            Self::Reserved(to) => write!(f, "a person gives it to pool {to}"),
            Self::Hardware(rows) => write!(f, "its hardware: {}", template::explain(rows)),
        }
    }
}
