//! A live actor of any kind.

use std::{sync::Arc, time::Duration};

use ractor::{ActorCell, ActorRef};

use crate::{
    iso::msg::IsoMsg,
    placement::PlacementMsg,
    runtime::{
        mailbox::{Counted, Mailbox},
        shell::{Description, ShellMsg},
    },
    sessions::SessionMsg,
};

/// A live actor.
#[derive(Clone)]
pub enum Handle {
    /// Pool or VM.
    Shell(ActorRef<ShellMsg>, Arc<Mailbox>),
    /// ISO cache.
    Iso(Counted<IsoMsg>),
    /// Sessions.
    Sessions(Counted<SessionMsg>),
    /// Placement.
    Placement(Counted<PlacementMsg>),
}

impl Handle {
    /// The actor's cell.
    #[must_use]
    pub fn cell(&self) -> ActorCell {
        match self {
            Self::Shell(a, _) => a.get_cell(),
            Self::Iso(a) => a.actor.get_cell(),
            Self::Sessions(a) => a.actor.get_cell(),
            Self::Placement(a) => a.actor.get_cell(),
        }
    }

    /// Wakes it. Actors without passes ignore it.
    pub fn wake(&self, reason: &'static str) {
        if let Self::Shell(a, mailbox) = self {
            let _ = a.send_message(ShellMsg::Wake(reason, Some(mailbox.send())));
        }
    }

    /// Wakes and requests in its mailbox.
    #[must_use]
    pub fn mailbox(&self) -> usize {
        match self {
            Self::Shell(_, mailbox) => mailbox.depth(),
            Self::Iso(a) => a.depth(),
            Self::Sessions(a) => a.depth(),
            Self::Placement(a) => a.depth(),
        }
    }

    /// Makes its next handler fail.
    pub fn panic(&self) {
        let _ = match self {
            Self::Shell(a, _) => a.send_message(ShellMsg::Panic).is_ok(),
            Self::Iso(a) => a.actor.send_message(IsoMsg::Panic).is_ok(),
            Self::Sessions(a) => a.actor.send_message(SessionMsg::Panic).is_ok(),
            Self::Placement(a) => a.actor.send_message(PlacementMsg::Panic).is_ok(),
        };
    }

    /// Asks it for its description.
    pub async fn describe(&self) -> Option<Description> {
        let within = Some(Duration::from_secs(2));
        let answer = match self {
            Self::Shell(a, _) => a.call(ShellMsg::Describe, within).await.ok(),
            Self::Iso(a) => a.actor.call(IsoMsg::Describe, within).await.ok(),
            Self::Sessions(a) => a.actor.call(SessionMsg::Describe, within).await.ok(),
            Self::Placement(a) => a.actor.call(PlacementMsg::Describe, within).await.ok(),
        };
        match answer {
            Some(ractor::rpc::CallResult::Success(d)) => Some(d),
            _ => None,
        }
    }
}
