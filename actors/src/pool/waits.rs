//! What is said on an AgentMachine that waits, as an Event: why it waits. Pure, but for its own memory.
//!
//! Guarantees: nothing is said of a wait that is shorter than [`QUIET`], so a scale-up that goes well says nothing; a
//! reason is said once, and again only after [`AGAIN`]; at most [`AT_ONCE`] in one pass.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::external::agent_machine::AgentMachine;
use jiff::{SignedDuration, Timestamp};
use kube::{Resource as _, ResourceExt};

use super::{claims::Need, plan::Plan, snapshot::Snapshot};
use crate::{
    model::{names::ObjectKey, trace::TraceId},
    ports::cluster::{Notice, Regarding},
};

/// Waits that end before that are the usual course of things.
pub const QUIET: Duration = Duration::from_secs(30);
/// A wait that goes on for the same reason is said again after that.
pub const AGAIN: Duration = Duration::from_secs(900);
/// Shorter waits are the debounce; no trace needs them.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// Most Events of one pass; the rest follow in the next ones.
pub const AT_ONCE: usize = 10;

/// An AgentMachine that waits, and why.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Which.
    pub agent_machine: Arc<AgentMachine>,
    /// CamelCase.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// It waits for its VM, whose VsphereAgent says so too.
    pub of_vm: bool,
}

/// A wait for the pool's decision that is over, for the trace of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// uid of the AgentMachine.
    pub uid: String,
    /// CamelCase.
    pub reason: String,
    /// First and last moment, wall clock.
    pub since: Timestamp,
    /// Last moment.
    pub end: Timestamp,
}

/// Which waits are under way, and which are over and not told yet.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Reason and first moment, by uid of the AgentMachine.
    now: BTreeMap<String, (String, Timestamp)>,
    over: Vec<Over>,
    looked: bool,
}

impl Watched {
    /// Takes in who waits at `now`; gives back the waits that are over, of machines that `accepted` has (their traces have
    /// a root). The others are kept while `exists` holds. What is under way at the first look began when `recorded` says.
    pub fn over(
        &mut self,
        waits: &[Wait],
        now: Timestamp,
        recorded: impl Fn(&Wait) -> Option<Timestamp>,
        accepted: impl Fn(&str) -> bool,
        exists: impl Fn(&str) -> bool,
    ) -> Vec<Over> {
        let first = !std::mem::replace(&mut self.looked, true);
        let mut reasons: BTreeMap<&str, &String> = BTreeMap::new();
        for wait in waits.iter().filter(|w| !w.of_vm) {
            let uid = wait.agent_machine.metadata.uid.as_deref();
            let entry = reasons.entry(uid.unwrap_or_default());
            entry.or_insert(&wait.reason);
        }
        let ended: Vec<String> = self
            .now
            .iter()
            .filter(|(uid, (reason, _))| reasons.get(uid.as_str()) != Some(&reason))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in ended {
            if let Some((reason, since)) = self.now.remove(&uid)
                && now.duration_since(since) >= SHORTEST
            {
                self.over.push(Over {
                    uid,
                    reason,
                    since,
                    end: now,
                });
            }
        }
        for wait in waits.iter().filter(|w| !w.of_vm) {
            let uid = wait.agent_machine.uid().unwrap_or_default();
            let fresh = || {
                let before = first.then(|| recorded(wait)).flatten();
                (wait.reason.clone(), before.unwrap_or(now).min(now))
            };
            self.now.entry(uid).or_insert_with(fresh);
        }
        let (told, kept) = std::mem::take(&mut self.over)
            .into_iter()
            .partition(|o| accepted(&o.uid));
        self.over = kept;
        self.over.retain(|o| exists(&o.uid));
        told
    }
}

/// What was said, by uid of the AgentMachine.
#[derive(Clone, Debug, Default)]
pub struct Said(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    reason: String,
    since: Duration,
    said: Option<Duration>,
}

