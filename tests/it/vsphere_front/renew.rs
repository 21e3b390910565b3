//! VMs are made ready for another life.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent_forge_actors::{
    domain::names::{DatastorePath, MoRef},
    ports::{
        effect::{EffectKind, Settled},
        vcenter::{
            BootDevice, Fault, NewLife, RenewedDisk, TaskEnd, VCenter, VcErrorKind, VcResult,
            VmChange, VmObservation,
        },
    },
};
use agent_forge_lab::{parts::vcenter::VCenterOptions, patience::HANG};
use futures::future::join_all;
use serde_json::{Value, json};

use super::support::*;

fn other_iso() -> DatastorePath {
    iso().parent().unwrap().join("b.iso").unwrap()
}

/// A VM that ran and is switched off.
async fn spent(options: VCenterOptions) -> (World, Arc<dyn VCenter>, MoRef) {
    let (world, vc) = ready(options).await;
    let datacenter = vc.datacenter("dc1").await.unwrap();
    put(&*vc, &datacenter, &other_iso(), b"another")
        .await
        .unwrap();
    let vm = life(&*vc, "node-1").await.unwrap();
    power_off(&*vc, &vm).await.unwrap();
    world.forget_calls().await;
    (world, vc, vm)
}

/// The VM as it is now, and its renewal with a new disk.
async fn replaced(vc: &dyn VCenter, vm: &MoRef) -> (VmObservation, VmChange) {
    let disk = RenewedDisk::Replaced {
        gib: 80,
        eagerly_scrub: false,
    };
    wanted(vc, vm, disk).await
}

/// The VM as it is now, and its renewal.
async fn wanted(vc: &dyn VCenter, vm: &MoRef, disk: RenewedDisk) -> (VmObservation, VmChange) {
    let seen = now(vc, vm).await;
    assert!(seen.change_version.is_some());
    let change = VmChange {
        life: Some(NewLife {
            generation: seen.generation.unwrap_or(1) + 1,
            iso: other_iso(),
            disk,
            system_disk: seen.system_disk(),
        }),
        ..VmChange::default()
    };
    (seen, change)
}

async fn renew(vc: &dyn VCenter, (seen, renewal): &(VmObservation, VmChange)) -> VcResult<TaskEnd> {
    configure_as(vc, EffectKind::Renew, seen, renewal).await
}

