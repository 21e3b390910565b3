//! A VM that is kept although its record is removed: its mark says that it is left to people.

use agent_forge_crds::names::FORCE_DELETE_ANNOTATION;

use super::*;

/// A VM that `cleanupPolicy: Retain` keeps. Its pool and its record are deleted.
async fn kept() -> Bench {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        o.pool.as_mut().expect("pool").spec.cleanup_policy = Some(CleanupPolicy::Retain);
    });
    bench.until(Bench::is_on).await;
    bench.hub.with(|o| {
        o.pool = None;
        delete(o.child.as_mut().expect("child"));
    });
    bench.restart();
    bench
}

fn is_gone(bench: &Bench) -> bool {
    bench.hub.with(|o| o.child.is_none())
}

#[tokio::test]
async fn the_mark_of_a_vm_that_is_kept_is_released_before_its_record_goes() {
    let mut bench = kept().await;
    let mark = bench.site.with(|i| i.vms[0].marker.clone()).expect("ours");
    bench.until(is_gone).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    let marks = bench.site.with(|i| i.marks.clone());
    assert_eq!(marks, [format!("released/{mark}")]);
    assert_eq!(bench.times(E::PowerOff) + bench.times(E::Destroy), 0);
}

/// If the actor dies between the two, the next one finds the VM released.
#[tokio::test]
async fn a_mark_is_released_once_whatever_becomes_of_the_reply() {
    for (done, times) in [(true, 1), (false, 2)] {
        let mut bench = kept().await;
        bench
            .site
            .with(|i| i.vanishes = Some((E::Reconfigure, done)));
        bench.pass().await;
        bench.restart();
        bench.until(is_gone).await;
        assert_eq!(bench.site.with(|i| i.marks.len()), times, "{done}");
    }
}

#[tokio::test]
async fn without_its_vcenter_a_record_stays_unless_a_person_forces_it() {
    let mut bench = kept().await;
    let secret = ObjectKey::new(NAMESPACE, "vcenter");
    bench.site.with(|i| i.refused_secrets = vec![secret]);
    for _ in 0..3 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert!(!is_gone(&bench) && bench.waits_on().is_some());
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let forced = (FORCE_DELETE_ANNOTATION.to_owned(), "true".to_owned());
        child.annotations_mut().extend([forced]);
    });
    bench.until(is_gone).await;
    assert_eq!(bench.site.with(|i| i.marks.len()), 0);
}
