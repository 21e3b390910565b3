//! What shall go wrong, and where: as values, and as the text that replays it.
//!
//! A point is the n-th occurrence of one effect for one object (`V02:demo/w-x1#1`), so that a plan means the same however
//! the rest of a run is ordered.

use std::{fmt, str::FromStr, time::Duration};

use agent_forge_actors::ports::effect::EffectKind;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

macro_rules! faults {
    ($($name:ident $code:literal $text:literal;)*) => {
        /// What goes wrong at a point.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault {
            $(#[doc = $text] $name,)*
        }

        impl Fault {
            /// Every fault there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its code; design and docs name it so.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// What it is, in a phrase.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

faults! {
    CrashBefore "m1" "the process is killed before the request leaves";
    CrashAfter "m2" "the process is killed after the effect, before the answer";
    Refused "m3" "a typed refusal that passes (conflict; fault)";
    ServerError "m3s" "an error of the server's side (503) without effect";
    NotAllowed "m3p" "a refusal for lack of a right, which somebody grants at once";
    LostRequest "m4" "no answer, no effect";
    LostReply "m5" "no answer, yet the effect";
    Twice "m6" "the request arrives twice; the second answer comes back";
    Late "m7" "no answer; the effect comes after the client has given up and looked";
    TaskFails "m8" "the task is accepted, then fails";
    TaskHangs "m8h" "the task is accepted, then hangs for ten minutes";
    KillActor "g1" "the actor is killed";
    PanicActor "g2" "a handler of the actor panics";
    Kill "g3" "SIGKILL a moment later, then a new process";
    Terminate "g4" "SIGTERM, then a new process";
    LeaseTaken "g5" "somebody else writes himself into the lease, and never renews it";
    ViewLags "g6" "watches lag by 20 s for a minute";
    OldView "g7" "SIGKILL, and for a minute the next process's watches lag by 20 s";
    Relist "g8" "watches lose their events and must list again (410)";
    SessionLost "g9" "the vCenter forgets all sessions";
    VcenterDown5s "g10s" "the vCenter is away for 5 s";
    VcenterDown5m "g10m" "the vCenter is away for 5 min";
    VcenterDown2h "g10h" "the vCenter is away for 2 h";
    ApiDown5s "g11s" "the API server is away for 5 s";
    ApiDown5m "g11m" "the API server is away for 5 min";
    VcenterRestored "g12" "the vCenter comes back from a backup of 3 min ago; a person puts its inventory right 25 min later";
    SecretWrong "g13w" "the Secret holds a wrong password for 2 min";
    SecretGone "g13m" "the Secret is gone for 2 min";
    ClockJumps "g14" "the wall clock jumps ahead by 10 min";
    Slow "g15" "every answer takes 100 times as long for a minute";
    DiskFull "g16" "the datastore takes no more bytes for 2 min";
    ForeignEdit "g17" "somebody edits labels and annotations of our objects, and takes their owners off";
    FinalizersTaken "g17f" "somebody takes all finalizers off our objects";
}

impl Fault {
    /// Whether it hits the request itself, not the world around it.
    #[must_use]
    pub fn at_request(self) -> bool {
        self <= Self::TaskHangs
    }

    /// How long its cause lasts at that effect; the operator gets that much more time.
    #[must_use]
    pub fn lasts_at(self, effect: &str) -> Duration {
        match self {
            // Its client waits longer than others, and so does what comes after that.
            Self::Late if effect == EffectKind::Upload.code() => Duration::from_secs(360),
            _ => self.lasts(),
        }
    }

    /// Those that random schedules combine: where a vCenter comes back from its backup, nothing but a person puts its
    /// inventory right, who has no other fault in mind (docs/explanation/reliability.md).
    #[must_use]
    pub fn combined() -> Vec<Self> {
        let all = Self::ALL.iter().copied();
        all.filter(|f| *f != Self::VcenterRestored).collect()
    }

    /// How long its cause lasts at most effects.
    #[must_use]
    pub fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Self::Late => 60,
            // Nobody tries what only a person mends as often as the rest.
            Self::NotAllowed => 30,
            Self::TaskHangs => 600,
            Self::ViewLags | Self::OldView | Self::Slow | Self::LeaseTaken => 60,
            Self::SecretWrong | Self::SecretGone | Self::DiskFull => 120,
            Self::ApiDown5m | Self::VcenterDown5m => 300,
            Self::VcenterDown2h => 7200,
            Self::VcenterRestored => 1560,
            Self::ClockJumps => 600,
            _ => 5,
        })
    }
}

/// Where something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// Code of the effect.
    pub effect: &'static str,
    /// For which object.
    pub key: String,
    /// Which occurrence, from 1.
    pub nth: u32,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.effect, self.key, self.nth)
    }
}

impl FromStr for Point {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (effect, rest) = text.split_once(':').context("EFFECT:KEY#NTH")?;
        let (key, nth) = rest.rsplit_once('#').context("EFFECT:KEY#NTH")?;
        let known = EffectKind::ALL.iter().find(|e| e.code() == effect);
        Ok(Self {
            effect: known.with_context(|| format!("no effect {effect}"))?.code(),
            key: key.to_owned(),
            nth: nth.parse()?,
        })
    }
}

/// A workload and what goes wrong in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Plan {
    /// Name of the workload.
    pub workload: String,
    /// Seed of names and jitter.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Vec<(Point, Fault)>,
}

impl Plan {
    /// How long the cause of each fault lasts.
    pub fn lasts(&self) -> impl Iterator<Item = Duration> {
        let faults = self.faults.iter();
        faults.map(|(point, fault)| fault.lasts_at(point.effect))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.workload, self.seed)?;
        for (point, fault) in &self.faults {
            write!(f, " {point}={}", fault.code())?;
        }
        Ok(())
    }
}

impl From<Plan> for String {
    fn from(plan: Plan) -> Self {
        plan.to_string()
    }
}

impl TryFrom<String> for Plan {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl FromStr for Plan {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split_whitespace();
        let head = words.next().context("WORKLOAD[@SEED] POINT=FAULT...")?;
        let (workload, seed) = head.split_once('@').unwrap_or((head, "1"));
        let mut faults = Vec::new();
        for word in words {
            let (point, code) = word.rsplit_once('=').context("POINT=FAULT")?;
            let Some(fault) = Fault::ALL.iter().find(|f| f.code() == code) else {
                bail!("no fault {code}");
            };
            faults.push((point.parse()?, *fault));
        }
        Ok(Self {
            workload: workload.to_owned(),
            seed: seed.parse()?,
            faults,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_late_for_longer_than_anything_else() {
        let plan: Plan = "S1 V08:demo/w#1=m7 V02:x#1=m7 V08:y#1=m5"
            .parse()
            .expect("plan");
        let lasts: Vec<u64> = plan.lasts().map(|d| d.as_secs()).collect();
        assert_eq!(lasts, [360, 60, 5]);
    }

    #[test]
    fn a_plan_survives_its_text() {
        let text = "S1@7 V02:demo/w-1#1=m5 K13:demo/w#2=g10m";
        assert_eq!(text.parse::<Plan>().expect("plan").to_string(), text);
        assert!("S1 V02:x#1=m99".parse::<Plan>().is_err());
        assert!("S1 V99:x#1=m1".parse::<Plan>().is_err());
    }
}
