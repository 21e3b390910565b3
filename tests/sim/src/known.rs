//! Plans that break a promise for a known reason that is not corrected yet. They are listed by name, so that no failure
//! is ignored by accident. The suite counts them separately.

use agent_forge_actors::ports::effect::EffectKind;

use crate::{
    call::{Call, Read},
    plan::{Fault, Plan},
    promise::{Failure, Oracle},
    run::Verdict,
};

/// Plans of one kind that break one promise.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Name of the workload.
    pub workload: &'static str,
    /// The effects and reads that the fault has to hit. Empty: any.
    pub only_at: &'static [Call],
    /// The faults that break the promise.
    pub faults: &'static [Fault],
    /// The promise that breaks.
    pub oracle: Oracle,
    /// How the description of the failure begins.
    pub begins: &'static str,
    /// Why this is accepted.
    pub reason: &'static str,
    /// One of these plans. The suite fails when it keeps its promises: then the entry is no longer needed.
    pub example: &'static str,
}

/// All known failures.
pub const ALL: &[Known] = &[
    UNFENCED,
    NO_WAY_BACK,
    LOOKS_LOST,
    LATE_STATUS,
    FORGETS,
    TAKEN,
    TAKEN_TOO,
    CLAIMED_WHEN_FORCED,
    CLAIMED_WHEN_FORCED_ANEW,
    ANOTHER_IS_NOT_FORCED,
    ANOTHER_BEGINS_ANEW,
    ANOTHER_WAITS_FOR_A_PERSON,
    EXPIRED,
    CLAIMED_WHEN_FREE,
    CLAIMED_WHEN_LEFT,
    CLAIMED_WHEN_WRITTEN_LATE,
    AHEAD_OF_THE_GUESTS,
    ASKED_AFTER_A_CRASH,
    DATA_IS_GONE,
    CLAIMED_WHEN_LENT,
    CLAIMED_WHEN_WANTED,
    A_VM_MORE,
    MANY_REPORTS,
    OFF_TOO_LATE,
    OFF_TOO_LATE_IN_THE_END,
];

/// This is no defect of the operator: it cannot act faster than the API server.
const UNFENCED: Known = Known {
    workload: "health_check_and_rolling_upgrade",
    only_at: &[
        Call::Effect(EffectKind::FenceAgent),
        Call::Read(Read::ReadAgent),
        Call::Read(Read::ReadAgentMachine),
        Call::Read(Read::ListMachines),
    ],
    faults: &[
        Fault::RequestLost,
        Fault::EffectLate,
        Fault::ApiServerDown5m,
        Fault::AnswerSlow15s,
    ],
    oracle: Oracle::SameNumberOfVms,
    begins: "only ",
    reason: "the API server held the fence, or a read before it, up for longer than the provider took to bind the host, free again, to the next \
             AgentMachine: it serves on, and one VM less is made",
    example: "health_check_and_rolling_upgrade@1 fence_agent:demo/w-9e377-66296#1=request_lost",
};

/// This is no defect of the operator: the fault cannot be corrected.
const NO_WAY_BACK: Known = Known {
    workload: "namespace_deletion",
    only_at: &[],
    faults: &[Fault::SecretMissing2m],
    oracle: Oracle::ConvergesInTime,
    begins: "",
    reason: "the Secret was taken away by force, and in a namespace that is being deleted nobody can put it back",
    example: "namespace_deletion@1 fence_agent:demo/w-9e377-66296#1=secret_missing_2m",
};

/// The operator cannot tell a new record from one that lost its status when the clock jumps. It then records the
/// identity at once, because a VM may exist already.
const LOOKS_LOST: Known = Known {
    workload: "infra_env_replaced",
    only_at: &[],
    faults: &[Fault::ClockJumps10m],
    oracle: Oracle::SameFinalState,
    begins: "at ",
    reason: "to a wall clock that is ahead a new VsphereAgent looks like one whose status was lost: its identity is recorded \
             although the InfraEnv is gone, no VM is made, and it begins anew with the next InfraEnv",
    example: "infra_env_replaced@1 upload:demo/w#1=clock_jumps_10m",
};

