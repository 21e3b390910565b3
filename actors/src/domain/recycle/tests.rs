use agent_forge_crds::external::agent::{
    AgentStatus, DebugInfo, DeprovisionInfo, INVENTORY_ANNOTATION, InventoryDisk,
};
use k8s_openapi::api::core::v1::ObjectReference;
use proptest::prelude::*;

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
        ..AgentStatus::default()
    };
    let mut agent = Agent {
        status: Some(status),
        ..Agent::default()
    };
    // As the service writes it: the whole inventory, with the guest's time in it.
    let inventory = |t| format!(r#"{{"hostname":"h","timestamp":{t}}}"#);
    let annotation = reported.map(|t| (INVENTORY_ANNOTATION.to_owned(), inventory(t)));
    agent.metadata.annotations = annotation.map(|a| [a].into());
    agent
}

#[test]
fn a_vm_that_is_not_made_ready_in_a_day_of_tries_is_overdue() {
    let tried = |mut vm: VmStatus, hours| {
        vm.recycle.get_or_insert_default().hours_tried = hours;
        vm
    };
    let waits = || vm(1, Some(2), Some(3));
    assert!(!is_overdue(&tried(waits(), None)));
    assert!(!is_overdue(&tried(waits(), Some(23))));
    assert!(is_overdue(&tried(waits(), Some(24))));
    let begun = tried(vm(1, Some(3), Some(3)), Some(24));
    assert!(!is_overdue(&begun), "its guest has a deadline");
    assert!(!is_overdue(&vm(1, Some(2), None)));
}

fn life(attempt: i32, generation: i32) -> Option<NextLife> {
    Some(NextLife {
        attempt,
        generation,
    })
}

#[test]
fn a_request_is_about_one_vm_and_its_next_life() {
    let first = vm(1, None, None);
    assert_eq!(Some(next(&first)), life(1, 2));
    assert_eq!(stage(&first, life(1, 2)), Stage::Asked(2));
    assert_eq!(stage(&first, None), Stage::No);
    // Another VM was made since, that life is over, or it is not the next one.
    for (status, asked) in [
        (vm(2, None, None), life(1, 2)),
        (vm(1, Some(2), None), life(1, 2)),
        (first.clone(), life(1, 1)),
        (first, life(1, 3)),
    ] {
        assert_eq!(stage(&status, asked), Stage::No, "{asked:?}");
    }
    assert_eq!(Some(next(&vm(3, Some(7), None))), life(3, 8));
}

#[test]
fn the_record_decides_how_far_it_is() {
    let asked = life(1, 2);
    assert_eq!(stage(&vm(1, None, Some(2)), asked), Stage::Recorded(2));
    assert_eq!(stage(&vm(1, None, Some(2)), None), Stage::Recorded(2));
    assert_eq!(stage(&vm(1, Some(2), Some(2)), asked), Stage::Begun);
    assert_eq!(stage(&vm(1, Some(2), Some(3)), None), Stage::Recorded(3));
    let unmade = VmStatus {
        bios_uuid: None,
        ..vm(1, None, Some(2))
    };
    assert_eq!(stage(&unmade, asked), Stage::No);
}

/// Each state that the service knows: what its Agent says while its VM runs, and while it is off.
fn states() -> Vec<(&'static str, Says, Says)> {
    let minutes = |n: u64| Says::Returns(Duration::from_secs(n * 60));
    let free = [
        "unbinding-pending-user-action",
        "discovering-unbound",
        "known-unbound",
        "insufficient-unbound",
        "disconnected-unbound",
        "disabled-unbound",
        "error",
        "cancelled",
    ];
    let serves = [
        "known",
        "discovering",
        "insufficient",
        "disconnected",
        "disabled",
        "resetting",
        "resetting-pending-user-action",
        "pending-for-input",
        "preparing-for-installation",
        "preparing-successful",
        "preparing-failed",
        "installing",
        "installing-in-progress",
        "installing-pending-user-action",
        "installed",
        "added-to-existing-cluster",
    ];
    let mut all = vec![
        ("unbinding", minutes(5), Says::Free),
        ("binding", minutes(5), Says::Free),
        ("reclaiming", minutes(62), minutes(62)),
        ("reclaiming-rebooting", minutes(10), minutes(10)),
    ];
    all.extend(free.map(|state| (state, Says::Free, Says::Free)));
    all.extend(serves.map(|state| (state, Says::Serves, Says::Serves)));
    all
}

/// The table of states: which VM may be switched off, which returns by itself, which serves.
#[test]
fn each_state_of_the_agent_says_what_may_be_done() {
    for (state, on, off) in states() {
        let agent = agent(state, None);
        assert_eq!(says(Some(&agent), false), on, "{state}");
        assert_eq!(says(Some(&agent), true), off, "{state}, off");
    }
    for state in ["", "known-unbound ", "Known-Unbound", "known-unbound-2"] {
        let agent = agent(state, None);
        assert_eq!(says(Some(&agent), true), Says::Unknown, "{state:?}");
    }
    assert_eq!(says(Some(&Agent::default()), true), Says::Unknown);
    let mut bound = agent("unbinding-pending-user-action", None);
    bound.spec.cluster_deployment_name = Some(Default::default());
    assert_eq!(says(Some(&bound), true), Says::Serves);
    assert_eq!(says(None, false), Says::Free);
}

