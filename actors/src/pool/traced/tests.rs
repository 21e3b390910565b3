//! What a pool's actions leave in the traces of their machines.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;
use tracing::{Instrument as _, field::Empty};

use crate::{
    domain::{failure::ReconcileError, managed_vm::ManagedVm, names::ObjectKey},
    iso::{
        PruneNews,
        msg::{IsoKey, IsoState, IsoWant},
        of_pool::IsoCaches,
    },
    pool::{Memory, act::perform_all, pass, plan::Action},
    ports::{cluster::ClusterErrorKind, effect::EffectKind, tracer::PhaseSpan},
    testing::{
        NAMESPACE, POOL, World, agent_machine, approval,
        told::{Phases, Span, Told},
    },
    vm::testing::Bench,
};

/// The action is carried out in one pass after the other. The first try is refused.
async fn refused_once(world: &World, kind: EffectKind, action: Action) -> Vec<Span> {
    let bench = Bench::new();
    bench.hub.with(|o| {
        o.agents.clone_from(&world.agents);
        o.child = world.children.first().cloned();
        o.fails.insert(kind, ClusterErrorKind::Forbidden)
    });
    let observed = world.observed();
    let actions = [action];
    let mut memory = Memory::default();
    let told = Told::default();
    let _here = told.here();
    for _ in 0..3 {
        perform_all(&bench.context, &observed, &actions, &mut memory).await;
    }
    told.spans("pool.action")
}

fn assert_told(spans: &[Span], name: &str) {
    let [failed, again, later] = spans else {
        panic!("{name}: {spans:?}")
    };
    assert_eq!(failed.fields.get("otel.name"), Some(name));
    let about = ["pool", "object", "uid"].map(|field| failed.fields.get(field));
    let expected = ["demo/workers", "demo-demo/a", "am-a"].map(Some);
    assert_eq!(about, expected, "{name}");
    assert_eq!(failed.fields.get("otel.status_code"), Some("ERROR"));
    assert_eq!(failed.fields.get("error.type"), Some("Forbidden"));
    assert_eq!(failed.said(), ["fault"], "{name}");
    let fault = ["reason", "side", "class"].map(|field| failed.events[0].get(field));
    let expected = ["Forbidden", "Kubernetes", "Blocked"].map(Some);
    assert_eq!(fault, expected, "{name}");
    assert_eq!(again.said(), ["retry"], "{name}");
    assert_eq!(again.events[0].get("attempt"), Some("2"), "{name}");
    assert_eq!(again.fields.get("otel.status_code"), None, "{name}");
    assert!(later.said().is_empty(), "{name}: {later:?}");
}

#[tokio::test]
async fn an_action_that_failed_says_so_and_its_next_try_that_it_is_one() {
    let world = World::discovered("a");
    let pin = Action::Pin {
        agent_machine: Arc::new(agent_machine("a")),
        pin: "a".to_owned(),
    };
    let spans = refused_once(&world, EffectKind::PinSelector, pin).await;
    assert_told(&spans, "machine.pin");
    // An action that does not start a machine is placed elsewhere in the trace.
    let prepare = Action::Prepare {
        patch: approval(&world.agents[0]),
        child: ManagedVm::read(Arc::new(world.children[0].clone())),
    };
    let spans = refused_once(&world, EffectKind::PrepareAgent, prepare).await;
    assert_told(&spans, "agent.label");
}

#[tokio::test]
async fn what_is_not_planned_any_more_is_not_tried_again() {
    let bench = Bench::new();
    let observed = World::waiting(&["a"]).observed();
    let pin = [Action::Pin {
        agent_machine: Arc::new(agent_machine("a")),
        pin: "a".to_owned(),
    }];
    let mut memory = Memory::default();
    let told = Told::default();
    let _here = told.here();
    bench.hub.with(|o| {
        let no = ClusterErrorKind::Forbidden;
        o.fails.insert(EffectKind::PinSelector, no)
    });
    for actions in [&pin[..], &[], &pin] {
        perform_all(&bench.context, &observed, actions, &mut memory).await;
    }
    let spans = told.spans("pool.action");
    let said: Vec<_> = spans.iter().map(Span::said).collect();
    assert_eq!(said, [vec!["fault"], vec![]]);
}

