use agent_forge_crds::names::RESTORED_FROM_ANNOTATION;

use super::*;
use agent_forge_crds::pool::CleanupPolicy;

use crate::{
    domain::marker::Marker,
    testing::{CLUSTER_ID, NAMESPACE, child, child_with_vm, intent, marker, pool, with},
};

fn vm(id: &str, marker: Marker, power: PowerState) -> MarkedVm {
    MarkedVm {
        moref: MoRef::new("VirtualMachine", id),
        name: "a".to_owned(),
        marker,
        power,
        has_boot_order: power == PowerState::On,
        marks: VmMarks::default(),
        num_cpus: Some(4),
        memory_mib: Some(16384),
    }
}

fn half_made(id: &str, attempt: u32) -> MarkedVm {
    vm(id, marker(&child("a"), attempt), PowerState::Off)
}

fn why(vms: &[MarkedVm], children: &[VsphereAgent]) -> Vec<(String, Why)> {
    orphans(vms, children, CLUSTER_ID)
        .into_iter()
        .map(|o| (o.vm.moref.id, o.why))
        .collect()
}

fn at_attempt(attempt: u32) -> VsphereAgent {
    with(child_with_vm("a"), |c| {
        let vm = intent(c, attempt);
        c.status.as_mut().expect("status").vm = Some(vm);
    })
}

#[test]
fn a_marked_vm_is_somebodys_by_uid_and_attempt() {
    let on = |id: &str| vm(id, marker(&child("a"), 1), PowerState::On);
    let ours = child_with_vm("a");
    let is = |why: Why| vec![("vm-a".to_owned(), why)];
    assert_eq!(why(&[on("vm-a")], std::slice::from_ref(&ours)), []);
    // Registered again in vCenter: it has another reference, and the recorded one does not exist.
    assert_eq!(why(&[on("vm-9")], std::slice::from_ref(&ours)), []);
    let copied = why(&[on("vm-a"), on("vm-9")], std::slice::from_ref(&ours));
    assert_eq!(copied, [("vm-9".to_owned(), Why::Copy)]);
    assert_eq!(why(&[on("vm-a")], &[]), is(Why::NoRecord));
    assert_eq!(why(&[on("vm-a")], &[child_with_vm("b")]), is(Why::NoRecord));
    assert_eq!(why(&[on("vm-a")], &[at_attempt(2)]), is(Why::Superseded));
    let later = vm("vm-a", marker(&child("a"), 2), PowerState::On);
    assert_eq!(why(&[later], std::slice::from_ref(&ours)), is(Why::Ahead));
    // A lost record is older than any VM.
    assert_eq!(why(&[on("vm-a")], &[child("a")]), is(Why::Ahead));
}

#[test]
fn a_restored_hub_and_another_hub_lose_nothing_that_ran() {
    let served = vm("vm-a", marker(&child("a"), 1), PowerState::On);
    let off = MarkedVm {
        power: PowerState::Off,
        ..served.clone()
    };
    let known = BTreeSet::from([served.moref.clone()]);
    let reborn = with(child("a"), |c| c.metadata.uid = Some("new".to_owned()));
    let pools = [pool("workers")];
    for seen in [served.clone(), off] {
        for children in [
            vec![],
            vec![reborn.clone()],
            vec![child("a")],
            vec![at_attempt(2)],
        ] {
            for orphan in orphans(std::slice::from_ref(&seen), &children, CLUSTER_ID) {
                assert!(!may_go(&orphan, &known, &pools), "{orphan:?}");
            }
        }
    }
    // A person says which uid it had.
    let linked = with(reborn, |c| {
        let before = served.marker.uid.clone();
        c.annotations_mut()
            .insert(RESTORED_FROM_ANNOTATION.to_owned(), format!("{before}/1"));
        c.status = at_attempt(1).status;
    });
    assert_eq!(
        orphans(
            std::slice::from_ref(&served),
            std::slice::from_ref(&linked),
            CLUSTER_ID
        ),
        []
    );
    let orphan = Orphan {
        vm: half_made("vm-7", 1),
        why: Why::NoRecord,
    };
    assert!(!is_nobodys(&orphan, Some(&linked)));
    // The other hub's VMs are not even counted.
    assert_eq!(orphans(&[served], &[], "another-cluster"), []);
}

