pub mod crowd;

use serde_json::{Value, json};

use super::*;
use agent_forge_actors::domain::{
    names::ObjectKey,
    upstream::{Pausable, PausableKind},
};

use crate::testing::World;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn shown(world: &World) -> Topology {
    topology(&world.caches(), &Reach::All, Vec::new(), now())
}

/// The machines of all pools.
fn machines(shown: &Topology) -> Vec<&MachineNode> {
    let node_pools = shown.clusters.iter().flat_map(|c| &c.node_pools);
    let pools = node_pools.flat_map(|n| &n.pools);
    pools.flat_map(|p| &p.machines).collect()
}

fn bound(child: &mut Value) {
    let entry = json!({"event": "Bound", "attempt": 1, "at": "2026-01-01T00:16:00.000000Z"});
    let timeline = child["status"]["timeline"].as_array_mut();
    timeline.expect("a timeline").push(entry);
}

#[test]
fn a_serving_machine_stands_below_its_cluster_with_all_its_objects() {
    let mut world = World::serving();
    world.child["status"]["vm"]["placement"] = json!({"host": "esx-1", "datastore": "ds-1"});
    bound(&mut world.child);
    let shown = shown(&world);
    let cluster = &shown.clusters[0];
    assert_eq!(cluster.name, "demo/demo");
    let node_pool = &cluster.node_pools[0];
    assert_eq!(node_pool.name, "workers");
    let pool = &node_pool.pools[0];
    assert_eq!((pool.name.as_str(), pool.ready), ("demo/workers", None));
    assert_eq!(pool.usual_seconds, Some(960));
    // The limit of the autoscaler is 15 minutes, so this one is beyond it.
    assert_eq!((pool.histogram[15], pool.histogram[16]), (0, 1));
    let machine = &pool.machines[0];
    assert_eq!(
        (machine.state, machine.reason.as_str()),
        (State::Serving, "AgentBound")
    );
    assert_eq!(machine.host.as_deref(), Some("esx-1"));
    assert_eq!(machine.datastore.as_deref(), Some("ds-1"));
    let kinds: Vec<String> = machine.chain.iter().map(|m| m.kind.to_string()).collect();
    assert_eq!(
        kinds,
        [
            "AgentMachine",
            "Machine",
            "VsphereAgent",
            "VM",
            "Agent",
            "Node"
        ]
    );
    assert!(
        shown.foreign.hosts.is_empty(),
        "its own Agent is not foreign"
    );
    // A pool that is gone has still its machines.
    world.pool = Value::Null;
    let gone = super::topology(&world.caches(), &Reach::All, Vec::new(), now());
    assert_eq!(gone.clusters[0].name, "?");
    let pool = &gone.clusters[0].node_pools[0].pools[0];
    assert_eq!(
        (pool.ready, pool.reason.as_str()),
        (Some(false), "PoolNotFound")
    );
}

#[test]
fn foreign_hosts_of_the_pools_infra_envs_are_listed_and_no_others() {
    let mut world = World::serving();
    let host = |name: &str, infra_env: &str| {
        json!({
            "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
            "metadata": {
                "name": name, "namespace": "demo", "uid": name,
                "labels": {"infraenvs.agent-install.openshift.io": infra_env},
            },
            "spec": {"approved": true, "hostname": format!("{name}.example")},
            "status": {"debugInfo": {"state": "known-unbound"}},
        })
    };
    world.agent = json!([
        world.agent,
        host("metal", "infra"),
        host("other", "elsewhere")
    ]);
    let counts = shown(&world).counts;
    assert_eq!(counts, [(State::Serving, 1), (State::Foreign, 1)].into());
    let seen = shown(&world).foreign;
    assert_eq!((seen.hosts.len(), seen.more), (1, 0), "{seen:?}");
    let metal = &seen.hosts[0];
    assert_eq!(metal.agent, "demo/metal");
    assert_eq!(metal.hostname.as_deref(), Some("metal.example"));
    assert_eq!(
        (metal.infra_env.as_str(), metal.state.as_str()),
        ("demo/infra", "known-unbound")
    );
    // It shows no hardware and no condition.
    assert_eq!(
        (metal.class.as_str(), metal.free),
        ("hardware not reported", false)
    );
    let many: Vec<Value> = (0..foreign::MOST + 3)
        .map(|n| host(&format!("metal-{n}"), "infra"))
        .collect();
    world.agent = json!(many);
    let all = shown(&world);
    let seen = &all.foreign;
    assert_eq!((seen.hosts.len(), seen.more), (foreign::MOST, 3));
    // The button above the table counts them, also those that are not listed.
    assert_eq!(all.counts.get(&State::Foreign), Some(&(foreign::MOST + 3)));
}

