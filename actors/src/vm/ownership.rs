//! Judges what vCenter showed of our VM: ours, foreign, several, or proven absent. Pure.
//!
//! Facts: BIOS uuids are not unique in vCenter. A clone carries uuid *and* marker, but has another instance uuid and
//! another reference. So a VM is never ours by its BIOS uuid alone, and a foreign VM is not touched.

use std::time::Duration;

use crate::{
    domain::{holds::VmMarks, marker::Marker, names::MoRef},
    ports::vcenter::{BareVm, VmObservation},
};

/// What the last look showed of our VM, judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// This actor has not asked yet, or the answer is out of date.
    #[default]
    NotAsked,
    /// This VM is ours.
    Ours(Box<VmObservation>),
    /// This VM is the recorded one, and still has the marker of the VsphereAgent that it is taken from.
    Lenders(Box<VmObservation>),
    /// Several VMs carry our marker, and no recorded value shows which one is ours.
    Several(Vec<MoRef>),
    /// What is there is not ours.
    Foreign {
        /// What is there: name and reference.
        what: String,
        /// How the operator found it.
        met: FoundBy,
        /// When it was seen (monotonic).
        at: Duration,
    },
    /// A VM that may be ours is there, and vCenter shows no configuration of it.
    Bare {
        /// What is there: name, reference and state.
        what: String,
        /// When it was seen (monotonic).
        at: Duration,
    },
    /// vCenter answered that many times in a row that the VM does not exist, with its folder visible or deleted.
    Absent {
        /// How often.
        proofs: u8,
    },
}

impl Ownership {
    /// Our VM, if that is what the look showed.
    #[must_use]
    pub fn ours(&self) -> Option<&VmObservation> {
        match self {
            Self::Ours(shown) => Some(shown),
            _ => None,
        }
    }

    /// What an administrator of vCenter has marked our VM with. Nothing if it is not there.
    #[must_use]
    pub fn marks(&self) -> VmMarks {
        self.ours()
            .map_or_else(VmMarks::default, |shown| shown.marks)
    }
}

/// How the operator found a foreign VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// It has the name that ours was to get, so ours does not exist. With its reference, if vCenter showed it.
    Name(Option<MoRef>),
    /// It carries our BIOS uuid: it is unknown whether ours exists.
    Uuid,
}

/// What is recorded of our VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Marker of this attempt.
    pub marker: Marker,
    /// Recorded reference.
    pub moref: Option<String>,
    /// Recorded instance uuid.
    pub instance_uuid: Option<String>,
    /// Marker of the VsphereAgent that the VM is taken from, until the VM is ours.
    pub lender: Option<Marker>,
}

/// Judges the VMs that a lookup returned. Once the instance uuid is recorded, it decides: a VM with another one is a
/// copy. A copy is not ours and not in our way, whatever marker it carries. A VM without configuration shows neither,
/// so it never counts as ours.
#[must_use]
pub fn judge(
    found: Vec<VmObservation>,
    expected: &Expected,
    before: &Ownership,
    now: Duration,
) -> Ownership {
    let (found, bare): (Vec<_>, Vec<_>) = found.into_iter().partition(VmObservation::shows_config);
    if let Some(vm) = bare.first() {
        let what = without_config(&vm.name, &vm.moref, &vm.connection_state);
        return Ownership::Bare { what, at: now };
    }
    let candidates: Vec<VmObservation> = found
        .into_iter()
        .filter(|vm| !is_other_instance(vm, expected))
        .collect();
    if candidates.is_empty() {
        return absent_once_more(before);
    }
    let (mut ours, others): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|vm| vm.marker.as_ref() == Some(&expected.marker));
    if ours.len() > 1 {
        let recorded = |vm: &VmObservation| expected.moref.as_deref() == Some(vm.moref.id.as_str());
        return match ours.iter().position(recorded) {
            Some(index) => Ownership::Ours(Box::new(ours.swap_remove(index))),
            None => Ownership::Several(ours.into_iter().map(|vm| vm.moref).collect()),
        };
    }
    let is_lenders = |vm: &&VmObservation| {
        let lender = expected.lender.as_ref();
        lender.is_some() && vm.marker.as_ref() == lender
    };
    match (ours.pop(), others.iter().find(is_lenders)) {
        (Some(vm), _) => Ownership::Ours(Box::new(vm)),
        (None, Some(vm)) => Ownership::Lenders(Box::new(vm.clone())),
        (None, None) => Ownership::Foreign {
            what: others
                .iter()
                .map(|vm| format!("{} ({})", vm.name, vm.moref.id))
                .collect::<Vec<_>>()
                .join(", "),
            met: FoundBy::Uuid,
            at: now,
        },
    }
}

/// Judges the VM with the name that ours was to get: it is ours after all, or foreign.
#[must_use]
pub fn judge_holder(holder: VmObservation, expected: &Expected, now: Duration) -> Ownership {
    let what = format!("{} ({})", holder.name, holder.moref.id);
    let moref = holder.moref.clone();
    match judge(vec![holder], expected, &Ownership::NotAsked, now) {
        told @ (Ownership::Ours(_) | Ownership::Bare { .. }) => told,
        _ => Ownership::Foreign {
            what,
            met: FoundBy::Name(Some(moref)),
            at: now,
        },
    }
}

