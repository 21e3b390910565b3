//! Live reads that several callers share. There is one at a time for each key.
//!
//! Guarantee: a read begins after all of its callers have asked. Callers that ask during a read share the next one.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

/// A caller that waits for a read. `asked`: what it wants of the answer.
struct Asker<A, T, E> {
    asked: A,
    reply: oneshot::Sender<Result<T, E>>,
}

/// The callers for one key.
struct Line<A, T, E> {
    waiting: Mutex<Vec<Asker<A, T, E>>>,
    /// The caller that holds this lock reads for all that wait.
    turn: tokio::sync::Mutex<()>,
}

type Lines<A, T, E> = HashMap<String, Arc<Line<A, T, E>>>;

/// The reads under way, by key. `A`: what a caller wants of the answer. `T` and `E`: its answer, or the failure.
pub struct SharedReads<A, T, E> {
    lines: Mutex<Lines<A, T, E>>,
    /// How long a read waits for more callers before it begins.
    gather: Duration,
}

impl<A, T, E> Default for SharedReads<A, T, E> {
    fn default() -> Self {
        Self::gathering(Duration::ZERO)
    }
}

impl<A, T, E> SharedReads<A, T, E> {
    /// Reads that each wait that long for more callers.
    pub fn gathering(gather: Duration) -> Self {
        Self {
            lines: Mutex::default(),
            gather,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A: Clone, T, E: Clone> SharedReads<A, T, E> {
    /// The answer for this caller. `read` reads once, and has an answer for each of those that ask.
    ///
    /// # Errors
    /// The failure of `read`, for all callers that share it.
    pub async fn ask<F>(
        &self,
        key: &str,
        asked: A,
        read: impl Fn(Vec<A>) -> F + Send + Sync,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<Vec<T>, E>> + Send,
    {
        let line = Arc::clone(
            locked(&self.lines)
                .entry(key.to_owned())
                .or_insert_with(|| {
                    Arc::new(Line {
                        waiting: Mutex::default(),
                        turn: tokio::sync::Mutex::default(),
                    })
                }),
        );
        loop {
            let (reply, mut answer) = oneshot::channel();
            let asked = asked.clone();
            locked(&line.waiting).push(Asker { asked, reply });
            let _turn = tokio::select! {
                biased;
                answered = &mut answer => match answered {
                    Ok(found) => return found,
                    // The caller that read for us was dropped: ask again.
                    Err(_) => continue,
                },
                turn = line.turn.lock() => turn,
            };
            if !self.gather.is_zero() {
                tokio::time::sleep(self.gather).await;
            }
            let askers = std::mem::take(&mut *locked(&line.waiting));
            let (asked, replies): (Vec<_>, Vec<_>) =
                askers.into_iter().map(|a| (a.asked, a.reply)).unzip();
            match read(asked).await {
                Ok(answers) => {
                    for (reply, found) in replies.into_iter().zip(answers) {
                        let _ = reply.send(Ok(found));
                    }
                }
                Err(e) => {
                    for reply in replies {
                        let _ = reply.send(Err(e.clone()));
                    }
                }
            }
            if let Ok(found) = answer.await {
                return found;
            }
        }
    }
}

impl<T: Clone, E: Clone> SharedReads<(), T, E> {
    /// The same answer for all that ask.
    ///
    /// # Errors
    /// The failure of `read`.
    pub async fn same<F>(&self, key: &str, read: impl Fn() -> F + Send + Sync) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send,
    {
        let all = |askers: Vec<()>| {
            let found = read();
            async move { Ok::<_, E>(vec![found.await?; askers.len()]) }
        };
        self.ask(key, (), all).await
    }
}
