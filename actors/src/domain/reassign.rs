//! A host that a release before 1.0 was moving to another pool: what annotation and record say, and how far that is. Pure.
//!
//! ```text
//! Agent reserved for the taker -> taker's VsphereAgent made -> VM on its record -> mark in vCenter names it -> that on record
//!   -> the lender's VsphereAgent goes, without VM and Agent -> Agent prepared
//! ```
//!
//! Now a VsphereAgent moves itself, with its VM (`pool/act/child_object.rs`), and nothing of this is begun any more. Only what was begun is
//! ended.
//!
//! Guarantees
//! - The mark in vCenter decides who owns the VM.
//! - Once that release has begun to change the mark, the taker lets go of the VM only if the VM is gone, has a third one's mark, or still has
//!   the lender's when no late request can come any more. The record says whether it has begun.
//! - The lender does nothing to the VM or its Agent while a taker has it on record. Its record goes only after the taker's record says that the
//!   mark was seen.

use agent_forge_crds::agent::{TakenFrom, VmStatus};

use super::{marker::Marker, names::ObjectKey};

/// The VsphereAgent whose VM another one takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Namespace and name.
    pub key: ObjectKey,
    /// uid.
    pub uid: String,
    /// Which of its VMs.
    pub attempt: u32,
}

impl Source {
    /// Reads the annotation. `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let source = Self {
            key: ObjectKey::new(next()?, next()?),
            uid: next()?.to_owned(),
            attempt: next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(source)
    }

    /// The VsphereAgent on record.
    #[must_use]
    pub fn recorded(record: &TakenFrom) -> Self {
        Self {
            key: ObjectKey::new(&record.namespace, &record.name),
            uid: record.uid.clone(),
            attempt: u32::try_from(record.attempt).unwrap_or(1),
        }
    }

    /// The mark of its VM.
    #[must_use]
    pub fn marker(&self, cluster_id: String) -> Marker {
        Marker {
            cluster_id,
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: self.uid.clone(),
            attempt: self.attempt,
        }
    }
}

/// How far a VsphereAgent is with the VM that it takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// It takes none over, or has let go of it.
    #[default]
    No,
    /// Nothing is on record yet.
    Asked,
    /// The VM is on record. It is not known to be its own.
    Recorded,
    /// The VM is its own.
    Done,
}

/// Reads it. `source`: the annotation.
#[must_use]
pub fn taking(vm: Option<&VmStatus>, source: Option<&Source>) -> Taking {
    if let Some(record) = vm.and_then(|vm| vm.taken_from.as_ref()) {
        return match record.stamped {
            Some(true) => Taking::Done,
            _ => Taking::Recorded,
        };
    }
    let begun = vm.is_some_and(|vm| vm.attempt.is_some() || vm.bios_uuid.is_some());
    if source.is_some() && !begun {
        Taking::Asked
    } else {
        Taking::No
    }
}

/// The taker may have asked vCenter to change the mark of the VM that is on its record. An older release did not record when it
/// begins.
#[must_use]
pub fn may_have_asked(vm: Option<&VmStatus>) -> bool {
    let record = vm.and_then(|vm| vm.taken_from.as_ref());
    record.is_none_or(|record| record.stamped != Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with;

    #[test]
    fn the_annotations_are_read_as_they_are_written() {
        let source = Source {
            key: ObjectKey::new("a", "b"),
            uid: "u".to_owned(),
            attempt: 3,
        };
        assert_eq!(Source::parse("a/b/u/3"), Some(source.clone()));
        let record = TakenFrom {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            uid: "u".to_owned(),
            attempt: 3,
            stamped: None,
        };
        assert_eq!(Source::recorded(&record), source);
        for bad in ["", "a/b/u", "a/b/u/x", "a/b/u/1/2", "a//u/1", "a/b/u/-1"] {
            assert_eq!(Source::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_recorded_says_how_far_it_is() {
        let source = Source::parse("a/b/u/1").expect("a source");
        let recorded = VmStatus {
            attempt: Some(1),
            taken_from: Some(TakenFrom {
                stamped: Some(false),
                ..TakenFrom::default()
            }),
            ..VmStatus::default()
        };
        let stamped = with(recorded.clone(), |vm| {
            vm.taken_from.as_mut().expect("on record").stamped = Some(true);
        });
        assert!(!may_have_asked(Some(&recorded)));
        for begun in [None, Some(true)] {
            let begun = with(recorded.clone(), |vm| {
                vm.taken_from.as_mut().expect("on record").stamped = begun;
            });
            assert!(may_have_asked(Some(&begun)), "{begun:?}");
        }
        let let_go = with(recorded.clone(), |vm| vm.taken_from = None);
        let named = VmStatus::default();
        for (vm, source, expected) in [
            (None, None, Taking::No),
            (None, Some(&source), Taking::Asked),
            (Some(&named), Some(&source), Taking::Asked),
            (Some(&recorded), Some(&source), Taking::Recorded),
            // A person took the annotation off.
            (Some(&recorded), None, Taking::Recorded),
            (Some(&stamped), None, Taking::Done),
            (Some(&let_go), Some(&source), Taking::No),
        ] {
            assert_eq!(taking(vm, source), expected, "{vm:?}");
        }
    }
}
