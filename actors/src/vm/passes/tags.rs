//! Passes of a VM whose tags cannot be attached at first, or that is not there to be tagged.

use super::*;
use crate::model::names::MoRef;

#[tokio::test]
async fn a_tag_that_failed_is_attached_although_agent_and_actor_are_others_by_now() {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
    });
    bench.site.with(|i| i.tags_fail = true);
    bench.until(Bench::is_on).await;
    assert_eq!(bench.waits_on().as_deref(), Some("TaggingFailed"));
    bind_agent(&bench);
    bench.restart();
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.waits_on().as_deref(), Some("TaggingFailed"));
    // Not even a vCenter that cannot be reached in between makes it forgotten.
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
    // A host that serves and has its tags is left alone.
    bench.restart();
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.times(E::AttachTags), before + 1);
}

/// A VM whose tags are not attached yet.
async fn untagged() -> Bench {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
    });
    bench.site.with(|i| i.tags_fail = true);
    bench.until(Bench::is_on).await;
    bench.site.with(|i| i.tags_fail = false);
    bench
}

/// A vCenter that came back from its backup does not have it.
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
        tried + 2,
        "once in vain, once for the next VM"
    );
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    assert_eq!(bench.waits_on(), None);
}

/// Whoever registers it again gives it another reference, under which it has no tags.
#[tokio::test]
async fn a_serving_vm_that_was_missing_is_tagged_under_its_new_reference() {
    for restarted in [false, true] {
        let mut bench = untagged().await;
        bind_agent(&bench);
        let tried = bench.times(E::AttachTags);
        let mut vms = bench.site.with(|i| std::mem::take(&mut i.vms));
        bench
            .until(|b| b.waits_on().as_deref() == Some("VMMissing"))
            .await;
        for _ in 0..10 {
            bench.turn(MINUTE);
            bench.pass().await;
            assert_eq!(bench.waits_on().as_deref(), Some("VMMissing"));
        }
        assert_eq!(bench.times(E::AttachTags), tried + 1, "once in vain");
        if restarted {
            bench.restart();
        }
        vms[0].moref = MoRef::new("VirtualMachine", "vm-77");
        bench.site.with(|i| i.vms = vms);
        bench.until(|b| b.waits_on().is_none()).await;
        assert_eq!(bench.vm().moref.as_deref(), Some("vm-77"));
        let more = if restarted { 3 } else { 2 };
        assert_eq!(bench.times(E::AttachTags), tried + more, "{restarted}");
        assert_eq!(bench.times(E::CreateVm), 1);
    }
}
