//! The base of all actors: the shell that gathers wakes into passes, the backoff, the lease, the holds, and the timeline of a machine.

pub mod announcer;
pub mod backoff;
pub mod beside;
pub mod holds;
pub mod lease;
pub mod mailbox;
pub mod shell;
pub mod status_writer;
#[cfg(test)]
mod tests;
pub mod timeline;
