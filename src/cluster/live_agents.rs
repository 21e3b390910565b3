//! Live lists of Agents, which may be many and large. They are read page by page. Each page is trimmed and filtered
//! before the next one is requested. There is one list at a time for each namespace.
//!
//! Guarantee: a list begins after all of its callers have asked. Callers that ask during a list share the next one.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_forge_actors::ports::cluster::{AgentFilter, ClusterResult};
use agent_forge_crds::external::agent::Agent;
use tokio::sync::oneshot;

use super::trim;

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The Agents of the page.
    pub agents: Vec<Agent>,
    /// The token of the next page; `None` on the last page.
    pub next: Option<String>,
}

/// A caller that waits for a list.
struct Asker {
    wanted: AgentFilter,
    reply: oneshot::Sender<ClusterResult<Vec<Agent>>>,
}

/// The callers for one namespace.
#[derive(Default)]
struct Line {
    waiting: Mutex<Vec<Asker>>,
    /// The caller that holds this lock reads the list for all that wait.
    turn: tokio::sync::Mutex<()>,
}

/// The lists under way, by namespace.
#[derive(Default)]
pub struct LiveAgents(Mutex<HashMap<String, Arc<Line>>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveAgents {
    /// The Agents of `namespace` that `wanted` accepts, without what [`trim::agent`] drops. `page` reads one page,
    /// given the token from the page before.
    ///
    /// # Errors
    /// The first failure of `page`, for all callers that share the list.
    pub async fn list<F>(
        &self,
        namespace: &str,
        wanted: AgentFilter,
        page: impl Fn(Option<String>) -> F + Send + Sync,
    ) -> ClusterResult<Vec<Agent>>
    where
        F: Future<Output = ClusterResult<Page>> + Send,
    {
        let line = Arc::clone(locked(&self.0).entry(namespace.to_owned()).or_default());
        loop {
            let (reply, mut answer) = oneshot::channel();
            let wanted = wanted.clone();
            locked(&line.waiting).push(Asker { wanted, reply });
            let _turn = tokio::select! {
                biased;
                answered = &mut answer => match answered {
                    Ok(found) => return found,
                    // The caller that read for us was dropped: ask again.
                    Err(_) => continue,
                },
                turn = line.turn.lock() => turn,
            };
            let askers = std::mem::take(&mut *locked(&line.waiting));
            read(askers, &page).await;
            if let Ok(found) = answer.await {
                return found;
            }
        }
    }
}

/// Reads the list for all askers.
async fn read<F>(askers: Vec<Asker>, page: &(impl Fn(Option<String>) -> F + Send + Sync))
where
    F: Future<Output = ClusterResult<Page>> + Send,
{
    let mut found: Vec<Vec<Agent>> = askers.iter().map(|_| Vec::new()).collect();
    let mut token = None;
    loop {
        let page = match page(token).await {
            Ok(page) => page,
            Err(e) => {
                for asker in askers {
                    let _ = asker.reply.send(Err(e.clone()));
                }
                return;
            }
        };
        for mut agent in page.agents {
            trim::agent(&mut agent);
            let each = askers.iter().zip(&mut found);
            each.filter(|(asker, _)| (asker.wanted)(&agent))
                .for_each(|(_, found)| found.push(agent.clone()));
        }
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    for (asker, found) in askers.into_iter().zip(found) {
        let _ = asker.reply.send(Ok(found));
    }
}

#[cfg(test)]
mod tests;