#[test]
fn only_what_never_ran_and_is_known_to_be_nobodys_may_go() {
    let orphan = |why| Orphan {
        vm: half_made("vm-7", 1),
        why,
    };
    let known = BTreeSet::from([orphan(Why::NoRecord).vm.moref]);
    let pools = [pool("workers"), pool("others")];
    let retain = pool("keepers");
    let retain = with(retain, |p| {
        p.spec.cleanup_policy = Some(CleanupPolicy::Retain);
    });
    for (reason, may) in [
        (Why::NoRecord, true),
        (Why::Superseded, true),
        (Why::Ahead, false),
        (Why::Copy, false),
    ] {
        assert_eq!(may_go(&orphan(reason), &known, &pools), may, "{reason:?}");
        assert!(
            !may_go(&orphan(reason), &BTreeSet::new(), &pools),
            "seen once"
        );
        assert!(!may_go(&orphan(reason), &known, []), "no pool to ask");
        let one_keeps = [pools[0].clone(), retain.clone()];
        assert!(!may_go(&orphan(reason), &known, &one_keeps));
        let elsewhere = with(pools[0].clone(), |p| {
            p.metadata.namespace = Some("x".into())
        });
        assert!(!may_go(&orphan(reason), &known, [&elsewhere]));
    }
    let ready = with(orphan(Why::NoRecord), |o| o.vm.has_boot_order = true);
    assert!(
        !may_go(&ready, &known, &pools),
        "it was about to run, or did"
    );
    let suspended = with(orphan(Why::NoRecord), |o| {
        o.vm.power = PowerState::Suspended
    });
    assert!(!may_go(&suspended, &known, &pools));
    assert_eq!(NAMESPACE, orphan(Why::NoRecord).vm.marker.namespace);
}

#[test]
fn the_api_server_has_the_last_word() {
    let orphan = |why| Orphan {
        vm: half_made("vm-7", 1),
        why,
    };
    let reborn = with(child("a"), |c| c.metadata.uid = Some("new".to_owned()));
    let claims_it = with(at_attempt(2), |c| {
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut()).expect("vm");
        vm.moref = Some("vm-7".to_owned());
    });
    for (reason, live, nobodys) in [
        (Why::NoRecord, None, true),
        (Why::NoRecord, Some(reborn.clone()), true),
        (Why::NoRecord, Some(child("a")), false),
        (Why::NoRecord, Some(at_attempt(2)), false),
        (Why::Superseded, Some(at_attempt(2)), true),
        (Why::Superseded, Some(at_attempt(1)), false),
        (Why::Superseded, Some(claims_it), false),
        (Why::Superseded, Some(child("a")), false),
        (Why::Superseded, None, false),
        (Why::Superseded, Some(reborn), false),
    ] {
        let got = is_nobodys(&orphan(reason), live.as_ref());
        assert_eq!(got, nobodys, "{reason:?} {live:?}");
    }
}

#[test]
fn a_recorded_vm_that_is_gone_or_off_is_doubted() {
    let mut on = child_with_vm("a");
    let doubts = |vms: &[MarkedVm], child: &VsphereAgent| {
        let found = missing_in_scan("vc.example", vms, [child]);
        found.into_iter().collect::<Vec<_>>()
    };
    let seen = |power| vm("vm-a", marker(&child("a"), 1), power);
    assert!(doubts(&[seen(PowerState::On)], &on).is_empty());
    assert_eq!(doubts(&[seen(PowerState::Off)], &on), ["vm-a"]);
    assert_eq!(doubts(&[], &on), ["vm-a"]);
    assert!(missing_in_scan("other.example", &[], [&on]).is_empty());
    let record = |c: &mut VsphereAgent, change: fn(&mut VmStatus)| {
        change(c.status.as_mut().and_then(|s| s.vm.as_mut()).expect("vm"));
    };
    record(&mut on, |vm| vm.power_state = None);
    assert!(doubts(&[], &on).is_empty(), "not made yet");
    record(&mut on, |vm| {
        vm.power_state = Some("poweredOn".to_owned());
        vm.attempt = None;
    });
    assert!(doubts(&[], &on).is_empty(), "the predecessor's");
}
