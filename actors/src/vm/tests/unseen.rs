//! Passes of a VM that people hold, or changed in vCenter, while what this process has seen is older.

use agent_forge_crds::{
    Time, VsphereAgentPool,
    external::agent_machine::PAUSED_ANNOTATION as CAPI_PAUSED,
    names::{DELETE_CHECK_PREFIX, PAUSED_ANNOTATION},
};
use jiff::SignedDuration;

use super::*;
use crate::{
    domain::{
        holds::VmMarks,
        names::MoRef,
        upstream::{Pausable, PausableKind},
    },
    ports::vcenter::BootDevice,
    testing::{CONTROL_PLANE, POOL},
};

/// What a person writes, and no cache shows.
type Writes = fn(&mut VsphereAgentPool, &mut Vec<(PausableKind, Pausable)>);

fn annotate(pool: &mut VsphereAgentPool, key: &str) {
    let annotation = (key.to_owned(), "true".to_owned());
    pool.annotations_mut().extend([annotation]);
}

fn above(kind: PausableKind) -> (PausableKind, Pausable) {
    let key = match kind {
        PausableKind::Cluster => ObjectKey::new(CONTROL_PLANE, "demo"),
        PausableKind::NodePool => ObjectKey::new(NAMESPACE, POOL),
        PausableKind::HostedCluster => ObjectKey::new(NAMESPACE, "demo"),
    };
    let found = Pausable {
        key,
        cluster: Some("demo".to_owned()),
        annotated: false,
        paused: false,
        paused_until: None,
    };
    (kind, found)
}

fn until(kind: PausableKind) -> (PausableKind, Pausable) {
    with(above(kind), |(_, found)| {
        found.paused_until = Some("true".to_owned());
    })
}

const HOLDS: [(&str, Reason, Writes); 7] = [
    ("the pool is paused", Reason::Paused, |pool, _| {
        annotate(pool, PAUSED_ANNOTATION);
    }),
    ("the pool plans only", Reason::DryRun, |pool, _| {
        pool.spec.dry_run = Some(true);
    }),
    ("a veto on the pool", Reason::Vetoed, |pool, _| {
        annotate(pool, &format!("{DELETE_CHECK_PREFIX}backup"));
    }),
    ("the Cluster is paused", Reason::Paused, |_, all| {
        let paused = with(above(PausableKind::Cluster), |(_, c)| c.paused = true);
        all.push(paused);
    }),
    (CAPI_PAUSED, Reason::Paused, |_, all| {
        let paused = with(above(PausableKind::Cluster), |(_, c)| c.annotated = true);
        all.push(paused);
    }),
    ("the NodePool is paused", Reason::Paused, |_, all| {
        all.push(until(PausableKind::NodePool));
    }),
    ("the HostedCluster is paused", Reason::Paused, |_, all| {
        all.push(until(PausableKind::HostedCluster));
    }),
];

/// The API server has accepted that, and the watch hangs.
fn write(bench: &Bench, writes: Writes) {
    bench.hub.with(|o| {
        let mut pool = o.pool.clone().expect("a pool");
        writes(&mut pool, &mut o.unseen_pausables);
        o.unseen_pool = Some(pool);
    });
}

/// The watch goes on, and the person has ended it.
fn end(bench: &Bench) {
    bench.hub.with(|o| {
        o.unseen_pausables.clear();
        o.unseen_pool = None;
    });
}

async fn minutes(bench: &mut Bench, count: u32) {
    for _ in 0..count {
        bench.pass().await;
        bench.turn(MINUTE);
    }
}

/// A VM that is to be removed by all that is known.
async fn going() -> Bench {
    let bench = on().await;
    release(&bench);
    bench
}

fn is_gone(bench: &Bench) -> bool {
    bench.hub.with(|o| o.child.is_none())
}

fn writes_of(bench: &Bench, kind: E) -> usize {
    bench
        .hub
        .with(|o| o.effects.iter().filter(|e| **e == kind).count())
}

