//! Passes of a VM that somebody switches off, that is switched on at a time, or of which single steps fail.

use agent_forge_crds::{
    Time,
    conditions::{READY, STEPS_FAILED, find_condition},
    names::{PAUSED_ANNOTATION, POWER_ON_CHECK_PREFIX},
    pool::PowerPolicy,
};
use jiff::SignedDuration;

use super::*;

/// A VM that serves, in a pool with that policy.
async fn serving(policy: PowerPolicy) -> Bench {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.power = Some(policy);
    });
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.vm().served, Some(true));
    bench
}

/// Somebody switches it off, and the scan finds that.
fn switch_off(bench: &Bench) {
    bench.site.with(|i| i.vms[0].power = PowerState::Off);
    let vm = bench.vm();
    let found = (
        vm.server.expect("a server"),
        [vm.moref.expect("a reference")].into(),
    );
    bench.doubts.send_replace([found].into());
}

fn is_off(bench: &Bench) -> bool {
    bench.site.with(|i| i.vms[0].power == PowerState::Off)
}

/// Passes for that many minutes, one each half minute.
async fn minutes(bench: &mut Bench, count: u32) {
    for _ in 0..count * 2 {
        bench.pass().await;
        bench.turn(MINUTE / 2);
    }
}

fn told(bench: &Bench, reason: &str) -> usize {
    let all = bench.hub.with(|o| o.notices.clone());
    all.iter().filter(|n| n.reason == reason).count()
}

#[tokio::test]
async fn a_vm_that_somebody_switched_off_is_reported_and_left_off() {
    let mut bench = serving(PowerPolicy::Report).await;
    let before = bench.times(E::PowerOn);
    switch_off(&bench);
    minutes(&mut bench, 10).await;
    assert_eq!(bench.waits_on(), Some(Reason::VmPoweredOff));
    assert_eq!(bench.times(E::PowerOn), before);
    assert_eq!(told(&bench, event::HOST_TROUBLE), 1);
}

#[tokio::test]
async fn it_is_switched_on_after_a_second_look_three_times_an_hour() {
    let mut bench = serving(PowerPolicy::EnsureOn).await;
    let before = bench.times(E::PowerOn);
    for time in 1..=3 {
        switch_off(&bench);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::VmPoweredOff));
        assert!(is_off(&bench), "one look is not enough");
        minutes(&mut bench, 4).await;
        assert!(!is_off(&bench), "time {time}");
        assert_eq!(bench.times(E::PowerOn), before + time);
        assert_eq!(bench.waits_on(), None);
        assert_eq!(bench.vm().switched_on_again.len(), time);
        assert_eq!(told(&bench, event::VM_SWITCHED_ON), time);
    }
    switch_off(&bench);
    minutes(&mut bench, 10).await;
    assert_eq!(bench.waits_on(), Some(Reason::PowerOnLimited));
    // The limit is on record.
    bench.restart();
    minutes(&mut bench, 10).await;
    assert_eq!(bench.waits_on(), Some(Reason::PowerOnLimited));
    assert_eq!(bench.times(E::PowerOn), before + 3);
    minutes(&mut bench, 40).await;
    assert_eq!(bench.times(E::PowerOn), before + 4);
    assert!(!is_off(&bench));
}

/// What vCenter refused was no power-on: the limit is about those that somebody undid.
#[tokio::test]
async fn a_power_on_that_vcenter_refuses_does_not_count() {
    for busy in [false, true] {
        let mut bench = serving(PowerPolicy::EnsureOn).await;
        let before = bench.times(E::PowerOn);
        switch_off(&bench);
        if busy {
            bench.site.occupy();
        } else {
            let no_host = Fault::InsufficientResources("memory".to_owned());
            bench.site.with(|i| i.power_on_refused = Some(no_host));
        }
        minutes(&mut bench, 30).await;
        let refused = bench.times(E::PowerOn) - before;
        assert!(refused > 3, "busy {busy}: {refused} tries");
        assert_eq!(bench.vm().switched_on_again, [], "busy {busy}");
        assert_ne!(bench.waits_on(), Some(Reason::PowerOnLimited), "{busy}");
        bench.site.with(|i| i.power_on_refused = None);
        bench.site.end_task();
        minutes(&mut bench, 10).await;
        assert!(!is_off(&bench), "busy {busy}");
        assert_eq!(bench.vm().switched_on_again.len(), 1, "busy {busy}");
        assert_eq!(told(&bench, event::VM_SWITCHED_ON), 1, "busy {busy}");
    }
}

/// The task of the power-on ends, and the user may not see how: it counts.
#[tokio::test]
async fn a_power_on_whose_end_is_not_seen_counts() {
    let mut bench = serving(PowerPolicy::EnsureOn).await;
    switch_off(&bench);
    bench.pass().await;
    bench.site.with(|i| i.deaf = true);
    minutes(&mut bench, 4).await;
    assert!(!is_off(&bench));
    assert_eq!(bench.vm().switched_on_again.len(), 1);
}

/// A look in between shows it running: what was seen before does not count.
#[tokio::test]
async fn two_looks_in_a_row_count() {
    let mut bench = serving(PowerPolicy::EnsureOn).await;
    let before = bench.times(E::PowerOn);
    for _ in 0..3 {
        switch_off(&bench);
        let seen = |b: &Bench| b.waits_on() == Some(Reason::VmPoweredOff);
        bench.until(seen).await;
        bench.site.with(|i| i.vms[0].power = PowerState::On);
        minutes(&mut bench, 3).await;
        assert_eq!(bench.times(E::PowerOn), before);
    }
}

