//! The watcher: it keeps the view equal to the waiters and the followed VMs, and the long poll running.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use agent_forge_actors::ports::vcenter::{Fault, Listener, VcError, VcErrorKind, VcResult, VmNews};
use futures::future::OptionFuture;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Ask, TaskReply, Waiter,
    ends::Ends,
    news::Sights,
    plumbing::{MARGIN, MAX_WAIT, Members, Parts, Plumbing, Unbuilt},
    progress::{End, LARGEST, Progress},
    task_failure,
};
use crate::vsphere::rpc::{client::Client, wire::collector::UpdateSet};

/// How long new tasks wait for others before the view is modified. The tasks run meanwhile.
const GATHER: Duration = Duration::from_millis(40);
/// The same for creates and power-ons. They take longer than that anyway, so their ends are not known later.
const GATHER_LONG: Duration = Duration::from_millis(500);
/// How long VMs wait for others, or for a task, before the view is modified.
const GATHER_VMS: Duration = Duration::from_secs(5);
/// How long updates wait for others before the next long poll. That delays the news of an end, and a VM keeps its task
/// slot until then. A longer wait costs more time than it saves requests (docs/reference/benchmarks.md).
const PAUSE: Duration = Duration::from_millis(40);
/// Pauses between tries while vCenter fails.
const BACKOFF: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
];
/// The longest pause while a call waits for a task.
const WAITED_FOR: Duration = Duration::from_secs(5);

/// Longest time that waiters wait while the watcher destroys old objects.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);
/// Shortest long poll that the watcher asks for, in seconds.
const LEAST_WAIT: u32 = 5;

type Running<T> = Pin<Box<OptionFuture<Pin<Box<dyn Future<Output = VcResult<T>> + Send>>>>>;

fn none<T>() -> Running<T> {
    Box::pin(OptionFuture::from(None))
}

fn some<T>(future: impl Future<Output = VcResult<T>> + Send + 'static) -> Running<T> {
    Box::pin(OptionFuture::from(Some(
        Box::pin(future) as Pin<Box<dyn Future<Output = VcResult<T>> + Send>>
    )))
}

/// Why the watcher stopped looking.
enum Stop {
    /// No call waits, and no VM is followed.
    Idle,
    /// No call can come any more.
    Closed,
    /// Something failed.
    Trouble(VcError),
}

/// Serves all waiters of one client.
pub(super) struct Watcher {
    client: Weak<Client>,
    inbox: mpsc::UnboundedReceiver<Ask>,
    waiting: BTreeMap<String, Vec<oneshot::Sender<VcResult<TaskReply>>>>,
    /// VMs whose changes are told, and to whom.
    followed: BTreeSet<String>,
    listener: Option<Listener>,
    /// Followed VMs that vCenter did not know since the last [`Ask::Follow`].
    missing: BTreeSet<String>,
    sights: Sights,
    plumbing: Option<Plumbing>,
    /// What vCenter keeps and the watcher does not need: to be destroyed when vCenter answers.
    left: Vec<Parts>,
    /// Length of a quiet long poll in seconds: shorter than a proxy on the way tolerates.
    max_wait: u32,
    /// Tasks and VMs in the view.
    members: Members,
    /// What is being added to the view. The long poll may report it before `ModifyListView` has answered.
    adding: Option<Members>,
    /// Tasks whose end is known. vCenter need not report it again, but a caller may ask again (after an aborted pass,
    /// or one that lost a later call).
    ended: Ends,
    progress: Progress,
    version: String,
    /// Last time that vCenter answered a poll, or that waiting began.
    last_good: Instant,
    /// Failures since the last answered long poll.
    failures: usize,
}

impl Watcher {
    pub(super) fn new(client: Weak<Client>, inbox: mpsc::UnboundedReceiver<Ask>) -> Self {
        Self {
            client,
            inbox,
            waiting: BTreeMap::new(),
            followed: BTreeSet::new(),
            listener: None,
            missing: BTreeSet::new(),
            sights: Sights::default(),
            plumbing: None,
            left: Vec::new(),
            max_wait: MAX_WAIT,
            members: Members::default(),
            adding: None,
            ended: Ends::default(),
            progress: Progress::default(),
            version: String::new(),
            last_good: Instant::now(),
            failures: 0,
        }
    }

