//! Whole scans against a cluster and a vCenter in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use agent_forge_crds::{
    conditions::Reason,
    conditions::event,
    names::{DELETE_CHECK_PREFIX, PAUSED_ANNOTATION},
    pool::{CleanupPolicy, CredentialsSecretRef, RefusedCredentials},
};
use async_trait::async_trait;
use kube::ResourceExt;

use super::*;
use crate::{
    domain::{failure::ErrorSource, names::MoRef},
    ports::vcenter::VCenter,
};
use crate::{
    domain::{
        identity::BiosUuid,
        marker::Marker,
        upstream::{Pausable, PausableKind},
    },
    ports::{
        effect::EffectKind,
        sessions::Sessions,
        vcenter::{PowerState, TASK_PATIENCE, VmObservation},
    },
    testing::{NAMESPACE, child, child_with_vm, marker, running, shown, told::Told, with},
    vm::testing::{
        Bench,
        hub::Objects,
        vcenter::{SLOTS, Site},
    },
};

/// The interval in the bench's settings.
const INTERVAL: Duration = Duration::from_secs(600);

/// A VM of an unknown VsphereAgent, created and never powered on.
fn lost(id: &str) -> VmObservation {
    with(shown(&child("a"), PowerState::Off), |v| {
        v.moref = MoRef::new("VirtualMachine", id);
        let mark = Marker {
            uid: "nobodys".to_owned(),
            ..marker(&child("a"), 1)
        };
        v.bios_uuid = Some(BiosUuid::derive(&mark.cluster_id, &mark.uid, mark.attempt));
        v.marker = Some(mark);
        v.boot_order.clear();
    })
}

struct Scans {
    bench: Bench,
    memory: Memory,
}

impl Scans {
    async fn of(vms: Vec<VmObservation>) -> Self {
        let bench = Bench::new();
        bench.site.with(|i| i.vms = vms);
        let mut scans = Self {
            bench,
            memory: Memory::default(),
        };
        let verdict = scans.pass().await;
        assert_eq!(verdict.again, Some(FIRST), "not at once");
        scans
    }

    async fn pass(&mut self) -> Verdict {
        let memory = std::mem::take(&mut self.memory);
        let context = self.bench.context.clone();
        let (memory, verdict) = run(context, self.bench.doubts.clone(), memory).await;
        self.memory = memory;
        verdict
    }

    /// The next scan.
    async fn next(&mut self) -> Verdict {
        self.bench.turn(INTERVAL);
        self.pass().await
    }

    fn destroyed(&self) -> usize {
        self.bench.times(EffectKind::Destroy)
    }

    fn said(&self, reason: &str) -> Vec<String> {
        let notes = |o: &mut Objects| {
            let fits = o.notices.iter().filter(|n| n.reason == reason);
            fits.map(|n| n.note.clone()).collect()
        };
        self.bench.hub.with(notes)
    }
}

#[tokio::test]
async fn what_never_ran_goes_at_the_second_look() {
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    scans.next().await;
    assert_eq!(scans.destroyed(), 0, "it may be in the making");
    // Between two scans vCenter gets no request.
    let due = scans.pass().await.again;
    assert_eq!(due, Some(INTERVAL));
    scans.next().await;
    assert_eq!(scans.destroyed(), 1);
    assert!(scans.bench.site.with(|i| i.vms.is_empty()));
    assert_eq!(scans.said(event::ORPHAN_VM_DESTROYED).len(), 1);
    assert!(scans.said(event::ORPHAN_VM).is_empty());
}

fn annotate_unseen(o: &mut Objects, key: &str) {
    let mut pool = o.pool.clone().expect("a pool");
    let annotation = (key.to_owned(), "true".to_owned());
    pool.annotations_mut().extend([annotation]);
    o.unseen_pool = Some(pool);
}

