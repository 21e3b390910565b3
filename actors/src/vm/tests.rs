//! Whole passes of a VM actor against a cluster and a vCenter in memory. They check the effects of the steps, not which
//! step it is.

mod adopt;
mod away;
mod boot;
mod card;
mod clock;
mod disaster;
mod drift;
mod first_start;
mod held;
mod kept;
mod leaving;
mod look;
mod lost;
mod people;
mod power;
mod reassign;
mod recycle;
mod renewal;
mod restored;
mod service;
mod silent;
mod source;
mod tags;
mod take_over;
mod tasks;
mod telling;
mod trouble;
mod unseen;

use std::time::Duration;

use agent_forge_crds::{
    conditions::{Phase, Reason, event},
    external::{ForeignCondition, agent::INSTALLED},
    names::AGENT_FINALIZER,
    pool::{CleanupPolicy, CredentialsSecretRef, IsoSpec},
};
use kube::ResourceExt;

use super::{arrival, ownership::Ownership, testing::Bench};
use crate::{
    domain::{identity::BiosUuid, names::ObjectKey},
    ports::{
        cluster::ClusterErrorKind,
        effect::EffectKind as E,
        vcenter::{Cdrom, Fault, PowerState, VcErrorKind, VmObservation},
    },
    testing::{self, NAMESPACE, agent_on, claim, delete, with},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Its AgentMachine and Machine are gone.
fn release(bench: &Bench) {
    bench.hub.with(|o| {
        o.agent_machines.clear();
        o.machines.clear();
        delete(o.child.as_mut().expect("it exists"));
    });
}

async fn on() -> Bench {
    let mut bench = Bench::new();
    bench.until(Bench::is_on).await;
    bench
}

#[tokio::test]
async fn one_vm_is_made_from_intent_to_running() {
    let bench = on().await;
    let told = bench.site.with(|i| i.effects.clone());
    assert_eq!(told, [E::CreateVm, E::Reconfigure, E::PowerOn]);
    let vm = bench.vm();
    assert_eq!((vm.attempt, vm.moref.as_deref()), (Some(1), Some("vm-1")));
    assert!(vm.discovery_deadline.is_some() && vm.task_id.is_none());
    assert_eq!(bench.waits_on(), None);
}

#[tokio::test]
async fn a_full_datastore_is_left_for_another_once_nothing_is_proven_to_be_there() {
    let mut bench = Bench::new();
    bench.site.with(|i| {
        i.datastores = ["full", "roomy"].into();
        i.creates = [VcErrorKind::Fault(Fault::NoDiskSpace("full".to_owned()))].into();
    });
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::NoDiskSpace));
    let first = bench.vm();
    // The next attempt waits for the rest, and the status names that all the time.
    bench.turn(Duration::from_secs(10));
    bench.pass().await;
    assert_eq!(bench.times(E::CreateVm), 1);
    bench.turn(Duration::from_secs(10));
    let reads = bench.site.with(|i| i.reads);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::NoDiskSpace));
    bench.until(Bench::is_on).await;
    assert!(bench.site.with(|i| i.reads) >= reads + 2, "two proofs");
    let second = bench.vm();
    assert_eq!((first.attempt, second.attempt), (Some(1), Some(2)));
    assert_ne!(first.bios_uuid, second.bios_uuid);
    let place = second.placement.expect("recorded");
    assert_eq!(place.datastore.as_deref(), Some("roomy"));
    assert!(second.vm_path.is_some_and(|p| p.starts_with("[roomy] a-")));
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    assert_eq!(bench.waits_on(), None);
}

#[tokio::test]
async fn where_nothing_else_is_recommended_it_is_tried_there_again() {
    let mut bench = Bench::new();
    let full = || VcErrorKind::Fault(Fault::InsufficientResources("cpu".to_owned()));
    bench.site.with(|i| i.creates = [full(), full()].into());
    bench.until(Bench::is_on).await;
    assert_eq!(bench.times(E::CreateVm), 3);
    assert_eq!(bench.vm().attempt, Some(1));
}

