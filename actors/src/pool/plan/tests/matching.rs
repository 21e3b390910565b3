//! Which host each one gets, by the order in which they ask and by what is left.

use std::sync::Arc;

use agent_forge_crds::pool::ScalingSpec;

use crate::{
    demand::lending::Offer,
    domain::managed_vm::ManagedVm,
    pool::plan::{
        caps::Room,
        matching::{Asker, Assigned, Supply},
    },
    testing::{World, buffered, lender},
};

const NEW: Asker = Asker::Place { may_be_new: true };
const OLD: Asker = Asker::Place { may_be_new: false };

const fn machine(uid: &str) -> Asker<'_> {
    Asker::Machine { uid, begun: false }
}

/// What each one gets: the name of a host, or a word.
fn assign(mut supply: Supply, askers: &[Asker]) -> Vec<String> {
    let given = askers.iter().map(|asker| match supply.assign(*asker) {
        Assigned::Own(host) => host.key.name.clone(),
        Assigned::OfGroup(host) => host.child.key.name.clone(),
        other => format!("{other:?}"),
    });
    given.collect()
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
    let askers = ["a", "b", "c", "d", "e"].map(machine);
    assert_eq!(
        assign(hosts.supply(), &askers),
        ["own-1", "own-0", "far-1", "far-0", "New"]
    );
}

#[test]
fn what_a_write_may_have_done_is_not_done_twice() {
    let hosts = hosts();
    let begun = Asker::Machine {
        uid: "a",
        begun: true,
    };
    assert_eq!(assign(hosts.supply(), &[begun]), ["New"]);
    // Nobody knows whether b got far-1, and whether c got a host that is not free any more.
    let far = hosts.group[1].child.uid.clone();
    let unsure = [("b", far.as_str()), ("c", "gone")];
    let unsure = unsure.map(|(am, uid)| (am.to_owned(), uid.to_owned()));
    let supply = Supply {
        own: Vec::new(),
        unsure: unsure.clone().into(),
        ..hosts.supply()
    };
    let askers = ["a", "b", "c", "d"].map(machine);
    assert_eq!(assign(supply, &askers), ["far-0", "far-1", "Unsure", "New"]);
    let supply = Supply {
        unsure: unsure.into(),
        ..hosts.supply()
    };
    assert_eq!(assign(supply, &askers[1..2]), ["far-1"]);
}

#[test]
fn a_place_in_the_buffer_gets_no_ready_host_and_none_of_another_pool() {
    let hosts = hosts();
    let [spare, _] = &hosts.own;
    let supply = Supply {
        for_buffer: vec![spare],
        coming: 1,
        ..hosts.supply()
    };
    let given = assign(supply, &[NEW, NEW, NEW, OLD]);
    assert_eq!(given, ["own-0", "Comes", "New", "Nothing"]);
}

#[test]
fn the_limits_leave_to_the_buffer_what_no_agent_machine_needs() {
    let hosts = hosts();
    let mut world = World::default();
    world.pool.spec.scaling = Some(ScalingSpec {
        max_vms: Some(2),
        ..ScalingSpec::default()
    });
    let supply = || Supply {
        own: Vec::new(),
        room: Room::of(&world.observed()),
        ..hosts.supply()
    };
    let both = [machine("a"), NEW, NEW];
    assert_eq!(assign(supply(), &both), ["far-1", "New", "AtLimit"]);
    let askers = ["a", "b", "c"].map(machine);
    assert_eq!(assign(supply(), &askers), ["far-1", "far-0", "AtLimit"]);
}
