//! How a pool's status records its ISO. Pure.

use agent_forge_crds::{
    Time,
    pool::{IsoHistoryEntry, IsoStatus},
};
use jiff::Timestamp;

use super::{
    files::{datastore, is_published, listed, place},
    lost,
};
use crate::{
    domain::{names::DatastorePath, seconds},
    iso::msg::{IsoFile, IsoPlace, IsoState, IsoWant},
    migration,
};

/// How many versions are remembered that were about to be published and never seen again. Each crash leaves at most
/// one, and retention removes it. A transfer that fails again and again has left nothing.
const UNPUBLISHED: usize = 10;

/// The URL of the download in a form that the status may contain.
fn source(want: &IsoWant) -> String {
    want.source.redacted()
}

/// `iso` with a version that is about to be published.
fn intending(mut iso: IsoStatus, want: &IsoWant, place: &IsoPlace) -> IsoStatus {
    if listed(&iso, &want.directory.datastore).contains(&place.path) {
        return iso;
    }
    let entry = IsoHistoryEntry {
        sha256: place.sha256.clone(),
        path: place.path.path.clone(),
        datastore: Some(place.path.datastore.clone()),
        url: Some(source(want)),
        ..IsoHistoryEntry::default()
    };
    iso.history.insert(0, entry);
    let mut unpublished = 0;
    iso.history.retain(|h| {
        unpublished += usize::from(!is_published(h));
        is_published(h) || unpublished <= UNPUBLISHED
    });
    iso
}

/// `iso` while nothing is on its way.
fn at_rest(iso: IsoStatus) -> IsoStatus {
    IsoStatus {
        downloaded_bytes: None,
        total_bytes: None,
        bytes_per_second: None,
        eta_seconds: None,
        ..iso
    }
}

/// `status.iso` after the cache's answer.
#[must_use]
pub fn status(
    record: Option<&IsoStatus>,
    want: &IsoWant,
    state: &IsoState,
    now: Timestamp,
) -> Option<IsoStatus> {
    match state {
        // No byte has come yet. If that were shown as zero bytes, each try of an outage would cost two writes.
        IsoState::Fetching {
            done: 0,
            total: None,
            ..
        }
        | IsoState::Queued(_)
        | IsoState::Failed(_) => record.cloned().map(|iso| {
            let mut iso = at_rest(iso);
            migration::iso::fit_to_show(&mut iso, &want.source);
            iso
        }),
        IsoState::Lost(gone) => record.cloned().map(|iso| {
            let mut iso = lost::without(at_rest(iso), gone, &want.directory.datastore);
            migration::iso::fit_to_show(&mut iso, &want.source);
            iso
        }),
        IsoState::Publishing(place) => {
            let mut iso = record.cloned().unwrap_or_default();
            migration::iso::fit_to_show(&mut iso, &want.source);
            Some(intending(iso, want, place))
        }
        IsoState::Fetching { done, total, rate } => {
            let mut iso = record.cloned().unwrap_or_default();
            let left = total.map(|t| t.saturating_sub(*done));
            let eta = match (left, rate) {
                (Some(left), Some(rate)) if *rate > 0 => Some(left.div_ceil(*rate)),
                _ => None,
            };
            iso.downloaded_bytes = signed(Some(*done));
            iso.total_bytes = signed(*total);
            iso.bytes_per_second = signed(*rate);
            iso.eta_seconds = signed(eta);
            migration::iso::fit_to_show(&mut iso, &want.source);
            Some(iso)
        }
        IsoState::Ready { file, pruned, .. } => Some(ready(record, want, file, pruned, now)),
    }
}

