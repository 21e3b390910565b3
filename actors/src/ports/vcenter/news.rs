//! Live news: what vCenter reports of VMs without being asked again and again.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::power::PowerState;

/// A VM as the news show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSight {
    /// Power state.
    pub power: PowerState,
    /// vCenter is connected to it (`runtime.connectionState` is `connected`).
    pub connected: bool,
    /// `config.changeVersion`: another one with each change of its configuration. Empty if vCenter shows none.
    pub version: String,
}

impl VmSight {
    /// It runs, and vCenter sees that.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.power == PowerState::On && self.connected
    }
}

/// What vCenter reports of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmNews {
    /// It is there.
    There(VmSight),
    /// It is not there any more, or was never there.
    Gone,
}

type Tell = dyn Fn(&str, VmNews) + Send + Sync;

/// Who is told: the reference of the VM (`vm-12`), and the news. It returns at once.
#[derive(Clone)]
pub struct Listener(Arc<Tell>);

impl Listener {
    /// Calls `told` with each news.
    #[must_use]
    pub fn new(told: impl Fn(&str, VmNews) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    /// Tells it.
    pub fn tell(&self, vm: &str, news: VmNews) {
        (self.0)(vm, news);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Follows VMs. All VMs and all tasks of a session share one long poll.
pub trait News: Send + Sync {
    /// From now on, `listener` is told of these VMs and of no others: of each VM once as it is now, then of each change.
    /// Nothing is told while vCenter does not answer. After an outage each VM is told as it is then. An empty set ends it.
    fn follow(&self, vms: BTreeSet<String>, listener: Listener);
}
