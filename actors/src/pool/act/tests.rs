//! What live reads hold back.

mod side_by_side;

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{Failure, VsphereAgent},
    conditions::Reason,
    external::agent::Agent,
    names::{DELETE_CHECK_PREFIX, NODE_POOL_ROLE_LABEL, PAUSED_ANNOTATION},
    pool::CredentialsSecretRef,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    domain::{
        identity::BiosUuid, managed_vm::ManagedVm, marker::MayServe, names::ObjectKey,
        upstream::MachineFacts,
    },
    lifecycle::ReleaseReason,
    pool::{outcome::HELD, plan},
    ports::{
        cluster::AgentPatch,
        effect::EffectKind,
        vcenter::{PowerState, VmObservation},
    },
    testing::{self, NAMESPACE, World, approval, child_with_vm},
    vm::testing::Bench,
};

/// One planned preparation. `live` changes the VsphereAgent and the Agent that the API server has.
async fn prepared(live: impl FnOnce(&mut VsphereAgent, &mut Agent)) -> (usize, Option<Duration>) {
    let bench = Bench::new();
    let world = World::discovered("a");
    let agent = &world.agents[0];
    let prepare = Action::Prepare {
        patch: approval(agent),
        child: ManagedVm::read(Arc::new(child_with_vm("a"))),
    };
    let (mut child, mut agent) = (child_with_vm("a"), agent.clone());
    live(&mut child, &mut agent);
    bench.hub.with(|o| {
        o.agents.push(agent);
        o.child = Some(child_with_vm("a"));
        o.unseen_child = Some(child);
    });
    let observed = world.observed();
    let mut memory = Memory::default();
    let acted = perform_all(&bench.context, &observed, &[prepare], &mut memory).await;
    assert!(acted.result.is_ok());
    let effects = bench.hub.with(|o| o.effects.clone());
    let prepared = effects.iter().filter(|e| **e == EffectKind::PrepareAgent);
    (prepared.count(), acted.again)
}

#[tokio::test]
async fn an_agent_is_prepared_for_a_vsphere_agent_that_still_wants_it() {
    assert_eq!(prepared(|_, _| {}).await, (1, None));
    let given_up = prepared(|child, _| {
        let status = child.status.as_mut().expect("recorded");
        status.last_failure = Some(Failure {
            attempt: Some(1),
            ..Failure::default()
        });
    });
    assert_eq!(given_up.await, (0, Some(HELD)));
    let going = prepared(|child, _| {
        child.metadata.deletion_timestamp = Some(Time(testing::at(0)));
    });
    assert_eq!(going.await, (0, Some(HELD)));
    let next_attempt = prepared(|child, _| {
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("recorded").bios_uuid = Some(BiosUuid::derive("c", "u", 2).to_string());
    });
    assert_eq!(next_attempt.await, (0, Some(HELD)));
    let another = prepared(|child, _| child.metadata.uid = Some("another".to_owned()));
    assert_eq!(another.await, (0, Some(HELD)));
    let newer = prepared(|_, agent| agent.metadata.resource_version = Some("2".to_owned()));
    assert_eq!(newer.await, (0, Some(HELD)));
}

/// Plans the fences of two Agents while the cache shows their Machines leaving. `live` changes the Machines at the API
/// server. Returns how many fences were done, how often Machines were listed, and the reasons.
async fn fenced(bind: bool, live: impl Fn(&mut MachineFacts)) -> (usize, usize, Vec<Reason>) {
    let bench = Bench::new();
    let mut world = World::waiting(&["a", "b"]);
    for name in ["a", "b"] {
        let child = child_with_vm(name);
        let mut agent = testing::agent_on(&child);
        let labels = agent.labels_mut();
        labels.insert(NODE_POOL_ROLE_LABEL.to_owned(), "worker".to_owned());
        if bind {
            testing::claim(&mut agent, &testing::agent_machine(name));
        }
        world.agents.push(agent);
        world.children.push(child);
    }
    bench.hub.with(|o| {
        o.agents.clone_from(&world.agents);
        o.agent_machines.clone_from(&world.agent_machines);
        o.machines.clone_from(&world.machines);
        o.machines.iter_mut().for_each(&live);
    });
    for machine in &mut world.machines {
        machine.deleting = true;
    }
    let observed = world.observed();
    let fences: Vec<Action> = plan::plan(&observed)
        .actions
        .into_iter()
        .filter(|a| matches!(a, Action::Fence { .. }))
        .collect();
    assert_eq!(fences.len(), 2);
    let mut memory = Memory::default();
    let acted = perform_all(&bench.context, &observed, &fences, &mut memory).await;
    assert!(acted.result.is_ok());
    let (effects, lists) = bench.hub.with(|o| (o.effects.clone(), o.machine_lists));
    let fenced = effects.iter().filter(|e| **e == EffectKind::FenceAgent);
    let said = acted.held.iter().map(|w| w.reason.clone()).collect();
    (fenced.count(), lists, said)
}

