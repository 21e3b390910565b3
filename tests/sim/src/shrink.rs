//! Makes a failing schedule smaller before people read it.

use crate::{known, plan::Plan, run::Verdict};

/// Drops one fault after the other as long as the plan still breaks its first promise for no known reason. The result
/// shows the smaller plan ([`Verdict::shrunk`]), with its failures and its trace. `run` plays a plan.
///
/// A plan that keeps its promises, or breaks them for a known reason, stays as it is.
#[must_use]
pub fn shrink(verdict: Verdict, mut run: impl FnMut(&Plan) -> Verdict) -> Verdict {
    let Some(promise) = verdict.failures.first().map(|f| f.oracle) else {
        return verdict;
    };
    if known::excuse(&verdict).is_some() {
        return verdict;
    }
    let mut smallest = verdict;
    let mut at = 0;
    while smallest.shown().faults.len() > 1 && at < smallest.shown().faults.len() {
        let mut plan = smallest.shown().clone();
        plan.faults.remove(at);
        let smaller = run(&plan);
        let same = smaller.failures.iter().any(|f| f.oracle == promise);
        if same && known::excuse(&smaller).is_none() {
            smallest = Verdict {
                shrunk: Some(plan),
                failures: smaller.failures,
                trace: smaller.trace,
                ..smallest
            };
        } else {
            at += 1;
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{matrix, plan::Fault, promise::Oracle};

    fn plan(faults: &[&str]) -> Plan {
        let text = format!("one_machine@1 {}", faults.join(" "));
        text.parse().expect("plan")
    }

    /// Breaks a promise if both faults are there, and another one if at least the second is.
    fn played(plan: &Plan) -> Verdict {
        let has = |fault| plan.faults.iter().any(|(_, f)| *f == fault);
        let failures = match (has(Fault::ReplyLost), has(Fault::ProcessKilled)) {
            (true, true) => vec![Oracle::NothingLeaks.broken(plan.to_string())],
            (false, true) => vec![Oracle::FewExtraCalls.broken("many")],
            _ => Vec::new(),
        };
        Verdict {
            plan: plan.clone(),
            failures,
            hash: 7,
            trace: vec![plan.to_string()],
            ..Verdict::default()
        }
    }

    const ALL: [&str; 4] = [
        "create:a#1=refused",
        "create:b#1=reply_lost",
        "destroy:a#1=process_killed",
        "destroy:b#1=vcenter_down_5s",
    ];

    #[test]
    fn only_the_faults_that_break_the_promise_are_left() {
        let all = plan(&ALL);
        let small = shrink(played(&all), played);
        let both = plan(&ALL[1..3]);
        assert_eq!(small.shown(), &both);
        assert_eq!(small.failures, played(&both).failures);
        assert_eq!(small.trace, played(&both).trace);
        assert_eq!((&small.plan, small.hash), (&all, 7), "what was asked for");
        let text = matrix::summary(&small);
        assert!(text.contains(&matrix::replay(&both)), "{text}");
        assert!(text.contains(&all.to_string()), "{text}");
    }

    #[test]
    fn what_fails_for_a_known_reason_is_not_the_same_failure() {
        let known = &known::ALL[0];
        let plan: Plan = format!("{} create:a#1=refused", known.plans[0])
            .parse()
            .expect("plan");
        let fails = |what: &str, plan: &Plan| Verdict {
            failures: vec![known.breaks[0].0.broken(what)],
            ..played(plan)
        };
        let alone = |p: &Plan| match p.faults == plan.faults[..1] {
            true => fails(known.breaks[0].1, p),
            false => Verdict {
                failures: Vec::new(),
                ..played(p)
            },
        };
        assert_eq!(shrink(fails("otherwise", &plan), alone).shrunk, None);
    }
}
