//! Phase of a VM's life, in `status.vm.phase` and `status.ownedVMs[].phase`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The phase of a VM between its request and its end.
///
/// In the object it is a free string. A value from another release is kept as [`Phase::Other`] and written back
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The VM is requested or being created. Its Agent has not registered yet.
    Provisioning,
    /// Its Agent has registered and is not bound to a Machine.
    Available,
    /// Its Agent serves a Machine.
    Bound,
    /// Its Machine is being deleted or gone. VM and Agent are being removed.
    Released,
    /// No AgentMachine needs it, and it cannot be used or removed automatically.
    Orphaned,
    /// A phase that this release does not know.
    Other(String),
}

impl Phase {
    /// The word in the object.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Provisioning => "Provisioning",
            Self::Available => "Available",
            Self::Bound => "Bound",
            Self::Released => "Released",
            Self::Orphaned => "Orphaned",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for Phase {
    fn from(text: &str) -> Self {
        match text {
            "Provisioning" => Self::Provisioning,
            "Available" => Self::Available,
            "Bound" => Self::Bound,
            "Released" => Self::Released,
            "Orphaned" => Self::Orphaned,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.as_str().into())
    }
}
