//! Both sides of each edge in the plan. The edges are about deleted pools, the machine that a VM serves, free names,
//! and the Agents to ask.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agent_forge_crds::{conditions::Reason, names::FORCE_DELETE_ANNOTATION, pool::HeldSecret};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use crate::{
    domain::{managed_vm::ManagedVm, names::ObjectKey},
    pool::{
        observed::Home,
        plan::{Action, agents_to_ask, plan},
    },
    testing::{
        CONTROL_PLANE, NAMESPACE, World, agent_machine, agent_on, child, claim, delete, machine,
        reserve, with,
    },
};

/// Kinds of the actions, in their order.
fn done(world: &World) -> Vec<&'static str> {
    let name = |action: &Action| match action {
        Action::AddFinalizer => "add finalizer",
        Action::Close => "close",
        Action::Pin { .. } => "pin",
        Action::CreateChild { .. } => "create",
        Action::Take { .. } => "take",
        Action::Bring { .. } => "bring",
        Action::CreateForBuffer { .. } => "create for buffer",
        Action::MoveToBuffer { .. } => "move to buffer",
        Action::Recycle { .. } => "recycle",
        Action::Reassign { .. } => "reassign",
        Action::Prepare { .. } => "prepare",
        Action::Fence { .. } => "fence",
        Action::Release { .. } => "release",
        Action::RemoveFinalizer => "remove finalizer",
    };
    plan(&world.observed()).actions.iter().map(name).collect()
}

#[test]
fn a_pool_goes_when_it_is_closed_empty_and_holds_nothing() {
    type Change = fn(&mut World);
    let table: [(&str, Change, &[&str]); 7] = [
        (
            "it stays",
            |w| w.pool.metadata.deletion_timestamp = None,
            &[],
        ),
        ("it is closed first", |w| w.pool.status = None, &["close"]),
        (
            "that was not said",
            |w| w.pool.status.get_or_insert_default().closed = Some(false),
            &["close"],
        ),
        ("then it goes", |_| {}, &["remove finalizer"]),
        (
            "not before its VsphereAgents",
            |w| w.children = vec![with(child("a"), delete)],
            &[],
        ),
        (
            "nor while it holds a Secret",
            |w| {
                let held = HeldSecret {
                    name: "vcenter".to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    held: false,
                };
                w.pool.status.get_or_insert_default().held_secrets = vec![held];
            },
            &[],
        ),
        (
            "it is ours no more",
            |w| w.pool.metadata.finalizers = None,
            &[],
        ),
    ];
    for (what, change, actions) in table {
        let mut world = World::default();
        delete(&mut world.pool);
        world.pool.status.get_or_insert_default().closed = Some(true);
        change(&mut world);
        assert_eq!(done(&world), actions, "{what}");
    }
    let unmarked = with(World::default(), |w| w.pool.metadata.finalizers = None);
    assert_eq!(done(&unmarked), ["add finalizer"]);
}

#[test]
fn the_record_follows_the_agent_to_whom_it_serves() {
    for (name, actions) in [("a", &[][..]), ("b", &["reassign"])] {
        let mut world = World::discovered("a");
        world.agent_machines.push(agent_machine("b"));
        world.machines.push(machine("b"));
        let at = world
            .agent_machines
            .iter()
            .position(|am| am.name_any() == name);
        let served = &mut world.agent_machines[at.expect("there")];
        world.agents[0].spec.approved = true;
        claim(&mut world.agents[0], served);
        reserve(served, &world.agents[0]);
        world.agent_machines.retain(|am| am.name_any() == name);
        assert_eq!(done(&world), actions, "{name}");
        assert_eq!(plan(&world.observed()).waiting, [], "{name}");
    }
}

#[test]
fn a_vm_takes_the_name_of_who_waits_unless_somebody_has_it() {
    let name = |world: &World| {
        let plan = plan(&world.observed());
        plan.actions.iter().find_map(|action| match action {
            Action::CreateChild { name, .. } => Some(name.clone()),
            _ => None,
        })
    };
    let mut world = World::waiting(&["a", "x"]);
    world.children = vec![child("x")];
    assert_eq!(name(&world).as_deref(), Some("a"));
    world.children[0].metadata.name = Some("a".to_owned());
    assert_eq!(name(&world).as_deref(), Some("a-ama"));
}

