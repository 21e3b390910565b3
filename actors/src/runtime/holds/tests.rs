use std::sync::Arc;

use agent_forge_crds::{
    conditions::{DRY_RUN, OVERFULL, PAUSED, Reason, VETOED, find_condition},
    external::agent_machine::PAUSED_ANNOTATION as CAPI_PAUSED,
    names::{
        DELETE_CHECK_PREFIX, FORCE_DELETE_ANNOTATION, PAUSED_ANNOTATION, POWER_ON_CHECK_PREFIX,
    },
};
use kube::ResourceExt as _;

use super::*;
use crate::{
    domain::{
        holds::{Mode, Pause},
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{Pausable, PausableKind},
    },
    ports::effect::Subject,
    testing::{
        AGE, CONTROL_PLANE, NAMESPACE, POOL, agent_machine, at, child_with_vm, delete, machine,
        pool,
    },
    vm::testing::hub::{Hub, Objects},
};

fn pool_key() -> ObjectKey {
    ObjectKey::new(NAMESPACE, POOL)
}

fn vm(name: &str) -> Subject {
    Subject::Vm {
        key: ObjectKey::new(NAMESPACE, name),
        pool: Some(pool_key()),
    }
}

/// A pool with the VM `a`, and AgentMachines `a` and `b`.
fn hub(change: impl FnOnce(&mut Objects)) -> Hub {
    let hub = Hub::default();
    hub.with(|o| {
        o.pool = Some(pool(POOL));
        o.child = Some(child_with_vm("a"));
        o.agent_machines = ["a", "b"].map(agent_machine).into();
        o.machines = ["a", "b"].map(machine).into();
        o.machines_at = Some(CONTROL_PLANE.to_owned());
        change(o);
    });
    hub
}

fn annotate(object: &mut impl kube::ResourceExt, key: &str, value: &str) {
    let annotation = (key.to_owned(), value.to_owned());
    object.annotations_mut().extend([annotation]);
}

fn of_pool_mut(o: &mut Objects) -> &mut agent_forge_crds::VsphereAgentPool {
    o.pool.as_mut().expect("a pool")
}

fn child_mut(o: &mut Objects) -> &mut agent_forge_crds::VsphereAgent {
    o.child.as_mut().expect("a child")
}

fn above(o: &mut Objects, kind: PausableKind, change: impl FnOnce(&mut Pausable)) {
    let key = match kind {
        PausableKind::Cluster => ObjectKey::new(CONTROL_PLANE, "demo"),
        PausableKind::NodePool => ObjectKey::new(NAMESPACE, POOL),
        PausableKind::HostedCluster => ObjectKey::new(NAMESPACE, "demo"),
    };
    let mut found = Pausable {
        key,
        cluster: Some("demo".to_owned()),
        annotated: false,
        paused: false,
        paused_until: None,
    };
    change(&mut found);
    o.pausables.push((kind, found));
}

fn until(o: &mut Objects, kind: PausableKind, text: &str) {
    above(o, kind, |p| p.paused_until = Some(text.to_owned()));
}

/// Which effects are held: of the pool, of its VM, of the VM that it will make, of a VM without a VsphereAgent.
fn asked(hub: &Hub, now: Timestamp) -> [Option<Reason>; 4] {
    let orphan = Subject::Vm {
        key: ObjectKey::new(NAMESPACE, "lost"),
        pool: None,
    };
    let ask = |kind, subject| ask(hub, &Effect::new(kind, subject), now).map(|h| h.reason);
    [
        ask(EffectKind::Upload, Subject::Pool(pool_key())),
        ask(EffectKind::FenceAgent, vm("a")),
        ask(EffectKind::PinSelector, vm("b")),
        ask(EffectKind::Destroy, orphan),
    ]
}

