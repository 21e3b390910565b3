//! The election against a small simulated world. It has several candidates and one register with compare-and-swap. Calls
//! take time, get lost on either way, or are answered late. Processes freeze, crash and end.
//!
//! Checks: at no time two candidates may begin a call that ends within their lease, for the whole duration of the call. And
//! when the faults are over, one candidate leads.

use std::{collections::BTreeSet, time::Duration};

use proptest::{collection::vec, prelude::*};

use super::{Election, Leadership, Need, Next, Record, Timing};

const STEP: Duration = Duration::from_millis(250);
const CANDIDATES: usize = 3;

#[derive(Clone, Debug)]
enum Fault {
    /// From now on that candidate's calls are answered this many steps late.
    Slow(usize, u8),
    /// Its calls do not arrive, for this many steps.
    Cut(usize, u8),
    /// Its calls arrive but their answers do not, for this many steps.
    Deaf(usize, u8),
    /// It is frozen for this many steps.
    Freeze(usize, u8),
    /// It dies and restarts under another name.
    Crash(usize),
    /// It restarts under its own name, like a container in its Pod.
    Restart(usize),
    /// A user changes the object.
    Touch,
}

fn fault() -> impl Strategy<Value = Fault> {
    let who = 0..CANDIDATES;
    prop_oneof![
        (who.clone(), 1_u8..40).prop_map(|(w, n)| Fault::Slow(w, n)),
        (who.clone(), 1_u8..200).prop_map(|(w, n)| Fault::Cut(w, n)),
        (who.clone(), 1_u8..200).prop_map(|(w, n)| Fault::Deaf(w, n)),
        (who.clone(), 1_u8..255).prop_map(|(w, n)| Fault::Freeze(w, n)),
        who.clone().prop_map(Fault::Crash),
        who.prop_map(Fault::Restart),
        Just(Fault::Touch),
    ]
}

enum Ask {
    Read,
    Write { version: Option<u64> },
}

struct Call {
    ask: Ask,
    sent: Duration,
    arrives: u64,
    answered: u64,
    answer: Option<Answer>,
}

enum Answer {
    Shown(Option<(u64, String)>),
    Written(u64),
    Conflict,
}

struct Candidate {
    election: Election,
    name: String,
    /// Its own monotonic clock is off by that.
    offset: Duration,
    call: Option<Call>,
    wakes: u64,
    frozen_until: u64,
    cut_until: u64,
    deaf_until: u64,
    delay: u64,
    lives: u32,
    /// Until when (world's clock) a mutating call that it began may still have effects.
    effects_until: Duration,
}

struct World {
    timing: Timing,
    lease: Option<(u64, String)>,
    versions: u64,
    step: u64,
    all: Vec<Candidate>,
    /// Calls of processes that are dead by now.
    late: Vec<(String, Call)>,
    /// Until when the mutating calls of dead processes may have effects.
    ghosts: Vec<(String, Duration)>,
}

