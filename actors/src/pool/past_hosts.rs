//! The hosts of a pool that are gone: which Machine each life of their VMs served. Pure.
//!
//! A row is written while the VsphereAgent is being deleted, so before it goes. After that, nothing but the row remembers it.

use std::collections::BTreeSet;

use agent_forge_crds::pool::{MAX_PAST_HOSTS, PAST_HOST_DAYS, PastHost};
use jiff::SignedDuration;

use super::observed::Observed;
use crate::domain::{host_lives, managed_vm::ManagedVm};

/// The rows of the pool's status: those on record, and those of VsphereAgents that are being deleted. A row that is there stays
/// as it is. The oldest ones go first.
#[must_use]
pub fn past_hosts(record: &[PastHost], s: &Observed) -> Vec<PastHost> {
    let mut rows = record.to_vec();
    let key = |row: &PastHost| (row.uid.clone(), row.life);
    let mut known: BTreeSet<_> = record.iter().map(key).collect();
    let hosts = s.children.iter().chain(&s.group.shared);
    let fresh = hosts
        .filter(|child| child.deleting)
        .flat_map(|child| told_here(s, child));
    rows.extend(fresh.filter(|row| known.insert(key(row))));
    let kept = SignedDuration::from_hours(24 * PAST_HOST_DAYS);
    let is_old = |row: &PastHost| {
        let until = row.until.as_ref();
        until.is_none_or(|until| s.wall.duration_since(until.0) > kept)
    };
    rows.retain(|row| !is_old(row));
    host_lives::sort(&mut rows);
    let over = rows.len().saturating_sub(MAX_PAST_HOSTS);
    rows.drain(..over);
    rows
}

/// The lives of that host that this pool tells. People who read the pool may not read a VsphereAgent of another namespace: of such
/// a one, the pool tells only the lives that served its own cluster.
fn told_here(s: &Observed, child: &ManagedVm) -> Vec<PastHost> {
    let mut rows = host_lives::served(child);
    if child.key.namespace != s.key.namespace {
        let own = Some(s.pool.control_plane());
        rows.retain(|row| row.control_plane.as_deref() == own);
    }
    rows
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{Time, agent::PastLife};

    use super::*;
    use crate::testing::{AGE, CONTROL_PLANE, World, at, delete, with};

    /// A pool whose VM serves, with one life before.
    fn world() -> World {
        with(World::discovered("a"), |w| {
            let vm = w.children[0].status.as_mut().and_then(|s| s.vm.as_mut());
            let vm = vm.expect("a VM");
            vm.served = Some(true);
            vm.machine_ref.get_or_insert_default().name = Some("m-2".to_owned());
            let am = vm.agent_machine_ref.get_or_insert_default();
            am.namespace = Some(CONTROL_PLANE.to_owned());
            vm.generation = Some(2);
            vm.lives = vec![PastLife {
                generation: 1,
                until: Some(Time(at(50))),
                machine: Some("m-1".to_owned()),
                control_plane: Some("other".to_owned()),
                ..PastLife::default()
            }];
        })
    }

    fn machines(rows: &[PastHost]) -> Vec<&str> {
        rows.iter().filter_map(|r| r.machine.as_deref()).collect()
    }

    #[test]
    fn a_host_is_told_once_it_is_being_deleted_and_only_once() {
        let mut world = world();
        assert_eq!(past_hosts(&[], &world.observed()), []);
        delete(&mut world.children[0]);
        let rows = past_hosts(&[], &world.observed());
        assert_eq!(machines(&rows), ["m-1", "m-2"]);
        assert_eq!(rows[1].until, Some(Time(at(AGE))));
        assert_eq!(past_hosts(&rows, &world.observed()), rows, "nothing new");
        // What is there stays as it is, also when the VsphereAgent is gone.
        world.children.clear();
        assert_eq!(past_hosts(&rows, &world.observed()), rows);
    }

    #[test]
    fn of_a_host_of_another_namespace_only_the_lives_for_the_own_cluster_are_told() {
        let mut world = world();
        delete(&mut world.children[0]);
        let mut observed = world.observed();
        let child = &mut observed.children[0];
        child.key.namespace = "elsewhere".to_owned();
        assert_eq!(machines(&past_hosts(&[], &observed)), ["m-2"]);
    }

    #[test]
    fn rows_go_after_thirty_days_and_the_oldest_ones_over_the_limit() {
        let observed = World::default().observed();
        let ago = |hours: i64| Time(observed.wall - SignedDuration::from_hours(hours));
        let row = |life: i32, until: Time| PastHost {
            uid: "u".to_owned(),
            life,
            until: Some(until),
            ..PastHost::default()
        };
        let month = 24 * PAST_HOST_DAYS;
        let kept = past_hosts(&[row(1, ago(month + 1)), row(2, ago(month))], &observed);
        assert_eq!(kept.iter().map(|r| r.life).collect::<Vec<_>>(), [2]);
        let count = i32::try_from(MAX_PAST_HOSTS).expect("few");
        let many: Vec<_> = (1..=count + 2)
            .map(|life| row(life, ago(i64::from(100 - life))))
            .collect();
        let kept = past_hosts(&many, &observed);
        assert_eq!(kept.len(), MAX_PAST_HOSTS);
        assert_eq!(kept[0].life, 3, "the oldest two went");
        assert_eq!(past_hosts(&kept, &observed), kept);
    }
}
