//! Events about the pool: when, once, and on which object.

use agent_forge_crds::{
    conditions::Reason,
    external::agent_machine::{AGENT_NOT_YET_FOUND, AGENT_RESERVED},
};

use super::*;
use crate::{
    domain::trace::TraceId,
    ports::cluster::ClusterErrorKind,
    testing::{CONTROL_PLANE, agent_machine, condition, machine},
};

const SECOND: Duration = Duration::from_secs(1);

/// A pool actor on the bench of the VM actors. Its AgentMachine `a` waits, and there is no VsphereAgent.
struct Pool {
    bench: Bench,
    isos: Arc<Told>,
    memory: Memory,
}

fn file(path: &str, reused: bool) -> IsoState {
    let file = IsoFile {
        sha256: "ab".repeat(32),
        path: DatastorePath::new("isos", path).expect("a path"),
        size: 7,
        uploaded_at: at(0),
        validators: Validators::default(),
        volatile: false,
    };
    ready(file, reused)
}

impl Pool {
    fn new() -> Self {
        let bench = Bench::new();
        bench.hub.with(|o| o.child = None);
        let fetching = IsoState::Fetching {
            done: 0,
            total: None,
            rate: None,
        };
        Self {
            bench,
            isos: Told::new(fetching),
            memory: Memory::default(),
        }
    }

    fn iso(&self, state: IsoState) {
        *self.isos.state.lock().expect("lock") = state;
    }

    /// The next write of this kind fails with that error.
    fn fails(&self, write: EffectKind, how: ClusterErrorKind) {
        self.bench.hub.with(|o| o.fails.insert(write, how));
    }

    /// One pass, a second after the one before.
    async fn pass(&mut self) {
        self.bench.turn(SECOND);
        let memory = std::mem::take(&mut self.memory);
        let key = ObjectKey::new(NAMESPACE, POOL);
        let context = self.bench.context.clone();
        (self.memory, _) = run(context, self.isos.clone(), key, memory).await;
    }

