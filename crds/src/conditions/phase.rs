//! Phase of a VM's life, in `status.vm.phase` and `status.ownedVMs[].phase`.

use super::words::words;

words! {
    /// The phase of a VM between its request and its end.
    Phase {
        /// The VM is requested or being created. Its Agent has not registered yet.
        Provisioning = "Provisioning",
        /// Its Agent has registered and is not bound to a Machine.
        Available = "Available",
        /// Its Agent serves a Machine.
        Bound = "Bound",
        /// Its Machine is being deleted or gone. VM and Agent are being removed.
        Released = "Released",
        /// No AgentMachine needs it, and it cannot be used or removed automatically.
        Orphaned = "Orphaned",
    }
}
