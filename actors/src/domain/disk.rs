//! Whose data is on the disks of a VM that waits, and which hosted cluster may have it. Pure.
//!
//! Guarantees
//! - What vCenter showed after the renewal decides, not what the pool says now.
//! - A disk with data goes only to the hosted cluster whose data it is. Unknown counts as data of others.

use agent_forge_crds::{
    agent::{DiskStatus, VmStatus},
    pool::ReleasedDisk,
};

use super::{generation::generation, marker::DiskMark};

/// What was on the disks of a VM when its present life began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Nothing.
    New,
    /// Data of the hosted cluster with that control plane, by namespace.
    DataOf(String),
    /// The record does not say: an older release made the VM ready, or the record is older than the VM.
    Unknown,
}

/// The record that speaks of the present life.
fn present(vm: &VmStatus) -> Option<&DiskStatus> {
    let life = i64::from(generation(vm));
    vm.disk.as_ref().filter(|d| i64::from(d.generation) == life)
}

/// Reads it.
#[must_use]
pub fn of(vm: &VmStatus) -> Disk {
    match present(vm) {
        Some(record) => match (record.handling, &record.data_of) {
            (Some(ReleasedDisk::Replace), _) => Disk::New,
            (Some(ReleasedDisk::Keep), Some(cluster)) => Disk::DataOf(cluster.clone()),
            _ => Disk::Unknown,
        },
        None if is_first(vm) => Disk::New,
        None => Disk::Unknown,
    }
}

/// It is in its first life, and nothing on record says otherwise.
fn is_first(vm: &VmStatus) -> bool {
    let later = vm.lives.iter().any(|past| past.generation > 1);
    generation(vm) == 1 && vm.disk.is_none() && !later
}

/// Its disks may have the system of a life before: it boots its CD-ROM first until its Agent is back. Unknown counts as that.
#[must_use]
pub fn keeps(vm: &VmStatus) -> bool {
    present(vm).is_none_or(|record| record.handling != Some(ReleasedDisk::Replace))
}

/// What to record of the disks when the VM `before` begins `life`. `mark`: what the VM says of them in vCenter.
#[must_use]
pub fn record(before: &VmStatus, life: u32, mark: Option<DiskMark>) -> Option<DiskStatus> {
    let mark = mark.filter(|mark| mark.life == life)?;
    let over = before.lives.last();
    let over = over.filter(|past| i64::from(past.generation) + 1 == i64::from(life));
    let served = over.and_then(|past| past.control_plane.clone());
    let alone = |cluster: &String| match of(before) {
        Disk::New => true,
        Disk::DataOf(other) => other == *cluster,
        Disk::Unknown => false,
    };
    Some(DiskStatus {
        generation: i32::try_from(life).ok()?,
        handling: Some(if mark.kept {
            ReleasedDisk::Keep
        } else {
            ReleasedDisk::Replace
        }),
        data_of: served.filter(|_| mark.kept).filter(alone),
    })
}

/// A pool that would give a host to its AgentMachines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker<'a> {
    /// Namespace of the control plane of its hosted cluster.
    pub control_plane: &'a str,
    /// It takes only new disks.
    pub new_only: bool,
}

/// Why a host with that record does not go to `taker`. `lender`: namespace of the control plane of the pool that has it. The
/// one question before a host is offered, before it is taken, and before its mark is changed.
#[must_use]
pub fn refuses(vm: &VmStatus, lender: Option<&str>, taker: Taker<'_>) -> Option<String> {
    match of(vm) {
        Disk::New => None,
        Disk::DataOf(_) | Disk::Unknown if taker.new_only => {
            Some("its disk is not new, and the pool takes only new ones".to_owned())
        }
        Disk::DataOf(cluster) if cluster == taker.control_plane => None,
        Disk::DataOf(cluster) => Some(format!(
            "its disk has data of the hosted cluster with control plane {cluster}"
        )),
        // It stays with the pool that made it.
        Disk::Unknown
            if vm.taken_from.is_none()
                && lender == Some(taker.control_plane)
                && !is_of_another(vm, taker.control_plane) =>
        {
            None
        }
        Disk::Unknown => Some(
            "the record does not say whose data its disk has, so it stays with its hosted cluster"
                .to_owned(),
        ),
    }
}

/// Its disk may have data of another hosted cluster than that: the pool in which it waits served another one when the disk was
/// kept. Where the record does not say whose data it is, each life on record must have served that hosted cluster.
#[must_use]
pub fn is_of_another(vm: &VmStatus, control_plane: &str) -> bool {
    match of(vm) {
        Disk::New => false,
        Disk::DataOf(cluster) => cluster != control_plane,
        Disk::Unknown => {
            let mut others = vm.lives.iter().map(|past| past.control_plane.as_deref());
            vm.lives.is_empty() || others.any(|other| other != Some(control_plane))
        }
    }
}

