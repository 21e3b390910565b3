//! Which host each one gets that asks. Pure.
//!
//! Flow: AgentMachines ask first, the oldest first ([`super::demand`]). Then the places of the buffer ask ([`super::buffer`]).
//! Each answer takes its host, or its room, from what is left for the next one.
//!
//! Guarantees
//! - A host goes to one of them.
//! - A new one is made only where all limits of the pool leave room. One of another pool comes only where `maxVMs` does.
//! - What a write may have done already is not done twice, and counts before all others.
//! - A place in the buffer gets no host that is ready, and none of another pool.

use std::collections::{BTreeMap, BTreeSet};

use super::caps::Room;
use crate::{
    demand::lending::{self, Offer},
    domain::{hardware::Hardware, managed_vm::ManagedVm, names::ObjectKey},
};

/// What an AgentMachine gets.
#[derive(Clone, Debug)]
pub(super) enum ForMachine<'a> {
    /// A host of the pool.
    Own(&'a ManagedVm),
    /// A free host of another pool of the group.
    OfGroup(&'a Offer),
    /// A VM that is to be made.
    New,
    /// Nothing: what the closest limit of the pool says.
    AtLimit(String),
    /// Nothing: it may have got a host of another pool, which is not free any more.
    Unsure,
}

/// What a place in the buffer gets.
#[derive(Clone, Debug)]
pub(super) enum ForPlace<'a> {
    /// A VM of the pool that no AgentMachine needs.
    Own(&'a ManagedVm),
    /// Such a VM will come by itself.
    Comes,
    /// A VM that is to be made, with that name if it may have been made already.
    New(Option<String>),
    /// Nothing: what the closest limit of the pool says.
    AtLimit(String),
}

/// What an AgentMachine wants of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Want {
    /// Class of the pool. Hosts of the pool are of one class.
    pub class: Option<String>,
    /// What a host of another pool has to have at least. `None`: it is not known, so none is taken.
    pub hardware: Option<Hardware>,
}

/// What there is for those that ask.
#[derive(Debug, Default)]
pub(super) struct Supply<'a> {
    /// Hosts of the pool for AgentMachines. The best one is the last.
    pub own: Vec<&'a ManagedVm>,
    /// Hosts of the group for AgentMachines. The best one is the last.
    pub of_group: Vec<&'a Offer>,
    /// uids of AgentMachines for which a VsphereAgent may have been made.
    pub begun: BTreeSet<String>,
    /// uids of the hosts of the group that AgentMachines may have got, by their own uids.
    pub unsure: BTreeMap<String, String>,
    /// VMs of the pool for its buffer. The best one is the last.
    pub spare: Vec<&'a ManagedVm>,
    /// VMs that are about to come into the buffer.
    pub coming: Vec<&'a ManagedVm>,
    /// Names of the VsphereAgents that may have been made for the buffer, with their classes.
    pub begun_places: BTreeMap<String, Option<String>>,
    /// How many hosts each maker has given in this pass, and those that it may have given before.
    pub got: BTreeMap<ObjectKey, usize>,
    /// Hosts of other pools that the cache does not show yet: each may be of any maker.
    pub arriving: usize,
    /// What the limits of the pool leave.
    pub room: Room,
}

impl<'a> Supply<'a> {
    /// Assigns a host to the AgentMachine of that uid.
    pub(super) fn for_machine(&mut self, uid: &str, want: &Want) -> ForMachine<'a> {
        if self.begun.contains(uid) {
            return ForMachine::New;
        }
        if let Some(got) = self.unsure.get(uid) {
            let at = self.of_group.iter().position(|h| h.child.uid == *got);
            return at.map_or(ForMachine::Unsure, |at| {
                ForMachine::OfGroup(self.of_group.remove(at))
            });
        }
        if let Some(host) = take(&mut self.own, want.class.as_deref()) {
            return ForMachine::Own(host);
        }
        let suits = |host: &Offer| {
            let wanted = want.hardware.as_ref();
            wanted.is_some_and(|wanted| lending::refuses(host, wanted).is_none())
        };
        let is_free = |host: &&Offer| {
            let unsure = self.unsure.values().any(|uid| *uid == host.child.uid);
            !unsure && self.is_left(host) && suits(host)
        };
        let at = self.of_group.iter().rposition(is_free);
        match (self.room.take(at.is_some()), at) {
            (Err(limit), _) => ForMachine::AtLimit(limit),
            (Ok(()), Some(at)) => {
                let host = self.of_group.remove(at);
                self.note(host);
                ForMachine::OfGroup(host)
            }
            (Ok(()), None) => ForMachine::New,
        }
    }

    /// The maker of the host gives the namespace one more.
    fn is_left(&self, host: &Offer) -> bool {
        let got = self.got.get(&host.child.maker()).copied();
        let got = got.unwrap_or_default() + self.arriving;
        host.left.is_none_or(|left| got < left)
    }

    fn note(&mut self, host: &Offer) {
        *self.got.entry(host.child.maker()).or_default() += 1;
    }

    /// Takes room for a host that a person gives to the pool. What may have been done already counts, and is done again.
    ///
    /// # Errors
    /// There is none: what the limit says.
    pub(super) fn for_given(&mut self, host: &Offer) -> Result<(), String> {
        if self.unsure.contains_key(&host.child.uid) {
            return Ok(());
        }
        if !self.is_left(host) {
            let maker = host.child.maker();
            return Err(format!(
                "pool {maker} gives this namespace no more hosts (spec.reassign.maxPerNamespace)"
            ));
        }
        self.room.take(true)?;
        self.note(host);
        Ok(())
    }

    /// Assigns a host to a place of that class in the buffer. `may_be_new`: whether a VM may be made for it. `None`: it stays
    /// empty.
    pub(super) fn for_place(
        &mut self,
        class: Option<&str>,
        may_be_new: bool,
    ) -> Option<ForPlace<'a>> {
        if let Some(host) = take(&mut self.spare, class) {
            return Some(ForPlace::Own(host));
        }
        if take(&mut self.coming, class).is_some() {
            return Some(ForPlace::Comes);
        }
        let mut begun = self.begun_places.iter();
        let begun = begun.find(|(_, of)| of.as_deref() == class);
        let begun = begun.map(|(name, _)| name.clone());
        may_be_new.then(|| match begun {
            Some(name) => {
                self.begun_places.remove(&name);
                ForPlace::New(Some(name))
            }
            None => match self.room.take(false) {
                Ok(()) => ForPlace::New(None),
                Err(limit) => ForPlace::AtLimit(limit),
            },
        })
    }
}

/// Takes the best one of that class.
fn take<'a>(all: &mut Vec<&'a ManagedVm>, class: Option<&str>) -> Option<&'a ManagedVm> {
    let at = all.iter().rposition(|c| c.class() == class)?;
    Some(all.remove(at))
}