#[tokio::test]
async fn an_agent_that_serves_is_fenced_when_its_machine_goes_live_and_not_before() {
    let leaves = |m: &mut MachineFacts| m.deleting = true;
    assert_eq!(fenced(true, leaves).await, (2, 1, vec![]));
    let unknown = Reason::MachineStateUnknown;
    assert_eq!(fenced(true, |_| {}).await, (0, 1, vec![unknown; 2]));
    // No Agent serves, so the state of its Machine does not matter.
    assert_eq!(fenced(false, |_| {}).await, (2, 0, vec![]));
}

/// The class of OSAC goes from a host that serves as well: no Machine leaves it for that. With anything else it waits.
#[tokio::test]
async fn only_the_class_of_osac_is_taken_off_a_host_whose_machine_stays() {
    for more in [false, true] {
        let (bench, world) = (Bench::new(), World::discovered("a"));
        let mut agent = world.agents[0].clone();
        testing::claim(&mut agent, &world.agent_machines[0]);
        let class = ("osac.openshift.io/resource_class", "large");
        agent.labels_mut().extend(testing::labels(&[class]));
        let mut patch = AgentPatch::of(&agent);
        patch.labels.insert(class.0.to_owned(), None);
        if more {
            patch.labels.insert("customer".to_owned(), None);
        }
        bench.hub.with(|o| {
            o.agents.push(agent);
            o.agent_machines.clone_from(&world.agent_machines);
            o.machines.clone_from(&world.machines);
        });
        let child = ManagedVm::read(Arc::new(child_with_vm("a")));
        let fence = Action::Fence { patch, child };
        let (s, mut memory) = (world.observed(), Memory::default());
        let acted = perform_all(&bench.context, &s, &[fence], &mut memory).await;
        assert!(acted.result.is_ok());
        let left = bench.hub.with(|o| o.agents[0].labels().clone());
        assert_eq!(left.contains_key(class.0), more);
    }
}

/// A pool that is paused, in a dry run, or in a namespace of which a part is unknown, reports each planned action, and sends
/// nothing.
#[tokio::test]
async fn a_stopped_pool_plans_and_changes_nothing() {
    let world = World::waiting(&["a"]);
    for stopped in [
        Some(Reason::Paused),
        Some(Reason::DryRun),
        Some(Reason::NamespaceTooLarge),
        None,
    ] {
        let bench = Bench::new();
        bench.hub.with(|o| {
            o.child = None;
            let over = (stopped == Some(Reason::NamespaceTooLarge)).then(|| NAMESPACE.to_owned());
            o.over_bound = over.into_iter().collect();
            let pool = o.pool.as_mut().expect("a pool");
            let paused = stopped == Some(Reason::Paused);
            let annotation = (PAUSED_ANNOTATION.to_owned(), paused.to_string());
            pool.annotations_mut().extend([annotation]);
            pool.spec.dry_run = Some(stopped == Some(Reason::DryRun));
        });
        let observed = world.observed();
        let plan = plan::plan(&observed);
        let create = |a: &Action| matches!(a, Action::CreateChild { .. });
        assert!(plan.actions.iter().any(create), "it is planned");
        let mut memory = Memory::default();
        let acted = perform_all(&bench.context, &observed, &plan.actions, &mut memory).await;
        assert!(acted.result.is_ok());
        let said: Vec<_> = acted.held.iter().map(|w| w.reason.clone()).collect();
        let effects = bench.hub.with(|o| o.effects.len());
        let nothing = stopped.is_some();
        assert_eq!((acted.created == 0, effects == 0), (nothing, nothing));
        assert!(said.iter().all(|r| Some(r) == stopped.as_ref()), "{said:?}");
        assert_eq!(said.is_empty(), !nothing);
    }
}

