//! The session actor with a vCenter that accepts or refuses a password.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent_forge_crds::{Time, conditions::Reason, pool::RefusedCredentials};
use async_trait::async_trait;
use secrecy::SecretString;

use super::{
    client::SessionClient,
    ledger::Ledger,
    login::Login,
    refusals::{Door as PasswordDoor, LOCKOUT},
    *,
};
use crate::{
    domain::{
        failure::{Class, ReconcileError},
        names::ObjectKey,
        server::ServerRule,
    },
    ports::{
        clock::Clock as _,
        cluster::{SecretRead, SecretVersion},
        instruments::NoInstruments,
        sessions::Sessions,
        vcenter::{Credentials, Fault, VcErrorKind, VcResult},
    },
    runtime::mailbox::{Counted, Mailbox},
    testing,
    vm::testing::{
        Turned,
        hub::Hub,
        vcenter::{Site, fault},
    },
};

/// The connection to a vCenter; counts the logins.
struct Door {
    ledger: Mutex<Arc<Ledger>>,
    site: Site,
    shut: AtomicBool,
    /// Its certificate is not the one that the Secret trusts.
    untrusted: AtomicBool,
    /// Logging in panics.
    broken: AtomicBool,
    knocks: AtomicUsize,
    /// What it opened.
    opened: Mutex<Vec<Session>>,
    /// No login ends before the test allows it.
    slow: AtomicBool,
    go_on: tokio::sync::Notify,
}

#[async_trait]
impl Connector for Door {
    async fn connect(&self, credentials: &Credentials) -> VcResult<Session> {
        let login = Login::of(credentials, SecretVersion::default());
        let ledger = self.ledger.lock().expect("the ledger").clone();
        let knock = async {
            self.knocks.fetch_add(1, Ordering::Relaxed);
            if self.slow.load(Ordering::Relaxed) {
                self.go_on.notified().await;
            }
            assert!(!self.broken.load(Ordering::Relaxed), "as told");
            if self.untrusted.load(Ordering::Relaxed) {
                return Err(fault(VcErrorKind::Untrusted));
            }
            if self.shut.load(Ordering::Relaxed) {
                return Err(fault(VcErrorKind::Fault(Fault::InvalidLogin)));
            }
            let session = Arc::new(self.site.clone()) as Session;
            // Another reference to it, like the real connector keeps one.
            let held = Arc::new(self.site.clone()) as Session;
            self.opened.lock().expect("the list").push(held);
            Ok(session)
        };
        ledger.attempt(&login, PasswordDoor::Session, knock).await
    }

    fn open(&self) -> Vec<Session> {
        std::mem::take(&mut *self.opened.lock().expect("the list"))
    }
}

/// Any Secret holds the same credentials of user `u` at `vc.example`.
struct Bench {
    hub: Arc<Hub>,
    door: Arc<Door>,
    clock: Arc<Turned>,
    args: SessionArgs,
}

impl Bench {
    fn new() -> Self {
        let hub = Arc::new(Hub::default());
        let data = [
            ("server", "vc.example"),
            ("username", "u"),
            ("password", "p"),
        ];
        let data = data.map(|(k, v)| (k.to_owned(), SecretString::from(v)));
        hub.with(|o| {
            o.secret = Some(SecretRead {
                pools_from: None,
                version: version("1"),
                data: data.into(),
            });
        });
        let clock = Arc::new(Turned::default());
        let ledger = Arc::new(Ledger::new(clock.clone()));
        let door = Arc::new(Door {
            ledger: Mutex::new(ledger.clone()),
            site: Site::default(),
            shut: AtomicBool::default(),
            untrusted: AtomicBool::default(),
            broken: AtomicBool::default(),
            knocks: AtomicUsize::default(),
            opened: Mutex::default(),
            slow: AtomicBool::default(),
            go_on: tokio::sync::Notify::new(),
        });
        let args = SessionArgs {
            cluster: hub.clone(),
            view: hub.clone(),
            connector: door.clone(),
            clock: clock.clone(),
            instruments: Arc::new(NoInstruments),
            server_rule: ServerRule::default(),
            ledger,
        };
        Self {
            hub,
            door,
            clock,
            args,
        }
    }