/// `record` once that file is there.
fn ready(
    record: Option<&IsoStatus>,
    want: &IsoWant,
    file: &IsoFile,
    pruned: &[DatastorePath],
    now: Timestamp,
) -> IsoStatus {
    // At another place the same bytes are new: a VM may still use the earlier one.
    let there = file.path.to_string();
    let same = record.filter(|i| {
        i.sha256.as_deref() == Some(file.sha256.as_str())
            && i.source_key.as_deref() == Some(want.source_key.as_str())
            && want.force_token.is_none()
            && i.stored_path.as_ref().is_none_or(|path| *path == there)
    });
    let history = with_version(record, want, file, pruned);
    // What the predecessor recorded for these very bytes.
    let theirs = record.filter(|i| i.sha256.as_deref() == Some(file.sha256.as_str()));
    let compares = !want.source.is_assisted();
    IsoStatus {
        url: Some(source(want)),
        sha256: Some(file.sha256.clone()),
        path: Some(file.path.path.clone()),
        stored_path: Some(there),
        size_bytes: signed(Some(file.size)),
        // Changes only with the content: a status that changed on every look would be written on every look.
        checked_at: same
            .and_then(|i| i.checked_at.clone())
            .or_else(|| Some(whole(now))),
        uploaded_at: same
            .and_then(|i| i.uploaded_at.clone())
            .or_else(|| Some(whole(file.uploaded_at))),
        force_refresh_token: want
            .force_token
            .clone()
            .or_else(|| record.and_then(|i| i.force_refresh_token.clone())),
        source_key: Some(want.source_key.clone()),
        volatile: is_volatile(record, want, file).then_some(true),
        source_etag: file.validators.etag.clone().filter(|_| compares),
        source_last_modified: file.validators.last_modified.clone().filter(|_| compares),
        url_hash: theirs.and_then(|i| i.url_hash.clone()),
        last_modified: theirs.and_then(|i| i.last_modified.clone()),
        history,
        ..IsoStatus::default()
    }
}

/// The history of `record` with that file as its newest version, without what was removed.
fn with_version(
    record: Option<&IsoStatus>,
    want: &IsoWant,
    file: &IsoFile,
    pruned: &[DatastorePath],
) -> Vec<IsoHistoryEntry> {
    let mut history = record.map(|i| i.history.clone()).unwrap_or_default();
    if let Some(iso) = record {
        let beside = datastore(iso, &want.directory.datastore);
        for entry in &mut history {
            entry.datastore.get_or_insert_with(|| beside.clone());
        }
    }
    let at = |h: &IsoHistoryEntry| place(h, &file.path.datastore);
    let is_it = |h: &IsoHistoryEntry| h.sha256 == file.sha256 && at(h).as_ref() == Some(&file.path);
    history.retain(|h| is_it(h) || at(h).is_none_or(|place| !pruned.contains(&place)));
    let known = history.iter().position(is_it).map(|at| history.remove(at));
    let known = known.filter(is_published).unwrap_or(IsoHistoryEntry {
        sha256: file.sha256.clone(),
        path: file.path.path.clone(),
        datastore: Some(file.path.datastore.clone()),
        size_bytes: signed(Some(file.size)),
        uploaded_at: Some(whole(file.uploaded_at)),
        url: None,
    });
    let newest = IsoHistoryEntry {
        url: Some(source(want)),
        ..known
    };
    history.insert(0, newest);
    history
}

/// Whether the source is volatile. With the Assisted Service, other bytes for the same InfraEnv, URL and `createdTime`
/// prove it. Any other server may change its bytes, and the cache finds out whether its validators can be trusted.
fn is_volatile(record: Option<&IsoStatus>, want: &IsoWant, file: &IsoFile) -> bool {
    let same_source = record.filter(|i| i.source_key.as_deref() == Some(want.source_key.as_str()));
    file.volatile
        || same_source.is_some_and(|i| {
            let differs = i.sha256.as_deref() != Some(file.sha256.as_str());
            i.volatile == Some(true) || differs && want.source.is_assisted()
        })
}

fn signed(number: Option<u64>) -> Option<i64> {
    number.and_then(|n| i64::try_from(n).ok())
}