impl World {
    fn new(timing: Timing) -> Self {
        let all = (0..CANDIDATES)
            .map(|n| Candidate {
                election: Election::new(format!("c{n}-0"), timing),
                name: format!("c{n}-0"),
                offset: Duration::from_secs(1000 * n as u64),
                call: None,
                wakes: 0,
                frozen_until: 0,
                cut_until: 0,
                deaf_until: 0,
                delay: 1,
                lives: 0,
                effects_until: Duration::ZERO,
            })
            .collect();
        Self {
            timing,
            lease: None,
            versions: 0,
            step: 0,
            all,
            late: Vec::new(),
            ghosts: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        STEP * u32::try_from(self.step).unwrap_or(u32::MAX)
    }

    fn strike(&mut self, fault: &Fault) {
        let step = self.step;
        match fault {
            Fault::Slow(w, n) => self.all[*w].delay = u64::from(*n),
            Fault::Cut(w, n) => self.all[*w].cut_until = step + u64::from(*n),
            Fault::Deaf(w, n) => self.all[*w].deaf_until = step + u64::from(*n),
            Fault::Freeze(w, n) => self.all[*w].frozen_until = step + u64::from(*n),
            Fault::Crash(w) | Fault::Restart(w) => {
                let timing = self.timing;
                let c = &mut self.all[*w];
                // What it sent may still arrive and take effect.
                if let Some(call) = c.call.take() {
                    self.late.push((c.name.clone(), call));
                }
                self.ghosts.push((c.name.clone(), c.effects_until));
                if matches!(fault, Fault::Crash(_)) {
                    c.lives += 1;
                    c.name = format!("c{w}-{}", c.lives);
                }
                c.election = Election::new(c.name.clone(), timing);
                c.wakes = 0;
                c.effects_until = Duration::ZERO;
            }
            Fault::Touch => {
                if let Some((version, _)) = &mut self.lease {
                    self.versions += 1;
                    *version = self.versions;
                }
            }
        }
    }

    fn serve(
        lease: &mut Option<(u64, String)>,
        versions: &mut u64,
        who: &str,
        ask: &Ask,
    ) -> Answer {
        match ask {
            Ask::Read => Answer::Shown(lease.clone()),
            Ask::Write { version } if lease.as_ref().map(|l| l.0) == *version => {
                *versions += 1;
                *lease = Some((*versions, who.to_owned()));
                Answer::Written(*versions)
            }
            Ask::Write { .. } => Answer::Conflict,
        }
    }

    fn tick(&mut self) {
        self.step += 1;
        let (step, now) = (self.step, self.now());
        for (name, call) in &self.late {
            if call.arrives == step && call.answer.is_none() {
                Self::serve(&mut self.lease, &mut self.versions, name, &call.ask);
            }
        }
        let bound = u64::try_from(self.timing.lease_call_bound().as_millis() / STEP.as_millis())
            .unwrap_or(u64::MAX);
        for c in &mut self.all {
            // The network works while a process is frozen.
            if let Some(call) = &mut c.call
                && call.arrives <= step
                && call.answer.is_none()
                && step > c.cut_until
            {
                call.answer = Some(Self::serve(
                    &mut self.lease,
                    &mut self.versions,
                    &c.name,
                    &call.ask,
                ));
            }
            if step < c.frozen_until {
                continue;
            }
            let mine = now + c.offset;
            // It begins a mutating call whenever the fence allows it, even when it has just woken up and has not looked yet.
            // The call may take its full time.
            let call_bound = self.timing.call_bound();
            let machine_state = match c.election.leads_until() {
                Some(until) => Leadership::Leading { until },
                None => Leadership::Standby,
            };
            if machine_state.admits(Need::Whole, mine, call_bound).is_ok() {
                c.effects_until = now + call_bound;
            }
            if let Some(call) = &c.call {
                let timed_out =
                    mine.saturating_sub(call.sent) > STEP * u32::try_from(bound).unwrap_or(1);
                if timed_out {
                    c.call = None;
                    c.election.failed(mine);
                } else if call.answer.is_some() && call.answered <= step && step > c.deaf_until {
                    let call = c.call.take().expect("just seen");
                    match call.answer.expect("just seen") {
                        Answer::Shown(lease) => c.election.shown(
                            mine,
                            lease.map(|(version, holder)| Record {
                                version: version.to_string(),
                                holder: Some(holder),
                                duration: self.timing.duration(),
                            }),
                        ),
                        Answer::Written(v) => c.election.written(call.sent, v.to_string()),
                        Answer::Conflict => c.election.failed(mine),
                    }
                }
            }
            if c.call.is_none() && step >= c.wakes {
                let ask = match c.election.next(mine) {
                    Next::Wait(d) => {
                        c.wakes = step
                            + u64::try_from(d.as_millis().div_ceil(STEP.as_millis())).unwrap_or(1);
                        None
                    }
                    Next::Read => Some(Ask::Read),
                    Next::Create => Some(Ask::Write { version: None }),
                    Next::Replace { version, .. } => Some(Ask::Write {
                        version: version.parse().ok(),
                    }),
                    // Only a predecessor's Lease is cleared.
                    Next::Clear(_) => None,
                    Next::Lost(_) => {
                        // The process ends and restarts as a stranger.
                        self.ghosts.push((c.name.clone(), c.effects_until));
                        c.effects_until = Duration::ZERO;
                        c.lives += 1;
                        c.name = format!("{}-{}", &c.name[..2], c.lives);
                        c.election = Election::new(c.name.clone(), self.timing);
                        None
                    }
                };
                c.call = ask.map(|ask| Call {
                    ask,
                    sent: mine,
                    arrives: step + c.delay.div_ceil(2),
                    answered: step + c.delay,
                    answer: None,
                });
            }
        }
    }

    /// The candidates whose mutating calls may take effect now. One name is one Pod: its containers run one after the other.
    fn acting(&self) -> BTreeSet<&str> {
        let now = self.now();
        let living = self.all.iter().map(|c| (&c.name, c.effects_until));
        let dead = self.ghosts.iter().map(|(name, until)| (name, *until));
        living
            .chain(dead)
            .filter(|(_, until)| *until > now)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// The number of candidates that may begin a call now. Frozen ones count: they may wake up during a call.
    fn leading(&self) -> usize {
        let now = self.now();
        self.all
            .iter()
            .filter(|c| c.election.leads_until().is_some_and(|u| now + c.offset < u))
            .count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn never_two_act_and_in_the_end_one_does(
        faults in vec((0_u64..1200, fault()), 0..12),
        short in any::<bool>(),
    ) {
        let s = Duration::from_secs;
        let timing = if short {
            Timing::new(s(6), s(3), Duration::from_millis(500))
        } else {
            Timing::new(s(45), s(15), s(2))
        };
        let mut world = World::new(timing.expect("fits together"));
        for step in 0..1200 {
            for (at, fault) in &faults {
                if *at == step {
                    world.strike(fault);
                }
            }
            world.tick();
            let acting = world.acting();
            prop_assert!(acting.len() <= 1, "at {step}: {acting:?} act at once");
        }
        // All faults end. Then at most one lease duration and some reads pass.
        for c in &mut world.all {
            c.delay = 1;
            c.cut_until = 0;
            c.deaf_until = 0;
            c.frozen_until = 0;
        }
        let mut led = false;
        for _ in 0..400 {
            world.tick();
            prop_assert!(world.acting().len() <= 1);
            led |= world.leading() == 1;
        }
        prop_assert!(led, "nobody leads in the end");
    }
}
