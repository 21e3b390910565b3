//! A VM that was made by hand becomes the operator's: each proof, the mark, and what follows.

use agent_forge_crds::{
    conditions::Reason,
    names::{
        ADOPT_ANNOTATION, AGENT_FINALIZER, CREATED_FOR_ADOPTED, CREATED_FOR_AGENT_MACHINE,
        CREATED_FOR_LABEL, VM_NAME_ANNOTATION,
    },
    pool::SOURCE_DISCOVERED_AGENT,
};
use kube::ResourceExt;

use super::{super::testing::Bench, MINUTE, release};
use crate::{
    domain::{identity::BiosUuid, managed_vm::ManagedVm, names::MoRef},
    lifecycle::Policy,
    ports::{effect::EffectKind as E, vcenter::PowerState},
    testing::{self, agent_on, claim, delete, reserve, running, shown, with},
};

const NOTES: &str = "ask Ann before you touch this";

/// The mark with which an administrator gives a VM to the pool.
fn ours() -> String {
    format!("{}/demo/workers", testing::CLUSTER_ID)
}

/// The uuid that the hand-made VM has.
fn uuid() -> BiosUuid {
    BiosUuid::derive("made by hand", "ann", 1)
}

/// A VM that serves the AgentMachine, which the operator did not make, and a VsphereAgent that asks to adopt it.
fn by_hand() -> Bench {
    let bench = Bench::new();
    let child = bench.child();
    let shows = with(child.clone(), |c| {
        let vm = with(running(&child), |vm| {
            vm.bios_uuid = Some(uuid().to_string())
        });
        c.status.get_or_insert_default().vm = Some(vm);
    });
    bench.site.with(|i| {
        i.vms = vec![with(shown(&child, PowerState::On), |v| {
            v.name = "ann-1".to_owned();
            v.bios_uuid = Some(uuid());
            v.marker = None;
            v.may_serve = None;
            v.annotation = NOTES.to_owned();
            v.adopt = Some(ours());
        })];
    });
    bench.hub.with(|o| {
        let am = &mut o.agent_machines[0];
        let agent = with(agent_on(&shows), |agent| claim(agent, am));
        reserve(am, &agent);
        o.agents = vec![agent];
        let child = o.child.as_mut().expect("a child");
        let labels = child.labels_mut();
        labels.insert(CREATED_FOR_LABEL.to_owned(), CREATED_FOR_ADOPTED.to_owned());
        child.annotations_mut().remove(VM_NAME_ANNOTATION);
    });
    say(&bench, "true");
    bench
}

fn say(bench: &Bench, word: &str) {
    bench.hub.with(|o| {
        let annotations = o.child.as_mut().expect("a child").annotations_mut();
        annotations.insert(ADOPT_ANNOTATION.to_owned(), word.to_owned());
    });
}

fn policy(bench: &Bench) -> Policy {
    Policy::of_vm(&ManagedVm::read(bench.child().into()), None)
}

#[tokio::test]
async fn a_proven_vm_gets_our_mark_and_nothing_else_and_is_retained() {
    let mut bench = by_hand();
    bench.until(Bench::is_on).await;
    let told = bench.site.with(|i| i.effects.clone());
    assert_eq!(told, [E::Reconfigure], "only the mark");
    let notes = bench.site.with(|i| i.vms[0].annotation.clone());
    assert_eq!(notes, NOTES, "people's words stay");
    let vm = bench.vm();
    assert_eq!(vm.name, "ann-1");
    assert_eq!(vm.bios_uuid, Some(uuid().to_string()));
    assert_eq!(vm.source.as_deref(), Some(SOURCE_DISCOVERED_AGENT));
    assert_eq!((vm.attempt, vm.moref.as_deref()), (Some(1), Some("vm-a")));
    bench.pass().await;
    let phase = bench.vm().phase;
    assert_eq!(phase, Some(agent_forge_crds::conditions::Phase::Bound));
    assert!(policy(&bench).leaves_to_people());
    // Its Machine goes, and somebody deletes the record: VM and Agent stay.
    bench.hub.with(|o| {
        let agent = &mut o.agents[0];
        agent.labels_mut().clear();
        agent.spec.cluster_deployment_name = None;
    });
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    let told = bench.site.with(|i| i.effects.clone());
    assert_eq!(
        told,
        [E::Reconfigure, E::Reconfigure],
        "the mark is released"
    );
    assert!(bench.site.with(|i| i.vms[0].power == PowerState::On));
    assert_eq!(bench.hub.with(|o| o.agents.len()), 1);
}