proptest! {
    /// A word that the service has not told us about touches nothing.
    #[test]
    fn no_other_word_frees_a_vm(
        word in "[a-zA-Z-]{0,40}",
        end in prop_oneof![Just(""), Just("-unbound"), Just("-rebooting"), Just("unbinding")],
        off: bool,
    ) {
        let state = format!("{word}{end}");
        prop_assume!(states().iter().all(|(known, ..)| *known != state));
        prop_assert_eq!(says(Some(&agent(&state, None)), off), Says::Unknown);
    }
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
    // The VM was off at 100. Its Agent showed the inventory of `report` then.
    let record = |state: &str, report: Option<i64>| RecycleStatus {
        state_before: Some(state.into()),
        report_before: report.map(|t| Time(at(t))),
        ..RecycleStatus::default()
    };
    let back = |record: &RecycleStatus, agent: &Agent| {
        let mut vm = vm(1, Some(2), None);
        vm.generation_since = Some(Time(at(100)));
        vm.recycle = Some(record.clone());
        is_back(&vm, agent)
    };
    let before = record("known-unbound", Some(90));
    assert!(back(&before, &agent("known-unbound", Some(101))));
    assert!(back(&before, &agent("insufficient-unbound", Some(101))));
    assert!(
        !back(&before, &agent("known-unbound", Some(90))),
        "it is the same"
    );
    assert!(
        !back(&before, &agent("known-unbound", Some(99))),
        "of the last boot"
    );
    // A guest whose clock is ahead.
    let ahead = record("known-unbound", Some(300));
    assert!(!back(&ahead, &agent("known-unbound", Some(300))));
    assert!(back(&ahead, &agent("known-unbound", Some(301))));
    // The state is not settled yet.
    assert!(!back(&before, &agent("discovering-unbound", Some(101))));
    assert!(!back(
        &before,
        &agent("unbinding-pending-user-action", Some(101))
    ));
    let mut claimed = agent("known-unbound", Some(101));
    claimed.spec.cluster_deployment_name = Some(Default::default());
    assert!(!back(&before, &claimed));
}

/// Where no inventory tells a time, only what the service shows in passing is left.
#[test]
fn a_guest_has_restarted_if_the_service_says_so_since_its_vm_was_off() {
    let table = [
        // It was known: another state of an unbound host is new.
        ("known-unbound", "known-unbound", false),
        ("known-unbound", "insufficient-unbound", false),
        ("known-unbound", "discovering-unbound", true),
        ("known-unbound", "disconnected-unbound", true),
        // The service makes known of the last report, after the power-off.
        ("discovering-unbound", "discovering-unbound", false),
        ("discovering-unbound", "known-unbound", false),
        ("discovering-unbound", "insufficient-unbound", false),
        ("discovering-unbound", "disconnected-unbound", true),
        ("disconnected-unbound", "disconnected-unbound", false),
        ("disconnected-unbound", "known-unbound", false),
        ("disconnected-unbound", "discovering-unbound", true),
        // It leaves its cluster when the guest registers. The service need not show that it is discovered.
        (
            "unbinding-pending-user-action",
            "unbinding-pending-user-action",
            false,
        ),
        ("unbinding-pending-user-action", "discovering-unbound", true),
        ("reclaiming-rebooting", "known-unbound", true),
        ("reclaiming", "reclaiming-rebooting", false),
        ("unbinding", "unbinding-pending-user-action", false),
        ("binding", "known-unbound", true),
        // Nobody knows that one.
        ("known-unbound", "rediscovering-unbound", false),
    ];
    for (before, shown, restarted) in table {
        let mut record = RecycleStatus {
            state_before: Some(before.into()),
            ..RecycleStatus::default()
        };
        let is = has_restarted(&record, &agent(shown, None));
        assert_eq!(is, restarted, "{before} -> {shown}");
        // The record is written once, and makes a discovered host one that is back.
        record.restarted = Some(true);
        assert!(!has_restarted(&record, &agent(shown, None)));
        let mut vm = vm(1, Some(2), None);
        vm.recycle = Some(record);
        assert_eq!(
            is_back(&vm, &agent(shown, None)),
            DISCOVERED.contains(&shown)
        );
    }
    let none = RecycleStatus::default();
    assert!(!has_restarted(&none, &agent("discovering-unbound", None)));
}

