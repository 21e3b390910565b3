//! Which foreign hosts there are, which ones count, and for whom.

use std::time::Duration;

use agent_forge_crds::{
    external::agent::{AGENT_MACHINE_REF_LABEL, CLUSTER_ORDER_LABEL, VALIDATED},
    names::AGENT_MACHINE_LABEL,
    pool::HostsSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::{
    domain::host_class::{HostClass, Hosts},
    pool::{
        Memory, observe as pass,
        plan::{self, Action},
    },
    testing::{
        CONTROL_PLANE, NAMESPACE, POOL, World, agent_machine, agent_on, at, child_with_vm, claim,
        condition, delete, foreign_agent, labels, pool, reserve, with,
    },
    vm::testing::{Turned, hub::Hub},
};

/// A free foreign Agent that fits the AgentMachines of tests.
fn fits(name: &str) -> Agent {
    with(foreign_agent(name), |a| {
        a.spec.approved = true;
        a.labels_mut()
            .insert("customer".to_owned(), "example".to_owned());
    })
}

fn counting(mut pool: VsphereAgentPool, count_foreign: bool) -> VsphereAgentPool {
    pool.spec.hosts = Some(HostsSpec {
        count_foreign: Some(count_foreign),
    });
    pool
}

/// A hub in which these AgentMachines wait, with these Agents.
fn hub(count_foreign: bool, waiting: &[&str], agents: Vec<Agent>) -> Hub {
    let (hub, world) = (Hub::default(), World::waiting(waiting));
    hub.with(|o| {
        o.pool = Some(counting(world.pool, count_foreign));
        o.agent_machines = world.agent_machines;
        o.machines = world.machines;
        o.agents = agents;
    });
    hub
}

fn home() -> ObjectKey {
    ObjectKey::new(NAMESPACE, "infra")
}

fn seen(hub: &Hub, pool: &VsphereAgentPool) -> ForeignHosts {
    let (pools, all) = (hub.pools(), hub.all_agent_machines());
    let grants = Grants::read(
        hub,
        pools.iter().map(AsRef::as_ref),
        all.iter().map(AsRef::as_ref),
    );
    observe(hub, &grants, &pools, pool, &home())
}

/// For which AgentMachines a pool of that name makes a VM, as its actor would decide.
struct Pool {
    memory: Memory,
    clock: Turned,
    name: &'static str,
}

impl Pool {
    fn named(name: &'static str) -> Self {
        Self {
            memory: Memory::default(),
            clock: Turned::default(),
            name,
        }
    }

    fn makes(&mut self, hub: &Hub, after_millis: u64) -> Vec<String> {
        self.clock.turn(Duration::from_millis(after_millis));
        let key = ObjectKey::new(NAMESPACE, self.name);
        let s = pass::observe(hub, &self.clock, &key, &[], &mut self.memory).expect("a pool");
        let made = plan::plan(&s).actions.into_iter().filter_map(|a| match a {
            Action::CreateChild { agent_machine, .. } => Some(agent_machine.name_any()),
            _ => None,
        });
        made.collect()
    }
}

#[test]
fn a_free_foreign_host_takes_the_place_of_a_vm_at_once_or_only_for_a_minute() {
    let table = [
        (true, 500, vec!["b"]),
        (true, 60_000, vec!["b"]),
        (true, 3_600_000, vec!["b"]),
        (false, 500, vec![]),
        (false, 59_999, vec![]),
        (false, 60_000, vec!["a", "b"]),
    ];
    for (count_foreign, after, makes) in table {
        let hub = hub(count_foreign, &["a", "b"], vec![fits("metal")]);
        let mut pool = Pool::named(POOL);
        assert!(pool.makes(&hub, 0).is_empty());
        let made = pool.makes(&hub, after);
        assert_eq!(made, makes, "{count_foreign}, after {after} ms");
    }
}

#[test]
fn once_a_foreign_host_is_gone_or_unfit_the_demand_is_back() {
    type Change = fn(&mut Agent);
    let table: [(&str, Change); 5] = [
        ("gone", delete),
        ("claimed by another", |a| {
            let other = with(agent_machine("other"), |am| {
                am.metadata.namespace = Some("elsewhere".to_owned());
            });
            claim(a, &other);
        }),
        ("reserved by OSAC", |a| {
            a.labels_mut()
                .insert(CLUSTER_ORDER_LABEL.to_owned(), "order".to_owned());
        }),
        ("no longer valid", |a| {
            let status = a.status.get_or_insert_default();
            status.conditions.retain(|c| c.type_ != VALIDATED);
        }),
        ("no longer approved", |a| a.spec.approved = false),
    ];
    for (what, change) in table {
        let hub = hub(true, &["a"], vec![fits("metal")]);
        let mut pool = Pool::named(POOL);
        for after in [0, 500, 600_000] {
            assert!(pool.makes(&hub, after).is_empty(), "{what}");
        }
        hub.with(|o| change(&mut o.agents[0]));
        assert_eq!(pool.makes(&hub, 0), ["a"], "{what}");
    }
}

#[test]
fn only_what_the_provider_could_bind_counts() {
    let own = child_with_vm("other");
    let own = with(agent_on(&own), |a| {
        a.spec.approved = true;
        a.labels_mut()
            .insert("customer".to_owned(), "example".to_owned());
    });
    let changed = |change: fn(&mut Agent)| with(fits("metal"), change);
    let table = [
        ("it fits", fits("metal"), true),
        ("not approved", changed(|a| a.spec.approved = false), false),
        (
            "not validated",
            changed(|a| invalidate(a, VALIDATED)),
            false,
        ),
        (
            "not connected",
            changed(|a| invalidate(a, agent_forge_crds::external::agent::CONNECTED)),
            false,
        ),
        ("being deleted", changed(delete), false),
        (
            "without the labels",
            changed(|a| drop(a.labels_mut().remove("customer"))),
            false,
        ),
        (
            "promised to a VM's AgentMachine",
            changed(|a| {
                a.labels_mut()
                    .insert(AGENT_MACHINE_LABEL.to_owned(), "b".to_owned());
            }),
            false,
        ),
        (
            "claimed",
            changed(|a| {
                a.labels_mut()
                    .insert(AGENT_MACHINE_REF_LABEL.to_owned(), "somebody".to_owned());
            }),
            false,
        ),
        (
            "of another InfraEnv",
            changed(|a| {
                a.labels_mut()
                    .insert(INFRA_ENV_LABEL.to_owned(), "other".to_owned());
            }),
            false,
        ),
        (
            "of another namespace",
            changed(|a| a.metadata.namespace = Some("elsewhere".to_owned())),
            false,
        ),
        ("a VM of ours", own, false),
    ];
    for (what, agent, counts) in table {
        let hub = hub(true, &["a"], vec![agent]);
        hub.with(|o| o.others = vec![child_with_vm("other")]);
        let (a, foreign) = (agent_machine("a"), seen(&hub, &hub.pools()[0]));
        assert_eq!(foreign.of(&a).is_some(), counts, "{what}");
    }
    // An AgentMachine elsewhere has it in its status, and the provider has not labelled it yet.
    let hub = hub(true, &["a"], vec![fits("metal")]);
    hub.with(|o| {
        let mut other = agent_machine("other");
        other.metadata.annotations = None;
        reserve(&mut other, &fits("metal"));
        o.agent_machines.push(other);
    });
    let mut pool = Pool::named(POOL);
    pool.makes(&hub, 0);
    assert_eq!(pool.makes(&hub, 60_000), ["a"], "reserved");
}

fn invalidate(agent: &mut Agent, type_: &str) {
    let status = agent.status.get_or_insert_default();
    status.conditions.retain(|c| c.type_ != type_);
    status.conditions.push(condition(type_, "False", "r"));
}

#[test]
fn an_agent_machine_that_is_pinned_or_does_not_ask_takes_no_foreign_host() {
    type Change = fn(&mut AgentMachine);
    let table: [(&str, Change); 6] = [
        ("pinned", |am| {
            let selector = am.spec.agent_label_selector.get_or_insert_default();
            let exact = selector.match_labels.get_or_insert_default();
            exact.insert(AGENT_MACHINE_LABEL.to_owned(), "a".to_owned());
        }),
        ("deleting", delete),
        ("served", |am| reserve(am, &foreign_agent("x"))),
        ("paused", |am| {
            am.annotations_mut()
                .insert("cluster.x-k8s.io/paused".to_owned(), "true".to_owned());
        }),
        ("not accepted", |am| am.metadata.finalizers = None),
        ("without a Machine", |am| {
            am.metadata.owner_references = None;
        }),
    ];
    for (what, change) in table {
        let hub = hub(true, &["a", "b"], vec![fits("metal")]);
        hub.with(|o| change(&mut o.agent_machines[0]));
        let foreign = seen(&hub, &hub.pools()[0]);
        let [a, b] = [0, 1].map(|n| hub.with(|o| o.agent_machines[n].clone()));
        assert_eq!(
            (foreign.of(&a), foreign.of(&b)),
            (None, Some("metal")),
            "{what}"
        );
    }
    // A VM is made for it already.
    let hub = hub(true, &["a", "b"], vec![fits("metal")]);
    hub.with(|o| o.child = Some(child_with_vm("a")));
    let foreign = seen(&hub, &hub.pools()[0]);
    let b = hub.with(|o| o.agent_machines[1].clone());
    assert_eq!(foreign.of(&b), Some("metal"));
}

/// Two pools of one InfraEnv: AgentMachines `a`, `b`... belong to the first, `y`, `z` to the second.
fn two_pools(waiting: &[&str], agents: Vec<Agent>) -> Hub {
    let hub = hub(true, waiting, agents);
    hub.with(|o| {
        o.other_pools = vec![counting(pool("second"), true)];
        for am in &mut o.agent_machines {
            if am.name_any().as_str() > "m" {
                am.annotations_mut().insert(
                    agent_forge_crds::external::agent_machine::NODE_POOL_ANNOTATION.to_owned(),
                    format!("{NAMESPACE}/second"),
                );
            }
        }
    });
    hub
}

#[test]
fn one_agent_counts_once_over_all_pools() {
    let made = |agents: Vec<Agent>, older: Option<usize>| {
        let hub = two_pools(&["a", "z"], agents);
        hub.with(|o| {
            if let Some(n) = older {
                o.agent_machines[n].metadata.creation_timestamp = Some(Time(at(-60)));
            }
        });
        let both = [POOL, "second"].map(|name| {
            let mut pool = Pool::named(name);
            pool.makes(&hub, 0);
            pool.makes(&hub, 500)
        });
        both.concat()
    };
    assert_eq!(made(vec![], None), ["a", "z"]);
    assert_eq!(made(vec![fits("m1")], None), ["z"]);
    assert_eq!(made(vec![fits("m1")], Some(1)), ["a"], "the older one");
    assert!(made(vec![fits("m1"), fits("m2")], None).is_empty());
    // A pool that does not count foreign hosts takes none from one that does.
    let hub = two_pools(&["a", "z"], vec![fits("m1")]);
    hub.with(|o| o.pool = Some(counting(pool(POOL), false)));
    assert!(!seen(&hub, &hub.pools()[1]).counted.is_empty());
    let [mut first, mut second] = [POOL, "second"].map(Pool::named);
    first.makes(&hub, 0);
    second.makes(&hub, 0);
    assert_eq!(first.makes(&hub, 60_000), ["a"]);
    assert!(second.makes(&hub, 60_000).is_empty());
}

/// The provider labels the Agent first, and its AgentMachine shows that later. It may choose in another order.
#[test]
fn while_the_provider_claims_no_agent_machine_loses_its_host() {
    for (claimed, left) in [(0, "m2"), (1, "m1")] {
        let hub = hub(true, &["a", "b"], vec![fits("m1"), fits("m2")]);
        let mut pool = Pool::named(POOL);
        pool.makes(&hub, 0);
        assert!(pool.makes(&hub, 60_000).is_empty());
        hub.with(|o| {
            let am = o.agent_machines[0].clone();
            claim(&mut o.agents[claimed], &am);
        });
        assert!(pool.makes(&hub, 0).is_empty(), "no VM for either");
        let foreign = seen(&hub, &hub.pools()[0]);
        let b = hub.with(|o| o.agent_machines[1].clone());
        assert_eq!(foreign.of(&b), Some(left));
    }
}

#[test]
fn hosts_are_counted_by_class_without_our_own_and_only_where_the_pool_is_admitted() {
    let own = agent_on(&child_with_vm("a"));
    let osac = with(fits("osac"), |a| {
        a.labels_mut()
            .insert(CLUSTER_ORDER_LABEL.to_owned(), "order".to_owned());
    });
    let other = with(fits("other"), |a| {
        a.metadata.labels = Some(labels(&[(INFRA_ENV_LABEL, "other")]));
    });
    let gone = with(fits("gone"), delete);
    let agents = vec![
        own.clone(),
        fits("m1"),
        foreign_agent("m2"),
        osac,
        other,
        gone,
    ];
    let hub = hub(false, &["a"], agents);
    // Without a record, an Agent of a VM is somebody else's.
    let counts = |hub: &Hub| seen(hub, &hub.pools()[0]).classes;
    let classes = counts(&hub).expect("known");
    assert_eq!(classes.get(HostClass::Vsphere), Hosts { all: 1, free: 0 });
    hub.with(|o| o.child = Some(child_with_vm("a")));
    let classes = counts(&hub).expect("known");
    assert_eq!(classes.get(HostClass::Vsphere).all, 0);
    assert_eq!(classes.get(HostClass::Unknown), Hosts { all: 2, free: 1 });
    assert_eq!(classes.get(HostClass::ReservedByOsac).all, 1);
    assert_eq!(classes.total(), Hosts { all: 3, free: 1 });
    hub.with(|o| o.over_bound = vec![NAMESPACE.to_owned()]);
    assert_eq!(counts(&hub), None, "the cache does not keep all");
    hub.with(|o| {
        o.over_bound.clear();
        let pool = o.pool.as_mut().expect("a pool");
        pool.metadata.namespace = Some("tenant".to_owned());
        pool.spec.infra_env_ref.namespace = Some(NAMESPACE.to_owned());
        pool.spec.hosts = Some(HostsSpec {
            count_foreign: Some(true),
        });
    });
    assert_eq!(seen(&hub, &hub.pools()[0]), ForeignHosts::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever there is: both pools see one assignment, each Agent is in it once and fits, and no fitting one is left over
    /// while somebody lacks one.
    #[test]
    fn every_pool_sees_the_same_assignment_and_it_is_full(
        ages in proptest::collection::vec(0..3_i64, 6),
        hosts in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 0..8),
        taken in proptest::option::of(0..8_usize),
    ) {
        let agents = hosts.iter().enumerate().map(|(n, (approved, labelled, here))| {
            with(fits(&format!("m{n}")), |a| {
                a.spec.approved = *approved;
                if !labelled {
                    a.labels_mut().remove("customer");
                }
                if !here {
                    a.labels_mut().insert(INFRA_ENV_LABEL.to_owned(), "other".to_owned());
                }
            })
        });
        let hub = two_pools(&["a", "b", "c", "x", "y", "z"], agents.collect());
        hub.with(|o| {
            for (am, age) in o.agent_machines.iter_mut().zip(&ages) {
                am.metadata.creation_timestamp = Some(Time(at(*age)));
            }
            let am = o.agent_machines[0].clone();
            if let Some(agent) = taken.and_then(|n| o.agents.get_mut(n)) {
                claim(agent, &am);
            }
        });
        let pools = hub.pools();
        let [one, other] = [0, 1].map(|n| seen(&hub, &pools[n]));
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.counted.len(), one.taken.len());
        let (all, ams) = (hub.agents(NAMESPACE), hub.agent_machines(CONTROL_PLANE));
        let fit = |a: &&Arc<Agent>| {
            a.infra_env() == Some("infra") && belonging::is_free_for(a, &ams[0])
        };
        let fitting: BTreeSet<String> = all.iter().filter(fit).map(|a| a.name_any()).collect();
        prop_assert!(one.taken.is_subset(&fitting));
        let served = all.iter().any(|a| a.claimed_by().is_some());
        prop_assert_eq!(one.taken.len(), fitting.len().min(ams.len() - usize::from(served)));
    }
}
