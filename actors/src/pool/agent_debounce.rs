//! Waits until an Agent has stopped changing before it is prepared. Pure, except for its own memory.
//!
//! The controllers of an Agent write it several times within a second when it registers. The API server refuses a patch
//! that is made from a version in between, and that costs a write all the same. So an Agent is prepared once it has not
//! changed for [`STILL`], and after [`MOST`] at the latest. No other action waits, and a fence never does.
//!
//! Assumption: an Agent that exists when the actor starts has not changed for long enough.

use std::{collections::BTreeMap, time::Duration};

use super::plan::Action;

/// An Agent that has not changed for that long is prepared. The time is longer than the pause between two writes of one
/// registration, and too short to be noticed.
pub const STILL: Duration = Duration::from_millis(300);
/// An Agent that keeps changing is prepared after that time.
pub const MOST: Duration = Duration::from_secs(2);

/// Agents that are to be prepared. All times are monotonic.
#[derive(Debug, Default)]
pub struct Settling {
    /// By uid.
    agents: BTreeMap<String, Unsettled>,
    /// `false` at the first look.
    looked: bool,
}

/// An Agent that is to be prepared.
#[derive(Debug)]
struct Unsettled {
    version: String,
    /// Since when it has not changed.
    since: Duration,
    /// Since when it is to be prepared.
    first: Duration,
}

impl Unsettled {
    fn left(&self, now: Duration) -> Duration {
        let still = STILL.saturating_sub(now.saturating_sub(self.since));
        still.min(MOST.saturating_sub(now.saturating_sub(self.first)))
    }
}

impl Settling {
    /// The part of `actions` that is to be carried out at `now`, and when to look at the rest.
    pub fn due(&mut self, actions: &[Action], now: Duration) -> (Vec<Action>, Option<Duration>) {
        let first_look = !std::mem::replace(&mut self.looked, true);
        let mut known = std::mem::take(&mut self.agents);
        let (mut due, mut again) = (Vec::with_capacity(actions.len()), None::<Duration>);
        for action in actions {
            let Action::Prepare { patch, .. } = action else {
                due.push(action.clone());
                continue;
            };
            let mut seen = known.remove(&patch.uid).unwrap_or_else(|| Unsettled {
                version: patch.resource_version.clone(),
                since: if first_look {
                    now.saturating_sub(STILL)
                } else {
                    now
                },
                first: now,
            });
            if seen.version != patch.resource_version {
                seen.version.clone_from(&patch.resource_version);
                seen.since = now;
            }
            let left = seen.left(now);
            if first_look || left.is_zero() {
                due.push(action.clone());
            } else {
                again = Some(again.map_or(left, |a| a.min(left)));
            }
            self.agents.insert(patch.uid.clone(), seen);
        }
        (due, again)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::managed_vm::ManagedVm,
        pool::{Memory, act::perform_all},
        ports::{cluster::AgentPatch, effect::EffectKind},
        testing::{World, approval, child_with_vm, foreign_agent},
        vm::testing::Bench,
    };

    fn patch(uid: &str, version: u32) -> AgentPatch {
        let mut agent = foreign_agent(uid);
        agent.metadata.resource_version = Some(version.to_string());
        approval(&agent)
    }

    fn prepare(uid: &str, version: u32) -> Action {
        Action::Prepare {
            patch: patch(uid, version),
            child: ManagedVm::read(Arc::new(child_with_vm("a"))),
        }
    }

    /// Versions of the Agents that are prepared, and in how many milliseconds the next one may be.
    fn due(settling: &mut Settling, actions: &[Action], ms: u64) -> (Vec<String>, Option<u64>) {
        // A process that started some time ago.
        let now = Duration::from_secs(1000) + Duration::from_millis(ms);
        let (due, again) = settling.due(actions, now);
        let versions = due.iter().filter_map(|a| match a {
            Action::Prepare { patch, .. } => Some(patch.resource_version.clone()),
            _ => None,
        });
        let again = again.and_then(|a| u64::try_from(a.as_millis()).ok());
        (versions.collect(), again)
    }

