//! Events about what vCenter refuses or fails.

use agent_forge_crds::conditions::Reason;

use super::*;
use crate::domain::failure::Class;

/// The notes of the Events about failures of vCenter.
fn troubles(bench: &Bench) -> Vec<String> {
    let told = bench.hub.with(|o| o.notices.clone()).into_iter();
    let of_it = told.filter(|n| n.reason == event::VSPHERE_TROUBLE);
    of_it
        .map(|n| {
            assert!(n.warning && n.regarding.kind == "VsphereAgent", "{n:?}");
            n.note
        })
        .collect()
}

/// Runs passes whenever they are due, for that long.
async fn pass_for(bench: &mut Bench, long: Duration) {
    let end = bench.context.clock.monotonic() + long;
    while bench.context.clock.monotonic() < end {
        let verdict = bench.pass().await;
        let retry = verdict
            .failure
            .map(|c| crate::runtime::backoff::delay(c, 1, "a"));
        let rest = [verdict.again, retry].into_iter().flatten().min();
        bench.turn(
            rest.unwrap_or(crate::runtime::backoff::RESYNC)
                .max(MINUTE / 60),
        );
    }
}

#[tokio::test]
async fn what_vcenter_refuses_for_long_is_told_as_an_event_and_not_in_every_pass() {
    let refused = || {
        VcErrorKind::Fault(Fault::NoPermission {
            object: None,
            privilege: "VirtualMachine.Inventory.Create".to_owned(),
        })
    };
    let mut bench = Bench::new();
    let many = std::iter::repeat_with(refused).take(5000).collect();
    bench.site.with(|i| i.creates = many);
    pass_for(&mut bench, Duration::from_secs(29)).await;
    assert_eq!(troubles(&bench), [""; 0], "it may pass");
    pass_for(&mut bench, MINUTE).await;
    let told = troubles(&bench);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("NoPermission: "), "{told:?}");
    pass_for(&mut bench, MINUTE * 12).await;
    assert_eq!(troubles(&bench).len(), 1, "said once");
    pass_for(&mut bench, MINUTE * 5).await;
    assert_eq!(troubles(&bench).len(), 2, "and again after a while");
    bench.site.with(|i| i.creates.clear());
    bench.until(Bench::is_on).await;
    pass_for(&mut bench, MINUTE * 20).await;
    assert_eq!(troubles(&bench).len(), 2, "it is over");
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_cannot_be_used_and_a_busy_vm_are_told_a_vcenter_that_is_away_is_not() {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.scsi_type = Some("nonsense".to_owned());
    });
    pass_for(&mut bench, MINUTE * 2).await;
    let told = troubles(&bench);
    assert!(
        told.len() == 1 && told[0].starts_with("InvalidSpec: "),
        "{told:?}"
    );

    let mut bench = Bench::new();
    bench.site.with(|i| i.hangs = Some(E::PowerOn));
    pass_for(&mut bench, MINUTE * 20).await;
    let told = troubles(&bench);
    assert!(told.iter().any(|n| n.starts_with("VMBusy: ")), "{told:?}");
    assert!(told.len() <= 3, "{told:?}");

    let mut bench = Bench::new();
    let away = || VcErrorKind::Unreachable;
    let many = std::iter::repeat_with(away).take(5000).collect();
    bench.site.with(|i| i.creates = many);
    pass_for(&mut bench, MINUTE * 20).await;
    assert_eq!(bench.waits_on(), Some(Reason::VcenterUnreachable));
    assert_eq!(troubles(&bench), [""; 0]);
}

#[tokio::test]
async fn hardware_that_no_host_can_give_is_named_with_its_field() {
    for (property, named) in [
        ("numCPUs", "spec.template.numCPUs: \"96\""),
        ("configSpec.memoryMB", "spec.template.memoryMiB: \"65536\""),
    ] {
        let mut bench = Bench::new();
        bench.hub.with(|o| {
            let template = &mut o.pool.as_mut().expect("pool").spec.template;
            template.num_cpus = Some(96);
            template.memory_mib = Some(65536);
        });
        let refused = VcErrorKind::Fault(Fault::InvalidArgument {
            property: property.to_owned(),
        });
        bench.site.with(|i| i.creates = [refused].into());
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::InvalidArgument));
        let said = bench.status().waiting_on[0].message.clone();
        assert!(said.contains(named), "{said}");
    }
}

/// The bench's next write of that kind fails with that error.
fn fails(bench: &Bench, kind: E, error: ClusterErrorKind) {
    bench.hub.with(|o| o.fails.insert(kind, error));
}

#[tokio::test]
async fn a_status_that_could_not_be_written_is_tried_again_by_the_next_pass() {
    let mut bench = Bench::new();
    fails(&bench, E::RecordObservation, ClusterErrorKind::Unavailable);
    let verdict = bench.pass().await;
    assert_eq!(verdict.failure, Some(Class::Transient));
    assert_eq!(bench.times(E::PowerOn), 1);
    let written = |b: &Bench| b.hub.with(|o| o.effects.contains(&E::RecordObservation));
    assert!(!written(&bench), "tried again in the same pass");
    bench.pass().await;
    assert!(written(&bench) && bench.is_on());
}

/// If one status is refused, another one may be accepted and report that.
#[tokio::test]
async fn a_status_that_is_refused_for_its_content_is_told_of_at_once() {
    let mut bench = Bench::new();
    fails(&bench, E::RecordIdentity, ClusterErrorKind::Invalid);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::Invalid));
}
