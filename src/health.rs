//! The check behind `/healthz`: does each kind of actor make progress? If not, the kubelet restarts the process.
//!
//! A kind of actor fails the check in two cases:
//!
//! - None of its actors has answered for [`SILENT`]. Each ISO cache counts for itself.
//! - Passes of it are running, and none has begun or ended for [`STUCK`].
//!
//! Slow work alone does not fail the check. Message handlers never wait for the outside. A pass waits for a vCenter
//! task for at most two minutes at a time. ISO transfers have their own time limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_actors::supervisor::{Described, Life, SupervisorMsg};
use ractor::{ActorRef, rpc::CallResult};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often the actor tree is asked.
const EVERY: Duration = Duration::from_secs(20);
/// How long the supervisor may take to answer. It gives each actor 2 s.
const WITHIN: Duration = Duration::from_secs(10);
/// A kind of actor that does not answer for this long makes no progress.
pub const SILENT: Duration = Duration::from_secs(120);
/// A kind of actor whose passes all run for this long makes no progress.
pub const STUCK: Duration = Duration::from_secs(900);

/// The name under which the supervisor itself is counted.
const SUPERVISOR: &str = "supervisor";
/// Kinds that always have one actor.
const LASTING: [&str; 4] = ["sessions", "placement", "orphans", "news"];
/// The kind whose transfers may take hours. They have their own time limits. Its actors stay once they are there: one for each
/// datastore, and each has to answer.
const TRANSFERS: &str = "iso_cache";

/// What is known about the progress of the actor tree.
#[derive(Clone, Debug)]
pub struct Health(Arc<Mutex<Progress>>);

