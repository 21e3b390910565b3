//! The role in docs/reference/vsphere.md, with one privilege removed at a time. The condition names the privilege and
//! the object, nothing half-made stays, and granting the privilege is enough.

use std::collections::BTreeSet;

use agent_forge_crds::conditions::Reason;
use agent_forge_lab::parts::{
    VCenterOptions,
    vcenter_inventory::{Inventory, Vm},
    vcenter_trouble::VmAction,
};
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use serde_json::json;

use crate::{
    site::Site,
    trouble::{all, sites},
    world::{Setup, World},
};

/// The document from which users create the role.
const TOLD: &str = include_str!("../../docs/reference/vsphere.md");

/// When the missing privilege is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    /// Before anything is created.
    First,
    /// When the VM exists and is powered off.
    Made,
    /// When the VM runs.
    Runs,
    /// When its host is installed and its drive must be emptied (`spec.iso.ejectAfterInstall`).
    Installed,
    /// The same, but the guest has locked the drive, so that vCenter asks a question.
    Asked,
    /// When its guest has booted the ISO instead of its disk.
    Astray,
    /// When the VM must be destroyed.
    End,
}
use Missed::{Asked, Astray, End, First, Installed, Made, Runs};

/// Name of the site, privilege, the object in the condition's message, and when the privilege is missed.
const CASES: &[(&str, &str, &str, Missed)] = &[
    ("folder", "Folder.Create", "(\"vm\")", First),
    (
        "create",
        "VirtualMachine.Inventory.Create",
        "(\"create\")",
        First,
    ),
    (
        "delete",
        "VirtualMachine.Inventory.Delete",
        "(\"delete-",
        End,
    ),
    ("on", "VirtualMachine.Interact.PowerOn", "(\"on-", Made),
    ("off", "VirtualMachine.Interact.PowerOff", "(\"off-", End),
    (
        "reset",
        "VirtualMachine.Interact.Reset",
        "(\"reset-",
        Astray,
    ),
    (
        "disk",
        "VirtualMachine.Config.AddNewDisk",
        "(\"disk\")",
        First,
    ),
    (
        "device",
        "VirtualMachine.Config.AddRemoveDevice",
        "(\"device\")",
        First,
    ),
    (
        "advanced",
        "VirtualMachine.Config.AdvancedConfig",
        "(\"advanced\")",
        First,
    ),
    (
        "settings",
        "VirtualMachine.Config.Settings",
        "(\"settings-",
        Made,
    ),
    ("pool", "Resource.AssignVMToPool", "(\"Resources\")", First),
    ("space", "Datastore.AllocateSpace", "(\"ds-", First),
    ("browse", "Datastore.Browse", "\"iso-datastore\"", First),
    (
        "files",
        "Datastore.FileManagement",
        "\"iso-datastore\"",
        First,
    ),
    ("network", "Network.Assign", "(\"VM Network\")", First),
    (
        "tag",
        "InventoryService.Tagging.AttachTag",
        "VirtualMachine:vm-",
        Runs,
    ),
    (
        "edit",
        "VirtualMachine.Config.EditDevice",
        "(\"edit-",
        Installed,
    ),
    (
        "media",
        "VirtualMachine.Interact.SetCDMedia",
        "(\"media-",
        Installed,
    ),
    (
        "connect",
        "VirtualMachine.Interact.DeviceConnection",
        "(\"connect-",
        Installed,
    ),
    (
        "answer",
        "VirtualMachine.Interact.AnswerQuestion",
        "(\"answer-",
        Asked,
    ),
];

/// Only needed to take over a VM of the predecessor, which no case here does.
const TAKE_OVER: &str = "VirtualMachine.Config.Annotation";
/// Only needed for a released VM that gets another life, which no case here does.
const RECYCLE: &str = "VirtualMachine.Config.RemoveDisk";

/// The privileges in that section of the document.
fn told() -> Result<BTreeSet<&'static str>> {
    let section = TOLD
        .split("\n## ")
        .find(|section| section.starts_with("Privileges\n"))
        .context("a section Privileges in docs/reference/vsphere.md")?;
    let names: Vec<&str> = section.split('`').skip(1).step_by(2).collect();
    ensure!(
        !names.iter().any(|name| name.starts_with('.')),
        "a privilege that is not written out: {names:?}"
    );
    let privilege = |name: &&str| {
        let parts = name.split('.').count();
        parts >= 2
            && !name.starts_with("spec.")
            && !name.starts_with("System.")
            && name.starts_with(char::is_uppercase)
    };
    Ok(names.into_iter().filter(privilege).collect())
}

