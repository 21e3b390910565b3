use agent_forge_crds::{
    Time,
    external::infra_env::{InfraEnvStatus, IsoDownloadUrl},
    pool::IsoSpec,
};

use super::*;
use crate::{
    iso::msg::ShareGroup,
    testing::{infra_env, pool},
};

fn with_prefix(name: &str, prefix: Option<&str>) -> VsphereAgentPool {
    let mut pool = pool(name);
    pool.spec.iso = Some(IsoSpec {
        path_prefix: prefix.map(str::to_owned),
        ..IsoSpec::default()
    });
    pool
}

#[test]
fn pools_share_where_their_prefixes_differ_in_their_own_names_only() {
    let group = |name: &str, prefix: Option<&str>| shares(&with_prefix(name, prefix));
    let default = Some(ShareGroup::Default);
    assert_eq!(group("a", None), default);
    assert_eq!(group("a", Some("")), default);
    assert_eq!(
        group("a", Some("agent-forge/demo/a")),
        default,
        "as the predecessor's objects write it out"
    );
    assert_eq!(group("a", Some("agent-forge/demo/a/")), default);
    assert_eq!(group("a", Some("agent-forge/demo/b")), None, "another's");
    let (a, b) = (group("a", Some("isos/a")), group("b", Some("isos/b")));
    assert!(a.is_some() && a == b && a != default);
    assert_ne!(a, group("a", Some("elsewhere/a")));
    assert_ne!(a, group("a", Some("a")));
    assert_eq!(group("a", Some("isos")), None, "chosen");
    assert_eq!(
        group("a", Some("isos/demo")),
        None,
        "chosen for a namespace"
    );
    assert_eq!(group("a", Some("isos/xa")), None, "a segment is all of it");
}

#[test]
fn a_prefix_may_say_the_pools_own_names_anywhere() {
    let group = |namespace: &str, name: &str, prefix: &str| {
        let mut pool = with_prefix(name, Some(prefix));
        pool.metadata.namespace = Some(namespace.to_owned());
        shares(&pool)
    };
    for (what, one, other, together) in [
        (
            "name in the middle",
            ("demo", "a", "isos/a/x"),
            ("demo", "b", "isos/b/x"),
            true,
        ),
        (
            "name first",
            ("demo", "a", "a/isos"),
            ("demo", "b", "b/isos"),
            true,
        ),
        ("name alone", ("demo", "a", "a"), ("demo", "b", "b"), true),
        (
            "name twice",
            ("demo", "a", "a/isos/a"),
            ("demo", "b", "b/isos/b"),
            true,
        ),
        (
            "with namespace",
            ("ns1", "a", "isos/ns1/a"),
            ("ns2", "b", "isos/ns2/b"),
            true,
        ),
        (
            "named as its namespace",
            ("ns1", "ns1", "isos/ns1/ns1"),
            ("ns2", "b", "isos/ns2/b"),
            true,
        ),
        (
            "another's namespace",
            ("ns1", "a", "isos/ns2/a"),
            ("ns2", "b", "isos/ns2/b"),
            false,
        ),
        (
            "more below",
            ("demo", "a", "isos/a"),
            ("demo", "b", "isos/b/x"),
            false,
        ),
        (
            "other segments",
            ("demo", "a", "isos/a/x"),
            ("demo", "b", "isos/b/y"),
            false,
        ),
        (
            "the default is another one",
            ("ns1", "a", "agent-forge/ns1/a"),
            ("ns2", "b", "isos/ns2/b"),
            false,
        ),
    ] {
        let groups = [one, other].map(|(namespace, name, prefix)| group(namespace, name, prefix));
        assert!(groups.iter().all(Option::is_some), "{what}: {groups:?}");
        assert_eq!(groups[0] == groups[1], together, "{what}: {groups:?}");
    }
}

/// What the predecessor left, as recorded from a run of it.
fn taken_over() -> VsphereAgentPool {
    let text = include_str!("../../../../tests/fixtures/predecessor/pool-both-running.json");
    serde_json::from_str(text).expect("a pool")
}

