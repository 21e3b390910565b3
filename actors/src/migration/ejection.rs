//! A CD-ROM drive that the predecessor was emptying. Pure.

use agent_forge_crds::agent::IsoEjection;

use crate::{
    domain::{identity::BiosUuid, names::DatastorePath},
    ports::vcenter::Cdrom,
};

/// The ISO that the predecessor was taking out of the VM with this uuid, where it is still in that drive.
#[must_use]
pub fn begun(ejection: &IsoEjection, uuid: BiosUuid, drives: &[Cdrom]) -> Vec<String> {
    let same_vm = BiosUuid::parse(&ejection.bios_uuid) == Some(uuid);
    let wanted = DatastorePath::parse(&ejection.iso_path).ok();
    let is_it = |iso: &&String| {
        let there = DatastorePath::parse(iso).ok();
        **iso == ejection.iso_path
            || there.is_some_and(|there| wanted.as_ref().is_some_and(|w| w.is_same_file(&there)))
    };
    let mut drives = drives
        .iter()
        .filter(|d| i64::from(d.key) == ejection.device_key);
    let found = drives.find_map(|d| d.iso.as_ref().filter(is_it));
    found.filter(|_| same_vm).cloned().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_predecessor_began_goes_only_out_of_that_drive_of_that_vm() {
        let uuid = BiosUuid::derive("c", "u", 1);
        let iso = "[isos] agent-forge/demo/w/a.iso";
        let ejection = IsoEjection {
            bios_uuid: uuid.to_string().to_uppercase(),
            device_key: 3000,
            iso_path: iso.to_owned(),
            ..IsoEjection::default()
        };
        let drive = |key, iso: &str| Cdrom {
            key,
            iso: Some(iso.to_owned()),
            connected: true,
            start_connected: true,
        };
        let (there, spelled) = (drive(3000, iso), "[isos] /agent-forge/demo/w/a.iso");
        let found = |uuid, drives: &[Cdrom]| begun(&ejection, uuid, drives);
        assert_eq!(found(uuid, std::slice::from_ref(&there)), [iso]);
        assert_eq!(found(uuid, &[drive(3000, spelled)]), [spelled]);
        for (what, uuid, drives) in [
            ("another disc", uuid, vec![drive(3000, "[isos] rescue.iso")]),
            ("another drive", uuid, vec![drive(3001, iso)]),
            ("another VM", BiosUuid::derive("c", "u", 2), vec![there]),
            ("no drive", uuid, vec![]),
        ] {
            assert_eq!(found(uuid, &drives), Vec::<String>::new(), "{what}");
        }
    }
}
