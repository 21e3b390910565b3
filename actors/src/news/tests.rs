//! Passes of the news desk against a cluster and a vCenter in memory.

use agent_forge_crds::{agent::VsphereAgent, pool::CredentialsSecretRef};

use super::*;
use crate::{
    ports::vcenter::{PowerState, VmSight},
    testing::{NAMESPACE, child_with_vm, with},
    vm::testing::Bench,
};

const SERVER: &str = "vc.example";

#[derive(Default)]
struct Woken(Mutex<Vec<String>>);

impl NewsWaker for Woken {
    fn wake_vm(&self, vm: &ObjectKey, _: &'static str) {
        self.0.lock().expect("lock").push(vm.name.clone());
    }
    fn wake_news(&self) {}
}

struct Desk {
    bench: Bench,
    woken: Arc<Woken>,
    memory: Memory,
}

fn running(name: &str, secret: &str) -> VsphereAgent {
    with(child_with_vm(name), |c| {
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        let vm = vm.expect("a record");
        vm.power_state = Some(PowerState::On.as_str().to_owned());
        vm.moref = Some(format!("vm-{name}"));
        vm.server = Some(SERVER.to_owned());
        vm.credentials_ref = Some(CredentialsSecretRef {
            name: secret.to_owned(),
            namespace: None,
        });
    })
}

impl Desk {
    fn new() -> Self {
        let bench = Bench::new();
        bench.hub.with(|o| o.child = Some(running("a", "vcenter")));
        Self {
            bench,
            woken: Arc::default(),
            memory: Memory::default(),
        }
    }

    async fn pass(&mut self) -> Verdict {
        let pass = Pass {
            context: self.bench.context.clone(),
            notes: self.bench.news.clone(),
            waker: self.woken.clone(),
        };
        let (memory, verdict) = pass.run(std::mem::take(&mut self.memory)).await;
        self.memory = memory;
        verdict
    }

    fn followed(&self) -> Vec<String> {
        let followed = self.bench.site.with(|i| i.followed.clone());
        followed.map_or_else(Vec::new, |(vms, _)| vms.into_iter().collect())
    }

    fn tell(&self, vm: &str, news: VmNews) {
        let followed = self.bench.site.with(|i| i.followed.clone());
        followed.expect("it is followed").1.tell(vm, news);
    }

    /// How often VM actors were woken, and whether the VM runs by the last note.
    fn told(&self) -> (usize, Option<bool>) {
        let notes = self.bench.news.borrow();
        let note = notes.get(SERVER).and_then(|vms| vms.get("vm-a"));
        let woken = self.woken.0.lock().expect("lock").len();
        (woken, note.map(|note| note.runs))
    }
}

fn on() -> VmNews {
    VmNews::There(VmSight {
        power: PowerState::On,
        connected: true,
        version: "1".to_owned(),
    })
}

/// The first pass comes before the watches have delivered, and nothing else wakes the desk then.
#[tokio::test]
async fn a_start_is_not_deaf() {
    let mut desk = Desk::new();
    desk.bench.hub.with(|o| o.unready = true);
    let again = desk.pass().await.again.expect("it looks again");
    assert!(again <= Duration::from_secs(2), "{again:?}");
    assert_eq!(desk.bench.site.with(|i| i.follows), 0);
    desk.bench.hub.with(|o| o.unready = false);
    desk.bench.turn(again);
    desk.pass().await;
    assert_eq!(desk.followed(), ["vm-a"]);
    // It was destroyed before the start.
    desk.tell("vm-a", VmNews::Gone);
    desk.pass().await;
    assert_eq!(desk.told(), (1, Some(false)));
}

#[tokio::test]
async fn a_vm_that_was_gone_and_is_back_is_told() {
    let mut desk = Desk::new();
    desk.pass().await;
    for (news, told) in [
        (on(), (0, None)),
        (VmNews::Gone, (1, Some(false))),
        // It is asked for with each time that the VMs are given.
        (VmNews::Gone, (1, Some(false))),
        (on(), (2, Some(true))),
        (on(), (2, Some(true))),
    ] {
        desk.bench.turn(AGAIN);
        desk.tell("vm-a", news);
        desk.pass().await;
        assert_eq!(desk.told(), told);
        assert_eq!(desk.followed(), ["vm-a"]);
    }
    assert_eq!(desk.bench.site.with(|i| i.follows), 6, "once a minute");
}

/// Its login takes minutes: the others are followed, and their news read, within seconds. It is followed itself as soon as it
/// is there.
#[tokio::test(start_paused = true)]
async fn a_vcenter_that_does_not_log_in_holds_up_no_other() {
    let mut desk = Desk::new();
    let hangs = ObjectKey::new(NAMESPACE, "silent");
    desk.bench
        .hub
        .with(|o| o.others = vec![running("b", "silent")]);
    desk.bench.site.with(|i| i.hanging_secrets = vec![hangs]);
    for _ in 0..3 {
        let pass = tokio::time::timeout(Duration::from_secs(3), desk.pass());
        let verdict = pass.await.expect("it does not wait for that");
        assert_eq!(desk.followed(), ["vm-a"]);
        assert_eq!(verdict.waiting_on.len(), 1);
        let again = verdict.again.expect("it asks again");
        assert!(again <= SOON, "{again:?}");
        desk.bench.turn(again);
    }
    desk.tell("vm-a", VmNews::Gone);
    desk.pass().await;
    assert_eq!(desk.told(), (1, Some(false)));
    desk.bench.site.with(|i| i.hanging_secrets.clear());
    desk.bench.turn(SOON);
    let before = desk.bench.site.with(|i| i.follows);
    let verdict = desk.pass().await;
    assert_eq!(desk.bench.site.with(|i| i.follows), before + 2, "both");
    assert_eq!(verdict.waiting_on, []);
    assert_eq!(verdict.again, Some(AGAIN));
}

/// What it follows already stays followed while the session actor does not answer.
#[tokio::test(start_paused = true)]
async fn who_is_followed_stays_so_while_nobody_hands_out_sessions() {
    let mut desk = Desk::new();
    desk.pass().await;
    let hangs = ObjectKey::new(NAMESPACE, "vcenter");
    desk.bench.site.with(|i| i.hanging_secrets = vec![hangs]);
    desk.bench.turn(AGAIN);
    desk.pass().await;
    assert_eq!(desk.followed(), ["vm-a"]);
}
