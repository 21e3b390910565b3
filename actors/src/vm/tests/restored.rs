//! A hub that was restored from a backup: a host that waited in the buffer then, and serves now.

use std::sync::Arc;

use agent_forge_crds::{
    agent::{Goal, VsphereAgent},
    conditions::{STEPS_FAILED, find_condition},
    external::agent::CONNECTED,
    names::FORCE_DELETE_ANNOTATION,
};

use super::{
    held::annotate,
    recycle::released,
    silent::{change, moves_to_buffer, registered, state},
    *,
};
use crate::{
    domain::{managed_vm::ManagedVm, marker::MayServe},
    pool::act,
};

/// By its record, a host of the buffer that registered and is silent. Its VM has a guest without a name, and says that.
async fn free_by_record(says: Option<MayServe>) -> Bench {
    let mut bench = registered().await;
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        testing::move_to_buffer(child);
        child.annotations_mut().clear();
        child.spec.goal = Some(Goal::default());
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a VM").may_serve = Some(MayServe::no(1).to_string());
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
    bench.site.with(|i| i.vms[0].may_serve = says);
    change(&bench, |a| {
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
    });
    bench.restart();
    bench
}

fn lost_machine() -> Option<MayServe> {
    Some(MayServe {
        life: 1,
        machine: Some("am-lost".to_owned()),
    })
}

async fn passes(bench: &mut Bench) {
    for _ in 0..30 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
}

fn ended(bench: &Bench) -> usize {
    bench.times(E::PowerOff) + bench.times(E::Destroy) + bench.times(E::Renew)
}

#[tokio::test]
async fn a_host_that_serves_an_agent_machine_that_the_hub_forgot_is_not_given_up() {
    let mut bench = free_by_record(lost_machine()).await;
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
}

#[tokio::test]
async fn nor_does_it_go_with_its_record() {
    let mut bench = free_by_record(lost_machine()).await;
    release(&bench);
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
}

/// An older release made the VM: whether it serves is unknown.
#[tokio::test]
async fn a_silent_host_whose_vm_says_nothing_waits_for_a_person() {
    let mut bench = free_by_record(None).await;
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    assert_eq!(bench.waits_on(), Some(Reason::AgentDisconnected));
    release(&bench);
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
}

#[tokio::test]
async fn a_silent_host_that_nobody_was_offered_is_replaced() {
    let mut bench = free_by_record(Some(MayServe::no(1))).await;
    bench.until(|b| b.vm().bios_uuid.is_none()).await;
}

/// Its guest falls silent because it was switched off: that is no sign of a node.
#[tokio::test]
async fn a_host_that_was_switched_off_for_its_end_goes_although_its_agent_falls_silent() {
    let mut bench = registered().await;
    let moref = bench.site.with(|i| i.vms[0].moref.id.clone());
    let moref: &'static str = moref.leak();
    bench.site.with(|i| i.destroy_refused = Some(moref));
    release(&bench);
    bench.until(|b| b.times(E::PowerOff) == 1).await;
    change(&bench, |a| {
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
    });
    bench.site.with(|i| i.destroy_refused = None);
    bench.until(|b| b.site.with(|i| i.vms.is_empty())).await;
}

/// The caches of a running operator change back, and its Agent is free again.
#[tokio::test]
async fn what_was_seen_bound_is_not_forgotten_when_the_record_changes_back() {
    let mut bench = registered().await;
    let before = bench.child();
    bind_agent(&bench);
    bench.pass().await;
    bench.hub.with(|o| {
        let mut child = before;
        testing::move_to_buffer(&mut child);
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
        o.child = Some(child);
        o.agent_machines.clear();
        o.machines.clear();
    });
    change(&bench, |a| {
        a.spec.cluster_deployment_name = None;
        a.metadata.labels = None;
        a.metadata.annotations = None;
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
    });
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    release(&bench);
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
}

/// While the caches may mix two histories, nothing is ended, and the status says why.
#[tokio::test]
async fn nothing_ends_while_the_history_is_unclear() {
    let mut bench = on().await;
    bench.hub.with(|o| {
        o.in_doubt = true;
        o.agent_machines.clear();
        o.machines.clear();
    });
    release(&bench);
    for _ in 0..5 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    assert_eq!(bench.waits_on(), Some(Reason::HistoryUnclear));
    bench.hub.with(|o| o.in_doubt = false);
    bench.until(|b| b.site.with(|i| i.vms.is_empty())).await;
}

