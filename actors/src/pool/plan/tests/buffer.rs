//! The buffer of a pool: what comes, what is claimed, what goes.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{DiskStatus, VmStatus, VsphereAgent},
    conditions::Reason,
    external::NamespacedName,
    names::{AGENT_MACHINE_LABEL, SKIP_DELETE_ANNOTATION},
    pool::{
        CleanupPolicy, DeletePolicy, ImageStatus, ReleasePolicy, ReleaseSpec, ReleasedDisk,
        ScalingSpec,
    },
};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt as _;

use crate::{
    domain::{managed_vm::ManagedVm, template},
    placement::request,
    pool::{
        act,
        plan::{Action, BufferCount, Plan, plan},
    },
    testing::{
        self, CONTROL_PLANE, World, agent_machine, agent_on, at, buffered, child_with_vm, claim,
        delete, machine, with,
    },
};

/// A pool whose buffer wants `hosts`.
pub(super) fn wants(hosts: i32) -> World {
    let mut world = World {
        waited: Duration::from_secs(120),
        ..World::default()
    };
    world.pool.spec.scaling = Some(ScalingSpec {
        buffer_agents: Some(hosts),
        ..ScalingSpec::default()
    });
    world
}

fn scaling(world: &mut World) -> &mut ScalingSpec {
    world.pool.spec.scaling.as_mut().expect("a buffer")
}

/// A host of the buffer that was made at `second`, whose Agent is not there yet.
pub(super) fn making(world: &mut World, name: &str, second: i64) -> VsphereAgent {
    let child = with(buffered(name), |c| {
        c.metadata.creation_timestamp = Some(Time(at(second)));
    });
    world.children.push(child.clone());
    child
}

/// As [`making`], with an Agent that is ready.
fn ready(world: &mut World, name: &str, second: i64) {
    let child = making(world, name, second);
    let agent = with(agent_on(&child), |a| {
        a.spec.approved = true;
        a.spec.hostname = Some(format!("{name}-1"));
        a.spec.role = "worker".to_owned();
    });
    world.agents.push(agent);
}

pub(super) fn asks(world: &mut World, name: &str) {
    world.agent_machines.push(agent_machine(name));
    world.machines.push(machine(name));
}

pub(super) fn vm_of(child: &mut VsphereAgent) -> &mut VmStatus {
    let status = child.status.as_mut().expect("a status");
    status.vm.as_mut().expect("a VM")
}

/// The first VM has the hardware that the pool wants.
fn record_hardware(world: &mut World) {
    let hardware = request::hardware(&world.pool).expect("hardware");
    vm_of(&mut world.children[0]).template = Some(template::record(&hardware));
}

/// What is done, and with which VsphereAgent.
pub(super) fn done(planned: &Plan) -> Vec<(&'static str, String)> {
    let name = |action: &Action| match action {
        Action::CreateForBuffer { .. } => Some(("make", String::new())),
        Action::MoveToBuffer { child, .. } => Some(("move", child.key.name.clone())),
        Action::CreateChild { name, .. } => Some(("create", name.clone())),
        Action::Reassign { child, .. } => Some(("claim", child.key.name.clone())),
        Action::Prepare { child, .. } => Some(("prepare", child.key.name.clone())),
        Action::Fence { child, .. } => Some(("fence", child.key.name.clone())),
        Action::Release { child, .. } => Some(("release", child.key.name.clone())),
        Action::Recycle { child, .. } => Some(("recycle", child.key.name.clone())),
        _ => None,
    };
    planned.actions.iter().filter_map(name).collect()
}

pub(super) fn does(world: &World) -> Vec<(&'static str, String)> {
    done(&plan(&world.observed()))
}

pub(super) fn of<const N: usize>(all: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    all.map(|(what, name)| (what, name.to_owned())).into()
}

