//! Which changes of a pool's status are written at once, how long the others wait, and what happens to a failed write.

use agent_forge_crds::{
    Time,
    conditions::{
        CAPACITY_SATISFIED, ConditionStatus, ConditionUpdate, POOL_CONDITIONS, Reason,
        set_condition,
    },
    pool::{PastHost, VsphereAgentPoolStatus},
};

use super::*;
use crate::{
    pool::publish::{urgent, window},
    ports::cluster::ClusterErrorKind,
    testing::foreign_agent,
};

/// A status with one condition that holds or does not.
fn saying(type_: &str, holds: bool, reason: Reason) -> VsphereAgentPoolStatus {
    let mut status = VsphereAgentPoolStatus::default();
    let update = ConditionUpdate {
        type_,
        status: ConditionStatus::from(holds),
        reason: &reason,
        message: "as told",
        observed_generation: None,
    };
    set_condition(&mut status.conditions, &update, &Time(at(0)));
    status
}

#[test]
fn a_changed_condition_is_written_at_once_but_for_hosts_that_come_by_themselves() {
    for type_ in POOL_CONDITIONS {
        let saying = |holds, reason| saying(type_, holds, reason);
        let yes = saying(true, Reason::Satisfied);
        let on_the_way = saying(false, Reason::DemandDeficit);
        let capped = saying(false, Reason::CreateCapReached);
        let at_once = type_ != CAPACITY_SATISFIED;
        assert!(
            urgent(&yes, &capped) && urgent(&on_the_way, &capped),
            "{type_}"
        );
        assert_eq!(urgent(&capped, &yes), at_once, "{type_}");
        assert_eq!(urgent(&yes, &on_the_way), at_once, "{type_}");
        assert!(!urgent(&capped, &capped) && !urgent(&yes, &yes), "{type_}");
    }
}

#[test]
fn counts_wait_the_longer_the_more_vsphere_agents_there_are() {
    let waits = [0, 1, 4, 6, 10, 50, 60, 100, 5000].map(|n| window(n).as_millis());
    let expected = [5000, 5000, 5000, 5000, 5000, 5000, 6000, 10_000, 10_000];
    assert_eq!(waits, expected);
}

/// How many statuses are written in each of three passes of a pool. In the first pass the first write fails with
/// `error`.
async fn written_after(error: ClusterErrorKind) -> ([usize; 3], Option<Class>) {
    let bench = Bench::new();
    bench.hub.with(|o| {
        o.version = 10;
        let status = o.pool.as_mut().and_then(|p| p.status.as_mut());
        status.expect("a status").held_secrets.clear();
        o.fails.insert(EffectKind::PoolStatus, error);
    });
    let isos = Told::new(IsoState::Queued(ObjectKey::new(NAMESPACE, "another")));
    let mut memory = Memory::default();
    let (mut written, mut failure) = ([0; 3], None);
    for (pass, count) in written.iter_mut().enumerate() {
        bench.hub.with(|o| o.effects.clear());
        let key = ObjectKey::new(NAMESPACE, POOL);
        let ran = run(bench.context.clone(), isos.clone(), key, memory).await;
        memory = ran.0;
        if pass == 0 {
            failure = ran.1.failure;
        }
        let kinds = [EffectKind::IsoStatus, EffectKind::PoolStatus];
        *count = bench.hub.with(|o| {
            let all = o.effects.iter();
            all.filter(|e| kinds.contains(e)).count()
        });
        bench.turn(Duration::from_secs(1));
    }
    (written, failure)
}

#[tokio::test]
async fn what_could_not_be_written_is_tried_again_by_the_next_pass_and_not_before() {
    let (written, failure) = written_after(ClusterErrorKind::Unavailable).await;
    assert_eq!(failure, Some(Class::Transient));
    assert_eq!(written[0], 0, "tried again in the same pass");
    assert!(written[1] > 0, "{written:?}");
    assert_eq!(written[2], 0, "it is said");
    // If one status is refused for its content, another that reports this may be accepted.
    let (written, _) = written_after(ClusterErrorKind::Invalid).await;
    assert_eq!(written[0], 1, "{written:?}");
}

/// Foreign hosts are counted once. While they stay as they are, nothing is written, neither to the pool nor to an Agent.
#[tokio::test]
async fn a_free_foreign_host_without_demand_leaves_the_pool_as_it_is() {
    let bench = Bench::new();
    bench.hub.with(|o| {
        (o.child, o.agent_machines, o.machines) = (None, vec![], vec![]);
        let mut metal = foreign_agent("metal");
        metal.spec.approved = true;
        o.agents = vec![metal];
    });
    let isos = Told::new(IsoState::Queued(ObjectKey::new(NAMESPACE, "another")));
    let mut memory = Memory::default();
    let shown = || bench.hub.with(|o| o.pool.clone()).expect("a pool");
    let mut settled = None;
    for pass in 0..12 {
        let key = ObjectKey::new(NAMESPACE, POOL);
        memory = run(bench.context.clone(), isos.clone(), key, memory)
            .await
            .0;
        bench.turn(Duration::from_secs(60));
        if pass == 1 {
            settled = Some(shown());
            bench.hub.with(|o| o.effects.clear());
        }
    }
    let (before, after) = (settled.expect("passes"), shown());
    let counts = after.status.as_ref().and_then(|s| s.foreign_agents);
    let counts = counts.expect("a host");
    assert_eq!((counts.total, counts.free, counts.unknown), (1, 1, 1));
    assert_eq!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
    // Its hold on the Secret is confirmed every few minutes.
    let others = |kind: &EffectKind| *kind != EffectKind::HoldSecret;
    assert!(!bench.hub.with(|o| o.effects.iter().any(others)));
}

#[test]
fn a_host_that_goes_is_written_at_once_and_a_row_that_ends_waits() {
    let row = |life: i32| PastHost {
        life,
        ..PastHost::default()
    };
    let with_rows = |rows: i32| VsphereAgentPoolStatus {
        past_hosts: (0..rows).map(row).collect(),
        ..Default::default()
    };
    assert!(urgent(&with_rows(1), &with_rows(2)));
    assert!(!urgent(&with_rows(2), &with_rows(1)));
}
