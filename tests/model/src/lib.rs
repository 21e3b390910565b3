//! The product's own decisions in a model checker: worlds that are small enough to be explored completely.
//!
//! Flow: [`machines::Machines`] takes a [`world::World`] and lets each part of it take any of its possible next steps.
//! It returns each resulting state to the search, which keeps new states and asks the oracles of [`verdict`].
//!
//! The model does not repeat any code of the product. It uses the copy in which `tests/mutants` can switch defects on; all
//! of them are off here (docs/adr/0009-mutants.md). A transition of a VM actor is a real pass that ends after one
//! step (`vm::pass::run_at_most`). A transition of the pool actor is its real snapshot, plan and actions. The orphan
//! scan is a real pass too. All of them use the product's ports. [`ports`] implements these over a world in which any
//! one effect may go wrong. [`upstream`] plays all other parts.
//!
//! [`binding`] has worlds whose hosts are there before anybody asks: VMs that begin another life, and pools that lend each
//! other hosts. There each pass depends on the whole world.
//!
//! [`guarded`] has a world of its own: two operators, a predecessor, and both Leases.
//!
//! So that the states of the machines' world are finite:
//! - Time is the age that a pass sees in its memory: a few seconds, or longer than any timeout. In addition, hours may
//!   pass while something waits for a guest. No state contains a clock.
//! - resourceVersions only show which of several copies is newer.
//! - Parts of a status that only inform people (conditions, messages) are left out. So is the timeline: the pool reads
//!   it only when a freed Agent lost its approval, which does not happen with these selectors.
//!
//! In worlds with lives, a request that may still arrive is gone when a guest has booted, as no request takes that long.
//!
//! Not included: tags, drives, kept disks, a clean-up that hangs, hosts that change their
//! namespace, the predecessor's records, adoption, force, pool deletion, hooks that wait for a dead
//! guest; reads that fail; a Kubernetes write that arrives late.

pub mod binding;
pub mod explore;
pub mod guarded;
pub mod machines;
pub mod objects;
pub mod part;
pub mod ports;
pub mod shared;
pub mod upstream;
pub mod verdict;
pub mod world;