/// An ISO cache where every ISO is on its way.
pub(crate) struct OnTheirWay;

#[async_trait]
impl IsoCaches for OnTheirWay {
    fn leave(&self, _: &ObjectKey) {}
    async fn clear(&self, _: IsoKey, _: IsoWant) -> Result<PruneNews, ReconcileError> {
        Ok(PruneNews::default())
    }
    async fn ensure(&self, _: IsoKey, _: IsoWant) -> Result<IsoState, ReconcileError> {
        Ok(IsoState::Fetching {
            done: 0,
            total: None,
            rate: None,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_carries_the_uid_of_its_pool() {
    let bench = Bench::new();
    let told = Told::default();
    let _here = told.here();
    let span = tracing::error_span!("actor.pass", uid = Empty);
    let key = ObjectKey::new(NAMESPACE, POOL);
    let isos = Arc::new(OnTheirWay);
    pass::run(bench.context, isos, key, Memory::default())
        .instrument(span)
        .await;
    let spans = told.spans("actor.pass");
    let uids: Vec<_> = spans.iter().map(|s| s.fields.get("uid")).collect();
    assert_eq!(uids, [Some("pool-workers")]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_without_a_vsphere_agent_has_its_waits_and_its_root() {
    let mut bench = Bench::new();
    let told = Phases::default();
    bench.context.tracer = Arc::new(told.clone());
    bench.hub.with(|o| {
        o.child = None;
        // The pool's own Agents carry another value.
        let selector = o.agent_machines[0].spec.agent_label_selector.as_mut();
        let labels = selector.and_then(|s| s.match_labels.as_mut());
        labels
            .expect("labels")
            .insert("customer".to_owned(), "another".to_owned());
    });
    let key = ObjectKey::new(NAMESPACE, POOL);
    let mut memory = Memory::default();
    for minute in 0..14 {
        if minute == 11 {
            bench.hub.with(|o| o.agent_machines.clear());
        }
        let (context, isos) = (bench.context.clone(), Arc::new(OnTheirWay));
        memory = pass::run(context, isos, key.clone(), memory).await.0;
        bench.turn(Duration::from_secs(60));
    }
    let root = told.named("machine.demand");
    let [root] = &root[..] else {
        panic!("{root:?}")
    };
    assert!(root.abandoned && root.parent.is_none(), "{root:?}");
    let waits = told.named("machine.wait");
    let length = |s: &PhaseSpan| s.end.duration_since(s.start).as_secs();
    assert_eq!(waits.iter().map(length).collect::<Vec<_>>(), [300, 300, 60]);
    for wait in &waits {
        assert_eq!((wait.trace, wait.parent), (root.trace, Some(root.id)));
        let reason = (
            "agent_forge.waiting_on",
            Reason::SelectorUnsatisfiable.to_string(),
        );
        assert!(wait.attributes.contains(&reason), "{wait:?}");
    }
}

#[tokio::test]
async fn what_a_live_look_held_back_says_so() {
    let bench = Bench::new();
    let world = World::discovered("a");
    // The VsphereAgent is gone, and the watch has not shown it yet.
    bench.hub.with(|o| o.agents.clone_from(&world.agents));
    let prepare = [Action::Prepare {
        patch: approval(&world.agents[0]),
        child: ManagedVm::read(Arc::new(world.children[0].clone())),
    }];
    let told = Told::default();
    let _here = told.here();
    perform_all(
        &bench.context,
        &world.observed(),
        &prepare,
        &mut Memory::default(),
    )
    .await;
    let spans = told.spans("pool.action");
    let [held] = spans.as_slice() else {
        panic!("{spans:?}")
    };
    assert_eq!(held.said(), ["held"]);
    assert_eq!(held.events[0].get("reason"), Some("Outdated"));
    assert_eq!(held.fields.get("otel.status_code"), None);
}
