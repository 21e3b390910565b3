//! The limits of a pool: how many new VMs it may have now. Pure.
//!
//! Guarantee: a plan never creates more than the limits leave room for. A VM counts until its VsphereAgent is gone.

use agent_forge_crds::conditions::Policy;

use crate::{domain::managed_vm::ManagedVm, pool::observed::Observed};

/// A limit, and how much of it is used.
#[derive(Clone, Debug)]
struct Cap {
    field: &'static str,
    what: &'static str,
    limit: usize,
    current: usize,
}

impl Cap {
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.current)
    }
}

/// The room that the limits leave. Without a limit: any.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    closest: Option<Cap>,
    taken: usize,
}

impl Room {
    pub(super) fn of(s: &Observed) -> Self {
        Self {
            closest: caps(s).into_iter().min_by_key(Cap::left),
            taken: 0,
        }
    }

    /// Takes room for one more VM, if there is any.
    pub(super) fn takes_one(&mut self) -> bool {
        let has = self
            .closest
            .as_ref()
            .is_none_or(|cap| cap.left() > self.taken);
        self.taken += usize::from(has);
        has
    }

    /// What the closest limit says.
    pub(super) fn sentence(&self) -> String {
        self.closest.as_ref().map_or_else(String::new, |cap| {
            format!(
                "spec.scaling.{} is {}, and the pool has {} {}",
                cap.field, cap.limit, cap.current, cap.what
            )
        })
    }
}

fn caps(s: &Observed) -> Vec<Cap> {
    let scaling = s.pool.spec.scaling.clone().unwrap_or_default();
    let limit = |number: i32| usize::try_from(number).unwrap_or_default();
    // The cache does not show yet what was made a moment ago.
    let made = s.pending.made.len() + s.pending.made_for_buffer.len();
    let own = || s.children.iter().filter(|child| !child.adopted);
    let vms = scaling.max_vms.map(|max| Cap {
        field: "maxVMs",
        what: if s.group.shared.is_empty() {
            "VMs, including those that are being removed"
        } else {
            "VMs, including those that are being removed and those that pools of other namespaces use"
        },
        limit: limit(max),
        current: own().count()
            + s.group.shared.len()
            + s.withheld().count()
            + s.arriving()
            + made,
    });
    let provisioning = scaling.max_provisioning.map(|max| Cap {
        field: "maxProvisioning",
        what: "VMs whose Agent has not registered",
        limit: limit(max),
        current: own().filter(|child| is_provisioned(s, child)).count() + made,
    });
    vms.into_iter().chain(provisioning).collect()
}

/// The VM is being made, or its guest has not registered yet.
fn is_provisioned(s: &Observed, child: &ManagedVm) -> bool {
    let is_stuck = child.obstacle().is_some_and(|o| o.has(Policy::Stuck));
    !child.deleting && !is_stuck && !child.has_served(&[]) && s.host(child).own.is_none()
}
