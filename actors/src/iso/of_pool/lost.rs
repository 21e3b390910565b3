//! How a pool's status changes when its ISO file is missing. Pure.

use agent_forge_crds::pool::IsoStatus;

use super::files::{datastore, place};
use crate::domain::names::DatastorePath;

/// `iso` after `gone` was found missing or incomplete: no VM is made from it. Its version counts like one that was
/// about to be published, because its content is unknown, and retention removes it. The digest stays: it shows whether
/// later bytes of the same source differ. `wanted`: the datastore on which the pool wants its ISO.
pub(super) fn without(mut iso: IsoStatus, gone: &DatastorePath, wanted: &str) -> IsoStatus {
    let beside = datastore(&iso, wanted);
    for entry in &mut iso.history {
        // Entries without a datastore depend on what is removed below.
        entry.datastore.get_or_insert_with(|| beside.clone());
        if place(entry, &beside).as_ref() == Some(gone) {
            (entry.size_bytes, entry.uploaded_at) = (None, None);
        }
    }
    IsoStatus {
        path: None,
        stored_path: None,
        size_bytes: None,
        uploaded_at: None,
        ..iso
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::pool::IsoHistoryEntry;
    use jiff::Timestamp;

    use super::super::{
        files::{is_published, known_file, listed},
        record::status,
        want,
    };
    use crate::{
        domain::names::ObjectKey,
        iso::msg::{IsoFile, IsoState},
        ports::iso_source::Validators,
        testing::{POOL, at, infra_env, pool},
    };

    #[test]
    fn what_does_not_lie_there_is_given_to_no_vm_until_it_is_back() {
        let secret = ObjectKey::new("demo", "vsphere");
        let want = want(&pool(POOL), &[], Some(&infra_env()), &secret).expect("a want");
        let sha256 = "a".repeat(64);
        let path = want.directory.join(&format!("{sha256}.iso"));
        let path = path.expect("a path");
        let ready = |uploaded_at: Timestamp| IsoState::Ready {
            file: IsoFile {
                sha256: sha256.clone(),
                path: path.clone(),
                size: 7,
                uploaded_at,
                validators: Validators::default(),
                volatile: false,
            },
            reused: false,
            pruned: Vec::new(),
            prune_failures: Vec::new(),
        };
        let mut had = status(None, &want, &ready(at(0)), at(0)).expect("a status");
        // As the predecessor wrote it.
        had.history.push(IsoHistoryEntry {
            sha256: "b".repeat(64),
            path: "old/b.iso".to_owned(),
            size_bytes: Some(7),
            ..IsoHistoryEntry::default()
        });
        let gone = IsoState::Lost(path.clone());
        let lost = status(Some(&had), &want, &gone, at(60)).expect("a status");
        assert_eq!((&lost.path, &lost.stored_path), (&None, &None));
        assert_eq!(known_file(&lost), None);
        assert_eq!(lost.sha256, had.sha256);
        assert!(listed(&lost, "isos").contains(&path), "it may lie there");
        let rows = lost.history.iter();
        let rows = rows.map(|h| (is_published(h), h.datastore.as_deref()));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows, [(false, Some("isos")), (true, Some("isos"))]);
        let back = status(Some(&lost), &want, &ready(at(90)), at(90)).expect("a status");
        assert_eq!(back.stored_path, had.stored_path);
        assert_eq!(back.uploaded_at.map(|t| t.0), Some(at(90)));
        assert_eq!(back.volatile, None, "the same bytes");
        let whole = back.history.iter().filter(|h| is_published(h));
        assert_eq!((whole.count(), back.history.len()), (2, 2));
    }
}