    /// Notes of the Events with that reason. All of them are about the pool. `warning`: whether they are warnings.
    fn told(&self, reason: &str, warning: bool) -> Vec<String> {
        let all = self.bench.hub.with(|o| o.notices.clone());
        let of_it = all.into_iter().filter(|n| n.reason == reason);
        of_it
            .map(|n| {
                let about = (n.regarding.kind.as_str(), n.regarding.uid.as_str());
                assert_eq!(about, ("VsphereAgentPool", "pool-workers"), "{n:?}");
                assert_eq!(n.regarding.key, ObjectKey::new(NAMESPACE, POOL));
                assert_eq!(n.warning, warning, "{n:?}");
                n.note
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_was_carried_out_is_told_with_what_was_done() {
    let mut pool = Pool::new();
    pool.pass().await;
    let none: [&str; 0] = [];
    assert_eq!(pool.told(event::PLAN_APPLIED, false), none, "debouncing");
    for _ in 0..4 {
        pool.pass().await;
    }
    let made = "VsphereAgents: 1 created, 0 reassigned, 0 released";
    assert_eq!(pool.told(event::PLAN_APPLIED, false), [made]);
    // Machine and AgentMachine are deleted. Their VsphereAgent is released after no other AgentMachine took its VM
    // over.
    pool.bench.hub.with(|o| {
        o.child = Some(crate::testing::child("a"));
        o.agent_machines.clear();
        o.machines.clear();
    });
    for _ in 0..15 {
        pool.pass().await;
    }
    let released = "VsphereAgents: 0 created, 0 reassigned, 1 released";
    assert_eq!(pool.told(event::PLAN_APPLIED, false), [made, released]);
    assert_eq!(pool.told(event::APPLY_PLAN_FAILED, true), none);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_fails_is_told_once_until_it_works_again() {
    let mut pool = Pool::new();
    pool.pass().await;
    // A write conflict is no failure.
    pool.fails(EffectKind::CreateChild, ClusterErrorKind::Conflict);
    pool.pass().await;
    let failures = |pool: &Pool| pool.told(event::APPLY_PLAN_FAILED, true).len();
    assert_eq!(failures(&pool), 0);
    for _ in 0..3 {
        pool.fails(EffectKind::CreateChild, ClusterErrorKind::Invalid);
        pool.pass().await;
    }
    let said = pool.told(event::APPLY_PLAN_FAILED, true);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("as told"), "{said:?}");
    // The write succeeds now. The Event comes when nothing more was done for a moment.
    for _ in 0..3 {
        pool.pass().await;
    }
    assert_eq!(pool.told(event::PLAN_APPLIED, false).len(), 1);

    pool.bench.hub.with(|o| {
        o.agent_machines.push(agent_machine("b"));
        o.machines.push(machine("b"));
    });
    pool.pass().await;
    assert_eq!(failures(&pool), 1);
    pool.fails(EffectKind::CreateChild, ClusterErrorKind::Invalid);
    pool.pass().await;
    assert_eq!(failures(&pool), 2, "it had worked meanwhile");
}

#[tokio::test(start_paused = true)]
async fn an_iso_is_told_when_it_lies_somewhere_new() {
    let mut pool = Pool::new();
    pool.pass().await;
    let none: [&str; 0] = [];
    assert_eq!(pool.told(event::ISO_UPLOADED, false), none, "on its way");
    pool.iso(file("agent-forge/new.iso", false));
    for _ in 0..3 {
        pool.pass().await;
    }
    let uploaded = "[isos] agent-forge/new.iso (7 bytes)";
    assert_eq!(pool.told(event::ISO_UPLOADED, false), [uploaded]);
    assert_eq!(pool.told(event::ISO_REUSED, false), none);
    pool.iso(file("agent-forge/found.iso", true));
    for _ in 0..3 {
        pool.pass().await;
    }
    let reused = "[isos] agent-forge/found.iso (7 bytes)";
    assert_eq!(pool.told(event::ISO_REUSED, false), [reused]);
    assert_eq!(pool.told(event::ISO_UPLOADED, false), [uploaded]);
    // For an actor that starts, what is already on record is no news.
    pool.memory = Memory::default();
    pool.pass().await;
    assert_eq!(pool.told(event::ISO_REUSED, false), [reused]);
}

#[tokio::test(start_paused = true)]
async fn an_iso_that_could_not_be_removed_is_named_with_why() {
    let mut pool = Pool::new();
    let old = DatastorePath::new("isos", "agent-forge/old.iso").expect("a path");
    pool.iso(match file("agent-forge/x.iso", true) {
        IsoState::Ready {
            file,
            reused,
            pruned,
            ..
        } => IsoState::Ready {
            file,
            reused,
            pruned,
            prune_failures: vec![(old, "VM theirs has it".to_owned())],
        },
        other => other,
    });
    pool.pass().await;
    let said = pool.told(event::ISO_PRUNE_FAILED, true);
    assert_eq!(said, ["[isos] agent-forge/old.iso: VM theirs has it"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_infra_env_is_told_once() {
    let mut pool = Pool::new();
    pool.pass().await;
    let said = |pool: &Pool| pool.told(event::INFRA_ENV_UNAVAILABLE, true);
    assert_eq!(said(&pool).len(), 0);
    pool.bench.hub.with(|o| o.infra_env_is_gone = true);
    for _ in 0..3 {
        pool.pass().await;
    }
    let missing = "InfraEnv demo/infra does not exist";
    assert_eq!(said(&pool), [missing]);
    // It comes back, and disappears a second time.
    pool.bench.hub.with(|o| o.infra_env_is_gone = false);
    pool.pass().await;
    assert_eq!(said(&pool), [missing]);
    pool.bench.hub.with(|o| o.infra_env_is_gone = true);
    for _ in 0..3 {
        pool.pass().await;
    }
    assert_eq!(said(&pool), [missing; 2]);
}

#[tokio::test(start_paused = true)]
async fn an_infra_env_is_looked_at_whatever_the_secret_is_worth() {
    let mut pool = Pool::new();
    pool.bench.hub.with(|o| {
        o.infra_env_is_gone = true;
        let spec = &mut o.pool.as_mut().expect("a pool").spec;
        spec.vsphere.credentials_secret_ref.namespace = Some("vault".to_owned());
    });
    for _ in 0..3 {
        pool.pass().await;
    }
    assert_eq!(pool.told(event::INFRA_ENV_UNAVAILABLE, true).len(), 1);
    let status = pool.bench.hub.with(|o| o.pool.clone()).expect("a pool");
    let all = status.status.expect("a status").conditions;
    for (type_, reason) in [
        (conditions::INFRA_ENV_AVAILABLE, Reason::InfraEnvNotFound),
        (conditions::VSPHERE_READY, Reason::SecretNamespaceRefused),
    ] {
        let said = find_condition(&all, type_).expect(type_);
        assert_eq!(
            (said.status.as_str(), said.reason.as_str().into()),
            ("False", reason)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_provider_cannot_look_for_an_agent_is_told_so_once_it_has_lasted() {
    let mut pool = Pool::new();
    pool.bench.hub.with(|o| {
        let mut failed = condition(AGENT_RESERVED, "False", AGENT_NOT_YET_FOUND);
        failed.message = Some("no clusterDeploymentRef".to_owned());
        let status = o.agent_machines[0].status.get_or_insert_default();
        status.conditions = vec![failed];
    });
    let told = |pool: &Pool| -> Vec<_> {
        let all = pool.bench.hub.with(|o| o.notices.clone()).into_iter();
        all.filter(|n| n.reason == event::WAITING_FOR_HOST)
            .collect()
    };
    // A problem that ends within half a minute is not announced.
    for _ in 0..30 {
        pool.pass().await;
    }
    assert_eq!(told(&pool), []);
    for _ in 0..60 {
        pool.pass().await;
    }
    let said = told(&pool);
    let [one] = &said[..] else { panic!("{said:?}") };
    let about = (one.regarding.kind.as_str(), one.regarding.uid.as_str());
    assert_eq!(about, ("AgentMachine", "am-a"));
    assert_eq!(one.regarding.key, ObjectKey::new(CONTROL_PLANE, "a"));
    assert!(one.warning && one.note.starts_with("AgentSearchFailed: "));
    let trace = TraceId::of_machine("am-a").to_string();
    for words in ["no clusterDeploymentRef", trace.as_str()] {
        assert!(one.note.contains(words), "{one:?}");
    }
}