#[tokio::test]
async fn a_mended_spec_moves_a_vm_that_does_not_exist_yet() {
    let mut bench = Bench::new();
    let wrong = VcErrorKind::Fault(Fault::InvalidArgument {
        property: "network".to_owned(),
    });
    bench.site.with(|i| i.creates = [wrong].into());
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::InvalidArgument));
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("pool");
        pool.spec.vsphere.network = "Other".to_owned();
        pool.metadata.generation = Some(2);
    });
    bench.until(Bench::is_on).await;
    let vm = bench.vm();
    assert_eq!(vm.attempt, Some(2));
    let place = vm.placement.expect("recorded");
    assert_eq!(place.network.as_deref(), Some("Other"));
    // A running VM is not moved.
    bench.hub.with(|o| {
        o.pool.as_mut().expect("pool").spec.vsphere.folder = Some("elsewhere".to_owned());
    });
    bench.restart();
    bench.pass().await;
    assert_eq!(bench.times(E::CreateVm), 2);
    assert_eq!(bench.vm().attempt, Some(2));
}

#[tokio::test]
async fn a_guest_id_that_vcenter_does_not_know_is_named_with_its_field() {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.guest_id = Some("rhel99_64Guest".to_owned());
    });
    let refused = |property: &str| {
        VcErrorKind::Fault(Fault::InvalidArgument {
            property: property.to_owned(),
        })
    };
    let said = |bench: &Bench| bench.status().waiting_on[0].message.clone();
    bench
        .site
        .with(|i| i.creates = [refused("configSpec.guestId")].into());
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::InvalidArgument));
    let named = "spec.vsphere.guestID: \"rhel99_64Guest\"";
    assert!(said(&bench).contains(named), "{}", said(&bench));
    // A fault that belongs to no field of the spec is reported as vCenter words it.
    let mut bench = Bench::new();
    bench
        .site
        .with(|i| i.creates = [refused("configSpec.files")].into());
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::InvalidArgument));
    assert!(!said(&bench).contains("spec."), "{}", said(&bench));
}

#[tokio::test]
async fn a_create_whose_end_nobody_heard_is_found_not_repeated() {
    let mut bench = Bench::new();
    bench.site.with(|i| {
        i.creates = [VcErrorKind::NoAnswer].into();
        i.lost_but_done = true;
    });
    bench.until(Bench::is_on).await;
    assert_eq!(bench.times(E::CreateVm), 1);
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
}

/// When a second create is refused, the first one may still make a VM: the refusal is only about the second.
#[tokio::test]
async fn a_create_that_is_refused_does_not_make_up_for_one_that_was_lost() {
    let mut bench = Bench::new();
    let refused = || {
        VcErrorKind::Fault(Fault::NoPermission {
            object: None,
            privilege: "VirtualMachine.Inventory.Create".to_owned(),
        })
    };
    bench
        .site
        .with(|i| i.creates = [VcErrorKind::NoAnswer, refused()].into());
    bench.until(|b| b.times(E::CreateVm) == 2).await;
    assert_eq!(bench.waits_on(), Some(Reason::NoPermission));
    let reads = bench.site.with(|i| i.reads);
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    let proofs = usize::from(super::step::PROOFS_AFTER_LOST_CREATE);
    assert!(bench.site.with(|i| i.reads) >= reads + proofs);
    // If the only create was refused, nothing was made, and there is nothing to wait for.
    let mut bench = Bench::new();
    bench.site.with(|i| i.creates = [refused()].into());
    bench.until(|b| b.times(E::CreateVm) == 1).await;
    let reads = bench.site.with(|i| i.reads);
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.reads), reads);
}

#[tokio::test]
async fn a_taken_path_is_waited_out_before_another_attempt() {
    let mut bench = Bench::new();
    let taken = VcErrorKind::Fault(Fault::AlreadyExists("a.vmx".to_owned()));
    bench.site.with(|i| i.creates = [taken].into());
    bench.pass().await;
    assert!(bench.memory.path_taken && bench.times(E::CreateVm) == 1);
    for _ in 0..10 {
        bench.turn(Duration::from_secs(2));
        bench.pass().await;
    }
    assert_eq!(
        bench.times(E::CreateVm),
        1,
        "the other create may still run"
    );
    bench.until(Bench::is_on).await;
    assert_eq!(bench.vm().attempt, Some(2));
}