/// A veto of one VM holds the release of that one alone.
#[tokio::test]
async fn a_veto_holds_one_release() {
    let bench = Bench::new();
    let mut kept = child_with_vm("a");
    let veto = (format!("{DELETE_CHECK_PREFIX}audit"), "open".to_owned());
    kept.annotations_mut().extend([veto]);
    bench.hub.with(|o| {
        o.child = Some(kept.clone());
        o.others = vec![child_with_vm("b")];
    });
    let release = |child| Action::Release {
        child: ManagedVm::read(Arc::new(child)),
        why: ReleaseReason::Surplus,
    };
    let world = World::waiting(&[]);
    let observed = world.observed();
    let actions = [release(kept), release(child_with_vm("b"))];
    let mut memory = Memory::default();
    let acted = perform_all(&bench.context, &observed, &actions, &mut memory).await;
    let vetoed: Vec<_> = acted
        .held
        .iter()
        .filter(|w| w.reason == Reason::Vetoed)
        .map(|w| w.subject.as_str())
        .collect();
    assert_eq!(vetoed, ["a"]);
}

/// The API server accepted a pause of the pool, or a veto, and the watch hangs. Each write that ends a use waits. All of them
/// share the reads of what can pause the pool.
#[tokio::test]
async fn a_hold_on_the_pool_that_no_cache_shows_holds_each_end() {
    for (key, reason) in [
        (PAUSED_ANNOTATION.to_owned(), Some(Reason::Paused)),
        (format!("{DELETE_CHECK_PREFIX}audit"), Some(Reason::Vetoed)),
        ("nothing".to_owned(), None),
    ] {
        let bench = Bench::new();
        bench.hub.with(|o| {
            o.child = Some(child_with_vm("a"));
            o.others = vec![child_with_vm("b")];
            o.unseen_pool = o.pool.clone();
            let pool = o.unseen_pool.as_mut().expect("a pool");
            pool.annotations_mut().extend([(key, "true".to_owned())]);
        });
        let of = |name| ManagedVm::read(Arc::new(child_with_vm(name)));
        let why = ReleaseReason::Surplus;
        let release = |name| Action::Release {
            child: of(name),
            why,
        };
        let move_it = Action::MoveToBuffer {
            child: of("a"),
            why,
        };
        let world = World::waiting(&[]);
        let observed = world.observed();
        let actions = [release("b"), move_it, release("a")];
        let mut memory = Memory::default();
        let acted = perform_all(&bench.context, &observed, &actions, &mut memory).await;
        let effects = bench.hub.with(|o| o.effects.clone());
        let ended = effects.iter().filter(|e| **e == EffectKind::DeleteChild);
        let said: Vec<_> = acted.held.iter().map(|w| w.reason.clone()).collect();
        match reason {
            Some(reason) => {
                assert_eq!(ended.count(), 0, "{reason}");
                assert!(said.contains(&reason), "{said:?}");
            }
            None => assert!(!effects.is_empty()),
        }
        let reads = bench.hub.with(|o| o.reads.clone());
        let pools = reads.iter().filter(|read| **read == "pool");
        assert_eq!(pools.count(), 1, "{reads:?}");
    }
}