    /// Runs until the client is gone or logged out.
    pub(super) async fn run(mut self) {
        loop {
            while !self.is_needed() {
                let Some(ask) = self.inbox.recv().await else {
                    return;
                };
                self.take(ask);
            }
            let Some(client) = self.client.upgrade() else {
                return;
            };
            match self.watch(&client).await {
                Stop::Idle => {}
                Stop::Closed => return,
                Stop::Trouble(error) => {
                    self.trouble(&client, error);
                    if !self.rest().await {
                        return;
                    }
                }
            }
        }
    }

    async fn watch(&mut self, client: &Arc<Client>) -> Stop {
        let plumbing = match self.plumbing.clone() {
            Some(plumbing) => plumbing,
            None => match Plumbing::build(client).await {
                Ok(built) => {
                    self.plumbing = Some(built.clone());
                    built
                }
                Err(Unbuilt { why, left }) => {
                    self.left.extend(left);
                    self.give_back(client).await;
                    return Stop::Trouble(why);
                }
            },
        };
        self.give_back(client).await;
        let mut modify = none::<Members>();
        let mut poll = none::<Option<UpdateSet>>();
        let mut polling = false;
        let mut polled_at = Instant::now();
        let mut gathering = Instant::now();
        loop {
            self.waiting.retain(|_, waiters| {
                waiters.retain(|w| !w.is_closed());
                !waiters.is_empty()
            });
            let to_add = self.to_add();
            let new = !to_add.is_empty();
            let long = |task: &String| client.tasks.labels.is_long(task);
            let gather = if to_add.tasks.is_empty() {
                GATHER_VMS
            } else if to_add.tasks.iter().all(long) {
                GATHER_LONG
            } else {
                GATHER
            };
            if !self.is_needed() && !polling && self.adding.is_none() {
                return Stop::Idle;
            }
            if !polling && self.has_members() {
                let pause = if self.version.is_empty() {
                    Duration::ZERO
                } else {
                    PAUSE
                };
                let (client, version) = (Arc::clone(client), self.version.clone());
                poll = some(plumbing.clone().poll(client, version, pause, self.max_wait));
                (polling, polled_at) = (true, Instant::now());
            }
            tokio::select! {
                biased;
                ask = self.inbox.recv() => {
                    let Some(ask) = ask else { return Stop::Closed };
                    if !new && self.adding.is_none() {
                        gathering = Instant::now();
                    }
                    self.take(ask);
                }
                Some(done) = &mut modify, if self.adding.is_some() => {
                    modify = none();
                    let added = self.adding.take().unwrap_or_default();
                    let unknown = match done {
                        Ok(unknown) => unknown,
                        Err(e) => return Stop::Trouble(e),
                    };
                    // That does not show that vCenter reports tasks: only an answered poll does.
                    self.members.tasks.extend(added.tasks);
                    self.members.vms.extend(added.vms);
                    for task in unknown.tasks {
                        self.members.tasks.remove(&task);
                        self.end(client, &task, End::Vanished);
                    }
                    for vm in unknown.vms {
                        self.hear(vm, VmNews::Gone);
                    }
                }
                Some(done) = &mut poll, if polling => {
                    poll = none();
                    polling = false;
                    match done {
                        Ok(update) => {
                            self.last_good = Instant::now();
                            if !self.version.is_empty() {
                                // The first poll is answered at once, whether or not tasks run.
                                self.failures = 0;
                            }
                            if let Some(update) = update {
                                self.apply(client, update);
                            }
                        }
                        Err(e) => {
                            self.cut(polled_at.elapsed());
                            return Stop::Trouble(e);
                        }
                    }
                }
                () = tokio::time::sleep_until(gathering + gather), if new && self.adding.is_none() => {
                    let (add, remove) = (self.to_add(), self.to_remove());
                    self.members.tasks.retain(|task| !remove.tasks.contains(task));
                    self.members.vms.retain(|vm| !remove.vms.contains(vm));
                    self.adding = Some(add.clone());
                    modify = some(plumbing.clone().modify(Arc::clone(client), add, remove));
                }
            }
        }
    }

    /// A call waits, or a VM is followed.
    fn is_needed(&self) -> bool {
        !self.waiting.is_empty() || !self.followed.is_empty()
    }

    /// The view has something that is waited for or followed.
    fn has_members(&self) -> bool {
        self.waiting.keys().any(|t| self.members.tasks.contains(t))
            || self.followed.iter().any(|vm| self.members.vms.contains(vm))
    }

    /// What the view lacks.
    fn to_add(&self) -> Members {
        let (tasks, vms) = (&self.members.tasks, &self.members.vms);
        let new_vm = |vm: &&String| !vms.contains(*vm) && !self.missing.contains(*vm);
        Members {
            tasks: self
                .waiting
                .keys()
                .filter(|t| !tasks.contains(*t))
                .cloned()
                .collect(),
            vms: self.followed.iter().filter(new_vm).cloned().collect(),
        }
    }

