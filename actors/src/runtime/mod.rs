//! The base of all actors: the shell that gathers wakes into passes, backoff, Lease and holds.

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