/// The API server has accepted it, and no cache shows it.
#[tokio::test]
async fn what_people_hold_back_of_its_pools_is_read_live() {
    type Hold = fn(&mut Objects);
    let holds: [(&str, Hold); 6] = [
        ("Retain", |o| {
            let mut pool = o.pool.clone().expect("a pool");
            pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
            o.unseen_pool = Some(pool);
        }),
        ("dry run", |o| {
            let mut pool = o.pool.clone().expect("a pool");
            pool.spec.dry_run = Some(true);
            o.unseen_pool = Some(pool);
        }),
        ("a pause", |o| annotate_unseen(o, PAUSED_ANNOTATION)),
        ("a veto", |o| {
            annotate_unseen(o, &format!("{DELETE_CHECK_PREFIX}storage"));
        }),
        ("its Cluster is paused", |o| {
            let cluster = Pausable {
                key: ObjectKey::new(crate::testing::CONTROL_PLANE, "demo"),
                paused: true,
                annotated: false,
                paused_until: None,
                cluster: None,
            };
            o.unseen_pausables = vec![(PausableKind::Cluster, cluster)];
        }),
        ("that cannot be read", |o| o.pausables_away = true),
    ];
    for (what, hold) in holds {
        let mut scans = Scans::of(vec![lost("vm-7")]).await;
        scans.next().await;
        scans.bench.hub.with(hold);
        for _ in 0..2 {
            scans.next().await;
            assert_eq!(scans.destroyed(), 0, "{what}");
        }
        scans.bench.hub.with(|o| {
            o.unseen_pool = None;
            o.unseen_pausables.clear();
            o.pausables_away = false;
        });
        scans.next().await;
        assert_eq!(scans.destroyed(), 1, "{what}");
    }
}

/// Its VsphereAgent may be one that the caches leave out.
#[tokio::test]
async fn a_vm_of_a_namespace_of_which_a_part_is_unknown_is_no_orphan() {
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    let over = vec![NAMESPACE.to_owned()];
    scans.bench.hub.with(|o| o.over_bound = over);
    for _ in 0..4 {
        scans.next().await;
    }
    assert_eq!(scans.destroyed(), 0);
    assert!(scans.said(event::ORPHAN_VM).is_empty());
    scans.bench.hub.with(|o| o.over_bound.clear());
    scans.next().await;
    assert_eq!(scans.destroyed(), 0, "this is the first look");
    scans.next().await;
    assert_eq!(scans.destroyed(), 1);
}

#[tokio::test]
async fn what_was_taken_over_is_left_alone_and_said_although_it_has_no_boot_order() {
    let taken_over = with(lost("vm-7"), |v| {
        v.bios_uuid = BiosUuid::parse("423e36c8-723d-2b24-8590-0eb1d9180aa2");
    });
    let mut scans = Scans::of(vec![taken_over]).await;
    for _ in 0..3 {
        scans.next().await;
    }
    assert_eq!(scans.destroyed(), 0);
    let said = scans.said(event::ORPHAN_VM);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("\"vm-7\"") && said[0].contains("docs/runbooks/AgentForgeOrphanVMs.md")
    );
}

#[tokio::test]
async fn what_is_left_alone_is_said_again_before_its_event_expires() {
    let runs = with(lost("vm-7"), |v| v.power = PowerState::On);
    let mut scans = Scans::of(vec![runs]).await;
    scans.next().await;
    for times in [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3] {
        scans.next().await;
        assert_eq!(scans.said(event::ORPHAN_VM).len(), times);
    }
    scans.bench.site.with(|i| i.vms.clear());
    for _ in 0..6 {
        scans.next().await;
    }
    assert_eq!(scans.said(event::ORPHAN_VM).len(), 3, "it is gone");
}

#[tokio::test]
async fn what_is_said_of_a_vm_names_the_vsphere_agent_that_was() {
    let told = Told::default();
    let here = told.here();
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    scans.next().await;
    scans.next().await;
    drop(here);
    assert_eq!(scans.destroyed(), 1);
    let spans = told.spans("orphan.vm");
    let last = spans.last().expect("a span");
    assert!(last.said().iter().any(|l| l.contains("was destroyed")));
    let object = ObjectKey::of(&child("a")).to_string();
    assert_eq!(last.fields.get("object"), Some(object.as_str()));
    assert_eq!(last.fields.get("uid"), Some("nobodys"));
}