    #[test]
    fn an_agent_is_prepared_when_it_has_stood_still() {
        let mut s = Settling::default();
        assert_eq!(due(&mut s, &[], 0), (vec![], None));
        let held = |left| (vec![], Some(left));
        assert_eq!(due(&mut s, &[prepare("a", 1)], 100), held(300));
        assert_eq!(due(&mut s, &[prepare("a", 1)], 200), held(200));
        assert_eq!(due(&mut s, &[prepare("a", 2)], 350), held(300));
        let both = [prepare("a", 2), prepare("b", 7)];
        assert_eq!(due(&mut s, &both, 600), held(50));
        let a = vec!["2".to_owned()];
        assert_eq!(due(&mut s, &both, 650), (a, Some(250)));
        // It was prepared, and is to be prepared again later.
        assert_eq!(due(&mut s, &[], 700), (vec![], None));
        assert_eq!(due(&mut s, &[prepare("a", 9)], 5000), held(300));
    }

    #[test]
    fn an_agent_that_changes_on_and_on_is_prepared_all_the_same() {
        let mut s = Settling::default();
        due(&mut s, &[], 0);
        for step in 0..20_u32 {
            let at = u64::from(step) * 100;
            let (now, again) = due(&mut s, &[prepare("a", step)], at);
            assert_eq!(now, [""; 0], "at {at} ms");
            assert_eq!(again, Some(300_u64.min(2000 - at)), "at {at} ms");
        }
        let (now, _) = due(&mut s, &[prepare("a", 20)], 2000);
        assert_eq!(now, ["20"]);
    }

    #[test]
    fn what_stands_there_from_the_beginning_and_what_prepares_nothing_never_wait() {
        let mut s = Settling::default();
        let first = due(&mut s, &[prepare("a", 1)], 0);
        assert_eq!(first, (vec!["1".to_owned()], None));
        let all = [
            Action::AddFinalizer,
            prepare("b", 1),
            Action::Fence {
                patch: patch("c", 1),
                child: ManagedVm::read(Arc::new(child_with_vm("c"))),
            },
            Action::RemoveFinalizer,
        ];
        let (now, again) = s.due(&all, Duration::from_secs(1001));
        assert_eq!(again, Some(STILL));
        assert!(
            matches!(
                now.as_slice(),
                [
                    Action::AddFinalizer,
                    Action::Fence { .. },
                    Action::RemoveFinalizer
                ]
            ),
            "{now:?}"
        );
    }

    #[tokio::test]
    async fn a_pass_leaves_an_agent_alone_that_still_moves() {
        let bench = Bench::new();
        let world = World::discovered("a");
        bench.hub.with(|o| {
            o.agents.clone_from(&world.agents);
            o.child = world.children.first().cloned();
        });
        let registered = [Action::Prepare {
            patch: approval(&world.agents[0]),
            child: ManagedVm::read(Arc::new(world.children[0].clone())),
        }];
        let mut memory = Memory::default();
        let began = world.observed();
        // The time, what is planned then, how often it was prepared by then, and when to look again.
        let steps = [
            (Duration::ZERO, &[][..], 0, None),
            (STILL, &registered[..], 0, Some(STILL)),
            (STILL * 2, &registered[..], 1, None),
        ];
        for (after, actions, times, again) in steps {
            let mut s = began.clone();
            s.now += after;
            let acted = perform_all(&bench.context, &s, actions, &mut memory).await;
            let effects = bench.hub.with(|o| o.effects.clone());
            let prepared = effects.iter().filter(|e| **e == EffectKind::PrepareAgent);
            assert_eq!(prepared.count(), times, "after {after:?}");
            assert_eq!(acted.again, again, "after {after:?}");
        }
    }
}
