//! The lives of a VM, by number: it begins another one when it is recycled.

use agent_forge_crds::agent::VmStatus;

/// The number of the present life.
#[must_use]
pub fn generation(vm: &VmStatus) -> u32 {
    vm.generation
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(1)
        .max(1)
}
