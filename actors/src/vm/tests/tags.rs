//! Passes of a VM whose tags cannot be attached at first, or that is missing when it is to be tagged.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_crds::{WaitingOn, agent::Milestone, conditions::Reason};

use super::{tasks::until_busy, *};
use crate::domain::names::MoRef;

#[tokio::test]
async fn a_tag_that_failed_is_attached_although_agent_and_actor_are_others_by_now() {
    let mut bench = wanted();
    bench.site.with(|i| i.tags_fail = true);
    bench.until(Bench::is_on).await;
    assert_eq!(bench.waits_on(), Some(Reason::TaggingFailed));
    assert_eq!(bench.vm().tags_missing, Some(true));
    bind_agent(&bench);
    bench.restart();
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::TaggingFailed));
    // The actor remembers them even if the vCenter cannot be reached in between.
    let secret = ObjectKey::new(NAMESPACE, "vcenter");
    bench.site.with(|i| i.refused_secrets = vec![secret]);
    bench.pass().await;
    bench.restart();
    bench.site.with(|i| {
        i.refused_secrets.clear();
        i.tags_fail = false;
    });
    let before = bench.times(E::AttachTags);
    bench.pass().await;
    assert_eq!(bench.times(E::AttachTags), before + 1);
    assert_eq!(bench.waits_on(), None);
    assert_eq!(bench.vm().tags_missing, None);
    // A host that serves and has its tags is left alone.
    bench.restart();
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.times(E::AttachTags), before + 1);
}

/// A VM that is to have a tag.
fn wanted() -> Bench {
    let bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
    });
    bench
}

#[tokio::test]
async fn a_vm_has_its_tags_before_it_is_switched_on() {
    let mut bench = wanted();
    bench.until(Bench::is_on).await;
    let told = bench.site.with(|i| i.effects.clone());
    let at = |kind| told.iter().position(|e| *e == kind);
    assert!(at(E::AttachTags).is_some_and(|tags| Some(tags) < at(E::PowerOn)));
    assert_eq!(bench.times(E::AttachTags), 1);
    assert_eq!(bench.vm().tags_missing, None);
}

#[tokio::test]
async fn a_vm_is_not_switched_on_without_tags_before_that_is_recorded() {
    let mut bench = wanted();
    bench.site.with(|i| i.tags_fail = true);
    bench.hub.with(|o| {
        let unwritten = ClusterErrorKind::Unavailable;
        o.fails.insert(E::RecordObservation, unwritten)
    });
    bench.pass().await;
    assert_eq!(bench.times(E::AttachTags), 1);
    assert_eq!(bench.times(E::PowerOn), 0, "nobody would know");
    bench.until(Bench::is_on).await;
    assert_eq!(bench.vm().tags_missing, Some(true));
}

/// The actor has not seen it run, and its Agent serves by the time it looks.
#[tokio::test(start_paused = true)]
async fn tags_that_a_dead_actor_could_not_attach_are_attached_to_a_host_that_serves() {
    for fails in [false, true] {
        let mut bench = wanted();
        bench.site.with(|i| {
            i.tags_fail = fails;
            i.hangs = Some(E::PowerOn);
        });
        until_busy(&mut bench).await;
        assert_eq!(bench.times(E::AttachTags), 1);
        bench.site.with(|i| i.tags_fail = false);
        bench.site.end_task();
        bench.restart();
        bind_agent(&bench);
        bench.until(Bench::is_on).await;
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.vm().tags_missing, None);
        // The record does not say whether the tags were attached to this very VM.
        assert_eq!(bench.times(E::AttachTags), 2);
    }
}

