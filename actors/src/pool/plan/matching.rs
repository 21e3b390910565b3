//! Which host each one gets that asks. Pure.
//!
//! Flow: AgentMachines ask first, the oldest first ([`super::demand`]). Then the places of the buffer ask ([`super::buffer`]).
//! Each answer takes its host, or its room, from what is left for the next one.
//!
//! Guarantees
//! - A host goes to one asker. A new one is made only where the limits of the pool leave room, and so comes a host of another pool.
//! - An AgentMachine for which a write may have done something already gets nothing else than that.
//! - A place in the buffer gets no host that is ready, and none of another pool.

use std::collections::BTreeMap;

use super::caps::Room;
use crate::{demand::lending::Offer, domain::managed_vm::ManagedVm};

/// Who asks for a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker<'a> {
    /// An AgentMachine.
    Machine {
        /// Its uid.
        uid: &'a str,
        /// A VsphereAgent may have been made for it: it asks for the same one again.
        begun: bool,
    },
    /// A place in the buffer.
    Place {
        /// A VM may be made for it.
        may_be_new: bool,
    },
}

/// What one gets that asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assigned<'a> {
    /// A host of the pool.
    Own(&'a ManagedVm),
    /// A free host of another pool of the group.
    OfGroup(&'a Offer),
    /// A VM that is to be made.
    New,
    /// Nothing yet: a host will come by itself.
    Comes,
    /// Nothing: the limits of the pool are reached.
    AtLimit,
    /// Nothing: it may have got a host of another pool, which is not free any more.
    Unsure,
    /// Nothing: no VM is made for it.
    Nothing,
}

/// What there is for those that ask.
#[derive(Debug, Default)]
pub(super) struct Supply<'a> {
    /// Hosts of the pool for AgentMachines. The best one is the last.
    pub own: Vec<&'a ManagedVm>,
    /// Hosts of the group for AgentMachines. The best one is the last.
    pub of_group: Vec<&'a Offer>,
    /// uids of the hosts that AgentMachines may have got, by their own uids.
    pub unsure: BTreeMap<String, String>,
    /// Hosts of the pool for its buffer. The best one is the last.
    pub for_buffer: Vec<&'a ManagedVm>,
    /// How many hosts are about to come into the buffer.
    pub coming: usize,
    /// What the limits of the pool leave.
    pub room: Room,
}

impl<'a> Supply<'a> {
    /// Assigns a host to one that asks.
    pub(super) fn assign(&mut self, asker: Asker) -> Assigned<'a> {
        match asker {
            Asker::Machine { uid, begun } => self.for_machine(uid, begun),
            Asker::Place { may_be_new } => self.for_place(may_be_new),
        }
    }

    fn for_machine(&mut self, uid: &str, begun: bool) -> Assigned<'a> {
        let unsure = self.unsure.contains_key(uid);
        if let Some(host) = self.own.pop_if(|_| !begun && !unsure) {
            return Assigned::Own(host);
        }
        if !self.room.takes_one() {
            return Assigned::AtLimit;
        }
        match self.group_host(uid).filter(|_| !begun) {
            Some(at) => Assigned::OfGroup(self.of_group.remove(at)),
            None if unsure => Assigned::Unsure,
            None => Assigned::New,
        }
    }

    /// The host that it may have got, else the best one that nobody else may have got.
    fn group_host(&self, uid: &str) -> Option<usize> {
        let own = self.unsure.get(uid);
        self.of_group.iter().rposition(|host| match own {
            Some(own) => host.child.uid == *own,
            None => self.unsure.values().all(|uid| *uid != host.child.uid),
        })
    }

    fn for_place(&mut self, may_be_new: bool) -> Assigned<'a> {
        if let Some(host) = self.for_buffer.pop() {
            Assigned::Own(host)
        } else if let Some(left) = self.coming.checked_sub(1) {
            self.coming = left;
            Assigned::Comes
        } else if !may_be_new {
            Assigned::Nothing
        } else if self.room.takes_one() {
            Assigned::New
        } else {
            Assigned::AtLimit
        }
    }
}
