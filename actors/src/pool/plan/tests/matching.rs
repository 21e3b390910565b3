//! Which host each one gets, by the order in which they ask and by what is left.

use std::sync::Arc;

use agent_forge_crds::pool::ScalingSpec;

use crate::{
    demand::lending::Offer,
    domain::managed_vm::ManagedVm,
    placement::request,
    pool::plan::{
        caps::Room,
        matching::{ForMachine, ForPlace, Supply, Want},
    },
    testing::{World, buffered, lender},
};

/// What AgentMachines of these uids get, and then places in the buffer: the name of a host, or a word. `places`: whether a VM may
/// be made for each.
fn assign(mut supply: Supply, machines: &[&str], places: &[bool]) -> Vec<String> {
    let mut given: Vec<String> = Vec::new();
    let want = Want {
        hardware: request::hardware(&World::default().pool).ok(),
        ..Want::default()
    };
    for uid in machines {
        given.push(match supply.for_machine(uid, &want) {
            ForMachine::Own(host) => host.key.name.clone(),
            ForMachine::OfGroup(host) => host.child.key.name.clone(),
            ForMachine::New => "new".to_owned(),
            ForMachine::AtLimit(_) => "limit".to_owned(),
            ForMachine::Unsure => "unsure".to_owned(),
        });
    }
    for may_be_new in places {
        given.push(match supply.for_place(None, *may_be_new) {
            Some(ForPlace::Own(host)) => host.key.name.clone(),
            Some(ForPlace::New(name)) => name.unwrap_or_else(|| "new".to_owned()),
            Some(ForPlace::AtLimit(_)) => "limit".to_owned(),
            Some(ForPlace::Comes) => "comes".to_owned(),
            None => "none".to_owned(),
        });
    }
    given
}

struct Hosts {
    own: [ManagedVm; 2],
    group: Vec<Offer>,
}

fn hosts() -> Hosts {
    let world = World::default();
    Hosts {
        own: ["own-0", "own-1"].map(|name| ManagedVm::read(Arc::new(buffered(name)))),
        group: lender(&world, &["far-0", "far-1"].map(buffered)).hosts,
    }
}

impl Hosts {
    fn supply(&self) -> Supply<'_> {
        Supply {
            own: self.own.iter().collect(),
            of_group: self.group.iter().collect(),
            ..Supply::default()
        }
    }
}

#[test]
fn each_one_that_asks_gets_another_host_and_own_ones_go_first() {
    let hosts = hosts();
    let machines = ["a", "b", "c", "d", "e"];
    let given = assign(hosts.supply(), &machines, &[]);
    assert_eq!(given, ["own-1", "own-0", "far-1", "far-0", "new"]);
}

#[test]
fn what_a_write_may_have_done_is_not_done_twice() {
    let hosts = hosts();
    let supply = Supply {
        begun: ["a".to_owned()].into(),
        begun_places: [("w-buffer-0".to_owned(), None)].into(),
        ..hosts.supply()
    };
    let given = assign(supply, &["a"], &[false, true, true]);
    assert_eq!(given, ["new", "none", "w-buffer-0", "new"]);
    // Nobody knows whether b got far-1, and whether c got a host that is not free any more.
    let far = hosts.group[1].child.uid.clone();
    let unsure = [("b", far.as_str()), ("c", "gone")];
    let unsure = unsure.map(|(am, uid)| (am.to_owned(), uid.to_owned()));
    let supply = Supply {
        own: Vec::new(),
        unsure: unsure.clone().into(),
        ..hosts.supply()
    };
    let given = assign(supply, &["a", "b", "c", "d"], &[]);
    assert_eq!(given, ["far-0", "far-1", "unsure", "new"]);
    let supply = Supply {
        unsure: unsure.into(),
        ..hosts.supply()
    };
    assert_eq!(assign(supply, &["b"], &[]), ["far-1"]);
}

#[test]
fn a_place_in_the_buffer_gets_no_ready_host_and_none_of_another_pool() {
    let hosts = hosts();
    let supply = Supply {
        spare: vec![&hosts.own[0]],
        coming: vec![&hosts.own[1]],
        ..hosts.supply()
    };
    let given = assign(supply, &[], &[true, true, true, false]);
    assert_eq!(given, ["own-0", "comes", "new", "none"]);
}

#[test]
fn limits_leave_to_the_buffer_what_no_agent_machine_needs_and_count_what_may_be_there() {
    let hosts = hosts();
    let supply = |vms: Option<i32>, provisioning: Option<i32>, begun: bool| {
        let mut world = World::default();
        world.pool.spec.scaling = Some(ScalingSpec {
            max_vms: vms,
            max_provisioning: provisioning,
            ..ScalingSpec::default()
        });
        let mut observed = world.observed();
        let begun = begun.then(|| "z".to_owned());
        observed.pending.begun = begun.into_iter().collect();
        Supply {
            own: Vec::new(),
            begun: observed.pending.begun.clone(),
            room: Room::of(&observed),
            ..hosts.supply()
        }
    };
    let two = || supply(Some(2), None, false);
    assert_eq!(
        assign(two(), &["a"], &[true, true]),
        ["far-1", "new", "limit"]
    );
    assert_eq!(
        assign(two(), &["a", "b", "c"], &[]),
        ["far-1", "far-0", "limit"]
    );
    // The host that may have been made for z takes room, whoever asks first. It may be asked for again.
    let given = assign(supply(Some(2), None, true), &["a", "b", "z"], &[]);
    assert_eq!(given, ["far-1", "limit", "new"]);
    // The Agents of hosts of the group have registered.
    let given = assign(supply(None, Some(1), true), &["a", "b", "c"], &[]);
    assert_eq!(given, ["far-1", "far-0", "limit"]);
}

/// `spec.reassign.maxPerNamespace` of a maker, and what may be of it already.
#[test]
fn a_maker_gives_no_more_than_is_left_for_the_namespace() {
    let limited = |left: usize, arriving: usize| {
        let mut hosts = hosts();
        for host in &mut hosts.group {
            host.left = Some(left);
        }
        let supply = Supply {
            own: Vec::new(),
            arriving,
            ..hosts.supply()
        };
        assign(supply, &["a", "b", "c"], &[])
    };
    assert_eq!(limited(3, 0), ["far-1", "far-0", "new"]);
    assert_eq!(limited(1, 0), ["far-1", "new", "new"]);
    assert_eq!(limited(2, 1), ["far-1", "new", "new"]);
    assert_eq!(limited(0, 0), ["new", "new", "new"]);
}