#[test]
fn a_viewer_sees_the_pools_of_its_namespaces_only() {
    let mut world = World::serving();
    let mut pool = world.pool.clone();
    pool["metadata"]["namespace"] = json!("other");
    pool["metadata"]["uid"] = json!("u-other");
    world.pool = json!([world.pool, pool]);
    let pools = |reach: &Reach| {
        let shown = topology(&world.caches(), reach, Vec::new(), now());
        let names = shown.clusters.into_iter().flat_map(|c| c.node_pools);
        let names = names.flat_map(|n| n.pools).map(|p| p.name);
        (names.collect::<Vec<_>>(), shown.foreign.hosts.len())
    };
    let of = |namespace: &str| Reach::Namespaces([namespace.to_owned()].into());
    assert_eq!(pools(&Reach::All).0, ["demo/workers", "other/workers"]);
    assert_eq!(pools(&of("other")).0, ["other/workers"]);
    assert_eq!(pools(&of("nowhere")).0, [""; 0]);
    // The InfraEnv of `other` may be in the control plane's namespace, which this viewer may not list either.
    let mut foreign = world.agent.clone();
    foreign["metadata"]["namespace"] = json!("demo-demo");
    foreign["status"]["inventory"] = Value::Null;
    foreign["metadata"]["name"] = json!("metal");
    world.agent = json!([world.agent, foreign]);
    let pools = |reach: &Reach| {
        topology(&world.caches(), reach, Vec::new(), now())
            .foreign
            .hosts
            .len()
    };
    assert_eq!(pools(&Reach::All), 1);
    assert_eq!(pools(&of("other")), 0);
    // A VsphereAgent whose pool is gone is not shown to others either.
    world.pool = Value::Null;
    let gone = |reach: &Reach| topology(&world.caches(), reach, Vec::new(), now());
    assert_eq!(machines(&gone(&of("demo"))).len(), 1);
    assert_eq!(machines(&gone(&of("other"))).len(), 0);
}

/// A second tenant: a pool that names the first one's NodePool and InfraEnv, and a VsphereAgent that names its AgentMachine
/// and its Agent.
fn with_a_stranger(mut world: World) -> World {
    let mut pool = World::serving().pool;
    pool["metadata"]["namespace"] = json!("a-stranger");
    pool["metadata"]["uid"] = json!("u-stranger");
    pool["spec"]["infraEnvRef"] = json!({"name": "infra", "namespace": "demo"});
    let mut child = World::serving().child;
    child["metadata"]["name"] = json!("w-9");
    child["metadata"]["namespace"] = json!("a-stranger");
    child["metadata"]["uid"] = json!("u-forged");
    child["status"]["vm"]["name"] = json!("w-9");
    child["status"]["vm"]["biosUUID"] = json!("42000000-0000-0000-0000-000000000009");
    child["status"]["vm"]["macAddresses"] = json!(["00:50:56:00:00:09"]);
    world.child = match world.child {
        Value::Null => json!([child]),
        own => json!([own, child]),
    };
    world.pool = json!([world.pool, pool]);
    world
}

#[test]
fn a_refused_pool_shows_nothing_of_others_and_hides_nothing_of_them() {
    let kinds = |machine: &MachineNode| -> Vec<String> {
        machine.chain.iter().map(|m| m.kind.to_string()).collect()
    };
    let of = |world: &World, namespace: &str| {
        let reach = Reach::Namespaces([namespace.to_owned()].into());
        topology(&world.caches(), &reach, Vec::new(), now())
    };
    let mut world = with_a_stranger(World::serving());
    world.admits = None;
    let theirs = of(&world, "a-stranger");
    let [machine] = machines(&theirs)[..] else {
        panic!("{theirs:#?}")
    };
    assert_eq!(kinds(machine), ["VsphereAgent", "VM"]);
    let first = of(&world, "demo");
    let [machine] = machines(&first)[..] else {
        panic!("{first:#?}")
    };
    assert_eq!((machine.name.as_str(), kinds(machine).len()), ("w-1", 6));
    assert!(first.foreign.hosts.is_empty());
    // A VsphereAgent of a refused pool does not hide who waits.
    let mut waiting = with_a_stranger(World::waiting());
    waiting.admits = None;
    let named = |shown: &Topology| -> Vec<String> {
        machines(shown).iter().map(|m| m.name.clone()).collect()
    };
    assert_eq!(named(&of(&waiting, "demo")), ["w-1"]);
    assert_eq!(named(&of(&waiting, "a-stranger")), ["w-9"]);
    // Nor do its hosts appear, although this viewer may list everything.
    let alone = |admits| {
        let mut world = with_a_stranger(World::serving());
        world.pool = world.pool[1].take();
        world.child = Value::Null;
        world.admits = admits;
        let shown = topology(&world.caches(), &Reach::All, Vec::new(), now());
        (machines(&shown).len(), shown.foreign.hosts.len())
    };
    assert_eq!(alone(None), (0, 0));
    assert_eq!(alone(Some("a-stranger")), (1, 1), "a grant shows them");
}