/// The record is of the one history, and the Agent of the other: no phase is made of both.
#[tokio::test]
async fn no_phase_is_of_two_histories() {
    let mut bench = registered().await;
    let before = bench.vm().phase;
    change(&bench, |a| claim(a, &testing::agent_machine("a")));
    bench.hub.with(|o| o.in_doubt = true);
    passes(&mut bench).await;
    assert_eq!(bench.vm().phase, before);
    bench.hub.with(|o| o.in_doubt = false);
    bench.until(|b| b.vm().phase == Some(Phase::Bound)).await;
}

#[tokio::test]
async fn a_host_of_the_buffer_is_marked_once_an_agent_machine_is_to_have_it() {
    let mut bench = registered().await;
    let claim = bench.child();
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        testing::move_to_buffer(child);
        child.annotations_mut().clear();
        child.spec.goal = Some(Goal::default());
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a VM").may_serve = Some(MayServe::no(1).to_string());
    });
    bench
        .site
        .with(|i| i.vms[0].may_serve = Some(MayServe::no(1)));
    bench.restart();
    let before = bench.times(E::Reconfigure);
    passes(&mut bench).await;
    assert_eq!(bench.times(E::Reconfigure), before, "nobody asks for it");
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        child.metadata.annotations = claim.metadata.annotations;
        child.spec = claim.spec;
        let label = claim.metadata.labels.unwrap_or_default();
        child.labels_mut().extend(
            label
                .into_iter()
                .filter(|(k, _)| k == agent_forge_crds::names::AGENT_MACHINE_LABEL),
        );
    });
    bench
        .until(|b| {
            b.vm()
                .may_serve
                .is_some_and(|says| says.starts_with("1/am-"))
        })
        .await;
    assert_eq!(bench.times(E::Reconfigure), before + 1);
    let says = bench.site.with(|i| i.vms[0].may_serve.clone());
    assert!(says.is_some_and(|mark| mark.machine.is_some()));
}

/// A host of the buffer that answers. Its VM says that it may serve an AgentMachine that the hub forgot.
async fn outdated() -> Bench {
    let bench = free_by_record(lost_machine()).await;
    change(&bench, |a| {
        state(a, "known-unbound", &[(CONNECTED, "True")]);
    });
    bench
}

/// What a look shows counts once it is on record. Until then, the VM is looked at again.
#[tokio::test]
async fn a_look_that_was_not_recorded_is_not_forgotten() {
    let mut bench = outdated().await;
    let conflict = crate::ports::cluster::ClusterErrorKind::Conflict;
    bench
        .hub
        .with(|o| o.fails.insert(E::RecordObservation, conflict));
    bench.pass().await;
    for _ in 0..3 {
        bench.turn(10 * MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
}

/// Nothing is tried any more for such a host, so nothing is said of a step that failed before that was known.
#[tokio::test]
async fn the_record_is_outdated_and_no_step_of_it_fails() {
    let mut bench = outdated().await;
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
    });
    bench.site.with(|i| i.tags_fail = true);
    passes(&mut bench).await;
    assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
    let conditions = bench.status().conditions;
    let failed = find_condition(&conditions, STEPS_FAILED);
    assert!(failed.is_none_or(|c| c.status != "True"), "{failed:?}");
}

/// The pool gives the VM to the AgentMachine of that name. The one before is gone.
fn goes_to(bench: &Bench, name: &str) {
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        let (am, machine) = (testing::agent_machine(name), testing::machine(name));
        let read = ManagedVm::read(Arc::new(child.clone()));
        let patch = act::reassignment(&read, &am, Some(&machine));
        testing::patch(child, &patch);
        o.agent_machines = vec![am];
        o.machines = vec![machine];
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
}

/// etcd is put back: the VsphereAgent is as it was, its Agent is free, no Machine is there, and another process starts.
fn put_back(bench: &mut Bench, before: VsphereAgent, connected: bool) {
    bench.hub.with(|o| {
        let mut child = before;
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
        o.child = Some(child);
        o.agent_machines.clear();
        o.machines.clear();
    });
    change(bench, |a| {
        a.spec.cluster_deployment_name = None;
        a.metadata.labels = None;
        a.metadata.annotations = None;
        let (word, value) = if connected {
            ("known-unbound", "True")
        } else {
            ("disconnected-unbound", "False")
        };
        state(a, word, &[(CONNECTED, value)]);
    });
    bench.restart();
}