fn whole(t: Timestamp) -> Time {
    Time(seconds::whole(t))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agent_forge_crds::conditions::Reason;
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::{
        domain::{
            failure::{ErrorSource, ReconcileError},
            names::{DatastorePath, ObjectKey},
        },
        iso::of_pool::files::known_file,
        ports::iso_source::{IsoUrl, Validators},
        testing::with,
    };

    fn want() -> IsoWant {
        IsoWant {
            pool: ObjectKey::new("demo", "w"),
            uid: "uid-of-w".to_owned(),
            secret: ObjectKey::new("demo", "vsphere"),
            source: IsoUrl::parse("https://images.example/iso").expect("URL"),
            ca_pem: Ok(None),
            source_key: "key".to_owned(),
            directory: DatastorePath::new("iso", "agent-forge/demo/w").expect("path"),
            known: None,
            force_token: None,
            directories: Default::default(),
            prunable: Vec::new(),
            users: Vec::new(),
            listed: BTreeSet::new(),
            used: None,
            look_within: None,
            shares: false,
            check_every: None,
        }
    }

    #[test]
    fn a_token_that_the_predecessor_wrote_goes_with_the_first_write() {
        let mut want = want();
        want.source = IsoUrl::parse("https://img/byapikey/SECRET/x.iso").expect("URL");
        let now = Timestamp::UNIX_EPOCH;
        let coming = IsoState::Fetching {
            done: 1,
            total: None,
            rate: None,
        };
        let failed = IsoState::Failed(ReconcileError::transient(
            ErrorSource::Iso,
            Reason::IsoDownloadFailed,
            "503",
        ));
        let queued = IsoState::Queued(ObjectKey::new("demo", "other"));
        let clean = Some("https://img/byapikey/REDACTED/x.iso".to_owned());
        for (url, left) in [
            ("https://img/byapikey/SECRET/x.iso", clean.clone()),
            ("https://img/byapikey/REDACTED/x.iso", clean),
            ("https://img/byapikey/OTHER/x.iso", None),
            ("SECRET", None),
        ] {
            let record = IsoStatus {
                url: Some(url.to_owned()),
                ..IsoStatus::default()
            };
            for state in [&coming, &queued, &failed] {
                let written = status(Some(&record), &want, state, now).expect("a status");
                assert_eq!(written.url, left, "{url}");
            }
        }
    }

    /// Releases after 1.1.0 write `urlHash` and `lastModified`, and the URL without its query.
    #[test]
    fn the_digest_of_the_url_tells_the_predecessors_file_and_stays_with_its_bytes() {
        let want = with(want(), |w| {
            w.source = IsoUrl::parse("https://images.example/iso?token=SECRET").expect("URL");
        });
        let record = IsoStatus {
            url: Some("https://images.example/iso".to_owned()),
            url_hash: Some(hex::encode(Sha256::digest(want.source.expose().as_str()))),
            last_modified: Some("Wed, 23 Sep 2026 01:24:34 GMT".to_owned()),
            sha256: Some("a".repeat(64)),
            path: Some("agent-forge/demo/w/a.iso".to_owned()),
            size_bytes: Some(7),
            uploaded_at: Some(Time(Timestamp::UNIX_EPOCH)),
            ..IsoStatus::default()
        };
        let found =
            |iso: &IsoStatus| migration::iso::file(iso, "iso", &want.source, None).is_some();
        assert!(found(&record));
        let other = with(record.clone(), |i| i.url_hash = Some("0".repeat(64)));
        assert!(!found(&other), "the token is another one");
        let before = with(record.clone(), |i| i.url_hash = None);
        assert!(!found(&before), "a URL without its token says too little");
        let kept = |digit| {
            let state = ready(&file_on("iso", digit), Vec::new());
            let iso = status(Some(&record), &want, &state, Timestamp::UNIX_EPOCH);
            let iso = iso.expect("a status");
            (iso.url_hash, iso.last_modified)
        };
        assert_eq!(
            kept('a'),
            (record.url_hash.clone(), record.last_modified.clone())
        );
        assert_eq!(kept('b'), (None, None), "they speak of other bytes");
    }

    #[test]
    fn what_is_about_to_be_published_is_listed_until_it_is_known_what_came_of_it() {
        let (want, now) = (want(), Timestamp::UNIX_EPOCH);
        let directory = want.directory.clone();
        let place = |digit: char| IsoPlace {
            sha256: digit.to_string().repeat(64),
            path: directory
                .join(&format!("{}.iso", digit.to_string().repeat(64)))
                .expect("path"),
        };
        let file = |place: &IsoPlace| IsoFile {
            sha256: place.sha256.clone(),
            path: place.path.clone(),
            size: 7,
            uploaded_at: now,
            validators: Validators::default(),
            volatile: false,
        };
        let ready = |file: IsoFile, pruned: Vec<DatastorePath>| IsoState::Ready {
            file,
            reused: false,
            pruned,
            prune_failures: Vec::new(),
        };
        let names = |iso: &IsoStatus| -> Vec<(String, bool)> {
            let row = |h: &IsoHistoryEntry| (h.sha256[..1].to_owned(), is_published(h));
            iso.history.iter().map(row).collect()
        };
        let row = |name: &str, published| (name.to_owned(), published);
        let publishing = |p: &IsoPlace| IsoState::Publishing(p.clone());
        let first = status(None, &want, &publishing(&place('a')), now).expect("a status");
        assert_eq!(names(&first), [row("a", false)]);
        assert_eq!(known_file(&first), None, "it does not lie there yet");
        assert!(listed(&first, "iso").contains(&place('a').path));
        let again = status(Some(&first), &want, &publishing(&place('a')), now);
        assert_eq!(again.as_ref(), Some(&first), "said once");
        // The process died; the next download has other bytes.
        let second = status(Some(&first), &want, &publishing(&place('b')), now).expect("a status");
        let there = ready(file(&place('b')), Vec::new());
        let third = status(Some(&second), &want, &there, now).expect("a status");
        assert_eq!(names(&third), [row("b", true), row("a", false)]);
        let swept = ready(file(&place('b')), vec![place('a').path]);
        let fourth = status(Some(&third), &want, &swept, now).expect("a status");
        assert_eq!(names(&fourth), [row("b", true)]);
    }

    /// A file whose name is that digit repeated, on that datastore.
    fn file_on(datastore: &str, digit: char) -> IsoFile {
        let sha256 = digit.to_string().repeat(64);
        let directory = DatastorePath::new(datastore, "agent-forge/demo/w").expect("path");
        IsoFile {
            path: directory.join(&format!("{sha256}.iso")).expect("path"),
            sha256,
            size: 7,
            uploaded_at: Timestamp::UNIX_EPOCH,
            validators: Validators::default(),
            volatile: false,
        }
    }

    fn ready(file: &IsoFile, pruned: Vec<DatastorePath>) -> IsoState {
        IsoState::Ready {
            file: file.clone(),
            reused: false,
            pruned,
            prune_failures: Vec::new(),
        }
    }

    #[test]
    fn what_lies_on_a_datastore_that_was_left_is_listed_until_it_is_gone() {
        let (mut want, now) = (want(), Timestamp::UNIX_EPOCH);
        let later = |seconds| Timestamp::from_second(seconds).expect("a time");
        let before = status(None, &want, &ready(&file_on("iso", 'a'), Vec::new()), now);
        let mut before = before.expect("a status");
        // As it was written before versions named their datastore.
        before.history[0].datastore = None;
        want.directory.datastore = "new".to_owned();
        let same_bytes = file_on("new", 'a');
        let place = IsoPlace {
            sha256: same_bytes.sha256.clone(),
            path: same_bytes.path.clone(),
        };
        assert!(
            !listed(&before, "new").contains(&place.path),
            "the name is listed on the old one only"
        );
        let moving = IsoState::Publishing(place.clone());
        let moving = status(Some(&before), &want, &moving, now).expect("a status");
        assert_eq!(moving.stored_path, before.stored_path, "VMs go on with it");
        assert!(listed(&moving, "new").contains(&place.path));
        let moved = status(
            Some(&moving),
            &want,
            &ready(&same_bytes, Vec::new()),
            later(60),
        );
        let moved = moved.expect("a status");
        let both = [&same_bytes, &file_on("iso", 'a')].map(|f| f.path.clone());
        assert_eq!(listed(&moved, "new"), both.clone().into());
        assert_eq!(
            moved.checked_at,
            Some(Time(later(60))),
            "VMs may be on their way from the old place"
        );
        let alone = status(
            Some(&moved),
            &want,
            &ready(&same_bytes, both.to_vec()),
            later(90),
        );
        let alone = alone.expect("a status");
        assert_eq!(
            listed(&alone, "new"),
            [place.path].into(),
            "the current one"
        );
        assert_eq!(alone.checked_at, moved.checked_at);
    }

    #[test]
    fn each_version_says_where_it_is_from_without_the_token() {
        let (mut want, now) = (want(), Timestamp::UNIX_EPOCH);
        let mut iso = None;
        for (n, host) in ["before", "after"].into_iter().enumerate() {
            want.source =
                IsoUrl::parse(&format!("https://{host}/byapikey/SECRET/x.iso")).expect("URL");
            want.source_key = host.to_owned();
            let sha256 = format!("{n:064x}");
            let path = want.directory.join(&format!("{sha256}.iso")).expect("path");
            let place = IsoPlace {
                sha256: sha256.clone(),
                path: path.clone(),
            };
            let file = IsoFile {
                sha256,
                path,
                size: 7,
                uploaded_at: now,
                validators: Validators::default(),
                volatile: false,
            };
            iso = status(iso.as_ref(), &want, &IsoState::Publishing(place), now);
            let said = |iso: &IsoStatus| iso.history[0].url.clone();
            let redacted = Some(format!("https://{host}/byapikey/REDACTED/x.iso"));
            assert_eq!(iso.as_ref().and_then(said), redacted);
            let there = IsoState::Ready {
                file,
                reused: false,
                pruned: Vec::new(),
                prune_failures: Vec::new(),
            };
            iso = status(iso.as_ref(), &want, &there, now);
            assert_eq!(iso.as_ref().and_then(said), redacted);
            // A record from before that field existed gets it at the next look.
            let mut without = iso.clone().expect("a status");
            without.history[0].url = None;
            assert_eq!(status(Some(&without), &want, &there, now), iso);
        }
        let history = iso.expect("a status").history;
        let urls: Vec<_> = history.iter().filter_map(|h| h.url.as_deref()).collect();
        let both = [
            "https://after/byapikey/REDACTED/x.iso",
            "https://before/byapikey/REDACTED/x.iso",
        ];
        assert_eq!(urls, both);
    }

    #[test]
    fn what_is_never_published_does_not_fill_the_record() {
        let (want, now) = (want(), Timestamp::UNIX_EPOCH);
        let mut iso = None;
        for n in 0..3 * UNPUBLISHED {
            let sha256 = format!("{n:064x}");
            let path = want.directory.join(&format!("{sha256}.iso")).expect("path");
            let place = IsoPlace { sha256, path };
            iso = status(iso.as_ref(), &want, &IsoState::Publishing(place), now);
        }
        let history = iso.expect("a status").history;
        assert_eq!(history.len(), UNPUBLISHED);
        assert_eq!(history[0].sha256, format!("{:064x}", 3 * UNPUBLISHED - 1));
    }

    #[test]
    fn a_try_that_has_brought_nothing_is_not_a_write() {
        let (want, now) = (want(), Timestamp::UNIX_EPOCH);
        let fetching = |done, total| IsoState::Fetching {
            done,
            total,
            rate: None,
        };
        let failed = IsoState::Failed(ReconcileError::transient(
            ErrorSource::Iso,
            Reason::IsoDownloadFailed,
            "503",
        ));
        let record = IsoStatus {
            sha256: Some("ab".to_owned()),
            ..IsoStatus::default()
        };
        for before in [None, Some(&record)] {
            for state in [&fetching(0, None), &failed] {
                assert_eq!(status(before, &want, state, now).as_ref(), before);
            }
        }
        let coming = status(Some(&record), &want, &fetching(7, Some(9)), now).expect("a status");
        assert_eq!(
            (coming.downloaded_bytes, coming.total_bytes),
            (Some(7), Some(9))
        );
        let broken = status(Some(&coming), &want, &failed, now).expect("a status");
        assert_eq!(broken, record, "what came of a broken download is not kept");
    }
}
