//! The next step in the life of a VM, from what is recorded and what vCenter shows. Pure.
//!
//! There is no stored "current step": a half-made VM is just an early observation.
//!
//! ```text
//! wanted:   finalizer -> [ISO] -> identity and place -> create -> (task) -> boot order -> tags -> power on -> settled
//! booted:   its Agent says that it booted the ISO again -> ISO out -> boot order -> recorded -> reset -> settled
//! replaced: given up -> Agent fenced -> power off -> destroy -> proven absent -> rest -> identity and place
//! taken:    on record -> mark of the VM changed -> that on record -> settled; the lender's record goes
//! recycled: Agent free, Machine gone -> Agent fenced -> power off -> disk and ISO renewed -> power on -> settled
//! removed:  Agent free, Machine gone -> Agent fenced -> power off -> destroy -> proven absent -> Agent deleted -> finalizer off
//! ```
//!
//! A check returns the step that meets it as its error: the first unmet check is the next step.
//!
//! Guarantees:
//! - Nothing is created before its identity is recorded.
//! - Only a VM that is proven ours is powered on, powered off or destroyed ([`owned`]).
//! - A VM is powered on only after its tags are attached, or recorded as missing.
//! - A bound Agent blocks the deletion, unless a person forces it.

mod build;
mod checks;
mod facts;
mod guest;
mod next;
mod owned;
mod reassign;
mod recycle;
mod remove;
mod replace;
mod steps;
#[cfg(test)]
mod tests;
mod wait;

pub use self::{
    checks::boots_disk_first,
    facts::{
        AgentState, CreateState, Facts, Lent, Loss, MarkState, ObjectState, OwnerState,
        PlacementCheck, PoolState, ReassignState, Record, RecycleState, Resting, VmState,
    },
    next::next,
    steps::{AgentWork, Attempt, Change, Entry, Finalizer, Power, Step},
    wait::{
        CONFLICT_PROBE, MISSING_PROBE, PROOF_PAUSE, PROOFS, PROOFS_AFTER_LOST_CREATE,
        SUSPENDED_TRIES,
    },
};
