//! How tasks ended, for callers that ask again. It is limited in number and in bytes, since vCenter decides the size of
//! a result.

use std::collections::{HashMap, VecDeque};

use agent_forge_actors::ports::vcenter::VcResult;

use super::TaskReply;
use crate::vsphere::rpc::properties;

/// Most ends that are kept. That is more than end between the death of a caller and the next question.
const KEPT: usize = 512;
/// Most bytes that the ends may take. The latest end always stays.
const KEPT_BYTES: usize = 4 << 20;

/// How tasks ended, for the life of their filter. If a task leaves the view and returns between two polls, vCenter does
/// not report it again. So an end is kept longer than its place in the view.
#[derive(Default)]
pub(super) struct Ends {
    outcomes: HashMap<String, VcResult<TaskReply>>,
    /// Oldest first.
    order: VecDeque<String>,
    /// Roughly the bytes that they take.
    bytes: usize,
}

/// Roughly the bytes that an end takes.
fn weight(task: &str, outcome: &VcResult<TaskReply>) -> usize {
    let inner = match outcome {
        Ok(TaskReply::Success(Some(result))) => properties::weight(result),
        Ok(TaskReply::Success(None) | TaskReply::Vanished) => 0,
        Err(e) => e.subject.len() + e.message.len(),
    };
    2 * task.len() + inner + size_of::<VcResult<TaskReply>>()
}

impl Ends {
    /// Remembers an end.
    pub(super) fn note(&mut self, task: &str, outcome: VcResult<TaskReply>) {
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

    /// How that task ended, if known.
    pub(super) fn of(&self, task: &str) -> Option<&VcResult<TaskReply>> {
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
                ends.note(&task.to_string(), Ok(TaskReply::Vanished));
            }
        }
        assert!(ends.of("0").is_none());
        assert!((1..=KEPT).all(|task| ends.of(&task.to_string()).is_some()));
        assert_eq!((ends.outcomes.len(), ends.order.len()), (KEPT, KEPT));
    }

    #[test]
    fn of_large_ends_few_are_remembered() {
        let mut ends = Ends::default();
        let large = || Ok(TaskReply::Success(Some("x".repeat(KEPT_BYTES / 3).into())));
        for task in ["1", "2", "3", "2", "4"] {
            ends.note(task, large());
        }
        let held: Vec<&str> = ends.order.iter().map(String::as_str).collect();
        assert_eq!(held, ["3", "4"]);
        assert_eq!(ends.outcomes.len(), 2);
        ends.note(
            "5",
            Ok(TaskReply::Success(Some("x".repeat(KEPT_BYTES).into()))),
        );
        assert!(
            ends.of("5").is_some() && ends.order.len() == 1,
            "the latest stays"
        );
        ends.note("6", Ok(TaskReply::Vanished));
        let left = weight("6", &Ok(TaskReply::Vanished));
        assert_eq!((ends.order.len(), ends.bytes), (1, left));
    }
}
