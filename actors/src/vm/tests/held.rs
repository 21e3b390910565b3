//! Passes of a VM that people hold: dry runs, pauses, vetoes, `skip-delete`.

use agent_forge_crds::{
    conditions::{OVERFULL, PAUSED, VETOED, find_condition},
    names::{
        DELETE_CHECK_PREFIX, FORCE_DELETE_ANNOTATION, PAUSED_ANNOTATION, POWER_ON_CHECK_PREFIX,
        SKIP_DELETE_ANNOTATION,
    },
};

use super::*;
use crate::domain::{
    holds::{Mode, VmMarks},
    upstream::{Pausable, PausableKind},
};

pub(super) fn annotate(bench: &Bench, key: &str, value: &str) {
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let annotation = (key.to_owned(), value.to_owned());
        child.annotations_mut().extend([annotation]);
    });
}

pub(super) fn free(bench: &Bench, key: &str) {
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        child.annotations_mut().remove(key);
    });
}

pub(super) fn mark(bench: &Bench, paused: bool, skip_delete: bool) {
    bench.site.with(|i| {
        i.vms[0].marks = VmMarks {
            paused,
            skip_delete,
        };
    });
}

fn is_gone(bench: &Bench) -> bool {
    bench.hub.with(|o| o.child.is_none())
}

fn says(bench: &Bench, type_: &str) -> Option<String> {
    let status = bench.status();
    find_condition(&status.conditions, type_).map(|c| format!("{}: {}", c.status, c.message))
}

/// All writes so far, except those of the status.
fn changes(bench: &Bench) -> usize {
    use crate::ports::effect::Nature;
    let writes = |e: &&E| e.nature() == Nature::Cluster;
    bench.hub.with(|o| o.effects.iter().filter(writes).count())
        + bench.site.with(|i| i.effects.len())
}

/// Nothing is changed in some minutes, also by a new actor, and the reason is that.
async fn stays(bench: &mut Bench, reason: Reason) {
    let before = changes(bench);
    for restarted in [false, true] {
        if restarted {
            bench.restart();
        }
        for _ in 0..4 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert_eq!(bench.waits_on(), Some(reason.clone()));
    }
    assert_eq!(changes(bench), before);
}

#[tokio::test]
async fn nothing_is_made_while_it_is_paused_and_all_of_it_afterwards() {
    let mut bench = Bench::new();
    annotate(&bench, PAUSED_ANNOTATION, "true");
    stays(&mut bench, Reason::Paused).await;
    let said = says(&bench, PAUSED).unwrap_or_default();
    assert!(said.starts_with("True: paused by annotation"), "{said}");
    free(&bench, PAUSED_ANNOTATION);
    bench.until(Bench::is_on).await;
    assert_eq!(says(&bench, PAUSED), None);
}

#[tokio::test]
async fn nothing_is_made_or_ended_while_a_part_of_the_namespace_is_unknown() {
    let mut bench = Bench::new();
    let over = |bench: &Bench, namespaces: &[&str]| {
        let names = namespaces.iter().map(|name| (*name).to_owned()).collect();
        bench.hub.with(|o| o.over_bound = names);
    };
    over(&bench, &[NAMESPACE]);
    stays(&mut bench, Reason::NamespaceTooLarge).await;
    let said = says(&bench, OVERFULL).unwrap_or_default();
    assert!(
        said.starts_with("True: ") && said.contains(NAMESPACE),
        "{said}"
    );
    over(&bench, &[]);
    bench.until(Bench::is_on).await;
    assert_eq!(says(&bench, OVERFULL), None);
    // Not even if a person forces it.
    over(&bench, &[testing::CONTROL_PLANE]);
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    release(&bench);
    stays(&mut bench, Reason::NamespaceTooLarge).await;
    over(&bench, &[]);
    bench.until(is_gone).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
}

#[tokio::test]
async fn what_the_caches_have_no_room_for_is_not_told_as_gone() {
    for leave_out in ["pool", "AgentMachine"] {
        let mut bench = Bench::new();
        bench.hub.with(|o| {
            o.over_bound = vec![NAMESPACE.to_owned(), testing::CONTROL_PLANE.to_owned()];
            match leave_out {
                "pool" => o.pool = None,
                _ => o.agent_machines.clear(),
            }
        });
        stays(&mut bench, Reason::NamespaceTooLarge).await;
        let told = bench.hub.with(|o| format!("{:?}", o.notices));
        assert!(!told.contains("PoolNotFound"), "{leave_out}: {told}");
    }
}

#[tokio::test]
async fn a_deletion_waits_for_the_end_of_a_pause() {
    let mut bench = on().await;
    annotate(&bench, PAUSED_ANNOTATION, "true");
    release(&bench);
    stays(&mut bench, Reason::Paused).await;
    free(&bench, PAUSED_ANNOTATION);
    bench.until(is_gone).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
}

#[tokio::test]
async fn a_forced_deletion_does_not_wait_for_it() {
    let mut bench = on().await;
    annotate(&bench, PAUSED_ANNOTATION, "true");
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    release(&bench);
    bench.until(is_gone).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
}

#[tokio::test]
async fn a_pause_until_a_time_ends_by_itself() {
    let mut bench = Bench::new();
    let end = bench
        .context
        .clock
        .wall()
        .checked_add(jiff::SignedDuration::from_mins(5))
        .expect("in range");
    bench.hub.with(|o| {
        let node_pool = Pausable {
            key: ObjectKey::new(NAMESPACE, testing::POOL),
            cluster: Some("demo".to_owned()),
            annotated: false,
            paused: false,
            paused_until: Some(end.to_string()),
        };
        o.pausables.push((PausableKind::NodePool, node_pool));
    });
    let verdict = bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::Paused));
    let again = verdict.again.expect("it wakes");
    assert!(again <= MINUTE * 5 && again > MINUTE * 4, "{again:?}");
    bench.turn(again);
    bench.until(Bench::is_on).await;
    assert!(bench.context.clock.wall() >= end);
}

