use agent_forge_crds::external::agent::{
    AgentStatus, DebugInfo, DeprovisionInfo, Inventory, InventoryDisk,
};
use k8s_openapi::api::core::v1::ObjectReference;

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
fn a_vm_that_is_not_made_ready_for_a_day_is_overdue() {
    let begun_at = |mut vm: VmStatus| {
        vm.recycle.get_or_insert_default().started_at = Some(Time(at(100)));
        vm
    };
    let waits = begun_at(vm(1, Some(2), Some(3)));
    assert!(!is_overdue(&waits, at(100 + 86_399)));
    assert!(is_overdue(&waits, at(100 + 86_400)));
    let begun = begun_at(vm(1, Some(3), Some(3)));
    assert!(!is_overdue(&begun, at(999_999)), "its guest has a deadline");
    assert!(!is_overdue(&vm(1, Some(2), None), at(999_999)));
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

/// An Agent whose inventory has one disk with these texts.
fn with_disk(state: &str, edit: impl FnOnce(&mut InventoryDisk)) -> Agent {
    let mut agent = agent(state, None);
    let mut disk = InventoryDisk::default();
    edit(&mut disk);
    let status = agent.status.get_or_insert_default();
    status.inventory.get_or_insert_default().disks = vec![disk];
    agent
}

const OLD: &str = "6000c29aaaaaaaaaaaaaaaaaaaaaaaa1";
const NEW: &str = "6000c29aaaaaaaaaaaaaaaaaaaaaaaa2";

#[test]
fn an_agent_that_names_the_new_disk_is_back_at_once() {
    let by_id = |uuid: &str| {
        with_disk("known-unbound", |d| {
            d.id = Some(format!("/dev/disk/by-id/wwn-0x{uuid}"))
        })
    };
    let mut vm = vm(1, Some(2), Some(2));
    let way = vm.recycle.get_or_insert_default();
    way.state_before = Some("known-unbound".into());
    assert!(!is_back(&vm, &by_id(NEW), at(0)), "no disk is on record");
    let way = vm.recycle.get_or_insert_default();
    way.new_disk = new_disk(Some(&by_id(OLD)), Some(NEW));
    assert_eq!(way.new_disk.as_deref(), Some(NEW));
    assert!(!is_back(&vm, &by_id(OLD), at(0)), "the old inventory");
    assert!(is_back(&vm, &by_id(NEW), at(0)));
    let others: [fn(&mut InventoryDisk); 2] = [
        |d| d.wwn = Some(format!("0x{}", NEW.to_uppercase())),
        |d| d.serial = Some("6000c29a-aaaa-aaaa-aaaa-aaaaaaaaaaa2".into()),
    ];
    for edit in others {
        assert!(is_back(&vm, &with_disk("known-unbound", edit), at(0)));
    }
    let early = with_disk("discovering-unbound", |d| d.serial = Some(NEW.into()));
    assert!(!is_back(&vm, &early, at(0)), "nobody can claim it yet");
}

#[test]
fn a_disk_that_was_named_before_proves_nothing() {
    let kept = with_disk("known-unbound", |d| d.serial = Some(OLD.into()));
    assert_eq!(new_disk(Some(&kept), Some(OLD)), None);
    assert_eq!(new_disk(Some(&kept), None), None, "vCenter shows no UUID");
    assert_eq!(new_disk(None, Some(NEW)), None, "no Agent to compare with");
}

#[test]
fn each_life_that_is_over_is_recorded_once_and_the_last_ten_are_kept() {
    let mut vm = vm(1, None, None);
    vm.first_powered_on = Some(Time(at(100)));
    vm.machine_ref = Some(ObjectReference {
        name: Some("m-1".into()),
        ..ObjectReference::default()
    });
    let (one, two) = (TraceId::of_machine("a"), TraceId::of_machine("b"));
    vm.lives = lives(&vm, Some("host-1".into()), one, Some(Time(at(200))));
    let first = PastLife {
        generation: 1,
        since: Some(Time(at(100))),
        until: Some(Time(at(200))),
        machine: Some("m-1".into()),
        host_name: Some("host-1".into()),
        trace_id: Some(one.to_string()),
    };
    assert_eq!(vm.lives, [first]);
    assert_eq!(lives(&vm, None, two, None), vm.lives, "it is the same life");
    assert_eq!(trace_before(&vm, two), Some(one));
    assert_eq!(trace_before(&vm, one), None);
    for life in 2..=12 {
        vm.generation = Some(life);
        vm.generation_since = Some(Time(at(i64::from(life) * 1000)));
        vm.lives = lives(&vm, Some(String::new()), two, None);
    }
    let numbers: Vec<i32> = vm.lives.iter().map(|life| life.generation).collect();
    assert_eq!(numbers, (3..=12).collect::<Vec<_>>());
    let last = vm.lives.last().expect("a life");
    assert_eq!(last.since, Some(Time(at(12_000))));
    assert_eq!(last.host_name, None, "an empty name is none");
}

#[test]
fn only_an_agent_that_shows_the_life_before_for_long_hangs_in_a_clean_up() {
    let mut vm = vm(1, Some(2), Some(2));
    vm.generation_since = Some(Time(at(1000)));
    vm.recycle.get_or_insert_default().state_before = Some("unbinding-pending-user-action".into());
    let leaving = |state: &str| {
        let mut agent = agent(state, None);
        agent.status.get_or_insert_default().deprovision_info = Some(DeprovisionInfo {
            cluster_namespace: Some("demo-demo".into()),
            node_name: None,
        });
        agent
    };
    let hung = leaving("unbinding-pending-user-action");
    let hangs = |agent: &Agent, now| cleanup_hangs(&vm, agent, "demo-demo", at(now));
    assert!(hangs(&hung, 1600));
    assert!(!hangs(&hung, 1599), "the service gets its time");
    assert!(
        !cleanup_hangs(&vm, &hung, "other", at(1600)),
        "another cluster"
    );
    let others: [fn(&mut Agent); 4] = [
        |a| a.status.get_or_insert_default().deprovision_info = None,
        |a| a.spec.cluster_deployment_name = Some(Default::default()),
        |a| a.metadata.deletion_timestamp = Some(Time(at(1))),
        |a| {
            let theirs = (SKIP_SPOKE_CLEANUP_ANNOTATION.to_owned(), String::new());
            a.metadata.annotations = Some([theirs].into());
        },
    ];
    for edit in others {
        let agent = crate::testing::with(hung.clone(), edit);
        assert!(!hangs(&agent, 1600), "{agent:?}");
    }
    assert!(
        !hangs(&leaving("unbinding"), 1600),
        "it showed another state"
    );
    assert!(!hangs(&leaving("known-unbound"), 1600));
    vm.recycle = None;
    assert!(!cleanup_hangs(&vm, &hung, "demo-demo", at(1600)));
}
