//! What the places of the buffer ask for, and what they get. Pure.

use std::collections::BTreeSet;

use agent_forge_crds::conditions::Reason;

use crate::{
    demand::{buffer::Size, lending::Offer},
    domain::{machine_state::MachineState, managed_vm::ManagedVm, names::ObjectKey},
    lifecycle::ReleaseReason,
    pool::{
        observed::Observed,
        plan::{
            matching::{ForPlace, Supply},
            planned::{Action, Plan},
        },
    },
};

/// What rows of `status.waitingOn` about the buffer are about.
pub(in crate::pool) const BUFFER: &str = "buffer";

/// What is said of a host that a person gives to this pool, and that would be surplus there.
const NO_PLACE: &str = "a person gives the host to this pool, whose buffer has no place for it: it stays where it is. Raise bufferAgents or bufferMax, \
     or set spec.release.policy to Recycle";

/// What the places of the buffer ask for.
pub(super) struct Asks<'a, 'b> {
    pub supply: Supply<'a>,
    pub taken: &'b mut BTreeSet<ObjectKey>,
    pub new: Result<(), Option<(Reason, String)>>,
    /// Names for new VsphereAgents.
    pub names: Box<dyn Iterator<Item = String> + 'a>,
    /// No host is being replaced.
    pub replaces: bool,
    /// Hosts of other pools that people give to this one, with their classes.
    pub given: Vec<(&'a Offer, Option<String>)>,
}

/// Takes the hosts of that class that people give to the pool, as far as the buffer and the limits have room. Returns how many.
pub(super) fn bring(
    class: Option<&str>,
    room: usize,
    asks: &mut Asks<'_, '_>,
    plan: &mut Plan,
) -> usize {
    let mut brought = 0;
    for (host, of) in &asks.given {
        if of.as_deref() != class {
            continue;
        }
        let name = host.child.key.to_string();
        if brought >= room {
            plan.wait(name, Reason::TakingHost, NO_PLACE);
            continue;
        }
        match asks.supply.for_given(host) {
            Ok(()) => {
                brought += 1;
                plan.actions.push(Action::Bring {
                    host: (*host).clone(),
                    class: of.clone(),
                });
            }
            Err(limit) => plan.wait(name, Reason::CreateCapReached, limit),
        }
    }
    brought
}

/// Asks for a host for each place that is free. Returns how many come from elsewhere in the pool, and how many are made.
pub(super) fn take_places(
    s: &Observed,
    class: Option<&str>,
    (here, size): (usize, &Size),
    asks: &mut Asks<'_, '_>,
    plan: &mut Plan,
) -> (usize, usize) {
    let (mut moved, mut made, mut lacking, mut limit) = (0, 0, 0, None);
    for place in here..size.most {
        let missing = place < size.wanted;
        match asks.supply.for_place(class, missing && asks.new.is_ok()) {
            Some(ForPlace::Own(child)) => {
                moved += 1;
                asks.taken.insert(child.key.clone());
                plan.spare.remove(&child.uid);
                plan.actions.push(move_to_buffer(s, child));
            }
            Some(ForPlace::New(name)) => {
                made += 1;
                let name = name.or_else(|| asks.names.next());
                let class = class.map(str::to_owned);
                let create = name.map(|name| Action::CreateForBuffer { name, class });
                plan.actions.extend(create);
            }
            Some(ForPlace::Comes) => {}
            Some(ForPlace::AtLimit(said)) => (lacking, limit) = (lacking + 1, Some(said)),
            None if missing => lacking += 1,
            None => break,
        }
    }
    let refusal = asks.new.clone().err().unwrap_or_else(|| {
        let message = format!("{}; hosts that the buffer lacks: {lacking}", limit?);
        Some((Reason::CreateCapReached, message))
    });
    if let Some((reason, message)) = refusal.filter(|_| lacking > 0) {
        let of = class.map_or(String::new(), |class| format!("class {class:?}: "));
        plan.wait(BUFFER, reason, format!("{of}{message}"));
    }
    (moved, made)
}

fn move_to_buffer(s: &Observed, child: &ManagedVm) -> Action {
    Action::MoveToBuffer {
        child: child.clone(),
        why: match s.host(child).machine {
            MachineState::Gone => ReleaseReason::MachineGone,
            _ => ReleaseReason::Surplus,
        },
    }
}