/// A pool of another namespace uses the host: its maker holds it as well, and so does a namespace that takes its grant back.
#[test]
fn both_pools_and_both_namespaces_hold_a_shared_host() {
    let sources = |change: fn(&mut Objects)| -> Vec<String> {
        let hub = hub(|o| {
            let goal = child_mut(o).spec.goal.get_or_insert_default();
            goal.pool = Some(agent_forge_crds::agent::PoolKey {
                namespace: "elsewhere".to_owned(),
                name: "q".to_owned(),
            });
            let grants = [(NAMESPACE, "elsewhere"), ("elsewhere", NAMESPACE)];
            o.grants = grants.map(|(of, to)| (of.to_owned(), to.to_owned())).into();
            change(o);
        });
        let child = hub
            .child(&ObjectKey::new(NAMESPACE, "a"))
            .expect("it exists");
        let holds = of_vm(&hub, &ManagedVm::read(child));
        holds.pauses.into_iter().map(|p| p.source).collect()
    };
    assert_eq!(sources(|_| {}), [""; 0]);
    let maker = sources(|o| annotate(of_pool_mut(o), PAUSED_ANNOTATION, "true"));
    assert!(
        matches!(&maker[..], [one] if one.ends_with("demo/workers")),
        "{maker:?}"
    );
    for (gone, other) in [(NAMESPACE, "elsewhere"), ("elsewhere", NAMESPACE)] {
        let take: fn(&mut Objects) = match gone {
            NAMESPACE => |o| drop(o.grants.remove(NAMESPACE)),
            _ => |o| drop(o.grants.remove("elsewhere")),
        };
        let said = sources(take);
        let words = format!("Namespace {gone} (it admits no pools of {other} any more)");
        assert_eq!(said, [words]);
    }
}

#[test]
fn each_source_pauses_what_it_covers() {
    use PausableKind::{Cluster, HostedCluster, NodePool};
    type Change = fn(&mut Objects);
    let (all, none) = ([true; 4], [false; 4]);
    let table: [(&str, Change, [bool; 4]); 20] = [
        ("nothing", |_| {}, none),
        (
            "the pool",
            |o| annotate(of_pool_mut(o), PAUSED_ANNOTATION, "true"),
            all,
        ),
        (
            "the pool, not with true",
            |o| annotate(of_pool_mut(o), PAUSED_ANNOTATION, "yes"),
            none,
        ),
        (
            "the VsphereAgent",
            |o| annotate(child_mut(o), PAUSED_ANNOTATION, "true"),
            [false, true, false, false],
        ),
        (
            "its AgentMachine, with any value",
            |o| annotate(&mut o.agent_machines[0], CAPI_PAUSED, "false"),
            [false, true, false, false],
        ),
        (
            "the next AgentMachine",
            |o| annotate(&mut o.agent_machines[1], CAPI_PAUSED, "true"),
            [false, false, true, false],
        ),
        (
            "a namesake of its AgentMachine",
            |o| {
                annotate(&mut o.agent_machines[0], CAPI_PAUSED, "true");
                o.agent_machines[0].metadata.uid = Some("another".to_owned());
            },
            none,
        ),
        (
            "its Machine",
            |o| o.machines[0].paused = true,
            [false, true, false, false],
        ),
        (
            "the next Machine",
            |o| o.machines[1].paused = true,
            [false, false, true, false],
        ),
        (
            "the Cluster",
            |o| above(o, Cluster, |c| c.paused = true),
            all,
        ),
        (
            "the Cluster, by annotation",
            |o| above(o, Cluster, |c| c.annotated = true),
            all,
        ),
        (
            "a Cluster of another namespace",
            |o| {
                above(o, Cluster, |c| {
                    c.paused = true;
                    c.key.namespace = NAMESPACE.to_owned();
                });
            },
            none,
        ),
        ("the NodePool", |o| until(o, NodePool, "true"), all),
        (
            "the NodePool, no more",
            |o| until(o, NodePool, "false"),
            none,
        ),
        (
            "the NodePool for long",
            |o| until(o, NodePool, "2030-01-01T00:00:00Z"),
            all,
        ),
        (
            "the NodePool, until before",
            |o| until(o, NodePool, "2020-01-01T00:00:00Z"),
            none,
        ),
        (
            "a NodePool of another cluster",
            |o| {
                above(o, NodePool, |n| {
                    n.paused_until = Some("true".to_owned());
                    n.cluster = Some("other".to_owned());
                });
            },
            none,
        ),
        (
            "the HostedCluster",
            |o| until(o, HostedCluster, "true"),
            all,
        ),
        (
            "the HostedCluster, unreadable",
            |o| until(o, HostedCluster, "tomorrow"),
            none,
        ),
        (
            "an administrator of vCenter",
            |o| {
                let vm = child_mut(o).status.as_mut().and_then(|s| s.vm.as_mut());
                vm.expect("recorded").paused_in_vcenter = Some(true);
            },
            [false, true, false, false],
        ),
    ];
    for (what, change, expected) in table {
        let held = asked(&hub(change), at(AGE));
        let expected = expected.map(|held| held.then_some(Reason::Paused));
        assert_eq!(held, expected, "{what}");
    }
}

