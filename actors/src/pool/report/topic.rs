//! What Events of a pool are about.

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The ISO that is on the datastore.
    Iso,
    /// Old versions of the ISO that are kept.
    OldIsos,
    /// The InfraEnv offers no ISO.
    InfraEnv,
    /// The plan failed.
    Failure,
    /// An AgentMachine waits, by its uid.
    Wait(String),
}