#[tokio::test]
async fn a_folder_that_cannot_be_seen_proves_nothing() {
    let mut bench = Bench::new();
    bench.pass().await;
    bench.site.with(|i| {
        i.vms.clear();
        i.folder_hidden = true;
    });
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        delete(child);
    });
    bench.restart();
    bench
        .until(|b| b.waits_on() == Some(Reason::FolderNotVisible))
        .await;
    let finalizers = bench.child().finalizers().to_vec();
    assert_eq!(finalizers, [AGENT_FINALIZER]);
}

#[tokio::test]
async fn recorded_credentials_that_are_refused_give_way_to_the_pools_and_only_then() {
    let mut bench = on().await;
    let recorded = ObjectKey::new(NAMESPACE, "vcenter");
    let new = ObjectKey::new(NAMESPACE, "rotated");
    bench.hub.with(|o| {
        o.pool
            .as_mut()
            .expect("pool")
            .spec
            .vsphere
            .credentials_secret_ref = CredentialsSecretRef {
            name: new.name.clone(),
            namespace: None,
        };
        delete(o.child.as_mut().expect("child"));
        o.machines.clear();
        o.agent_machines.clear();
    });
    bench.restart();
    bench.site.with(|i| {
        i.sessions_by.clear();
        i.refused_secrets = vec![recorded.clone()];
    });
    bench.until(|b| b.site.with(|i| i.vms.is_empty())).await;
    let by = bench.site.with(|i| i.sessions_by.clone());
    assert!(by.contains(&recorded) && by.contains(&new));
}

#[tokio::test]
async fn a_recorded_secret_that_admits_the_pool_no_more_gives_way_to_the_pools_own() {
    for bound in [Vec::new(), vec!["here-only".to_owned()]] {
        let mut bench = on().await;
        let own = ObjectKey::new(NAMESPACE, "vcenter");
        bench.context.settings.secret_namespaces = bound.clone();
        bench.hub.with(|o| {
            let child = o.child.as_mut().expect("child");
            let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("a VM").credentials_ref = Some(CredentialsSecretRef {
                name: "shared".to_owned(),
                namespace: Some("elsewhere".to_owned()),
            });
            delete(child);
            o.machines.clear();
            o.agent_machines.clear();
        });
        bench.restart();
        bench.site.with(|i| i.sessions_by.clear());
        bench.until(|b| b.site.with(|i| i.vms.is_empty())).await;
        let by = bench.site.with(|i| i.sessions_by.clone());
        assert!(!by.is_empty(), "{bound:?}");
        assert!(by.iter().all(|secret| *secret == own), "{bound:?}: {by:?}");
    }
}

#[tokio::test]
async fn without_its_pool_the_record_is_enough_to_take_the_vm_away() {
    for (policy, left) in [(CleanupPolicy::Delete, 0), (CleanupPolicy::Retain, 1)] {
        let mut bench = Bench::new();
        bench.hub.with(|o| {
            o.pool.as_mut().expect("pool").spec.cleanup_policy = Some(policy);
        });
        bench.until(Bench::is_on).await;
        bench.hub.with(|o| {
            o.pool = None;
            delete(o.child.as_mut().expect("child"));
        });
        bench.restart();
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        assert_eq!(bench.site.with(|i| i.vms.len()), left, "{policy:?}");
    }
}

fn born_now(bench: &Bench) -> agent_forge_crds::Time {
    agent_forge_crds::Time(bench.context.clock.wall())
}

fn bind_agent(bench: &Bench) {
    let mut agent = agent_on(&bench.child());
    let macs = bench.vm().mac_addresses;
    let interfaces = &mut agent
        .status
        .as_mut()
        .and_then(|s| s.inventory.as_mut())
        .expect("inventory")
        .interfaces;
    for interface in interfaces.iter_mut() {
        interface.mac_address = macs.first().cloned();
    }
    claim(&mut agent, &testing::agent_machine("a"));
    agent.metadata.creation_timestamp = Some(born_now(bench));
    bench.hub.with(|o| o.agents = vec![agent]);
}

#[tokio::test(start_paused = true)]
async fn an_eject_that_does_not_end_is_given_up_and_tried_again() {
    let mut bench = on().await;
    install(&bench);
    bench.site.with(|i| i.eject_hangs = true);
    let failed = bench.until(|b| b.waits_on() == Some(Reason::EjectFailed));
    tokio::time::timeout(60 * MINUTE, failed)
        .await
        .expect("a pass ends");
    assert_eq!(bench.vm().iso_ejected, None);
    bench.site.with(|i| i.eject_hangs = false);
    bench.until(|b| b.vm().iso_ejected == Some(true)).await;
    assert_eq!(bench.times(E::EjectIso), 1);
}

