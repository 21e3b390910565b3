//! VMs are created, run and are destroyed.

use std::time::{Duration, Instant};

use agent_forge_actors::{
    domain::names::{DatastorePath, MoRef},
    ports::{
        effect::{EffectKind, Settled},
        vcenter::{BootDevice, Fault, FolderSight, MountedIso, PowerState, TaskEnd, VmChange},
    },
};
use agent_forge_lab::{parts::vcenter::VCenterOptions, patience::HANG};
use serde_json::json;

use super::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_lives_and_is_gone_without_a_trace() {
    let (world, vc) = ready(quick()).await;
    let vm = life(&*vc, "node-1").await.unwrap();

    let seen = now(&*vc, &vm).await;
    assert_eq!(seen.name, "node-1");
    assert_eq!(seen.bios_uuid, Some(uuid_of("node-1")));
    assert_eq!(seen.power, PowerState::On);
    assert_eq!(
        seen.boot_order,
        [BootDevice::Disk(seen.disk_keys[0]), BootDevice::Cdrom]
    );
    assert_eq!(seen.cdroms.len(), 1);
    assert_eq!(
        seen.cdroms[0].iso.as_deref(),
        Some(iso().to_string().as_str())
    );
    assert_eq!(seen.macs.len(), 1);
    assert!(
        seen.vm_path.ends_with("node-1-12345678-1/node-1.vmx"),
        "{}",
        seen.vm_path
    );

    let datacenter = vc.datacenter("dc1").await.unwrap();
    let found = vc.find_by_uuid(uuid_of("node-1")).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0], seen);
    let mounted = MountedIso {
        iso: iso().to_string(),
        vm: "node-1".to_owned(),
    };
    assert_eq!(vc.drives().await.unwrap().isos, [mounted]);
    let (folder, none) = (
        seen.folder.as_ref().unwrap(),
        MoRef::new("Folder", "group-none"),
    );
    for (folder, sight) in [
        (folder, FolderSight::Visible),
        (&none, FolderSight::Deleted),
    ] {
        assert_eq!(vc.folder_sight(folder, &datacenter).await.unwrap(), sight);
    }
    let nowhere = MoRef::new("Datacenter", "datacenter-none");
    let sight = vc.folder_sight(&none, &nowhere).await.unwrap();
    assert_eq!(sight, FolderSight::Hidden, "the datacenter proves nothing");

    // A running VM is not destroyed. The task or the call fails.
    let refused = destroy(&*vc, &vm).await.unwrap_err();
    assert!(
        matches!(refused.fault(), Some(Fault::InvalidPowerState { .. })),
        "{refused}"
    );
    power_off(&*vc, &vm).await.unwrap();
    let end = destroy(&*vc, &vm).await.unwrap();
    assert_eq!(end, TaskEnd::Success(None));
    assert_eq!(vc.observe(&vm).await.unwrap(), None);
    assert!(vc.find_by_uuid(uuid_of("node-1")).await.unwrap().is_empty());
    assert!(world.vms().await.is_empty());

    // Each mutating call passed the gate, and its outcome was reported.
    for kind in [
        EffectKind::CreateVm,
        EffectKind::Reconfigure,
        EffectKind::PowerOn,
        EffectKind::PowerOff,
    ] {
        assert_eq!(world.gate.outcomes(kind), [Settled::Done], "{kind:?}");
    }
    assert_eq!(
        world.gate.admitted.lock().unwrap().len(),
        world.gate.settled.lock().unwrap().len()
    );

    vc.logout(&effect(EffectKind::Logout)).await;
    assert_eq!(world.inventory().await["sessions"], json!([]));
    assert!(
        vc.observe(&vm).await.is_err(),
        "a session that was ended stays ended"
    );
    // A new session is possible.
    world.connect().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_take_as_long_as_one() {
    // Long task times, so that the slow calls of a busy machine are small in comparison.
    let delays = VCenterOptions {
        create_delay: Duration::from_secs(4),
        power_on_delay: Duration::from_secs(3),
        reconfigure_delay: Duration::from_millis(200),
        ..quick()
    };
    let one_by_one = 20 * (delays.create_delay + delays.power_on_delay + delays.reconfigure_delay);
    let (world, vc) = ready(delays).await;
    world.forget_calls().await;
    let started = Instant::now();
    let all = (0..20).map(|n| {
        let vc = vc.clone();
        tokio::spawn(async move { life(&*vc, &format!("node-{n}")).await })
    });
    for done in futures::future::join_all(all).await {
        done.unwrap().unwrap();
    }
    let took = started.elapsed();
    let calls = world.calls().await;
    let total: u64 = calls.values().sum();
    println!(
        "20 VMs in {took:?}, {total} requests, {:.1} per VM: {calls:?}",
        total as f64 / 20.0
    );
    assert!(
        took < one_by_one / 2,
        "20 lives whose tasks take {one_by_one:?} one by one took {took:?}"
    );
    assert!(total <= 20 * 8, "{total} requests for 20 VMs: {calls:?}");
    let vms = world.vms().await;
    assert_eq!(vms.len(), 20);
    assert!(vms.iter().all(|vm| vm["power"] == "poweredOn"));
    assert_eq!(
        world.logins("vim").await,
        0,
        "the session from before serves"
    );
    // No request is sent when no task runs, after the last call of the watcher.
    let asked = async |time: Duration| {
        world.forget_calls().await;
        tokio::time::sleep(time).await;
        world.calls().await.values().sum::<u64>()
    };
    let quiet = async { while asked(Duration::from_millis(500)).await > 0 {} };
    let quiet = tokio::time::timeout(HANG, quiet).await;
    quiet.expect("quiet in the end");
    assert_eq!(asked(Duration::from_secs(2)).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_files_that_are_taken_are_told_as_such() {
    let (world, vc) = ready(quick()).await;
    let vm = life(&*vc, "node-1").await.unwrap();
    let place = place(&*vc).await.unwrap();

    let mut again = create_vm("node-1", &place);
    again.vm_path = DatastorePath::new(&place.datastore.0, "other/node-1.vmx").unwrap();
    let e = made(&*vc, &again).await.unwrap_err();
    match e.fault() {
        Some(Fault::DuplicateName { name, holder }) => {
            assert_eq!(name, "node-1");
            assert_eq!(holder.as_ref(), Some(&vm));
        }
        other => panic!("{other:?}: {e}"),
    }
    assert_eq!(
        e.operation, "CreateVM_Task",
        "the failure names the call, not the task"
    );

    // Another name, the same file.
    let mut clash = create_vm("node-2", &place);
    let taken = now(&*vc, &vm).await.vm_path;
    clash.vm_path = DatastorePath::parse(&taken).unwrap();
    clash.place.datastore.0.clone_from(&clash.vm_path.datastore);
    let e = made(&*vc, &clash).await.unwrap_err();
    assert!(
        matches!(e.fault(), Some(Fault::AlreadyExists(_))),
        "{e} {:?}",
        e.kind
    );
    assert_eq!(world.vms().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_hardware_is_accepted() {
    use agent_forge_actors::domain::{
        hardware::{DiskController as D, Firmware, NetworkAdapter as N},
        template,
    };
    let (world, vc, place) = placed(quick()).await;
    let table = [
        (
            D::ParaVirtual,
            N::Vmxnet3,
            "ParaVirtualSCSIController",
            "VirtualVmxnet3",
        ),
        (
            D::LsiLogic,
            N::Vmxnet2,
            "VirtualLsiLogicController",
            "VirtualVmxnet2",
        ),
        (
            D::LsiLogicSas,
            N::E1000,
            "VirtualLsiLogicSASController",
            "VirtualE1000",
        ),
        (
            D::BusLogic,
            N::E1000e,
            "VirtualBusLogicController",
            "VirtualE1000e",
        ),
        (
            D::Nvme,
            N::PcNet32,
            "VirtualNVMEController",
            "VirtualPCNet32",
        ),
        (
            D::Sata,
            N::Vmxnet3,
            "VirtualAHCIController",
            "VirtualVmxnet3",
        ),
    ];
    for (n, (disk, nic, disk_type, nic_type)) in table.into_iter().enumerate() {
        let name = format!("hw-{n}");
        let mut vm = create_vm(&name, &place);
        vm.hardware.disk_controller = disk;
        vm.hardware.network_adapter = nic;
        vm.hardware.firmware = Firmware::Bios;
        vm.hardware.eagerly_scrub = true;
        made(&*vc, &vm)
            .await
            .unwrap_or_else(|e| panic!("{disk:?} {nic:?}: {e}"));
        let vms = world.vms().await;
        let made = find(&vms, &name);
        assert_eq!(made["disks"][0]["controller"], disk_type);
        assert_eq!(made["disks"][0]["thin"], false);
        assert_eq!(made["nics"][0]["type"], nic_type);
        assert_eq!(made["firmware"], "bios");
        assert_eq!(made["cdroms"][0]["path"], iso().to_string());
        let found = vc.find_by_uuid(vm.uuid).await.unwrap();
        let shown = &found[0].hardware;
        assert_eq!(template::drift(&vm.hardware, shown), [], "{shown:?}");
        let word = (
            shown.disk_controller.as_deref(),
            shown.network_adapter.as_deref(),
        );
        assert_eq!(word, (Some(disk.as_str()), Some(nic.as_str())));
        let numbers = (shown.num_cpus, shown.memory_mib, shown.disk_gib);
        let wanted = (
            vm.hardware.num_cpus,
            vm.hardware.memory_mib,
            vm.hardware.disk_gib,
        );
        assert_eq!(numbers, (Some(wanted.0), Some(wanted.1), Some(wanted.2)));
        assert_eq!(shown.firmware.as_deref(), Some("bios"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_of_the_predecessor_gets_its_marker_later() {
    let (world, vc) = connected(quick()).await;
    world
        .post(
            "vms",
            serde_json::json!({"name": "old-1", "folder": "demo", "powerOn": false}),
        )
        .await;
    let vms = world.vms().await;
    let uuid = find(&vms, "old-1")["uuid"].as_str().unwrap().to_owned();
    let uuid = agent_forge_actors::domain::identity::BiosUuid::parse(&uuid).unwrap();
    let found = vc.find_by_uuid(uuid).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0].marker, found[0].annotation.as_str()),
        (&None, "")
    );
    let vm = found[0].moref.clone();
    let change = VmChange {
        annotation: Some("its notes".to_owned()),
        ..owned("old-1")
    };
    configure(&*vc, EffectKind::Reconfigure, &vm, &change)
        .await
        .unwrap();
    let seen = now(&*vc, &vm).await;
    assert_eq!(seen.annotation, "its notes");
    assert_eq!(seen.marker, Some(marker("old-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_dead_process_left_open_is_answered() {
    let (world, vc) = ready(quick()).await;
    let vm = life(&*vc, "node-1").await.unwrap();
    let rescue = ["[iso-datastore] rescue.iso".to_owned()];
    eject(&*vc, &vm, &rescue).await.unwrap();
    let ours = [iso().to_string()];
    let holds = async || find(&world.vms().await, "node-1")["cdroms"][0]["path"].clone();
    assert_eq!(
        holds().await,
        ours[0],
        "somebody else's disc is not touched"
    );
    let lock = format!("vms/{}/lock-tray", vm.id);
    world.post(&lock, json!({})).await;
    world.forget_calls().await;
    let dying = {
        let (vc, vm, ours) = (vc.clone(), vm.clone(), ours.clone());
        tokio::spawn(async move { eject(&*vc, &vm, &ours).await })
    };
    // The task has begun and asks its question. Its client ends before it could answer.
    while !world.calls().await.contains_key("ReconfigVM_Task") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    dying.abort();
    let _ = dying.await;
    // The question may come a moment after the start of the task.
    let until = Instant::now() + HANG;
    while let Err(e) = eject(&*vc, &vm, &ours).await {
        assert!(Instant::now() < until, "{e}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(holds().await, "", "the drive is empty");
}
