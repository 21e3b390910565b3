//! A status that somebody empties or damages, or that a backup did not restore.

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgentStatus},
    conditions::Reason,
};

use super::{super::testing::Bench, MINUTE, on, release};
use crate::{
    domain::identity::BiosUuid,
    ports::{effect::EffectKind as E, vcenter::VmObservation},
    vm::ownership::Ownership,
};

fn change(bench: &Bench, how: impl FnOnce(&mut VsphereAgentStatus)) {
    bench.hub.with(|o| {
        o.version += 1;
        let version = (o.version + 100).to_string();
        let child = o.child.as_mut().expect("it exists");
        how(child.status.as_mut().expect("it has one"));
        child.metadata.resource_version = Some(version);
    });
}

fn empty(bench: &Bench) {
    change(bench, |status| *status = VsphereAgentStatus::default());
}

#[tokio::test]
async fn what_stands_in_vcenter_is_recorded_anew_and_not_made_again() {
    for restarts in [false, true] {
        let mut bench = on().await;
        let before = bench.vm();
        bench.turn(2 * MINUTE);
        empty(&bench);
        if restarts {
            bench.restart();
        }
        bench.until(Bench::is_on).await;
        let after = bench.vm();
        assert_eq!(after.moref, before.moref, "{restarts}");
        assert_eq!(after.bios_uuid, before.bios_uuid, "{restarts}");
        assert_eq!(bench.times(E::CreateVm), 1, "it is looked for first");
    }
}

#[tokio::test]
async fn a_deletion_takes_away_what_stands_in_vcenter_all_the_same() {
    for restarts in [false, true] {
        let mut bench = on().await;
        bench.turn(2 * MINUTE);
        empty(&bench);
        if restarts {
            bench.restart();
        }
        release(&bench);
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        assert_eq!(bench.site.with(|i| i.vms.len()), 0, "{restarts}");
        assert_eq!(bench.times(E::CreateVm), 1, "{restarts}");
    }
}

#[tokio::test]
async fn a_record_that_was_torn_is_left_to_a_person() {
    // The number of the VM, or what leads to it, is still there. From such a record it is unknown whether the VM
    // exists.
    type Tear = fn(&mut VmStatus);
    let tears: [(&str, Tear, bool); 3] = [
        (
            "number only",
            |vm| {
                *vm = VmStatus {
                    attempt: vm.attempt,
                    ..VmStatus::default()
                };
            },
            false,
        ),
        ("no uuid", |vm| vm.bios_uuid = None, true),
        (
            "reference only",
            |vm| {
                *vm = VmStatus {
                    moref: vm.moref.clone(),
                    ..VmStatus::default()
                };
            },
            true,
        ),
    ];
    for (what, tear, restarts) in tears {
        for deleted in [false, true] {
            let mut bench = on().await;
            bench.turn(2 * MINUTE);
            change(&bench, |status| {
                tear(status.vm.as_mut().expect("recorded"));
            });
            if restarts {
                bench.restart();
            }
            if deleted {
                release(&bench);
            }
            bench.pass().await;
            assert_eq!(
                bench.waits_on(),
                Some(Reason::RecordLost),
                "{what}, {deleted}"
            );
            assert_eq!(bench.site.with(|i| i.vms.len()), 1, "{what}, {deleted}");
            assert_eq!(bench.times(E::CreateVm), 1, "{what}, {deleted}");
        }
    }
}

#[tokio::test]
async fn another_attempts_vm_is_left_to_a_person() {
    for deleted in [false, true] {
        let mut bench = on().await;
        let vm = bench.site.with(|i| VmObservation {
            bios_uuid: Some(BiosUuid::derive("another", "a", 1)),
            ..i.vms[0].clone()
        });
        bench.memory.seen = Ownership::Ours(Box::new(vm));
        bench.memory.recorded = None;
        empty(&bench);
        if deleted {
            release(&bench);
        }
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::RecordLost));
        assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    }
}
