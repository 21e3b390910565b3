//! The base of all actors: the shell that gathers wakes into passes, backoff, Lease, holds, and the timeline of a machine.

pub mod announcer;
pub mod backoff;
pub mod beside;
pub mod holds;
pub mod lease;
pub mod mailbox;
pub mod shell;
pub mod status_writer;
pub mod timeline;

#[cfg(test)]
mod tests;