/// Whoever may create a pool could else read the pauses of another tenant in its status.
#[test]
fn a_pool_that_is_refused_learns_of_no_pause() {
    let asked = |grant: Option<&str>, change: &dyn Fn(&mut Objects)| {
        let hub = hub(|o| {
            for kind in [PausableKind::NodePool, PausableKind::HostedCluster] {
                until(o, kind, "true");
            }
            above(o, PausableKind::Cluster, |c| c.paused = true);
            o.pool.as_mut().expect("a pool").metadata.namespace = Some("tenant".to_owned());
            child_mut(o).metadata.namespace = Some("tenant".to_owned());
            let grant = grant.map(|who| (NAMESPACE.to_owned(), who.to_owned()));
            o.grants.extend(grant);
            change(o);
        });
        let child = hub
            .with(|o| o.child.clone())
            .map(Arc::new)
            .expect("a child");
        let pool = of_pool(&hub, &ObjectKey::new("tenant", POOL));
        let vm = of_vm(&hub, &ManagedVm::read(child));
        [pool, vm].map(|holds| holds.pauses.len())
    };
    assert_eq!(asked(Some("tenant"), &|_| {}), [3, 3]);
    // A VM that was made stays held.
    assert_eq!(asked(None, &|_| {}), [0, 3]);
    assert_eq!(asked(None, &|o| child_mut(o).status = None), [0, 0]);
}

#[test]
fn a_pause_holds_all_that_writes_and_nothing_else() {
    let hub = hub(|o| annotate(of_pool_mut(o), PAUSED_ANNOTATION, "true"));
    for kind in EffectKind::ALL {
        let hold = ask(&hub, &Effect::new(*kind, vm("a")), at(AGE));
        let writes = matches!(kind.nature(), Nature::Cluster | Nature::Vcenter);
        assert_eq!(hold.is_some(), writes, "{kind:?}");
        if let Some(hold) = hold {
            let holder =
                "annotation agent-forge.containeroo.ch/paused of VsphereAgentPool demo/workers";
            assert_eq!(hold.holder, holder);
            let why = format!("paused by {holder}, until a person ends that");
            assert_eq!((hold.to_string(), hold.until), (why, None));
        }
    }
    let server = Subject::Server("vc".to_owned());
    let elsewhere = Effect::new(EffectKind::DeleteFile, server);
    assert_eq!(ask(&hub, &elsewhere, at(AGE)), None);
}