impl Health {
    /// Reports good health until [`Self::watch`] finds a problem.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Progress::new(Instant::now()))))
    }

    /// Asks the actor tree periodically, until the future is dropped.
    pub async fn watch(self, supervisor: ActorRef<SupervisorMsg>) {
        let mut beats = interval(EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            let asked = supervisor.call(SupervisorMsg::Describe, Some(WITHIN)).await;
            if let Ok(CallResult::Success(all)) = asked {
                self.progress().note(&all, Instant::now());
            }
        }
    }

    /// # Errors
    /// A sentence that names what makes no progress.
    pub fn check(&self) -> Result<(), String> {
        self.progress().check(Instant::now())
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Progress {
    answered: BTreeMap<String, Instant>,
    passes: BTreeMap<String, Passes>,
}

/// The passes of one kind: per actor the number of passes and whether one runs; and when any of that last changed.
#[derive(Debug)]
struct Passes {
    shown: BTreeMap<String, (u64, bool)>,
    moved: Instant,
}

impl Progress {
    fn new(now: Instant) -> Self {
        let lasting = LASTING.iter().chain([&SUPERVISOR]);
        Self {
            answered: lasting.map(|kind| ((*kind).to_owned(), now)).collect(),
            passes: BTreeMap::new(),
        }
    }

    fn note(&mut self, all: &[Described], now: Instant) {
        self.answered.insert(SUPERVISOR.to_owned(), now);
        let mut alive = BTreeSet::new();
        let mut shown: BTreeMap<String, BTreeMap<String, (u64, bool)>> = BTreeMap::new();
        for actor in all.iter().filter(|a| a.life == Life::Alive) {
            let kind = actor.name.split('/').next().unwrap_or_default();
            alive.insert(kind.to_owned());
            let counted_as = if kind == TRANSFERS { &actor.name } else { kind };
            // A new actor has time to answer from its first appearance on.
            self.answered.entry(counted_as.to_owned()).or_insert(now);
            if let Some(state) = &actor.state {
                self.answered.insert(counted_as.to_owned(), now);
                let of_kind = shown.entry(kind.to_owned()).or_default();
                of_kind.insert(actor.name.clone(), (state.passes, state.running));
            }
        }
        let lasts = |kind: &String| {
            LASTING.contains(&kind.as_str()) || kind == SUPERVISOR || kind.starts_with(TRANSFERS)
        };
        self.answered
            .retain(|kind, _| lasts(kind) || alive.contains(kind));
        self.passes.retain(|kind, _| alive.contains(kind));
        shown.remove(TRANSFERS);
        for (kind, shown) in shown {
            let before = self.passes.get(&kind);
            let stands_still = shown.values().any(|(_, running)| *running)
                && before.is_some_and(|before| before.shown == shown);
            let moved = match before {
                Some(before) if stands_still => before.moved,
                _ => now,
            };
            self.passes.insert(kind, Passes { shown, moved });
        }
    }

    fn check(&self, now: Instant) -> Result<(), String> {
        let silent = self.answered.iter().filter(|(_, at)| now - **at >= SILENT);
        let silent =
            silent.map(|(kind, _)| format!("{kind}: no answer for {} s", SILENT.as_secs()));
        let stuck = self.passes.iter().filter(|(_, p)| now - p.moved >= STUCK);
        let stuck = stuck
            .map(|(kind, _)| format!("{kind}: no pass began or ended for {} s", STUCK.as_secs()));
        let all: Vec<String> = silent.chain(stuck).collect();
        if all.is_empty() {
            return Ok(());
        }
        Err(all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::{runtime::shell::Description, supervisor::routing::ActorKey};

    use super::*;

    /// An actor with its answer: passes so far, and whether one runs.
    fn actor(name: &str, answer: Option<(u64, bool)>) -> Described {
        Described {
            name: name.to_owned(),
            supervisor: SUPERVISOR,
            life: Life::Alive,
            restarts: 0,
            mailbox: Some(0),
            state: answer.map(|(passes, running)| Description {
                passes,
                running,
                ..Description::default()
            }),
        }
    }

    /// The tree with `others` beside the actors that always exist.
    fn tree(others: &[Described]) -> Vec<Described> {
        let lasting = LASTING.iter().map(|kind| actor(kind, Some((0, false))));
        lasting.chain(others.iter().cloned()).collect()
    }

    /// The result of the check when the tree looked like `seen` at every [`EVERY`] for `long`.
    fn told(seen: impl Fn(u64) -> Option<Vec<Described>>, long: Duration) -> Result<(), String> {
        let begin = Instant::now();
        let mut progress = Progress::new(begin);
        let looks = u32::try_from(long.as_secs() / EVERY.as_secs()).expect("few");
        for look in 0..=looks {
            if let Some(all) = seen(u64::from(look)) {
                progress.note(&all, begin + EVERY * look);
            }
        }
        progress.check(begin + long)
    }

    #[test]
    fn the_kinds_that_are_named_are_kinds() {
        for kind in LASTING.iter().chain([&TRANSFERS]) {
            assert!(ActorKey::KINDS.contains(kind), "{kind}");
        }
    }

    #[test]
    fn a_kind_that_does_not_answer_fails_after_two_minutes_and_no_other_does() {
        let before = SILENT - EVERY;
        assert_eq!(told(|_| None, before), Ok(()));
        let all = told(|_| None, SILENT).expect_err("nobody answers");
        assert!(all.contains("supervisor: no answer for 120 s"), "{all}");
        for kind in LASTING {
            let dumb = |_| {
                let mut all = tree(&[]);
                all.iter_mut()
                    .filter(|a| a.name == kind)
                    .for_each(|a| a.state = None);
                Some(all)
            };
            assert_eq!(told(dumb, before), Ok(()), "{kind}");
            assert_eq!(
                told(dumb, SILENT),
                Err(format!("{kind}: no answer for 120 s"))
            );
            // The actor is dead and is not restarted.
            let dead = |_| Some(tree(&[]).into_iter().filter(|a| a.name != kind).collect());
            assert_eq!(
                told(dead, SILENT),
                Err(format!("{kind}: no answer for 120 s"))
            );
        }
    }

    #[test]
    fn one_actor_that_answers_is_enough_for_its_kind_and_a_kind_may_go() {
        let hour = Duration::from_secs(3600);
        let one = [actor("vm/a/b", None), actor("vm/a/c", Some((1, false)))];
        assert_eq!(told(|_| Some(tree(&one)), hour), Ok(()));
        assert_eq!(
            told(|_| Some(tree(&one[..1])), hour),
            Err("vm: no answer for 120 s".to_owned())
        );
        let gone = |look| Some(tree(if look < 100 { &one[..1] } else { &[] }));
        assert_eq!(told(gone, hour), Ok(()));
    }

    #[test]
    fn passes_that_run_on_fail_when_none_of_their_kind_begins_or_ends() {
        let hour = Duration::from_secs(3600);
        let stuck = [
            actor("pool/a/b", Some((7, true))),
            actor("pool/a/c", Some((3, true))),
        ];
        let told_of = |all: [Described; 2]| told(move |_| Some(tree(&all)), STUCK);
        assert_eq!(
            told_of(stuck.clone()),
            Err("pool: no pass began or ended for 900 s".to_owned())
        );
        assert_eq!(told(|_| Some(tree(&stuck)), STUCK - EVERY), Ok(()));
        // No actor has work to do.
        let idle = stuck.clone().map(|mut a| {
            a.state.as_mut().expect("it answers").running = false;
            a
        });
        assert_eq!(told_of(idle), Ok(()));
        // The other actor makes progress.
        let one = |look| {
            let other = actor("pool/a/c", Some((look, true)));
            Some(tree(&[stuck[0].clone(), other]))
        };
        assert_eq!(told(one, hour), Ok(()));
        let transfer = [actor("iso_cache/x", Some((1, true)))];
        assert_eq!(told(|_| Some(tree(&transfer)), hour), Ok(()));
    }

    /// Each datastore has one: another one that answers does not help its pools.
    #[test]
    fn each_iso_cache_has_to_answer_and_none_may_go() {
        let of = |state| {
            let other = actor("iso_cache/y", Some((0, false)));
            vec![other, actor("iso_cache/x", state)]
        };
        let failed = Err("iso_cache/x: no answer for 120 s".to_owned());
        assert_eq!(told(|_| Some(tree(&of(None))), SILENT), failed);
        let dead = |look| {
            let all = of(Some((0, false)));
            Some(tree(if look == 0 { &all } else { &all[..1] }))
        };
        assert_eq!(told(dead, SILENT), failed);
        assert_eq!(told(dead, SILENT - EVERY), Ok(()));
    }
}
