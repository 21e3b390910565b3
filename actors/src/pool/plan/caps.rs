//! The limits of a pool: how many new VMs it may have now. Pure.
//!
//! Guarantee: a plan never creates more than the limits leave room for. A VM counts until its VsphereAgent is gone, and one that
//! may have been made counts as well.

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

    fn sentence(&self) -> String {
        format!(
            "spec.scaling.{} is {}, and the pool has {} {}",
            self.field, self.limit, self.current, self.what
        )
    }
}

/// The room that the limits leave. Without a limit: any.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    vms: Option<Cap>,
    provisioning: Option<Cap>,
}

impl Room {
    pub(super) fn of(s: &Observed) -> Self {
        let scaling = s.pool.spec.scaling.clone().unwrap_or_default();
        let limit = |number: i32| usize::try_from(number).unwrap_or_default();
        let own = || s.children.iter().filter(|child| !child.adopted);
        // The cache does not show yet what was made a moment ago, or may have been made.
        let p = &s.pending;
        let made =
            p.made.len() + p.begun.len() + p.made_for_buffer.len() + p.begun_for_buffer.len();
        let there = own().count() + s.group.shared.len() + s.withheld().count() + s.arriving();
        Self {
            vms: scaling.max_vms.map(|max| Cap {
                field: "maxVMs",
                what: if s.group.shared.is_empty() {
                    "VMs, including those that are being removed"
                } else {
                    "VMs, including those that are being removed and those that pools of other namespaces use"
                },
                limit: limit(max),
                current: there + made + p.unsure.len(),
            }),
            provisioning: scaling.max_provisioning.map(|max| Cap {
                field: "maxProvisioning",
                what: "VMs whose Agent has not registered",
                limit: limit(max),
                current: own().filter(|child| is_provisioned(s, child)).count() + made,
            }),
        }
    }

    /// Takes room for one more VM: one that is to be made, or a host of another pool, whose Agent has registered.
    ///
    /// # Errors
    /// There is none: what the closest limit says.
    pub(super) fn take(&mut self, registered: bool) -> Result<(), String> {
        let provisioning = self.provisioning.as_mut().filter(|_| !registered);
        let mut caps: Vec<&mut Cap> = self.vms.as_mut().into_iter().chain(provisioning).collect();
        let closest = caps.iter().min_by_key(|cap| cap.left());
        if let Some(full) = closest.filter(|cap| cap.left() == 0) {
            return Err(full.sentence());
        }
        caps.iter_mut().for_each(|cap| cap.current += 1);
        Ok(())
    }
}

/// The VM is being made, or its guest has not registered yet.
fn is_provisioned(s: &Observed, child: &ManagedVm) -> bool {
    let is_stuck = child.obstacle().is_some_and(|o| o.has(Policy::Stuck));
    !child.deleting && !is_stuck && !child.has_served(&[]) && s.host(child).own.is_none()
}
