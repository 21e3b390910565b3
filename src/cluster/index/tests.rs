//! A lookup in the index finds the same as a search through all objects, after any sequence of changes.

use std::sync::Arc;

use agent_forge_actors::{
    domain::{
        goal,
        identity::BiosUuid,
        index_keys::{self, IndexKeys},
        upstream::MachineFacts,
    },
    ports::cluster::View,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
};
use fastrand::Rng;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::cluster::{
    cache::{Cache, Feed},
    scope::Scope,
    view::Caches,
};

/// The caches without their index: each question goes through all objects.
struct Plain(Arc<Caches>);

impl View for Plain {
    fn ready(&self) -> bool {
        self.0.ready()
    }
    fn cluster_id(&self) -> String {
        self.0.cluster_id()
    }
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        self.0.pools()
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        self.0.pool(key)
    }
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        let mut all = self.0.all_children();
        let admits = |c: &VsphereAgent| goal::refusing(c, |of| self.namespace_grant(of)).is_none();
        all.retain(|c| goal::user(c) == *pool && admits(c));
        all
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        self.0.child(key)
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.0.all_children()
    }
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        self.0.agent_machines(namespace)
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        self.0.all_agent_machines()
    }
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        self.0.machines(namespace)
    }
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        self.0.agents(namespace)
    }
    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>> {
        self.0.infra_env(key)
    }
    fn namespace_grant(&self, namespace: &str) -> Option<String> {
        self.0.namespace_grant(namespace)
    }
}

const NAMESPACES: [&str; 3] = ["a", "ab", "b"];

/// One of four values, so that the same value comes up often.
fn few(rng: &mut Rng, kind: &str) -> String {
    format!("{kind}{}", rng.u8(0..4))
}

fn uuid(rng: &mut Rng) -> BiosUuid {
    let uuid = BiosUuid::derive("cluster", &few(rng, "vm"), 1);
    if rng.bool() { uuid.swapped() } else { uuid }
}

fn object<K: DeserializeOwned>(rng: &mut Rng, name: &str, rest: Value, labels: Value) -> K {
    let mut all = rest;
    all["metadata"] = json!({"name": name, "namespace": rng.choice(NAMESPACES), "labels": labels});
    serde_json::from_value(all).expect("an object")
}

fn agent(rng: &mut Rng) -> Agent {
    let name = match rng.bool() {
        true => uuid(rng).to_string(),
        false => few(rng, "host"),
    };
    let serial = format!("VMware-{}", uuid(rng).to_string().replace('-', ""));
    let mut labels = json!({"site": few(rng, "s")});
    if rng.bool() {
        labels["agentMachineRef"] = few(rng, "am").into();
    }
    if rng.bool() {
        labels["pool"] = few(rng, "p").into();
    }
    let condition =
        |kind: &str, is: bool| json!({"type": kind, "status": if is { "True" } else { "False" }});
    let rest = json!({
        "spec": {"approved": rng.bool(), "hostname": rng.bool().then(|| few(rng, "am"))},
        "status": {
            "inventory": {"systemVendor": {
                "manufacturer": "VMware, Inc.", "serialNumber": rng.bool().then_some(serial),
            }},
            "conditions": [condition("Bound", rng.bool()), condition("Connected", true), condition("Validated", true)],
        },
    });
    let mut agent: Agent = object(rng, &name, rest, labels);
    if rng.u8(0..5) == 0 {
        agent.metadata.deletion_timestamp =
            serde_json::from_value(json!("2024-01-01T00:00:00Z")).ok();
    }
    agent
}

fn agent_machine(rng: &mut Rng) -> AgentMachine {
    let name = few(rng, "am");
    let exact = match rng.u8(0..4) {
        0 => json!({"site": few(rng, "s")}),
        1 => json!({"site": few(rng, "s"), "pool": few(rng, "p")}),
        2 => json!({"pool": few(rng, "p"), "infraenvs.agent-install.openshift.io": "infra"}),
        _ => json!({}),
    };
    let chosen = rng
        .bool()
        .then(|| json!({"namespace": "a", "name": few(rng, "host")}));
    let rest = json!({
        "spec": {"agentLabelSelector": {"matchLabels": exact}}, "status": {"agentRef": chosen},
    });
    object(rng, &name, rest, json!({}))
}

fn child(rng: &mut Rng) -> VsphereAgent {
    let (name, uuid, agent) = (few(rng, "child"), uuid(rng).to_string(), few(rng, "host"));
    let status = rng.bool().then(|| {
        json!({"vm": {"name": name, "biosUUID": uuid, "agentRef": {"namespace": "a", "name": agent}}})
    });
    let user = json!({"namespace": rng.choice(NAMESPACES), "name": few(rng, "p")});
    let goal = rng.bool().then(|| json!({ "pool": user }));
    let rest =
        json!({"spec": {"poolRef": {"name": few(rng, "p")}, "goal": goal}, "status": status});
    object(rng, &name, rest, json!({}))
}

