//! Live news: the vCenters report changes of running VMs, and their VM actors look at once.
//!
//! A pass tells each vCenter session which recorded VMs to report. What a session reports waits in the inbox until the next
//! pass. A VM actor gets a number for its VM and a wake. It then looks at its VM itself: news are never acted on.
//!
//! Guarantees
//! - Only VMs that are recorded as running are followed. What the operator does itself before is no news.
//! - A VM that runs as recorded costs nothing. One that changed while nobody listened is told after the restart.

mod judge;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::watch;

use self::judge::{Followed, followed, is_news};
use crate::{
    context::{Context, NewsOfVms, VmNote},
    domain::names::ObjectKey,
    ports::{
        instruments::Instruments,
        sessions::NewsWaker,
        vcenter::{Listener, VCenter, VmNews, VmSight},
    },
    runtime::shell::{Verdict, Worker},
};

/// Time in which news gather.
const GATHER: Duration = Duration::from_millis(100);
/// How often the sessions are told again which VMs to report.
const AGAIN: Duration = Duration::from_secs(60);

/// What sessions reported and no pass has read: vCenter, reference, news.
type Inbox = Arc<Mutex<Vec<(String, String, VmNews)>>>;

/// What it remembers between passes.
#[derive(Default)]
pub struct Memory {
    inbox: Inbox,
    /// How each VM was when it was last told, by vCenter and reference.
    sights: BTreeMap<(String, String), VmSight>,
    /// The number of the last news.
    last: u64,
    /// The VMs that were given to the sessions, and when (monotonic).
    given: Option<(BTreeSet<Followed>, Duration)>,
    /// The sessions that report VMs.
    sessions: Vec<Weak<dyn VCenter>>,
}

/// Reads the news of all vCenters.
pub struct NewsDesk {
    /// Ports.
    pub context: Context,
    /// Publishes the notes.
    pub notes: Arc<watch::Sender<NewsOfVms>>,
    /// Wakes this actor and VM actors.
    pub waker: Arc<dyn NewsWaker>,
}

impl Worker for NewsDesk {
    type Memory = Memory;

    fn kind(&self) -> &'static str {
        "news"
    }

    fn key(&self) -> String {
        String::new()
    }

    fn instruments(&self) -> &dyn Instruments {
        self.context.instruments.as_ref()
    }

    fn debounce(&self) -> Duration {
        GATHER
    }

    fn pass(&self, memory: Memory) -> BoxFuture<'static, (Memory, Verdict)> {
        let waker = Arc::clone(&self.waker);
        let pass = Pass {
            context: self.context.clone(),
            notes: Arc::clone(&self.notes),
            waker,
        };
        Box::pin(pass.run(memory))
    }
}

struct Pass {
    context: Context,
    notes: Arc<watch::Sender<NewsOfVms>>,
    waker: Arc<dyn NewsWaker>,
}

impl Pass {
    async fn run(self, mut memory: Memory) -> (Memory, Verdict) {
        let mut verdict = Verdict {
            again: Some(AGAIN),
            ..Verdict::default()
        };
        if !self.context.view.ready() {
            return (memory, verdict);
        }
        let view = self.context.view.as_ref();
        let all = followed(view, &self.context.settings.secret_namespaces);
        self.read(&mut memory, &all);
        let now = self.context.clock.monotonic();
        let old = |at: Duration| now.saturating_sub(at) >= AGAIN;
        let given = memory.given.as_ref();
        if given.is_none_or(|(given, at)| *given != all || old(*at)) {
            self.give(&mut memory, &all, &mut verdict).await;
            memory.given = verdict.waiting_on.is_empty().then_some((all, now));
        }
        (memory, verdict)
    }

    /// Reads the inbox: VM actors are told what is news to them.
    fn read(&self, memory: &mut Memory, all: &BTreeSet<Followed>) {
        let mut inbox = memory.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let told: Vec<_> = inbox.drain(..).collect();
        drop(inbox);
        let by_place: BTreeMap<(&str, &str), &ObjectKey> = all
            .iter()
            .map(|f| ((f.server.as_str(), f.moref.as_str()), &f.key))
            .collect();
        memory
            .sights
            .retain(|(server, vm), _| by_place.contains_key(&(server.as_str(), vm.as_str())));
        self.notes.send_if_modified(|notes| {
            let count = |notes: &NewsOfVms| notes.values().map(BTreeMap::len).sum::<usize>();
            let before = count(notes);
            for (server, vms) in notes.iter_mut() {
                vms.retain(|vm, _| by_place.contains_key(&(server.as_str(), vm.as_str())));
            }
            count(notes) != before
        });
        for (server, vm, news) in told {
            let found = by_place.get(&(server.as_str(), vm.as_str())).copied();
            let Some(key) = found else {
                continue;
            };
            let place = (server.clone(), vm.clone());
            let before = match &news {
                VmNews::There(sight) => memory.sights.insert(place, sight.clone()),
                VmNews::Gone => memory.sights.remove(&place),
            };
            if !is_news(before.as_ref(), &news) {
                continue;
            }
            tracing::info!(server, vm, object = %key, ?news, "vCenter reports a change of a running VM");
            memory.last += 1;
            let note = VmNote {
                number: memory.last,
                runs: matches!(&news, VmNews::There(sight) if sight.runs()),
            };
            self.notes.send_modify(|notes| {
                let vms = notes.entry(server.clone()).or_default();
                vms.insert(vm.clone(), note);
            });
            self.waker.wake_vm(key, "vcenter");
        }
    }

    /// Tells the sessions which VMs to report.
    async fn give(&self, memory: &mut Memory, all: &BTreeSet<Followed>, verdict: &mut Verdict) {
        let mut users: BTreeMap<(&ObjectKey, &str), Vec<&Followed>> = BTreeMap::new();
        for vm in all {
            let user = (&vm.secret, vm.key.namespace.as_str());
            users.entry(user).or_default().push(vm);
        }
        // Two Secrets with the same content share one session.
        let mut sessions: Vec<(Arc<dyn VCenter>, BTreeSet<String>)> = Vec::new();
        for ((secret, namespace), vms) in users {
            let session = match self.context.sessions.session(secret, namespace).await {
                Ok(session) => session,
                Err(trouble) => {
                    verdict.waiting_on.push((trouble.reason, trouble.message));
                    continue;
                }
            };
            // A VM that was made in another vCenter is not looked for in this one.
            let here = vms.iter().filter(|vm| vm.server == session.server());
            let here = here.map(|vm| vm.moref.clone());
            match sessions.iter_mut().find(|(s, _)| is_same(s, &session)) {
                Some((_, all)) => all.extend(here),
                None => sessions.push((session.clone(), here.collect())),
            }
        }
        for before in memory.sessions.drain(..).filter_map(|s| s.upgrade()) {
            if !sessions.iter().any(|(s, _)| is_same(s, &before)) {
                before.follow(BTreeSet::new(), self.listener(&memory.inbox, &before));
            }
        }
        for (session, vms) in sessions {
            session.follow(vms, self.listener(&memory.inbox, &session));
            memory.sessions.push(Arc::downgrade(&session));
        }
    }

    fn listener(&self, inbox: &Inbox, session: &Arc<dyn VCenter>) -> Listener {
        let (inbox, waker) = (Arc::clone(inbox), Arc::clone(&self.waker));
        let server = session.server().to_owned();
        Listener::new(move |vm, news| {
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.push((server.clone(), vm.to_owned(), news));
            waker.wake_news();
        })
    }
}

fn is_same(a: &Arc<dyn VCenter>, b: &Arc<dyn VCenter>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
