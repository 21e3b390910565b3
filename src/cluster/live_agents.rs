//! Live lists of Agents, which may be many and large. They are read page by page. Each page is trimmed and filtered
//! before the next one is requested. Callers that ask during a list share the next one.

use std::future::Future;

use agent_forge_actors::ports::cluster::{AgentFilter, ClusterError, ClusterResult};
use agent_forge_crds::external::agent::Agent;

use super::trim;
use crate::shared_reads::SharedReads;

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The Agents of the page.
    pub agents: Vec<Agent>,
    /// The token of the next page; `None` on the last page.
    pub next: Option<String>,
}

/// The lists under way, by namespace.
#[derive(Default)]
pub struct LiveAgents(SharedReads<AgentFilter, Vec<Agent>, ClusterError>);

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
        let read = |askers| read(askers, &page);
        self.0.ask(namespace, wanted, read).await
    }
}

/// Reads the list for all askers.
async fn read<F>(
    askers: Vec<AgentFilter>,
    page: &(impl Fn(Option<String>) -> F + Send + Sync),
) -> ClusterResult<Vec<Vec<Agent>>>
where
    F: Future<Output = ClusterResult<Page>> + Send,
{
    let mut found: Vec<Vec<Agent>> = askers.iter().map(|_| Vec::new()).collect();
    let mut token = None;
    loop {
        let page = page(token).await?;
        for mut agent in page.agents {
            trim::agent(&mut agent);
            let each = askers.iter().zip(&mut found);
            each.filter(|(wanted, _)| wanted(&agent))
                .for_each(|(_, found)| found.push(agent.clone()));
        }
        token = page.next;
        if token.is_none() {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests;