#[test]
fn what_is_unknown_of_a_namespace_holds_who_depends_on_it() {
    let all = [true; 4];
    for (over, admits, held) in [
        (NAMESPACE, None, all),
        (CONTROL_PLANE, None, all),
        ("elsewhere", None, [false; 4]),
        // A VsphereAgent there may be for an AgentMachine of this pool.
        ("elsewhere", Some("elsewhere"), all),
        ("elsewhere", Some("*"), all),
        ("elsewhere", Some("others"), [false; 4]),
    ] {
        let hub = hub(|o| {
            o.over_bound = vec![over.to_owned()];
            let admits = admits.map(|who| (CONTROL_PLANE.to_owned(), who.to_owned()));
            o.grants.extend(admits);
        });
        let reason = |held: bool| held.then_some(Reason::NamespaceTooLarge);
        let asked = asked(&hub, at(AGE));
        assert_eq!(asked, held.map(reason), "{over} {admits:?}");
    }
}

#[test]
fn what_is_unknown_holds_all_that_writes_and_nobody_overrides_it() {
    let hub = hub(|o| {
        o.over_bound = vec![NAMESPACE.to_owned()];
        let child = child_mut(o);
        annotate(child, FORCE_DELETE_ANNOTATION, "true");
        delete(child);
    });
    for kind in EffectKind::ALL {
        for subject in [vm("a"), Subject::Pool(pool_key())] {
            let hold = ask(&hub, &Effect::new(*kind, subject), at(AGE));
            let writes = matches!(kind.nature(), Nature::Cluster | Nature::Vcenter);
            assert_eq!(hold.is_some(), writes, "{kind:?}");
            if let Some(hold) = hold {
                assert!(hold.why.contains(NAMESPACE), "{hold}");
            }
        }
    }
    // Neither the pool nor its VsphereAgent is in view.
    hub.with(|o| (o.pool, o.child) = (None, None));
    let held = asked(&hub, at(AGE)).map(|reason| reason == Some(Reason::NamespaceTooLarge));
    assert_eq!(held, [true; 4]);
    let known = stop(&of_pool(&hub, &pool_key()), at(AGE));
    assert_eq!(known.map(|h| h.reason), Some(Reason::NamespaceTooLarge));
}

#[test]
fn the_end_of_a_pause_is_known_and_comes_by_itself() {
    let end: Timestamp = "2030-01-01T00:00:00Z".parse().expect("a time");
    let hub = hub(|o| until(o, PausableKind::NodePool, "2030-01-01T00:00:00Z"));
    let effect = Effect::new(EffectKind::PowerOn, vm("a"));
    let hold = ask(&hub, &effect, at(AGE)).expect("held");
    assert_eq!(hold.until, Some(end));
    let why = format!("paused by spec.pausedUntil of NodePool {NAMESPACE}/{POOL}, until {end}");
    assert_eq!(hold.why, why);
    assert_eq!(ask(&hub, &effect, end), None);
}

#[test]
fn a_forced_deletion_overrides_all_pauses_but_vcenters_and_no_veto() {
    let going = |in_vcenter: bool, forced: &'static str| {
        hub(|o| {
            annotate(of_pool_mut(o), PAUSED_ANNOTATION, "true");
            let child = child_mut(o);
            annotate(child, FORCE_DELETE_ANNOTATION, forced);
            delete(child);
            let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").paused_in_vcenter = in_vcenter.then_some(true);
        })
    };
    let held = |hub: &Hub| asked(hub, at(AGE))[1].clone();
    assert_eq!(held(&going(false, "true")), None);
    assert_eq!(held(&going(false, "false")), Some(Reason::Paused));
    assert_eq!(held(&going(true, "true")), Some(Reason::Paused));
    let kept = going(false, "true");
    kept.with(|o| annotate(child_mut(o), &format!("{DELETE_CHECK_PREFIX}audit"), "why"));
    let destroy = ask(&kept, &Effect::new(EffectKind::Destroy, vm("a")), at(AGE));
    assert_eq!(destroy.map(|h| h.reason), Some(Reason::Vetoed));
    let staying = hub(|o| {
        annotate(of_pool_mut(o), PAUSED_ANNOTATION, "true");
        annotate(child_mut(o), FORCE_DELETE_ANNOTATION, "true");
    });
    assert_eq!(
        held(&staying),
        Some(Reason::Paused),
        "it is not being deleted"
    );
}

