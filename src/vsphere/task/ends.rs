//! Remembers how tasks ended, for callers that ask again. Number and size are limited, because the server decides how
//! large a result is.

use std::collections::{HashMap, VecDeque};

use agent_forge_actors::ports::vcenter::VcResult;

use super::Outcome;
use crate::vsphere::properties;

/// Most ends that are remembered. That is more than can come between the death of one caller and the question of the
/// next.
const KEPT: usize = 512;
/// Most bytes of all ends together. The latest end is kept in any case.
const KEPT_BYTES: usize = 4 << 20;

/// How tasks ended, as long as their filter exists. If a task leaves the view and comes back between two polls, vCenter
/// sees no change and reports nothing. So an end is kept after the task has left the view.
#[derive(Default)]
pub(super) struct Ends {
    outcomes: HashMap<String, VcResult<Outcome>>,
    /// Oldest first.
    order: VecDeque<String>,
    /// About how many bytes the ends take.
    bytes: usize,
}

/// About how many bytes an end takes.
fn weight(task: &str, outcome: &VcResult<Outcome>) -> usize {
    let inner = match outcome {
        Ok(Outcome::Success(Some(result))) => properties::weight(result),
        Ok(Outcome::Success(None) | Outcome::Vanished) => 0,
        Err(e) => e.subject.len() + e.message.len(),
    };
    2 * task.len() + inner + size_of::<VcResult<Outcome>>()
}

impl Ends {
    /// Remembers an end.
    pub(super) fn note(&mut self, task: &str, outcome: VcResult<Outcome>) {
        self.bytes += weight(task, &outcome);
        if let Some(before) = self.outcomes.insert(task.to_owned(), outcome) {
            self.bytes -= weight(task, &before);
        } else {
            self.order.push_back(task.to_owned());
        }
        while self.order.len() > 1 && (self.order.len() > KEPT || self.bytes > KEPT_BYTES) {
            let oldest = self.order.pop_front().unwrap_or_default();
            if let Some(outcome) = self.outcomes.remove(&oldest) {
                self.bytes -= weight(&oldest, &outcome);
            }
        }
    }

    /// How that task ended.
    pub(super) fn of(&self, task: &str) -> Option<&VcResult<Outcome>> {
        self.outcomes.get(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ends_the_latest_are_remembered() {
        let mut ends = Ends::default();
        for task in 0..=KEPT {
            for _ in 0..2 {
                ends.note(&task.to_string(), Ok(Outcome::Vanished));
            }
        }
        assert!(ends.of("0").is_none());
        assert!((1..=KEPT).all(|task| ends.of(&task.to_string()).is_some()));
        assert_eq!((ends.outcomes.len(), ends.order.len()), (KEPT, KEPT));
    }

    #[test]
    fn of_large_ends_few_are_remembered() {
        let mut ends = Ends::default();
        let large = || Ok(Outcome::Success(Some("x".repeat(KEPT_BYTES / 3).into())));
        for task in ["1", "2", "3", "2", "4"] {
            ends.note(task, large());
        }
        let held: Vec<&str> = ends.order.iter().map(String::as_str).collect();
        assert_eq!(held, ["3", "4"]);
        assert_eq!(ends.outcomes.len(), 2);
        ends.note(
            "5",
            Ok(Outcome::Success(Some("x".repeat(KEPT_BYTES).into()))),
        );
        assert!(
            ends.of("5").is_some() && ends.order.len() == 1,
            "the latest stays"
        );
        ends.note("6", Ok(Outcome::Vanished));
        let left = weight("6", &Ok(Outcome::Vanished));
        assert_eq!((ends.order.len(), ends.bytes), (1, left));
    }
}