#[test]
fn a_pool_says_that_it_is_paused_while_it_is() {
    let shown = |world: &World, kind: PausableKind, change: &dyn Fn(&mut Pausable)| {
        let caches = world.caches();
        let (namespace, name, cluster) = match kind {
            PausableKind::Cluster => ("demo-demo", "demo", None),
            PausableKind::HostedCluster => ("demo", "demo", None),
            PausableKind::NodePool => ("demo", "workers", Some("demo".to_owned())),
        };
        let mut object = Pausable {
            key: ObjectKey::new(namespace, name),
            cluster,
            annotated: false,
            paused: false,
            paused_until: None,
        };
        change(&mut object);
        let found = caches.pausables.iter().find(|(k, _)| *k == kind);
        let (_, cache) = found.expect("a cache");
        crate::cluster::lists::show(cache, &None, vec![object], |p| p.key.clone());
        let all = topology(&caches, &Reach::All, Vec::new(), now());
        let page = all.clusters[0].node_pools[0].pools[0].paused.clone();
        let top = crate::commands::top::rows::overview(&caches, None, now()).pools[0]
            .paused
            .clone();
        assert_eq!(page, top);
        page
    };
    let until = |text: &'static str| move |p: &mut Pausable| p.paused_until = Some(text.to_owned());
    let world = World::serving();
    for kind in [PausableKind::NodePool, PausableKind::HostedCluster] {
        for (text, paused) in [
            ("true", true),
            ("2026-01-01T02:00:00Z", true),
            ("2026-01-01T00:30:00Z", false),
            ("false", false),
            ("tomorrow", false),
        ] {
            let said = shown(&world, kind, &until(text));
            assert_eq!(said.is_some(), paused, "{kind:?} {text}: {said:?}");
        }
    }
    let of_other = shown(&world, PausableKind::NodePool, &|p| {
        p.paused_until = Some("true".to_owned());
        p.cluster = Some("another".to_owned());
    });
    assert_eq!(of_other, None);
    let said = shown(&world, PausableKind::Cluster, &|p| p.paused = true);
    assert!(said.is_some_and(|s| s.contains("spec.paused of Cluster demo-demo/demo")));
    let mut world = World::serving();
    world.pool["metadata"]["annotations"] = json!({"agent-forge.containeroo.ch/paused": "true"});
    let said = shown(&world, PausableKind::Cluster, &|_| {});
    assert!(said.is_some_and(|s| s.contains("VsphereAgentPool demo/workers")));
}

#[test]
fn each_time_falls_into_one_bar() {
    let bars = histogram(&[-5, 0, 59, 60, 899, 900, 1800, 1_000_000]);
    assert_eq!(bars.len(), BARS);
    assert_eq!((bars[0], bars[1], bars[14], bars[15]), (3, 1, 1, 1));
    assert_eq!(bars[BARS - 1], 2);
    assert_eq!(bars.iter().sum::<u32>(), 8);
}

#[test]
fn hosts_that_are_gone_stay_with_their_pool_and_only_its_viewers_see_them() {
    let mut world = World::serving();
    let row = |name: &str| json!({"namespace": "demo", "name": name, "uid": name, "life": 1, "vmName": name, "machine": "m-0"});
    world.pool["status"]["pastHosts"] = json!([row("w-8"), row("w-9")]);
    let seen = |reach: &Reach| {
        let shown = topology(&world.caches(), reach, Vec::new(), now());
        let pools = shown.clusters.into_iter().flat_map(|c| c.node_pools);
        let past = pools.flat_map(|n| n.pools).flat_map(|p| p.past_hosts);
        past.map(|host| host.vm_name).collect::<Vec<_>>()
    };
    let of = |namespace: &str| Reach::Namespaces([namespace.to_owned()].into());
    assert_eq!(seen(&of("demo")), ["w-9", "w-8"], "the last one first");
    assert!(seen(&of("demo-demo")).is_empty());
}

#[test]
fn the_host_on_which_a_vm_is_counts_more_than_the_one_that_was_chosen() {
    let mut world = World::serving();
    let vm = &mut world.child["status"]["vm"];
    vm["placement"] = json!({"host": "esx-1"});
    vm["esxiHost"] = json!("esx-2");
    let shown = shown(&world);
    assert_eq!(machines(&shown)[0].host.as_deref(), Some("esx-2"));
}
