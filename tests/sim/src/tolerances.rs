//! What the oracles tolerate, and why. Everything else is as strict as the promise says.
//!
//! The rows are what the oracles read: a number stands nowhere else. [`table`] prints them for tests/sim/README.md.

use std::time::Duration;

use agent_forge_actors::{
    ports::effect::EffectKind::{
        self, DeleteFile, EjectIso, Event, Lease, PowerOff, SessionView, Upload,
    },
    vm::boot_repair,
};
use agent_forge_crds::conditions::Reason;

use crate::{
    call::{Call, Read},
    plan::{Fault, FaultClass, Plan, Point},
    promise::Oracle,
};

/// Something that an oracle lets pass.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance<T> {
    /// The oracle.
    pub oracle: Oracle,
    /// How much of it, in what unit, or which one.
    pub allows: T,
    /// What it lets pass. `{}` stands for what it allows.
    pub what: &'static str,
    /// Why that is no broken promise.
    pub reason: &'static str,
}

const fn row<T>(
    oracle: Oracle,
    allows: T,
    what: &'static str,
    reason: &'static str,
) -> Tolerance<T> {
    Tolerance {
        oracle,
        allows,
        what,
        reason,
    }
}

impl Tolerance<()> {
    /// Whether it lets this pass. The caller finds out whether this is what the row describes.
    #[must_use]
    pub const fn lets(&self, described: bool) -> bool {
        described
    }
}

/// A number of tries, and one more for each such time.
pub type Tries = (u64, Duration);

