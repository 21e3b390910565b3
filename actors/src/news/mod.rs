//! Live news: the vCenters report changes of running VMs, and their VM actors look at once.
//!
//! A pass tells each vCenter session which recorded VMs to report. What a session reports waits in the inbox until the next
//! pass. A VM actor gets a number for its VM and a wake. It then looks at its VM itself: news are never acted on.
//!
//! Guarantees
//! - Only VMs that are recorded as running are followed. What the operator does itself before is no news.
//! - A VM that runs as recorded costs nothing. One that changed while nobody listened is told after the restart.
//! - A vCenter that does not answer delays the news of others by [`LOGIN_WITHIN`] at most.
//! - A VM that was gone and is back under its reference is told.

mod judge;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use agent_forge_crds::conditions::Reason;
use futures::future::BoxFuture;
use tokio::sync::watch;

use self::judge::{Followed, followed, is_news};
use crate::{
    context::{Context, NewsOfVms, VmNote},
    domain::names::ObjectKey,
    ports::{
        instruments::Instruments,
        sessions::NewsWaker,
        vcenter::{Listener, VCenter, VmNews},
    },
    runtime::shell::{Verdict, Worker},
};

/// Time in which news gather.
const GATHER: Duration = Duration::from_millis(100);
/// How often the sessions are told again which VMs to report.
const AGAIN: Duration = Duration::from_secs(60);
/// The same while a login takes longer than [`LOGIN_WITHIN`], or while the view is not ready: nothing wakes this actor then.
const SOON: Duration = Duration::from_secs(2);
/// The same while there is no session for another reason.
const IN_TROUBLE: Duration = Duration::from_secs(10);
/// How long a pass waits for sessions. The others' news wait meanwhile. A login that takes longer goes on without the pass.
const LOGIN_WITHIN: Duration = Duration::from_secs(1);

/// What sessions reported and no pass has read: vCenter, reference, news.
type Inbox = Arc<Mutex<Vec<(String, String, VmNews)>>>;

/// What it remembers between passes.
#[derive(Default)]
pub struct Memory {
    inbox: Inbox,
    /// What was last told of each VM, by vCenter and reference.
    sights: BTreeMap<(String, String), VmNews>,
    /// The number of the last news.
    last: u64,
    /// The VMs that were given to the sessions, and when (monotonic) they are given again.
    given: Option<(BTreeSet<Followed>, Duration)>,
    /// The sessions that report VMs.
    sessions: Vec<Weak<dyn VCenter>>,
    /// Why there was no session when the VMs were given: reason and sentence.
    lacking: Vec<(Reason, String)>,
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
            verdict.again = Some(SOON);
            return (memory, verdict);
        }
        let view = self.context.view.as_ref();
        let all = followed(view, &self.context.settings.secret_namespaces);
        self.read(&mut memory, &all);
        let now = self.context.clock.monotonic();
        let given = memory.given.as_ref();
        if given.is_none_or(|(given, due)| *given != all || *due <= now) {
            let again = self.give(&mut memory, &all).await;
            memory.given = Some((all, now + again));
        }
        let due = memory.given.as_ref().map_or(now, |(_, due)| *due);
        verdict.again = Some(due.saturating_sub(now).clamp(GATHER, AGAIN));
        verdict.waiting_on.clone_from(&memory.lacking);
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
            let before = memory.sights.insert(place, news.clone());
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

    /// Tells the sessions which VMs to report. Returns when to do that again. All logins are asked for at once: none holds up
    /// another vCenter.
    async fn give(&self, memory: &mut Memory, all: &BTreeSet<Followed>) -> Duration {
        let mut users: BTreeMap<(&ObjectKey, &str), Vec<&Followed>> = BTreeMap::new();
        for vm in all {
            let user = (&vm.secret, vm.key.namespace.as_str());
            users.entry(user).or_default().push(vm);
        }
        let asked = users
            .into_iter()
            .map(|((secret, namespace), vms)| async move {
                let asked = self.context.sessions.session(secret, namespace);
                (secret, vms, tokio::time::timeout(LOGIN_WITHIN, asked).await)
            });
        // Two Secrets with the same content share one session.
        let mut sessions: Vec<(Arc<dyn VCenter>, BTreeSet<String>)> = Vec::new();
        let mut again = AGAIN;
        memory.lacking.clear();
        for (secret, vms, session) in futures::future::join_all(asked).await {
            let session = match session {
                Ok(Ok(session)) => session,
                Ok(Err(trouble)) => {
                    again = again.min(IN_TROUBLE);
                    memory.lacking.push((trouble.reason, trouble.message));
                    continue;
                }
                Err(_) => {
                    again = SOON;
                    let message = format!("the login with Secret {secret} is under way");
                    memory.lacking.push((Reason::VcenterUnreachable, message));
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
        let before: Vec<_> = memory.sessions.drain(..).collect();
        for (weak, before) in before.iter().filter_map(|s| Some((s, s.upgrade()?))) {
            if sessions.iter().any(|(s, _)| is_same(s, &before)) {
                continue;
            }
            if memory.lacking.is_empty() {
                before.follow(BTreeSet::new(), self.listener(&memory.inbox, &before));
            } else {
                // It may be one that could not be asked for now.
                memory.sessions.push(weak.clone());
            }
        }
        for (session, vms) in sessions {
            session.follow(vms, self.listener(&memory.inbox, &session));
            memory.sessions.push(Arc::downgrade(&session));
        }
        again
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
