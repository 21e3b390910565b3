use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    pool::{plan::plan, report::waits},
    testing::{AGE, CONTROL_PLANE, World, agent_on, at, child, child_with_vm, reserve},
};

/// One pool that is looked at again and again.
#[derive(Default)]
struct Desk(Unanswered);

impl Desk {
    /// The world as it is `second` seconds after the first look.
    fn look(&mut self, world: &World, second: u64) -> Export {
        let mut s = world.observed();
        s.now += Duration::from_secs(second);
        let gone = SignedDuration::from_secs(i64::try_from(second).expect("short"));
        s.wall = s.wall.checked_add(gone).expect("in range");
        let plan = plan(&s);
        let waits = waits::waits(&s, &plan);
        self.0.look(&s, &plan, &waits)
    }
}

/// An AgentMachine that waits until another pool releases it.
fn contested() -> World {
    let mut world = World::waiting(&["a"]);
    let mut other = world.pool.clone();
    other.metadata.name = Some("other".to_owned());
    world.other_pools.push(other);
    world
}

fn ended(end: i64, served: bool) -> Vec<Ended> {
    vec![Ended {
        agent_machine: ObjectKey::new(CONTROL_PLANE, "a"),
        uid: "am-a".to_owned(),
        demanded: at(0),
        end: at(end),
        served,
    }]
}

#[test]
fn one_that_is_deleted_while_it_waits_is_told_once_with_its_deletion() {
    let (mut desk, mut world) = (Desk::default(), contested());
    assert_eq!(desk.look(&world, 0), Export::default());
    assert_eq!(desk.look(&world, 7200), Export::default(), "it waits");
    world.agent_machines[0].metadata.deletion_timestamp = Some(Time(at(AGE + 7210)));
    assert_eq!(desk.look(&world, 7213).again, Some(GRACE));
    world.agent_machines.clear();
    assert_eq!(desk.look(&world, 7250).ended, []);
    assert_eq!(desk.look(&world, 7273).ended, ended(AGE + 7210, false));
    assert_eq!(desk.look(&world, 7274), Export::default(), "once");
    // Until then another pool may export the same.
    assert_eq!(desk.look(&world, 7333).forgotten, ["am-a"]);
    assert_eq!(desk.look(&world, 7400), Export::default());
}

#[test]
fn one_that_is_gone_unseen_ended_when_that_was_noticed() {
    let (mut desk, mut world) = (Desk::default(), contested());
    desk.look(&world, 0);
    world.agent_machines.clear();
    desk.look(&world, 50);
    assert_eq!(desk.look(&world, 110).ended, ended(AGE + 50, false));
}

#[test]
fn one_that_gets_a_host_from_elsewhere_came_to_something() {
    let (mut desk, mut world) = (Desk::default(), contested());
    desk.look(&world, 0);
    let agent = agent_on(&child_with_vm("elsewhere"));
    reserve(&mut world.agent_machines[0], &agent);
    desk.look(&world, 10);
    assert_eq!(desk.look(&world, 70).ended, ended(AGE + 10, true));
    world.agent_machines.clear();
    assert_eq!(desk.look(&world, 300).ended, [], "once");
}

#[test]
fn of_one_that_has_or_had_a_vsphere_agent_that_one_tells() {
    let (mut desk, mut world) = (Desk::default(), contested());
    desk.look(&world, 0);
    // Its VsphereAgent appears only after its AgentMachine is gone: the reply to the create was lost.
    let machines = std::mem::take(&mut world.agent_machines);
    desk.look(&world, 10);
    world.children = vec![child("a")];
    desk.look(&world, 30);
    world.children.clear();
    assert_eq!(desk.look(&world, 200), Export::default());
    // The same with a VsphereAgent that was deleted before its AgentMachine.
    let (mut desk, mut world) = (Desk::default(), contested());
    world.agent_machines = machines;
    world.children = vec![child("a")];
    desk.look(&world, 0);
    world.children.clear();
    desk.look(&world, 10);
    world.agent_machines.clear();
    desk.look(&world, 20);
    assert_eq!(desk.look(&world, 200), Export::default());
}

#[test]
fn what_is_first_seen_as_it_goes_is_not_told() {
    let (mut desk, mut world) = (Desk::default(), contested());
    world.agent_machines[0].metadata.deletion_timestamp = Some(Time(at(AGE)));
    desk.look(&world, 0);
    world.agent_machines.clear();
    assert_eq!(desk.look(&world, 100), Export::default());
}

#[test]
fn what_another_pool_takes_over_is_its_to_tell() {
    let (mut desk, mut world) = (Desk::default(), contested());
    desk.look(&world, 0);
    world.agent_machines[0].metadata.annotations = None;
    world.agent_machines[0].spec.agent_label_selector = None;
    desk.look(&world, 10);
    world.agent_machines.clear();
    assert_eq!(desk.look(&world, 200), Export::default());
}