/// As [`LOOKS_LOST`]: here the first write of the status is late.
const LATE_STATUS: Known = Known {
    workload: "infra_env_replaced",
    only_at: &[Call::Effect(EffectKind::RecordObservation)],
    faults: &[Fault::Refused, Fault::ApiServerDown5m],
    oracle: Oracle::SameFinalState,
    begins: "at ",
    reason: "a new VsphereAgent whose first status is late looks like one whose status was lost: its identity is recorded \
             although the InfraEnv is gone, no VM is made, and it begins anew with the next InfraEnv",
    example: "infra_env_replaced@1 record_observation:demo/w-9e377-d624d#1=refused",
};

/// Both states are correct, and the operator asks a person in both.
const FORGETS: Known = Known {
    workload: "etcd_rollback_during_create",
    only_at: &[],
    faults: &[
        Fault::CrashBeforeRequest,
        Fault::CrashAfterEffect,
        Fault::ActorKilled,
        Fault::ActorPanics,
        Fault::ProcessKilled,
        Fault::ProcessTerminated,
        Fault::LeaseTaken,
        Fault::ProcessKilledWatchesLag,
    ],
    oracle: Oracle::SameFinalState,
    begins: "at \"a person is asked\"",
    reason: "who lives on while etcd is rolled back remembers that the VM served, and says `AgentMissing`; who begins after it \
             finds no word of that, and says `AgentDiscoveryExpired`",
    example: "etcd_rollback_during_create@1 event:demo/w#3=process_killed",
};

/// This is no defect of the operator: a VM whose Agent was claimed at the last moment is left alone.
const TAKEN: Known = Known {
    workload: "replacement_requested",
    only_at: &[Call::Effect(EffectKind::FenceAgent)],
    faults: &[Fault::AgentClaimed2m],
    oracle: Oracle::ConvergesInTime,
    begins: "not within",
    reason: "another control plane claimed the Agent of a VM that was given up: the VM stays until its Machine goes, its \
             AgentMachine has another host, and the VM that the workload waits for is not made",
    example: "replacement_requested@1 fence_agent:demo/w-9e377-66296#1=agent_claimed_2m",
};

/// As [`TAKEN`]: its AgentMachine has another host.
const TAKEN_TOO: Known = Known {
    workload: "template_changed",
    only_at: &[Call::Effect(EffectKind::FenceAgent)],
    faults: &[Fault::AgentClaimed2m],
    oracle: Oracle::SameFinalState,
    begins: "at \"two up\"",
    reason: "another control plane claimed the Agent of a VM that was given up: its AgentMachine gets another VsphereAgent, whose \
             first VM serves",
    example: "template_changed@1 fence_agent:demo/w-9e377-7fcb0#1=agent_claimed_2m",
};

/// A person forces the end of a host that a restored hub has forgotten.
const CLAIMED_WHEN_FORCED: Known = Known {
    workload: "etcd_rollback_after_claim",
    only_at: &[Call::Effect(EffectKind::FenceAgent)],
    faults: &[Fault::AgentClaimed2m],
    oracle: Oracle::ForeignAndServingUntouched,
    begins: "serving",
    reason: "a person forces the end of that host: who claims its Agent in that moment loses it",
    example: "etcd_rollback_after_claim@1 fence_agent:demo/w-75fa3c173e#1=agent_claimed_2m",
};

/// As [`CLAIMED_WHEN_FORCED`].
const CLAIMED_WHEN_FORCED_ANEW: Known = Known {
    workload: "hub_restored_after_claim",
    example: "hub_restored_after_claim@1 fence_agent:demo/w-75fa3c173e#1=agent_claimed_2m",
    ..CLAIMED_WHEN_FORCED
};

/// This is no defect of the operator: nobody deletes the object that has taken the name.
const ANOTHER_IS_NOT_FORCED: Known = Known {
    workload: "etcd_rollback_after_claim",
    only_at: &[Call::Effect(EffectKind::RemoveChildFinalizer)],
    faults: &[Fault::ObjectReplaced],
    oracle: Oracle::ConvergesInTime,
    begins: "[",
    reason: "another object took the name of the one that a person had deleted: it says `VMMissing`, and nobody deletes it",
    example: "etcd_rollback_after_claim@1 remove_child_finalizer:demo/w-75fa3c173e#1=object_replaced",
};