#[tokio::test]
async fn notes_that_are_empty_stay_empty() {
    let mut bench = by_hand();
    bench.site.with(|i| i.vms[0].annotation.clear());
    bench.until(Bench::is_on).await;
    assert_eq!(bench.site.with(|i| i.vms[0].annotation.clone()), "");
}

#[tokio::test]
async fn a_person_may_say_that_it_ends_as_any_other() {
    let mut bench = by_hand();
    bench.until(Bench::is_on).await;
    say(&bench, "own");
    assert_eq!(policy(&bench), Policy::Cleanup(None));
    bench.hub.with(|o| {
        let agent = &mut o.agents[0];
        agent.labels_mut().clear();
        agent.spec.cluster_deployment_name = None;
    });
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert!(bench.site.with(|i| i.vms.is_empty()), "it is destroyed");
}

/// What is missing, how it comes about, and what people are told.
type Case = (&'static str, fn(&Bench), &'static str);

const MISSING: [Case; 15] = [
    (
        "no AgentMachine",
        |b| b.hub.with(|o| o.agent_machines.clear()),
        "AgentMachine \"a\", which the VM is to serve, does not exist",
    ),
    (
        "a Machine that is going",
        |b| b.hub.with(|o| o.machines[0].deleting = true),
        "the Machine of AgentMachine a is going, gone or not known",
    ),
    (
        "no Agent",
        |b| b.hub.with(|o| o.agents.clear()),
        "AgentMachine a has no Agent",
    ),
    (
        "an Agent that is not bound",
        |b| {
            b.hub
                .with(|o| o.agents[0].spec.cluster_deployment_name = None)
        },
        "is not bound to AgentMachine a",
    ),
    (
        "bare metal",
        |b| {
            b.hub.with(|o| {
                let status = o.agents[0].status.as_mut().expect("a status");
                let inventory = status.inventory.as_mut().expect("an inventory");
                let vendor = inventory.system_vendor.as_mut().expect("a vendor");
                vendor.serial_number = Some("J7X".to_owned());
                vendor.manufacturer = Some("Dell Inc.".to_owned());
            });
        },
        "shows no serial number of a VM of VMware",
    ),
    (
        "no VM",
        |b| b.site.with(|i| i.vms.clear()),
        "no VM in vCenter has BIOS UUID",
    ),
    (
        "two VMs",
        |b| {
            b.site.with(|i| {
                let copy = with(i.vms[0].clone(), |v| {
                    v.moref = MoRef::new("VirtualMachine", "vm-c");
                });
                i.vms.push(copy);
            });
        },
        "several VMs have BIOS UUID",
    ),
    (
        "another folder",
        |b| {
            b.site
                .with(|i| i.vms[0].folder = Some(MoRef::new("Folder", "group-v9")));
        },
        "VM ann-1 (vm-a) is not in the VM folder of the pool",
    ),
    (
        "another VsphereAgent's",
        |b| {
            b.site
                .with(|i| i.vms[0].marker = Some(testing::marker(&testing::child("b"), 1)));
        },
        "VM ann-1 (vm-a) has the mark agent-forge.owner of VsphereAgent demo/b",
    ),
    (
        "notes of the predecessor for another",
        |b| {
            b.site
                .with(|i| i.vms[0].annotation = crate::migration::notes::Notes::text("u-other"));
        },
        "the notes of VM ann-1 (vm-a) name another VsphereAgent",
    ),
    (
        "another network card",
        |b| b.site.with(|i| i.vms[0].macs = vec![]),
        "does not fit VM ann-1 (vm-a): not all that identifies it is there yet",
    ),
    (
        "no mark of an administrator",
        |b| b.site.with(|i| i.vms[0].adopt = None),
        "VM ann-1 (vm-a) lacks the mark of an administrator of vCenter",
    ),
    (
        "a mark for another pool",
        |b| {
            b.site
                .with(|i| i.vms[0].adopt = Some("another-hub/demo/workers".to_owned()));
        },
        "names pool \"another-hub/demo/workers\", and not",
    ),
    (
        "a namespace that does not admit the pool",
        |b| {
            b.hub.with(|o| {
                let key = agent_forge_crds::external::agent_machine::NODE_POOL_ANNOTATION;
                let annotations = o.agent_machines[0].annotations_mut();
                annotations.insert(key.to_owned(), "rival/workers".to_owned());
            });
        },
        "namespace rival",
    ),
    (
        "an AgentMachine of another NodePool",
        |b| {
            b.hub.with(|o| {
                let key = agent_forge_crds::external::agent_machine::NODE_POOL_ANNOTATION;
                let annotations = o.agent_machines[0].annotations_mut();
                annotations.insert(key.to_owned(), "clusters/other".to_owned());
            });
        },
        "AgentMachine a is not of the NodePool of this pool",
    ),
];