/// The record says of life and disks what vCenter shows.
#[must_use]
pub fn is_as_shown(vm: &VmStatus, life: u32, mark: Option<DiskMark>) -> bool {
    let kept = mark.filter(|mark| mark.life == life).map(|mark| mark.kept);
    let recorded = present(vm).and_then(|record| record.handling);
    generation(vm) == life
        && recorded.is_none_or(|handling| kept == Some(handling == ReleasedDisk::Keep))
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::agent::{PastLife, TakenFrom};

    use super::*;
    use crate::testing::with;

    fn past(generation: i32, control_plane: Option<&str>) -> PastLife {
        PastLife {
            generation,
            control_plane: control_plane.map(str::to_owned),
            ..PastLife::default()
        }
    }

    /// A VM in its second life, which began like that.
    fn second(handling: Option<ReleasedDisk>, data_of: Option<&str>) -> VmStatus {
        VmStatus {
            generation: Some(2),
            disk: Some(DiskStatus {
                generation: 2,
                handling,
                data_of: data_of.map(str::to_owned),
            }),
            lives: vec![past(1, data_of)],
            ..VmStatus::default()
        }
    }

    fn taker(control_plane: &str) -> Taker<'_> {
        Taker {
            control_plane,
            new_only: false,
        }
    }

    #[test]
    fn a_disk_with_data_goes_only_to_its_own_hosted_cluster() {
        let first = VmStatus::default();
        let replaced = second(Some(ReleasedDisk::Replace), None);
        let kept = second(Some(ReleasedDisk::Keep), Some("a"));
        let whose = second(Some(ReleasedDisk::Keep), None);
        let odd = second(None, Some("a"));
        // What an older release recorded.
        let older = with(kept.clone(), |vm| vm.disk = None);
        let late = with(kept.clone(), |vm| vm.generation = Some(3));
        let forgotten = with(kept.clone(), |vm| vm.generation = None);
        let goes = |vm: &VmStatus, to: &str| refuses(vm, Some("a"), taker(to)).is_none();
        for (vm, own, other, keeps_it) in [
            (&first, true, true, true),
            (&replaced, true, true, false),
            (&kept, true, false, true),
            (&whose, false, false, true),
            (&odd, true, false, true),
            (&older, true, false, true),
            (&late, true, false, true),
            (&forgotten, true, false, true),
        ] {
            assert_eq!((goes(vm, "a"), goes(vm, "b")), (own, other), "{vm:?}");
            assert_eq!(keeps(vm), keeps_it, "{vm:?}");
            let strict = Taker {
                new_only: true,
                ..taker("a")
            };
            let new = of(vm) == Disk::New;
            assert_eq!(refuses(vm, Some("a"), strict).is_none(), new, "{vm:?}");
        }
        let others: Vec<_> = [&first, &replaced, &kept, &whose, &odd, &older]
            .map(|vm| (is_of_another(vm, "a"), is_of_another(vm, "b")))
            .into();
        let (no, both, theirs) = ((false, false), (true, true), (false, true));
        assert_eq!(others, [no, no, theirs, both, theirs, theirs]);
        // A life that served another one, or one that nothing is known of, and a record without lives.
        let served = |served| with(older.clone(), |vm| vm.lives.push(past(2, served)));
        for vm in [
            served(Some("b")),
            served(None),
            with(older.clone(), |vm| vm.lives.clear()),
        ] {
            assert!(is_of_another(&vm, "a"), "{vm:?}");
            assert!(!goes(&vm, "a") && !goes(&vm, "b"), "{vm:?}");
        }
        // The pool of its maker serves another hosted cluster by now.
        assert!(refuses(&older, Some("b"), taker("b")).is_some());
        // What its maker would not know of it, another pool of the same hosted cluster does not know either.
        let moved = with(older, |vm| vm.taken_from = Some(TakenFrom::default()));
        assert!(!goes(&moved, "a") && !goes(&moved, "b"));
        assert!(refuses(&whose, None, taker("a")).is_some());
        let theirs = refuses(&kept, Some("b"), taker("b"));
        assert!(theirs.is_some_and(|why| why.contains("control plane a")));
    }

    #[test]
    fn the_record_of_a_renewal_says_what_vcenter_shows() {
        let first = VmStatus {
            lives: vec![past(1, Some("a"))],
            ..VmStatus::default()
        };
        let mark = |life, kept| Some(DiskMark { life, kept });
        let whose = |vm: &VmStatus, life, mark| record(vm, life, mark).map(|d| d.data_of);
        assert_eq!(record(&first, 2, None), None);
        assert_eq!(record(&first, 2, mark(1, true)), None, "of another life");
        let kept = record(&first, 2, mark(2, true)).expect("a record");
        let expected = second(Some(ReleasedDisk::Keep), Some("a")).disk;
        assert_eq!(Some(kept), expected);
        assert_eq!(whose(&first, 2, mark(2, false)), Some(None));
        // Kept once more.
        let again = |data_of, served| {
            with(second(Some(ReleasedDisk::Keep), data_of), |vm| {
                vm.lives.push(past(2, served));
            })
        };
        let third = |vm: &VmStatus| whose(vm, 3, mark(3, true)).flatten();
        let one = again(Some("a"), Some("a"));
        assert_eq!(third(&one).as_deref(), Some("a"));
        for unknown in [
            again(Some("a"), Some("b")),
            again(Some("a"), None),
            again(None, Some("a")),
            with(one, |vm| vm.lives.truncate(1)),
        ] {
            assert_eq!(third(&unknown), None, "{unknown:?}");
        }
        let vm = second(Some(ReleasedDisk::Keep), Some("a"));
        assert!(is_as_shown(&vm, 2, mark(2, true)));
        for (life, mark) in [(2, mark(2, false)), (2, None), (3, mark(3, true))] {
            assert!(!is_as_shown(&vm, life, mark));
        }
        assert!(is_as_shown(&VmStatus::default(), 1, None));
    }
}