#[tokio::test]
async fn a_drive_that_is_empty_already_costs_no_call() {
    let mut bench = on().await;
    install(&bench);
    bench
        .site
        .with(|i| i.vms.iter_mut().for_each(|v| v.cdroms.clear()));
    bench.until(|b| b.vm().iso_ejected == Some(true)).await;
    assert_eq!(bench.times(E::EjectIso), 0);
    assert_eq!(bench.times(E::Reconfigure), 1, "the boot order at first");
}

/// A drive with a discovery ISO of the pool.
fn disc() -> Cdrom {
    let digest = "a".repeat(64);
    Cdrom {
        key: 16000,
        iso: Some(format!(
            "[isos] agent-forge/{}/{}/{digest}.iso",
            testing::NAMESPACE,
            testing::POOL
        )),
        connected: true,
        start_connected: true,
    }
}

/// Its Agent is bound and installed, and its pool wants the ISO back.
fn install(bench: &Bench) {
    bind_agent(bench);
    bench.site.with(|i| i.vms[0].cdroms = vec![disc()]);
    bench.hub.with(|o| {
        let iso = IsoSpec {
            eject_after_install: Some(true),
            ..IsoSpec::default()
        };
        o.pool.as_mut().expect("pool").spec.iso = Some(iso);
        let installed = ForeignCondition {
            type_: INSTALLED.to_owned(),
            status: "True".to_owned(),
            ..ForeignCondition::default()
        };
        let status = o.agents[0].status.as_mut().expect("status");
        status.conditions.retain(|c| c.type_ != INSTALLED);
        status.conditions.push(installed);
    });
}

fn late_agent(bench: &Bench) -> agent_forge_crds::external::agent::Agent {
    bind_agent(bench);
    let mut agent = bench.hub.with(|o| o.agents.remove(0));
    let free = testing::foreign_agent(&agent.name_any());
    let created = agent.metadata.creation_timestamp.take();
    agent.metadata = free.metadata;
    agent.metadata.creation_timestamp = created;
    agent.spec = free.spec;
    agent
}

/// Lets the deadline pass.
async fn expire(bench: &mut Bench) {
    bench.turn(Duration::from_secs(1800));
    bench.pass().await;
}

/// Nothing is lost by a change that comes too late, and people learn of a VM that is changed again and again.
#[tokio::test]
async fn a_vm_that_somebody_keeps_changing_is_reported_and_goes_on_once_that_ends() {
    let mut bench = Bench::new();
    bench.site.with(|i| i.always_changed = true);
    bench
        .until(|b| b.waits_on() == Some(Reason::ConcurrentAccess))
        .await;
    assert_eq!(bench.site.with(|i| i.refused_changes), 3);
    assert_eq!(bench.times(E::PowerOn), 0);
    bench.site.with(|i| i.always_changed = false);
    bench.until(Bench::is_on).await;
    assert_eq!(bench.waits_on(), None);
}

#[tokio::test]
async fn a_vm_without_agent_is_replaced_by_one_of_another_identity() {
    let mut bench = on().await;
    let first = bench.vm();
    bench.turn(Duration::from_secs(1799));
    bench.pass().await;
    assert_eq!(bench.times(E::PowerOff), 0, "there is a second left");
    bench.turn(Duration::from_secs(1));
    bench.until(|b| b.vm().bios_uuid.is_none()).await;
    assert!(bench.site.with(|i| i.vms.is_empty()));
    let failure = bench.status().last_failure.expect("recorded");
    assert_eq!((failure.attempt, failure.count), (Some(1), Some(1)));
    assert_eq!(failure.class.as_deref(), Some("NoGuest"));
    assert_eq!(failure.bios_uuid, first.bios_uuid);
    let said = bench
        .hub
        .with(|o| o.notices.iter().any(|n| n.reason == event::VM_GIVEN_UP));
    assert!(said);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::ReplacementResting));
    assert_eq!(bench.times(E::CreateVm), 1, "it rests first");
    bench.turn(MINUTE);
    bench.until(Bench::is_on).await;
    let second = bench.vm();
    assert_eq!(second.attempt, Some(2));
    assert_ne!(second.bios_uuid, first.bios_uuid);
    assert!(second.discovery_deadline > first.discovery_deadline);
}

