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
use serde_json::json;

use crate::{
    site::Site,
    trouble::side_by_side,
    world::{LIMIT, Setup, World},
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

/// A missing privilege.
struct Case {
    /// Name of the site, and of its folder.
    name: &'static str,
    privilege: &'static str,
    /// The object in the condition's message. If it is empty, it is the site's own: its folder, or its VM, whose name begins
    /// like that of the site.
    object: &'static str,
    when: Missed,
}

impl Case {
    fn object(&self) -> String {
        match (self.object, self.when) {
            ("", First) => format!("({:?})", self.name),
            ("", _) => format!("(\"{}-", self.name),
            (object, _) => object.to_owned(),
        }
    }
}

/// One that is missing at the site's own folder or VM.
const fn own(name: &'static str, privilege: &'static str, when: Missed) -> Case {
    Case {
        name,
        privilege,
        object: "",
        when,
    }
}

/// One that is missing at another object, before anything is created.
const fn at(object: &'static str, name: &'static str, privilege: &'static str) -> Case {
    Case {
        object,
        ..own(name, privilege, First)
    }
}

const CASES: &[Case] = &[
    at("(\"vm\")", "folder", "Folder.Create"),
    own("create", "VirtualMachine.Inventory.Create", First),
    own("delete", "VirtualMachine.Inventory.Delete", End),
    own("on", "VirtualMachine.Interact.PowerOn", Made),
    own("off", "VirtualMachine.Interact.PowerOff", End),
    own("reset", "VirtualMachine.Interact.Reset", Astray),
    own("disk", "VirtualMachine.Config.AddNewDisk", First),
    own("device", "VirtualMachine.Config.AddRemoveDevice", First),
    own("advanced", "VirtualMachine.Config.AdvancedConfig", First),
    own("settings", "VirtualMachine.Config.Settings", Made),
    at("(\"Resources\")", "pool", "Resource.AssignVMToPool"),
    at("(\"ds-", "space", "Datastore.AllocateSpace"),
    at("\"iso-datastore\"", "browse", "Datastore.Browse"),
    at("\"iso-datastore\"", "files", "Datastore.FileManagement"),
    at("(\"VM Network\")", "network", "Network.Assign"),
    Case {
        object: "VirtualMachine:vm-",
        ..own("tag", "InventoryService.Tagging.AttachTag", Runs)
    },
    own("edit", "VirtualMachine.Config.EditDevice", Installed),
    own("media", "VirtualMachine.Interact.SetCDMedia", Installed),
    own(
        "connect",
        "VirtualMachine.Interact.DeviceConnection",
        Installed,
    ),
    own("answer", "VirtualMachine.Interact.AnswerQuestion", Asked),
];

/// Only needed to take over a VM of the predecessor, which no case here does.
const TAKE_OVER: &str = "VirtualMachine.Config.Annotation";
/// Only needed for a released VM that gets another life, which no case here does.
const RECYCLE: &str = "VirtualMachine.Config.RemoveDisk";
/// Only needed by commands that take pictures of consoles.
const CONSOLE: &str = "VirtualMachine.Interact.ConsoleInteract";

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

async fn missed(world: &World, site: &Site, case: &Case) -> Result<()> {
    let (privilege, when) = (case.privilege, case.when);
    let tags = site.admin.inventory().await?.tags;
    let tag = &tags.first().context("a tag")?.id;
    let eject = matches!(when, Installed | Asked);
    let patch = json!({"vsphere": {"vmTags": [tag]}, "iso": {"ejectAfterInstall": eject}});
    if when == End {
        site.up(world, &patch).await?;
        site.admin.deny(&[(privilege, "")]).await?;
        site.nodes.scale(0);
    } else {
        site.admin.deny(&[(privilege, "")]).await?;
        site.open(world, &patch).await?;
        site.nodes.scale(1);
    }
    if when == Asked {
        let first = |i: &Inventory| i.vms.first().map(|vm| vm.moref.clone());
        let made = site.admin.until("a VM", LIMIT, first).await;
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
        let on = site.admin.until("a VM that runs", LIMIT, runs).await;
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
        said.contains(privilege) && said.contains(&case.object()),
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
        let tagged = site.admin.until("tag and drive", LIMIT, |i| {
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
    let mut cases: BTreeSet<&str> = CASES.iter().map(|case| case.privilege).collect();
    cases.extend([TAKE_OVER, RECYCLE, CONSOLE]);
    ensure!(
        cases == told()?,
        "docs/reference/vsphere.md tells {:?}, the cases are {cases:?}",
        told()?
    );
    let world = World::without_pool(Setup::default()).await?;
    let of = |case: &Case| (case.name, VCenterOptions::default());
    side_by_side(&world, CASES, of, missed).await
}
