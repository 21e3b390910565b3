//! How soon the status reports an Agent on its way, and in how many writes.

use agent_forge_crds::conditions::Phase;

use super::*;

/// A VM that runs, whose status is complete, and whose Agent has just registered.
async fn registered() -> Bench {
    let mut bench = on().await;
    bench.turn(MINUTE);
    bench.pass().await;
    let agent = late_agent(&bench);
    bench.hub.with(|o| {
        o.agents = vec![agent];
        o.effects.clear();
    });
    bench
}

/// Runs one pass in each of that many seconds.
async fn pass_for(bench: &mut Bench, seconds: u32) {
    for _ in 0..seconds {
        bench.pass().await;
        bench.turn(Duration::from_secs(1));
    }
}

/// Writes since the Agent registered.
fn told(bench: &Bench) -> usize {
    let all = bench.hub.with(|o| o.effects.clone());
    assert!(all.iter().all(|e| *e == E::RecordObservation), "{all:?}");
    all.len()
}

fn phase(bench: &Bench) -> Option<Phase> {
    bench.vm().phase
}

#[tokio::test]
async fn an_agent_that_is_bound_soon_is_told_of_in_one_write() {
    for seconds in [5, 20, 29] {
        let mut bench = registered().await;
        pass_for(&mut bench, seconds).await;
        assert_eq!(told(&bench), 0, "after {seconds} s");
        bind_agent(&bench);
        bench.pass().await;
        assert_eq!(phase(&bench), Some(Phase::Bound), "after {seconds} s");
        assert!(bench.vm().agent_ref.is_some());
        pass_for(&mut bench, 120).await;
        assert_eq!(told(&bench), 1, "after {seconds} s");
    }
}

#[tokio::test]
async fn an_agent_that_nobody_binds_is_told_of_all_the_same() {
    let mut bench = registered().await;
    pass_for(&mut bench, 30).await;
    assert_eq!(told(&bench), 0);
    bench.pass().await;
    assert_eq!(phase(&bench), Some(Phase::Available));
    pass_for(&mut bench, 120).await;
    assert_eq!(told(&bench), 1);
    bind_agent(&bench);
    pass_for(&mut bench, 5).await;
    assert_eq!(phase(&bench), Some(Phase::Bound));
    assert_eq!(told(&bench), 2);
}

#[tokio::test]
async fn what_is_no_news_of_the_agent_waits_no_longer_for_it() {
    let mut bench = registered().await;
    bench.pass().await;
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("pool");
        pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
    });
    pass_for(&mut bench, 5).await;
    assert_eq!(bench.status().cleanup_policy, Some(CleanupPolicy::Retain));
    assert_eq!(told(&bench), 1);
}
