//! Live news: what happens to followed VMs is told at once, over one long poll, however many there are.

use std::{collections::BTreeSet, time::Instant};

use agent_forge_actors::ports::vcenter::{Listener, PowerState, VCenter, VmNews, VmSight};
use agent_forge_lab::patience::HANG;
use serde_json::json;
use tokio::sync::mpsc;

use super::support::*;

type Told = mpsc::UnboundedReceiver<(String, VmNews)>;

/// Follows these VMs.
fn follow(vc: &dyn VCenter, vms: &[String]) -> Told {
    let (tell, told) = mpsc::unbounded_channel();
    let listener = Listener::new(move |vm, news| {
        // The receiver of an ended test is gone.
        tell.send((vm.to_owned(), news)).ok();
    });
    vc.follow(vms.iter().cloned().collect(), listener);
    told
}

async fn next(told: &mut Told) -> (String, VmNews) {
    let next = tokio::time::timeout(HANG, told.recv());
    next.await.expect("news").expect("a listener")
}

/// The next news about that VM which `wanted` accepts.
async fn heard(told: &mut Told, vm: &str, wanted: impl Fn(&VmNews) -> bool) -> VmNews {
    loop {
        match next(told).await {
            (of, news) if of == vm && wanted(&news) => return news,
            _ => {}
        }
    }
}

fn is_on(news: &VmNews) -> bool {
    matches!(news, VmNews::There(sight) if sight.runs())
}

fn is_off(news: &VmNews) -> bool {
    matches!(news, VmNews::There(sight) if sight.power == PowerState::Off)
}

/// Running VMs of somebody: their references.
async fn running(world: &World, count: usize) -> Vec<String> {
    let room = json!({"freeBytes": 1_u64 << 50});
    world.post("datastores/iso-datastore", room).await;
    let mut all = Vec::new();
    for n in 0..count {
        let vm = json!({"name": format!("n{n}"), "powerOn": true});
        let made = world.post("vms", vm).await;
        all.push(made["moref"].as_str().unwrap().to_owned());
    }
    all
}

async fn act(world: &World, vm: &str, action: &str) {
    world.post(&format!("vms/{vm}/{action}"), json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_a_followed_vm_is_told() {
    let (world, vc) = connected(quick()).await;
    let vms = running(&world, 3).await;
    let [a, b, c] = &vms[..] else {
        panic!("{vms:?}")
    };
    let mut told = follow(vc.as_ref(), &[a.clone(), b.clone()]);
    let mut first = BTreeSet::new();
    while first.len() < 2 {
        let (vm, news) = next(&mut told).await;
        assert!(is_on(&news), "{vm} {news:?}");
        first.insert(vm);
    }
    act(&world, c, "power-off").await;
    act(&world, a, "power-off").await;
    let (vm, news) = next(&mut told).await;
    assert!(vm == *a && is_off(&news), "not followed: {vm} {news:?}");
    let version = |news: &VmNews| match news {
        VmNews::There(VmSight { version, .. }) => version.clone(),
        VmNews::Gone => String::new(),
    };
    let before = version(&news);
    world
        .post(
            &format!("vms/{a}/set-option"),
            json!({"key": "note", "value": "changed"}),
        )
        .await;
    heard(&mut told, a, |news| version(news) != before).await;
    act(&world, b, "power-off").await;
    act(&world, b, "destroy").await;
    heard(&mut told, b, |news| *news == VmNews::Gone).await;
    // From now on one VM alone is followed.
    let mut told = follow(vc.as_ref(), std::slice::from_ref(c));
    assert!(is_off(&heard(&mut told, c, |_| true).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_while_there_is_no_session_is_told_after_it() {
    let (world, vc) = connected(quick()).await;
    let vms = running(&world, 1).await;
    let mut told = follow(vc.as_ref(), &vms);
    heard(&mut told, &vms[0], is_on).await;
    world
        .post("outage", json!({"mode": "refuse", "seconds": 2}))
        .await;
    world.post("sessions/kill", json!({})).await;
    act(&world, &vms[0], "power-off").await;
    heard(&mut told, &vms[0], is_off).await;
    // Who asks for a VM that does not exist is told that as well.
    let mut told = follow(vc.as_ref(), &["vm-999999".to_owned()]);
    heard(&mut told, "vm-999999", |news| *news == VmNews::Gone).await;
}

/// One long poll for all, and nothing else, however many VMs are followed.
#[tokio::test(flavor = "multi_thread")]
async fn many_vms_cost_as_much_as_one() {
    for count in [1, 500] {
        let (world, vc) = connected(quick()).await;
        let vms = running(&world, count).await;
        let mut told = follow(vc.as_ref(), &vms);
        let mut first = BTreeSet::new();
        while first.len() < count {
            first.insert(next(&mut told).await.0);
        }
        let calls: u64 = world.calls().await.values().sum();
        let before = world.called("WaitForUpdatesEx").await;
        let mut times = Vec::new();
        for vm in vms.iter().rev().take(5) {
            let began = Instant::now();
            act(&world, vm, "power-off").await;
            heard(&mut told, vm, is_off).await;
            times.push(began.elapsed());
        }
        let after: u64 = world.calls().await.values().sum();
        let polled = world.called("WaitForUpdatesEx").await - before;
        times.sort();
        eprintln!(
            "{count} VMs: a switch-off is told after {:?} (median of {}); {polled} long polls and {} other calls",
            times[times.len() / 2],
            times.len(),
            after - calls - polled
        );
        assert_eq!(after - calls, polled, "only long polls");
        assert!(
            polled <= 6,
            "one for each news, and the one that runs: {polled}"
        );
    }
}