/// Whether there is something in its drive.
fn loaded(vm: &Vm) -> bool {
    vm.cdroms.iter().any(|c| !c.path.is_empty())
}

async fn missed(
    world: &World,
    site: &Site,
    (_, privilege, object, when): (&str, &str, &str, Missed),
) -> Result<()> {
    let tags = site.admin.inventory().await?.tags;
    let tag = &tags.first().context("a tag")?.id;
    let eject = matches!(when, Installed | Asked);
    let patch = json!({"vsphere": {"vmTags": [tag]}, "iso": {"ejectAfterInstall": eject}});
    if when == End {
        site.open(world, &patch).await?;
        site.nodes.scale(1);
        site.running(world, 1).await?;
        site.admin.deny(&[(privilege, "")]).await?;
        site.nodes.scale(0);
    } else {
        site.admin.deny(&[(privilege, "")]).await?;
        site.open(world, &patch).await?;
        site.nodes.scale(1);
    }
    if when == Asked {
        let first = |i: &Inventory| i.vms.first().map(|vm| vm.moref.clone());
        let made = site.admin.until("a VM", crate::world::LIMIT, first).await;
        let vm = site.explained(world, made).await?;
        site.admin.act(&vm, VmAction::LockTray).await?;
    }
    if when == Astray {
        let runs = |i: &Inventory| {
            i.vms
                .iter()
                .find(|vm| vm.is_on())
                .map(|vm| vm.moref.clone())
        };
        let on = site
            .admin
            .until("a VM that runs", crate::world::LIMIT, runs)
            .await;
        let vm = site.explained(world, on).await?;
        site.admin.act(&vm, VmAction::BootFromCd).await?;
    }
    let reason = match when {
        Runs => Reason::TaggingFailed,
        Installed | Asked => Reason::EjectFailed,
        First | Made | Astray | End => Reason::NoPermission,
    };
    let said = site.until_trouble(world, reason.as_str()).await?;
    ensure!(
        said.contains(privilege) && said.contains(object),
        "privilege and object are told: {said}"
    );
    let inventory = site.admin.inventory().await?;
    match (when, inventory.vms.as_slice()) {
        (First, []) => {
            let files = inventory.files.iter().filter(|f| !f.path.ends_with(".iso"));
            ensure!(files.count() == 0, "half made: {:?}", inventory.files);
        }
        (Made, [vm]) => ensure!(!vm.is_on(), "{vm:?}"),
        (Runs, [vm]) => ensure!(vm.is_on() && vm.tags.is_empty(), "{vm:?}"),
        (Installed | Asked, [vm]) => ensure!(vm.is_on() && loaded(vm), "{vm:?}"),
        (Astray, [vm]) => ensure!(vm.is_on() && !loaded(vm), "{vm:?}"),
        (End, [_]) => {}
        (_, vms) => anyhow::bail!("{when:?}: {vms:?}"),
    }
    site.admin.deny(&[]).await?;
    if when != End {
        site.running(world, 1).await?;
        let tagged = site.admin.until("tag and drive", crate::world::LIMIT, |i| {
            i.vms
                .iter()
                .all(|vm| vm.tags == [tag.clone()] && !(eject && loaded(vm)))
                .then_some(())
        });
        site.explained(world, tagged.await).await?;
    }
    site.empties(world).await?;
    site.never_double(1, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_privilege_of_the_role_is_named_where_it_is_missing() -> Result<()> {
    let mut cases: BTreeSet<&str> = CASES.iter().map(|case| case.1).collect();
    cases.extend([TAKE_OVER, RECYCLE]);
    ensure!(
        cases == told()?,
        "docs/reference/vsphere.md tells {:?}, the cases are {cases:?}",
        told()?
    );
    let world = World::without_pool(Setup::default()).await?;
    let wanted: Vec<_> = CASES
        .iter()
        .map(|case| (case.0, VCenterOptions::default()))
        .collect();
    let sites = sites(&world, &wanted).await?;
    let played = join_all(sites.iter().zip(CASES).map(|(site, case)| {
        let missed = missed(&world, site, *case);
        async move { missed.await.with_context(|| case.1) }
    }));
    all(played.await)
}
