//! Plans that break a promise for a known reason that is not corrected yet. Each is listed by its text, so that no failure is
//! ignored by accident. The suite counts them separately, and plays each of them: one that keeps its promises has to go.
//!
//! In the world of another seed the objects have other names. There a plan counts as listed if one with the same workload, call
//! and fault is.

use crate::{
    plan::Plan,
    promise::{Failure, Oracle},
    run::Verdict,
};

/// Plans that break the same promises for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What breaks, and how the description of the failure begins.
    pub breaks: &'static [(Oracle, &'static str)],
    /// Why this is accepted.
    pub reason: &'static str,
    /// The plans, each with one fault.
    pub plans: &'static [&'static str],
}

/// All known failures.
pub const ALL: &[Known] = &[
    Known {
        breaks: &[(Oracle::SameFinalState, "at \"known again\"")],
        reason: "the first write to a VsphereAgent that has lost its status hides the loss, so its VM counts as made with the hardware that its pool wants; where that write fails, the hardware is unknown",
        plans: &[
            "hub_restored_without_status@1 pool_status:demo/w#7=api_server_down_5s",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=actor_killed",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=actor_panics",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=api_server_down_5s",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=deletion_vetoed_5m",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=effect_late",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=finalizers_removed",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=foreign_edit",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=permission_denied",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=refused",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=request_lost",
            "hub_restored_without_status@1 record_observation:demo/w-9e377-66296#3=server_error",
        ],
    },
    Known {
        breaks: &[
            (Oracle::SameNumberOfVms, "only "),
            (Oracle::SameFinalState, "at \"replaced\""),
        ],
        reason: "the API server held the fence, or a read before it, up for longer than the provider took to bind the host, free again, to the next AgentMachine: it serves on, and one VM less is made",
        plans: &[
            "health_check_and_rolling_upgrade@1 read_agent:demo/18245dbd-ab2f-225f-becd-e6e34fd647ed#2=request_lost",
            "health_check_and_rolling_upgrade@1 read_agent:demo/18245dbd-ab2f-225f-becd-e6e34fd647ed#2=answer_slow_15s",
            "health_check_and_rolling_upgrade@1 read_agent_machine:demo-demo/w-9e377-66296#1=request_lost",
            "health_check_and_rolling_upgrade@1 read_agent_machine:demo-demo/w-9e377-66296#1=answer_slow_15s",
            "health_check_and_rolling_upgrade@1 list_machines:demo-demo#1=request_lost",
            "health_check_and_rolling_upgrade@1 list_machines:demo-demo#1=answer_slow_15s",
            "health_check_and_rolling_upgrade@1 fence_agent:demo/w-9e377-66296#1=request_lost",
            "health_check_and_rolling_upgrade@1 fence_agent:demo/w-9e377-66296#1=effect_late",
            "health_check_and_rolling_upgrade@1 fence_agent:demo/w-9e377-66296#1=api_server_down_5m",
        ],
    },
    Known {
        breaks: &[(Oracle::SameFinalState, "at ")],
        reason: "a new VsphereAgent whose first status is late looks like one whose status was lost: its identity is recorded although the InfraEnv is gone, no VM is made, and it begins anew with the next InfraEnv",
        plans: &[
            "infra_env_replaced@1 record_observation:demo/w-9e377-d624d#1=refused",
            "infra_env_replaced@1 record_observation:demo/w-9e377-d624d#1=api_server_down_5m",
        ],
    },
    Known {
        breaks: &[(Oracle::ConvergesInTime, "not within")],
        reason: "another control plane claimed the Agent of a VM that was given up: the VM stays until its Machine goes, its AgentMachine has another host, and the VM that the workload waits for is not made",
        plans: &["replacement_requested@1 fence_agent:demo/w-9e377-66296#1=agent_claimed_2m"],
    },
    Known {
        breaks: &[(Oracle::SameFinalState, "at \"two up\"")],
        reason: "another control plane claimed the Agent of a VM that was given up: its AgentMachine gets another VsphereAgent, whose first VM serves",
        plans: &["template_changed@1 fence_agent:demo/w-9e377-7fcb0#1=agent_claimed_2m"],
    },
    Known {
        breaks: &[(Oracle::ForeignAndServingUntouched, "serving")],
        reason: "a person forces the end of that host: who claims its Agent in that moment loses it",
        plans: &[
            "etcd_rollback_after_claim@1 fence_agent:demo/w-75fa3c173e#1=agent_claimed_2m",
            "hub_restored_after_claim@1 fence_agent:demo/w-75fa3c173e#1=agent_claimed_2m",
        ],
    },
    Known {
        breaks: &[(Oracle::ConvergesInTime, "[")],
        reason: "another object took the name of the one that a person had deleted: it says why it waits, and nobody deletes it",
        plans: &[
            "cluster_moved_to_another_hub@1 remove_child_finalizer:demo/w-9e377-66296#1=object_replaced",
            "etcd_rollback_after_claim@1 remove_child_finalizer:demo/w-75fa3c173e#1=object_replaced",
        ],
    },
    Known {
        breaks: &[
            (Oracle::RecordsAreKept, "w-"),
            (Oracle::SameFinalState, "at "),
        ],
        reason: "another object took the name of the deleted one: its record is a copy of one whose VM is gone, so it begins anew under its own uid, as the same attempt",
        plans: &[
            "hub_restored_after_claim@1 remove_child_finalizer:demo/w-75fa3c173e#1=object_replaced",
            "image_with_other_content@1 remove_child_finalizer:demo/w-75fa3c173e#1=object_replaced",
        ],
    },
    Known {
        breaks: &[(Oracle::ConvergesInTime, "not within")],
        reason: "another control plane claimed the Agent of a host that was about to be recycled: that host goes when it is free again, and none waits in the buffer",
        plans: &[
            "host_moved@1 fence_agent:demo/x-75fa3c173e#3=agent_claimed_2m",
            "host_recycled@1 fence_agent:demo/w-9e377-66296#3=agent_claimed_2m",
            "host_recycled@1 fence_agent:demo/w-9e377-66296#6=agent_claimed_2m",
            "hosted_cluster_gone@1 fence_agent:demo/w-9e377-66296#3=agent_claimed_2m",
            "kept_disk_stays_with_its_cluster@1 fence_agent:demo/x-9e377-66296#3=agent_claimed_2m",
            "service_writes_late@1 fence_agent:demo/w-9e377-66296#3=agent_claimed_2m",
            "service_writes_late@1 fence_agent:demo/w-9e377-66296#6=agent_claimed_2m",
            "status_emptied_in_a_later_life@1 fence_agent:demo/w-9e377-66296#6=agent_claimed_2m",
            "status_of_an_earlier_life@1 fence_agent:demo/w-9e377-66296#6=agent_claimed_2m",
        ],
    },
    Known {
        breaks: &[(Oracle::ConvergesInTime, "not within")],
        reason: "a person asked for new disks before the renewal, so the host has no data and is lent; the workload waits for a VM that is made beside it",
        plans: &[
            "kept_disk_stays_with_its_cluster@1 record_observation:demo/x-9e377-66296#2=disk_edited_5m",
            "kept_disk_stays_with_its_cluster@1 fence_agent:demo/x-9e377-66296#1=disk_edited_5m",
            "kept_disk_stays_with_its_cluster@1 record_observation:demo/x-9e377-66296#3=disk_edited_5m",
            "kept_disk_stays_with_its_cluster@1 reassign_child:demo/x-9e377-66296#1=disk_edited_5m",
            "kept_disk_stays_with_its_cluster@1 record_observation:demo/x-9e377-66296#4=disk_edited_5m",
            "kept_disk_stays_with_its_cluster@1 fence_agent:demo/x-9e377-66296#2=disk_edited_5m",
            "kept_disk_stays_with_its_cluster@1 power_off:demo/x-9e377-66296#1=disk_edited_5m",
        ],
    },
    Known {
        breaks: &[
            (Oracle::RecordsAreKept, "x-"),
            (Oracle::SameFinalState, "at "),
            (Oracle::FewExtraCalls, ""),
        ],
        reason: "another object took the name of a deleted host of the buffer: its record is a copy of one whose VM is gone, so it begins anew under its own uid, as the next attempt, which costs the calls of one more VM",
        plans: &["host_moved@1 remove_child_finalizer:demo/x-ba8baf8867#1=object_replaced"],
    },
    Known {
        breaks: &[(Oracle::ConvergesInTime, "not within")],
        reason: "a person asked to keep disks before the renewal, so the host has the data of its hosted cluster: it does not go to the pool that a person gave it to, and the workload waits for that",
        plans: &[
            "host_moved@1 fence_agent:demo/x-75fa3c173e#1=disk_edited_5m",
            "host_moved@1 fence_agent:demo/x-75fa3c173e#2=disk_edited_5m",
            "host_moved@1 power_off:demo/x-75fa3c173e#1=disk_edited_5m",
            "host_moved@1 power_on:demo/x-ba8baf8867#1=disk_edited_5m",
            "host_moved@1 prepare_agent:demo/x-75fa3c173e#2=disk_edited_5m",
            "host_moved@1 prepare_agent:demo/x-ba8baf8867#1=disk_edited_5m",
            "host_moved@1 reassign_child:demo/x-75fa3c173e#1=disk_edited_5m",
            "host_moved@1 reassign_child:demo/x-75fa3c173e#2=disk_edited_5m",
            "host_moved@1 reconfigure:demo/x-75fa3c173e#2=disk_edited_5m",
            "host_moved@1 reconfigure:demo/x-ba8baf8867#1=disk_edited_5m",
            "host_moved@1 record_observation:demo/x-75fa3c173e#4=disk_edited_5m",
            "host_moved@1 record_observation:demo/x-75fa3c173e#5=disk_edited_5m",
            "host_moved@1 record_observation:demo/x-75fa3c173e#6=disk_edited_5m",
            "host_moved@1 record_observation:demo/x-75fa3c173e#7=disk_edited_5m",
            "host_moved@1 record_observation:demo/x-ba8baf8867#1=disk_edited_5m",
            "host_moved@1 record_observation:demo/x-ba8baf8867#2=disk_edited_5m",
        ],
    },
    Known {
        breaks: &[(Oracle::SameFinalState, "at \"a person is asked\"")],
        reason: "who lives on while etcd is rolled back remembers that the VM served, and says `AgentMissing`; who begins after it finds no word of that, and says `AgentDiscoveryExpired`",
        plans: &[
            "etcd_rollback_during_create@1 pool_status:demo/w#13=process_killed_watches_lag",
            "etcd_rollback_during_create@1 pool_status:demo/w#13=process_terminated",
            "etcd_rollback_during_create@1 pool_status:demo/w#13=process_killed",
            "etcd_rollback_during_create@1 pool_status:demo/w#12=process_killed_watches_lag",
            "etcd_rollback_during_create@1 pool_status:demo/w#12=process_terminated",
            "etcd_rollback_during_create@1 pool_status:demo/w#12=process_killed",
            "etcd_rollback_during_create@1 pool_status:demo/w#11=process_killed_watches_lag",
            "etcd_rollback_during_create@1 pool_status:demo/w#11=process_terminated",
            "etcd_rollback_during_create@1 pool_status:demo/w#11=process_killed",
            "etcd_rollback_during_create@1 pool_status:demo/w#15=crash_after_effect",
            "etcd_rollback_during_create@1 pool_status:demo/w#15=crash_before_request",
            "etcd_rollback_during_create@1 pool_status:demo/w#10=process_killed_watches_lag",
            "etcd_rollback_during_create@1 pool_status:demo/w#10=process_terminated",
            "etcd_rollback_during_create@1 pool_status:demo/w#10=process_killed",
            "etcd_rollback_during_create@1 pool_status:demo/w#14=process_killed",
            "etcd_rollback_during_create@1 pool_status:demo/w#14=process_terminated",
            "etcd_rollback_during_create@1 pool_status:demo/w#14=process_killed_watches_lag",
            "etcd_rollback_during_create@1 event:demo/w#3=process_killed",
            "etcd_rollback_during_create@1 event:demo/w#3=process_terminated",
            "etcd_rollback_during_create@1 event:demo/w#3=process_killed_watches_lag",
            "etcd_rollback_during_create@1 pool_status:demo/w#15=process_killed",
            "etcd_rollback_during_create@1 pool_status:demo/w#15=process_terminated",
            "etcd_rollback_during_create@1 pool_status:demo/w#15=process_killed_watches_lag",
            "etcd_rollback_during_create@1 record_observation:demo/w-9e377-7fcb0#3=crash_before_request",
            "etcd_rollback_during_create@1 record_observation:demo/w-9e377-7fcb0#3=actor_killed",
            "etcd_rollback_during_create@1 record_observation:demo/w-9e377-7fcb0#3=actor_panics",
            "etcd_rollback_during_create@1 record_observation:demo/w-9e377-7fcb0#3=process_terminated",
        ],
    },
    Known {
        breaks: &[(Oracle::SameFinalState, "at \"a person is asked\"")],
        reason: "the discovery deadline passes in the outage, so the operator says `AgentDiscoveryExpired` and not `AgentNotDiscovered`; it asks a person in both",
        plans: &[
            "etcd_rollback_during_create@1 pool_status:demo/w#16=vcenter_down_2h",
            "etcd_rollback_during_create@1 record_observation:demo/w-9e377-7fcb0#3=vcenter_down_2h",
            "etcd_rollback_during_create@1 event:demo/w-9e377-7fcb0#1=vcenter_down_2h",
            "etcd_rollback_during_create@1 event:demo-demo/w-9e377-7fcb0#1=vcenter_down_2h",
        ],
    },
    Known {
        breaks: &[
            (Oracle::ConvergesInTime, "["),
            (Oracle::NothingLeaks, "VM "),
        ],
        reason: "somebody took the finalizers off a VsphereAgent that was being deleted while its VM was made: nothing has that VM on record, and it holds its name, until the scan of orphans that comes every ten minutes",
        plans: &[
            "node_pool_moved@1 create:demo/w-9e377-d624d#1=finalizers_removed",
            "node_pool_moved@1 record_task:demo/w-9e377-d624d#1=finalizers_removed",
            "node_pool_moved@1 delete_child:demo/w-9e377-d624d#1=finalizers_removed",
        ],
    },
];

