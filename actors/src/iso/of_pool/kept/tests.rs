use agent_forge_crds::{
    Time,
    pool::{IsoHistoryEntry, IsoSpec, VsphereAgentPoolStatus},
};

use super::*;
use crate::testing::{at, pool};

/// A pool whose history names these files below `directory`, newest first. The first is the current one.
fn with_history(name: &str, directory: &str, versions: &[&str]) -> VsphereAgentPool {
    let mut pool = pool(name);
    let path = |v: &str| format!("{directory}/{v}.iso");
    let entry = |v: &&str| IsoHistoryEntry {
        sha256: (*v).to_owned(),
        path: path(v),
        size_bytes: Some(7),
        ..IsoHistoryEntry::default()
    };
    let current = versions.first().copied();
    pool.status = Some(VsphereAgentPoolStatus {
        iso: Some(IsoStatus {
            sha256: current.map(str::to_owned),
            path: current.map(path),
            stored_path: current.map(|v| format!("[isos] {}", path(v))),
            size_bytes: Some(7),
            uploaded_at: Some(Time(at(0))),
            checked_at: Some(Time(at(0))),
            source_key: Some("key".to_owned()),
            history: versions.iter().map(entry).collect(),
            ..IsoStatus::default()
        }),
        ..VsphereAgentPoolStatus::default()
    });
    pool
}

fn retaining(mut pool: VsphereAgentPool, versions: i32) -> VsphereAgentPool {
    pool.spec.iso = Some(IsoSpec {
        retain_versions: Some(versions),
        ..IsoSpec::default()
    });
    pool
}

fn names(paths: &[DatastorePath]) -> Vec<&str> {
    paths.iter().map(DatastorePath::file_name).collect()
}

#[test]
fn retention_table() {
    let all = ["e", "d", "c", "b", "a"];
    let mine = || with_history("w", "p", &all);
    let other = |versions: &[&str]| vec![Arc::new(with_history("x", "p", versions))];
    for (what, pool, others, wanted) in [
        (
            "the default keeps two",
            mine(),
            vec![],
            &["a.iso", "b.iso", "c.iso"][..],
        ),
        (
            "one",
            retaining(mine(), 1),
            vec![],
            &["a.iso", "b.iso", "c.iso", "d.iso"],
        ),
        ("more than there are", retaining(mine(), 9), vec![], &[]),
        (
            "never none",
            retaining(mine(), 0),
            vec![],
            &["a.iso", "b.iso", "c.iso", "d.iso"],
        ),
        (
            "another's current one",
            mine(),
            other(&["a"]),
            &["b.iso", "c.iso"],
        ),
        (
            "what another retains",
            mine(),
            other(&["f", "b", "a"]),
            &["a.iso", "c.iso"],
        ),
        (
            "what another lets go as well is held by neither",
            mine(),
            other(&["f", "g", "b", "a"]),
            &["a.iso", "b.iso", "c.iso"],
        ),
        (
            "the same names in another directory",
            mine(),
            vec![Arc::new(with_history("x", "q", &["a"]))],
            &["a.iso", "b.iso", "c.iso"],
        ),
    ] {
        assert_eq!(names(&prunable(&pool, &others, at(20))), wanted, "{what}");
    }
}

#[test]
fn what_another_has_just_stopped_using_stays_for_its_vms_on_their_way() {
    let mine = retaining(with_history("w", "p", &["c", "b", "a"]), 1);
    let theirs = |since: Option<i64>| {
        let mut other = retaining(with_history("x", "p", &["c", "b"]), 1);
        let status = other.status.as_mut().and_then(|s| s.iso.as_mut());
        status.expect("an ISO").checked_at = since.map(|s| Time(at(s)));
        vec![Arc::new(other)]
    };
    for (since, wanted) in [
        (Some(81), &["a.iso"][..]),
        (Some(80), &["a.iso", "b.iso"]),
        (Some(0), &["a.iso", "b.iso"]),
        (None, &["a.iso"]),
    ] {
        let goes = prunable(&mine, &theirs(since), at(100));
        assert_eq!(names(&goes), wanted, "since {since:?}");
    }
}

#[test]
fn what_was_never_seen_published_is_no_version_to_keep() {
    // `x` was about to be published when the process died. `c`, which came then, has other bytes.
    let mut mine = with_history("w", "p", &["c", "x", "b", "a"]);
    let history = mine.status.as_mut().and_then(|s| s.iso.as_mut());
    history.expect("an ISO").history[1].size_bytes = None;
    assert_eq!(
        names(&prunable(&mine, &[], at(20))),
        ["a.iso", "x.iso"],
        "two published ones are kept"
    );
    let kept = retained(&mine);
    assert_eq!(
        names(&kept.into_iter().collect::<Vec<_>>()),
        ["b.iso", "c.iso"]
    );
    let uses_it = vec![Arc::new(with_history("y", "p", &["x"]))];
    assert_eq!(names(&prunable(&mine, &uses_it, at(20))), ["a.iso"]);
}