impl Tolerance<Tries> {
    /// Tries in that time.
    #[must_use]
    pub const fn within(&self, time: Duration) -> u64 {
        self.allows.0 + time.as_secs() / self.allows.1.as_secs()
    }
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

use Oracle as O;

/// VMs without a VsphereAgent.
pub const KNOWN_TO_PEOPLE: Tolerance<()> = row(
    O::NothingLeaks,
    (),
    "a VM that a restored vCenter or a lost hub shows",
    "a person knows of it, and no VsphereAgent can hold it",
);
/// Emptied drives of hosts that serve.
pub const EJECTED: Tolerance<()> = row(
    O::ForeignAndServingUntouched,
    (),
    "the ISO of an installed host is ejected where its pool wants that",
    "the host does not need it any more",
);
/// Resets of a host that serves.
pub const RESETS: Tolerance<u64> = row(
    O::ForeignAndServingUntouched,
    2,
    "a host that booted the ISO instead of its disk loses the ISO, gets its boot order, and is reset {} times at most",
    "it does not become a Node otherwise",
);
/// Other numbers in the final state.
pub const ATTEMPTS: Tolerance<()> = row(
    O::SameFinalState,
    (),
    "other numbers of attempts where vCenter lost VMs",
    "the operator proved them absent and made them again",
);
/// VMs for each one that vCenter lost.
pub const REMADE: Tolerance<u32> = row(
    O::SameNumberOfVms,
    1,
    "{} VM more for each one that vCenter lost",
    "the operator proved it absent and made it again",
);
/// Workloads that are not exact.
pub const RACES: Tolerance<()> = row(
    O::SameNumberOfVms,
    (),
    "any number where a workload races; `few_extra_calls` counts none there",
    "in a race the order of two events decides who needs a VM",
);
/// Effects that go on at rest.
pub const GOES_ON: Tolerance<[EffectKind; 2]> = row(
    O::SilentAtRest,
    [SessionView, Lease],
    "{}",
    "each read opens a view, and the leader renews the Lease",
);
/// Time after a fault in which the operator may still report its end.
pub const STEADY: Tolerance<Duration> = row(
    O::SilentAtRest,
    seconds(120),
    "anything until {} after the cause of a fault is over",
    "the operator reports the end of an outage",
);
/// Logins at rest after a fault.
pub const LOGINS: Tolerance<u32> = row(
    O::SilentAtRest,
    2,
    "after a fault: {} logins",
    "a lost session shows only at the next look at vCenter",
);
/// Files at rest.
pub const CLEARED: Tolerance<()> = row(
    O::SilentAtRest,
    (),
    "after a fault: a file is deleted, and the status of its pool follows",
    "the half-written file of a dead process goes after an hour",
);
/// Time after a fault in which the Secret's finalizer may come back.
pub const HELD_AGAIN: Tolerance<Duration> = row(
    O::SilentAtRest,
    seconds(360),
    "after secret_missing_2m: the Secret's finalizer within {}",
    "the operator looks at it every five minutes",
);
/// Calls that a run with faults may cost more in any case.
pub const AT_LEAST: Tolerance<u32> = row(
    O::FewExtraCalls,
    9,
    "{} calls in a run with faults",
    "a call is repeated, a condition comes and goes",
);
/// Calls that one fault may cost, beside [`AT_LEAST`].
pub const FOR_EACH_FAULT: Tolerance<u32> = row(
    O::FewExtraCalls,
    3,
    "{} calls for each fault",
    "a call is repeated, a condition comes and goes",
);
/// Calls that one VM may cost more.
pub const FOR_EACH_VM: Tolerance<u32> = row(
    O::FewExtraCalls,
    1,
    "{} call for each VM",
    "when the binding of an Agent is delayed, the Agent is reported first",
);
/// Calls that one more download of an ISO may cost.
pub const REFETCH: Tolerance<u32> = row(
    O::FewExtraCalls,
    8,
    "{} calls for another download of an ISO",
    "directory, upload, move, deletion of the lost file, and the status writes of the two pools that share it",
);
/// How often one fault may cause another download.
pub const REFETCHES: Tolerance<u32> = row(
    O::FewExtraCalls,
    2,
    "{} more downloads for each fault",
    "a process died before it recorded the ISO",
);
/// Calls that one more VM may cost.
pub const REMAKE: Tolerance<u32> = row(
    O::FewExtraCalls,
    25,
    "{} calls for a VM that vCenter lost",
    "it is made again",
);
/// Status writes of an object because of an outage, a pause or a veto.
pub const REPORTS: Tolerance<u32> = row(
    O::FewExtraCalls,
    2,
    "with an outage, a pause or a veto: {} status writes for each object",
    "each object reports its start and its end",
);
/// Calls in this time after an outage count as part of it.
pub const AFTER: Tolerance<Duration> = row(
    O::FewExtraCalls,
    seconds(60),
    "for {} after an outage, calls count as part of it",
    "the operator notices its end at its next try",
);
/// Tries of one effect for one object in an outage.
pub const TRIES: Tolerance<Tries> = row(
    O::FewExtraCalls,
    (12, seconds(10)),
    "in an outage, tries of one effect for one object: {}",
    "this is the backoff",
);
/// Logins in an outage.
pub const LOGIN_TRIES: Tolerance<Tries> = row(
    O::FewExtraCalls,
    (8, seconds(30)),
    "in an outage, logins: {}",
    "this is the backoff",
);
/// Records that end.
pub const BEGUN_ANEW: Tolerance<()> = row(
    O::RecordsAreKept,
    (),
    "a record begins anew whose VM was never made and whose InfraEnv is gone",
    "nothing that it records exists",
);
/// Actors that are missing at the end.
pub const FEWER_ACTORS: Tolerance<()> = row(
    O::NoExtraActorsOrTasks,
    (),
    "fewer actors",
    "an ISO cache starts when it is needed",
);
/// Number of tasks that may run at the end by chance.
pub const TASKS: Tolerance<usize> = row(
    O::NoExtraActorsOrTasks,
    12,
    "{} tasks more",
    "a read or a renewed watch may run",
);
/// The reason of a condition that may be Unknown.
pub const UNKNOWN: Tolerance<Reason> = row(
    O::ProblemsAreExplained,
    Reason::TemplateUnrecorded,
    "a condition is Unknown with the reason {}",
    "nobody can find out how a VM was made whose record is the predecessor's, or was lost",
);

/// How much longer than without faults a step of the workload may take because of one fault. An empty list means any.
#[derive(Clone, Copy, Debug)]
struct Longer {
    at: &'static [Call],
    with: &'static [Fault],
    of: &'static [FaultClass],
    within: &'static [&'static str],
    allows: Duration,
    reason: &'static str,
}