#[tokio::test]
async fn a_forgotten_task_is_no_proof_that_the_vm_is_gone() {
    for done in [false, true] {
        let mut scans = Scans::of(vec![lost("vm-7")]).await;
        scans.next().await;
        let forgotten = Some((EffectKind::Destroy, done));
        scans.bench.site.with(|i| i.vanishes = forgotten);
        scans.next().await;
        let told = scans.said(event::ORPHAN_VM_DESTROYED).len();
        assert_eq!(told, usize::from(done), "done: {done}");
        scans.next().await;
        assert!(scans.bench.site.with(|i| i.vms.is_empty()));
        assert_eq!(scans.said(event::ORPHAN_VM_DESTROYED).len(), 1);
        assert_eq!(scans.destroyed(), if done { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_destroy_task_that_does_not_end_holds_up_neither_the_scan_nor_the_others() {
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    scans.next().await;
    let hung = Some(EffectKind::Destroy);
    scans.bench.site.with(|i| i.hangs = hung);
    let scanned = tokio::time::timeout(2 * TASK_PATIENCE, scans.next()).await;
    let verdict = scanned.expect("the scan ends");
    let (reason, message) = &verdict.waiting_on[0];
    assert_eq!(*reason, Reason::VmBusy);
    assert!(message.contains("vm-7"), "{message}");
    assert_eq!(verdict.again, Some(INTERVAL));
    let slots = scans.bench.site.with(|i| i.slots.clone()).expect("used");
    assert_eq!(slots.free(), SLOTS);
    assert!(scans.said(event::ORPHAN_VM_DESTROYED).is_empty());
    let said = scans.said(event::ORPHAN_VM);
    assert!(said[0].contains("has not ended"), "{said:?}");
    // vCenter continues the task. The VM stays known all the time, and so does another one that appears.
    scans.bench.site.with(|i| i.vms.push(lost("vm-8")));
    let verdict = scans.next().await;
    assert_eq!(verdict.waiting_on[0].0, Reason::TaskInProgress);
    let known = &scans.memory.known["vc.example"].vms;
    assert_eq!(known.len(), 2);
    scans.bench.site.end_task();
    scans.next().await;
    assert!(scans.bench.site.with(|i| i.vms.is_empty()));
    assert_eq!(scans.destroyed(), 3, "vm-7 twice, vm-8 once");
}

#[tokio::test]
async fn a_vm_that_cannot_be_destroyed_keeps_no_other_one() {
    let mut scans = Scans::of(vec![lost("vm-7"), lost("vm-8")]).await;
    scans.next().await;
    scans.bench.site.with(|i| i.destroy_refused = Some("vm-7"));
    let verdict = scans.next().await;
    assert_eq!(verdict.waiting_on[0].0, Reason::NoPermission);
    let left = scans.bench.site.with(|i| i.vms.clone());
    assert_eq!(left.len(), 1, "vm-8 is gone");
    let said = scans.said(event::ORPHAN_VM);
    assert!(
        said[0].contains("vm-7") && said[0].contains("could not"),
        "{said:?}"
    );
    scans.bench.site.with(|i| i.destroy_refused = None);
    scans.next().await;
    assert!(scans.bench.site.with(|i| i.vms.is_empty()), "at once");
}

#[tokio::test]
async fn a_shorter_interval_holds_from_the_first_scan_on() {
    let short = Duration::from_secs(10);
    let mut bench = Bench::new();
    bench.context.settings.orphan_scan_interval = short;
    bench.site.with(|i| i.vms = vec![lost("vm-7")]);
    let memory = Memory::default();
    let mut scans = Scans { bench, memory };
    for destroyed in [0, 0, 1] {
        assert_eq!(scans.pass().await.again, Some(short));
        assert_eq!(scans.destroyed(), destroyed);
        scans.bench.turn(short);
    }
}

#[tokio::test]
async fn what_ran_is_said_once_and_left_alone() {
    let on = with(lost("vm-7"), |v| v.power = PowerState::On);
    let mut scans = Scans::of(vec![on]).await;
    for _ in 0..5 {
        scans.next().await;
    }
    assert_eq!(scans.destroyed(), 0);
    let said = scans.said(event::ORPHAN_VM);
    assert_eq!(said.len(), 1);
    let names_it = said[0].contains("vm-7") && said[0].contains("no VsphereAgent has the uid");
    assert!(names_it, "{said:?}");
    assert!(
        !said[0].contains("govc"),
        "no command is made of what vCenter says"
    );
}

#[tokio::test]
async fn the_api_server_and_a_fresh_look_have_the_last_word() {
    // The view does not show the VsphereAgent any more, or not yet. The API server has it.
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    scans.next().await;
    let its_own = with(child("a"), |c| c.metadata.uid = Some("nobodys".to_owned()));
    scans.bench.hub.with(|o| o.unseen_child = Some(its_own));
    scans.next().await;
    assert_eq!(scans.destroyed(), 0);
    // It has been given a boot order since the list was read.
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    scans.next().await;
    scans.bench.site.with(|i| i.list_is_old = true);
    scans.bench.site.with(|i| i.vms[0].power = PowerState::On);
    scans.next().await;
    assert_eq!(scans.destroyed(), 0);
}

#[tokio::test]
async fn a_vcenter_that_nobody_names_any_more_is_forgotten() {
    let on = with(lost("vm-7"), |v| v.power = PowerState::On);
    let mut scans = Scans::of(vec![on]).await;
    scans.next().await;
    assert_eq!(scans.memory.known.len(), 1);
    scans.bench.hub.with(|o| o.pool = None);
    scans.next().await;
    assert!(scans.memory.known.is_empty(), "{:?}", scans.memory.known);
    assert!(scans.bench.doubts.borrow().is_empty());
}

/// Two users of one vCenter. Each sees only a folder of its own.
struct Users {
    first: Site,
    others: Site,
}

#[async_trait]
impl Sessions for Users {
    async fn session(
        &self,
        secret: &ObjectKey,
        _: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError> {
        let is_first = secret.name == "vcenter";
        let user = if is_first { &self.first } else { &self.others };
        Ok(Arc::new(user.clone()))
    }

    async fn refusal(&self, _: &ObjectKey) -> Option<RefusedCredentials> {
        None
    }
}

#[tokio::test]
async fn what_any_user_sees_is_seen_and_goes_by_whoever_may() {
    let mut scans = Scans::of(vec![]).await;
    let others = Site::default();
    let theirs = with(child_with_vm("b"), |c| {
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        let vm = vm.expect("recorded");
        vm.server = Some("vc.example".to_owned());
        vm.credentials_ref = Some(CredentialsSecretRef {
            name: "others".to_owned(),
            namespace: None,
        });
    });
    let runs = with(shown(&theirs, PowerState::On), |v| {
        let moref = theirs
            .status
            .as_ref()
            .and_then(|s| s.vm.as_ref()?.moref.clone());
        v.moref = MoRef::new("VirtualMachine", moref.expect("recorded"));
    });
    // The first user sees one of the two, and may not destroy it.
    scans.bench.site.with(|i| {
        i.vms = vec![lost("vm-8")];
        i.destroy_refused = Some("vm-8");
    });
    others.with(|i| i.vms = vec![runs.clone(), lost("vm-7"), lost("vm-8")]);
    scans.bench.hub.with(|o| o.others = vec![theirs]);
    scans.bench.context.sessions = Arc::new(Users {
        first: scans.bench.site.clone(),
        others: others.clone(),
    });
    scans.next().await;
    assert!(
        scans.bench.doubts.borrow()["vc.example"].is_empty(),
        "it is in sight of one of them"
    );
    scans.next().await;
    assert_eq!(others.with(|i| i.vms.clone()), [runs]);
}

#[tokio::test]
async fn a_vcenter_that_does_not_answer_changes_nothing() {
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    scans.next().await;
    scans.bench.site.with(|i| i.scan_fails = true);
    let verdict = scans.next().await;
    assert_eq!(verdict.waiting_on[0].0, Reason::VcenterUnreachable);
    assert_eq!(verdict.again, Some(INTERVAL));
    scans.bench.site.with(|i| i.scan_fails = false);
    scans.next().await;
    assert_eq!(scans.destroyed(), 1);
}

#[tokio::test]
async fn a_recorded_vm_that_is_gone_is_looked_for_by_its_actor() {
    let mut bench = Bench::new();
    bench.until(Bench::is_on).await;
    let at = bench.vm().moref.expect("recorded");
    let mut scans = Scans {
        bench,
        memory: Memory::default(),
    };
    scans.pass().await;
    scans.next().await;
    assert!(scans.bench.doubts.borrow()["vc.example"].is_empty());
    let reads = scans.bench.site.with(|i| i.reads);
    scans.bench.turn(INTERVAL);
    scans.bench.pass().await;
    assert_eq!(scans.bench.site.with(|i| i.reads), reads, "nobody doubts");
    scans.bench.site.with(|i| i.vms.clear());
    scans.next().await;
    assert!(scans.bench.doubts.borrow()["vc.example"].contains(&at));
    // Its Agent never came, so the operator proves that and makes the VM again. A VM that serves is only announced.
    scans.bench.until(|b| b.vm().attempt == Some(2)).await;
    assert_eq!(running(&scans.bench.child()).attempt, Some(1));
    assert_eq!(scans.bench.child().name_any(), "a");
}

/// A user can write any text as a marker. It must not choose the namespace of an Event, nor its words.
#[tokio::test]
async fn an_event_goes_only_where_the_vcenter_is_used_and_quotes_it() {
    let foreign = with(lost("vm-7"), |v| {
        v.power = PowerState::On;
        let mark = v.marker.as_mut().expect("a mark");
        mark.namespace = "kube-system".to_owned();
    });
    let odd = with(lost("vm-8"), |v| {
        v.power = PowerState::On;
        v.name = format!("x\nrun: rm -rf / {}", "y".repeat(9000));
    });
    let mut scans = Scans::of(vec![foreign, odd]).await;
    for _ in 0..3 {
        scans.next().await;
    }
    assert_eq!(scans.memory.known["vc.example"].vms.len(), 2, "both count");
    let said = scans.bench.hub.with(|o| o.notices.clone());
    let said: Vec<_> = said
        .iter()
        .filter(|n| n.reason == event::ORPHAN_VM)
        .collect();
    let [one] = &said[..] else { panic!("{said:?}") };
    assert_eq!(one.regarding.key.namespace, crate::testing::NAMESPACE);
    assert!(one.note.len() < 1000 && !one.note.contains('\n'), "{one:?}");
}

/// Answers at once with one Secret, and never with the others.
struct Half {
    good: Site,
}

#[async_trait]
impl Sessions for Half {
    async fn session(
        &self,
        secret: &ObjectKey,
        _: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError> {
        if secret.name != "vcenter" {
            std::future::pending::<()>().await;
        }
        Ok(Arc::new(self.good.clone()))
    }

    async fn refusal(&self, _: &ObjectKey) -> Option<RefusedCredentials> {
        None
    }
}

/// One Secret is missing until the test puts it back.
struct Lacking {
    good: Site,
    back: Arc<AtomicBool>,
    why: Reason,
}

#[async_trait]
impl Sessions for Lacking {
    async fn session(
        &self,
        secret: &ObjectKey,
        _: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError> {
        if self.back.load(Ordering::Relaxed) {
            return Ok(Arc::new(self.good.clone()));
        }
        let message = format!("Secret {secret} does not exist");
        let why = self.why.clone();
        Err(ReconcileError::blocked(ErrorSource::Vsphere, why, message))
    }

    async fn refusal(&self, _: &ObjectKey) -> Option<RefusedCredentials> {
        None
    }
}

#[tokio::test]
async fn a_scan_that_lacked_a_secret_runs_again_when_it_is_back() {
    for (why, looks) in [
        (Reason::SecretNotFound, true),
        (Reason::SecretNamespaceRefused, true),
        (Reason::InvalidCredentials, false),
    ] {
        let runs = with(lost("vm-7"), |v| v.power = PowerState::On);
        let mut scans = Scans::of(vec![runs]).await;
        let back = Arc::new(AtomicBool::new(false));
        scans.bench.context.sessions = Arc::new(Lacking {
            good: scans.bench.site.clone(),
            back: back.clone(),
            why,
        });
        scans.bench.turn(FIRST);
        let again = scans.pass().await.again;
        let expected = if looks { SECRET_AGAIN } else { INTERVAL };
        assert_eq!(again, Some(expected));
        scans.bench.turn(SECRET_AGAIN);
        scans.pass().await;
        assert!(scans.memory.known.is_empty(), "it is still missing");
        back.store(true, Ordering::Relaxed);
        scans.bench.turn(SECRET_AGAIN);
        let again = scans.pass().await.again;
        assert_eq!(scans.memory.known.is_empty(), !looks);
        let left = INTERVAL - 2 * SECRET_AGAIN;
        assert_eq!(again, Some(if looks { INTERVAL } else { left }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_vcenter_that_never_answers_keeps_no_other_from_being_scanned() {
    let mut scans = Scans::of(vec![lost("vm-7")]).await;
    let silent = with(child_with_vm("b"), |c| {
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("recorded").credentials_ref = Some(CredentialsSecretRef {
            name: "silent".to_owned(),
            namespace: None,
        });
    });
    scans.bench.hub.with(|o| o.others = vec![silent]);
    scans.bench.context.sessions = Arc::new(Half {
        good: scans.bench.site.clone(),
    });
    scans.next().await;
    let verdict = scans.next().await;
    assert_eq!(scans.destroyed(), 1, "the other one goes on");
    assert_eq!(verdict.waiting_on.len(), 1);
}