    /// What the view does not need.
    fn to_remove(&self) -> Members {
        let waited_for = |task: &&String| self.waiting.contains_key(*task);
        Members {
            tasks: self
                .members
                .tasks
                .iter()
                .filter(|t| !waited_for(t))
                .cloned()
                .collect(),
            vms: self
                .members
                .vms
                .difference(&self.followed)
                .cloned()
                .collect(),
        }
    }

    fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Wait(waiter) => {
                if self.waiting.is_empty() {
                    self.last_good = Instant::now();
                }
                self.accept(waiter);
            }
            Ask::Follow(vms, listener) => {
                // They are asked for once more: a VM may be back under its reference.
                self.missing.clear();
                self.followed = vms;
                self.listener = Some(listener);
            }
        }
    }

    fn apply(&mut self, client: &Client, mut update: UpdateSet) {
        self.version.clone_from(&update.version);
        for (vm, news) in self.sights.take(&mut update, &self.followed) {
            self.hear(vm, news);
        }
        let (waiting, members, adding) = (&self.waiting, &self.members.tasks, &self.adding);
        let ours = |task: &str| {
            waiting.contains_key(task)
                || members.contains(task)
                || adding.as_ref().is_some_and(|a| a.tasks.contains(task))
        };
        for (task, end) in self.progress.apply(update, ours) {
            self.end(client, &task, end);
        }
    }

    /// Tells the listener. A VM that is gone is not added to the view again.
    fn hear(&mut self, vm: String, news: VmNews) {
        if news == VmNews::Gone {
            self.members.vms.remove(&vm);
            self.missing.insert(vm.clone());
        }
        if let Some(listener) = &self.listener {
            listener.tell(&vm, news);
        }
    }

    fn accept(&mut self, waiter: Waiter) {
        if let Some(outcome) = self.ended.of(&waiter.task) {
            let _ = waiter.done.send(outcome.clone());
            return;
        }
        self.waiting
            .entry(waiter.task)
            .or_default()
            .push(waiter.done);
    }

    /// Notes that a poll failed after that time. If a proxy cuts quiet connections, the watcher asks for shorter polls.
    fn cut(&mut self, after: Duration) {
        let seconds = |n: u32| Duration::from_secs(u64::from(n));
        // After that time it was silence.
        if (seconds(LEAST_WAIT)..seconds(self.max_wait) + MARGIN / 2).contains(&after) {
            self.max_wait = (self.max_wait / 2).max(LEAST_WAIT);
        }
    }

    /// Destroys the rest of earlier views, if vCenter answers in time.
    async fn give_back(&mut self, client: &Client) {
        while let Some(mut parts) = self.left.pop() {
            let given = tokio::time::timeout(GIVE_BACK_WITHIN, parts.give_back(client)).await;
            if given != Ok(true) {
                self.left.push(parts);
                return;
            }
        }
    }

    fn end(&mut self, client: &Client, task: &str, end: End) {
        let outcome = match end {
            End::Success(result) => Ok(TaskReply::Success(result)),
            End::Vanished => Ok(TaskReply::Vanished),
            // A waiter has it added again. vCenter then says whether it exists.
            End::Left => {
                self.members.tasks.remove(task);
                return;
            }
            End::TooLarge => {
                let what = format!(
                    "{} gives more than {LARGEST} bytes for its end",
                    client.server()
                );
                let labels = &client.tasks.labels;
                Err(labels.failure(task, VcErrorKind::Undecodable, &what))
            }
            End::Error(error) => Err(task_failure(&client.tasks.labels, task, &error)),
        };
        self.tell(task, outcome);
    }

    /// Gives the end of a task to its waiters, and keeps it for later questions.
    fn tell(&mut self, task: &str, outcome: VcResult<TaskReply>) {
        self.ended.note(task, outcome.clone());
        for waiter in self.waiting.remove(task).into_iter().flatten() {
            let _ = waiter.send(outcome.clone());
        }
    }

    /// Forgets view and filter. Gives all waiters the error if there is no hope, or has been none for too long.
    fn trouble(&mut self, client: &Client, error: VcError) {
        tracing::info!(server = client.server(), %error, waiting = self.waiting.len(), "waiting for tasks: starting again");
        self.members = Members::default();
        self.missing.clear();
        self.sights.forget();
        self.adding = None;
        self.ended = Ends::default();
        self.progress.forget();
        self.version.clear();
        self.failures += 1;
        // To be destroyed when vCenter answers again: it may not answer now.
        self.left
            .extend(self.plumbing.take().map(Plumbing::into_parts));
        let hopeless = matches!(
            error.kind,
            VcErrorKind::Fault(Fault::InvalidLogin | Fault::NoPermission { .. })
                | VcErrorKind::Untrusted
                | VcErrorKind::NotAllowed
                | VcErrorKind::LoginLimited(_)
        );
        if hopeless || client.session.closed() {
            // Whoever follows asks again, maybe another session.
            self.followed.clear();
        }
        if hopeless
            || client.session.closed()
            || self.last_good.elapsed() >= client.http.options().wait_patience
        {
            for waiters in std::mem::take(&mut self.waiting).into_values() {
                for waiter in waiters {
                    let _ = waiter.send(Err(error.clone()));
                }
            }
        }
    }

    /// Pauses before the next try, and accepts waiters meanwhile. `false` when no waiter can come any more.
    async fn rest(&mut self) -> bool {
        let pause = BACKOFF[self.failures.saturating_sub(1).min(BACKOFF.len() - 1)];
        let began = Instant::now();
        loop {
            let longest = if self.waiting.is_empty() {
                pause
            } else {
                pause.min(WAITED_FOR)
            };
            let until = began + longest;
            tokio::select! {
                ask = self.inbox.recv() => match ask {
                    Some(ask) => self.take(ask),
                    None => return false,
                },
                () = tokio::time::sleep_until(until) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(watcher: &mut Watcher, task: &str) -> oneshot::Receiver<VcResult<TaskReply>> {
        let (done, end) = oneshot::channel();
        watcher.accept(Waiter {
            task: task.to_owned(),
            done,
        });
        end
    }

    #[test]
    fn a_poll_that_is_cut_while_it_is_held_back_is_shorter_the_next_time() {
        let s = Duration::from_secs;
        let (_, inbox) = mpsc::unbounded_channel();
        let mut watcher = Watcher::new(Weak::new(), inbox);
        for (after, wait) in [
            (s(0), 20),
            (s(3), 20),
            (s(29), 20),
            (s(10), 10),
            (Duration::from_millis(10_050), 5),
            (s(5), 5),
        ] {
            watcher.cut(after);
            assert_eq!(watcher.max_wait, wait, "cut after {after:?}");
        }
    }

    #[test]
    fn a_vm_that_is_gone_is_asked_for_again_with_the_next_list() {
        let (_, inbox) = mpsc::unbounded_channel();
        let mut watcher = Watcher::new(Weak::new(), inbox);
        let follow = || Ask::Follow(["vm-1".to_owned()].into(), Listener::new(|_, _| {}));
        watcher.take(follow());
        assert_eq!(watcher.to_add().vms.len(), 1);
        watcher.hear("vm-1".to_owned(), VmNews::Gone);
        assert_eq!(watcher.to_add().vms.len(), 0, "not again and again");
        watcher.take(follow());
        assert_eq!(watcher.to_add().vms.len(), 1, "it may be back");
    }

    #[test]
    fn who_asks_again_for_a_task_that_ended_is_answered_at_once() {
        let (_, inbox) = mpsc::unbounded_channel();
        let mut watcher = Watcher::new(Weak::new(), inbox);
        watcher
            .members
            .tasks
            .extend(["task-1".to_owned(), "task-2".to_owned()]);
        // The first waiter of task-2 stopped before its end.
        let mut first = asks(&mut watcher, "task-1");
        drop(asks(&mut watcher, "task-2"));
        for task in ["task-1", "task-2"] {
            watcher.tell(task, Ok(TaskReply::Success(None)));
        }
        assert_eq!(first.try_recv(), Ok(Ok(TaskReply::Success(None))));
        for task in ["task-1", "task-2"] {
            let mut again = asks(&mut watcher, task);
            assert_eq!(again.try_recv(), Ok(Ok(TaskReply::Success(None))), "{task}");
        }
        assert!(watcher.waiting.is_empty());
        // A task that has left the view, or that the watcher never saw in it, counts as well.
        watcher.members = Members::default();
        watcher.tell("task-3", Ok(TaskReply::Vanished));
        for task in ["task-2", "task-3"] {
            assert!(asks(&mut watcher, task).try_recv().is_ok(), "{task}");
        }
        let mut running = asks(&mut watcher, "task-4");
        assert!(running.try_recv().is_err());
    }
}
