//! Many machines in virtual time: what each costs, what five hundred ask for at rest, and how the operator handles an
//! absent vCenter.
//!
//! The limits are the product's goals (docs/reference/benchmarks.md). The test prints the figures.

use std::{io::Write as _, time::Duration};

use agent_forge_sim::scale::{Site, play};

/// Prints to the real output. The test harness hides what passing tests print, but the figures are part of the result.
fn say(text: &impl std::fmt::Display) {
    // The output may be closed.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A machine may not cost more because there are many. By hand: `cargo run -p agent-forge-sim -- scale 10,100,1000`.
#[test]
fn a_machine_costs_no_more_among_fifty_than_among_ten() {
    let up = |machines| {
        let ascent = play(async {
            let mut site = Site::start().await?;
            site.up(machines).await
        });
        let ascent = ascent.unwrap_or_else(|e| panic!("{e:#}"));
        say(&ascent);
        ascent
    };
    let (few, many) = (up(10), up(50));
    assert!(many.calls() <= few.calls(), "vCenter calls grow");
    assert!(many.writes() <= few.writes(), "Kubernetes writes grow");
    assert_eq!(many.counts.most_waiting, 1, "one long poll per vCenter");
}

/// The operator switches a created VM on before it creates others. By hand: `cargo run -p agent-forge-sim -- scale
/// 50,200 --bench-pace`. The time counts from the scaling on. Upstream takes about a second of it until the first
/// AgentMachine exists.
#[test]
fn the_first_of_many_machines_does_not_wait_for_the_last() {
    const UPSTREAM: f64 = 1.0;
    // Time for the reads that come directly before each call.
    const LOOKS: f64 = 0.5;
    for (machines, goals) in [(50, [7.0, 21.5, 37.0]), (200, [7.0, 70.0, 132.0])] {
        let ascent = play(async {
            let mut site = Site::start().await?;
            site.at_bench_pace();
            site.up(machines).await
        });
        let ascent = ascent.unwrap_or_else(|e| panic!("{e:#}"));
        say(&ascent);
        assert_eq!(ascent.on.len(), machines);
        for (at, goal) in ascent.rise().iter().zip(goals) {
            let bound = goal + UPSTREAM + LOOKS;
            assert!(at.as_secs_f64() <= bound, "{goal} s: {ascent}");
        }
    }
}

/// A create takes a minute, there are eight slots, and fifty machines of another pool wait first.
#[test]
fn a_small_pool_and_a_removal_do_not_wait_for_a_burst() {
    let crowd = play(async {
        let mut site = Site::start().await?;
        site.beside_a_burst(50).await
    });
    let crowd = crowd.unwrap_or_else(|e| panic!("{e:#}"));
    say(&crowd);
    // At most the rest of one turn, and its own turn.
    assert!(crowd.small_pool <= Duration::from_secs(135), "{crowd}");
    assert!(crowd.removal <= Duration::from_secs(30), "{crowd}");
}

/// By hand: `cargo run -p agent-forge-sim -- scale 500 --serving --listen 60`.
#[test]
fn five_hundred_machines_at_rest_cost_next_to_nothing() {
    let still = play(async {
        let mut site = Site::start().await?;
        site.serving(500).await?;
        site.listen(60).await
    });
    let still = still.unwrap_or_else(|e| panic!("{e:#}"));
    say(&still);
    assert!(still.effects.is_empty(), "{:?}", still.effects);
    assert!(still.counts.most_waiting <= 1, "one long poll per vCenter");
    assert!(still.worst_minute <= 10, "{still}");
}

#[test]
fn two_hours_without_vcenter_are_borne_with_few_tries_and_over_at_once() {
    let away = play(async {
        let mut site = Site::start().await?;
        site.up(20).await?;
        site.bear_absence(Duration::from_secs(7200), 2).await
    });
    let away = away.unwrap_or_else(|e| panic!("{e:#}"));
    say(&away);
    assert!(away.told_after <= Duration::from_secs(180), "{away}");
    assert!(away.tries <= 240, "{away}");
    assert!(away.steady_after <= Duration::from_secs(120), "{away}");
}
