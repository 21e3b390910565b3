//! The lives of a host as rows: which Machine its VM served, and when. Pure.

use agent_forge_crds::{
    Time,
    agent::{PastLife, VmStatus},
    pool::PastHost,
};
use k8s_openapi::api::core::v1::ObjectReference;

use super::{managed_vm::ManagedVm, names::ObjectKey, recycle};

/// The lives of the VM of that VsphereAgent, the present one last. The present one ends when the VsphereAgent is deleted.
#[must_use]
pub fn lives(child: &ManagedVm) -> Vec<PastHost> {
    let Some(vm) = child.vm() else {
        return Vec::new();
    };
    let deleted = child.object.metadata.deletion_timestamp.clone();
    let all = recycle::lives(vm, None, child.trace(), deleted);
    all.into_iter().map(|life| row(child, vm, life)).collect()
}

/// The lives in which the VM served a Machine and that are over.
#[must_use]
pub fn served(child: &ManagedVm) -> Vec<PastHost> {
    let vm = child.vm();
    let present = vm.map_or(0, |vm| i64::from(recycle::generation(vm)));
    let serves = vm.is_some_and(|vm| vm.served == Some(true));
    let is_recorded = |life: i64| {
        let lives = vm.map(|vm| vm.lives.as_slice()).unwrap_or_default();
        lives.iter().any(|past| i64::from(past.generation) == life)
    };
    let mut rows = lives(child);
    rows.retain(|row| {
        let life = i64::from(row.life);
        let served = life != present || serves || is_recorded(life);
        served && row.machine.is_some() && row.until.is_some()
    });
    rows
}

fn row(child: &ManagedVm, vm: &VmStatus, life: PastLife) -> PastHost {
    PastHost {
        namespace: child.key.namespace.clone(),
        name: child.key.name.clone(),
        uid: child.uid.clone(),
        life: life.generation,
        vm_name: child.vm_name.clone(),
        infra_env: vm.infra_env_ref.as_ref().and_then(key),
        control_plane: life.control_plane.or_else(|| {
            // The record of a VM without an AgentMachine has it elsewhere.
            let is_present = i64::from(life.generation) == i64::from(recycle::generation(vm));
            child.control_plane.clone().filter(|_| is_present)
        }),
        machine: life.machine,
        since: life.since,
        until: life.until,
    }
}

fn key(reference: &ObjectReference) -> Option<String> {
    let namespace = reference.namespace.as_ref()?;
    let name = reference.name.as_ref()?;
    Some(ObjectKey::new(namespace, name).to_string())
}

/// Puts rows that are over into the order in which they ended, the last one last.
pub fn sort(rows: &mut [PastHost]) {
    let at = |time: &Option<Time>| time.as_ref().map(|t| t.0);
    rows.sort_by(|a, b| {
        let order = |row: &PastHost| {
            (
                at(&row.until),
                row.namespace.clone(),
                row.name.clone(),
                row.life,
            )
        };
        order(a).cmp(&order(b))
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{at, child_with_vm, delete, with};

    fn host(change: impl FnOnce(&mut VmStatus)) -> agent_forge_crds::VsphereAgent {
        with(child_with_vm("a"), |child| {
            let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
            let vm = vm.expect("a VM");
            vm.served = Some(true);
            vm.machine_ref = Some(ObjectReference {
                name: Some("m-2".to_owned()),
                namespace: Some("demo-demo".to_owned()),
                ..ObjectReference::default()
            });
            vm.agent_machine_ref = vm.machine_ref.clone();
            change(vm);
        })
    }

    fn first_life(vm: &mut VmStatus) {
        vm.generation = Some(2);
        vm.lives = vec![PastLife {
            generation: 1,
            until: Some(Time(at(50))),
            machine: Some("m-1".to_owned()),
            control_plane: Some("blue".to_owned()),
            ..PastLife::default()
        }];
    }

    fn told(rows: &[PastHost]) -> Vec<(i32, Option<&str>, Option<&str>, bool)> {
        rows.iter()
            .map(|r| {
                (
                    r.life,
                    r.machine.as_deref(),
                    r.control_plane.as_deref(),
                    r.until.is_some(),
                )
            })
            .collect()
    }

    #[test]
    fn the_present_life_is_over_only_when_the_vsphere_agent_is_deleted() {
        let mut object = host(first_life);
        let read =
            |object: &agent_forge_crds::VsphereAgent| ManagedVm::read(Arc::new(object.clone()));
        let first = (1, Some("m-1"), Some("blue"), true);
        let rows = lives(&read(&object));
        assert_eq!(
            told(&rows),
            [first, (2, Some("m-2"), Some("demo-demo"), false)]
        );
        assert_eq!(told(&served(&read(&object))), [first]);
        delete(&mut object);
        let rows = served(&read(&object));
        assert_eq!(
            told(&rows),
            [first, (2, Some("m-2"), Some("demo-demo"), true)]
        );
        assert_eq!(rows[0].uid, rows[1].uid);
    }

    #[test]
    fn a_life_that_served_nobody_is_no_row() {
        for (change, lives) in [
            ((|vm| vm.served = None) as fn(&mut VmStatus), 0),
            (|vm| vm.machine_ref = None, 0),
            (|_| {}, 1),
        ] {
            let object = with(host(change), delete);
            assert_eq!(served(&ManagedVm::read(Arc::new(object))).len(), lives);
        }
    }
}