#[tokio::test]
async fn after_some_replacements_a_person_decides() {
    let mut bench = on().await;
    for _ in 0..arrival::REPLACEMENTS {
        expire(&mut bench).await;
        bench.until(|b| b.vm().bios_uuid.is_none()).await;
        bench.until(Bench::is_on).await;
    }
    expire(&mut bench).await;
    assert_eq!(bench.waits_on(), Some(Reason::ReplacementsExhausted));
    for _ in 0..100 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    let made = usize::try_from(arrival::REPLACEMENTS).expect("few") + 1;
    assert_eq!(bench.times(E::CreateVm), made);
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let attempt = made.to_string();
        child.annotations_mut().insert(
            agent_forge_crds::names::REPLACE_ANNOTATION.to_owned(),
            attempt,
        );
    });
    bench.until(|b| b.times(E::CreateVm) == made + 1).await;
}

#[tokio::test]
async fn an_agent_that_only_the_api_server_shows_saves_its_vm() {
    let mut bench = on().await;
    let agent = late_agent(&bench);
    bench.hub.with(|o| o.unseen_agents = vec![agent.clone()]);
    expire(&mut bench).await;
    assert_eq!(bench.status().last_failure, None);
    bench.hub.with(|o| {
        o.unseen_agents.clear();
        o.agents = vec![agent];
    });
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    assert_eq!(bench.status().last_failure, None);
}

#[tokio::test]
async fn an_agent_that_registered_while_its_vm_went_goes_before_the_finalizer() {
    for (swapped, bound) in [(true, false), (false, false), (true, true)] {
        let mut bench = on().await;
        let uuid = BiosUuid::parse(bench.vm().bios_uuid.as_deref().expect("recorded"));
        let uuid = uuid.expect("a uuid");
        let agent = with(late_agent(&bench), |a| {
            let name = if swapped { uuid.swapped() } else { uuid };
            a.metadata.name = Some(name.to_string());
            if bound {
                claim(a, &testing::agent_machine("a"));
            }
        });
        bench.hub.with(|o| {
            o.unseen_agents = vec![agent, testing::foreign_agent("somebody")];
        });
        release(&bench);
        if bound {
            // Another process bound it, and the cache of this process does not show it yet.
            for _ in 0..20 {
                bench.turn(MINUTE);
                bench.pass().await;
            }
            assert_eq!(bench.waits_on(), Some(Reason::AgentBound));
            assert_eq!((bench.times(E::PowerOff), agents_deleted(&bench)), (0, 0));
            bench.hub.with(|o| o.unseen_agents.remove(0));
        }
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        let left = bench.hub.with(|o| o.unseen_agents.len());
        assert_eq!(left, 1, "the stranger stays, ours does not");
        assert_eq!(agents_deleted(&bench), usize::from(!bound));
    }
}

#[tokio::test]
async fn an_agent_that_registered_while_its_vm_went_goes_before_the_next_attempt() {
    let mut bench = on().await;
    let uuid = BiosUuid::parse(bench.vm().bios_uuid.as_deref().expect("recorded"));
    let agent = with(late_agent(&bench), |a| {
        a.metadata.name = uuid.map(|u| u.swapped().to_string());
    });
    bench.site.with(|i| i.power_off_fails = true);
    expire(&mut bench).await;
    assert!(bench.status().last_failure.is_some());
    bench.site.with(|i| i.power_off_fails = false);
    bench
        .hub
        .with(|o| o.unseen_agents = vec![agent, testing::foreign_agent("somebody")]);
    bench.until(|b| b.times(E::CreateVm) == 2).await;
    let left = bench.hub.with(|o| o.unseen_agents.len());
    assert_eq!(left, 1, "the stranger stays, ours does not");
    assert_eq!(agents_deleted(&bench), 1);
}

fn agents_deleted(bench: &Bench) -> usize {
    let deleted = |e: &&E| **e == E::DeleteAgent;
    bench.hub.with(|o| o.effects.iter().filter(deleted).count())
}