#[test]
fn vetoes_hold_what_they_name_and_all_must_go() {
    let key = |prefix: &str, holder: &str| format!("{prefix}{holder}");
    let hub = hub(|o| {
        annotate(
            child_mut(o),
            &key(DELETE_CHECK_PREFIX, "backup"),
            "copy runs",
        );
        annotate(of_pool_mut(o), &key(DELETE_CHECK_PREFIX, "audit"), "open");
        annotate(
            of_pool_mut(o),
            &key(POWER_ON_CHECK_PREFIX, "licence"),
            "none",
        );
    });
    use EffectKind as E;
    for kind in E::ALL {
        let hold = ask(&hub, &Effect::new(*kind, vm("a")), at(AGE));
        let expected = match kind {
            E::DeleteChild
            | E::PowerOff
            | E::Destroy
            | E::Renew
            | E::DeleteAgent
            | E::RemoveChildFinalizer => Some(
                "backup on VsphereAgent demo/a forbids deletion: copy runs; audit on VsphereAgentPool demo/workers forbids \
                 deletion: open",
            ),
            E::PowerOn => Some("licence on VsphereAgentPool demo/workers forbids power-on: none"),
            _ => None,
        };
        assert_eq!(hold.as_ref().map(|h| h.why.as_str()), expected, "{kind:?}");
    }
    hub.with(|o| {
        child_mut(o).annotations_mut().clear();
    });
    let left = ask(&hub, &Effect::new(E::Destroy, vm("a")), at(AGE));
    assert_eq!(left.map(|h| h.holder).as_deref(), Some("audit"));
}

#[test]
fn a_dry_run_holds_all_that_writes_and_a_silent_one_the_status_too() {
    let server = || Subject::Server("vc".to_owned());
    let object = || Subject::Object(ObjectKey::new(NAMESPACE, "a"));
    let of_pool = hub(|o| of_pool_mut(o).spec.dry_run = Some(true));
    let flag = |mode| hub(|o| o.mode = mode);
    let source = "spec.dryRun of VsphereAgentPool demo/workers";
    for (hub, source, silent, everywhere) in [
        (of_pool, source, false, false),
        (flag(Mode::DryRun), "--dry-run", false, true),
        (flag(Mode::Silent), "--dry-run", true, true),
    ] {
        for kind in EffectKind::ALL {
            let held = |subject| ask(&hub, &Effect::new(*kind, subject), at(AGE));
            let expected = match kind.nature() {
                Nature::Cluster | Nature::Vcenter => true,
                Nature::Status | Nature::Event => silent,
                Nature::Lease | Nature::Session => false,
            };
            for subject in [vm("a"), vm("b"), Subject::Pool(pool_key())] {
                let hold = held(subject);
                assert_eq!(hold.is_some(), expected, "{kind:?} {source} {silent}");
                let said = hold.map(|h| (h.reason, h.why));
                let why = format!("dry run by {source}");
                assert!(said.is_none_or(|said| said == (Reason::DryRun, why)));
            }
            for subject in [server(), object()] {
                assert_eq!(held(subject).is_some(), expected && everywhere, "{kind:?}");
            }
        }
    }
}

/// A forced deletion overrides pauses of people, and no dry run.
#[test]
fn a_forced_deletion_does_not_override_a_dry_run() {
    let hub = hub(|o| {
        of_pool_mut(o).spec.dry_run = Some(true);
        annotate(child_mut(o), FORCE_DELETE_ANNOTATION, "true");
        delete(child_mut(o));
    });
    assert_eq!(asked(&hub, at(AGE)), [(); 4].map(|()| Some(Reason::DryRun)));
}