const fn longer(allows: u64, reason: &'static str) -> Longer {
    Longer {
        at: &[],
        with: &[],
        of: &[],
        within: &[],
        allows: seconds(allows),
        reason,
    }
}

const BACKOFF: &str =
    "backoff grows to 30 s, a resync comes each minute, a VM proves absence by several looks";
const SCANS: &str = "a scan of all VMs comes every ten minutes";

/// The first row that fits counts.
const LONGER: &[Longer] = &[
    Longer {
        at: &[Call::Effect(Event)],
        ..longer(
            3600,
            "the status says the same; an Event is repeated once an hour",
        )
    },
    Longer {
        at: &[
            Call::Effect(DeleteFile),
            Call::Effect(SessionView),
            Call::Read(Read::SearchFiles),
        ],
        ..longer(
            660,
            "an ISO cache looks at the datastore every ten minutes, and so often come scans of all VMs, which the fault may spoil",
        )
    },
    Longer {
        with: &[Fault::SecretWrong2m],
        ..longer(
            600,
            "each refused login doubles the pause, so that vCenter does not lock the account",
        )
    },
    Longer {
        of: &[FaultClass::Operator],
        within: &["serving_vm_switched_off"],
        ..longer(
            120,
            "an actor that starts anew looks twice again, 90 seconds apart, before it switches a VM on",
        )
    },
    Longer {
        of: &[FaultClass::Operator],
        within: &["takeover_from_predecessor"],
        ..longer(
            120,
            "a VM that is not proven is looked at each minute, and an actor that starts anew counts from then on",
        )
    },
    Longer {
        with: &[Fault::TaskHangs10m],
        within: &["takeover_from_predecessor", "vm_adopted"],
        ..longer(300, "a busy VM rests for five minutes")
    },
    Longer {
        at: &[Call::Effect(PowerOff)],
        with: &[Fault::EffectLate],
        within: &["hosted_cluster_gone"],
        ..longer(660, SCANS)
    },
    Longer {
        with: &[
            Fault::SecretMissing2m,
            Fault::VcenterDown5m,
            Fault::ApiServerDown5m,
        ],
        within: &[
            "hub_restored_without_status",
            "hub_restored_new_uids_no_status",
            "hub_restored_new_uids",
            "hub_restored_after_claim",
        ],
        ..longer(660, SCANS)
    },
    Longer {
        within: &[
            "new_discovery_image",
            "image_with_other_content",
            "iso_ejected_after_install",
            "iso_datastore_changed",
        ],
        ..longer(660, "an ISO cache looks at the datastore every ten minutes")
    },
    Longer {
        within: &["etcd_rollback_during_create"],
        ..longer(
            1800,
            "a process that did not see the VM serve waits for the discovery deadline",
        )
    },
    Longer {
        within: &["vm_suspended"],
        ..longer(
            360,
            "the operator tries several times before it asks a person",
        )
    },
    Longer {
        within: &["host_recycled"],
        ..longer(
            1020,
            "a guest whose start nobody saw counts after five minutes, a VM that a late call switched off after a scan",
        )
    },
    Longer {
        within: &["boot_order_broken"],
        ..longer(
            boot_repair::GRACE.as_secs() + 660,
            "after a reset that may have been lost a person is asked, and a busy VM rests for five minutes",
        )
    },
    Longer {
        at: &[Call::Effect(Upload), Call::Effect(EjectIso)],
        ..longer(
            300,
            "so long the client waits for an answer, and an emptied drive is looked at again after that time",
        )
    },
    Longer {
        of: &[FaultClass::Operator],
        ..longer(60, BACKOFF)
    },
    Longer {
        of: &[FaultClass::Call, FaultClass::Between],
        ..longer(120, BACKOFF)
    },
    longer(180, BACKOFF),
];

