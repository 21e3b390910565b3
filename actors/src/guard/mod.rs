//! The one door to calls that may harm a host: it reads live what decides about them, and issues their permit.
//!
//! Flow: an actor decides from its caches -> [`Case::read`] reads live what an operation of that kind needs -> the actor decides
//! once more from [`Proof::context`] -> [`Proof::look`] at the VM itself, where one is changed -> the permit -> the call.
//!
//! What is read follows from the kind of the operation (`proof.rs`), so no caller can forget a part of it:
//!
//! | class | operations | read live |
//! |---|---|---|
//! | Begins | power on, marks, boot order, ejection, an Agent that is prepared, a record that moves or is handed over, a finalizer | the VsphereAgent, its pool, all that can pause them |
//! | Interrupts | reset | the Agents, AgentMachines and Machines as well |
//! | Removes | the Agent alone is deleted | the same; no Agent of the VM serves |
//! | Ends | power off, another life, destroy | the same; no Agent of the VM serves, and none can be chosen |
//!
//! Guarantees
//! - A call that changes a VM takes the reference and the version of the look that its permit was issued for, and nothing is
//!   awaited between the two.
//! - What people hold back is asked with what was read, whatever the caches show.
//! - A forced deletion waives the lists, and with them the proof that no Agent serves. It waives no look at the VM.

pub mod adoption;
mod agents;
mod case;
mod free;
mod live;
mod of_pool;
mod pausing;
mod proof;
mod stray;

pub use self::{
    agents::serves,
    case::Case,
    of_pool::{Leaves, LiveReads, OUTDATED, PoolCase, Refusal},
    pausing::Pausing,
    proof::{Proof, Sight, harmless},
    stray::{Found, Stray},
};