/// If somebody registers a VM again, it gets another reference, without tags. The scan shows that, and the record was
/// correct before.
#[tokio::test]
async fn a_serving_vm_gets_its_tags_again_under_another_reference() {
    for restarted in [false, true] {
        let mut bench = wanted();
        bench.until(Bench::is_on).await;
        bind_agent(&bench);
        if restarted {
            bench.restart();
        }
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.times(E::AttachTags), 1, "it is left alone");
        bench.site.with(|i| {
            i.vms[0].moref = MoRef::new("VirtualMachine", "vm-77");
            i.tags_fail = true;
        });
        let server = bench.vm().server.expect("recorded");
        let missing_in_scan = BTreeSet::from(["vm-1".to_owned()]);
        bench
            .doubts
            .send_replace(BTreeMap::from([(server, missing_in_scan)]));
        bench.memory.seen = Ownership::NotAsked;
        bench
            .until(|b| b.waits_on() == Some(Reason::TaggingFailed))
            .await;
        assert_eq!(bench.vm().moref.as_deref(), Some("vm-77"));
        assert_eq!(bench.vm().tags_missing, Some(true));
        bench.site.with(|i| i.tags_fail = false);
        bench.restart();
        bench.until(|b| b.waits_on().is_none()).await;
        assert_eq!(bench.vm().tags_missing, None);
        assert_eq!(bench.times(E::AttachTags), 3, "{restarted}");
    }
}

/// The reference was not recorded yet when the vCenter was restored from a backup. When somebody registers the VM
/// again, its Agent serves already.
#[tokio::test(start_paused = true)]
async fn a_vm_that_was_registered_anew_before_it_was_on_record_gets_its_tags() {
    let mut bench = wanted();
    bench.site.with(|i| i.hangs = Some(E::PowerOn));
    until_busy(&mut bench).await;
    assert_eq!(bench.times(E::AttachTags), 1);
    bench.site.end_task();
    bench
        .site
        .with(|i| i.vms[0].moref = MoRef::new("VirtualMachine", "vm-77"));
    bind_agent(&bench);
    bench.memory.seen = Ownership::NotAsked;
    bench.until(Bench::is_on).await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.vm().moref.as_deref(), Some("vm-77"));
    assert_eq!(bench.times(E::AttachTags), 2);
    assert_eq!(bench.vm().tags_missing, None);
}

/// The release before recorded this only in `waitingOn`, which soon shows something else.
#[tokio::test]
async fn what_the_release_before_left_without_tags_stays_on_record_whatever_is_waited_on() {
    let mut bench = wanted();
    bench.until(Bench::is_on).await;
    bind_agent(&bench);
    let pool = bench.hub.with(|o| {
        let status = o.child.as_mut().and_then(|c| c.status.as_mut());
        let status = status.expect("a status");
        status.waiting_on = vec![WaitingOn {
            reason: Reason::TaggingFailed,
            ..WaitingOn::default()
        }];
        o.pool.take()
    });
    bench.restart();
    bench.turn(MINUTE);
    bench.pass().await;
    assert_ne!(bench.waits_on(), Some(Reason::TaggingFailed));
    assert_eq!(bench.vm().tags_missing, Some(true));
    bench.hub.with(|o| o.pool = pool);
    bench.until(|b| b.vm().tags_missing.is_none()).await;
    assert_eq!(bench.times(E::AttachTags), 2);
}

/// The cache does not show its Agent, as after an outage of the API server. The record says that it served.
#[tokio::test]
async fn a_host_that_served_is_left_alone_where_its_agent_is_not_in_view() {
    let mut bench = wanted();
    bench.until(Bench::is_on).await;
    bench.hub.with(|o| {
        let status = o.child.as_mut().and_then(|c| c.status.as_mut());
        status.expect("a status").timeline.push(Milestone {
            event: Milestone::BOUND.to_owned(),
            attempt: 1,
            ..Milestone::default()
        });
    });
    bench.restart();
    for _ in 0..3 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.times(E::AttachTags), 1);
}