    async fn actor(&self) -> ActorRef<SessionMsg> {
        let spawned = Actor::spawn(None, VCenterSessions, self.args.clone()).await;
        spawned.expect("up").0
    }

    fn knocks(&self) -> usize {
        self.door.knocks.load(Ordering::Relaxed)
    }

    /// Puts that on record of a pool.
    fn record(&self, refused: Option<RefusedCredentials>) {
        let mut pool = testing::pool("workers");
        pool.status.get_or_insert_default().refused_credentials = refused;
        self.hub.with(|o| o.pool = Some(pool));
    }

    /// A user writes the Secret again, with the same bytes.
    fn touch(&self, resource_version: &str) {
        self.hub.with(|o| {
            let secret = o.secret.as_mut().expect("a Secret");
            secret.version = version(resource_version);
        });
    }

    /// A user changes the password in vCenter, and the open session has noticed it.
    fn change_password(&self) {
        self.door.shut.store(true, Ordering::Relaxed);
        self.door.site.with(|i| i.login_refused = true);
        let data = self.hub.with(|o| o.secret.clone().expect("a Secret").data);
        let credentials = credentials::parse(&data, &self.args.server_rule).expect("usable");
        let login = Login::of(&credentials, SecretVersion::default());
        let met = fault(VcErrorKind::Fault(Fault::InvalidLogin));
        let _ = self.args.ledger.judged(&login, PasswordDoor::Session, met);
    }

    /// Writes a key of the Secret.
    fn set(&self, key: &str, value: &str) {
        self.hub.with(|o| {
            let secret = o.secret.as_mut().expect("a Secret");
            secret
                .data
                .insert(key.to_owned(), SecretString::from(value));
        });
    }

    /// Another process: of the refusals it knows only those on record.
    async fn next_process(&mut self) -> ActorRef<SessionMsg> {
        let ledger = Arc::new(Ledger::new(self.clock.clone()));
        *self.door.ledger.lock().expect("the ledger") = ledger.clone();
        self.args.ledger = ledger;
        self.actor().await
    }
}

/// A state of the Secret.
fn version(resource_version: &str) -> SecretVersion {
    SecretVersion {
        uid: "secret".to_owned(),
        resource_version: resource_version.to_owned(),
    }
}

fn desk(actor: &ActorRef<SessionMsg>) -> impl Sessions {
    let mailbox = Mailbox::new("sessions", Arc::new(NoInstruments));
    let counted = Counted::new(actor.clone(), mailbox);
    SessionClient(move || Some(counted.clone()))
}

async fn ask(actor: &ActorRef<SessionMsg>, name: &str) -> Result<Session, ReconcileError> {
    ask_from(actor, name, "demo").await
}

async fn ask_from(
    actor: &ActorRef<SessionMsg>,
    name: &str,
    namespace: &str,
) -> Result<Session, ReconcileError> {
    let secret = ObjectKey::new("demo", name);
    desk(actor).session(&secret, namespace).await
}

/// What the pool should record.
async fn refusal(actor: &ActorRef<SessionMsg>, name: &str) -> Option<RefusedCredentials> {
    desk(actor).refusal(&ObjectKey::new("demo", name)).await
}

async fn refused(actor: &ActorRef<SessionMsg>, name: &str) -> ReconcileError {
    ask(actor, name).await.err().expect("refused")
}