/// There was no Agent when the VM was off. One that is older was not looked for in the right place.
#[test]
fn an_agent_that_registered_since_is_back() {
    let mut vm = vm(1, Some(2), Some(2));
    vm.generation_since = Some(Time(at(100)));
    let born = |at_second| {
        let mut agent = agent("known-unbound", None);
        agent.metadata.creation_timestamp = Some(Time(at(at_second)));
        agent
    };
    assert!(is_back(&vm, &born(101)));
    assert!(!is_back(&vm, &born(100)));
    vm.recycle.get_or_insert_default().state_before = Some("known-unbound".into());
    assert!(!is_back(&vm, &born(101)), "it was there");
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
    assert_eq!(rows.len(), states().len(), "{rows:?}");
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
    assert!(!is_back(&vm, &by_id(NEW)), "no disk is on record");
    let way = vm.recycle.get_or_insert_default();
    way.new_disk = new_disk(Some(&by_id(OLD)), Some(NEW));
    assert_eq!(way.new_disk.as_deref(), Some(NEW));
    assert!(!is_back(&vm, &by_id(OLD)), "the old inventory");
    assert!(is_back(&vm, &by_id(NEW)));
    let others: [fn(&mut InventoryDisk); 2] = [
        |d| d.wwn = Some(format!("0x{}", NEW.to_uppercase())),
        |d| d.serial = Some("6000c29a-aaaa-aaaa-aaaa-aaaaaaaaaaa2".into()),
    ];
    for edit in others {
        assert!(is_back(&vm, &with_disk("known-unbound", edit)));
    }
    let early = with_disk("discovering-unbound", |d| d.serial = Some(NEW.into()));
    assert!(!is_back(&vm, &early), "nobody can claim it yet");
}

/// The inventory decides where it names a disk: no passing state, no time and no younger Agent counts beside the old one.
#[test]
fn nothing_counts_beside_an_inventory_with_the_old_disk() {
    let shows = |state: &str, uuid: &str| with_disk(state, |d| d.serial = Some(uuid.into()));
    let mut vm = vm(1, Some(2), Some(2));
    vm.generation_since = Some(Time(at(100)));
    let way = vm.recycle.get_or_insert_default();
    way.new_disk = Some(NEW.into());
    let discovering = shows("discovering-unbound", OLD);
    assert!(!has_restarted(way, &discovering), "nothing is recorded");
    way.restarted = Some(true);
    let mut old = shows("known-unbound", OLD);
    let younger = agent("known-unbound", Some(999)).metadata.annotations;
    old.metadata.annotations = younger;
    old.metadata.creation_timestamp = Some(Time(at(999)));
    assert!(!is_back(&vm, &old));
    assert!(is_back(&vm, &shows("known-unbound", NEW)));
    // A guest that sees no UUID of vSphere tells nothing by its disk.
    assert!(is_back(&vm, &shows("known-unbound", "VMWare NVME_0000")));
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
    vm.agent_machine_ref = Some(ObjectReference {
        namespace: Some("cp".into()),
        ..ObjectReference::default()
    });
    let (one, two) = (TraceId::of_machine("a"), TraceId::of_machine("b"));
    vm.lives = lives(&vm, Some("host-1".into()), one, Some(Time(at(200))));
    let first = PastLife {
        generation: 1,
        since: Some(Time(at(100))),
        until: Some(Time(at(200))),
        machine: Some("m-1".into()),
        control_plane: Some("cp".into()),
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

#[test]
fn a_life_that_the_vm_shows_is_recorded_and_voids_what_was_asked() {
    let fresh = |life| Some(DiskMark { life, kept: false });
    // A restored record: the VM is two lives ahead.
    let before = vm(1, None, Some(2));
    let after = in_life(&before, 3, fresh(3), Some(1), Some(Time(at(9))));
    assert_eq!((generation(&after), disk::of(&after)), (3, disk::Disk::New));
    assert_eq!(stage(&after, life(1, 2)), Stage::Recorded(4));
    assert_eq!(after.replace_ignored, Some(1));
    let way = after.recycle.expect("the way");
    assert_eq!((way.generation, way.started_at), (4, Some(Time(at(9)))));
    let unknown = in_life(&before, 3, None, None, None);
    assert_eq!(disk::of(&unknown), disk::Disk::Unknown);
    let kept = DiskMark {
        life: 3,
        kept: true,
    };
    let kept = in_life(&before, 3, Some(kept), None, None);
    assert_eq!(disk::of(&kept), disk::Disk::Unknown);
    // Without a way, the request is void all the same.
    let idle = VmStatus {
        recycle: None,
        generation: None,
        ..before.clone()
    };
    assert_eq!(stage(&idle, life(1, 2)), Stage::Asked(2));
    let idle = in_life(&idle, 2, None, None, None);
    assert_eq!(stage(&idle, life(1, 2)), Stage::No);
    assert_eq!(Some(next(&idle)), life(1, 3));
    // vCenter came back from a backup: the VM was not made ready for its life.
    let begun = VmStatus {
        generation: Some(3),
        recycle: after_recycle(3),
        ..before
    };
    assert_eq!(stage(&begun, None), Stage::Begun);
    let again = in_life(&begun, 2, None, None, None);
    assert_eq!(stage(&again, None), Stage::Recorded(3));
}

fn after_recycle(generation: i32) -> Option<RecycleStatus> {
    Some(RecycleStatus {
        generation,
        new_disk: Some(NEW.to_owned()),
        ..RecycleStatus::default()
    })
}
