//! Take-over from the predecessor, and of what it adopted: proof, mark, and nothing else.

use agent_forge_crds::{
    conditions::vm_reason,
    names::{AGENT_FINALIZER, CREATED_FOR_ADOPTED, CREATED_FOR_LABEL},
};
use kube::ResourceExt;

use super::{super::bench::Bench, MINUTE, release};
use crate::{
    effect::EffectKind as E,
    model::{identity::BiosUuid, names::MoRef},
    ports::vcenter::PowerState,
    testing::{self, delete, running, shown, with},
};

/// What the predecessor left: a record of name and uuid, a VM without marker.
fn predecessors(bench: &Bench) {
    let child = bench.child();
    bench.hub.with(|o| {
        let old = o.child.as_mut().expect("child");
        old.status.get_or_insert_default().vm = Some(agent_forge_crds::agent::VmStatus {
            name: "a".to_owned(),
            bios_uuid: running(&child).bios_uuid,
            mac_address: Some("02-42-ac-11-00-02".to_owned()),
            ..agent_forge_crds::agent::VmStatus::default()
        });
    });
    bench.site.with(|i| {
        i.vms = vec![with(shown(&child, PowerState::On), |v| {
            v.marker = None;
            v.folder = Some(MoRef::new("Folder", "group-v1"));
        })];
    });
}

#[tokio::test]
async fn the_predecessors_vm_is_proven_stamped_and_otherwise_left_alone() {
    let mut bench = Bench::new();
    predecessors(&bench);
    bench.until(Bench::is_on).await;
    let told = bench.site.with(|i| i.effects.clone());
    assert_eq!(told, [E::Reconfigure], "only the marker");
    assert!(bench.site.with(|i| i.vms[0].marker.is_some()));
    let vm = bench.vm();
    assert_eq!((vm.attempt, vm.moref.as_deref()), (Some(1), Some("vm-a")));
    assert_eq!(vm.mac_addresses, [testing::mac("a")]);
    assert_eq!(vm.discovery_deadline, None);
}

#[tokio::test]
async fn the_predecessors_vm_is_recorded_as_stamped_only_where_it_is() {
    for (done, times) in [(false, 2), (true, 1)] {
        let mut bench = Bench::new();
        predecessors(&bench);
        bench
            .site
            .with(|i| i.vanishes = Some((E::Reconfigure, done)));
        bench.until(Bench::is_on).await;
        assert!(bench.site.with(|i| i.vms[0].marker.is_some()));
        assert_eq!(bench.times(E::Reconfigure), times, "done: {done}");
    }
}

/// The pool's `datacenter` was edited since: that its VM is not there says nothing.
#[tokio::test]
async fn the_predecessors_vm_is_not_taken_for_absent_because_it_is_in_another_datacenter() {
    let mut bench = Bench::new();
    predecessors(&bench);
    bench
        .site
        .with(|i| i.vms[0].folder = Some(MoRef::new("Folder", "group-v9")));
    release(&bench);
    for _ in 0..10 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.waits_on().as_deref(), Some("OwnershipUnproven"));
    assert_eq!(bench.child().finalizers(), [AGENT_FINALIZER]);
    bench.site.with(|i| i.vms.clear());
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
}

#[tokio::test]
async fn without_proof_the_predecessors_vm_is_reported_and_never_touched() {
    type Twist = fn(&mut Vec<crate::ports::vcenter::VmObservation>);
    let twists: [Twist; 4] = [
        |vms| vms[0].name = "b".to_owned(),
        |vms| vms[0].folder = Some(MoRef::new("Folder", "group-v2")),
        |vms| vms[0].marker = Some(testing::marker(&testing::child("b"), 1)),
        |vms| {
            let copy = with(vms[0].clone(), |v| {
                v.moref = MoRef::new("VirtualMachine", "vm-c")
            });
            vms.push(copy);
        },
    ];
    for twist in twists {
        let mut bench = Bench::new();
        predecessors(&bench);
        bench.site.with(|i| twist(&mut i.vms));
        bench.pass().await;
        assert_eq!(bench.waits_on().as_deref(), Some("OwnershipUnproven"));
        // Not even when its object is deleted.
        bench.hub.with(|o| {
            delete(o.child.as_mut().expect("child"));
            o.machines.clear();
            o.agent_machines.clear();
        });
        bench.restart();
        for _ in 0..5 {
            bench.turn(MINUTE);
            bench.pass().await;
        }
        assert!(bench.site.with(|i| i.effects.is_empty()));
        assert_eq!(bench.child().finalizers(), [AGENT_FINALIZER]);
    }
}