#[test]
fn a_copy_of_a_newer_version_is_no_version_to_keep() {
    // The pool came to share another pool's file of `c`. Its own copy is still on the datastore.
    let mut mine = with_history("w", "shared", &["c", "b", "a"]);
    let history = mine.status.as_mut().and_then(|s| s.iso.as_mut());
    let history = &mut history.expect("an ISO").history;
    let own = IsoHistoryEntry {
        path: "w/c.iso".to_owned(),
        ..history[0].clone()
    };
    history.insert(1, own);
    assert_eq!(names(&prunable(&mine, &[], at(20))), ["a.iso", "c.iso"]);
    let gone = &prunable(&mine, &[], at(20))[1];
    assert_eq!(gone.path, "w/c.iso");
    let kept: Vec<_> = retained(&mine).into_iter().map(|p| p.path).collect();
    assert_eq!(kept, ["shared/b.iso", "shared/c.iso"]);
}

#[test]
fn nothing_goes_right_after_a_change_nor_from_another_datastore() {
    let pool = with_history("w", "p", &["d", "c", "b", "a"]);
    assert_eq!(prunable(&pool, &[], at(19)), []);
    assert_eq!(prunable(&pool, &[], at(-60)), [], "a clock went back");
    assert_eq!(prunable(&pool, &[], at(20)).len(), 2);
    let mut moved = pool;
    moved.spec.vsphere.iso_datastore = "other".to_owned();
    assert_eq!(prunable(&moved, &[], at(20)), []);
    assert_eq!(
        retained(&moved)
            .iter()
            .map(|p| p.datastore.as_str())
            .collect::<BTreeSet<_>>(),
        BTreeSet::from(["isos"]),
        "its files are where they were"
    );
}

#[test]
fn what_lies_on_a_datastore_that_the_pool_has_left_goes() {
    // It used `old`, where `c` was about to be published when the spec changed.
    let mut mine = with_history("w", "p", &["d", "c", "d", "b", "a"]);
    let history = mine.status.as_mut().and_then(|s| s.iso.as_mut());
    let history = &mut history.expect("an ISO").history;
    for entry in &mut history[1..] {
        entry.datastore = Some("old".to_owned());
    }
    history[1].size_bytes = None;
    let text = |paths: Vec<DatastorePath>| -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        text(prunable(&mine, &[], at(20))),
        [
            "[old] p/a.iso",
            "[old] p/b.iso",
            "[old] p/d.iso",
            "[old] p/c.iso"
        ],
        "whatever is to be retained: no VM is made from there any more"
    );
    assert_eq!(prunable(&mine, &[], at(19)), [], "VMs may be on their way");
    let kept: Vec<_> = retained(&mine).into_iter().collect();
    assert_eq!(text(kept), ["[isos] p/d.iso"]);
    // A neighbour is still there, and needs `b`.
    let mut neighbour = with_history("x", "p", &["b"]);
    neighbour.spec.vsphere.iso_datastore = "old".to_owned();
    let status = neighbour.status.as_mut().and_then(|s| s.iso.as_mut());
    status.expect("an ISO").stored_path = Some("[old] p/b.iso".to_owned());
    assert_eq!(
        text(prunable(&mine, &[Arc::new(neighbour)], at(20))),
        ["[old] p/a.iso", "[old] p/d.iso", "[old] p/c.iso"]
    );
    let directories: Vec<_> = directories(&mine).into_iter().collect();
    assert_eq!(
        text(directories),
        ["[isos] agent-forge/demo/w", "[isos] p", "[old] p"],
        "what dead processes left is looked for there, too"
    );
}

#[test]
fn what_another_pool_has_is_taken_over_only_where_it_serves() {
    let other = with_history("x", "agent-forge/demo/x", &["a"]);
    let path = |found: Option<IsoFile>| found.map(|f| f.path.to_string());
    let there = Some("[isos] agent-forge/demo/x/a.iso".to_owned());
    let find = |pool: &VsphereAgentPool, other: &VsphereAgentPool, key: &str| {
        path(elsewhere(pool, &[Arc::new(other.clone())], key, None))
    };
    let mine = pool("w");
    assert_eq!(find(&mine, &other, "key"), there);
    assert_eq!(find(&mine, &other, "another source"), None);
    let chosen = |mut pool: VsphereAgentPool, prefix: &str| {
        pool.spec.iso = Some(IsoSpec {
            path_prefix: Some(prefix.to_owned()),
            ..IsoSpec::default()
        });
        pool
    };
    assert_eq!(find(&chosen(mine.clone(), "here"), &other, "key"), None);
    assert_eq!(find(&mine, &chosen(other.clone(), "here"), "key"), None);
    let (a, b) = (chosen(mine.clone(), "both"), chosen(other.clone(), "both"));
    assert_eq!(find(&a, &b, "key"), there, "one directory that both chose");
    let (a, b) = (
        chosen(mine.clone(), "isos/w"),
        chosen(other.clone(), "isos/x"),
    );
    assert_eq!(find(&a, &b, "key"), None, "each chose its own");
    assert_eq!(find(&a, &other, "key"), None, "one of them did");
    let spelled = chosen(mine.clone(), "agent-forge/demo/w");
    assert_eq!(
        find(&spelled, &other, "key"),
        there,
        "the default, written out"
    );
    let mut far = mine;
    far.spec.vsphere.iso_datastore = "elsewhere".to_owned();
    assert_eq!(find(&far, &other, "key"), None);
}