#[tokio::test]
async fn the_late_agent_of_a_vm_that_was_given_up_is_fenced_and_goes_with_it() {
    let mut bench = on().await;
    let agent = with(late_agent(&bench), |a| {
        a.labels_mut()
            .insert("customer".to_owned(), "example".to_owned());
        a.spec.approved = true;
    });
    bench.hub.with(|o| {
        o.fails
            .insert(E::DeleteAgent, ClusterErrorKind::Unavailable);
    });
    // The VM is given up. Before it is switched off, its Agent registers.
    bench.site.with(|i| i.power_off_fails = true);
    bench.turn(Duration::from_secs(1800));
    bench.hub.with(|o| o.agents.clear());
    bench.pass().await;
    assert!(bench.status().last_failure.is_some());
    bench.site.with(|i| i.power_off_fails = false);
    assert!(bench.site.with(|i| !i.vms.is_empty()), "it is there yet");
    bench.hub.with(|o| o.agents = vec![agent]);
    bench.until(|b| b.vm().bios_uuid.is_none()).await;
    bench.hub.with(|o| {
        let fences = o.effects.iter().filter(|e| **e == E::FenceAgent).count();
        assert_eq!(fences, 1, "{:?}", o.effects);
        assert!(o.agents.is_empty());
    });
}

#[tokio::test]
async fn a_guest_with_a_name_is_replaced_by_whoever_switched_it_on_and_by_nobody_else() {
    for restarted in [false, true] {
        let mut bench = on().await;
        bench.site.with(|i| {
            let vm = &mut i.vms[0];
            vm.tools = Some("guestToolsRunning".to_owned());
            vm.guest_address = Some("192.0.2.7".to_owned());
            vm.guest_host = Some("host-7.example".to_owned());
        });
        if restarted {
            bench.restart();
        }
        expire(&mut bench).await;
        assert_eq!(bench.times(E::PowerOff), usize::from(!restarted));
        if restarted {
            assert_eq!(bench.waits_on(), Some(Reason::AgentDiscoveryExpired));
            bench.turn(MINUTE * 600);
            bench.pass().await;
            assert_eq!(bench.times(E::PowerOff), 0);
        }
    }
}

#[tokio::test]
async fn a_deletion_that_waits_and_a_pool_that_is_missing_are_told_once() {
    let told = |bench: &Bench, reason: &str| {
        bench.hub.with(|o| {
            let of_it = o.notices.iter().filter(|n| n.reason == reason);
            of_it.map(|n| n.note.clone()).collect::<Vec<_>>()
        })
    };
    let mut bench = on().await;
    bind_agent(&bench);
    bench.hub.with(|o| delete(o.child.as_mut().expect("child")));
    for _ in 0..3 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    let deferred = told(&bench, event::AGENT_DELETE_DEFERRED);
    assert_eq!(deferred.len(), 1, "{deferred:?}");
    assert!(deferred[0].contains("serves a Machine"), "{deferred:?}");
    let mut bench = Bench::new();
    let pool = bench.hub.with(|o| o.pool.take());
    for _ in 0..3 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert_eq!(told(&bench, event::POOL_NOT_FOUND).len(), 1);
    // The problem comes again after it was over: this is a new Event.
    bench.hub.with(|o| o.pool.clone_from(&pool));
    bench.pass().await;
    bench.hub.with(|o| o.pool = None);
    bench.pass().await;
    assert_eq!(told(&bench, event::POOL_NOT_FOUND).len(), 2);
}

#[tokio::test]
async fn a_serving_vm_that_is_gone_is_said_and_never_made_anew() {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.turn(MINUTE);
    bench.pass().await;
    bench.memory.seen = Ownership::Absent { proofs: 1 };
    bench.site.with(|i| i.vms.clear());
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::VmMissing));
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.times(E::CreateVm), 1);
}

/// The actor asks about a name that is taken, and does not try to create again and again. The status does not flicker
/// meanwhile.
#[tokio::test]
async fn a_taken_name_costs_one_create_until_it_is_free() {
    let mut bench = Bench::new();
    bench.site.with(|i| {
        i.vms = vec![taken_name()];
        i.names_are_unique = true;
    });
    bench
        .until(|b| b.waits_on() == Some(Reason::NameConflict))
        .await;
    let told = bench.hub.with(|o| o.effects.len());
    for _ in 0..120 {
        bench.turn(Duration::from_secs(31));
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::NameConflict));
    }
    assert_eq!(bench.times(E::CreateVm), 1);
    assert_eq!(bench.hub.with(|o| o.effects.len()), told, "a write");
    bench.site.with(|i| i.vms.clear());
    bench.until(Bench::is_on).await;
    assert_eq!(bench.times(E::CreateVm), 2);
}