/// What the VM says in vCenter.
fn shown_mark(bench: &Bench) -> Option<String> {
    let says = bench.site.with(|i| i.vms[0].may_serve.clone());
    says.map(|mark| mark.to_string())
}

/// Nobody was approved for it yet: its next AgentMachine may have it only when the VM says so.
#[tokio::test]
async fn a_vm_that_goes_to_another_agent_machine_says_so() {
    let mut bench = registered().await;
    assert_eq!(shown_mark(&bench).as_deref(), Some("1/am-a"));
    let (before, calls) = (bench.child(), bench.times(E::Reconfigure));
    goes_to(&bench, "b");
    bench
        .until(|b| b.vm().may_serve.as_deref() == Some("1/am-b"))
        .await;
    assert_eq!(shown_mark(&bench).as_deref(), Some("1/am-b"));
    passes(&mut bench).await;
    assert_eq!(bench.times(E::Reconfigure), calls + 1, "one call");
    // A backup from before shows a free host whose Machine is gone.
    for connected in [false, true] {
        put_back(&mut bench, before.clone(), connected);
        release(&bench);
        passes(&mut bench).await;
        assert_eq!(ended(&bench), 0, "{connected}: {:?}", bench.status());
        assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
    }
}

/// The guard looks at it before the change, and no other look is needed.
#[tokio::test]
async fn a_claimed_host_is_looked_at_once() {
    let mut bench = registered().await;
    passes(&mut bench).await;
    goes_to(&bench, "b");
    let looks = bench.site.with(|i| i.reads);
    bench.pass().await;
    assert_eq!(bench.vm().may_serve.as_deref(), Some("1/am-b"));
    assert_eq!(bench.site.with(|i| i.reads), looks + 1);
}

/// Its record leads to a VM with another mark, as after a restore of the hub: it is searched for, and not asked again and again.
#[tokio::test]
async fn a_claimed_host_whose_vm_is_not_ours_gets_no_call() {
    let mut bench = registered().await;
    passes(&mut bench).await;
    goes_to(&bench, "b");
    bench.site.with(|i| i.vms[0].marker = None);
    let (calls, looks) = (bench.times(E::Reconfigure), bench.site.with(|i| i.reads));
    bench.pass().await;
    assert_eq!(bench.times(E::Reconfigure), calls);
    assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
    let more = bench.site.with(|i| i.reads) - looks;
    assert!(more <= 4, "{more} looks in one pass");
}

/// The backup is from when the host waited in the buffer, after its first AgentMachine had gone.
#[tokio::test]
async fn a_host_that_came_into_the_buffer_and_serves_is_no_free_one_either() {
    let mut bench = registered().await;
    moves_to_buffer(&bench);
    bench.pass().await;
    let before = bench.child();
    goes_to(&bench, "b");
    bench
        .until(|b| b.vm().may_serve.as_deref() == Some("1/am-b"))
        .await;
    for connected in [false, true] {
        put_back(&mut bench, before.clone(), connected);
        passes(&mut bench).await;
        assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
        release(&bench);
        passes(&mut bench).await;
        assert_eq!(ended(&bench), 0, "{connected}: {:?}", bench.status());
        assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated));
    }
}

/// The provider has bound the host to another AgentMachine, and the record follows. A VM of an older release that serves is left
/// as it is.
#[tokio::test]
async fn the_mark_follows_a_binding_to_another_agent_machine() {
    for (marked, calls) in [(true, 1), (false, 0)] {
        let mut bench = registered().await;
        if !marked {
            bench.site.with(|i| i.vms[0].may_serve = None);
            bench.restart();
            change(&bench, |a| claim(a, &testing::agent_machine("a")));
            passes(&mut bench).await;
        }
        let before = bench.times(E::Reconfigure);
        change(&bench, |a| claim(a, &testing::agent_machine("b")));
        goes_to(&bench, "b");
        passes(&mut bench).await;
        assert_eq!(bench.times(E::Reconfigure), before + calls, "{marked}");
        let says = marked.then_some("1/am-b");
        assert_eq!(shown_mark(&bench).as_deref(), says);
        assert_eq!(bench.vm().may_serve.as_deref(), says);
    }
}

