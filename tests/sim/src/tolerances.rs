//! What the oracles tolerate, and why. Everything else is as strict as the promise says.

use std::time::Duration;

use agent_forge_actors::{ports::effect::EffectKind, vm::boot_repair};

use crate::{
    call::{Call, Read},
    plan::{Fault, FaultClass, Plan, Point},
    promise::Oracle,
};

/// Something that an oracle lets pass.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The oracle.
    pub oracle: Oracle,
    /// What it lets pass.
    pub what: &'static str,
    /// Why that is no broken promise.
    pub reason: &'static str,
}

const fn row(oracle: Oracle, what: &'static str, reason: &'static str) -> Tolerance {
    Tolerance {
        oracle,
        what,
        reason,
    }
}

/// All tolerances. tests/sim/README.md has the same table.
pub const ALL: &[Tolerance] = &[
    row(
        Oracle::NothingLeaks,
        "a VM that a restored vCenter or a lost hub shows",
        "a person knows of it, and no VsphereAgent can hold it",
    ),
    row(
        Oracle::ForeignAndServingUntouched,
        "the ISO of an installed host is ejected where its pool wants that",
        "the host does not need it any more",
    ),
    row(
        Oracle::ForeignAndServingUntouched,
        "a host that booted the ISO instead of its disk loses the ISO, gets its boot order, and is reset twice at most",
        "it does not become a Node otherwise",
    ),
    row(
        Oracle::SameFinalState,
        "other numbers of attempts where vCenter lost VMs",
        "the operator proved them absent and made them again",
    ),
    row(
        Oracle::SameNumberOfVms,
        "one VM more for each one that vCenter lost; any number where a workload races",
        "in a race the order of two events decides who needs a VM",
    ),
    row(
        Oracle::SilentAtRest,
        "session views, writes of the Lease",
        "each read opens a view, and the leader renews the Lease",
    ),
    row(
        Oracle::SilentAtRest,
        "anything until two minutes after the cause of a fault is over",
        "the operator reports the end of an outage",
    ),
    row(
        Oracle::SilentAtRest,
        "after a fault: two logins",
        "a lost session shows only at the next look at vCenter",
    ),
    row(
        Oracle::SilentAtRest,
        "after a fault: a file is deleted, and the status of its pool follows",
        "the half-written file of a dead process goes after an hour",
    ),
    row(
        Oracle::SilentAtRest,
        "after secret_missing_2m: the Secret's finalizer within six minutes",
        "the operator looks at it every five minutes",
    ),
    row(
        Oracle::FewExtraCalls,
        "9 calls, 3 for each fault, one for each VM",
        "a call is repeated, a condition comes and goes, an Agent is reported twice",
    ),
    row(
        Oracle::FewExtraCalls,
        "8 calls for another download of an ISO, at most two downloads for each fault",
        "a process died before it recorded the ISO",
    ),
    row(
        Oracle::FewExtraCalls,
        "25 calls for a VM that vCenter lost",
        "it is made again",
    ),
    row(
        Oracle::FewExtraCalls,
        "with a pause or a veto: two status writes for each object",
        "each object reports its start and its end",
    ),
    row(
        Oracle::FewExtraCalls,
        "in an outage and a minute after it: 12 tries of an effect and one in 10 s, 8 logins and one in 30 s",
        "this is the backoff; two status writes for each object report start and end",
    ),
    row(
        Oracle::RecordsAreKept,
        "a record begins anew whose VM was never made and whose InfraEnv is gone",
        "nothing that it records exists",
    ),
    row(
        Oracle::ConvergesInTime,
        "longer than without faults by the cause, and by 1 min (the operator dies), 2 min (a call fails, or the world changes between check and call), 3 min (the world changes)",
        "backoff grows to 30 s, a resync comes each minute, a VM proves absence by several looks",
    ),
    row(
        Oracle::ConvergesInTime,
        "at delete_file and search_files, and in new_discovery_image, iso_ejected_after_install and iso_datastore_changed: 11 min",
        "an ISO cache looks at the datastore every ten minutes",
    ),
    row(
        Oracle::ConvergesInTime,
        "at session_view: 11 min",
        "the fault may spoil a scan of all VMs, which comes every ten minutes",
    ),
    row(
        Oracle::ConvergesInTime,
        "at event: an hour",
        "the status says the same; an Event is repeated once an hour",
    ),
    row(
        Oracle::ConvergesInTime,
        "at upload and eject_iso: 5 min",
        "so long the client waits for an answer, and an emptied drive is looked at again after that time",
    ),
    row(
        Oracle::ConvergesInTime,
        "in etcd_rollback_during_create: 30 min",
        "a process that did not see the VM serve waits for the discovery deadline",
    ),
    row(
        Oracle::ConvergesInTime,
        "in vm_suspended: 6 min",
        "the operator tries several times before it asks a person",
    ),
    row(
        Oracle::ConvergesInTime,
        "with effect_late at power_off in hosted_cluster_gone: 11 min",
        "a scan finds the VM that a late call switched off",
    ),
    row(
        Oracle::ConvergesInTime,
        "in boot_order_broken: 51 min",
        "after a reset that may have been lost a person is asked after 40 minutes, and a busy VM rests for five",
    ),
    row(
        Oracle::ConvergesInTime,
        "with secret_wrong_2m: 10 min",
        "each refused login doubles the pause, so that vCenter does not lock the account",
    ),
    row(
        Oracle::NoExtraActorsOrTasks,
        "fewer actors; 12 tasks more",
        "an ISO cache starts when it is needed; a read or a renewed watch may run",
    ),
    row(
        Oracle::ProblemsAreExplained,
        "the condition ConfigSynced is Unknown with TemplateUnrecorded",
        "nobody can find out how a VM was made whose record is the predecessor's, or was lost",
    ),
];