fn without_config(name: &str, moref: &MoRef, state: &str) -> String {
    let state = if state.is_empty() { "unknown" } else { state };
    format!("VM {name} ({}), connection state {state},", moref.id)
}

/// The first of the VMs without configuration that may be ours: by name, or by the recorded path of its configuration
/// file. vCenter may have named it after that path.
#[must_use]
pub fn bare_namesake(
    bare: &[BareVm],
    name: &str,
    path: Option<&str>,
    now: Duration,
) -> Option<Ownership> {
    let file = path.and_then(|p| p.split_once("] "));
    let file = file.map(|(_, file)| format!("/{file}"));
    let may_be_ours = |vm: &&BareVm| {
        let by_file = file.as_ref().is_some_and(|f| vm.name.ends_with(f.as_str()));
        vm.name == name || by_file || path.is_some() && vm.vm_path.as_deref() == path
    };
    let vm = bare.iter().find(may_be_ours)?;
    let what = without_config(&vm.name, &vm.moref, &vm.connection_state);
    Some(Ownership::Bare { what, at: now })
}

/// Whether a VM, as it is now, still blocks that name in that folder.
#[must_use]
pub fn still_holds(vm: &VmObservation, name: &str, folder: &MoRef) -> bool {
    vm.name == name && vm.folder.as_ref() == Some(folder)
}

fn is_other_instance(vm: &VmObservation, expected: &Expected) -> bool {
    expected.instance_uuid.is_some()
        && vm.instance_uuid.is_some()
        && expected.instance_uuid != vm.instance_uuid
}

