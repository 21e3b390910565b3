//! Our own status: conditions that change only when needed, phases, the row in the pool.

use agent_forge_crds::agent::VmStatus;
use agent_forge_crds::conditions::{
    ConditionStatus, ConditionUpdate, Phase, READY, Reason, find_condition, is_true, set_condition,
};
use agent_forge_crds::{Time, conditions};

fn at(text: &str) -> Time {
    Time(text.parse().unwrap())
}

fn ready(status: ConditionStatus, message: &str) -> ConditionUpdate<'_> {
    ConditionUpdate {
        type_: READY,
        status,
        reason: &Reason::Reconciled,
        message,
        observed_generation: Some(1),
    }
}

#[test]
fn time_of_a_condition_moves_only_with_its_status() {
    let mut list = Vec::new();
    let first = at("2026-11-21T05:00:00.75Z");
    let later = at("2026-11-21T06:00:00Z");
    assert!(set_condition(
        &mut list,
        &ready(ConditionStatus::False, "a"),
        &first
    ));
    assert_eq!(
        list[0].last_transition_time,
        at("2026-11-21T05:00:00Z"),
        "whole seconds"
    );

    assert!(!set_condition(
        &mut list,
        &ready(ConditionStatus::False, "a"),
        &later
    ));
    assert!(set_condition(
        &mut list,
        &ready(ConditionStatus::False, "b"),
        &later
    ));
    assert_eq!(list[0].last_transition_time, at("2026-11-21T05:00:00Z"));
    assert_eq!(list[0].message, "b");

    assert!(set_condition(&mut list, &ready(true.into(), "b"), &later));
    assert_eq!(list[0].last_transition_time, later);
    assert!(is_true(&list, READY));
    assert_eq!(list.len(), 1);
}

#[test]
fn other_conditions_and_the_order_stay() {
    let mut list = Vec::new();
    let now = at("2026-11-21T05:00:00Z");
    for type_ in conditions::POOL_CONDITIONS {
        let update = ConditionUpdate {
            type_,
            ..ready(ConditionStatus::Unknown, "")
        };
        assert!(set_condition(&mut list, &update, &now));
    }
    let before = list.clone();
    assert!(set_condition(&mut list, &ready(false.into(), ""), &now));
    let types: Vec<&str> = list
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types, conditions::POOL_CONDITIONS);
    assert_eq!(list[1..], before[1..]);
    assert!(find_condition(&list, "Absent").is_none());
    assert!(!is_true(&list, "Absent"));
}

#[test]
fn a_message_never_outgrows_its_bound() {
    let mut list = Vec::new();
    let long = "ü".repeat(40_000);
    set_condition(
        &mut list,
        &ready(true.into(), &long),
        &at("2026-11-21T05:00:00Z"),
    );
    assert_eq!(list[0].message.chars().count(), 32768);
    let again = set_condition(
        &mut list,
        &ready(true.into(), &long),
        &at("2026-11-21T05:00:00Z"),
    );
    assert!(!again, "what was cut counts as unchanged");
}

#[test]
fn phases_are_the_known_words_and_keep_unknown_ones() {
    for word in [
        "Provisioning",
        "Available",
        "Bound",
        "Released",
        "Orphaned",
        "Recycling",
    ] {
        let phase = Phase::from(word);
        assert_eq!(phase.to_string(), word);
        assert_eq!(matches!(phase, Phase::Other(_)), word == "Recycling");
        let json = serde_json::to_value(&phase).unwrap();
        assert_eq!(json, word);
        assert_eq!(serde_json::from_value::<Phase>(json).unwrap(), phase);
    }
}

#[test]
fn a_vm_and_its_row_agree_in_the_fields_they_share() {
    let vm: VmStatus = serde_json::from_value(serde_json::json!({
        "name": "demo-worker-1",
        "biosUUID": "c824c2ad-870a-528c-8c15-9efba0d051bf",
        "macAddress": "00-0c-29-31-62-66",
        "agentRef": {"kind": "Agent", "name": "adc224c8", "namespace": "demo"},
        "machineRef": {"kind": "Machine", "name": "demo-worker-1", "uid": "1"},
        "phase": "Bound",
        "reason": "AgentBound",
        "lastTransitionTime": "2026-11-21T05:23:23Z",
        "ownerUID": "0c1dbb4e-0f2b-4f0c-9d6e-3f5a5e1f7b10",
        "source": "VsphereAgent",
    }))
    .unwrap();
    assert_eq!(
        serde_json::to_value(vm.to_owned_vm()).unwrap(),
        serde_json::to_value(&vm).unwrap()
    );
    let more = VmStatus {
        attempt: Some(1),
        moref: Some("vm-66".into()),
        ..vm.clone()
    };
    assert_eq!(more.to_owned_vm(), vm.to_owned_vm());
}
