//! The session actor with a vCenter that takes a password or refuses it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use secrecy::SecretString;

use super::{refusals::LOCKOUT, *};
use crate::{
    actor::mailbox::Mailbox,
    ports::instruments::NoInstruments,
    vm::bench::{
        Turned,
        hub::Hub,
        vcenter::{Site, fault},
    },
};

/// The way to a vCenter; counts who knocks.
#[derive(Default)]
struct Door {
    site: Site,
    shut: AtomicBool,
    knocks: AtomicUsize,
}

#[async_trait]
impl Connector for Door {
    async fn connect(&self, _: &Credentials) -> VcResult<Session> {
        self.knocks.fetch_add(1, Ordering::Relaxed);
        if self.shut.load(Ordering::Relaxed) {
            return Err(fault(VcErrorKind::Fault(Fault::InvalidLogin)));
        }
        Ok(Arc::new(self.site.clone()))
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
        hub.with(|o| o.secret = Some(data.into()));
        let (door, clock) = (Arc::new(Door::default()), Arc::new(Turned::default()));
        let args = SessionArgs {
            cluster: hub.clone(),
            connector: door.clone(),
            clock: clock.clone(),
            instruments: Arc::new(NoInstruments),
            allow_http: false,
            refusals: Arc::default(),
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
}

async fn ask(actor: &ActorRef<SessionMsg>, name: &str) -> Result<Session, Trouble> {
    let desk = SessionDesk({
        let mailbox = Mailbox::new("sessions", Arc::new(NoInstruments));
        let counted = Counted::new(actor.clone(), mailbox);
        move || Some(counted.clone())
    });
    desk.session(&ObjectKey::new("demo", name)).await
}

async fn refused(actor: &ActorRef<SessionMsg>, name: &str) -> Trouble {
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
    bench.door.shut.store(true, Ordering::Relaxed);
    bench.door.site.with(|i| i.login_refused = true);
    assert_eq!(refused(&actor, "one").await, told_first);
    for name in ["one", "two", "three"] {
        let told = refused(&actor, name).await;
        assert_eq!(told.reason, reason::INVALID_CREDENTIALS);
        for named in ["vc.example", "\"u\"", &format!("demo/{name};")] {
            assert!(told.message.contains(named), "{named}: {told}");
        }
    }
    assert_eq!(bench.knocks(), 1, "the bytes are not tried again");
}

/// The actor dies, as by the debug endpoint, and another begins with what it left.
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
    bench.door.shut.store(true, Ordering::Relaxed);
    bench.door.site.with(|i| i.login_refused = true);
    refused(&actor, "one").await;
    actor = anew(&bench, actor).await;
    refused(&actor, "one").await;
    assert_eq!(bench.knocks(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_lacks_a_key_is_told_as_missing_and_one_with_a_bad_value_as_invalid() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let set = |key: &str, value: &str| {
        bench.hub.with(|o| {
            let data = o.secret.as_mut().expect("a Secret");
            data.insert(key.to_owned(), SecretString::from(value));
        });
    };
    set("thumbprint", "abc");
    let told = refused(&actor, "one").await;
    assert_eq!(told.reason, reason::INVALID_CREDENTIALS);
    assert!(told.message.contains("\"thumbprint\""), "{told}");
    set("username", "");
    set("thumbprint", "");
    let told = refused(&actor, "two").await;
    assert_eq!(told.reason, reason::SECRET_NOT_FOUND);
    for named in ["demo/two", "\"username\""] {
        assert!(told.message.contains(named), "{named}: {told}");
    }
    bench.hub.with(|o| o.secret = None);
    let told = refused(&actor, "three").await;
    assert_eq!(told.reason, reason::SECRET_NOT_FOUND);
    assert_eq!(bench.knocks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_until_the_actor_has_read_it() {
    let bench = Bench::new();
    let actor = bench.actor().await;
    let mailbox = Mailbox::new("sessions", Arc::new(NoInstruments));
    let counted = Counted::new(actor, mailbox);
    let desk = SessionDesk({
        let counted = counted.clone();
        move || Some(counted.clone())
    });
    let secret = ObjectKey::new("demo", "one");
    let mut asking = Box::pin(desk.session(&secret));
    assert!(futures::poll!(&mut asking).is_pending());
    assert_eq!(counted.depth(), 1);
    assert!(asking.await.is_ok());
    assert_eq!(counted.depth(), 0);
}