#[test]
fn a_buffer_fills_and_then_rests() {
    let mut world = wants(2);
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("make", ""), ("make", "")]));
    let names: Vec<String> = planned
        .actions
        .iter()
        .filter_map(|a| match a {
            Action::CreateForBuffer { name, .. } => Some(name.clone()),
            _ => None,
        })
        .collect();
    // What the cache does not show yet counts, and its place is taken.
    let mut observed = world.observed();
    observed.pending.made_for_buffer = [(names[0].clone(), None)].into();
    let again = plan(&observed);
    assert!(
        matches!(&again.actions[..], [Action::CreateForBuffer { name, .. }] if *name == names[1])
    );
    making(&mut world, &names[0], 0);
    ready(&mut world, "b", 0);
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), []);
    let count = BufferCount {
        wanted: 2,
        ready: 1,
        making: 1,
    };
    assert_eq!(planned.buffer, count);
}

#[test]
fn who_waits_gets_the_oldest_host_that_is_ready() {
    let mut world = wants(3);
    making(&mut world, "m", 0);
    ready(&mut world, "young", 20);
    ready(&mut world, "old", 10);
    asks(&mut world, "w-0");
    assert_eq!(does(&world), of([("claim", "old"), ("make", "")]));
    for name in ["w-1", "w-2", "w-3"] {
        asks(&mut world, name);
    }
    // One that comes up is better than a new one. All others are made anew, and the buffer is filled again.
    let all = [
        ("claim", "old"),
        ("claim", "young"),
        ("claim", "m"),
        ("create", "w-3"),
        ("make", ""),
        ("make", ""),
        ("make", ""),
    ];
    assert_eq!(does(&world), of(all));
}

/// The pool served another hosted cluster when the disk of its host was kept.
#[test]
fn a_host_with_the_data_of_another_hosted_cluster_is_not_claimed() {
    let mut world = wants(1);
    ready(&mut world, "old", 10);
    asks(&mut world, "w-0");
    assert_eq!(does(&world), of([("claim", "old"), ("make", "")]));
    let has_data = |world: &mut World| {
        let vm = vm_of(&mut world.children[0]);
        vm.generation = Some(2);
        vm.disk = Some(DiskStatus {
            generation: 2,
            handling: Some(ReleasedDisk::Keep),
            data_of: Some("clusters-before".to_owned()),
        });
    };
    has_data(&mut world);
    // It waits under the name of its new life.
    assert_eq!(does(&world), of([("create", "w-0"), ("prepare", "old")]));
    let planned = plan(&world.observed());
    let mut said = planned.waiting.iter();
    let said = said.find(|w| w.subject == "old" && w.reason == Reason::Retained);
    let message = said.map(|w| w.message.as_str()).unwrap_or_default();
    assert!(message.contains("another hosted cluster"), "{message}");
    // One that has left the buffer, and whose AgentMachine is gone.
    let mut world = World::discovered("w-1");
    world.agent_machines.clear();
    world.machines.clear();
    asks(&mut world, "w-0");
    assert_eq!(does(&world)[0], ("claim", "w-1".to_owned()));
    has_data(&mut world);
    assert_eq!(does(&world)[0], ("create", "w-0".to_owned()));
}

#[test]
fn a_host_that_serves_is_not_claimed_and_not_counted() {
    let mut world = wants(1);
    ready(&mut world, "a", 0);
    // Another control plane has claimed it.
    claim(
        &mut world.agents[0],
        &with(agent_machine("far"), |am| {
            am.metadata.namespace = Some("elsewhere".to_owned());
        }),
    );
    asks(&mut world, "w-0");
    assert_eq!(does(&world), of([("create", "w-0"), ("make", "")]));
    // That is over, and its disk is not empty any more.
    let mut world = wants(1);
    ready(&mut world, "a", 0);
    vm_of(&mut world.children[0]).served = Some(true);
    assert_eq!(does(&world), of([("make", ""), ("release", "a")]));
    asks(&mut world, "w-0");
    assert_eq!(does(&world), of([("create", "w-0"), ("make", "")]));
}

