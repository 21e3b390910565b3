//! Take-over from the predecessor, and of what it adopted: proof and mark, nothing else.

use agent_forge_crds::{
    conditions::Reason,
    names::{AGENT_FINALIZER, CREATED_FOR_ADOPTED, CREATED_FOR_LABEL},
};
use kube::ResourceExt;

use super::{super::testing::Bench, MINUTE, release};
use crate::{
    domain::names::MoRef,
    migration::notes::Notes,
    ports::{
        effect::EffectKind as E,
        vcenter::{Cdrom, PowerState},
    },
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
    // As its release 1.1.0 writes it, so that the predecessor can take over again.
    let uid = bench.child().uid();
    assert_eq!(
        (&vm.owner_uid, vm.source.as_deref()),
        (&uid, Some("VsphereAgent"))
    );
    let notes = bench.site.with(|i| i.vms[0].annotation.clone());
    assert_eq!(notes, Notes::text(&uid.expect("a uid")));
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

/// The pool's `datacenter` was changed since: a search there proves nothing about the VM.
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
    assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
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
        assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
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
    for (gone, reason) in [
        (false, Reason::OwnershipUnproven),
        (true, Reason::VmMissing),
    ] {
        let mut bench = Bench::new();
        predecessors(&bench);
        let vms = bench.site.with(|i| {
            let there = i.vms.clone();
            i.vms[0].name = "b".to_owned();
            i.vms.truncate(usize::from(!gone));
            there
        });
        bench
            .until(|b| b.waits_on().as_ref() == Some(&reason))
            .await;
        let writes = bench.hub.with(|o| o.effects.len());
        for _ in 0..10 {
            bench.turn(MINUTE);
            bench.pass().await;
            assert_eq!(bench.waits_on().as_ref(), Some(&reason), "all the while");
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

/// Its record is not enough: adoption asks for more ([`super::adopt`]).
#[tokio::test]
async fn an_adopted_vm_is_left_alone_until_a_person_asks_and_all_is_proven() {
    let mut bench = Bench::new();
    predecessors(&bench);
    let say = |bench: &Bench, word: &str| {
        let (key, word) = (agent_forge_crds::names::ADOPT_ANNOTATION, word.to_owned());
        bench.hub.with(|o| {
            let child = o.child.as_mut().expect("child");
            let label = (CREATED_FOR_LABEL.to_owned(), CREATED_FOR_ADOPTED.to_owned());
            child.labels_mut().extend([label]);
            child.annotations_mut().insert(key.to_owned(), word);
        });
    };
    say(&bench, "yes");
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
    assert_eq!(bench.vm().reason, Some(Reason::VmAdopted));
    say(&bench, "true");
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::AdoptionUnproven));
    assert!(bench.site.with(|i| i.effects.is_empty()));
}

/// As release 1.1.0 leaves it: notes that name the VsphereAgent, and `ownerUID`.
fn noted(bench: &Bench) {
    predecessors(bench);
    let uid = bench.child().uid().expect("a uid");
    bench.hub.with(|o| {
        let status = o.child.as_mut().and_then(|c| c.status.as_mut());
        let vm = status.and_then(|s| s.vm.as_mut()).expect("a record");
        vm.owner_uid = Some(uid.clone());
        vm.source = Some("VsphereAgent".to_owned());
    });
    bench.site.with(|i| i.vms[0].annotation = Notes::text(&uid));
}

#[tokio::test]
async fn notes_that_name_the_vsphere_agent_are_proof_wherever_its_vm_lies() {
    let mut bench = Bench::new();
    noted(&bench);
    bench.site.with(|i| {
        i.vms[0].name = "renamed".to_owned();
        i.vms[0].folder = Some(MoRef::new("Folder", "group-v7"));
    });
    bench.until(Bench::is_on).await;
    assert_eq!(bench.site.with(|i| i.effects.clone()), [E::Reconfigure]);
    assert_eq!(bench.vm().owner_uid, bench.child().uid());
}

/// A VM that release 1.1.0 refuses to delete is not ours to take either.
#[tokio::test]
async fn notes_of_another_owner_and_lost_notes_prove_nothing() {
    let other = Notes::text("0c1dbb4e-0f2b-4f0c-9d6e-3f5a5e1f7b10");
    let by_people = "ask Ann";
    for (notes, recorded, taken) in [
        (other.as_str(), true, false),
        (other.as_str(), false, false),
        ("", true, false),
        (by_people, true, false),
        ("", false, true),
        // Made by release 1.0.2, and a person has written notes since.
        (by_people, false, true),
    ] {
        let mut bench = Bench::new();
        let prepare = if recorded { noted } else { predecessors };
        prepare(&bench);
        bench.site.with(|i| i.vms[0].annotation = notes.to_owned());
        for _ in 0..3 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        let what = format!("{notes:?}, ownerUID {recorded}");
        assert_eq!(
            bench.site.with(|i| i.vms[0].marker.is_some()),
            taken,
            "{what}"
        );
        if !taken {
            assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven), "{what}");
            assert!(bench.site.with(|i| i.effects.is_empty()), "{what}");
        } else if notes == by_people {
            assert_eq!(
                bench.site.with(|i| i.vms[0].annotation.clone()),
                notes,
                "kept"
            );
            assert_eq!(
                bench.vm().owner_uid,
                None,
                "so the predecessor asks for none"
            );
        }
    }
}

