//! The product's own decisions inside a model checker: worlds that are small enough to be explored whole.
//!
//! Flow: [`machines::Machines`] takes a [`world::World`], lets everybody in it do whatever he may do next, and hands each
//! state that this leads to back to `stateright`, which keeps what is new and asks the oracles of [`verdict`].
//!
//! Nothing of the product is written anew here: a VM actor's transition is a real pass of it that ends after one step
//! (`vm::pass::run_at_most`), the pool's is its snapshot, plan and actions, the scan's a real pass. All of them work on the
//! product's ports, and [`ports`] is a world behind them in which any one effect may go wrong. What everybody else does is
//! in [`upstream`].
//!
//! Two worlds of their own: [`lease`], two operators and one Lease, and [`flight`], two pools and one ISO cache.
//!
//! So that the states of the machines' world are finite:
//! - Time is the age that a pass sees what is remembered as (a few seconds, or longer than anything is waited for), and hours
//!   that go by while somebody waits for a guest. No state carries a clock.
//! - resourceVersions say only which of several copies is newer.
//! - What a status only tells people (conditions, messages) is left out, and the timeline, which the pool asks of a VM only
//!   whose freed Agent lost its approval: with these selectors none does.
//!
//! Not in it: tags, drives, the predecessor's records, adoption, force, pool deletion, hooks that wait for a dead
//! guest; reads that fail; a Kubernetes write that lands late.

pub mod explore;
pub mod flight;
pub mod flight_ports;
pub mod guarded;
pub mod lease;
pub mod machines;
pub mod objects;
pub mod part;
pub mod ports;
pub mod shared;
pub mod upstream;
pub mod verdict;
pub mod world;