impl Longer {
    fn fits(&self, workload: &str, point: &Point, fault: Fault) -> bool {
        let any = |empty: bool, named: bool| empty || named;
        any(self.at.is_empty(), self.at.contains(&point.call))
            && any(self.with.is_empty(), self.with.contains(&fault))
            && any(self.of.is_empty(), self.of.contains(&fault.class()))
            && any(self.within.is_empty(), self.within.contains(&workload))
    }

    fn what(&self) -> String {
        let names = |of: &'static str, names: Vec<&'static str>| {
            (!names.is_empty()).then(|| format!("{of} {}", names.join(", ")))
        };
        let parts = [
            names("at", self.at.iter().map(|c| c.name()).collect()),
            names("with", self.with.iter().map(|f| f.name()).collect()),
            names("where", self.of.iter().map(|c| c.text()).collect()),
            names("in", self.within.to_vec()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let when = if parts.is_empty() {
            "with any other fault".to_owned()
        } else {
            parts.join(" ")
        };
        format!("{when}: {} longer than the cause", told(self.allows))
    }
}

/// How much longer than without faults a step of the workload may take, after the causes of the faults are over.
#[must_use]
pub fn recovery(plan: &Plan) -> Duration {
    let of = |(point, fault): &(Point, Fault)| {
        let mut rows = LONGER.iter();
        rows.find(|row| row.fits(&plan.workload, point, *fault))
            .map_or(Duration::ZERO, |row| row.allows)
    };
    plan.faults.iter().map(of).sum()
}

/// A time as people say it.
fn told(time: Duration) -> String {
    match time.as_secs() {
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// The table of tests/sim/README.md.
#[must_use]
pub fn table() -> String {
    fn line<T>(row: &Tolerance<T>, allows: &str) -> String {
        let (oracle, what) = (row.oracle.name(), row.what.replace("{}", allows));
        format!("| `{oracle}` | {what} | {} |\n", row.reason)
    }
    let rule = |row: &Tolerance<()>| line(row, "");
    let count = |row: &Tolerance<u32>| line(row, &row.allows.to_string());
    let time = |row: &Tolerance<Duration>| line(row, &told(row.allows));
    let tries = |row: &Tolerance<Tries>| {
        let (first, each) = row.allows;
        line(
            row,
            &format!("{first}, and one in {} s more", each.as_secs()),
        )
    };
    let rows = [
        rule(&KNOWN_TO_PEOPLE),
        rule(&EJECTED),
        line(&RESETS, &RESETS.allows.to_string()),
        rule(&ATTEMPTS),
        count(&REMADE),
        rule(&RACES),
        line(&GOES_ON, &GOES_ON.allows.map(EffectKind::name).join(", ")),
        time(&STEADY),
        count(&LOGINS),
        rule(&CLEARED),
        time(&HELD_AGAIN),
        count(&AT_LEAST),
        count(&FOR_EACH_FAULT),
        count(&FOR_EACH_VM),
        count(&REFETCH),
        count(&REFETCHES),
        count(&REMAKE),
        count(&REPORTS),
        time(&AFTER),
        tries(&TRIES),
        tries(&LOGIN_TRIES),
        rule(&BEGUN_ANEW),
        rule(&FEWER_ACTORS),
        line(&TASKS, &TASKS.allows.to_string()),
        line(&UNKNOWN, UNKNOWN.allows.as_str()),
    ];
    let longer = LONGER.iter().map(|row| {
        let oracle = Oracle::ConvergesInTime.name();
        format!("| `{oracle}` | {} | {} |\n", row.what(), row.reason)
    });
    let head = "| Oracle | It tolerates | Because |\n|---|---|---|\n".to_owned();
    rows.into_iter()
        .chain(longer)
        .fold(head, |all, row| all + &row)
}
