//! When the cause of a wait for an ISO or for a Secret ends, the operator acts within seconds. It does not wait for a
//! resync. Trust in certificates is not simulated here: tests/it/trust.rs tests it.

use std::{io::Write as _, time::Duration};

use agent_forge_actors::runtime::backoff::RESYNC;
use agent_forge_sim::waits;

/// docs/explanation/iso-cache.md has the limits. By hand: `cargo run -p agent-forge-sim -- waits`.
#[test]
fn nobody_waits_for_a_resync() {
    let mut broken = Vec::new();
    for case in waits::ALL {
        let waited = waits::play(case).unwrap_or_else(|e| panic!("{e:#}"));
        // Prints past the test harness, because the figures are part of the result.
        let _ = writeln!(std::io::stdout().lock(), "{waited}");
        assert!(
            waited.bound <= RESYNC / 2,
            "{waited}: no better than a resync"
        );
        if waited.longest > waited.bound {
            broken.push(waited.to_string());
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(waits::ALL.len() >= 6, "all that may end a wait");
    let told = waits::ALL
        .iter()
        .filter(|c| c.bound <= Duration::from_secs(3));
    assert!(told.count() >= 5, "only what nobody tells is looked for");
}