/// Who waits: for want of a decision of the pool, or of progress of its VM.
#[must_use]
pub fn waits(s: &Snapshot, plan: &Plan) -> Vec<Wait> {
    let live = plan.claims.iter().filter(|c| {
        let served = matches!(c.need, Need::Served | Need::Quiet(_));
        !c.agent_machine.is_deleting() && !served
    });
    let mut rows: HashMap<&str, usize> = HashMap::new();
    for (at, row) in plan.waiting.iter().enumerate() {
        rows.entry(&row.subject).or_insert(at);
    }
    live.filter_map(|claim| {
        let child = s.child_for(&claim.agent_machine);
        let own = rows.get(claim.name().as_str());
        let of_child = child.and_then(|c| rows.get(c.key.name.as_str()));
        let planned = own
            .into_iter()
            .chain(of_child)
            .min()
            .and_then(|at| plan.waiting.get(*at))
            .map(|w| (w.reason.to_owned(), w.message.clone()));
        let of_vm = || {
            let row = child?.object.status.as_ref()?.waiting_on.first()?;
            Some((row.reason.clone(), row.message.clone()))
        };
        let by_pool = planned.is_some();
        let (reason, message) = planned.or_else(of_vm)?;
        Some(Wait {
            of_vm: !by_pool,
            agent_machine: claim.agent_machine.clone(),
            reason,
            message,
        })
    })
    .collect()
}

impl Said {
    /// The Events that are due at monotonic time `now`, and when the next one may be.
    pub fn due(&mut self, waits: &[Wait], now: Duration) -> (Vec<Notice>, Option<Duration>) {
        let uid = |w: &Wait| w.agent_machine.uid().unwrap_or_default();
        let waiting: BTreeSet<String> = waits.iter().map(uid).collect();
        self.0.retain(|known, _| waiting.contains(known));
        let (mut notices, mut next) = (Vec::new(), None::<Duration>);
        for wait in waits {
            let fresh = Entry {
                reason: wait.reason.clone(),
                since: now,
                said: None,
            };
            let entry = self.0.entry(uid(wait)).or_insert_with(|| fresh.clone());
            if entry.reason != wait.reason {
                // What was said stays in mind: reasons that take turns are no storm.
                *entry = Entry {
                    said: entry.said,
                    ..fresh
                };
            }
            let at = entry.said.map_or(entry.since + QUIET, |said| {
                let changed = entry.since > said;
                said + if changed { QUIET * 4 } else { AGAIN }
            });
            if at <= now && notices.len() < AT_ONCE {
                entry.said = Some(now);
                notices.push(notice(wait));
            } else {
                let left = at.saturating_sub(now).max(Duration::from_secs(1));
                next = Some(next.map_or(left, |n| n.min(left)));
            }
        }
        (notices, next)
    }
}

