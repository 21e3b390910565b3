//! The predecessor's Lease. While another process renews it, the operator does not act. While the operator acts, no other
//! process gets it.
//!
//! Guarantees
//! - Only the process that holds our own Lease asks for it, so at most one of our replicas tries to get it.
//! - If one of our replicas holds it, the new leader takes it at once. That replica has lost our own Lease, and does not act
//!   any more.
//! - Losing it ends leadership, like losing our own Lease.
//!
//! Assumption: no process of the predecessor has a name with the mark of [`Kin`]. Its names begin with a host's name, which
//! has no `/`.

/// Name of the predecessor's Lease.
pub const LEASE: &str = "agent-forge-operator.containeroo.ch";

/// Identifies our own replicas in the predecessor's Lease: a mark with the namespace of our own Lease. Installations in two
/// namespaces are strangers to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kin(String);

impl Kin {
    /// The replicas whose own Lease is in `namespace`.
    #[must_use]
    pub fn of(namespace: &str) -> Self {
        Self(format!("agent-forge/{namespace}/"))
    }

    /// How `me` is named in the predecessor's Lease.
    #[must_use]
    pub fn named(&self, me: &str) -> String {
        format!("{}{me}", self.0)
    }

    /// Whether `holder` is one of our replicas.
    #[must_use]
    pub fn includes(&self, holder: &str) -> bool {
        holder.starts_with(&self.0)
    }
}

/// How the operator treats a Lease of the predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Identifies our own replicas in it.
    pub kin: Kin,
    /// Whether the operator holds it while it acts. Else it only looks at it before the first act.
    pub holds: bool,
    /// A user named its namespace. A process that may not read it does not act.
    pub required: bool,
    /// The operator keeps looking at it while it acts, for the predecessor may begin again: a dry run.
    pub follows: bool,
}

/// Why a Lease of the predecessor that the operator does not hold blocks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// It has no holder, and the operator does not need to hold it.
    Free,
    /// The API server forbade every read for the duration of a lease, and no user asked for a look at it.
    Forbidden,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_carries_our_mark_and_our_namespace_is_one_of_us() {
        let kin = Kin::of("ours");
        for (holder, is_kin) in [
            ("agent-forge/ours/agent-forge-5d9f-x_uid", true),
            ("agent-forge/theirs/agent-forge-5d9f-x_uid", false),
            ("agent-forge/ours-too/agent-forge-5d9f-x_uid", false),
            ("agent-forge-operator-6c8d-y_3f2a", false),
            ("agent-forge_3f2a", false),
            ("agent-forge", false),
            ("", false),
        ] {
            assert_eq!(kin.includes(holder), is_kin, "{holder}");
        }
        assert!(kin.includes(&kin.named("me")));
    }
}
