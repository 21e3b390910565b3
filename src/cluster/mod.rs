//! The management cluster: watches (or, for commands, [`lists`]) fill a cached [`view`], and every write goes through the [`writer`].

pub mod bound;
pub mod cache;
mod called;
pub mod client;
pub mod definitions;
pub mod doubt;
pub mod events;
pub mod grants;
pub mod index;
pub mod installers;
pub mod lease;
pub mod lists;
pub mod live_agents;
pub mod machines;
pub mod pausables;
pub mod refusals;
pub mod reviews;
pub mod scope;
mod signed;
pub mod trim;
pub mod view;
pub mod watches;
pub mod writer;