fn serving(url: &str, created: &str) -> InfraEnv {
    let mut env = infra_env();
    env.status = Some(InfraEnvStatus {
        iso_download_url: Some(IsoDownloadUrl::new(url)),
        created_time: Some(Time(created.parse().expect("a time"))),
        ..env.status.unwrap_or_default()
    });
    env
}

#[test]
fn the_predecessors_file_is_looked_for_before_anything_is_fetched() {
    let pool = taken_over();
    let status = pool.status.clone().and_then(|s| s.iso).expect("an ISO");
    let url = status.url.clone().expect("a URL");
    let (before, after) = ("2026-11-21T05:23:00Z", "2026-11-21T05:23:15Z");
    let other = url.replace("/byapikey/", "/byapikey/x");
    let secret = ObjectKey::new("demo", "vsphere-credentials");
    let known = |pool: &VsphereAgentPool, url: &str, created: &str| {
        let env = serving(url, created);
        want(pool, &[], Some(&env), &secret).expect("a want").known
    };
    let file = known(&pool, &url, before).expect("known");
    assert_eq!(
        file.path.to_string(),
        format!(
            "[iso-datastore] {}",
            status.path.as_deref().expect("a path")
        )
    );
    assert_eq!(
        (Some(file.sha256), file.size),
        (status.sha256.clone(), 2_097_152)
    );
    assert_eq!(known(&pool, &url, after), None, "an older image");
    assert_eq!(known(&pool, &other, before), None, "another InfraEnv's");
    // The first write removes the token. After that the URL is not taken for another InfraEnv's.
    let written = |url: &str| {
        let env = serving(url, before);
        let want = want(&pool, &[], Some(&env), &secret).expect("a want");
        let state = IsoState::Fetching {
            done: 0,
            total: None,
            rate: None,
        };
        let mut pool = pool.clone();
        let iso = super::status(
            Some(&status),
            &want,
            &state,
            "2026-11-21T06:00:00Z".parse().expect("a time"),
        );
        pool.status.as_mut().expect("a status").iso = iso;
        pool
    };
    assert!(known(&written(&url), &url, before).is_some());
    assert_eq!(known(&written(&other), &other, before), None);
    let mut forced = pool.clone();
    forced
        .annotations_mut()
        .insert(FORCE_ISO_REFRESH_ANNOTATION.to_owned(), "now".to_owned());
    assert_eq!(known(&forced, &url, before), None, "asked for anew");
}

#[test]
fn a_forced_refresh_is_asked_for_until_it_is_recorded() {
    let secret = ObjectKey::new("demo", "vsphere-credentials");
    let key = |created: &str| {
        let env = serving("https://img/byapikey/T/x.iso", created);
        want(&pool("w"), &[], Some(&env), &secret)
            .expect("a want")
            .source_key
    };
    let (now, later) = ("2026-11-21T05:00:00Z", "2026-11-22T05:00:00Z");
    for (what, annotation, spent, source, told) in [
        ("none", None, None, Some(now), None),
        ("a new one", Some("1"), None, Some(now), Some("1")),
        (
            "spent on this source",
            Some("1"),
            Some("1"),
            Some(now),
            None,
        ),
        (
            "spent on the one before",
            Some("1"),
            Some("1"),
            Some(later),
            None,
        ),
        ("a newer one", Some("2"), Some("1"), Some(later), Some("2")),
        (
            "recorded by the predecessor",
            Some("1"),
            Some("1"),
            None,
            None,
        ),
    ] {
        let mut pool = pool("w");
        if let Some(value) = annotation {
            pool.annotations_mut()
                .insert(FORCE_ISO_REFRESH_ANNOTATION.to_owned(), value.to_owned());
        }
        // The record is of `source`, and the want is of `now`.
        pool.status.get_or_insert_default().iso = Some(IsoStatus {
            source_key: source.map(key),
            force_refresh_token: spent.map(str::to_owned),
            ..IsoStatus::default()
        });
        let env = serving("https://img/byapikey/T/x.iso", now);
        let want = want(&pool, &[], Some(&env), &secret).expect("a want");
        assert_eq!(want.force_token.as_deref(), told, "{what}");
    }
}