#[test]
fn vms_in_the_making_that_nobody_needs_come_into_the_buffer_first() {
    let mut world = World::discovered("w-0");
    world.pool.spec.scaling = wants(2).pool.spec.scaling;
    world.agent_machines.clear();
    world.machines.clear();
    assert_eq!(does(&world), of([("move", "w-0"), ("make", "")]));
    // While its Machine is there, no other one is made in its place, and it stays on record for that Machine.
    let mut leaving = World::discovered("w-0");
    leaving.pool.spec.scaling = world.pool.spec.scaling.clone();
    leaving.machines[0].deleting = true;
    delete(&mut leaving.agent_machines[0]);
    let planned = plan(&leaving.observed());
    assert_eq!(done(&planned), of([("make", "")]));
    assert_eq!(planned.buffer.making, 1);
    // Nothing is missing, but the buffer has room.
    world.pool.spec.scaling = wants(0).pool.spec.scaling;
    scaling(&mut world).buffer_max = Some(1);
    assert_eq!(does(&world), of([("move", "w-0")]));
    // One that is not as the pool wants it does not come.
    vm_of(&mut world.children[0]).hardware_drift = vec![Default::default()];
    assert_eq!(does(&world), []);
    vm_of(&mut world.children[0]).hardware_drift.clear();
    world.pool.spec.scaling = None;
    assert_eq!(does(&world), [], "it is offered for a moment");
}

/// One that is about to come does not take the place of one that comes, nor of one that served.
#[test]
fn one_whose_machine_is_leaving_takes_no_room() {
    let mut world = World::discovered("w-0");
    world.machines[0].deleting = true;
    delete(&mut world.agent_machines[0]);
    let other = child_with_vm("w-1");
    world.agents.push(agent_on(&other));
    world.children.push(other);
    world.pool.spec.scaling = wants(1).pool.spec.scaling;
    assert_eq!(does(&world), of([("move", "w-1")]));
    vm_of(&mut world.children[1]).served = Some(true);
    vm_of(&mut world.children[1]).vm_path = Some("[ds1] w-1/w-1.vmx".to_owned());
    world.pool.spec.release = Some(ReleaseSpec {
        policy: Some(ReleasePolicy::Recycle),
        ..ReleaseSpec::default()
    });
    scaling(&mut world).buffer_max = Some(1);
    assert_eq!(does(&world), of([("recycle", "w-1")]));
}

/// A pool whose InfraEnv makes no hosts for NodePools takes none into its buffer.
#[test]
fn no_vm_comes_into_a_buffer_that_is_refused() {
    let mut world = World::discovered("w-0");
    world.pool.spec.scaling = wants(1).pool.spec.scaling;
    world.agent_machines.clear();
    world.machines.clear();
    assert_eq!(does(&world), of([("move", "w-0")]));
    let mut observed = world.observed();
    let infra_env = observed.infra_env.as_mut().map(Arc::make_mut);
    infra_env.expect("an InfraEnv").spec.cluster_ref = Some(Default::default());
    assert_eq!(done(&plan(&observed)), []);
}

#[test]
fn what_is_too_many_goes_by_the_policy_after_a_fence() {
    let mut world = wants(1);
    ready(&mut world, "old", 0);
    ready(&mut world, "mid", 10);
    ready(&mut world, "new", 20);
    assert_eq!(
        does(&world),
        of([("release", "mid"), ("release", "old")])
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    scaling(&mut world).delete_policy = Some(DeletePolicy::Newest);
    assert_eq!(does(&world), of([("release", "mid"), ("release", "new")]));
    scaling(&mut world).buffer_max = Some(2);
    assert_eq!(does(&world), of([("release", "new")]));
    scaling(&mut world).buffer_max = Some(3);
    assert_eq!(does(&world), []);
    delete(&mut world.pool);
    let all = does(&world);
    assert_eq!(all.iter().filter(|(what, _)| *what == "release").count(), 3);
}

#[test]
fn an_old_host_is_replaced_alone() {
    let mut world = wants(2);
    scaling(&mut world).buffer_max_age = Some("5m".to_owned());
    ready(&mut world, "a", 0);
    ready(&mut world, "b", 100);
    // All objects are 600 s old or younger.
    assert_eq!(does(&world), of([("release", "a")]));
    delete(&mut world.children[0]);
    assert_eq!(
        does(&world),
        of([("make", "")]),
        "b stays until there are two again"
    );
    making(&mut world, "c", 590);
    assert_eq!(does(&world), []);
    scaling(&mut world).buffer_max_age = Some("10h".to_owned());
    world.children.remove(2);
    world.children.remove(0);
    scaling(&mut world).buffer_agents = Some(1);
    let planned = plan(&world.observed());
    assert_eq!(planned.again, Some(Duration::from_secs(36_000 - 500)));
}

#[test]
fn a_host_that_people_keep_holds_its_place_and_another_one_is_replaced() {
    let mut world = wants(2);
    scaling(&mut world).buffer_max_age = Some("5m".to_owned());
    ready(&mut world, "a", 0);
    ready(&mut world, "b", 100);
    world.pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), []);
    assert_eq!(planned.buffer.ready, 2);
    world.pool.spec.cleanup_policy = None;
    let marks = world.children[0].annotations_mut();
    marks.insert(SKIP_DELETE_ANNOTATION.to_owned(), "true".to_owned());
    // Its record goes, and the VM stays.
    assert_eq!(does(&world), of([("release", "a")]));
    world.pool.spec.release = Some(ReleaseSpec {
        policy: Some(ReleasePolicy::Recycle),
        ..ReleaseSpec::default()
    });
    assert_eq!(does(&world), of([("release", "b")]));
}

