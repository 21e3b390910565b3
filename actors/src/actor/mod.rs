//! The one shell that pool and VM actors share: wakes are coalesced into passes, a pass runs beside the mailbox.

pub mod batch;
pub mod beside;
#[cfg(test)]
mod facts;
pub mod mailbox;
pub mod shell;
pub mod written;