async fn disks(world: &World) -> Value {
    find(&world.vms().await, "node-1")["disks"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_gets_a_new_disk_and_the_iso_and_runs_again() {
    let (world, vc, vm) = spent(quick()).await;
    let (before, old) = (now(&*vc, &vm).await, disks(&world).await);
    assert_eq!(before.generation, None);
    let renewal = replaced(&*vc, &vm).await;
    let end = renew(&*vc, &renewal).await.unwrap();
    assert_eq!(end, TaskEnd::Success(None));

    let seen = now(&*vc, &vm).await;
    assert_eq!(seen.generation, Some(2));
    assert_ne!(seen.change_version, before.change_version);
    assert_eq!(seen.marker, before.marker);
    assert_eq!(seen.boot_order, before.boot_order, "disk first, as before");
    assert_eq!(seen.hardware.disk_gib, Some(80));
    assert_eq!(
        seen.hardware.disk_controller,
        before.hardware.disk_controller
    );
    let drive = &seen.cdroms[0];
    assert_eq!(drive.iso, Some(other_iso().to_string()));
    assert!(drive.start_connected);
    let new = disks(&world).await;
    assert_eq!(new.as_array().map(Vec::len), Some(1), "{new}");
    assert_ne!(new[0]["uuid"], old[0]["uuid"]);
    let files = world.inventory().await["files"].to_string();
    let file = old[0]["file"].as_str().unwrap();
    let path = file.split_once("] ").unwrap().1;
    assert!(!files.contains(&format!("{path:?}")), "{path}: {files}");

    power_on(&*vc, &vm).await.unwrap();
    let seen = now(&*vc, &vm).await;
    assert!(seen.cdroms[0].connected);
    assert_eq!(world.gate.outcomes(EffectKind::Renew), [Settled::Done]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_keeps_its_disk_boots_the_iso_first() {
    let (world, vc, vm) = spent(quick()).await;
    let old = disks(&world).await;
    let renewal = wanted(&*vc, &vm, RenewedDisk::Kept).await;
    renew(&*vc, &renewal).await.unwrap();
    let seen = now(&*vc, &vm).await;
    let disk = BootDevice::Disk(seen.disk_keys[0]);
    assert_eq!(seen.boot_order, [BootDevice::Cdrom, disk]);
    assert_eq!(seen.generation, Some(2));
    assert_eq!(disks(&world).await, old);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_somebody_changed_in_between_is_left_alone() {
    let (world, vc, vm) = spent(quick()).await;
    let renewal = replaced(&*vc, &vm).await;
    configure(&*vc, EffectKind::Reconfigure, &vm, &owned("another"))
        .await
        .unwrap();
    let (before, old) = (vc.observe(&vm).await.unwrap(), disks(&world).await);
    let e = renew(&*vc, &renewal).await.unwrap_err();
    assert_eq!(e.fault(), Some(&Fault::ConcurrentAccess), "{e}");
    assert!(!e.outcome_unknown());
    assert_eq!(vc.observe(&vm).await.unwrap(), before);
    assert_eq!(disks(&world).await, old);
}

/// Pools that want the same host mark its VM with the changeVersion that they saw. Each has a session of its own, and asks
/// again while the VM is busy.
#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_who_mark_a_vm_at_once_one_wins() {
    let (world, vc, vm) = spent(quick()).await;
    let seen = now(&*vc, &vm).await;
    assert!(seen.change_version.is_some());
    let mark = async |taker: String| {
        let vc = world.connect().await;
        let stamp = owned(&taker);
        loop {
            match configure_as(&*vc, EffectKind::Reconfigure, &seen, &stamp).await {
                Err(e) if e.fault().map(Fault::name) == Some("TaskInProgress") => {}
                ended => return ended.map(|_| taker),
            }
        }
    };
    let all = join_all((0..50).map(|n| mark(format!("taker-{n}")))).await;
    let (won, lost): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    let [Ok(winner)] = &won[..] else {
        panic!("{won:?}");
    };
    for error in lost {
        let e = error.unwrap_err();
        assert_eq!(e.fault(), Some(&Fault::ConcurrentAccess), "{e}");
        assert!(!e.outcome_unknown(), "{e}");
    }
    let seen = now(&*vc, &vm).await;
    assert_eq!(seen.marker, Some(marker(winner)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_runs_or_shows_nothing_is_refused_before_anything_is_sent() {
    let (world, vc, vm) = spent(quick()).await;
    let renewal = replaced(&*vc, &vm).await;
    for (action, refused, says) in [
        ("power-on", "InvalidPowerState", "poweredOn"),
        ("suspend", "InvalidPowerState", "suspended"),
        ("hide", "InvalidState", "does not show the devices"),
    ] {
        let act = format!("vms/{}/{action}", vm.id);
        world.post(&act, json!({})).await;
        let e = renew(&*vc, &renewal).await.unwrap_err();
        assert_eq!(e.fault().map(Fault::name), Some(refused), "{action}: {e}");
        assert!(e.to_string().contains(says), "{action}: {e}");
        assert!(!e.outcome_unknown(), "{action}: {e}");
    }
    assert_eq!(world.called("ReconfigVM_Task").await, 0);
    assert_eq!(world.gate.outcomes(EffectKind::Renew), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_without_a_drive_is_refused_with_what_it_lacks() {
    let (world, vc) = ready(quick()).await;
    let bare = json!({"name": "node-1", "powerOn": false});
    world.post("vms", bare).await;
    let id = find(&world.vms().await, "node-1")["moref"].clone();
    let vm = MoRef::new("VirtualMachine", id.as_str().unwrap());
    let renewal = replaced(&*vc, &vm).await;
    let e = renew(&*vc, &renewal).await.unwrap_err();
    assert!(e.to_string().contains("no CD-ROM drive"), "{e}");
    let mut gone = renewal;
    gone.0.moref = MoRef::new("VirtualMachine", "vm-987654");
    let e = renew(&*vc, &gone).await.unwrap_err();
    let named = e.fault().map(Fault::name);
    assert_eq!(named, Some("ManagedObjectNotFound"), "{e}");
    assert_eq!(world.called("ReconfigVM_Task").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_leaves_a_renewal_that_can_be_seen() {
    let options = VCenterOptions {
        reconfigure_delay: Duration::from_millis(300),
        ..quick()
    };
    let (world, vc, vm) = spent(options).await;
    let renewal = replaced(&*vc, &vm).await;
    let lost = json!({"method": "ReconfigVM_Task", "at": "lostReply", "count": 1});
    world.fault(lost).await;
    let e = renew(&*vc, &renewal).await.unwrap_err();
    assert_eq!(e.kind, VcErrorKind::NoAnswer, "{e}");
    assert!(e.outcome_unknown());
    assert_eq!(world.gate.outcomes(EffectKind::Renew), [Settled::Unknown]);
    let until = Instant::now() + HANG;
    while now(&*vc, &vm).await.generation != Some(2) {
        assert!(Instant::now() < until, "the renewal never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The same request a second time would take the new disk.
    let new = disks(&world).await;
    let e = renew(&*vc, &renewal).await.unwrap_err();
    assert_eq!(e.fault(), Some(&Fault::ConcurrentAccess), "{e}");
    assert_eq!(disks(&world).await, new);
}