/// If somebody removes the tags from the spec, none are missing.
#[tokio::test]
async fn tags_that_nobody_wants_any_more_are_not_missing() {
    let mut bench = untagged().await;
    assert_eq!(bench.vm().tags_missing, Some(true));
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("pool");
        pool.spec.vsphere.vm_tags = None;
    });
    bench.pass().await;
    assert_eq!(bench.vm().tags_missing, None);
    assert_eq!(bench.waits_on(), None);
}

/// A VM whose tags are not attached yet.
async fn untagged() -> Bench {
    let mut bench = wanted();
    bench.site.with(|i| i.tags_fail = true);
    bench.until(Bench::is_on).await;
    bench.site.with(|i| i.tags_fail = false);
    bench
}

/// A vCenter that was restored from its backup does not have it.
#[tokio::test]
async fn a_vm_that_is_not_there_to_be_tagged_is_looked_for_at_once_and_made_anew() {
    let mut bench = untagged().await;
    let tried = bench.times(E::AttachTags);
    bench.site.with(|i| i.vms.clear());
    let began = bench.context.clock.monotonic();
    bench
        .until(|b| b.vm().attempt == Some(2) && b.is_on())
        .await;
    let took = bench.context.clock.monotonic().saturating_sub(began);
    assert!(took < MINUTE, "{took:?}");
    assert_eq!(
        bench.times(E::AttachTags),
        tried + 1,
        "not where it was, but to the next VM"
    );
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    assert_eq!(bench.waits_on(), None);
}

/// A VM that is registered again gets another reference, without tags.
#[tokio::test]
async fn a_serving_vm_that_was_missing_is_tagged_under_its_new_reference() {
    for restarted in [false, true] {
        let mut bench = untagged().await;
        bind_agent(&bench);
        let tried = bench.times(E::AttachTags);
        let mut vms = bench.site.with(|i| std::mem::take(&mut i.vms));
        bench
            .until(|b| b.waits_on() == Some(Reason::VmMissing))
            .await;
        for _ in 0..10 {
            bench.turn(MINUTE);
            bench.pass().await;
            assert_eq!(bench.waits_on(), Some(Reason::VmMissing));
        }
        assert_eq!(bench.times(E::AttachTags), tried, "there is nothing");
        if restarted {
            bench.restart();
        }
        vms[0].moref = MoRef::new("VirtualMachine", "vm-77");
        bench.site.with(|i| i.vms = vms);
        bench.until(|b| b.waits_on().is_none()).await;
        assert_eq!(bench.vm().moref.as_deref(), Some("vm-77"));
        assert_eq!(bench.times(E::AttachTags), tried + 1, "{restarted}");
        assert_eq!(bench.times(E::CreateVm), 1);
    }
}

/// A VM that waits for its Agent gets the tags that the pool names now. A host that serves is left alone.
#[tokio::test]
async fn changed_tags_reach_a_vm_that_waits_for_its_agent() {
    let mut bench = wanted();
    bench.until(Bench::is_on).await;
    let change = |bench: &Bench, tag: &str| {
        bench.hub.with(|o| {
            let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
            vsphere.vm_tags = Some(vec![tag.to_owned()]);
        });
    };
    change(&bench, "urn:other");
    bench.pass().await;
    let attached = bench.site.with(|i| i.tagged.clone());
    assert_eq!(attached, [["urn:tag"], ["urn:other"]]);
    bench.pass().await;
    assert_eq!(bench.times(E::AttachTags), 2, "once");
    // Tags that cannot be attached are reported, and tried again.
    bench.site.with(|i| i.tags_fail = true);
    change(&bench, "urn:wrong");
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::TaggingFailed));
    assert_eq!(bench.vm().tags_missing, Some(true));
    bench.site.with(|i| i.tags_fail = false);
    change(&bench, "urn:right");
    bench.until(|b| b.waits_on().is_none()).await;
    bind_agent(&bench);
    let before = bench.times(E::AttachTags);
    change(&bench, "urn:later");
    for _ in 0..3 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.times(E::AttachTags), before);
}