impl Known {
    /// Whether `plan` has a fault that one of these plans has.
    fn is_of(&self, plan: &Plan) -> bool {
        let mut listed = self.plans.iter().filter_map(|text| text.parse().ok());
        listed.any(|known: Plan| {
            let same = |(point, fault): &_| {
                plan.faults.iter().any(|(at, what)| {
                    let there = if plan.seed == known.seed {
                        at == point
                    } else {
                        at.call == point.call
                    };
                    there && what == fault
                })
            };
            plan.workload == known.workload && known.faults.iter().any(same)
        })
    }

    fn explains(&self, failure: &Failure) -> bool {
        let mut breaks = self.breaks.iter();
        breaks.any(|(oracle, begins)| *oracle == failure.oracle && failure.what.starts_with(begins))
    }
}

/// Why all failures of this run are known. `None` when at least one is not.
#[must_use]
pub fn excuse(verdict: &Verdict) -> Option<&'static str> {
    let known: Vec<&Known> = ALL.iter().filter(|k| k.is_of(verdict.shown())).collect();
    let reason = |failure: &Failure| known.iter().find(|k| k.explains(failure));
    let mut reasons = verdict.failures.iter().map(reason);
    let first = reasons.next().flatten()?;
    reasons.all(|r| r.is_some()).then_some(first.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_plan_is_one_with_one_fault() {
        for text in ALL.iter().flat_map(|k| k.plans) {
            let plan: Plan = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(plan.faults.len(), 1, "{text}");
            assert_eq!(plan.to_string(), *text);
        }
    }
}
