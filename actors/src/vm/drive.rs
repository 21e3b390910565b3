//! When the CD-ROM drive of a VM is emptied, and which ISO is removed. Pure.

use std::collections::BTreeSet;

use agent_forge_crds::{agent::VmStatus, external::agent::Agent, pool::VsphereAgentPool};

use crate::{
    domain::names::DatastorePath,
    iso::{is_ours, of_pool::kept},
    ports::vcenter::Cdrom,
};

/// Whether the drive is to be emptied: once, if the pool wants it, after the Agent is installed. Until then the
/// installer reads from it. This is done only in a VM that the operator made: its configuration file was chosen, and so
/// recorded, by the operator. A VM that was taken over is left alone.
#[must_use]
pub fn is_to_be_emptied(
    pool: Option<&VsphereAgentPool>,
    adopted: bool,
    vm: Option<&VmStatus>,
    agent: Option<&Agent>,
) -> bool {
    let wanted = pool
        .and_then(|p| p.spec.iso.as_ref())
        .is_some_and(|iso| iso.eject_after_install());
    let due = |vm: &VmStatus| vm.vm_path.is_some() && vm.iso_ejected != Some(true);
    wanted && !adopted && vm.is_some_and(due) && agent.is_some_and(Agent::is_installed)
}

/// Discovery ISOs in the VM's drives, as vCenter spells them: `<sha256>.iso` in a directory of the pool's ISOs. The
/// datastore does not matter, because the pool may use another one now. Any other disc was inserted by a person.
#[must_use]
pub fn isos_of(pool: &VsphereAgentPool, drives: &[Cdrom]) -> Vec<String> {
    let directories = kept::directories(pool);
    let directories: BTreeSet<&str> = directories.iter().map(|d| d.path.as_str()).collect();
    let is_in = |directory: &str, file: &DatastorePath| {
        let there = DatastorePath::new(&file.datastore, directory);
        let there = there.and_then(|d| d.join(file.file_name()));
        there.is_ok_and(|there| there.is_same_file(file))
    };
    let ours = |iso: &&String| {
        DatastorePath::parse(iso)
            .is_ok_and(|file| is_ours(&file) && directories.iter().any(|d| is_in(d, &file)))
    };
    let isos = drives.iter().filter_map(|d| d.iso.as_ref());
    isos.filter(ours).cloned().collect()
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{
        external::{ForeignCondition, agent::INSTALLED},
        pool::{IsoSpec, IsoStatus},
    };

    use super::*;
    use crate::testing::{pool, with};

    #[test]
    fn only_the_pools_own_isos_are_taken_out() {
        let drive = |iso: Option<String>| Cdrom {
            key: 16000,
            iso,
            connected: true,
            start_connected: true,
        };
        let digest = "a".repeat(64);
        let spelled = |place: &str| Some(format!("{place}/{digest}.iso"));
        let stored = format!("agent-forge/demo/first/{digest}.iso");
        let pool = with(pool("w"), |p| {
            let iso = IsoStatus {
                stored_path: Some(format!("[isos] {stored}")),
                ..IsoStatus::default()
            };
            p.status.get_or_insert_default().iso = Some(iso);
        });
        let (own, shared) = (
            spelled("[isos] agent-forge/demo/w"),
            spelled("[isos] /agent-forge/demo/first"),
        );
        let before = spelled("[old] agent-forge/demo/w");
        // As vSAN shows it: the top directory has its id as name.
        let by_id = spelled("[isos] 59427457-6c5a-a917-7997-0200103eedbc/demo/w");
        let drives = [
            own.clone(),
            shared.clone(),
            before.clone(),
            by_id.clone(),
            spelled("[isos] 59427457-6c5a-a917-7997-0200103eedbc/w"),
            Some("[isos] rescue.iso".to_owned()),
            Some("[isos] agent-forge/demo/w/rescue.iso".to_owned()),
            spelled("[isos] somewhere"),
            None,
        ]
        .map(drive);
        let wanted: Vec<String> = [own, shared, before, by_id].into_iter().flatten().collect();
        assert_eq!(isos_of(&pool, &drives), wanted);
    }

    #[test]
    fn only_an_installed_host_of_ours_and_only_once() {
        let eject = |on| {
            with(pool("w"), |p| {
                p.spec.iso = Some(IsoSpec {
                    eject_after_install: on,
                    ..IsoSpec::default()
                });
            })
        };
        let made = VmStatus {
            vm_path: Some("[ds] a-1/a.vmx".to_owned()),
            ..VmStatus::default()
        };
        let host = |installed: &str| {
            let condition = ForeignCondition {
                type_: INSTALLED.to_owned(),
                status: installed.to_owned(),
                ..ForeignCondition::default()
            };
            with(Agent::default(), |a| {
                a.status.get_or_insert_default().conditions = vec![condition];
            })
        };
        let (on, installed) = (eject(Some(true)), host("True"));
        let taken_over = VmStatus::default();
        let done = with(made.clone(), |vm| vm.iso_ejected = Some(true));
        for (what, pool, adopted, vm, agent, due) in [
            (
                "all is given",
                Some(&on),
                false,
                Some(&made),
                Some(&installed),
                true,
            ),
            (
                "off",
                Some(&eject(Some(false))),
                false,
                Some(&made),
                Some(&installed),
                false,
            ),
            (
                "not asked for",
                Some(&eject(None)),
                false,
                Some(&made),
                Some(&installed),
                false,
            ),
            ("no pool", None, false, Some(&made), Some(&installed), false),
            (
                "taken over",
                Some(&on),
                false,
                Some(&taken_over),
                Some(&installed),
                false,
            ),
            (
                "adopted",
                Some(&on),
                true,
                Some(&made),
                Some(&installed),
                false,
            ),
            (
                "done",
                Some(&on),
                false,
                Some(&done),
                Some(&installed),
                false,
            ),
            (
                "installing",
                Some(&on),
                false,
                Some(&made),
                Some(&host("False")),
                false,
            ),
            ("no Agent", Some(&on), false, Some(&made), None, false),
        ] {
            assert_eq!(is_to_be_emptied(pool, adopted, vm, agent), due, "{what}");
        }
    }
}