/// The actor looks again at what holds a deletion back, and notices that a person has removed it.
#[tokio::test]
async fn a_deletion_goes_on_once_somebody_has_removed_what_could_not_be_proven() {
    let mut bench = on().await;
    bench.site.with(|i| i.vms[0].marker = None);
    release(&bench);
    bench.restart();
    bench
        .until(|b| b.waits_on() == Some(Reason::OwnershipUnproven))
        .await;
    for _ in 0..10 {
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
    }
    assert_eq!((bench.times(E::PowerOff), bench.times(E::Destroy)), (0, 0));
    bench.site.with(|i| i.vms.clear());
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
}

/// The VM was given up just after its Agent was bound. Later somebody deleted the Agent.
#[tokio::test]
async fn a_vm_that_was_given_up_and_served_all_the_same_goes_with_its_machine_only() {
    let mut bench = on().await;
    bench.site.with(|i| i.power_off_fails = true);
    expire(&mut bench).await;
    assert!(bench.status().last_failure.is_some());
    bench.site.with(|i| i.power_off_fails = false);
    bind_agent(&bench);
    for _ in 0..3 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.waits_on(), Some(Reason::AgentBound));
    for restarted in [false, true] {
        if restarted {
            bench.restart();
        }
        bench.hub.with(|o| o.agents.clear());
        for _ in 0..5 {
            bench.turn(MINUTE);
            bench.pass().await;
        }
        assert_eq!(bench.waits_on(), Some(Reason::AgentBound));
        assert_eq!(bench.times(E::PowerOff), 0);
    }
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
}

/// The AgentMachine says that it has an Agent of this VM. The watch of Agents is late, and the Agent has a name of its
/// own.
#[tokio::test]
async fn an_agent_that_only_its_agent_machine_names_holds_its_vm() {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.hub.with(|o| {
        let mut agent = o.agents.remove(0);
        agent.metadata.name = Some("another-name".to_owned());
        testing::reserve(&mut o.agent_machines[0], &agent);
        o.unseen_agents = vec![agent];
        delete(o.child.as_mut().expect("it exists"));
    });
    for _ in 0..5 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.waits_on(), Some(Reason::AgentBound));
    assert_eq!(bench.times(E::PowerOff), 0);
}

/// A person who deletes a namespace may delete its Agents before its VsphereAgents. The Machines are in another
/// namespace.
#[tokio::test]
async fn a_node_whose_agent_and_record_are_deleted_runs_until_its_machine_is_gone() {
    for (restarted, recorded) in [(false, false), (false, true), (true, true)] {
        let mut bench = on().await;
        bind_agent(&bench);
        bench.pass().await;
        if recorded {
            bench.turn(Duration::from_secs(5));
            bench.pass().await;
        }
        if restarted {
            bench.restart();
        }
        bench.hub.with(|o| {
            o.agents.clear();
            delete(o.child.as_mut().expect("it exists"));
        });
        for _ in 0..5 {
            bench.pass().await;
            assert_eq!(bench.waits_on(), Some(Reason::MachineRemains));
            bench.turn(MINUTE);
        }
        assert_eq!((bench.times(E::PowerOff), bench.times(E::Destroy)), (0, 0));
        bench.hub.with(|o| {
            o.agent_machines.clear();
            o.machines.clear();
        });
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        assert_eq!(bench.site.with(|i| i.vms.len()), 0);
    }
}

/// A foreign VM with the name does not block a removal.
#[tokio::test]
async fn a_taken_name_holds_no_deletion_back() {
    let mut bench = Bench::new();
    let taken = taken_name();
    bench.site.with(|i| {
        i.vms = vec![taken.clone()];
        i.names_are_unique = true;
    });
    bench
        .until(|b| b.waits_on() == Some(Reason::NameConflict))
        .await;
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.vms.clone()), [taken]);
}

/// A foreign VM with the name that ours is to get.
fn taken_name() -> VmObservation {
    let theirs = testing::shown(&testing::child("another"), PowerState::On);
    with(theirs, |vm| {
        vm.name = "a".to_owned();
        vm.marker = None;
        vm.bios_uuid = Some(BiosUuid::derive("another", "a", 1));
    })
}
