//! Hosts whose Machine is gone: which come back, and what they are until they are ready.

use agent_forge_crds::{
    agent::{DiskStatus, RecycleStatus},
    conditions::Reason,
    external::agent::BARE_METAL_HOST_LABEL,
    names::SKIP_DELETE_ANNOTATION,
    pool::{CleanupPolicy, ReleasePolicy, ReleaseSpec, ReleasedDisk},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::buffer::{asks, does, done, keep_disk, making, of, vm_of, wants};
use crate::{
    pool::plan::{Action, BufferCount, plan},
    testing::{World, agent_on, ask_for_life, at, child_with_vm, with},
};

/// A pool that recycles, and `w-0`, whose Machine is gone. Its Agent is free, and approved since it was claimed.
fn released() -> World {
    let mut world = wants(0);
    world.pool.spec.release = Some(ReleaseSpec {
        policy: Some(ReleasePolicy::Recycle),
        ..ReleaseSpec::default()
    });
    let mut child = child_with_vm("w-0");
    let vm = vm_of(&mut child);
    vm.served = Some(true);
    vm.vm_path = Some("[ds1] w-0/w-0.vmx".to_owned());
    world
        .agents
        .push(with(agent_on(&child), |a| a.spec.approved = true));
    world.children.push(child);
    world
}

/// The same pool, and `w-0` is in its buffer.
fn in_buffer() -> World {
    let mut world = released();
    world.children.clear();
    world.agents.clear();
    let child = making(&mut world, "w-0", 0);
    world.agents.push(agent_on(&child));
    world
}

fn release(world: &mut World) -> &mut ReleaseSpec {
    world.pool.spec.release.as_mut().expect("it recycles")
}

/// The lives that hosts begin which come back.
fn lives(world: &World) -> Vec<Option<i32>> {
    let planned = plan(&world.observed());
    let life = |a: &Action| match a {
        Action::Recycle { life, .. } => Some(life.map(|life| life.generation)),
        _ => None,
    };
    planned.actions.iter().filter_map(life).collect()
}

#[test]
fn a_host_whose_machine_is_gone_comes_back() {
    let mut world = released();
    assert_eq!(does(&world), of([("recycle", "w-0")]));
    assert_eq!(lives(&world), [Some(2)]);
    vm_of(&mut world.children[0]).generation = Some(4);
    assert_eq!(lives(&world), [Some(5)]);
    // The record of a binding may be late.
    vm_of(&mut world.children[0]).served = None;
    assert_eq!(lives(&world), [Some(5)]);
    // It is on its way back already, since its guest was dead. It only moves.
    vm_of(&mut world.children[0]).recycle = Some(RecycleStatus {
        generation: 4,
        ..RecycleStatus::default()
    });
    assert_eq!(lives(&world), [None]);
    // Its guest never registered.
    vm_of(&mut world.children[0]).recycle = None;
    world.agents.clear();
    assert_eq!(does(&world), of([("move", "w-0")]));
}

#[test]
fn a_host_that_is_made_takes_the_place_of_one_that_would_come_back() {
    let mut world = released();
    let scaling = world.pool.spec.scaling.as_mut().expect("scaling");
    (scaling.buffer_agents, scaling.buffer_max) = (Some(1), Some(2));
    assert_eq!(does(&world), of([("make", ""), ("recycle", "w-0")]));
    let scaling = world.pool.spec.scaling.as_mut().expect("scaling");
    scaling.buffer_max = Some(1);
    assert_eq!(does(&world), of([("make", ""), ("release", "w-0")]));
}

#[test]
fn a_host_that_is_not_as_wanted_is_removed() {
    type Change = fn(&mut World);
    let table: [(&str, Change); 10] = [
        ("no policy", |w| w.pool.spec.release = None),
        ("delete", |w| {
            release(w).policy = Some(ReleasePolicy::Delete)
        }),
        ("no room", |w| {
            w.pool.spec.scaling.as_mut().expect("scaling").buffer_max = Some(0);
        }),
        ("its Agent is missing", |w| w.agents.clear()),
        ("bare metal", |w| {
            let label = (BARE_METAL_HOST_LABEL.to_owned(), "x".to_owned());
            w.agents[0].labels_mut().extend([label]);
        }),
        ("used up", |w| release(w).max_uses = Some(1)),
        ("too old", |w| release(w).max_age = Some("1s".to_owned())),
        ("changed in vCenter", |w| {
            vm_of(&mut w.children[0]).hardware_drift = vec![Default::default()];
        }),
        ("the predecessor's", |w| {
            vm_of(&mut w.children[0]).vm_path = None
        }),
        ("the pool goes", |w| {
            w.pool.metadata.deletion_timestamp = w.children[0].metadata.creation_timestamp.clone();
            w.pool
                .finalizers_mut()
                .push(agent_forge_crds::names::POOL_FINALIZER.to_owned());
        }),
    ];
    for (what, change) in table {
        let mut world = released();
        change(&mut world);
        assert!(
            does(&world).contains(&("release", "w-0".to_owned())),
            "{what}: {:?}",
            does(&world)
        );
    }
    // The record of the last use may be late. It counts all the same.
    let mut world = released();
    release(&mut world).max_uses = Some(1);
    vm_of(&mut world.children[0]).served = None;
    assert_eq!(does(&world), of([("release", "w-0")]));
    // A use is left, and it is young enough.
    let mut world = released();
    release(&mut world).max_uses = Some(2);
    release(&mut world).max_age = Some("1000h".to_owned());
    assert_eq!(does(&world), of([("recycle", "w-0")]));
    // A VM that was taken over is older than its VsphereAgent.
    vm_of(&mut world.children[0]).first_powered_on = Some(Time(at(600 - 1001 * 3600)));
    assert_eq!(does(&world), of([("release", "w-0")]));
    vm_of(&mut world.children[0]).first_powered_on = Some(Time(at(0)));
    world.pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
    assert_eq!(does(&world), []);
}

/// The service writes the state later than the claim goes. Its VM actor waits until the state says that nobody has it.
#[test]
fn a_host_whose_agent_shows_a_state_of_before_is_asked_for_its_next_life() {
    for state in ["added-to-existing-cluster", "installing", "a-new-word"] {
        let mut world = released();
        let status = world.agents[0].status.get_or_insert_default();
        status.debug_info.get_or_insert_default().state = Some(state.to_owned());
        assert_eq!(does(&world), of([("recycle", "w-0")]), "{state}");
    }
}

/// Its guest was dead, and was started again to free its Machine. That life has not served, and may be one too many.
#[test]
fn a_vm_in_a_life_that_has_not_served_counts_those_before() {
    let mut world = released();
    let vm = vm_of(&mut world.children[0]);
    vm.served = None;
    vm.generation = Some(2);
    vm.recycle = Some(RecycleStatus {
        generation: 2,
        ..RecycleStatus::default()
    });
    release(&mut world).max_uses = Some(2);
    assert_eq!(does(&world), of([("recycle", "w-0")]));
    release(&mut world).max_uses = Some(1);
    assert_eq!(does(&world), of([("release", "w-0")]));
    // It is not started yet.
    vm_of(&mut world.children[0]).generation = Some(1);
    assert_eq!(does(&world), of([("release", "w-0")]));
}

/// A day of wall time says nothing: people may have paused it all the time, or the operator did not run.
#[test]
fn a_host_on_its_way_does_not_go_by_the_calendar() {
    let mut world = in_buffer();
    let vm = vm_of(&mut world.children[0]);
    vm.served = Some(true);
    vm.recycle = Some(RecycleStatus {
        generation: 2,
        started_at: Some(Time(at(600 - 25 * 3600))),
        ..RecycleStatus::default()
    });
    assert_eq!(does(&world), []);
    assert_eq!(plan(&world.observed()).buffer.making, 1);
}

/// People keep the VM: it is neither made ready nor removed, and its pool says so.
#[test]
fn a_host_that_people_keep_is_not_asked_for_another_life() {
    type Keep = fn(&mut World);
    let ways: [(&str, Keep); 3] = [
        ("annotation", |w| {
            let kept = (SKIP_DELETE_ANNOTATION.to_owned(), "true".to_owned());
            w.children[0].annotations_mut().extend([kept]);
        }),
        ("in vCenter", |w| {
            vm_of(&mut w.children[0]).skip_delete_in_vcenter = Some(true);
        }),
        ("Retain", |w| {
            w.pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
        }),
    ];
    for (what, keep) in ways {
        let mut world = released();
        keep(&mut world);
        // The Agent is fenced first, as that of any host whose Machine is gone.
        assert_eq!(does(&world), [], "{what}");
        let planned = plan(&world.observed());
        let said: Vec<_> = planned.waiting.iter().map(|w| w.reason.clone()).collect();
        assert_eq!(said, [Reason::Retained], "{what}");
        // It was asked for before.
        let mut world = in_buffer();
        vm_of(&mut world.children[0]).served = Some(true);
        ask_for_life(&mut world.children[0], 2);
        keep(&mut world);
        let planned = plan(&world.observed());
        assert_eq!(done(&planned), [], "{what}");
        assert_eq!(planned.buffer.making, 0, "{what}: another one may come");
        // The pool is being deleted: the record goes, and the VM actor leaves the VM.
        let mut world = released();
        keep(&mut world);
        world.pool.metadata.deletion_timestamp =
            world.children[0].metadata.creation_timestamp.clone();
        world
            .pool
            .finalizers_mut()
            .push(agent_forge_crds::names::POOL_FINALIZER.to_owned());
        let does = does(&world);
        assert!(
            does.contains(&("release", "w-0".to_owned())),
            "{what}: {does:?}"
        );
    }
    // Where the pool does not recycle, the record goes with the Machine.
    let mut world = released();
    world.pool.spec.release = None;
    let kept = (SKIP_DELETE_ANNOTATION.to_owned(), "true".to_owned());
    world.children[0].annotations_mut().extend([kept]);
    assert_eq!(does(&world), of([("release", "w-0")]));
}

/// vCenter refuses to change the VM. It keeps no place of the buffer for ever.
#[test]
fn a_host_that_cannot_be_made_ready_goes() {
    let mut world = in_buffer();
    let vm = vm_of(&mut world.children[0]);
    vm.served = Some(true);
    vm.recycle = Some(RecycleStatus {
        generation: 2,
        hours_tried: Some(23),
        ..RecycleStatus::default()
    });
    assert_eq!(does(&world), []);
    let way = vm_of(&mut world.children[0])
        .recycle
        .as_mut()
        .expect("on its way");
    way.hours_tried = Some(24);
    assert_eq!(does(&world), of([("release", "w-0")]));
    assert_eq!(plan(&world.observed()).buffer.making, 0);
    // Its disk is to stay: the VM keeps it, and another host may come.
    release(&mut world).disk = Some(ReleasedDisk::Keep);
    let planned = plan(&world.observed());
    assert_eq!((done(&planned), planned.buffer.making), (vec![], 0));
    let said: Vec<_> = planned.waiting.iter().map(|w| w.reason.clone()).collect();
    assert_eq!(said, [Reason::Retained]);
}

#[test]
fn no_more_come_back_than_may_stay() {
    let mut world = released();
    let other = with(child_with_vm("w-1"), |c| {
        let vm = vm_of(c);
        vm.served = Some(true);
        vm.vm_path = Some("[ds1] w-1/w-1.vmx".to_owned());
    });
    world.agents.push(agent_on(&other));
    world.children.push(other);
    assert_eq!(does(&world).len(), 2);
    assert!(does(&world).iter().all(|(what, _)| *what == "recycle"));
    world
        .pool
        .spec
        .scaling
        .as_mut()
        .expect("scaling")
        .buffer_max = Some(1);
    let kinds: Vec<_> = does(&world).into_iter().map(|(what, _)| what).collect();
    assert_eq!(kinds, ["recycle", "release"]);
}

/// A host on its way counts, and nobody gets it before it has begun its life.
#[test]
fn a_host_on_its_way_is_of_the_buffer_and_left_alone() {
    let mut world = released();
    world.children.clear();
    let mut child = making(&mut world, "w-0", 0);
    world.children.clear();
    vm_of(&mut child).served = Some(true);
    ask_for_life(&mut child, 2);
    world.children.push(child);
    let making = BufferCount {
        wanted: 0,
        ready: 0,
        making: 1,
    };
    let planned = plan(&world.observed());
    assert_eq!((done(&planned), planned.buffer), (vec![], making));
    asks(&mut world, "w-1");
    assert_eq!(does(&world), of([("create", "w-1")]));
    // The life has begun: who waits may have it, and its Agent is prepared when it is back.
    let vm = vm_of(&mut world.children[0]);
    vm.served = None;
    vm.generation = Some(2);
    vm.disk = Some(DiskStatus {
        generation: 2,
        handling: Some(ReleasedDisk::Replace),
        data_of: None,
    });
    vm.recycle = Some(RecycleStatus {
        generation: 2,
        ..RecycleStatus::default()
    });
    assert_eq!(does(&world), of([("claim", "w-0")]));
    // Nothing says whose data its disk has.
    let disk = vm_of(&mut world.children[0]).disk.take();
    assert_eq!(does(&world), of([("create", "w-1")]));
    vm_of(&mut world.children[0]).disk = disk;
    vm_of(&mut world.children[0]).recycle = None;
    world.agent_machines.clear();
    world.machines.clear();
    assert_eq!(does(&world), of([("prepare", "w-0")]));
}

#[test]
fn with_a_new_policy_what_waits_goes() {
    let mut world = in_buffer();
    assert_eq!(plan(&world.observed()).buffer.making, 1);
    release(&mut world).policy = Some(ReleasePolicy::Delete);
    assert_eq!(does(&world), of([("release", "w-0")]));
}

/// It was given to an AgentMachine that went before it had the host.
#[test]
fn an_outdated_host_with_data_stays_although_its_agent_machine_went() {
    for (disk, expected) in [
        (ReleasedDisk::Replace, of([("release", "w-0")])),
        (ReleasedDisk::Keep, Vec::new()),
    ] {
        let mut world = released();
        world.agents[0].spec.approved = false;
        vm_of(&mut world.children[0]).served = None;
        keep_disk(&mut world.children[0], disk);
        assert_eq!(does(&world), of([("move", "w-0")]), "as wanted");
        vm_of(&mut world.children[0]).hardware_drift = vec![Default::default()];
        let planned = plan(&world.observed());
        assert_eq!(done(&planned), expected, "{disk:?}");
        let mut said = planned.waiting.iter().filter(|w| w.subject == "w-0");
        let said = said.next().map(|w| &w.reason);
        let kept = expected.is_empty().then_some(&Reason::Retained);
        assert_eq!(said, kept, "{disk:?}");
    }
}
