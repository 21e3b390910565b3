//! What the VMs of a pool need: before the plan, by the plan, and after it.

use std::sync::Arc;

use agent_forge_actors::{
    domain::{managed_vm::ManagedVm, network, sizes::Sizes},
    placement::request,
    pool::{
        observed::Observed,
        plan::{Action, Plan},
    },
};
use agent_forge_crds::VsphereAgentPool;
use serde::Serialize;

use crate::commands::report;

/// What a number of VMs needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// VMs.
    pub vms: u64,
    /// Virtual processors.
    pub cpus: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Disks.
    pub disk_gib: u64,
    /// Network cards. Each needs an address.
    pub addresses: u64,
}

impl Need {
    /// What `vms` VMs of that pool need; nothing more than their number if the hardware cannot be read.
    #[must_use]
    pub fn of(pool: &VsphereAgentPool, vms: usize) -> Self {
        let vms = vms as u64;
        let nics = network::nics(&pool.spec.vsphere.network).len() as u64;
        let hardware = request::hardware(pool).ok();
        let each = |value: Option<u64>| value.unwrap_or(0) * vms;
        Self {
            vms,
            cpus: each(hardware.as_ref().map(|h| u64::from(h.num_cpus))),
            memory_mib: each(hardware.as_ref().map(|h| h.memory_mib)),
            disk_gib: each(hardware.as_ref().map(|h| h.disk_gib)),
            addresses: nics * vms,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            vms: self.vms + other.vms,
            cpus: self.cpus + other.cpus,
            memory_mib: self.memory_mib + other.memory_mib,
            disk_gib: self.disk_gib + other.disk_gib,
            addresses: self.addresses + other.addresses,
        }
    }
}

/// The costs of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// VMs that exist, or are being made. By the pool's present template: VMs may be older than it.
    pub now: Need,
    /// VMs that the plan makes.
    pub made: Need,
    /// VMs that the plan removes.
    pub removed: Need,
    /// VMs after the plan.
    pub after: Need,
}

/// The costs of that plan. `present`: the pool as the cluster has it.
#[must_use]
pub fn costs(s: &Observed, plan: &Plan, present: Option<&VsphereAgentPool>) -> Costs {
    let present = present.map(|pool| Sizes::of(&Arc::new(pool.clone())));
    let present = present.as_ref().unwrap_or(&s.sizes);
    let sum = |sizes: &Sizes, classes: Vec<Option<&str>>| {
        // The addresses of each VM are told also where the hardware cannot be read.
        let each = classes.into_iter();
        let each = each.map(|class| Need::of(sizes.pool(class), 1));
        each.fold(Need::default(), Need::plus)
    };
    let made = plan.actions.iter().filter_map(|action| match action {
        Action::CreateChild { class, .. } | Action::CreateForBuffer { class, .. } => {
            Some(class.as_deref())
        }
        _ => None,
    });
    let removed = plan.actions.iter().filter_map(|action| match action {
        Action::Release { child, .. } => Some(child),
        _ => None,
    });
    let removed: Vec<&ManagedVm> = removed.collect();
    let is_kept = |child: &&ManagedVm| removed.iter().all(|gone| gone.uid != child.uid);
    let kept = s.children.iter().filter(is_kept).map(ManagedVm::class);
    let made = sum(&s.sizes, made.collect());
    Costs {
        now: sum(present, s.children.iter().map(ManagedVm::class).collect()),
        made,
        removed: sum(present, removed.iter().map(|child| child.class()).collect()),
        after: sum(present, kept.collect()).plus(made),
    }
}

impl Costs {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let row = |name: &str, need: &Need| {
            vec![
                format!("  {name}"),
                need.vms.to_string(),
                need.cpus.to_string(),
                format!("{:.1} GiB", need.memory_mib as f64 / 1024.0),
                format!("{} GiB", need.disk_gib),
                need.addresses.to_string(),
            ]
        };
        let rows = [
            row("now", &self.now),
            row("made", &self.made),
            row("removed", &self.removed),
            row("after", &self.after),
        ];
        report::table(&["  ", "VMS", "CPUS", "MEMORY", "DISK", "ADDRESSES"], rows)
    }
}