/// Calls that one fault may cost, beside [`AT_LEAST`].
pub const FOR_EACH_FAULT: u32 = 3;
/// Calls that a run with faults may cost more in any case.
pub const AT_LEAST: u32 = 9;
/// Number of tasks that may run at the end by chance, for example a read of vCenter or a renewed watch.
pub const TASKS: usize = 12;
/// Calls that one more download of an ISO may cost: directory, upload, move, deletion of the lost file, and the status
/// writes of the two pools that share it.
pub const REFETCH: u32 = 8;
/// How often one fault may cause another download.
pub const REFETCHES: u32 = 2;
/// Calls that one more VM may cost, where vCenter lost the first one.
pub const REMAKE: u32 = 25;
/// Calls in this time after an outage count as part of it.
pub const AFTER: Duration = Duration::from_secs(60);
/// Time after a fault in which the operator may still report its end.
pub const STEADY: Duration = Duration::from_secs(120);
/// Time after a fault in which the Secret's finalizer may come back.
pub const HELD_AGAIN: Duration = Duration::from_secs(360);
/// Logins at rest after a fault.
pub const LOGINS: u32 = 2;

/// Tries of one effect for one object in an outage of that length.
#[must_use]
pub fn tries(effect: EffectKind, outage: Duration) -> u64 {
    let seconds = outage.as_secs();
    match effect {
        EffectKind::Login => 8 + seconds / 30,
        _ => 12 + seconds / 10,
    }
}

const fn of_class(fault: Fault) -> u64 {
    match fault.class() {
        FaultClass::Operator => 60,
        FaultClass::Call | FaultClass::Between => 120,
        FaultClass::World => 180,
    }
}

/// How much longer than without faults a step of the workload may take, after the causes of the faults are over.
#[must_use]
pub fn recovery(plan: &Plan) -> Duration {
    let of = |(point, fault): &(Point, Fault)| match (point.call, fault) {
        (Call::Effect(EffectKind::Event), _) => 3600,
        (
            Call::Effect(EffectKind::DeleteFile | EffectKind::SessionView)
            | Call::Read(Read::SearchFiles),
            _,
        ) => 660,
        (_, Fault::SecretWrong2m) => 600,
        // An actor that starts anew looks twice again, 90 seconds apart, before it switches a VM on.
        (_, Fault::ActorKilled | Fault::ActorPanics)
            if plan.workload == "serving_vm_switched_off" =>
        {
            120
        }
        // A scan finds the VM that a late call switched off.
        (Call::Effect(EffectKind::PowerOff), Fault::EffectLate)
            if plan.workload == "hosted_cluster_gone" =>
        {
            660
        }
        // The scan that the person waits for finds no Secret; the next one comes ten minutes later.
        (_, Fault::SecretMissing2m) if plan.workload.starts_with("hub_restored") => 660,
        (call, _) => match plan.workload.as_str() {
            "new_discovery_image"
            | "image_with_other_content"
            | "iso_ejected_after_install"
            | "iso_datastore_changed" => 660,
            "etcd_rollback_during_create" => 1800,
            "vm_suspended" => 360,
            // A guest whose start nobody saw counts after five minutes, a VM that a late call switched off after a scan.
            "host_recycled" => 1020,
            "boot_order_broken" => boot_repair::GRACE.as_secs() + 660,
            _ if matches!(
                call,
                Call::Effect(EffectKind::Upload | EffectKind::EjectIso)
            ) =>
            {
                300
            }
            _ => of_class(*fault),
        },
    };
    Duration::from_secs(plan.faults.iter().map(of).sum())
}

/// The table of tests/sim/README.md.
#[must_use]
pub fn table() -> String {
    let mut out = String::from("| Oracle | It tolerates | Because |\n|---|---|---|\n");
    for t in ALL {
        out += &format!("| `{}` | {} | {} |\n", t.oracle.name(), t.what, t.reason);
    }
    out
}