#[tokio::test]
async fn a_hold_that_no_cache_shows_keeps_the_vm() {
    for (what, reason, writes) in HOLDS {
        let mut bench = going().await;
        write(&bench, writes);
        minutes(&mut bench, 6).await;
        let calls = (bench.times(E::PowerOff), bench.times(E::Destroy));
        assert_eq!(calls, (0, 0), "{what}");
        assert_eq!(bench.waits_on(), Some(reason), "{what}");
        end(&bench);
        bench.until(is_gone).await;
    }
}

#[tokio::test]
async fn what_can_pause_the_vm_and_cannot_be_read_holds_it() {
    let mut bench = going().await;
    bench.hub.with(|o| o.pausables_away = true);
    minutes(&mut bench, 6).await;
    assert_eq!((bench.times(E::PowerOff), bench.times(E::Destroy)), (0, 0));
    assert_eq!(bench.waits_on(), Some(Reason::ApiServerUnavailable));
    bench.hub.with(|o| o.pausables_away = false);
    bench.until(is_gone).await;
}

/// It begins between two calls: each has a look of its own.
#[tokio::test]
async fn a_hold_that_comes_after_the_power_off_keeps_the_rest() {
    for (what, _, writes) in HOLDS {
        let mut bench = going().await;
        bench.site.with(|i| i.destroy_refused = Some("vm-1"));
        bench.until(|b| b.times(E::PowerOff) == 1).await;
        let tried = bench.times(E::Destroy);
        bench.site.with(|i| i.destroy_refused = None);
        write(&bench, writes);
        minutes(&mut bench, 6).await;
        assert_eq!(bench.times(E::Destroy), tried, "{what}");
    }
}

/// The VM is gone. Its Agent and its record are still there.
#[tokio::test]
async fn a_hold_that_no_cache_shows_keeps_agent_and_record() {
    for (what, reason, writes) in HOLDS {
        let mut bench = going().await;
        bench.site.with(|i| i.vms.clear());
        write(&bench, writes);
        minutes(&mut bench, 8).await;
        assert_eq!(writes_of(&bench, E::RemoveChildFinalizer), 0, "{what}");
        assert_eq!(bench.waits_on(), Some(reason.clone()), "{what}");
        end(&bench);
        bench.until(is_gone).await;

        let mut bench = going().await;
        bench.hub.with(|o| {
            let child = o.child.clone().expect("it exists");
            o.unseen_agents = vec![agent_on(&child)];
        });
        bench.site.with(|i| i.vms.clear());
        write(&bench, writes);
        minutes(&mut bench, 8).await;
        assert_eq!(writes_of(&bench, E::DeleteAgent), 0, "{what}");
    }
}

/// The figures of `docs/reference/administrators.md`. Here Agents may be in two namespaces, under two names in each.
#[tokio::test]
async fn a_removal_costs_these_reads() {
    let mut bench = going().await;
    bench.hub.with(|o| o.reads.clear());
    bench.until(|b| b.times(E::PowerOff) == 1).await;
    let pausing = ["pool", "Cluster", "NodePool", "HostedCluster"];
    let proof = [
        "VsphereAgent",
        "AgentMachine",
        "Agents",
        "Agents",
        "AgentMachines",
        "Machines",
    ];
    let look = [&proof[..], &pausing[..]].concat();
    bench.until(is_gone).await;
    let reads = bench.hub.with(|o| std::mem::take(&mut o.reads));
    let end = [
        &["Agent", "Agent", "Agent", "Agent", "VsphereAgent"],
        &pausing[..],
    ]
    .concat();
    assert_eq!(reads, [&look[..], &look[..], &end[..]].concat());
}

