//! What the record of a VM says of its disks.

use std::sync::Arc;

use agent_forge_crds::{
    agent::{DiskStatus, VmStatus, VsphereAgent},
    pool::ReleasedDisk,
};

use super::*;
use crate::testing::{buffered, with};

fn vm_of(child: &mut VsphereAgent) -> &mut VmStatus {
    let status = child.status.as_mut().expect("a status");
    status.vm.as_mut().expect("a VM")
}

fn read(child: &VsphereAgent) -> ManagedVm {
    ManagedVm::read(Arc::new(child.clone()))
}

/// What an older release made ready does not say what became of its disk.
#[test]
fn a_disk_has_old_data_unless_it_is_known_to_be_new() {
    let first = buffered("a");
    let second = |handling: Option<ReleasedDisk>| {
        with(first.clone(), |c| {
            vm_of(c).generation = Some(2);
            vm_of(c).disk = handling.map(|handling| DiskStatus {
                generation: 2,
                handling: Some(handling),
                data_of: None,
            });
        })
    };
    for (child, expected) in [
        (first.clone(), false),
        (second(Some(ReleasedDisk::Replace)), false),
        (second(Some(ReleasedDisk::Keep)), true),
        (second(None), true),
    ] {
        assert_eq!(read(&child).has_old_data(), expected);
    }
}
