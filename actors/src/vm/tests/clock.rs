//! The discovery deadline when somebody sets the wall clock.

use super::*;
use crate::ports::clock::Clock as _;

/// The VM was given up.
fn is_given_up(bench: &Bench) -> bool {
    bench.status().last_failure.is_some()
}

#[tokio::test]
async fn a_wall_clock_that_is_set_ahead_gives_no_vm_up_before_its_time() {
    let mut bench = on().await;
    bench.until(|b| b.vm().discovery_deadline.is_some()).await;
    bench.clock.jump(2880 * MINUTE);
    for _ in 0..29 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert!(!is_given_up(&bench) && bench.is_on());
    assert_ne!(bench.vm().phase, Some(Phase::Orphaned));
    let begun = bench.clock.monotonic();
    bench.until(is_given_up).await;
    assert!(bench.clock.monotonic() - begun <= 5 * MINUTE);
}

#[tokio::test]
async fn a_wall_clock_that_is_set_back_gives_no_vm_up_before_it_says_so() {
    let mut bench = Bench::new();
    bench.clock.jump(60 * MINUTE);
    bench.until(Bench::is_on).await;
    bench.until(|b| b.vm().discovery_deadline.is_some()).await;
    bench.clock.set_back(60 * MINUTE);
    bench.turn(80 * MINUTE);
    bench.pass().await;
    assert!(!is_given_up(&bench));
    bench.turn(11 * MINUTE);
    bench.until(is_given_up).await;
}

#[tokio::test]
async fn an_actor_that_did_not_see_the_power_on_goes_by_the_wall_clock() {
    let mut bench = on().await;
    bench.until(|b| b.vm().discovery_deadline.is_some()).await;
    bench.restart();
    bench.pass().await;
    assert!(!is_given_up(&bench));
    bench.clock.jump(31 * MINUTE);
    bench.until(is_given_up).await;
}