/// A VM that was made, and waits for its time.
async fn made() -> Bench {
    let mut bench = Bench::new();
    let hour = SignedDuration::from_hours(1);
    let start = bench.context.clock.wall().checked_add(hour);
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.power_on_after = start.ok().map(Time);
    });
    minutes(&mut bench, 50).await;
    assert_eq!(bench.times(E::PowerOn), 0);
    assert_eq!(bench.waits_on(), Some(Reason::PowerOnScheduled));
    bench
}

#[tokio::test]
async fn a_mark_that_came_while_it_waited_keeps_it_off() {
    let mut bench = made().await;
    bench.site.with(|i| {
        i.vms[0].marks = VmMarks {
            paused: true,
            skip_delete: false,
        };
    });
    minutes(&mut bench, 30).await;
    assert_eq!(bench.times(E::PowerOn), 0);
    assert_eq!(bench.waits_on(), Some(Reason::Paused));
    bench.site.with(|i| i.vms[0].marks = VmMarks::default());
    bench.until(Bench::is_on).await;
}

/// The vCenter was restored from a backup while the VM waited: its reference names another VM by now.
#[tokio::test]
async fn a_reference_that_leads_to_another_vm_by_now_is_not_switched_on() {
    let mut bench = made().await;
    bench.site.with(|i| {
        let theirs = with(i.vms[0].clone(), |vm| {
            vm.marker = None;
            vm.name = "precious".to_owned();
            vm.bios_uuid = Some(BiosUuid::derive("theirs", "theirs", 1));
            vm.instance_uuid = Some("theirs".to_owned());
        });
        i.vms[0].moref = MoRef::new("VirtualMachine", "vm-77");
        i.vms.push(theirs);
    });
    bench.turn(10 * MINUTE);
    bench.until(Bench::is_on).await;
    let powers = bench.site.with(|i| {
        let all = i.vms.iter();
        all.map(|vm| (vm.name.clone(), vm.power))
            .collect::<Vec<_>>()
    });
    let theirs = powers.iter().find(|(name, _)| name == "precious");
    assert_eq!(theirs.map(|(_, power)| *power), Some(PowerState::Off));
    assert_eq!(bench.vm().moref.as_deref(), Some("vm-77"));
}

/// Somebody changed the boot order while the VM waited, and holds the pool back. No cache shows that.
#[tokio::test]
async fn a_vm_that_waited_is_not_touched_while_a_hold_no_cache_shows_stands() {
    for (what, reason, writes) in HOLDS {
        if reason == Reason::Vetoed {
            continue;
        }
        let mut bench = made().await;
        let before = bench.site.with(|i| i.effects.len());
        bench
            .site
            .with(|i| i.vms[0].boot_order = vec![BootDevice::Cdrom]);
        write(&bench, writes);
        minutes(&mut bench, 30).await;
        assert_eq!(bench.site.with(|i| i.effects.len()), before, "{what}");
        end(&bench);
        bench.until(Bench::is_on).await;
        let order = bench.site.with(|i| i.vms[0].boot_order.clone());
        assert_eq!(order, [BootDevice::Disk(2000), BootDevice::Cdrom], "{what}");
    }
}

/// The figures of `docs/reference/administrators.md`: nothing directly after the create, one call and five reads after a wait.
#[tokio::test]
async fn a_look_before_the_power_on_costs_something_only_after_a_wait() {
    let bench = on().await;
    let looks = bench.site.with(|i| i.reads);
    assert!(bench.hub.with(|o| o.reads.is_empty()));
    let mut waited = made().await;
    let before = waited.site.with(|i| i.reads);
    waited.turn(10 * MINUTE);
    waited.until(Bench::is_on).await;
    assert_eq!(waited.site.with(|i| i.reads), before + 1);
    assert!(before <= looks, "{before} {looks}");
    let reads = waited.hub.with(|o| o.reads.clone());
    let one = [
        "VsphereAgent",
        "pool",
        "Cluster",
        "NodePool",
        "HostedCluster",
    ];
    assert_eq!(reads, one);
}