#[tokio::test]
async fn a_vm_that_the_predecessor_only_saw_is_never_deleted_whatever_a_person_asks() {
    let mut bench = Bench::new();
    noted(&bench);
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        for key in [
            agent_forge_crds::names::ADOPT_ANNOTATION,
            agent_forge_crds::names::FORCE_DELETE_ANNOTATION,
        ] {
            child
                .annotations_mut()
                .insert(key.to_owned(), "true".to_owned());
        }
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a record").source = Some("DiscoveredAgent".to_owned());
    });
    bench.pass().await;
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert!(bench.site.with(|i| i.effects.is_empty()));
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
}

/// Its `vm.info` failed after the create: release 1.1.0 then records the owner and no uuid.
#[tokio::test]
async fn a_vm_whose_uuid_the_predecessor_did_not_record_is_neither_made_again_nor_forgotten() {
    let mut bench = Bench::new();
    noted(&bench);
    bench.hub.with(|o| {
        let status = o.child.as_mut().and_then(|c| c.status.as_mut());
        status
            .and_then(|s| s.vm.as_mut())
            .expect("a record")
            .bios_uuid = None;
    });
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
    release(&bench);
    for _ in 0..3 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert_eq!(bench.child().finalizers(), [AGENT_FINALIZER]);
    assert!(bench.site.with(|i| i.effects.is_empty()));
}

#[tokio::test]
async fn an_ejection_that_the_predecessor_began_is_finished_whatever_becomes_of_the_vm() {
    const ISO: &str = "[isos] agent-forge/demo/w/a.iso";
    for (started, deleting) in [(true, false), (true, true), (false, false)] {
        let mut bench = Bench::new();
        noted(&bench);
        let drive = Cdrom {
            key: 3000,
            iso: Some(ISO.to_owned()),
            connected: true,
            start_connected: true,
        };
        bench.site.with(|i| i.vms[0].cdroms = vec![drive]);
        let uuid = bench.vm().bios_uuid.expect("a uuid");
        bench.hub.with(|o| {
            let child = o.child.as_mut().expect("child");
            child.status.get_or_insert_default().iso_ejection =
                Some(agent_forge_crds::agent::IsoEjection {
                    bios_uuid: uuid.clone(),
                    device_key: 3000,
                    iso_path: ISO.to_owned(),
                    disconnect_started: started,
                    ..agent_forge_crds::agent::IsoEjection::default()
                });
            if deleting {
                // Its Machine lives: the deletion is held.
                delete(child);
            }
        });
        bench
            .until(|b| b.child().status.is_some_and(|s| s.iso_ejection.is_none()))
            .await;
        bench.pass().await;
        let mut told = vec![E::Reconfigure];
        told.extend(started.then_some(E::EjectIso));
        let done = bench.site.with(|i| i.effects.clone());
        assert_eq!(done[..told.len()], told, "deleting: {deleting}");
        let empty = bench
            .site
            .with(|i| i.vms.iter().all(|v| v.cdroms.is_empty()));
        assert_eq!(
            empty, started,
            "one that was only planned is not carried out"
        );
        let status = bench.child().status.expect("a status");
        let mut ejected = status.conditions.iter();
        assert_eq!(
            ejected.any(|c| c.type_ == "ISOEjected" && c.status == "True"),
            started
        );
    }
}
