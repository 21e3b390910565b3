//! Which AgentMachines wait and why, for their Events and traces. Pure, except for its own memory.
//!
//! Guarantees: a wait is announced at the pace of an obstacle ([`Pace::OBSTACLE`]). So a scale-up that succeeds
//! announces nothing. One pass sends at most [`AT_ONCE`] Events.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    conditions::Reason, conditions::event, external::agent_machine::AgentMachine,
};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource as _, ResourceExt};

use super::topic::Topic;
use crate::{
    domain::{names::ObjectKey, trace::TraceId},
    pool::{observed::Observed, plan::Plan},
    ports::cluster::{Notice, Regarding},
    report::spans::{self, Until},
    runtime::announcer::{Announcer, Due, Pace},
    world::classify::{Demand, DemandReason, DemandState},
};

/// Shorter waits are the debounce; no trace needs them.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// Most Events of one pass. The rest follows in the next passes.
pub const AT_ONCE: usize = 10;

/// An AgentMachine that waits, and why.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Which.
    pub agent_machine: Arc<AgentMachine>,
    /// Why, as one word.
    pub reason: Reason,
    /// Sentence.
    pub message: String,
    /// It waits for its VM, and its VsphereAgent has the same reason in its status.
    pub of_vm: bool,
}

/// A wait for the pool's decision, as a part of its machine's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasted {
    /// The AgentMachine.
    pub agent_machine: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Why, as one word.
    pub reason: Reason,
    /// First moment, wall clock.
    pub since: Timestamp,
    /// Whether it is over, and when.
    pub until: Until,
}

/// The current waits.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// By uid of the AgentMachine.
    now: BTreeMap<String, UnderWay>,
    looked: bool,
}

#[derive(Clone, Debug)]
struct UnderWay {
    agent_machine: ObjectKey,
    reason: Reason,
    since: Timestamp,
    /// Complete pieces that were sent.
    told: i64,
}

impl UnderWay {
    fn lasted(&self, uid: &str, until: Until) -> Lasted {
        Lasted {
            agent_machine: self.agent_machine.clone(),
            uid: uid.to_owned(),
            reason: self.reason.clone(),
            since: self.since,
            until,
        }
    }
}

impl Watched {
    /// Updates the waits with those at `now`. Returns the waits that are over, and those of which another piece is
    /// over.
    ///
    /// A wait that exists at the first look began when `recorded` says. A record that becomes newer later counts from
    /// then on, as it will for the next process.
    pub fn look(
        &mut self,
        waits: &[Wait],
        now: Timestamp,
        recorded: impl Fn(&Wait) -> Option<Timestamp>,
    ) -> Vec<Lasted> {
        let first = !std::mem::replace(&mut self.looked, true);
        let mut told = self.end(waits, now);
        for wait in waits.iter().filter(|w| !w.of_vm) {
            let uid = wait.agent_machine.uid().unwrap_or_default();
            let recorded = recorded(wait).map(|at| at.min(now));
            let fresh = || UnderWay {
                agent_machine: ObjectKey::of(wait.agent_machine.as_ref()),
                reason: wait.reason.clone(),
                since: recorded.filter(|_| first).unwrap_or(now),
                told: 0,
            };
            let under_way = self.now.entry(uid.clone()).or_insert_with(fresh);
            let later = recorded.filter(|at| at.as_second() > under_way.since.as_second());
            under_way.since = later.unwrap_or(under_way.since);
            let pieces = spans::pieces(under_way.since, now);
            if pieces > under_way.told {
                under_way.told = pieces;
                told.push(under_way.lasted(&uid, Until::Lasts(now)));
            }
        }
        told
    }

