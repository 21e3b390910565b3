//! The plan uses an index to find Agents. These tests compare its decisions with those of a search through all Agents.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{external::agent::Agent, names::AGENT_MACHINE_LABEL};
use kube::ResourceExt;
use proptest::prelude::*;

use super::properties::{NAMES, lot, world};
use crate::{
    demand::prepare,
    domain::{belonging, identity::BiosUuid, names::ObjectKey},
    pool::{plan::plan, status},
    supervisor::routing::{ActorKey, AgentNews, Change, route},
    testing::{self, World, agent_machine, agent_on, child_with_vm, claim, foreign_agent, reserve},
    vm::testing::hub::Hub,
    world::agents_home,
};

/// A host that may or may not belong to machine `of` of the world.
#[derive(Clone, Copy, Debug)]
struct Stray {
    of: usize,
    /// How it names that machine's VM. 1: as its guest does. 2: in the other byte order. 3: by its serial number alone.
    /// 4: as its guest, with another serial number.
    names: u8,
    has_hostname: bool,
    /// Claimed by that AgentMachine, or by one of that name in another namespace.
    claimed: bool,
    elsewhere: bool,
    approved: bool,
    labelled: bool,
    pinned: bool,
    deleting: bool,
    /// The AgentMachine names it.
    chosen: bool,
    same_mac: bool,
}

fn stray() -> impl Strategy<Value = Stray> {
    let flags = proptest::array::uniform9(prop::bool::weighted(0.4));
    (0..NAMES.len(), 0..7_u8, flags).prop_map(|(of, names, f)| Stray {
        of,
        names,
        has_hostname: f[0],
        claimed: f[1],
        elsewhere: f[2],
        approved: f[3],
        labelled: f[4],
        pinned: f[5],
        deleting: f[6],
        chosen: f[7],
        same_mac: f[8],
    })
}

impl Stray {
    /// The same host with one property changed.
    fn otherwise(mut self, what: usize) -> Self {
        let flags = [
            &mut self.has_hostname,
            &mut self.claimed,
            &mut self.elsewhere,
            &mut self.labelled,
            &mut self.pinned,
            &mut self.deleting,
            &mut self.same_mac,
        ];
        match flags.into_iter().nth(what) {
            Some(flag) => *flag = !*flag,
            None => self.approved = !self.approved,
        }
        self
    }

    fn agent(self, n: usize) -> Agent {
        let name = NAMES[self.of];
        let guest = agent_on(&child_with_vm(name));
        let vm = BiosUuid::parse(&guest.name_any()).expect("a uuid");
        let other = BiosUuid::derive("another", "machine", 1);
        let serial = |uuid: BiosUuid| format!("VMware-{}", uuid.to_string().replace('-', ""));
        let mut agent = foreign_agent(&match self.names {
            1 | 4 => vm.to_string(),
            2 => vm.swapped().to_string(),
            _ => format!("host-{n}"),
        });
        let status = agent.status.as_mut().expect("a status");
        let mut inventory = guest.status.and_then(|s| s.inventory).expect("reported");
        let vendor = inventory.system_vendor.as_mut().expect("a vendor");
        vendor.serial_number = match self.names {
            1 | 3 => Some(serial(vm.swapped())),
            4 => Some(serial(other)),
            _ => None,
        };
        if !self.same_mac {
            inventory.interfaces.truncate(1);
        }
        status.inventory = Some(inventory);
        agent.metadata.uid = Some(format!("stray-{n}"));
        if self.has_hostname {
            agent.spec.hostname = Some(name.to_owned());
        }
        agent.spec.approved = self.approved;
        let labels = agent.labels_mut();
        if self.labelled {
            labels.insert("customer".to_owned(), "example".to_owned());
        }
        if self.pinned {
            labels.insert(AGENT_MACHINE_LABEL.to_owned(), name.to_owned());
        }
        if self.claimed {
            let mut am = agent_machine(name);
            if self.elsewhere {
                am.metadata.namespace = Some("elsewhere".to_owned());
            }
            claim(&mut agent, &am);
        }
        if self.deleting {
            testing::delete(&mut agent);
        }
        agent
    }
}

/// Pins its AgentMachines, each to the host that is meant for it.
fn pinned(mut w: World) -> World {
    for am in &mut w.agent_machines {
        let pin = prepare::pin_value(am, false);
        let selector = am.spec.agent_label_selector.get_or_insert_default();
        let exact = selector.match_labels.get_or_insert_default();
        exact.insert(AGENT_MACHINE_LABEL.to_owned(), pin);
    }
    w
}