/// One random change of a cache: an object is added, changed or deleted, or all are listed again.
fn happen<K: kube::ResourceExt>(rng: &mut Rng, cache: &Arc<Cache<K>>, make: fn(&mut Rng) -> K) {
    let part = rng.choice([None, Some("a"), Some("ab")]).flatten();
    let mut feed = Feed::new(cache.clone(), part.map(str::to_owned));
    let events = match rng.u8(0..10) {
        0 => {
            let some = (0..rng.usize(0..12)).map(|_| make(rng));
            let there = some.filter(|k| part.is_none() || k.namespace().as_deref() == part);
            let there: Vec<_> = there.map(Event::InitApply).collect();
            let begun = std::iter::once(Event::Init).chain(there);
            begun.chain([Event::InitDone]).collect()
        }
        1..=3 => vec![Event::Delete(make(rng))],
        _ => vec![Event::Apply(make(rng))],
    };
    for event in events {
        feed.take(event, ObjectKey::of);
    }
}

fn keys<K: kube::ResourceExt>(all: Vec<Arc<K>>) -> Vec<ObjectKey> {
    all.iter().map(|k| ObjectKey::of(k.as_ref())).collect()
}

fn compare(rng: &mut Rng, view: &dyn View, plain: &dyn View) {
    let (child, am, agent) = (child(rng), agent_machine(rng), agent(rng));
    let words: IndexKeys = index_keys::asked_by_child(&child)
        .into_iter()
        .chain(index_keys::asked_by_agent_machine(&am))
        .chain(index_keys::of_agent(&agent))
        .filter(|_| rng.bool())
        .collect();
    let selector = am.spec.agent_label_selector.as_ref();
    let labels = selector
        .and_then(|s| s.match_labels.clone())
        .unwrap_or_default();
    let free = index_keys::IndexKey::free_for(&am);
    let wanted = |a: &Agent| {
        labels
            .iter()
            .all(|(k, v)| kube::ResourceExt::labels(a).get(k) == Some(v))
    };
    for namespace in NAMESPACES {
        let both = [view, plain];
        let [one, other] = both.map(|v| keys(v.agents_with(namespace, &words)));
        assert_eq!(one, other);
        let first = both.map(|v| v.first_agent(namespace, free, &wanted));
        let [one, other] = first.map(|a| keys(a.into_iter().collect()));
        assert_eq!(one, other);
        let [one, other] = both.map(|v| v.count_agents(namespace, &labels));
        assert_eq!(one, other);
        let pool = ObjectKey::new(namespace, few(rng, "p"));
        let [one, other] = both.map(|v| keys(v.children(&pool)));
        assert_eq!(one, other);
    }
    let both = [view, plain];
    let [one, other] = both.map(|v| keys(v.children_asking(&words)));
    assert_eq!(one, other);
    let [one, other] = both.map(|v| keys(v.agent_machines_asking(&words)));
    assert_eq!(one, other);
}

#[test]
fn the_index_finds_what_going_through_all_finds() {
    for seed in 0..100 {
        let rng = &mut Rng::with_seed(seed);
        let caches = Arc::new(Caches::of(&Scope::of(&[])));
        let plain = Plain(caches.clone());
        for _ in 0..100 {
            match rng.u8(0..4) {
                0 => happen(rng, &caches.children, child),
                1 => happen(rng, &caches.agent_machines, agent_machine),
                _ => happen(rng, &caches.agents, agent),
            }
            compare(rng, caches.as_ref(), &plain);
        }
    }
}

#[test]
fn a_count_that_nobody_asks_for_is_given_up_and_made_anew() {
    let reads = Reads {
        keys: |_: &u8| IndexKeys::new(),
        tally: |_, _| Tally {
            all: 1,
            ..Tally::default()
        },
    };
    let index = Index::new(reads);
    let labels = |n: usize| Labels::from([("n".to_owned(), n.to_string())]);
    for n in 0..=MOST_COUNTS {
        assert_eq!(index.count("a", &labels(n), [1, 2].iter()).all, 2);
    }
    assert_eq!(index.counts().of["a"].len(), MOST_COUNTS);
    assert_eq!(
        index.count("a", &labels(1), std::iter::empty()).all,
        2,
        "known"
    );
    assert_eq!(
        index.count("a", &labels(0), std::iter::empty()).all,
        0,
        "counted anew"
    );
}