#[tokio::test]
async fn each_missing_proof_refuses_with_its_sentence_and_nothing_is_touched() {
    for (what, change, sentence) in MISSING {
        let mut bench = by_hand();
        change(&bench);
        for _ in 0..3 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        let status = bench.status();
        let waits = status.waiting_on.first().expect(what);
        assert_eq!(waits.reason, Reason::AdoptionUnproven, "{what}");
        assert!(
            waits.message.contains(sentence),
            "{what}: {}",
            waits.message
        );
        // Not even when it is deleted: only the record goes.
        bench
            .hub
            .with(|o| delete(o.child.as_mut().expect("a child")));
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        assert!(bench.site.with(|i| i.effects.is_empty()), "{what}");
    }
}

#[tokio::test]
async fn a_proof_that_comes_later_counts_within_a_minute() {
    let mut bench = by_hand();
    bench.site.with(|i| i.vms[0].adopt = None);
    bench
        .until(|b| b.waits_on() == Some(Reason::AdoptionUnproven))
        .await;
    let writes = bench.hub.with(|o| o.effects.len());
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.hub.with(|o| o.effects.len()), writes, "in silence");
    bench.site.with(|i| i.vms[0].adopt = Some(ours()));
    bench.turn(MINUTE);
    bench.pass().await;
    assert!(bench.is_on());
}

#[tokio::test]
async fn a_record_of_the_predecessor_is_adopted_only_with_its_own_vm() {
    for (recorded, adopted) in [(uuid(), true), (BiosUuid::derive("x", "y", 1), false)] {
        let mut bench = by_hand();
        bench.hub.with(|o| {
            let child = o.child.as_mut().expect("a child");
            child.labels_mut().remove(CREATED_FOR_LABEL);
            child.status.get_or_insert_default().vm = Some(agent_forge_crds::agent::VmStatus {
                name: "ann-1".to_owned(),
                bios_uuid: Some(recorded.to_string()),
                source: Some(SOURCE_DISCOVERED_AGENT.to_owned()),
                ..agent_forge_crds::agent::VmStatus::default()
            });
        });
        for _ in 0..3 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert_eq!(bench.site.with(|i| i.vms[0].marker.is_some()), adopted);
        assert_eq!(bench.is_on(), adopted, "{:?}", bench.waits_on());
    }
}

/// A backup without status, or a person, takes the record away. Whatever sign of the adoption is left, it is proven again.
#[tokio::test]
async fn a_lost_record_of_an_adopted_vm_is_adopted_again_and_never_removed() {
    for serves in [true, false] {
        let mut bench = by_hand();
        bench.until(Bench::is_on).await;
        bench.pass().await;
        bench.hub.with(|o| {
            let child = o.child.as_mut().expect("a child");
            child.status = None;
            // As with records of the predecessor, the label says something else.
            let label = CREATED_FOR_AGENT_MACHINE.to_owned();
            child
                .labels_mut()
                .insert(CREATED_FOR_LABEL.to_owned(), label);
            if !serves {
                o.agents.clear();
            }
        });
        bench.restart();
        for _ in 0..5 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        let again = bench.vm().bios_uuid == Some(uuid().to_string());
        assert_eq!(again, serves, "{:?}", bench.waits_on());
        let told = bench.site.with(|i| i.effects.clone());
        assert_eq!(told, [E::Reconfigure], "nothing but the first mark");
        assert!(bench.site.with(|i| i.vms[0].power == PowerState::On));
    }
}

/// Crash after each effect: the same end, one mark.
#[tokio::test]
async fn a_death_between_mark_and_record_changes_nothing() {
    for done in [false, true] {
        let mut bench = by_hand();
        bench
            .site
            .with(|i| i.vanishes = Some((E::Reconfigure, done)));
        bench.pass().await;
        bench.restart();
        bench.until(Bench::is_on).await;
        let times = bench.times(E::Reconfigure);
        assert!(times <= 2, "done: {done}");
        assert_eq!(bench.vm().bios_uuid, Some(uuid().to_string()));
        assert_eq!(bench.child().finalizers(), [AGENT_FINALIZER]);
    }
}