fn notice(wait: &Wait) -> Notice {
    let am = wait.agent_machine.as_ref();
    let uid = am.uid().unwrap_or_default();
    let trace = TraceId::of_machine(&uid);
    Notice {
        regarding: Regarding {
            api_version: AgentMachine::api_version(&()).into_owned(),
            kind: AgentMachine::kind(&()).into_owned(),
            key: ObjectKey::of(am),
            uid,
        },
        warning: true,
        reason: "WaitingForHost",
        action: "ProvideHost",
        note: format!("{}: {} (trace {trace})", wait.reason, wait.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::agent_machine;

    fn wait(name: &str, reason: &str) -> Wait {
        Wait {
            agent_machine: Arc::new(agent_machine(name)),
            reason: reason.to_owned(),
            message: "a sentence".to_owned(),
            of_vm: false,
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_short_wait_is_not_worth_a_word_and_a_long_one_one() {
        let mut said = Said::default();
        let waits = [wait("a", "IsoNotReady")];
        assert_eq!(said.due(&waits, s(0)), (vec![], Some(QUIET)));
        let (told, _) = said.due(&waits, s(30));
        let [notice] = &told[..] else {
            panic!("{told:?}")
        };
        let trace = TraceId::of_machine("am-a").to_string();
        assert!(notice.note.starts_with("IsoNotReady: ") && notice.note.contains(&trace));
        assert_eq!(notice.regarding.kind, "AgentMachine");
        for later in [31, 60, 929] {
            assert_eq!(said.due(&waits, s(later)).0, vec![], "after {later} s");
        }
        assert_eq!(said.due(&waits, s(930)).0.len(), 1);
        // Served, and waiting once more: another wait.
        said.due(&[], s(940));
        assert_eq!(said.due(&waits, s(941)).0, vec![]);
    }

    #[test]
    fn a_wait_is_told_when_it_is_over_and_its_machine_has_a_root() {
        use crate::testing::at;
        let mut watched = Watched::default();
        let mut look = |waits: &[Wait], second, accepted: bool, exists: bool| {
            let told = watched.over(waits, at(second), |_| None, |_| accepted, |_| exists);
            let row = |o: Over| (o.uid, o.reason, o.since, o.end);
            told.into_iter().map(row).collect::<Vec<_>>()
        };
        let told = |reason: &str, since, end| {
            vec![("am-a".to_owned(), reason.to_owned(), at(since), at(end))]
        };
        assert_eq!(look(&[wait("a", "FreeAgentFits")], 0, false, true), []);
        assert_eq!(
            look(&[wait("a", "FreeAgentFits")], 5, true, true),
            [],
            "it goes on"
        );
        assert_eq!(
            look(&[wait("a", "PoolConflict")], 9, false, true),
            [],
            "no root yet"
        );
        assert_eq!(
            look(&[], 9, true, true),
            told("FreeAgentFits", 0, 9),
            "the other was too short"
        );
        assert_eq!(look(&[], 10, true, true), [], "once");
        // What a VM waits for is its own to tell; a machine that is gone has no trace.
        let of_vm = Wait {
            of_vm: true,
            ..wait("a", "IsoNotReady")
        };
        assert_eq!(look(&[of_vm], 20, true, true), []);
        assert_eq!(look(&[wait("a", "PoolConflict")], 30, true, true), []);
        assert_eq!(look(&[], 40, false, false), []);
        assert_eq!(look(&[], 41, true, true), []);
    }

    #[test]
    fn a_new_process_goes_on_with_the_waits_that_are_recorded() {
        use crate::testing::at;
        let mut watched = Watched::default();
        let mut look = |waits: &[Wait], second| {
            let recorded = |w: &Wait| (w.reason == "PoolConflict").then(|| at(3));
            watched.over(waits, at(second), recorded, |_| true, |_| true)
        };
        assert_eq!(look(&[wait("a", "PoolConflict")], 60), []);
        let told = look(&[], 70);
        assert_eq!((told[0].since, told[0].end), (at(3), at(70)));
        // The row is still there when it waits once more: that is another wait.
        assert_eq!(look(&[wait("a", "PoolConflict")], 71), []);
        assert_eq!(look(&[], 80)[0].since, at(71));
    }

    #[test]
    fn reasons_that_take_turns_are_no_storm() {
        let mut said = Said::default();
        let mut told = 0;
        for second in 0..600 {
            let reason = if second % 2 == 0 {
                "VCenterNoAnswer"
            } else {
                "IsoNotReady"
            };
            told += said.due(&[wait("a", reason)], s(second)).0.len();
        }
        assert!(told <= 5, "{told} Events in ten minutes");
    }

    #[test]
    fn many_that_wait_are_told_little_by_little() {
        let mut said = Said::default();
        let waits: Vec<Wait> = (0..100)
            .map(|n| wait(&format!("m{n}"), "NoPermission"))
            .collect();
        said.due(&waits, s(0));
        let mut told = 0;
        for second in 30..40 {
            let now = said.due(&waits, s(second)).0.len();
            assert!(now <= AT_ONCE, "{now} at once");
            told += now;
        }
        assert_eq!(told, 100, "each once");
    }
}