#[test]
fn an_outdated_host_is_claimed_last_and_replaced_alone() {
    let changes: [fn(&mut World); 3] = [
        |w| w.pool.spec.template.num_cpus = Some(32),
        |w| {
            for (child, booted) in w.children.iter_mut().zip([1, 2]) {
                vm_of(child).iso_created = Some(Time(at(booted)));
            }
            let status = w.pool.status.get_or_insert_default();
            status.iso.get_or_insert_default().image = Some(ImageStatus {
                content_since: Some(Time(at(2))),
                ..ImageStatus::default()
            });
        },
        |w| {
            let vm = vm_of(&mut w.children[0]);
            vm.infra_env_ref = Some(ObjectReference {
                namespace: Some("demo".to_owned()),
                name: Some("infra".to_owned()),
                uid: Some("another".to_owned()),
                ..ObjectReference::default()
            });
        },
    ];
    for change in changes {
        let mut world = wants(2);
        ready(&mut world, "a", 0);
        record_hardware(&mut world);
        ready(&mut world, "b", 100);
        assert_eq!(does(&world), []);
        change(&mut world);
        assert_eq!(does(&world), of([("release", "a")]));
        asks(&mut world, "w-0");
        let all = does(&world);
        assert!(all.contains(&("claim", "b".to_owned())), "{all:?}");
        world.agent_machines.clear();
        delete(&mut world.children[1]);
        let all = does(&world);
        assert!(all.iter().all(|(what, _)| *what == "make"), "{all:?}");
    }
}

/// The disk of the VM stayed when its second life began.
pub(super) fn keep_disk(child: &mut VsphereAgent, handling: ReleasedDisk) {
    let vm = vm_of(child);
    vm.generation = Some(2);
    vm.may_serve = Some("2/no".to_owned());
    vm.disk = Some(DiskStatus {
        generation: 2,
        handling: Some(handling),
        data_of: Some(CONTROL_PLANE.to_owned()),
    });
}

/// Neither another template nor its age ends a host that has data. People see why, and a smaller buffer of theirs ends it.
#[test]
fn a_host_with_a_kept_disk_is_not_replaced_for_its_template_or_age() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 2] = [
        ("template", |w| w.pool.spec.template.num_cpus = Some(32)),
        ("age", |w| {
            scaling(w).buffer_max_age = Some("5m".to_owned());
        }),
    ];
    let releases = |world: &World| {
        let all = does(world).into_iter();
        all.filter(|(what, _)| *what == "release")
            .collect::<Vec<_>>()
    };
    for (what, change) in changes {
        let mut world = wants(2);
        ready(&mut world, "a", 0);
        record_hardware(&mut world);
        ready(&mut world, "b", 590);
        change(&mut world);
        assert_eq!(releases(&world), of([("release", "a")]));
        keep_disk(&mut world.children[0], ReleasedDisk::Replace);
        world.agents[0].spec.hostname = Some("a-2".to_owned());
        assert_eq!(releases(&world), of([("release", "a")]));
        keep_disk(&mut world.children[0], ReleasedDisk::Keep);
        let planned = plan(&world.observed());
        assert!(
            done(&planned).iter().all(|(what, _)| *what != "release"),
            "{what}: {:?}",
            done(&planned)
        );
        let mut said = planned.waiting.iter().filter(|w| w.subject == "a");
        let said = said.next().map(|w| (w.reason.clone(), w.message.clone()));
        let (reason, message) = said.expect("people see why");
        assert_eq!(reason, Reason::Retained);
        assert!(message.contains("delete this VsphereAgent"), "{message}");
        // The next one is replaced all the same.
        vm_of(&mut world.children[1]).template = vm_of(&mut world.children[0]).template.clone();
        world.children[1].metadata.creation_timestamp = Some(Time(at(1)));
        assert_eq!(releases(&world), of([("release", "b")]), "{what}");
        scaling(&mut world).buffer_agents = Some(1);
        let all = releases(&world);
        assert!(all.contains(&("release", "a".to_owned())), "{all:?}");
    }
}

