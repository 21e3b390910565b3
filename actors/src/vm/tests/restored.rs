//! A hub that was restored from a backup: a host that waited in the buffer then, and serves now.

use agent_forge_crds::{
    conditions::{STEPS_FAILED, find_condition},
    external::agent::CONNECTED,
};

use super::{
    silent::{change, registered, state},
    *,
};
use crate::domain::marker::MayServe;

/// By its record, a host of the buffer that registered and is silent. Its VM has a guest without a name, and says that.
async fn free_by_record(says: Option<MayServe>) -> Bench {
    let mut bench = registered().await;
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        testing::move_to_buffer(child);
        child.annotations_mut().clear();
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