#[tokio::test]
async fn the_predecessors_vm_is_taken_over_once_somebody_has_put_it_right() {
    for (gone, reason) in [(false, "OwnershipUnproven"), (true, "VMMissing")] {
        let mut bench = Bench::new();
        predecessors(&bench);
        let vms = bench.site.with(|i| {
            let there = i.vms.clone();
            i.vms[0].name = "b".to_owned();
            i.vms.truncate(usize::from(!gone));
            there
        });
        bench
            .until(|b| b.waits_on().as_deref() == Some(reason))
            .await;
        let writes = bench.hub.with(|o| o.effects.len());
        for _ in 0..10 {
            bench.turn(MINUTE);
            bench.pass().await;
            assert_eq!(bench.waits_on().as_deref(), Some(reason), "all the while");
        }
        assert_eq!(bench.hub.with(|o| o.effects.len()), writes, "in silence");
        assert!(bench.site.with(|i| i.effects.is_empty()));
        bench.site.with(|i| i.vms = vms);
        for _ in 0..3 {
            bench.turn(MINUTE);
            bench.pass().await;
        }
        assert!(bench.is_on(), "without a restart: {:?}", bench.waits_on());
    }
}

#[tokio::test]
async fn an_adopted_vm_is_taken_over_only_when_a_person_says_so_and_only_with_proof() {
    let adopted = || {
        let bench = Bench::new();
        predecessors(&bench);
        bench.hub.with(|o| {
            let labels = o.child.as_mut().expect("child").labels_mut();
            labels.insert(CREATED_FOR_LABEL.to_owned(), CREATED_FOR_ADOPTED.to_owned());
        });
        bench
    };
    let say = |bench: &Bench, word: &str| {
        let (key, word) = (agent_forge_crds::names::ADOPT_ANNOTATION, word.to_owned());
        bench.hub.with(|o| {
            let annotations = o.child.as_mut().expect("child").annotations_mut();
            annotations.insert(key.to_owned(), word);
        });
    };
    let mut bench = adopted();
    bench.pass().await;
    say(&bench, "yes");
    bench.pass().await;
    assert!(bench.site.with(|i| i.effects.is_empty()));
    assert_eq!(bench.waits_on().as_deref(), Some("OwnershipUnproven"));
    assert_eq!(bench.vm().reason.as_deref(), Some(vm_reason::VM_ADOPTED));
    say(&bench, "true");
    bench.until(Bench::is_on).await;
    let told = bench.vm().reason;
    assert_eq!(told.as_deref(), Some(vm_reason::AGENT_NOT_DISCOVERED));
    assert_eq!(bench.site.with(|i| i.effects.clone()), [E::Reconfigure]);
    let mut bench = adopted();
    bench.site.with(|i| i.vms[0].folder = None);
    say(&bench, "true");
    bench.pass().await;
    assert!(bench.site.with(|i| i.effects.is_empty()));
    // One that only names a VM, and has no record of it, adopts nothing.
    let mut bench = adopted();
    bench
        .hub
        .with(|o| o.child.as_mut().expect("child").status = None);
    say(&bench, "true");
    let another = Some(BiosUuid::derive("another", "a", 1));
    bench.site.with(|i| i.vms[0].bios_uuid = another);
    for _ in 0..5 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    let touched = bench.site.with(|i| i.vms[0].marker.is_some());
    assert!(!touched);
}