#[tokio::test(start_paused = true)]
async fn a_password_changed_in_vcenter_is_told_as_one_that_was_wrong_from_the_start() {
    let never_worked = Bench::new();
    never_worked.door.shut.store(true, Ordering::Relaxed);
    let told_first = refused(&never_worked.actor().await, "one").await;

    let bench = Bench::new();
    let actor = bench.actor().await;
    for name in ["one", "two"] {
        assert!(ask(&actor, name).await.is_ok(), "{name}");
    }
    bench.change_password();
    assert_eq!(refused(&actor, "one").await, told_first);
    for name in ["one", "two", "three"] {
        let told = refused(&actor, name).await;
        assert_eq!(told.reason, Reason::InvalidCredentials);
        for named in ["vc.example", "\"u\"", &format!("demo/{name};")] {
            assert!(told.message.contains(named), "{named}: {told}");
        }
    }
    assert_eq!(bench.knocks(), 1, "the bytes are not tried again");
}

/// The actor dies, as with the debug endpoint, and another one begins with its ledger.
async fn anew(bench: &Bench, actor: ActorRef<SessionMsg>) -> ActorRef<SessionMsg> {
    actor.kill_and_wait(None).await.expect("dead");
    bench.actor().await
}

#[tokio::test(start_paused = true)]
async fn a_death_of_the_actor_is_no_reason_to_try_refused_bytes_again() {
    let bench = Bench::new();
    bench.door.shut.store(true, Ordering::Relaxed);
    let mut actor = bench.actor().await;
    let told = refused(&actor, "one").await;
    for _ in 0..3 {
        actor = anew(&bench, actor).await;
        assert_eq!(refused(&actor, "one").await, told);
        refused(&actor, "two").await;
        assert_eq!(bench.knocks(), 1);
    }
    bench.clock.turn(LOCKOUT);
    actor = anew(&bench, actor).await;
    refused(&actor, "one").await;
    assert_eq!(
        bench.knocks(),
        2,
        "after ten minutes they are tried once more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_that_lost_its_login_is_remembered_beyond_the_actor_too() {
    let bench = Bench::new();
    let mut actor = bench.actor().await;
    assert!(ask(&actor, "one").await.is_ok());
    bench.change_password();
    refused(&actor, "one").await;
    actor = anew(&bench, actor).await;
    refused(&actor, "one").await;
    assert_eq!(bench.knocks(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_leaves_recorded_bytes_alone_for_the_rest_of_the_ten_minutes() {
    let mut bench = Bench::new();
    bench.door.shut.store(true, Ordering::Relaxed);
    let actor = bench.actor().await;
    assert_eq!(refusal(&actor, "one").await, None, "nothing is known yet");
    let told = refused(&actor, "one").await;
    let record = refusal(&actor, "one").await.expect("a record");
    assert_eq!(record.secret_uid, "secret");
    assert_eq!(record.secret_resource_version, "1");
    assert_eq!(record.refused_at, Some(Time(bench.clock.wall())));
    bench.record(Some(record.clone()));
    // An operator that crashes every minute tries once in ten minutes.
    for minute in 1..10 {
        bench.clock.turn(LOCKOUT / 10);
        let actor = bench.next_process().await;
        assert_eq!(refused(&actor, "one").await, told, "minute {minute}");
        let again = refusal(&actor, "one").await;
        assert_eq!(again.as_ref(), Some(&record), "nothing new to write");
        assert_eq!(bench.knocks(), 1, "minute {minute}");
    }
    bench.clock.turn(LOCKOUT / 10);
    let actor = bench.next_process().await;
    refused(&actor, "one").await;
    assert_eq!(bench.knocks(), 2, "the ten minutes are over");
    let anew = refusal(&actor, "one").await.expect("a record");
    assert_eq!(anew.refused_at, Some(Time(bench.clock.wall())));
}

#[tokio::test(start_paused = true)]
async fn a_new_process_tries_a_changed_secret_and_keeps_nothing_of_what_is_taken() {
    let mut bench = Bench::new();
    bench.record(Some(RefusedCredentials {
        refused_at: Some(Time(bench.clock.wall())),
        secret_resource_version: "1".to_owned(),
        secret_uid: "secret".to_owned(),
        ..RefusedCredentials::default()
    }));
    let actor = bench.next_process().await;
    refused(&actor, "one").await;
    assert_eq!(bench.knocks(), 0, "on record");
    // A process that has tried the bytes knows that only the metadata changed. The record follows.
    bench.touch("2");
    bench.clock.turn(table::REFUSED_LOOK);
    refused(&actor, "one").await;
    let record = refusal(&actor, "one").await.expect("a record");
    assert_eq!(record.secret_resource_version, "2");
    assert_eq!(bench.knocks(), 0);
    // Another process cannot know it: it tries bytes that it has no record of.
    let actor = bench.next_process().await;
    assert!(ask(&actor, "one").await.is_ok());
    assert_eq!(bench.knocks(), 1);
    assert_eq!(refusal(&actor, "one").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_lacks_a_key_is_told_as_missing_and_one_with_a_bad_value_as_invalid() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let set = |key: &str, value: &str| bench.set(key, value);
    set("thumbprint", "abc");
    let told = refused(&actor, "one").await;
    assert_eq!(told.reason, Reason::InvalidCredentials);
    assert!(told.message.contains("\"thumbprint\""), "{told}");
    set("username", "");
    set("thumbprint", "");
    let told = refused(&actor, "two").await;
    assert_eq!(told.reason, Reason::SecretNotFound);
    for named in ["demo/two", "\"username\""] {
        assert!(told.message.contains(named), "{named}: {told}");
    }
    bench.hub.with(|o| o.secret = None);
    let told = refused(&actor, "three").await;
    assert_eq!(told.reason, Reason::SecretNotFound);
    assert_eq!(bench.knocks(), 0);
}

/// A pool asks at least every 24 s, and must notice a changed Secret within 30 s. The rest of that time is for other callers
/// that ask in between.
#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_used_is_looked_at_again_and_again() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let held = bench.hub.with(|o| o.secret.take());
    for _ in 0..8 {
        let told = refused(&actor, "one").await;
        assert_eq!(told.reason, Reason::SecretNotFound);
        bench.clock.turn(table::REFUSED_LOOK);
    }
    bench.hub.with(|o| o.secret = held);
    bench.door.untrusted.store(true, Ordering::Relaxed);
    for looks in 1..=8 {
        for _ in 0..3 {
            let told = refused(&actor, "one").await;
            assert_eq!(told.reason, Reason::UntrustedCertificate);
        }
        assert_eq!(bench.knocks(), looks, "one look for all who ask at once");
        bench.clock.turn(table::REFUSED_LOOK);
    }
    bench.door.untrusted.store(false, Ordering::Relaxed);
    assert!(ask(&actor, "one").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_until_the_actor_has_read_it() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let mailbox = Mailbox::new("sessions", Arc::new(NoInstruments));
    let counted = Counted::new(actor, mailbox);
    let desk = SessionClient({
        let counted = counted.clone();
        move || Some(counted.clone())
    });
    let secret = ObjectKey::new("demo", "one");
    let mut asking = Box::pin(desk.session(&secret, "demo"));
    assert!(futures::poll!(&mut asking).is_pending());
    assert_eq!(counted.depth(), 1);
    assert!(asking.await.is_ok());
    assert_eq!(counted.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_vcenter_that_does_not_answer_keeps_no_session_open_at_another() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    for name in ["one", "two"] {
        assert!(ask(&actor, name).await.is_ok(), "{name}");
        bench.set("password", "another");
    }
    bench.door.site.with(|i| i.silent_logouts = 1);
    let patience = Duration::from_secs(5);
    let asked = actor.call(SessionMsg::LogOut, Some(patience)).await;
    assert!(matches!(asked, Ok(ractor::rpc::CallResult::Timeout)));
    assert_eq!(bench.door.site.with(|i| i.logouts), 1);
}

/// Each read finds other bytes, as when a user guesses, or when several Secrets of one user are wrong.
#[tokio::test(start_paused = true)]
async fn other_bytes_in_other_secrets_are_tried_twice_and_told_when_the_next_time_is() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    assert!(ask(&actor, "good").await.is_ok());
    bench.door.shut.store(true, Ordering::Relaxed);
    let began = bench.clock.wall();
    for n in 0..20 {
        bench.set("password", &n.to_string());
        refused(&actor, &format!("guess-{n}")).await;
        bench.clock.turn(Duration::from_secs(10));
    }
    assert_eq!(bench.knocks(), 3, "the good one, and two guesses");
    let told = refused(&actor, "guess-19").await;
    assert_eq!(told.reason, Reason::LoginLimited);
    let next = jiff::SignedDuration::from_secs(600);
    let next = began.checked_add(next).expect("a time").to_string();
    for named in [next.as_str(), "\"u\"", "vc.example", "demo/guess-19"] {
        assert!(told.message.contains(named), "{named}: {told}");
    }
    assert_eq!(
        refusal(&actor, "guess-19").await,
        None,
        "nothing was refused"
    );
    // Bytes that opened a session before are not blocked. Right bytes are accepted when their time has come.
    bench.door.shut.store(false, Ordering::Relaxed);
    bench.set("password", "p");
    assert!(ask(&actor, "good").await.is_ok());
    bench.set("password", "right");
    bench.clock.turn(Duration::from_secs(399));
    refused(&actor, "guess-19").await;
    bench.clock.turn(table::REFUSED_LOOK);
    assert!(ask(&actor, "guess-19").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_process_counts_what_others_were_refused() {
    let mut bench = Bench::new();
    bench.door.shut.store(true, Ordering::Relaxed);
    let actor = bench.actor().await;
    refused(&actor, "one").await;
    let record = refusal(&actor, "one").await.expect("a record");
    assert_eq!(record.account.as_deref(), Some("u@vc.example"));
    bench.record(Some(record));
    let actor = bench.next_process().await;
    for (n, knocks) in [(1, 2), (2, 2)] {
        bench.set("password", &n.to_string());
        bench.touch(&format!("changed-{n}"));
        refused(&actor, &format!("other-{n}")).await;
        assert_eq!(bench.knocks(), knocks, "Secret {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_another_namespace_has_to_admit_the_pool() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let admit = |pools_from: Option<&str>| {
        bench.hub.with(|o| {
            let secret = o.secret.as_mut().expect("a Secret");
            secret.pools_from = pools_from.map(str::to_owned);
        });
    };
    let told = ask_from(&actor, "one", "tenant").await.err();
    let told = told.expect("refused");
    assert_eq!(told.reason, Reason::SecretNamespaceRefused);
    for named in ["demo/one", "\"tenant\"", "allow-pools-from: tenant"] {
        assert!(told.message.contains(named), "{named}: {told}");
    }
    assert_eq!(bench.knocks(), 0, "nobody logs in for it");
    // The same text if the Secret does not exist: other namespaces must not learn that.
    let held = bench.hub.with(|o| o.secret.take());
    bench.clock.turn(table::REFUSED_LOOK);
    assert_eq!(ask_from(&actor, "one", "tenant").await.err(), Some(told));
    bench.hub.with(|o| o.secret = held);

    admit(Some("x, tenant"));
    bench.clock.turn(table::REFUSED_LOOK);
    assert!(ask_from(&actor, "one", "tenant").await.is_ok());
    assert!(ask_from(&actor, "one", "other").await.is_err());
    assert!(ask(&actor, "one").await.is_ok());
    // A withdrawn permission ends with the next read of the Secret. Pools of its own namespace continue.
    admit(None);
    bench.clock.turn(table::FRESH);
    assert!(ask(&actor, "one").await.is_ok());
    assert!(ask_from(&actor, "one", "tenant").await.is_err());
    assert_eq!(bench.knocks(), 1);
}

/// Logouts so far.
fn logouts(bench: &Bench) -> usize {
    bench.door.site.with(|i| i.logouts)
}

#[tokio::test(start_paused = true)]
async fn other_bytes_in_the_secret_close_the_session_of_the_old_ones_once_nobody_works_with_it() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let works = ask(&actor, "one").await.ok();
    assert!(works.is_some() && ask(&actor, "two").await.is_ok());
    bench.set("password", "another");
    bench.clock.turn(table::FRESH);
    assert!(ask(&actor, "one").await.is_ok());
    assert_eq!(
        (bench.knocks(), logouts(&bench)),
        (2, 0),
        "two is not read yet"
    );
    assert!(ask(&actor, "two").await.is_ok());
    assert_eq!(
        (bench.knocks(), logouts(&bench)),
        (2, 0),
        "a pass works with it"
    );
    drop(works);
    assert!(ask(&actor, "one").await.is_ok());
    assert_eq!((bench.knocks(), logouts(&bench)), (2, 1));
    // The old bytes open a session again, and the other one is closed.
    bench.set("password", "p");
    bench.clock.turn(table::FRESH);
    for name in ["one", "two", "one"] {
        assert!(ask(&actor, name).await.is_ok(), "{name}");
    }
    assert_eq!((bench.knocks(), logouts(&bench)), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_keeps_its_session_on_the_books() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    assert!(ask(&actor, "one").await.is_ok());
    bench.hub.with(|o| o.secrets_away = true);
    for _ in 0..4 {
        bench.clock.turn(table::FRESH);
        assert!(ask(&actor, "one").await.is_err());
    }
    assert_eq!(logouts(&bench), 0);
    bench.hub.with(|o| o.secrets_away = false);
    bench.clock.turn(table::FRESH);
    assert!(ask(&actor, "one").await.is_ok());
    assert_eq!(
        (bench.knocks(), logouts(&bench)),
        (1, 0),
        "the same session"
    );
    // Its content is known again: it is gone.
    bench.hub.with(|o| o.secret = None);
    bench.clock.turn(table::FRESH);
    assert!(ask(&actor, "one").await.is_err());
    assert_eq!(logouts(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_closes_what_an_earlier_actor_opened_and_what_is_being_opened() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    assert!(ask(&actor, "one").await.is_ok());
    let actor = anew(&bench, actor).await;
    bench.set("password", "another");
    bench.door.slow.store(true, Ordering::Relaxed);
    let mut opening = Box::pin(ask(&actor, "two"));
    while bench.knocks() < 2 {
        assert!(futures::poll!(&mut opening).is_pending());
        tokio::task::yield_now().await;
    }
    let mut end = Box::pin(actor.call(SessionMsg::LogOut, Some(Duration::from_secs(5))));
    while logouts(&bench) < 1 {
        assert!(
            futures::poll!(&mut end).is_pending(),
            "a login is under way"
        );
        tokio::task::yield_now().await;
    }
    bench.door.go_on.notify_one();
    assert!(matches!(
        end.await,
        Ok(ractor::rpc::CallResult::Success(()))
    ));
    assert_eq!(logouts(&bench), 2);
    drop(opening);
    assert!(
        ask(&actor, "three").await.is_err(),
        "nothing more is opened"
    );
    assert_eq!(bench.knocks(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_panics_ends_the_actor_and_keeps_nobody_waiting() {
    let bench = Bench::new();
    let spawned = Actor::spawn(None, VCenterSessions, bench.args.clone()).await;
    let (actor, ended) = spawned.expect("up");
    bench.door.broken.store(true, Ordering::Relaxed);
    let asked_at = tokio::time::Instant::now();
    let told = refused(&actor, "one").await;
    assert_eq!(told.class, Class::Transient, "{told}");
    ended.await.expect("an orderly end");
    assert_eq!(asked_at.elapsed(), Duration::ZERO);
}
