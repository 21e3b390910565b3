//! Many machines in virtual time: what each costs, what five hundred ask for at rest, how an absent vCenter is borne.
//!
//! The bounds are the product's goals (docs/reference/benchmarks.md); the figures are printed.

use std::{io::Write as _, time::Duration};

use agent_forge_sim::scale::{Site, play};

/// Past the test harness, which keeps to itself what passing tests print: the figures are part of the result.
fn say(text: &impl std::fmt::Display) {
    // Whoever closed the output does not want it.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A machine must not cost more because there are many: `cargo run -p agent-forge-sim -- scale 10,100,1000`.
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

/// A VM that is begun is switched on before others are begun. By hand: `cargo run -p agent-forge-sim -- scale 50,200
/// --bench-pace`. Counted from the scaling on; upstream takes a second of it until the first AgentMachine asks.
#[test]
fn the_first_of_many_machines_does_not_wait_for_the_last() {
    const UPSTREAM: f64 = 1.0;
    // The answers to the looks that come directly before each call.
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

/// With a create of a minute, eight slots and fifty machines of another pool ahead.
#[test]
fn a_small_pool_and_a_removal_do_not_wait_for_a_burst() {
    let crowd = play(async {
        let mut site = Site::start().await?;
        site.beside_a_burst(50).await
    });
    let crowd = crowd.unwrap_or_else(|e| panic!("{e:#}"));
    say(&crowd);
    // At most the rest of one turn, and its own.
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
