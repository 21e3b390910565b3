//! How many Agents carry certain labels. Pure.

use std::ops::{Add, AddAssign, SubAssign};

use agent_forge_crds::external::agent::Agent;
use kube::ResourceExt;

use super::{host_class::ByClass, selector::Labels};

/// Agents that are not being deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub all: usize,
    /// Those that are claimed or bound.
    pub bound: usize,
    /// How many there are of each class.
    pub classes: ByClass,
}

impl Tally {
    /// What one Agent adds to the count of Agents with `labels`.
    #[must_use]
    pub fn of(agent: &Agent, labels: &Labels) -> Self {
        let has = |(k, v): (&String, &String)| agent.labels().get(k) == Some(v);
        let counts = !agent.is_deleting() && labels.iter().all(has);
        Self {
            all: usize::from(counts),
            bound: usize::from(counts && agent.is_claimed_or_bound()),
            classes: if counts {
                ByClass::of(agent)
            } else {
                ByClass::default()
            },
        }
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.bound += other.bound;
        self.classes += other.classes;
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        self.all -= other.all;
        self.bound -= other.bound;
        self.classes -= other.classes;
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}