#[test]
fn a_silent_dry_run_logs_in_although_the_predecessor_leads() {
    let barrier = crate::runtime::lease::Barrier::Held {
        lease: "a/b".to_owned(),
        holder: "predecessor".to_owned(),
    };
    let facts = |mode| Facts {
        lease: Some(LeaseFacts {
            leadership: Leadership::Barred(barrier.clone()),
            now: Duration::ZERO,
            bound: Duration::from_secs(30),
        }),
        holds: of(&hub(|o| o.mode = mode), &vm("a")),
        now: at(AGE),
    };
    let reason = |mode, kind| {
        let hold = held(&Effect::new(kind, vm("a")), &facts(mode));
        hold.map(|h| h.reason)
    };
    let barred = Some(Reason::EffectHeld);
    assert_eq!(reason(Mode::Silent, EffectKind::Login), None);
    assert_eq!(reason(Mode::DryRun, EffectKind::Login), barred);
    assert_eq!(reason(Mode::Silent, EffectKind::PoolStatus), barred);
}

#[test]
fn the_lease_comes_first_and_only_where_there_is_one() {
    let leadership = Leadership::Standby;
    let lease = LeaseFacts {
        leadership,
        now: Duration::ZERO,
        bound: Duration::from_secs(30),
    };
    let mut facts = Facts {
        lease: Some(lease),
        holds: Holds {
            pauses: vec![Pause::by("a test".to_owned())],
            ..Holds::default()
        },
        now: at(AGE),
    };
    for kind in EffectKind::ALL {
        let effect = Effect::new(*kind, Subject::Server("vc".to_owned()));
        let hold = Hold::lease("another instance leads");
        let expected = (*kind != EffectKind::Lease).then_some(hold);
        assert_eq!(held(&effect, &facts), expected, "{effect}");
    }
    facts.lease = None;
    let reason = |kind| held(&Effect::new(kind, vm("a")), &facts).map(|h| h.reason);
    assert_eq!(reason(EffectKind::Destroy), Some(Reason::Paused));
    assert_eq!(reason(EffectKind::Event), None);
}

#[test]
fn the_conditions_come_and_go() {
    let mut list = Vec::new();
    let mut holds = Holds::default();
    holds.add_paused_until("tomorrow", "NodePool a/b");
    let is = |list: &[_], type_| {
        find_condition(list, type_).map(|c| (c.status.clone(), c.reason.clone()))
    };
    let word = |status: &str, reason: Reason| Some((status.to_owned(), reason.to_string()));
    set_conditions(&mut list, &holds, None, at(AGE));
    assert_eq!(is(&list, PAUSED), word("False", Reason::PausedUntilInvalid));
    holds.add_paused_until("true", "HostedCluster a/c");
    let annotations = [(format!("{DELETE_CHECK_PREFIX}audit"), "open".to_owned())];
    let veto = crate::domain::holds::Veto::read(&annotations.into(), "VsphereAgent a/b")
        .collect::<Vec<_>>();
    holds.vetoes.extend(veto);
    set_conditions(&mut list, &holds, None, at(AGE));
    assert_eq!(is(&list, PAUSED), word("True", Reason::Paused));
    assert_eq!(is(&list, VETOED), word("True", Reason::Vetoed));
    let rehearsed = of_pool(
        &hub(|o| of_pool_mut(o).spec.dry_run = Some(true)),
        &pool_key(),
    );
    set_conditions(&mut list, &rehearsed, None, at(AGE));
    assert_eq!(is(&list, DRY_RUN), word("True", Reason::DryRun));
    let unknown = of_pool(
        &hub(|o| o.over_bound = vec![NAMESPACE.to_owned()]),
        &pool_key(),
    );
    set_conditions(&mut list, &unknown, None, at(AGE));
    assert_eq!(is(&list, OVERFULL), word("True", Reason::NamespaceTooLarge));
    set_conditions(&mut list, &Holds::default(), None, at(AGE));
    assert!(list.is_empty(), "{list:?}");
}
