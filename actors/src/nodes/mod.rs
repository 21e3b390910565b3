//! The Nodes of a hosted cluster beside the VMs: what fits, and what does not.
//!
//! [`follow`] reads the Nodes in a task beside the pool's actor. [`judge`](mod@judge) compares them with VMs and Agents. Nothing
//! here has an effect, and no decision reads the result: it reaches conditions, status and metrics only.

pub mod follow;
pub mod judge;
