//! Pictures of the consoles of guests that did not register in time.

use agent_forge_actors::{domain::names::ObjectKey, ports::cluster::View as _};
use jiff::Timestamp;

use super::Entry;
use crate::{
    args::Args,
    commands::{console, sight::Sight, vcenters::Vcenters},
    machines::{self, found::Found, row::Machine},
};

/// Pictures in an archive.
const MOST: usize = 5;

/// The pictures, and why there is none of some guests.
pub(super) async fn entries(
    args: &Args,
    sight: &Sight,
    namespace: Option<&str>,
    now: Timestamp,
) -> (Vec<Entry>, Vec<anyhow::Error>) {
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    let chosen = chosen(machines::machines(&sight.caches, now), namespace, now);
    if chosen.is_empty() {
        return (all, failed);
    }
    let vcenters = Vcenters::new(args, &sight.client, sight.caches.pools());
    for (key, found) in &chosen {
        let path = format!("console/{}-{}.png", key.namespace, key.name);
        match console::picture(args, &vcenters, found).await {
            Ok(bytes) => all.push((path, bytes)),
            Err(e) => failed.push(e.context(path)),
        }
    }
    vcenters.close().await;
    (all, failed)
}

/// The guests that are late, the latest ones first.
fn chosen(
    all: machines::Machines,
    namespace: Option<&str>,
    now: Timestamp,
) -> Vec<(ObjectKey, Found)> {
    let machines = all.pools.into_iter().flat_map(|pool| pool.machines);
    let own = |m: &Machine| namespace.is_none_or(|wanted| wanted == m.key.namespace);
    let late = machines.filter(|m| own(m) && console::is_late(&m.found, now));
    let mut late: Vec<_> = late.map(|m| (m.key, m.found)).collect();
    let deadline = |found: &Found| {
        let vm = found.child.as_ref().and_then(|c| c.vm());
        vm.and_then(|vm| vm.discovery_deadline.as_ref())
            .map(|at| at.0)
    };
    late.sort_by_key(|(key, found)| (deadline(found), key.clone()));
    late.truncate(MOST);
    late
}
