//! A plan: which workload runs, what goes wrong in it, and where. As values, and as the text that replays the plan.
//!
//! The text is `WORKLOAD@SEED CALL:OBJECT#NTH=FAULT ...`, for example
//! `one_machine@1 create:demo/w-x1#1=reply_lost`.
//!
//! A point is the n-th occurrence of one effect or live read for one object. A plan therefore keeps its meaning when the other events
//! of a run come in another order.

use std::{fmt, str::FromStr, time::Duration};

use agent_forge_actors::ports::effect::EffectKind;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{call::Call, names::named};

named! {
    /// What goes wrong at a point.
    ///
    /// Plans with several faults sort them in this order, and the sample draws by it. So a new fault belongs at the end.
    Fault, "fault":
    CrashBeforeRequest "crash_before_request" "the process is killed before the request leaves";
    CrashAfterEffect "crash_after_effect" "the process is killed after the effect, before the answer";
    Refused "refused" "a typed refusal that passes (conflict; fault)";
    ServerError "server_error" "an error of the server's side (503) without effect";
    PermissionDenied "permission_denied" "a refusal for lack of a right, which somebody grants at once";
    RequestLost "request_lost" "no answer, no effect";
    ReplyLost "reply_lost" "no answer, yet the effect";
    RequestDuplicated "request_duplicated" "the request arrives twice; the second answer comes back";
    EffectLate "effect_late" "no answer; the effect comes after the client has given up and looked";
    TaskFails "task_fails" "the task is accepted, then fails";
    TaskHangs10m "task_hangs_10m" "the task is accepted, then hangs for ten minutes";
    ActorKilled "actor_killed" "the actor is killed";
    ActorPanics "actor_panics" "a handler of the actor panics";
    ProcessKilled "process_killed" "SIGKILL a moment later, then a new process";
    ProcessTerminated "process_terminated" "SIGTERM, then a new process";
    LeaseTaken "lease_taken" "somebody else writes himself into the lease, and never renews it";
    WatchesLag20s "watches_lag_20s" "watches lag by 20 s for a minute";
    ProcessKilledWatchesLag "process_killed_watches_lag" "SIGKILL, and for a minute the next process's watches lag by 20 s";
    WatchesExpire "watches_expire" "watches lose their events and must list again (410)";
    SessionsLost "sessions_lost" "the vCenter forgets all sessions";
    VcenterDown5s "vcenter_down_5s" "the vCenter is away for 5 s";
    VcenterDown5m "vcenter_down_5m" "the vCenter is away for 5 min";
    VcenterDown2h "vcenter_down_2h" "the vCenter is away for 2 h";
    ApiServerDown5s "api_server_down_5s" "the API server is away for 5 s";
    ApiServerDown5m "api_server_down_5m" "the API server is away for 5 min";
    VcenterRestored "vcenter_restored" "the vCenter comes back from a backup of 3 min ago; a person puts its inventory right 25 min later";
    SecretWrong2m "secret_wrong_2m" "the Secret holds a wrong password for 2 min";
    SecretMissing2m "secret_missing_2m" "the Secret is gone for 2 min";
    ClockJumps10m "clock_jumps_10m" "the wall clock jumps ahead by 10 min";
    AnswersSlow1m "answers_slow_1m" "every answer takes 100 times as long for a minute";
    DatastoreFull2m "datastore_full_2m" "the datastore takes no more bytes for 2 min";
    ForeignEdit "foreign_edit" "somebody edits labels and annotations of our objects, and takes their owners off";
    FinalizersRemoved "finalizers_removed" "somebody takes all finalizers off our objects";
    Paused5m "paused_5m" "a person pauses all pools for 5 min";
    DiskEdited5m "disk_edited_5m" "a person changes for 5 min whether recycled hosts keep their disk";
    AnswerSlow15s "answer_slow_15s" "the answer is made at once and arrives after 15 s";
    AnswerStale10s "answer_stale_10s" "the answer shows power and guest as they were 10 s before";
    ObjectTouched "object_touched" "right before the write, somebody annotates its object: the write must be refused";
    ObjectReplaced "object_replaced" "right before the write, another object takes the name of its object";
    AgentClaimed2m "agent_claimed_2m" "right before the write, another control plane claims the Agent, for 2 min";
    VmSwitched "vm_switched" "right before the call, somebody switches the VM on, or off if it is on";
    CapiPaused5m "capi_paused_5m" "a person pauses the Cluster, its Machines or its AgentMachines for 5 min";
    DeletionVetoed5m "deletion_vetoed_5m" "a person forbids for 5 min that VMs are removed";
    PowerOnVetoed5m "power_on_vetoed_5m" "a person forbids for 5 min that VMs are switched on";
    HoldUnseen5m "hold_unseen_5m" "a person pauses for 5 min, or forbids that VMs are removed, and the watches that show it hang";
}