#[test]
fn limits_and_guards_hold_back_what_the_buffer_lacks() {
    let mut world = wants(3);
    scaling(&mut world).max_vms = Some(2);
    asks(&mut world, "w-0");
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("create", "w-0"), ("make", "")]));
    let said = |planned: &Plan| {
        let mut all = planned.waiting.iter().filter(|w| w.subject == "buffer");
        all.next().map(|w| (w.reason.clone(), w.message.clone()))
    };
    let words = "spec.scaling.maxVMs is 2, and the pool has 2 VMs, including those that are being removed; hosts that the \
                 buffer lacks: 2";
    assert_eq!(
        said(&planned),
        Some((Reason::CreateCapReached, words.to_owned()))
    );
    let mut observed = wants(1).observed();
    let infra_env = observed.infra_env.as_mut().expect("an InfraEnv");
    Arc::make_mut(infra_env).spec.cluster_ref = Some(NamespacedName {
        name: "demo".to_owned(),
        namespace: "demo".to_owned(),
    });
    let planned = plan(&observed);
    assert_eq!(done(&planned), []);
    assert_eq!(
        said(&planned).map(|s| s.0),
        Some(Reason::LateBindingUnavailable)
    );
    let mut world = wants(1);
    scaling(&mut world).buffer_max_age = Some("soon".to_owned());
    let planned = plan(&world.observed());
    assert_eq!(done(&planned), of([("make", "")]));
    assert_eq!(said(&planned).map(|s| s.0), Some(Reason::InvalidSpec));
}

#[test]
fn an_agent_in_the_buffer_is_named_and_approved_and_keeps_its_name_when_it_is_claimed() {
    let mut world = wants(1);
    let child = making(&mut world, "a", 0);
    world.agents.push(agent_on(&child));
    assert_eq!(does(&world), of([("prepare", "a")]));
    let mut world = wants(0);
    ready(&mut world, "a", 0);
    asks(&mut world, "w-0");
    // The claim is on record.
    let host = ManagedVm::read(Arc::new(world.children[0].clone()));
    let claim = act::reassignment(&host, &world.agent_machines[0], Some(&world.machines[0]));
    testing::patch(&mut world.children[0], &claim);
    let pin = with(selector_of(&world), |s| {
        s.insert(AGENT_MACHINE_LABEL.to_owned(), "w-0".to_owned());
    });
    let am = world.agent_machines[0]
        .spec
        .agent_label_selector
        .get_or_insert_default();
    am.match_labels = Some(pin);
    let claims = |a: &Action| matches!(a, Action::Prepare { .. });
    let before = plan(&world.observed()).actions;
    assert!(!before.iter().any(claims), "the VM does not say so yet");
    let says = format!("1/{}", world.agent_machines[0].uid().expect("a uid"));
    let status = world.children[0].status.as_mut().expect("a status");
    status.vm.as_mut().expect("a VM").may_serve = Some(says);
    let planned = plan(&world.observed());
    let patch = planned.actions.iter().find_map(|a| match a {
        Action::Prepare { patch, .. } => Some(patch),
        _ => None,
    });
    let patch = patch.expect("a claim");
    assert!(patch.labels.contains_key(AGENT_MACHINE_LABEL));
    assert_eq!(
        (&patch.hostname, &patch.role, patch.approved),
        (&None, &None, None)
    );
}

fn selector_of(world: &World) -> std::collections::BTreeMap<String, String> {
    let selector = world.agent_machines[0].spec.agent_label_selector.clone();
    selector.and_then(|s| s.match_labels).unwrap_or_default()
}