    /// Removes the waits that are over.
    fn end(&mut self, waits: &[Wait], now: Timestamp) -> Vec<Lasted> {
        let mut reasons: BTreeMap<&str, &Reason> = BTreeMap::new();
        for wait in waits.iter().filter(|w| !w.of_vm) {
            let uid = wait.agent_machine.metadata.uid.as_deref();
            reasons
                .entry(uid.unwrap_or_default())
                .or_insert(&wait.reason);
        }
        let mut over = Vec::new();
        self.now.retain(|uid, wait| {
            if reasons.get(uid.as_str()) == Some(&&wait.reason) {
                return true;
            }
            if now.duration_since(wait.since) >= SHORTEST {
                over.push(wait.lasted(uid, Until::Over(now)));
            }
            false
        });
        over
    }
}

/// It has no host, whether it asks for one or its provider cannot even look.
fn lacks_a_host(demand: &Demand) -> bool {
    let lacks = match &demand.state {
        DemandState::Served => false,
        DemandState::NotRequested(why) => matches!(why, DemandReason::SearchFailed(_)),
        // If the pool is not admitted, the operator writes nothing there, not even an Event. The pool's own conditions
        // report it.
        DemandState::NotNow {
            why: DemandReason::NamespaceNotAllowed(_),
            ..
        } => false,
        _ => true,
    };
    lacks && !demand.agent_machine.is_deleting()
}

/// All that wait: for a decision of the pool, or for progress of their VM.
#[must_use]
pub fn waits(s: &Observed, plan: &Plan) -> Vec<Wait> {
    let live = plan.demands.iter().filter(|c| lacks_a_host(c));
    let mut rows: HashMap<&str, usize> = HashMap::new();
    for (at, row) in plan.waiting.iter().enumerate() {
        rows.entry(&row.subject).or_insert(at);
    }
    live.filter_map(|demand| {
        let child = s.child_for(&demand.agent_machine);
        let own = rows.get(demand.name().as_str());
        let of_child = child.and_then(|c| rows.get(c.key.name.as_str()));
        let planned = own
            .into_iter()
            .chain(of_child)
            .min()
            .and_then(|at| plan.waiting.get(*at))
            .map(|w| (w.reason.clone(), w.message.clone()));
        let of_vm = || {
            let row = child?.object.status.as_ref()?.waiting_on.first()?;
            Some((row.reason.clone(), row.message.clone()))
        };
        let by_pool = planned.is_some();
        let (reason, message) = planned.or_else(of_vm)?;
        Some(Wait {
            of_vm: !by_pool,
            agent_machine: demand.agent_machine.clone(),
            reason,
            message,
        })
    })
    .collect()
}