/// What kind of thing goes wrong. With every change, one plan of each class runs for each workload and effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultClass {
    /// The process or an actor dies, or leadership is lost.
    Operator,
    /// A call or its task goes wrong.
    Call,
    /// The world around changes: watches, servers, the clock, and what people edit.
    World,
    /// The world changes between the operator's check and its call.
    Between,
}

impl FaultClass {
    /// What goes wrong, in a phrase.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Operator => "the operator dies",
            Self::Call => "a call fails",
            Self::World => "the world changes",
            Self::Between => "the world changes between check and call",
        }
    }
}

impl Fault {
    /// Its class.
    #[must_use]
    pub const fn class(self) -> FaultClass {
        match self {
            Self::CrashBeforeRequest
            | Self::CrashAfterEffect
            | Self::ActorKilled
            | Self::ActorPanics
            | Self::ProcessKilled
            | Self::ProcessTerminated
            | Self::LeaseTaken
            | Self::ProcessKilledWatchesLag => FaultClass::Operator,
            Self::Refused
            | Self::ServerError
            | Self::PermissionDenied
            | Self::RequestLost
            | Self::ReplyLost
            | Self::RequestDuplicated
            | Self::EffectLate
            | Self::TaskFails
            | Self::TaskHangs10m
            | Self::AnswerSlow15s
            | Self::AnswerStale10s => FaultClass::Call,
            Self::ObjectTouched
            | Self::ObjectReplaced
            | Self::AgentClaimed2m
            | Self::VmSwitched => FaultClass::Between,
            Self::WatchesLag20s
            | Self::WatchesExpire
            | Self::SessionsLost
            | Self::VcenterDown5s
            | Self::VcenterDown5m
            | Self::VcenterDown2h
            | Self::ApiServerDown5s
            | Self::ApiServerDown5m
            | Self::ClockJumps10m
            | Self::AnswersSlow1m
            | Self::DatastoreFull2m
            | Self::VcenterRestored
            | Self::SecretWrong2m
            | Self::SecretMissing2m
            | Self::ForeignEdit
            | Self::FinalizersRemoved
            | Self::Paused5m
            | Self::DiskEdited5m
            | Self::CapiPaused5m
            | Self::DeletionVetoed5m
            | Self::PowerOnVetoed5m
            | Self::HoldUnseen5m => FaultClass::World,
        }
    }

    /// Whether the fault hits the request itself. The other faults hit the world around the operator.
    #[must_use]
    pub fn at_request(self) -> bool {
        self <= Self::TaskHangs10m || self >= Self::AnswerSlow15s && !self.is_hold()
    }

    /// Whether a person holds the operator back. Another fault may keep the operator from seeing that.
    #[must_use]
    pub const fn is_hold(self) -> bool {
        matches!(
            self,
            Self::Paused5m
                | Self::CapiPaused5m
                | Self::DeletionVetoed5m
                | Self::PowerOnVetoed5m
                | Self::HoldUnseen5m
        )
    }

    /// How long the cause of the fault lasts at that call. The operator gets this much more time to converge.
    #[must_use]
    pub fn lasts_at(self, call: Call) -> Duration {
        match self {
            // The client of an upload waits longer than others. The late effect comes after that wait.
            Self::EffectLate if call == Call::Effect(EffectKind::Upload) => {
                Duration::from_secs(360)
            }
            _ => self.lasts(),
        }
    }