#[tokio::test]
async fn a_pause_a_veto_and_the_end_of_its_machine_keep_it_off() {
    let veto = format!("{POWER_ON_CHECK_PREFIX}audit");
    for (key, reason) in [
        (PAUSED_ANNOTATION, Some(Reason::Paused)),
        (veto.as_str(), Some(Reason::Vetoed)),
        ("", None),
    ] {
        let mut bench = serving(PowerPolicy::EnsureOn).await;
        let before = bench.times(E::PowerOn);
        switch_off(&bench);
        bench.hub.with(|o| {
            if key.is_empty() {
                o.machines[0].deleting = true;
            } else {
                let child = o.child.as_mut().expect("a child");
                let annotation = (key.to_owned(), "true".to_owned());
                child.annotations_mut().extend([annotation]);
            }
        });
        minutes(&mut bench, 10).await;
        assert_eq!(bench.times(E::PowerOn), before, "{key}");
        if let Some(reason) = reason {
            assert_eq!(bench.waits_on(), Some(reason));
        }
    }
}

/// A drain may hang because of the VM: that is told as of one that serves, and ends when the VM runs again.
#[tokio::test]
async fn while_its_machine_goes_a_vm_that_does_not_run_is_told() {
    for (power, reason) in [
        (Some(PowerState::Off), Reason::VmPoweredOff),
        (Some(PowerState::Suspended), Reason::VmSuspended),
        (None, Reason::VmMissing),
    ] {
        let mut bench = serving(PowerPolicy::EnsureOn).await;
        let before = bench.times(E::PowerOn);
        bench.hub.with(|o| o.machines[0].deleting = true);
        bench.pass().await;
        assert_eq!(bench.waits_on(), None);
        switch_off(&bench);
        let vm = bench.site.with(|i| i.vms[0].clone());
        bench.site.with(|i| match power {
            Some(power) => i.vms[0].power = power,
            None => i.vms.clear(),
        });
        minutes(&mut bench, 5).await;
        assert_eq!(bench.waits_on(), Some(reason.clone()));
        let status = bench.status();
        let ready = find_condition(&status.conditions, READY).expect("Ready");
        assert_eq!(ready.status, "False");
        assert_eq!(ready.reason, reason.as_str());
        assert_eq!(bench.times(E::PowerOn), before, "it is only told");
        bench.site.with(|i| {
            i.vms = vec![VmObservation {
                power: PowerState::On,
                ..vm
            }];
        });
        minutes(&mut bench, 3).await;
        assert_eq!(bench.waits_on(), None, "{reason}");
    }
}

/// The record comes first: a process that dies in between does not switch it on more often.
#[tokio::test]
async fn nothing_is_switched_on_that_is_not_recorded() {
    let mut bench = serving(PowerPolicy::EnsureOn).await;
    let before = bench.times(E::PowerOn);
    switch_off(&bench);
    bench.pass().await;
    for _ in 0..6 {
        bench.hub.with(|o| {
            let unwritten = ClusterErrorKind::Unavailable;
            o.fails.insert(E::RecordObservation, unwritten)
        });
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.times(E::PowerOn), before);
    bench.hub.with(|o| o.fails.clear());
    minutes(&mut bench, 2).await;
    assert_eq!(bench.times(E::PowerOn), before + 1);
}

#[tokio::test]
async fn a_vm_is_made_at_once_and_switched_on_at_its_time() {
    let mut bench = Bench::new();
    let hour = SignedDuration::from_hours(1);
    let start = bench
        .context
        .clock
        .wall()
        .checked_add(hour)
        .expect("in range");
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.power_on_after = Some(Time(start));
    });
    minutes(&mut bench, 50).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    assert_eq!(bench.times(E::PowerOn), 0);
    assert_eq!(bench.waits_on(), Some(Reason::PowerOnScheduled));
    assert_eq!(bench.vm().discovery_deadline, None, "it has not begun");
    let verdict = bench.pass().await;
    let left = verdict.again.expect("it wakes");
    assert!(left <= MINUTE * 10, "{left:?}");
    bench.turn(left);
    bench.until(Bench::is_on).await;
    assert!(bench.context.clock.wall() >= start);
    let deadline = bench.vm().discovery_deadline.expect("a deadline").0;
    let half = SignedDuration::from_mins(29);
    assert!(
        deadline.duration_since(start) >= half,
        "it begins with the power"
    );
}

/// Tags that cannot be attached do not keep the ISO in its drive. Both failures are listed, and both end.
#[tokio::test(start_paused = true)]
async fn a_failed_step_stops_no_later_one_and_each_is_listed() {
    let mut bench = on().await;
    install(&bench);
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
        let vm = o
            .child
            .as_mut()
            .and_then(|c| c.status.as_mut()?.vm.as_mut());
        vm.expect("recorded").tags_missing = Some(true);
    });
    bench.site.with(|i| {
        i.tags_fail = true;
        i.eject_hangs = true;
    });
    let listed = |bench: &Bench| {
        let status = bench.status();
        let said = find_condition(&status.conditions, STEPS_FAILED);
        said.map_or_else(String::new, |c| c.message.clone())
    };
    let both = |b: &Bench| {
        let said = listed(b);
        said.contains("vm.attach_tags: ") && said.contains("vm.eject_iso: ")
    };
    bench.until(both).await;
    bench.site.with(|i| i.eject_hangs = false);
    bench.until(|b| b.vm().iso_ejected == Some(true)).await;
    bench.pass().await;
    let said = listed(&bench);
    assert!(
        said.contains("vm.attach_tags: ") && !said.contains("vm.eject_iso"),
        "{said}"
    );
    bench.site.with(|i| i.tags_fail = false);
    bench.until(|b| listed(b).is_empty()).await;
    assert_eq!(bench.vm().tags_missing, None);
}
