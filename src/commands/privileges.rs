//! `agent-forge privileges`: the role that the vCenter user needs. The list here is the only one: tests compare the
//! documents with it.

use std::collections::BTreeSet;

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use super::report::{self, Output, Report, Verdict};

/// Where a privilege is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum On {
    /// The folder above `spec.vsphere.folder`.
    FolderParent,
    /// `spec.vsphere.folder`.
    Folder,
    /// `spec.vsphere.resourcePool`.
    ResourcePool,
    /// The datastores of `spec.vsphere.datastoreCluster`.
    Datastores,
    /// `spec.vsphere.isoDatastore`.
    IsoDatastore,
    /// `spec.vsphere.network`.
    Network,
}

impl On {
    /// As the documents say it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::FolderParent => "VM folder's parent",
            Self::Folder => "VM folder",
            Self::ResourcePool => "resource pool",
            Self::Datastores => "datastores of the VMs",
            Self::IsoDatastore => "ISO datastore",
            Self::Network => "network",
        }
    }
}

/// A part of the operator that only some pools use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Feature {
    /// `spec.vsphere.vmTags`.
    Tags,
    /// `spec.iso.ejectAfterInstall`, and boot repair, which empties the drive.
    Eject,
    /// Released VMs that are made ready for another life.
    Recycle,
    /// VMs of the predecessor's 1.0.2.
    TakeOver,
    /// Pictures of consoles (`explain --console`, `collect --consoles`).
    Console,
}

/// One privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Privilege {
    /// vCenter's name of it.
    pub id: &'static str,
    /// Where it is needed.
    pub on: On,
    /// What for.
    pub purpose: &'static str,
    /// `null`: always needed.
    pub feature: Option<Feature>,
}

const fn always(id: &'static str, on: On, purpose: &'static str) -> Privilege {
    Privilege {
        id,
        on,
        purpose,
        feature: None,
    }
}

const fn only(feature: Feature, id: &'static str, purpose: &'static str) -> Privilege {
    Privilege {
        id,
        on: On::Folder,
        purpose,
        feature: Some(feature),
    }
}

/// The whole role.
pub const ROLE: &[Privilege] = &[
    always(
        "Folder.Create",
        On::FolderParent,
        "create spec.vsphere.folder, when missing",
    ),
    always("VirtualMachine.Inventory.Create", On::Folder, "create"),
    always("VirtualMachine.Inventory.Delete", On::Folder, "destroy"),
    always("VirtualMachine.Interact.PowerOn", On::Folder, "power on"),
    always(
        "VirtualMachine.Interact.PowerOff",
        On::Folder,
        "power off before destroy",
    ),
    always(
        "VirtualMachine.Interact.Reset",
        On::Folder,
        "restart a host that booted the ISO instead of its disk",
    ),
    always(
        "VirtualMachine.Config.AddNewDisk",
        On::Folder,
        "system disk",
    ),
    always(
        "VirtualMachine.Config.AddRemoveDevice",
        On::Folder,
        "network adapter, CD-ROM",
    ),
    always(
        "VirtualMachine.Config.AdvancedConfig",
        On::Folder,
        "disk.EnableUUID, ownership marker",
    ),
    always("VirtualMachine.Config.Settings", On::Folder, "boot order"),
    always("Resource.AssignVMToPool", On::ResourcePool, "create"),
    always("Datastore.AllocateSpace", On::Datastores, "create"),
    always(
        "Datastore.Browse",
        On::IsoDatastore,
        "size of an ISO, list of ISOs",
    ),
    always(
        "Datastore.FileManagement",
        On::IsoDatastore,
        "upload, move, delete ISOs",
    ),
    always("Network.Assign", On::Network, "create"),
    only(
        Feature::Tags,
        "InventoryService.Tagging.AttachTag",
        "spec.vsphere.vmTags; on the tags too",
    ),
    only(
        Feature::Eject,
        "VirtualMachine.Config.EditDevice",
        "spec.iso.ejectAfterInstall, boot repair",
    ),
    only(
        Feature::Eject,
        "VirtualMachine.Interact.SetCDMedia",
        "spec.iso.ejectAfterInstall, boot repair",
    ),
    only(
        Feature::Eject,
        "VirtualMachine.Interact.DeviceConnection",
        "spec.iso.ejectAfterInstall, boot repair",
    ),
    only(
        Feature::Eject,
        "VirtualMachine.Interact.AnswerQuestion",
        "spec.iso.ejectAfterInstall, boot repair",
    ),
    only(
        Feature::Recycle,
        "VirtualMachine.Config.RemoveDisk",
        "a released VM loses its old disk",
    ),
    only(
        Feature::Recycle,
        "VirtualMachine.Config.EditDevice",
        "discovery ISO into the drive of a released VM",
    ),
    only(
        Feature::Recycle,
        "VirtualMachine.Interact.SetCDMedia",
        "discovery ISO into the drive of a released VM",
    ),
    only(
        Feature::Recycle,
        "VirtualMachine.Interact.DeviceConnection",
        "that drive is connected",
    ),
    only(
        Feature::TakeOver,
        "VirtualMachine.Config.Annotation",
        "notes of VMs that the predecessor's 1.0.2 made",
    ),
    only(
        Feature::Console,
        "VirtualMachine.Interact.ConsoleInteract",
        "picture of the console of a guest that did not register",
    ),
];