#[tokio::test]
async fn an_administrator_of_vcenter_pauses_a_deletion_that_is_forced() {
    let mut bench = on().await;
    mark(&bench, true, false);
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    release(&bench);
    stays(&mut bench, Reason::Paused).await;
    assert_eq!(bench.vm().paused_in_vcenter, Some(true));
    mark(&bench, false, false);
    bench.turn(MINUTE);
    bench.until(is_gone).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
}

/// Nothing else shows that the pause is over.
#[tokio::test]
async fn a_vm_that_is_paused_in_vcenter_is_looked_at_every_minute() {
    let mut bench = on().await;
    mark(&bench, true, false);
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    release(&bench);
    bench.pass().await;
    free(&bench, FORCE_DELETE_ANNOTATION);
    for restarted in [true, false, false, false] {
        if restarted {
            bench.restart();
        }
        let before = bench.site.with(|i| i.reads);
        let again = bench.pass().await.again.expect("it looks again");
        assert!(again <= MINUTE, "{again:?}");
        assert!(bench.site.with(|i| i.reads) > before, "it looks");
        bench.turn(again);
    }
}

/// The key was set after the look that the deletion was decided from.
#[tokio::test]
async fn the_last_look_sees_what_an_administrator_has_marked() {
    for (paused, skip_delete) in [(true, false), (false, true)] {
        let mut bench = on().await;
        bench.pass().await;
        release(&bench);
        bench.site.with(|i| {
            i.marks_at_observe = Some(VmMarks {
                paused,
                skip_delete,
            })
        });
        for _ in 0..4 {
            bench.pass().await;
            bench.turn(Duration::from_secs(2));
        }
        assert_eq!(bench.times(E::PowerOff) + bench.times(E::Destroy), 0);
        assert_eq!(is_gone(&bench), skip_delete);
    }
}

#[tokio::test]
async fn a_vm_that_skips_its_deletion_stays_with_its_agent() {
    for by_person in [true, false] {
        let mut bench = on().await;
        let agent = agent_on(&bench.child());
        bench.hub.with(|o| o.agents.push(agent));
        bench.pass().await;
        if by_person {
            annotate(&bench, SKIP_DELETE_ANNOTATION, "true");
        } else {
            mark(&bench, false, true);
        }
        let mark = bench.site.with(|i| i.vms[0].marker.clone()).expect("ours");
        release(&bench);
        bench.until(is_gone).await;
        let marks = bench.site.with(|i| i.marks.clone());
        assert_eq!(marks, [format!("released/{mark}")], "{by_person}");
        assert_eq!(bench.times(E::PowerOff) + bench.times(E::Destroy), 0);
        let effects = bench.hub.with(|o| o.effects.clone());
        assert!(!effects.contains(&E::DeleteAgent), "{by_person}");
        assert_eq!(bench.hub.with(|o| o.agents.len()), 1);
    }
}

#[tokio::test]
async fn a_veto_holds_the_power_and_another_one_the_deletion() {
    let power = format!("{POWER_ON_CHECK_PREFIX}network");
    let delete = format!("{DELETE_CHECK_PREFIX}backup");
    let mut bench = Bench::new();
    annotate(&bench, &power, "no VLAN");
    bench.until(|b| b.times(E::Reconfigure) == 1).await;
    stays(&mut bench, Reason::Vetoed).await;
    let expected = "True: network on VsphereAgent demo/a forbids power-on: no VLAN";
    assert_eq!(says(&bench, VETOED).as_deref(), Some(expected));
    free(&bench, &power);
    bench.until(Bench::is_on).await;
    assert_eq!(says(&bench, VETOED), None);

    annotate(&bench, &delete, "copy runs");
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    release(&bench);
    stays(&mut bench, Reason::Vetoed).await;
    free(&bench, &delete);
    bench.until(is_gone).await;
}

fn rehearse(bench: &Bench, dry_run: bool) {
    bench.hub.with(|o| {
        o.pool.as_mut().expect("a pool").spec.dry_run = Some(dry_run);
    });
}

#[tokio::test]
async fn a_dry_run_makes_nothing_and_removes_nothing() {
    let mut bench = Bench::new();
    rehearse(&bench, true);
    stays(&mut bench, Reason::DryRun).await;
    let waits = bench.status().waiting_on;
    let why = "create waits: dry run by spec.dryRun of VsphereAgentPool demo/workers";
    assert_eq!(waits[0].message, why);
    rehearse(&bench, false);
    bench.until(Bench::is_on).await;
    rehearse(&bench, true);
    release(&bench);
    stays(&mut bench, Reason::DryRun).await;
    rehearse(&bench, false);
    bench.until(is_gone).await;
}

/// Even the identity is not recorded. It is when the predecessor has ended.
#[tokio::test]
async fn a_silent_dry_run_does_not_write_the_status_either() {
    let mut bench = Bench::new();
    bench.hub.with(|o| o.mode = Mode::Silent);
    for _ in 0..3 {
        assert_eq!(bench.pass().await.failure, None);
        bench.turn(MINUTE);
    }
    assert_eq!(bench.hub.with(|o| o.effects.clone()), []);
    bench.hub.with(|o| o.mode = Mode::DryRun);
    stays(&mut bench, Reason::DryRun).await;
    assert!(bench.vm().bios_uuid.is_some());
}