/// A VM whose Machine is gone, as the cache shows it. `live` changes the Agent that the API server has. Returns how often the
/// VsphereAgent was changed or deleted, and why not.
async fn released(
    action: &Action,
    live: impl FnOnce(&mut Agent),
    machines: &[&str],
) -> (usize, Vec<Reason>) {
    let bench = Bench::new();
    let child = child_with_vm("a");
    let agent = testing::agent_on(&child);
    let mut world = World::waiting(&[]);
    world.agents.push(agent.clone());
    world.children.push(child.clone());
    bench.hub.with(|o| {
        o.agents.push(testing::with(agent, live));
        o.child = Some(child);
        o.machines = machines.iter().map(|name| testing::machine(name)).collect();
        o.agent_machines = machines
            .iter()
            .map(|name| testing::agent_machine(name))
            .collect();
    });
    let observed = world.observed();
    let mut memory = Memory::default();
    let acted = perform_all(
        &bench.context,
        &observed,
        std::slice::from_ref(action),
        &mut memory,
    )
    .await;
    assert!(acted.result.is_ok());
    let said = acted.held.iter().map(|w| w.reason.clone()).collect();
    (bench.hub.with(|o| o.effects.len()), said)
}

#[tokio::test]
async fn what_the_cache_shows_as_free_is_read_again() {
    let child = ManagedVm::read(Arc::new(child_with_vm("a")));
    let why = ReleaseReason::MachineGone;
    let actions = [
        Action::MoveToBuffer {
            child: child.clone(),
            why,
        },
        Action::Recycle {
            child: child.clone(),
            life: None,
        },
        Action::Release { child, why },
    ];
    for action in actions {
        assert_eq!(released(&action, |_| {}, &[]).await, (1, vec![]));
        let bound = |agent: &mut Agent| testing::claim(agent, &testing::agent_machine("a"));
        let held = (0, vec![Reason::AgentBound]);
        assert_eq!(released(&action, bound, &[]).await, held);
        let approved = |agent: &mut Agent| {
            agent.spec.approved = true;
            let label = (NODE_POOL_ROLE_LABEL.to_owned(), "worker".to_owned());
            agent.labels_mut().extend([label]);
        };
        let held = (0, vec![Reason::AgentNotFenced]);
        assert_eq!(released(&action, approved, &[]).await, held);
        let held = (0, vec![Reason::MachineStateUnknown]);
        assert_eq!(released(&action, |_| {}, &["a"]).await, held);
    }
}

/// After a restore of the hub a record may be older than its VM. Its deletion could not be taken back.
#[tokio::test]
async fn a_record_that_is_older_than_its_vm_is_not_deleted() {
    use ReleaseReason::{PoolDeleting, Surplus};
    let outdated = || vec![Reason::RecordOutdated];
    for (machine, why, deleted, said) in [
        (None, Surplus, 1, vec![]),
        (Some("am-lost"), Surplus, 0, outdated()),
        (Some("am-lost"), PoolDeleting, 1, vec![]),
    ] {
        let bench = Bench::new();
        let child = testing::buffered("a");
        let vm = testing::shown(&child, PowerState::On);
        let says = MayServe {
            life: 1,
            machine: machine.map(str::to_owned),
        };
        bench.site.with(|i| {
            i.vms.push(VmObservation {
                may_serve: Some(says),
                ..vm
            });
        });
        bench.hub.with(|o| o.child = Some(child.clone()));
        let observed = World::waiting(&[]).observed();
        let child = ManagedVm::read(Arc::new(child));
        let actions = [Action::Release { child, why }];
        let mut memory = Memory::default();
        let acted = perform_all(&bench.context, &observed, &actions, &mut memory).await;
        let held: Vec<_> = acted.held.iter().map(|w| w.reason.clone()).collect();
        let effects = bench.hub.with(|o| o.effects.len());
        assert_eq!((effects, held), (deleted, said), "{machine:?} {why:?}");
    }
}