/// Which role is shown.
#[derive(Clone, Debug, ClapArgs)]
pub struct PrivilegesArgs {
    /// Features that you use: their privileges are part of the role. Default: none.
    #[arg(
        long,
        env = "AGENT_FORGE_FEATURES",
        value_enum,
        value_delimiter = ',',
        value_name = "FEATURES"
    )]
    pub features: Vec<Feature>,

    /// Print the command that creates the role with govc.
    #[arg(long, env = "AGENT_FORGE_GOVC")]
    pub govc: bool,

    /// Name of the role in that command.
    #[arg(
        long,
        env = "AGENT_FORGE_ROLE",
        default_value = "agent-forge",
        value_name = "NAME"
    )]
    pub role: String,

    /// How the result is printed.
    #[arg(
        long,
        short,
        env = "AGENT_FORGE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub output: Output,
}

/// A role.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    name: String,
    privileges: Vec<Privilege>,
    #[serde(skip)]
    govc: bool,
}

/// Prints the role.
///
/// # Errors
/// Standard output is closed.
pub fn run(asked: &PrivilegesArgs) -> anyhow::Result<Verdict> {
    report::print(&role(asked), asked.output)
}

fn role(asked: &PrivilegesArgs) -> Role {
    let is_asked = |p: &&Privilege| p.feature.is_none_or(|f| asked.features.contains(&f));
    Role {
        name: asked.role.clone(),
        privileges: ROLE.iter().filter(is_asked).copied().collect(),
        govc: asked.govc,
    }
}

impl Report for Role {
    fn text(&self) -> String {
        if self.govc {
            let ids: BTreeSet<&str> = self.privileges.iter().map(|p| p.id).collect();
            let ids: Vec<&str> = ids.into_iter().collect();
            return format!("govc role.create {} {}\n", self.name, ids.join(" "));
        }
        let row = |p: &Privilege| {
            vec![
                p.id.to_owned(),
                p.on.words().to_owned(),
                p.purpose.to_owned(),
            ]
        };
        report::table(&["PRIVILEGE", "ON", "FOR"], self.privileges.iter().map(row))
    }

    fn verdict(&self) -> Verdict {
        Verdict::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(features: &[Feature], govc: bool) -> String {
        let asked = PrivilegesArgs {
            features: features.to_vec(),
            govc,
            role: "forge".to_owned(),
            output: Output::Table,
        };
        role(&asked).text()
    }

    #[test]
    fn the_role_has_what_is_always_needed_and_the_features_that_are_asked_for() {
        let (plain, tags) = (shown(&[], true), shown(&[Feature::Tags], true));
        assert!(
            plain.starts_with("govc role.create forge Datastore.AllocateSpace "),
            "{plain}"
        );
        assert_eq!(plain.split_whitespace().count(), 3 + 15);
        assert!(!plain.contains("Tagging") && tags.contains("InventoryService.Tagging.AttachTag"));
        let recycle = shown(&[Feature::Recycle], true);
        assert!(recycle.contains("RemoveDisk") && !recycle.contains("AnswerQuestion"));
        let all = shown(Feature::value_variants(), false);
        assert_eq!(all.lines().count(), 1 + ROLE.len(), "{all}");
        let rows: BTreeSet<_> = ROLE.iter().map(|p| (p.id, p.feature)).collect();
        assert_eq!(rows.len(), ROLE.len(), "each once");
        // A feature adds only what is not needed anyway.
        let always = |id: &str| ROLE.iter().any(|p| p.id == id && p.feature.is_none());
        assert!(!ROLE.iter().any(|p| p.feature.is_some() && always(p.id)));
    }
}