/// The Events that are due at monotonic time `now`, and when the next one may be.
pub fn events(
    announcer: &mut Announcer<Topic>,
    waits: &[Wait],
    now: Duration,
) -> (Vec<Notice>, Option<Duration>) {
    let uid = |w: &Wait| w.agent_machine.uid().unwrap_or_default();
    let waiting: BTreeSet<String> = waits.iter().map(uid).collect();
    announcer.keep(|topic| !matches!(topic, Topic::Wait(uid) if !waiting.contains(uid)));
    let (mut notices, mut next) = (Vec::new(), None::<Duration>);
    for wait in waits {
        let topic = Topic::Wait(uid(wait));
        let left = match announcer.due(topic.clone(), wait.reason.as_str(), now, Pace::OBSTACLE) {
            Due::Never => continue,
            Due::In(left) => left,
            Due::Now if notices.len() < AT_ONCE => {
                announcer.announced(&topic, now);
                notices.push(notice(wait));
                continue;
            }
            Due::Now => Duration::from_secs(1),
        };
        next = Some(next.map_or(left, |n| n.min(left)));
    }
    (notices, next)
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
        reason: event::WAITING_FOR_HOST,
        action: "ProvideHost",
        note: format!("{}: {} (trace {trace})", wait.reason, wait.message),
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::external::agent_machine::{
        AGENT_NOT_YET_FOUND, AGENT_RESERVED, PAUSED_ANNOTATION,
    };

    use super::*;
    use crate::{
        pool::plan::plan,
        runtime::announcer::QUIET,
        testing::{CONTROL_PLANE, World, agent_machine, condition, with},
    };

    fn wait(name: &str, reason: Reason) -> Wait {
        Wait {
            agent_machine: Arc::new(agent_machine(name)),
            reason,
            message: "a sentence".to_owned(),
            of_vm: false,
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn whoever_cannot_ask_for_a_host_waits_for_what_its_provider_names() {
        let mut world = World::waiting(&["a"]);
        let error = "AgentCluster demo names no ClusterDeployment\nand more";
        let failed = with(
            condition(AGENT_RESERVED, "False", AGENT_NOT_YET_FOUND),
            |c| {
                c.message = Some(error.to_owned());
            },
        );
        let status = world.agent_machines[0].status.get_or_insert_default();
        status.conditions = vec![failed];
        let told = |world: &World| {
            let s = world.observed();
            let plan = plan(&s);
            assert!(plan.actions.is_empty(), "{:?}", plan.actions);
            (waits(&s, &plan), plan.waiting)
        };
        let (waits, rows) = told(&world);
        let ([one], [row]) = (&waits[..], &rows[..]) else {
            panic!("{waits:?} {rows:?}")
        };
        assert_eq!(
            (&one.reason, one.of_vm),
            (&Reason::AgentSearchFailed, false)
        );
        let words = ": AgentCluster demo names no ClusterDeployment";
        assert!(one.message.ends_with(words), "{one:?}");
        assert_eq!(
            (row.subject.as_str(), &row.reason),
            ("a", &Reason::AgentSearchFailed)
        );
        // Nothing is expected from a paused one, so no Event says more than the row.
        let paused = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        world.agent_machines[0].annotations_mut().extend([paused]);
        let (waits, rows) = told(&world);
        let reasons: Vec<&Reason> = rows.iter().map(|row| &row.reason).collect();
        assert!(waits.is_empty(), "{waits:?}");
        assert_eq!(reasons, [&Reason::Paused]);
    }

    #[test]
    fn a_short_wait_is_not_worth_a_word_and_a_long_one_one() {
        let mut said = Announcer::default();
        let waits = [wait("a", Reason::IsoNotReady)];
        assert_eq!(events(&mut said, &waits, s(0)), (vec![], Some(QUIET)));
        let (told, _) = events(&mut said, &waits, s(30));
        let [notice] = &told[..] else {
            panic!("{told:?}")
        };
        let trace = TraceId::of_machine("am-a").to_string();
        assert!(notice.note.starts_with("IsoNotReady: ") && notice.note.contains(&trace));
        assert_eq!(notice.regarding.kind, "AgentMachine");
        for later in [31, 60, 929] {
            assert_eq!(
                events(&mut said, &waits, s(later)).0,
                vec![],
                "after {later} s"
            );
        }
        assert_eq!(events(&mut said, &waits, s(930)).0.len(), 1);
        // It was served, and waits once more: this is another wait.
        events(&mut said, &[], s(940));
        assert_eq!(events(&mut said, &waits, s(941)).0, vec![]);
    }

    /// Reason, first and last second of what is exported, and whether it is over.
    type Row = (Reason, i64, i64, bool);

    fn rows(told: Vec<Lasted>) -> Vec<Row> {
        use crate::testing::at;
        let second = |t: Timestamp| t.duration_since(at(0)).as_secs();
        let row = |l: Lasted| {
            assert_eq!(l.uid, "am-a");
            assert_eq!(l.agent_machine, ObjectKey::new(CONTROL_PLANE, "a"));
            let (until, over) = match l.until {
                Until::Lasts(at) => (at, false),
                Until::Over(at) => (at, true),
            };
            (l.reason, second(l.since), second(until), over)
        };
        told.into_iter().map(row).collect()
    }

    #[test]
    fn a_wait_is_told_when_it_is_over() {
        use crate::testing::at;
        let mut watched = Watched::default();
        let mut look = |waits: &[Wait], second| rows(watched.look(waits, at(second), |_| None));
        let over = |reason: Reason, since, end| vec![(reason, since, end, true)];
        assert_eq!(look(&[wait("a", Reason::FreeAgentFits)], 0), []);
        assert_eq!(
            look(&[wait("a", Reason::FreeAgentFits)], 5),
            [],
            "it goes on"
        );
        let changed = look(&[wait("a", Reason::PoolConflict)], 9);
        assert_eq!(changed, over(Reason::FreeAgentFits, 0, 9));
        assert_eq!(look(&[], 9), [], "too short");
        assert_eq!(look(&[], 10), []);
        // The VM's own actor exports what the VM waits for.
        let of_vm = Wait {
            of_vm: true,
            ..wait("a", Reason::IsoNotReady)
        };
        assert_eq!(look(&[of_vm], 20), []);
        assert_eq!(look(&[], 40), []);
    }

    #[test]
    fn a_wait_that_lasts_is_told_when_another_piece_of_it_is_over() {
        use crate::testing::at;
        let mut watched = Watched::default();
        let mut look = |second| {
            let waits = [wait("a", Reason::PoolConflict)];
            rows(watched.look(&waits, at(second), |_| None))
        };
        let lasts = |until| vec![(Reason::PoolConflict, 0, until, false)];
        for (second, told) in [
            (0, vec![]),
            (299, vec![]),
            (300, lasts(300)),
            (301, vec![]),
            (910, lasts(910)),
            (911, vec![]),
        ] {
            assert_eq!(look(second), told, "after {second} s");
        }
    }

    #[test]
    fn a_new_process_goes_on_with_the_waits_that_are_recorded() {
        use crate::testing::at;
        let mut watched = Watched::default();
        let mut look = |waits: &[Wait], second| {
            let recorded = |w: &Wait| (w.reason == Reason::PoolConflict).then(|| at(3));
            rows(watched.look(waits, at(second), recorded))
        };
        let over = |since, end| vec![(Reason::PoolConflict, since, end, true)];
        assert_eq!(look(&[wait("a", Reason::PoolConflict)], 60), []);
        assert_eq!(look(&[], 70), over(3, 70));
        // The row still exists when it waits once more: this is another wait.
        assert_eq!(look(&[wait("a", Reason::PoolConflict)], 71), []);
        assert_eq!(look(&[], 80), over(71, 80));
    }

    #[test]
    fn the_first_process_goes_by_the_record_as_the_next_one_will() {
        use crate::testing::at;
        let (mut first, mut next) = (Watched::default(), Watched::default());
        let waits = [wait("a", Reason::PoolConflict)];
        assert_eq!(first.look(&waits, at(0), |_| None), []);
        let recorded = |_: &Wait| Some(at(4));
        assert_eq!(first.look(&waits, at(5), recorded), []);
        let told = first.look(&waits, at(400), recorded);
        assert_eq!(told, next.look(&waits, at(400), recorded));
        assert_eq!(rows(told)[0].1, 4);
    }

    #[test]
    fn reasons_that_take_turns_are_no_storm() {
        let mut said = Announcer::default();
        let mut told = 0;
        for second in 0..600 {
            let reason = if second % 2 == 0 {
                Reason::VcenterNoAnswer
            } else {
                Reason::IsoNotReady
            };
            told += events(&mut said, &[wait("a", reason)], s(second)).0.len();
        }
        assert!(told <= 5, "{told} Events in ten minutes");
    }

    #[test]
    fn many_that_wait_are_told_little_by_little() {
        let mut said = Announcer::default();
        let waits: Vec<Wait> = (0..100)
            .map(|n| wait(&format!("m{n}"), Reason::NoPermission))
            .collect();
        events(&mut said, &waits, s(0));
        let mut told = 0;
        for second in 30..40 {
            let now = events(&mut said, &waits, s(second)).0.len();
            assert!(now <= AT_ONCE, "{now} at once");
            told += now;
        }
        assert_eq!(told, 100, "each once");
    }
}