/// Counts one more successful answer that the VM does not exist.
#[must_use]
pub fn absent_once_more(before: &Ownership) -> Ownership {
    match before {
        Ownership::Absent { proofs } => Ownership::Absent {
            proofs: proofs.saturating_add(1),
        },
        _ => Ownership::Absent { proofs: 1 },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{domain::identity::BiosUuid, ports::vcenter::PowerState};

    pub fn marker(uid: &str) -> Marker {
        Marker {
            cluster_id: "c".into(),
            namespace: "ns".into(),
            name: "a".into(),
            uid: uid.into(),
            attempt: 1,
        }
    }

    pub fn vm(id: &str, marker: Option<Marker>, instance: &str) -> VmObservation {
        VmObservation {
            moref: MoRef::new("VirtualMachine", id),
            name: "a".into(),
            bios_uuid: BiosUuid::parse("423e36c8-723d-2b24-8590-0eb1d9180aa2"),
            instance_uuid: Some(instance.into()),
            folder: None,
            marker,
            may_serve: None,
            generation: None,
            disk: None,
            change_version: None,
            marks: crate::domain::holds::VmMarks::default(),
            adopt: None,
            annotation: String::new(),
            power: PowerState::Off,
            connection_state: "connected".into(),
            macs: vec![],
            disk_keys: vec![],
            cdroms: vec![],
            boot_order: vec![],
            vm_path: String::new(),
            tools: None,
            guest_address: None,
            hardware: crate::domain::hardware::ShownHardware::default(),
            guest_host: None,
        }
    }

    fn expected(moref: Option<&str>, instance: Option<&str>) -> Expected {
        Expected {
            marker: marker("u"),
            moref: moref.map(Into::into),
            instance_uuid: instance.map(Into::into),
            lender: None,
        }
    }

    fn look(found: Vec<VmObservation>, e: &Expected) -> Ownership {
        judge(found, e, &Ownership::NotAsked, Duration::ZERO)
    }

    #[test]
    fn only_our_marker_makes_it_ours() {
        assert!(matches!(
            look(vec![vm("1", Some(marker("u")), "i")], &expected(None, None)),
            Ownership::Ours(_)
        ));
        for foreign in [None, Some(marker("other"))] {
            assert!(matches!(
                look(vec![vm("1", foreign, "i")], &expected(None, None)),
                Ownership::Foreign { .. }
            ));
        }
    }

    #[test]
    fn a_vm_that_is_taken_over_is_the_lenders_until_the_marker_changes() {
        let mut taking = expected(Some("1"), Some("i"));
        taking.lender = Some(marker("lender"));
        let seen = |owner: &str, instance: &str| {
            look(vec![vm("1", Some(marker(owner)), instance)], &taking)
        };
        assert!(matches!(seen("lender", "i"), Ownership::Lenders(_)));
        assert!(matches!(seen("u", "i"), Ownership::Ours(_)));
        assert!(matches!(seen("third", "i"), Ownership::Foreign { .. }));
        let copy = seen("lender", "j");
        assert_eq!(copy, Ownership::Absent { proofs: 1 }, "another instance");
        let mut earlier = marker("lender");
        earlier.attempt = 2;
        let other = look(vec![vm("1", Some(earlier), "i")], &taking);
        assert!(matches!(other, Ownership::Foreign { .. }), "{other:?}");
    }

    #[test]
    fn of_two_marked_ones_the_recorded_decides_or_nobody() {
        let two = || {
            vec![
                vm("1", Some(marker("u")), "i"),
                vm("2", Some(marker("u")), "j"),
            ]
        };
        assert!(
            matches!(look(two(), &expected(None, None)), Ownership::Several(v) if v.len() == 2)
        );
        assert!(
            matches!(look(two(), &expected(Some("2"), Some("j"))), Ownership::Ours(v) if v.moref.id == "2")
        );
        // Re-registered: new reference, same instance.
        assert!(
            matches!(look(two(), &expected(Some("9"), Some("i"))), Ownership::Ours(v) if v.moref.id == "1")
        );
    }

    #[test]
    fn a_clone_is_not_in_the_way_of_the_recorded_instance() {
        let e = expected(Some("1"), Some("i"));
        // Our VM is gone. An administrator's copy remains, with and without our marker.
        for copy in [
            vm("2", Some(marker("u")), "j"),
            vm("2", None, "j"),
            vm("1", Some(marker("u")), "j"),
        ] {
            assert_eq!(look(vec![copy], &e), Ownership::Absent { proofs: 1 });
        }
        // The recorded instance without its marker proves nothing.
        assert!(matches!(
            look(vec![vm("1", None, "i")], &e),
            Ownership::Foreign {
                met: FoundBy::Uuid,
                ..
            }
        ));
        // If vCenter does not show an instance uuid, a copy cannot be recognised by it.
        let mut unknown = vm("2", Some(marker("u")), "j");
        unknown.instance_uuid = None;
        assert!(matches!(look(vec![unknown], &e), Ownership::Ours(_)));
    }

    #[test]
    fn a_vm_without_configuration_is_neither_ours_nor_foreign_nor_absent() {
        let mut hidden = vm("1", None, "i");
        (hidden.bios_uuid, hidden.instance_uuid) = (None, None);
        hidden.connection_state = "inaccessible".into();
        for e in [expected(None, None), expected(Some("1"), Some("i"))] {
            let seen = look(vec![hidden.clone()], &e);
            assert!(
                matches!(&seen, Ownership::Bare { what, .. } if what.contains("a (1)") && what.contains("inaccessible")),
                "{seen:?}"
            );
            let held = judge_holder(hidden.clone(), &e, Duration::ZERO);
            assert!(matches!(held, Ownership::Bare { .. }), "{held:?}");
        }
    }

    #[test]
    fn a_vm_without_configuration_may_be_ours_by_name_and_by_path() {
        let bare = |name: &str, path: Option<&str>| {
            [BareVm {
                moref: MoRef::new("VirtualMachine", "9"),
                name: name.into(),
                vm_path: path.map(Into::into),
                connection_state: "inaccessible".into(),
            }]
        };
        let ours = Some("[ds] a-1234-1/a.vmx");
        for (name, path, may) in [
            ("a", None, true),
            ("renamed", ours, true),
            ("/vmfs/volumes/5f-1/a-1234-1/a.vmx", None, true),
            ("b", None, false),
            ("b", Some("[ds] b-1/b.vmx"), false),
            ("/vmfs/volumes/5f-1/xa-1234-1/a.vmx", None, false),
        ] {
            let seen = bare_namesake(&bare(name, path), "a", ours, Duration::ZERO);
            assert_eq!(seen.is_some(), may, "{name} {path:?}");
        }
        assert_eq!(
            bare_namesake(&bare("b", None), "a", None, Duration::ZERO),
            None
        );
    }

    #[test]
    fn the_holder_of_our_name_is_ours_or_foreign_by_name() {
        let e = expected(None, None);
        let hold = |m| judge_holder(vm("1", m, "i"), &e, Duration::ZERO);
        assert!(matches!(hold(Some(marker("u"))), Ownership::Ours(_)));
        for m in [None, Some(marker("other"))] {
            assert!(
                matches!(hold(m), Ownership::Foreign { met: FoundBy::Name(Some(r)), what, .. } if what.contains("(1)") && r.id == "1")
            );
        }
    }

    #[test]
    fn a_holder_holds_by_name_and_folder() {
        let folder = MoRef::new("Folder", "f");
        let mut holder = vm("1", None, "i");
        assert!(!still_holds(&holder, "a", &folder), "moved away");
        holder.folder = Some(folder.clone());
        assert!(still_holds(&holder, "a", &folder));
        holder.name = "b".into();
        assert!(!still_holds(&holder, "a", &folder), "renamed");
    }

    #[test]
    fn absence_needs_answers_in_a_row() {
        let e = expected(None, None);
        let once = look(vec![], &e);
        assert_eq!(once, Ownership::Absent { proofs: 1 });
        assert_eq!(
            judge(vec![], &e, &once, Duration::ZERO),
            Ownership::Absent { proofs: 2 }
        );
    }
}