    /// The faults that random schedules combine. A restored vCenter is not one of them: only a person corrects its
    /// inventory, and that person does not expect another fault (docs/explanation/reliability.md). A pause or a veto
    /// is none either: another fault may keep the operator from seeing it. Neither are faults of reads and between check and
    /// effect, nor the edit of a disk policy: each would change all schedules. They are combined at recovery (`recovery.rs`).
    #[must_use]
    pub fn combined() -> Vec<Self> {
        let all = Self::ALL.iter().copied();
        all.filter(|f| !matches!(f, Self::VcenterRestored | Self::DiskEdited5m) && !f.is_hold())
            .filter(|f| *f < Self::AnswerSlow15s)
            .collect()
    }

    /// How long the cause of the fault lasts at most effects.
    #[must_use]
    pub fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Self::EffectLate => 60,
            // The operator retries less often what only a person can correct.
            Self::PermissionDenied => 30,
            Self::TaskHangs10m => 600,
            Self::WatchesLag20s
            | Self::ProcessKilledWatchesLag
            | Self::AnswersSlow1m
            | Self::LeaseTaken => 60,
            Self::SecretWrong2m
            | Self::SecretMissing2m
            | Self::DatastoreFull2m
            | Self::AgentClaimed2m => 120,
            Self::AnswerSlow15s | Self::ObjectReplaced | Self::VmSwitched => 60,
            Self::ApiServerDown5m
            | Self::VcenterDown5m
            | Self::Paused5m
            | Self::DiskEdited5m
            | Self::CapiPaused5m
            | Self::DeletionVetoed5m
            | Self::PowerOnVetoed5m
            | Self::HoldUnseen5m => 300,
            Self::VcenterDown2h => 7200,
            Self::VcenterRestored => 1560,
            Self::ClockJumps10m => 600,
            _ => 5,
        })
    }
}

/// Where something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Point {
    /// Which effect or read.
    pub call: Call,
    /// The object that the call is for.
    pub key: String,
    /// Which occurrence, counted from 1.
    pub nth: u32,
}

impl Point {
    /// Whether it is that effect.
    #[must_use]
    pub fn is(&self, effect: EffectKind) -> bool {
        self.call == Call::Effect(effect)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.call.name(), self.key, self.nth)
    }
}

impl FromStr for Point {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (call, rest) = text.split_once(':').context("CALL:KEY#NTH")?;
        let (key, nth) = rest.rsplit_once('#').context("CALL:KEY#NTH")?;
        Ok(Self {
            call: Call::named(call)?,
            key: key.to_owned(),
            nth: nth.parse()?,
        })
    }
}

impl From<Point> for String {
    fn from(point: Point) -> Self {
        point.to_string()
    }
}

impl TryFrom<String> for Point {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

/// A workload and the faults in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Plan {
    /// Name of the workload.
    pub workload: String,
    /// Seed of names and jitter.
    pub seed: u64,
    /// What goes wrong, and where.
    pub faults: Vec<(Point, Fault)>,
}

impl Plan {
    /// The plan of that workload in which nothing goes wrong.
    #[must_use]
    pub fn without_faults(workload: &str, seed: u64) -> Self {
        Self {
            workload: workload.to_owned(),
            seed,
            faults: Vec::new(),
        }
    }

    /// How long the cause of each fault lasts.
    pub fn lasts(&self) -> impl Iterator<Item = Duration> {
        let faults = self.faults.iter();
        faults.map(|(point, fault)| fault.lasts_at(point.call))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.workload, self.seed)?;
        for (point, fault) in &self.faults {
            write!(f, " {point}={}", fault.name())?;
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
            let (point, fault) = word.rsplit_once('=').context("POINT=FAULT")?;
            faults.push((point.parse()?, fault.parse()?));
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
    fn a_plan_survives_its_text() {
        let text =
            "one_machine@7 create:demo/w-1#1=reply_lost pool_status:demo/w#2=vcenter_down_5m";
        assert_eq!(text.parse::<Plan>().expect("plan").to_string(), text);
        assert!("one_machine create:x#1=late".parse::<Plan>().is_err());
        assert!("one_machine creat:x#1=refused".parse::<Plan>().is_err());
    }

    /// Plans sort their faults. Seeded schedules stay the same as long as this order does.
    #[test]
    fn effects_sort_as_their_codes_do() {
        let codes: Vec<&str> = EffectKind::ALL.iter().map(|e| e.code()).collect();
        assert!(EffectKind::ALL.is_sorted() && codes.is_sorted());
    }
}
