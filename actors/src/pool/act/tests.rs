//! What live reads hold back.

use agent_forge_crds::{agent::Failure, external::agent::Agent};

use super::*;
use crate::{
    ports::cluster::AgentPatch,
    testing::{World, child_with_vm},
    vm::bench::Bench,
};

/// One planned preparation, with what the API server has instead of the VsphereAgent and the Agent that the plan saw.
async fn prepared(live: impl FnOnce(&mut VsphereAgent, &mut Agent)) -> (usize, Option<Duration>) {
    let bench = Bench::new();
    let world = World::discovered("a");
    let agent = &world.agents[0];
    let prepare = Action::Prepare {
        patch: AgentPatch {
            key: ObjectKey::of(agent),
            uid: agent.uid().expect("a uid"),
            resource_version: "1".to_owned(),
            labels: BTreeMap::new(),
            approved: Some(true),
            hostname: None,
            role: None,
        },
        child: Arc::new(child_with_vm("a")),
    };
    let (mut child, mut agent) = (child_with_vm("a"), agent.clone());
    live(&mut child, &mut agent);
    bench.hub.with(|o| {
        o.agents.push(agent);
        o.child = Some(child_with_vm("a"));
        o.unseen_child = Some(child);
    });
    let snapshot = world.snapshot();
    let mut memory = Memory::default();
    let acted = perform_all(&bench.context, &snapshot, &[prepare], &mut memory).await;
    assert!(acted.result.is_ok());
    let effects = bench.hub.with(|o| o.effects.clone());
    let prepared = effects.iter().filter(|e| **e == EffectKind::PrepareAgent);
    (prepared.count(), acted.again)
}

#[tokio::test]
async fn an_agent_is_prepared_for_a_vsphere_agent_that_still_wants_it() {
    assert_eq!(prepared(|_, _| {}).await, (1, None));
    let given_up = prepared(|child, _| {
        let status = child.status.as_mut().expect("recorded");
        status.last_failure = Some(Failure {
            attempt: Some(1),
            ..Failure::default()
        });
    });
    assert_eq!(given_up.await, (0, Some(HELD)));
    let another = prepared(|child, _| child.metadata.uid = Some("another".to_owned()));
    assert_eq!(another.await, (0, Some(HELD)));
    let newer = prepared(|_, agent| agent.metadata.resource_version = Some("2".to_owned()));
    assert_eq!(newer.await, (0, Some(HELD)));
}
