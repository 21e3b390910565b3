//! The record of a VM's first start, which is compared with the age of its Agent.

use agent_forge_crds::conditions::Reason;

use super::*;

fn first(bench: &Bench) -> Option<jiff::Timestamp> {
    bench.vm().first_powered_on.map(|t| t.0)
}

#[tokio::test]
async fn the_first_start_is_told_by_the_clock_that_stamps_agents_and_stays() {
    let mut bench = Bench::new();
    bench.pass().await;
    let created = bench
        .child()
        .metadata
        .creation_timestamp
        .expect("stamped")
        .0;
    bench.turn(MINUTE);
    bench.until(Bench::is_on).await;
    bench.until(|b| b.vm().power_state.is_some()).await;
    let then = first(&bench).expect("recorded");
    let late = then.duration_since(created);
    assert!(late <= jiff::SignedDuration::from_mins(2), "{late}");
    // Somebody switches it off and on again, and another actor takes over.
    bench.turn(10 * MINUTE);
    bench.restart();
    bench.site.with(|i| i.vms[0].power = PowerState::Off);
    for _ in 0..5 {
        bench.pass().await;
    }
    assert_eq!(first(&bench), Some(then));
}

#[tokio::test]
async fn a_start_that_nobody_saw_is_no_earlier_than_the_vsphere_agent() {
    let mut bench = on().await;
    let created = bench
        .child()
        .metadata
        .creation_timestamp
        .expect("stamped")
        .0;
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        let vm = vm.expect("recorded");
        (vm.power_state, vm.discovery_deadline, vm.first_powered_on) = (None, None, None);
    });
    bench.turn(60 * MINUTE);
    bench.restart();
    bench.until(|b| b.vm().first_powered_on.is_some()).await;
    assert_eq!(
        first(&bench).map(|t| t.as_second()),
        Some(created.as_second())
    );
}

#[tokio::test]
async fn a_vm_whose_agent_was_there_before_it_ran_stays_off_until_that_is_gone() {
    let mut bench = Bench::new();
    let agent = agent_on(&testing::child_with_vm("a"));
    bench.hub.with(|o| o.agents = vec![agent]);
    bench
        .until(|b| b.waits_on() == Some(Reason::RivalAgents))
        .await;
    for _ in 0..5 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.times(E::PowerOn), 0);
    // It ran after all: somebody switched it on, or a request whose reply was lost did.
    bench.site.with(|i| i.vms[0].power = PowerState::On);
    bench.turn(MINUTE);
    bench.until(|b| b.vm().first_powered_on.is_some()).await;
}