/// A VM that cannot be asked for now keeps its record, and holds up no other one.
#[tokio::test]
async fn no_record_is_deleted_while_its_vm_cannot_be_asked() {
    let bench = Bench::new();
    let secret = |name: &str| {
        Some(CredentialsSecretRef {
            name: name.to_owned(),
            namespace: None,
        })
    };
    let children = [("a", "refused"), ("b", "vcenter")].map(|(name, credentials)| {
        testing::with(testing::buffered(name), |child| {
            let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").credentials_ref = secret(credentials);
        })
    });
    bench.hub.with(|o| {
        // The record alone says which credentials the VMs have.
        o.pool = None;
        o.child = Some(children[0].clone());
        o.others = vec![children[1].clone()];
    });
    let refused = ObjectKey::new(testing::NAMESPACE, "refused");
    bench.site.with(|i| i.refused_secrets.push(refused));
    let mut world = World::waiting(&[]);
    world.pool.spec.vsphere.credentials_secret_ref = secret("refused").expect("one");
    let observed = world.observed();
    let actions = children.map(|child| Action::Release {
        child: ManagedVm::read(Arc::new(child)),
        why: ReleaseReason::Surplus,
    });
    let mut memory = Memory::default();
    let acted = perform_all(&bench.context, &observed, &actions, &mut memory).await;
    let held: Vec<_> = acted.held.iter().map(|w| w.subject.as_str()).collect();
    assert_eq!(held, ["a"]);
    assert_eq!(acted.again, Some(HELD));
    let asked = bench.site.with(|i| i.sessions_by.len());
    assert_eq!(asked, 2, "each of them was asked for");
}

/// The cache shows a VM in the making whose Machine is leaving, and another AgentMachine gets it.
#[tokio::test]
async fn a_vm_whose_agent_was_bound_meanwhile_stays_on_record() {
    let claims =
        |name: &'static str| move |a: &mut Agent| testing::claim(a, &testing::agent_machine(name));
    for (what, live, done) in [
        ("free", None, 1),
        ("it serves its own", Some("a"), 0),
        ("it serves the other one", Some("b"), 1),
    ] {
        let bench = Bench::new();
        let mut world = World::discovered("a");
        world.machines[0].deleting = true;
        let agent = world.agents[0].clone();
        bench.hub.with(|o| {
            o.child = Some(child_with_vm("a"));
            o.agents.push(match live {
                Some(name) => testing::with(agent, claims(name)),
                None => agent,
            });
        });
        let reassign = Action::Reassign {
            child: ManagedVm::read(Arc::new(child_with_vm("a"))),
            agent_machine: Arc::new(testing::agent_machine("b")),
            machine: Some(testing::machine("b")),
        };
        let observed = world.observed();
        let mut memory = Memory::default();
        let acted = perform_all(&bench.context, &observed, &[reassign], &mut memory).await;
        assert!(acted.result.is_ok());
        assert_eq!(bench.hub.with(|o| o.effects.len()), done, "{what}");
        assert_eq!(acted.held.len(), 1 - done, "{what}");
    }
}

/// The API server accepted a pause of the pool, and the watch hangs: no Agent is approved, and no host gets another AgentMachine.
#[tokio::test]
async fn a_pause_that_no_cache_shows_holds_each_promise() {
    for paused in [true, false] {
        let bench = Bench::new();
        let world = World::discovered("a");
        let child = ManagedVm::read(Arc::new(child_with_vm("a")));
        let actions = [
            Action::Prepare {
                patch: approval(&world.agents[0]),
                child: child.clone(),
            },
            Action::Reassign {
                child,
                agent_machine: Arc::new(testing::agent_machine("b")),
                machine: Some(testing::machine("b")),
            },
        ];
        bench.hub.with(|o| {
            o.agents.clone_from(&world.agents);
            o.child = Some(child_with_vm("a"));
            o.unseen_pool = o.pool.clone();
            let pool = o.unseen_pool.as_mut().expect("a pool");
            let pause = (PAUSED_ANNOTATION.to_owned(), paused.to_string());
            pool.annotations_mut().extend([pause]);
        });
        let observed = world.observed();
        let mut memory = Memory::default();
        let acted = perform_all(&bench.context, &observed, &actions, &mut memory).await;
        assert!(acted.result.is_ok());
        let said: Vec<_> = acted.held.iter().map(|w| w.reason.clone()).collect();
        let effects = bench.hub.with(|o| o.effects.clone());
        if paused {
            assert_eq!((effects, said), (vec![], vec![Reason::Paused; 2]));
        } else {
            let done = vec![EffectKind::PrepareAgent, EffectKind::ReassignChild];
            assert_eq!((effects, said), (done, vec![]));
        }
    }
}