/// As [`ANOTHER_IS_NOT_FORCED`], where the object that took the name goes on.
const ANOTHER_BEGINS_ANEW: Known = Known {
    workload: "hub_restored_after_claim",
    oracle: Oracle::RecordsAreKept,
    begins: "w-",
    reason: "another object took the name of the one that a person had deleted: its record is a copy of one whose VM is gone, so \
             it begins anew under its own uid, as the same attempt",
    example: "hub_restored_after_claim@1 remove_child_finalizer:demo/w-75fa3c173e#1=object_replaced",
    ..ANOTHER_IS_NOT_FORCED
};

/// As [`ANOTHER_IS_NOT_FORCED`], where the Machine went without its Agent.
const ANOTHER_WAITS_FOR_A_PERSON: Known = Known {
    workload: "cluster_moved_to_another_hub",
    reason: "another object took the name of the one that a person had deleted with `force-delete`: nobody deletes it, so the \
             annotation alone means nothing, and it says `MachineVanishedPaused`",
    example: "cluster_moved_to_another_hub@1 remove_child_finalizer:demo/w-9e377-66296#1=object_replaced",
    ..ANOTHER_IS_NOT_FORCED
};

/// The operator asks a person in both states. The deadline is shorter than the outage.
const EXPIRED: Known = Known {
    workload: "etcd_rollback_during_create",
    only_at: &[],
    faults: &[Fault::VcenterDown2h],
    oracle: Oracle::SameFinalState,
    begins: "at \"a person is asked\"",
    reason: "the discovery deadline passes in the outage, so the operator says `AgentDiscoveryExpired` and not \
             `AgentNotDiscovered`",
    example: "etcd_rollback_during_create@1 event:demo-demo/w-9e377-7fcb0#1=vcenter_down_2h",
};

/// As [`TAKEN`]: a host that another control plane had claimed is not kept.
const CLAIMED_WHEN_FREE: Known = Known {
    workload: "host_recycled",
    only_at: &[Call::Effect(EffectKind::FenceAgent)],
    faults: &[Fault::AgentClaimed2m],
    oracle: Oracle::ConvergesInTime,
    begins: "not within",
    reason: "another control plane claimed the Agent of a host that was about to be recycled: that host goes when it is free again, \
             and none waits in the buffer",
    example: "host_recycled@1 fence_agent:demo/w-9e377-66296#3=agent_claimed_2m",
};

/// As [`CLAIMED_WHEN_FREE`].
const CLAIMED_WHEN_LEFT: Known = Known {
    workload: "hosted_cluster_gone",
    example: "hosted_cluster_gone@1 fence_agent:demo/w-9e377-66296#3=agent_claimed_2m",
    ..CLAIMED_WHEN_FREE
};

/// As [`CLAIMED_WHEN_FREE`].
const CLAIMED_WHEN_WRITTEN_LATE: Known = Known {
    workload: "service_writes_late",
    example: "service_writes_late@1 fence_agent:demo/w-9e377-66296#3=agent_claimed_2m",
    ..CLAIMED_WHEN_FREE
};

/// This is no defect of the operator: a host whose return nothing proves is not given to anybody.
const AHEAD_OF_THE_GUESTS: Known = Known {
    workload: "service_writes_late",
    only_at: &[],
    faults: &[Fault::ClockJumps10m],
    oracle: Oracle::ConvergesInTime,
    begins: "not within",
    reason: "the operator's clock is ahead of the guests' from then on, so the time of an inventory proves nothing; such a service \
             shows no state that does: the host is replaced at its deadline",
    example: "service_writes_late@1 create_folder:demo/w-9e377-66296#1=clock_jumps_10m",
};

/// This is no defect of the operator: a process that has not switched a VM on asks a person before it replaces a silent host.
/// The run waits for the replacement without a limit, or for that question. So without a crash the replacement is over before the
/// time of the step begins; after the answer it is in it.
const ASKED_AFTER_A_CRASH: Known = Known {
    workload: "guest_falls_silent",
    only_at: &[
        Call::Effect(EffectKind::PowerOn),
        Call::Effect(EffectKind::RecordObservation),
    ],
    faults: &[Fault::CrashBeforeRequest, Fault::CrashAfterEffect],
    oracle: Oracle::ConvergesInTime,
    begins: "\"one up\" took",
    reason: "the new process does not know who switched the VM on, so it asks a person, and the step has the time of the whole \
             replacement",
    example: "guest_falls_silent@1 power_on:demo/w-9e377-66296#1=crash_after_effect",
};

