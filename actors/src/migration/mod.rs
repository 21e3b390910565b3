//! The predecessor, agent-forge-operator (Go, up to 1.1.0): what exists only because its objects are taken over.
//!
//! What it left behind: VsphereAgents without an attempt and without our mark on the VM ([`proof`]), a CD-ROM drive that it
//! was emptying ([`ejection`]), the record of an ISO without a source key ([`iso`]), VM notes that name the owner ([`notes`]),
//! an annotation on Agents whose VM it had decided to delete ([`agent`]), and its Lease ([`lease`]).
//!
//! The operator also writes those notes, so that a rollback to the predecessor finds our VMs.
//!
//! End: the first release after 2027-12-31 drops this room (docs/adr/0020-migration.md).

pub mod agent;
pub mod ejection;
pub mod iso;
pub mod lease;
pub mod notes;
pub mod proof;
