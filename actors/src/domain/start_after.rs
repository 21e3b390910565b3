//! Pools whose VMs start after those of other pools (`spec.scaling.startAfter`). Pure.

use agent_forge_crds::pool::VsphereAgentPool;
use kube::ResourceExt as _;

fn first_ones(pool: &VsphereAgentPool) -> &[String] {
    let scaling = pool.spec.scaling.as_ref();
    scaling.map_or(&[], |scaling| scaling.start_after.as_slice())
}

/// What is wrong with a pool that waits for itself.
#[must_use]
pub fn own_name(pool: &VsphereAgentPool) -> Option<String> {
    let own = pool.name_any();
    first_ones(pool).contains(&own).then(|| {
        format!("spec.scaling.startAfter names the pool itself ({own}): its VMs would never start; take it out")
    })
}

/// Why VMs of that pool are not switched on for the first time yet, as a sentence. `find`: a pool of its namespace.
#[must_use]
pub fn waits<P: AsRef<VsphereAgentPool>>(
    pool: &VsphereAgentPool,
    find: impl Fn(&str) -> Option<P>,
) -> Option<String> {
    let name = first_ones(pool).iter().find_map(|name| {
        let why = match find(name) {
            None => Some("does not exist: correct spec.scaling.startAfter".to_owned()),
            Some(_) if leads_back(pool, name, &find) => Some(
                "waits for this one in turn: correct spec.scaling.startAfter of one of them"
                    .to_owned(),
            ),
            Some(first) => lacks(first.as_ref()),
        };
        Some((name, why?))
    });
    name.map(|(name, why)| {
        format!("the VM is made, and stays off until pool {name} runs (spec.scaling.startAfter), which {why}")
    })
}

/// Following the pools from that one leads to `pool`.
fn leads_back<P: AsRef<VsphereAgentPool>>(
    pool: &VsphereAgentPool,
    name: &str,
    find: impl Fn(&str) -> Option<P>,
) -> bool {
    let own = pool.name_any();
    let (mut seen, mut next) = (Vec::new(), vec![name.to_owned()]);
    while let Some(name) = next.pop() {
        if name == own {
            return true;
        }
        if seen.contains(&name) {
            continue;
        }
        next.extend(
            find(&name)
                .iter()
                .flat_map(|p| first_ones(p.as_ref()).to_vec()),
        );
        seen.push(name);
    }
    false
}

/// What that pool lacks, by its status.
fn lacks(pool: &VsphereAgentPool) -> Option<String> {
    let known = pool.status.as_ref().filter(|status| {
        status.observed_generation.is_some()
            && status.observed_generation == pool.metadata.generation
    });
    let Some(status) = known else {
        return Some("has not said yet how it is".to_owned());
    };
    let unready = status.unready_agent_machines.unwrap_or_default();
    if unready > 0 {
        return Some(format!("has machines that are not ready: {unready}"));
    }
    let buffer = status.buffer.as_ref();
    let missing = buffer.map_or(0, |b| b.wanted - b.ready);
    (missing > 0).then(|| format!("lacks hosts in its buffer: {missing}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_forge_crds::pool::{BufferStatus, VsphereAgentPoolStatus};

    use super::*;
    use crate::testing::{self, with};

    /// A pool that has said how it is.
    fn pool(name: &str, after: &[&str]) -> VsphereAgentPool {
        with(testing::pool(name), |p| {
            p.metadata.generation = Some(3);
            p.spec.scaling.get_or_insert_default().start_after =
                after.iter().map(|name| (*name).to_owned()).collect();
            p.status = Some(VsphereAgentPoolStatus {
                observed_generation: Some(3),
                ..VsphereAgentPoolStatus::default()
            });
        })
    }

    /// Why the first of these pools waits.
    fn why(all: &[VsphereAgentPool]) -> Option<String> {
        let named: BTreeMap<String, Box<VsphereAgentPool>> = all
            .iter()
            .map(|p| (p.name_any(), Box::new(p.clone())))
            .collect();
        waits(&all[0], |name| named.get(name).cloned())
    }

    fn status(pool: &mut VsphereAgentPool) -> &mut VsphereAgentPoolStatus {
        pool.status.as_mut().expect("a status")
    }

    #[test]
    fn a_pool_starts_when_those_before_it_run() {
        let own = pool("own", &["a", "b"]);
        assert_eq!(why(&[own.clone(), pool("a", &[]), pool("b", &[])]), None);
        let says = |change: fn(&mut VsphereAgentPool)| {
            why(&[own.clone(), pool("a", &[]), with(pool("b", &[]), change)])
        };
        for (change, words) in [
            (
                (|p| p.metadata.generation = Some(4)) as fn(&mut VsphereAgentPool),
                "has not said yet",
            ),
            (|p| p.status = None, "has not said yet"),
            (
                |p| status(p).unready_agent_machines = Some(2),
                "machines that are not ready: 2",
            ),
            (
                |p| {
                    status(p).buffer = Some(BufferStatus {
                        wanted: 3,
                        ready: 1,
                        ..BufferStatus::default()
                    });
                },
                "lacks hosts in its buffer: 2",
            ),
        ] {
            let said = says(change).unwrap_or_default();
            assert!(
                said.contains("until pool b runs") && said.contains(words),
                "{said}"
            );
        }
        let gone = why(&[own, pool("a", &[])]).unwrap_or_default();
        assert!(
            gone.contains("pool b") && gone.contains("does not exist"),
            "{gone}"
        );
    }

    #[test]
    fn pools_that_wait_for_each_other_are_told_so() {
        for all in [
            vec![pool("own", &["own"])],
            vec![pool("own", &["a"]), pool("a", &["b"]), pool("b", &["own"])],
        ] {
            let said = why(&all).unwrap_or_default();
            assert!(said.contains("waits for this one in turn"), "{said}");
        }
        // A ring that the pool is not in ends the search.
        let beside = [pool("own", &["a"]), pool("a", &["b"]), pool("b", &["a"])];
        assert_eq!(why(&beside), None);
        assert!(own_name(&pool("own", &["own"])).is_some());
        assert_eq!(own_name(&pool("own", &["a"])), None);
    }
}
