use agent_forge_crds::external::agent::{AgentStatus, DebugInfo, Inventory};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn vm(attempt: i32, generation: Option<i32>, way: Option<i32>) -> VmStatus {
    VmStatus {
        bios_uuid: Some("4210aaaa-0000-5000-8000-000000000001".into()),
        attempt: Some(attempt),
        generation,
        recycle: way.map(|generation| RecycleStatus {
            generation,
            ..RecycleStatus::default()
        }),
        ..VmStatus::default()
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn agent(state: &str, reported: Option<i64>) -> Agent {
    let status = AgentStatus {
        debug_info: Some(DebugInfo {
            state: Some(state.into()),
            state_info: None,
        }),
        inventory: reported.map(|t| Inventory {
            report_time: Some(Time(at(t))),
            ..Inventory::default()
        }),
        ..AgentStatus::default()
    };
    Agent {
        status: Some(status),
        ..Agent::default()
    }
}

#[test]
fn a_request_is_about_one_vm_and_its_next_life() {
    let first = vm(1, None, None);
    assert_eq!(request(&first), "1/2");
    assert_eq!(stage(&first, Some("1/2")), Stage::Asked(2));
    assert_eq!(stage(&first, None), Stage::No);
    // Another VM was made since, or that life is over.
    for (status, request) in [
        (vm(2, None, None), "1/2"),
        (vm(1, Some(2), None), "1/2"),
        (first.clone(), "1/1"),
        (first.clone(), "2"),
        (first, "1/many"),
    ] {
        assert_eq!(stage(&status, Some(request)), Stage::No, "{request}");
    }
    assert_eq!(request(&vm(3, Some(7), None)), "3/8");
}

#[test]
fn the_record_decides_how_far_it_is() {
    assert_eq!(
        stage(&vm(1, None, Some(2)), Some("1/2")),
        Stage::Recorded(2)
    );
    assert_eq!(stage(&vm(1, None, Some(2)), None), Stage::Recorded(2));
    assert_eq!(stage(&vm(1, Some(2), Some(2)), Some("1/2")), Stage::Begun);
    assert_eq!(stage(&vm(1, Some(2), Some(3)), None), Stage::Recorded(3));
    let unmade = VmStatus {
        bios_uuid: None,
        ..vm(1, None, Some(2))
    };
    assert_eq!(stage(&unmade, Some("1/2")), Stage::No);
}

/// The table of states: which VM may be switched off, which returns by itself, which serves.
#[test]
fn each_state_of_the_agent_says_what_may_be_done() {
    let minutes = |n: u64| Says::Returns(Duration::from_secs(n * 60));
    for (state, off, wanted) in [
        ("unbinding-pending-user-action", false, Says::Free),
        ("unbinding", false, minutes(5)),
        ("unbinding", true, Says::Free),
        ("reclaiming", false, minutes(62)),
        ("reclaiming", true, minutes(62)),
        ("reclaiming-rebooting", false, minutes(10)),
        ("discovering-unbound", false, Says::Free),
        ("known-unbound", false, Says::Free),
        ("insufficient-unbound", false, Says::Free),
        ("disconnected-unbound", false, Says::Free),
        ("error", false, Says::Free),
        ("cancelled", false, Says::Free),
        ("binding", true, Says::Serves),
        ("installing", true, Says::Serves),
        ("installing-in-progress", true, Says::Serves),
        ("installing-pending-user-action", true, Says::Serves),
        ("added-to-existing-cluster", true, Says::Serves),
    ] {
        assert_eq!(
            says(Some(&agent(state, None)), off),
            wanted,
            "{state} {off}"
        );
    }
    let mut bound = agent("unbinding-pending-user-action", None);
    bound.spec.cluster_deployment_name = Some(Default::default());
    assert_eq!(says(Some(&bound), true), Says::Serves);
    assert_eq!(says(None, false), Says::Free);
}

#[test]
fn patience_counts_from_the_record() {
    let record = RecycleStatus {
        started_at: Some(Time(at(100))),
        ..RecycleStatus::default()
    };
    let left = |now| left(Some(&record), Duration::from_secs(300), at(now));
    assert_eq!(left(100), Duration::from_secs(300));
    assert_eq!(left(150), Duration::from_secs(250));
    assert_eq!(left(400), Duration::ZERO);
    // A clock that was set back makes it no longer than it ever was.
    assert_eq!(left(50), Duration::from_secs(300));
}

#[test]
fn an_agent_is_back_when_its_guest_has_reported_again() {
    let record = |state: &str, report: Option<i64>| RecycleStatus {
        state_before: Some(state.into()),
        report_before: report.map(|t| Time(at(t))),
        ..RecycleStatus::default()
    };
    let back = |record: &RecycleStatus, agent: &Agent| {
        let mut vm = vm(1, Some(2), None);
        vm.recycle = Some(record.clone());
        is_back(&vm, agent, at(0))
    };
    let before = record("unbinding-pending-user-action", Some(100));
    assert!(back(&before, &agent("known-unbound", Some(101))));
    assert!(back(&before, &agent("insufficient-unbound", Some(101))));
    // The state is not settled yet.
    assert!(!back(&before, &agent("discovering-unbound", Some(101))));
    assert!(!back(
        &before,
        &agent("unbinding-pending-user-action", Some(101))
    ));
    // After a reclaim the state is the same as after the next start.
    let known = record("known-unbound", Some(100));
    assert!(!back(&known, &agent("known-unbound", Some(100))));
    assert!(back(&known, &agent("known-unbound", Some(101))));
    let mut silent = record("known-unbound", None);
    assert!(!back(&silent, &agent("known-unbound", None)));
    assert!(has_restarted(&silent, &agent("discovering-unbound", None)));
    assert!(!has_restarted(&silent, &agent("known-unbound", None)));
    assert!(!has_restarted(
        &silent,
        &agent("reclaiming-rebooting", None)
    ));
    silent.restarted = Some(true);
    assert!(!has_restarted(&silent, &agent("discovering-unbound", None)));
    assert!(back(&silent, &agent("known-unbound", None)));
    let early = record("discovering-unbound", None);
    assert!(!has_restarted(&early, &agent("discovering-unbound", None)));
    assert!(back(&early, &agent("known-unbound", None)));
    let mut claimed = agent("known-unbound", Some(101));
    claimed.spec.cluster_deployment_name = Some(Default::default());
    assert!(!back(&before, &claimed));
}

/// The table of `docs/explanation/late-binding.md` says the same as the code.
#[test]
fn the_page_lists_what_each_state_means() {
    let page = include_str!("../../../../docs/explanation/late-binding.md");
    let section = page.split("## What an Agent's state means").nth(1).unwrap();
    let rows = section.split("\n## ").next().unwrap().lines();
    let rows: Vec<(&str, &str)> = rows
        .filter_map(|row| {
            row.strip_prefix("| `")?
                .strip_suffix(" |")?
                .split_once("` | ")
        })
        .collect();
    assert_eq!(rows.len(), 15, "{rows:?}");
    for (state, words) in rows {
        let on = says(Some(&agent(state, None)), false);
        let off = says(Some(&agent(state, None)), true);
        let told = match (on, off) {
            (Says::Free, Says::Free) => "now".to_owned(),
            (Says::Serves, Says::Serves) => "never".to_owned(),
            (Says::Returns(left), Says::Free) => {
                format!(
                    "after {} minutes; at once if the VM is off",
                    left.as_secs() / 60
                )
            }
            (Says::Returns(left), _) => format!("after {} minutes", left.as_secs() / 60),
            other => panic!("{state}: {other:?}"),
        };
        assert_eq!(told, words, "{state}");
    }
}

/// A host that is still connected five minutes after its VM was off has a guest that runs.
#[test]
fn an_agent_that_stays_connected_for_longer_than_a_dead_guest_is_back() {
    let mut vm = vm(1, Some(2), Some(2));
    vm.generation_since = Some(Time(at(1000)));
    vm.recycle.get_or_insert_default().state_before = Some("known-unbound".into());
    let connected = |value: &str| {
        let mut agent = agent("known-unbound", None);
        let status = agent.status.get_or_insert_default();
        status.conditions = vec![crate::testing::condition("Connected", value, "x")];
        agent
    };
    assert!(!is_back(&vm, &connected("True"), at(1299)));
    assert!(is_back(&vm, &connected("True"), at(1300)));
    assert!(!is_back(&vm, &connected("False"), at(1300)));
}
