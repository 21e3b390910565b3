//! What a pool records of credentials that vCenter refused, for the next process.

use agent_forge_crds::{Time, pool::RefusedCredentials};

use super::*;

/// The pool of a bench, pass by pass.
struct Passes {
    bench: Bench,
    memory: Memory,
}

impl Passes {
    fn new() -> Self {
        let bench = Bench::new();
        // Its writes are newer than what the cache shows.
        bench.hub.with(|o| o.version = 10);
        Self {
            bench,
            memory: Memory::default(),
        }
    }

    async fn next(&mut self) {
        let isos = Told::new(IsoState::Fetching {
            done: 0,
            total: None,
            rate: None,
        });
        let key = ObjectKey::new(NAMESPACE, POOL);
        let memory = std::mem::take(&mut self.memory);
        (self.memory, _) = run(self.bench.context.clone(), isos, key, memory).await;
    }

    /// Runs passes until there is nothing left to write.
    async fn settle(&mut self) {
        for _ in 0..10 {
            self.next().await;
            self.bench.turn(QUIET_WRITES);
        }
    }

    /// `yes`: vCenter refuses the Secret's login, and `known` is known of that. Otherwise vCenter accepts the login.
    fn refuse(&self, yes: bool, known: Option<&RefusedCredentials>) {
        let secret = ObjectKey::new(NAMESPACE, "vcenter");
        self.bench.site.with(|i| {
            i.refused_secrets = Vec::from_iter(yes.then_some(secret));
            i.refusal = known.cloned();
        });
    }

    fn names_secret_in(&self, namespace: Option<&str>) {
        self.bench.hub.with(|o| {
            let spec = &mut o.pool.as_mut().expect("a pool").spec;
            spec.vsphere.credentials_secret_ref.namespace = namespace.map(str::to_owned);
        });
    }

    fn recorded(&self) -> Option<RefusedCredentials> {
        let shown = self.bench.hub.with(|o| o.pool.clone());
        shown.and_then(|pool| pool.status)?.refused_credentials
    }
}

fn record(second: i64) -> RefusedCredentials {
    RefusedCredentials {
        refused_at: Some(Time(at(second))),
        secret_resource_version: "7".to_owned(),
        secret_uid: "secret".to_owned(),
        ..RefusedCredentials::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_recorded_at_once_stays_in_doubt_and_goes_with_a_login() {
    let mut pool = Passes::new();
    pool.settle().await;
    assert_eq!(pool.recorded(), None);
    pool.refuse(true, Some(&record(1)));
    pool.next().await;
    assert_eq!(pool.recorded(), Some(record(1)));
    pool.settle().await;
    assert_eq!(pool.recorded(), Some(record(1)));

    // Ten minutes later the condition is the same. The new time must be written, because the process may die.
    pool.refuse(true, Some(&record(601)));
    pool.next().await;
    assert_eq!(pool.recorded(), Some(record(601)));
    // The session actor has just begun and has not read the Secret.
    pool.refuse(true, None);
    pool.settle().await;
    assert_eq!(pool.recorded(), Some(record(601)));
    // A spec that names no readable Secret gives no login either.
    pool.names_secret_in(Some("vault"));
    pool.settle().await;
    assert_eq!(pool.recorded(), Some(record(601)));
    pool.names_secret_in(None);
    pool.refuse(false, None);
    pool.next().await;
    assert_eq!(pool.recorded(), None);
}