/// Somebody claims the host on its way into the next life. The backup is from before that, and the Agent in it answers.
#[tokio::test]
async fn a_claim_that_ended_the_way_into_another_life_is_said_by_the_vm() {
    let asked = |_: &Bench| true;
    let recorded = |b: &Bench| b.vm().recycle.is_some();
    type Reached = fn(&Bench) -> bool;
    let reached: [(&str, Reached); 2] = [("asked", asked), ("recorded", recorded)];
    for (what, reached) in reached {
        let mut bench = released(None).await;
        while !reached(&bench) {
            let memory = std::mem::take(&mut bench.memory);
            let key = ObjectKey::of(&bench.child());
            let pass = crate::vm::pass::run_at_most(1, bench.context.clone(), key, memory);
            bench.memory = pass.await.0;
        }
        let before = bench.child();
        change(&bench, |a| {
            state(a, "known-unbound", &[(CONNECTED, "True")]);
            a.spec.cluster_deployment_name = Some(Default::default());
        });
        bench
            .until(|b| b.vm().may_serve.as_deref() == Some("1/bound"))
            .await;
        assert_eq!(shown_mark(&bench).as_deref(), Some("1/bound"), "{what}");
        assert_eq!(ended(&bench), 0, "{what}");
        let serves = bench.child();
        put_back(&mut bench, before, true);
        passes(&mut bench).await;
        assert_eq!(ended(&bench), 0, "{what}: {:?}", bench.status());
        assert_eq!(bench.waits_on(), Some(Reason::RecordOutdated), "{what}");
        let said = bench.status().waiting_on[0].message.clone();
        assert!(said.contains("force-delete=true"), "{said}");
        assert!(!said.contains("/replace="), "means nothing here: {said}");
        // The hub that knows of the claim sees it end: the host goes on into its next life.
        put_back(&mut bench, serves, true);
        bench.until(|b| b.vm().generation == Some(2)).await;
    }
}

/// An older release gave the VM its present life: it says nothing of that. By the record the host is on its way into the next
/// one, and its Agent is silent.
async fn silent_on_its_way() -> Bench {
    let bench = released(None).await;
    bench.site.with(|i| {
        i.vms[0].generation = Some(2);
        i.vms[0].may_serve = None;
    });
    change(&bench, |a| {
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
    });
    bench
}

#[tokio::test]
async fn a_silent_host_whose_vm_says_nothing_gets_no_other_life() {
    let mut bench = silent_on_its_way().await;
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    assert_eq!(bench.waits_on(), Some(Reason::MachineStateUnknown));
    // Its guest answers: it is no node.
    change(&bench, |a| {
        state(a, "known-unbound", &[(CONNECTED, "True")]);
    });
    bench.until(|b| b.times(E::PowerOff) == 1).await;
    // It falls silent because it is off.
    change(&bench, |a| {
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
    });
    bench
        .until(|b| b.vm().generation == Some(3) && b.is_on())
        .await;
}

#[tokio::test]
async fn nor_does_it_go_with_its_record_unless_a_person_forces_that() {
    let mut bench = silent_on_its_way().await;
    bench.pass().await;
    assert!(bench.vm().recycle.is_some(), "{:?}", bench.status());
    release(&bench);
    passes(&mut bench).await;
    assert_eq!(ended(&bench), 0, "{:?}", bench.status());
    assert_eq!(bench.waits_on(), Some(Reason::MachineStateUnknown));
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    bench.until(|b| b.site.with(|i| i.vms.is_empty())).await;
}

/// The record says that the guest of a new life is awaited, and the deadline is over. vCenter shows no name of the guest.
#[tokio::test]
async fn a_silent_host_whose_vm_says_nothing_is_not_given_up_in_a_new_life() {
    let mut bench = released(None).await;
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    bench.site.with(|i| i.vms[0].may_serve = None);
    let before = bench.child();
    put_back(&mut bench, before, false);
    let calls = ended(&bench);
    bench.turn(31 * MINUTE);
    passes(&mut bench).await;
    assert_eq!(ended(&bench), calls, "{:?}", bench.status());
    assert_eq!(bench.status().last_failure, None);
    assert_eq!(bench.waits_on(), Some(Reason::AgentDiscoveryExpired));
}

/// As above, and the VM says that nobody was offered it in that life.
#[tokio::test]
async fn a_host_that_nobody_was_offered_in_its_new_life_is_given_up() {
    let mut bench = released(None).await;
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    let before = bench.child();
    put_back(&mut bench, before, false);
    bench.turn(31 * MINUTE);
    bench.until(|b| b.vm().attempt == Some(2)).await;
}