/// This is no defect of the operator: the host has a new disk, so another hosted cluster may have it.
const DATA_IS_GONE: Known = Known {
    workload: "kept_disk_stays_with_its_cluster",
    only_at: &[Call::Effect(EffectKind::PowerOff)],
    faults: &[Fault::DiskEdited5m],
    oracle: Oracle::ConvergesInTime,
    begins: "not within",
    reason: "a person asked for new disks before the renewal, so the host has no data and is lent; the workload waits for a VM that \
             is made beside it",
    example: "kept_disk_stays_with_its_cluster@1 power_off:demo/x-9e377-66296#1=disk_edited_5m",
};

/// As [`TAKEN`]: the free host is lost for both pools.
const CLAIMED_WHEN_LENT: Known = Known {
    workload: "host_lent",
    only_at: &[Call::Effect(EffectKind::ReserveAgent)],
    faults: &[Fault::AgentClaimed2m],
    oracle: Oracle::SameNumberOfVms,
    begins: "3 VMs",
    reason: "another control plane claimed the Agent of the host that was about to be lent: the AgentMachine gets a VM of its own, \
             and the buffer another host",
    example: "host_lent@1 reserve_agent:demo/w-9e377-d624d#1=agent_claimed_2m",
};

/// As [`CLAIMED_WHEN_LENT`].
const CLAIMED_WHEN_WANTED: Known = Known {
    workload: "host_wanted_by_two",
    begins: "4 VMs",
    example: "host_wanted_by_two@1 reserve_agent:demo/y-9e377-a12da#1=agent_claimed_2m",
    ..CLAIMED_WHEN_LENT
};

/// As [`CLAIMED_WHEN_WANTED`]: the VM that is made instead costs its calls.
const A_VM_MORE: Known = Known {
    oracle: Oracle::FewExtraCalls,
    begins: "1",
    example: "host_wanted_by_two@1 reserve_agent:demo/w-9e377-d624d#1=agent_claimed_2m",
    ..CLAIMED_WHEN_WANTED
};

/// No call is repeated without need: three pools report a little more each.
const MANY_REPORTS: Known = Known {
    workload: "host_wanted_by_two",
    only_at: &[],
    faults: &[Fault::ProcessKilledWatchesLag],
    oracle: Oracle::FewExtraCalls,
    begins: "1",
    reason: "a process whose watches lag writes the status of three pools and three VsphereAgents a few times more, and holds the Secret \
             once more: together that is more than the bound for one pool",
    example: "host_wanted_by_two@1 reserve_agent:demo/y-9e377-a12da#1=process_killed_watches_lag",
};

/// This is no defect of the operator: vCenter carries out a request that the client has given up, after the next one.
const OFF_TOO_LATE: Known = Known {
    workload: "host_recycled",
    only_at: &[Call::Effect(EffectKind::PowerOff)],
    faults: &[Fault::EffectLate],
    oracle: Oracle::ConvergesInTime,
    begins: "not within",
    reason: "a power-off that nobody waits for any more hits the VM in its next life: the next scan finds it, and it is switched on \
             again",
    example: "host_recycled@1 power_off:demo/w-9e377-66296#1=effect_late",
};

/// As [`OFF_TOO_LATE`].
const OFF_TOO_LATE_IN_THE_END: Known = Known {
    oracle: Oracle::SameFinalState,
    begins: "at \"it waits",
    example: "host_recycled@1 power_off:demo/w-9e377-66296#2=effect_late",
    ..OFF_TOO_LATE
};

impl Known {
    fn is_of(&self, plan: &Plan) -> bool {
        plan.workload == self.workload
            && plan.faults.iter().any(|(point, fault)| {
                let there = self.only_at.is_empty() || self.only_at.contains(&point.call);
                there && self.faults.contains(fault)
            })
    }
}

/// Why all failures of this run are known. `None` when at least one is not.
#[must_use]
pub fn excuse(verdict: &Verdict) -> Option<&'static str> {
    let known: Vec<&Known> = ALL.iter().filter(|k| k.is_of(verdict.shown())).collect();
    let excuses = |k: &Known, f: &Failure| k.oracle == f.oracle && f.what.starts_with(k.begins);
    let reason = |failure: &Failure| known.iter().find(|k| excuses(k, failure));
    let mut reasons = verdict.failures.iter().map(reason);
    let first = reasons.next().flatten()?;
    reasons.all(|r| r.is_some()).then_some(first.reason)
}
