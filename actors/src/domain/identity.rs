//! Identity of machines: BIOS uuids and MAC addresses. [`proof`] holds the identity rule: whether an Agent runs on one of
//! our VMs. [`lineup`] decides what several Agents of one VM are to each other.
//!
//! Facts: the Agent's name is the guest's SMBIOS product uuid. Its first three groups may be byte-swapped compared with
//! vSphere's `config.uuid`. The serial number in `systemVendor.serialNumber` (`VMware-42 3e ...`) has vSphere's order. The
//! interfaces of an Agent include bridges, in no stable order.

mod hardware_ids;
pub mod lineup;
pub mod proof;

pub use self::{
    hardware_ids::{BiosUuid, MacAddress},
    proof::{
        AgentMatch, BootSource, Misfit, ShownMachine, VmIdentity, agent_runs_on, is_vmware,
        shown_machine,
    },
};