/// That world with these additional hosts. Its Agents have the order in which a cache shows them.
fn crowded(mut w: World, strays: &[Stray]) -> World {
    for (n, stray) in strays.iter().enumerate() {
        let agent = stray.agent(n);
        let mut ams = w.agent_machines.iter_mut();
        let am = ams.find(|am| am.name_any() == NAMES[stray.of]);
        if let Some(am) = am.filter(|_| stray.chosen) {
            reserve(am, &agent);
        }
        if !w.agents.iter().any(|a| a.name_any() == agent.name_any()) {
            w.agents.push(agent);
        }
    }
    w.agents.sort_by_key(|a| a.name_any());
    w
}

fn hub_of(w: &World) -> Hub {
    let hub = Hub::default();
    hub.with(|o| {
        o.pool = Some(w.pool.clone());
        o.others.clone_from(&w.children);
        o.agents.clone_from(&w.agents);
        o.agent_machines.clone_from(&w.agent_machines);
        o.machines.clone_from(&w.machines);
    });
    hub
}

/// The decision if all Agents are searched: the pool's plan and counts.
fn decided(w: &World) -> String {
    let s = w.observed();
    let plan = plan(&s);
    format!("{plan:?} {:?}", status::gauges(&s, &plan))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn what_words_find_is_decided_upon_as_all_agents_would_be(
        lots in proptest::collection::vec(lot(), 4),
        strays in proptest::collection::vec(stray(), 0..6),
        (labels, fresh, pins) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let mut w = crowded(world(&lots, false, false), &strays);
        if pins {
            w = pinned(w);
        }
        if fresh {
            // A free Agent that fits is left to the provider.
            w.waited = Duration::from_secs(5);
        }
        if !labels {
            w.pool.spec.agent.labels.clear();
        }
        let hub = hub_of(&w);
        let mut s = w.observed();
        let own: Vec<_> = s.agent_machines.iter().map(AsRef::as_ref).collect();
        let own: Vec<_> = own.into_iter().filter(|am| belonging::belongs(&s.pool, am)).collect();
        let nothing_taken = |_: &Agent| false;
        let home = (s.infra_env_key.namespace.as_str(), &nothing_taken as _);
        let found = agents_home::of_pool(&hub, &s.pool, &s.children, &own, home);
        for child in &s.children {
            let named = agents_home::naming(&hub, Some(&s.pool), child);
            let (all, few) = (child.lineup(&s.agents), child.lineup(&named));
            prop_assert_eq!(format!("{few:?}"), format!("{all:?}"));
        }
        s.agents = found;
        let plan = plan(&s);
        let decided_so = format!("{plan:?} {:?}", status::gauges(&s, &plan));
        prop_assert_eq!(decided_so, decided(&w));
    }

    #[test]
    fn who_would_decide_otherwise_is_told_of_an_agent(
        lots in proptest::collection::vec(lot(), 4),
        strays in proptest::collection::vec(stray(), 1..4),
        (was, is) in (stray(), stray()),
        (came, goes) in (prop::bool::weighted(0.2), prop::bool::weighted(0.2)),
        (fresh, pins, labels) in (any::<bool>(), any::<bool>(), any::<bool>()),
        one in prop::option::of(0..12_usize),
    ) {
        // Changes one Agent in any way. It keeps its name.
        let is = Stray { names: if was.names == is.names { is.names } else { 3 }, ..is };
        let was = Stray { names: if was.names == is.names { was.names } else { 0 }, ..was };
        let is = if [1, 2, 4].contains(&is.names) { Stray { of: was.of, ..is } } else { is };
        // Most changes are small.
        let is = one.map_or(is, |what| was.otherwise(what));
        let (old, new) = (was.agent(9), is.agent(9));
        prop_assert_eq!(old.name_any(), new.name_any());
        let mut base = crowded(world(&lots, false, false), &strays);
        if pins {
            base = pinned(base);
        }
        if !labels {
            base.pool.spec.agent.labels.clear();
        }
        if fresh {
            base.waited = Duration::from_secs(5);
        }
        let with = |agent: Option<&Agent>| {
            let mut w = base.clone();
            w.agents.retain(|a| a.name_any() != old.name_any());
            w.agents.extend(agent.cloned());
            crowded(w, &[])
        };
        let (old, new) = (Some(&old).filter(|_| !came), Some(&new).filter(|_| !goes));
        let (before, after) = (with(old), with(new));
        let key = ObjectKey::new(testing::NAMESPACE, was.agent(9).name_any());
        let news = AgentNews::between(key, old, new);
        let told: Vec<ActorKey> = route(&Change::Agent(news), &hub_of(&after))
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let (s, t) = (before.observed(), after.observed());
        if decided(&before) != decided(&after) {
            prop_assert!(told.contains(&ActorKey::Pool(s.key.clone())));
        }
        for child in &s.children {
            let runs = |all: &[Arc<Agent>]| format!("{:?}", child.lineup(all));
            if runs(&s.agents) != runs(&t.agents) {
                prop_assert!(told.contains(&ActorKey::Vm(child.key.clone())));
            }
        }
    }
}