#[test]
fn who_may_run_there_and_who_was_seen_there_is_asked() {
    let asked = |world: &World| {
        let s = world.observed();
        agents_to_ask(&s, &s.children[0])
    };
    let mut world = World::discovered("a");
    let there = ObjectKey::of(&world.agents[0]);
    let uuid = ManagedVm::read(Arc::new(world.children[0].clone())).identity;
    let uuid = uuid.expect("recorded").bios_uuid;
    // Each name in each namespace where an Agent may be, whatever the cache shows.
    let named = |namespaces: &[&str]| -> BTreeSet<ObjectKey> {
        let names = [uuid, uuid.swapped()].map(|u| u.to_string());
        let of = |n: &&str| names.clone().map(|name| ObjectKey::new(*n, name));
        namespaces.iter().flat_map(of).collect()
    };
    assert!(asked(&world).contains(&there));
    assert_eq!(asked(&world), named(&[NAMESPACE, CONTROL_PLANE]));
    let status = world.children[0].status.as_mut();
    let vm = status.and_then(|s| s.vm.as_mut()).expect("a VM");
    let agent_ref = vm.agent_ref.get_or_insert_default();
    agent_ref.namespace = Some("before".to_owned());
    agent_ref.name = Some("x".to_owned());
    let mut all = named(&[NAMESPACE, CONTROL_PLANE, "before"]);
    all.insert(ObjectKey::new("before", "x"));
    assert_eq!(asked(&world), all);
    world.agents.clear();
    assert_eq!(asked(&world), all);
}

/// The first reason for which that VsphereAgent waits.
fn waits_for(plan: &crate::pool::plan::Plan) -> Option<Reason> {
    let mut waits = plan.waiting.iter().filter(|w| w.subject == "a");
    waits.next().map(|w| w.reason.clone())
}

#[test]
fn a_vm_whose_machine_vanished_is_neither_fenced_nor_let_go_unless_a_person_wants_it() {
    type Change = fn(&mut World);
    let held = Some(Reason::MachineVanishedPaused);
    let table: [(&str, Change, &[&str], Option<Reason>); 6] = [
        ("its Agent is bound yet", |_| {}, &[], held.clone()),
        ("its Agent is gone", |w| w.agents.clear(), &[], held),
        (
            "a person forces a deletion that nobody has asked for",
            |w| {
                w.agents.clear();
                let forced = (FORCE_DELETE_ANNOTATION.to_owned(), "true".to_owned());
                w.children[0].annotations_mut().extend([forced]);
            },
            &[],
            Some(Reason::MachineVanishedPaused),
        ),
        (
            "its Agent was set free",
            |w| {
                let agent = agent_on(&w.children[0]);
                w.agents = vec![with(agent, |a| a.spec.approved = true)];
            },
            &["release"],
            None,
        ),
        (
            "it never served",
            |w| {
                w.agents.clear();
                vm(w).served = None;
            },
            &["release"],
            None,
        ),
        (
            "it was never paused",
            |w| {
                w.agents.clear();
                vm(w).agent_machine_paused = None;
            },
            &["release"],
            None,
        ),
    ];
    for (what, change, actions, why) in table {
        let mut world = World::discovered("a");
        claim(&mut world.agents[0], &world.agent_machines[0]);
        world.agents[0].spec.approved = true;
        world.agent_machines.clear();
        world.machines.clear();
        world.waited = Duration::from_secs(60);
        vm(&mut world).served = Some(true);
        vm(&mut world).agent_machine_paused = Some(true);
        change(&mut world);
        assert_eq!(done(&world), actions, "{what}");
        assert_eq!(waits_for(&plan(&world.observed())), why, "{what}");
    }
}

fn vm(world: &mut World) -> &mut agent_forge_crds::agent::VmStatus {
    let status = world.children[0].status.as_mut();
    status.and_then(|s| s.vm.as_mut()).expect("a VM")
}

/// `spec.controlPlaneNamespace` was changed. The Machine is where it was.
#[test]
fn a_vm_of_another_control_plane_is_kept_until_its_machine_there_is_gone() {
    let mut world = World::discovered("a");
    world.agents.clear();
    world.waited = Duration::from_secs(60);
    let home = Home {
        agent_machines: vec![Arc::new(agent_machine("a"))],
        machines: vec![Arc::new(machine("a"))],
    };
    vm(&mut world).agent_machine_ref = Some(ObjectReference {
        namespace: Some("before".to_owned()),
        uid: agent_machine("a").uid(),
        ..ObjectReference::default()
    });
    world.agent_machines.clear();
    world.machines.clear();
    let does = |homes: &[(&str, &Home)]| {
        let mut observed = world.observed();
        let homes = homes.iter();
        observed.recorded_homes = homes
            .map(|(name, home)| ((*name).to_owned(), (*home).clone()))
            .collect();
        let plan = plan(&observed);
        (plan.actions.len(), waits_for(&plan))
    };
    let unknown = Some(Reason::MachineStateUnknown);
    assert_eq!(
        does(&[("before", &home)]),
        (0, unknown.clone()),
        "it lives there"
    );
    assert_eq!(does(&[]), (0, unknown), "that namespace is not served");
    assert_eq!(does(&[("before", &Home::default())]), (1, None), "gone");
}
