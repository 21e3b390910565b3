use agent_forge_crds::{
    Time,
    external::infra_env::{InfraEnvStatus, IsoDownloadUrl},
    pool::IsoSpec,
};

use super::*;
use crate::testing::{infra_env, pool};

fn with_prefix(name: &str, prefix: Option<&str>) -> VsphereAgentPool {
    let mut pool = pool(name);
    pool.spec.iso = Some(IsoSpec {
        path_prefix: prefix.map(str::to_owned),
        ..IsoSpec::default()
    });
    pool
}

#[test]
fn pools_share_with_the_default_directory_only() {
    for (prefix, shared) in [
        (None, true),
        (Some(""), true),
        // As the predecessor's objects write it out.
        (Some("agent-forge/demo/a"), true),
        (Some("agent-forge/demo/a/"), true),
        (Some("agent-forge/demo/b"), false),
        (Some("isos/a"), false),
        (Some("isos"), false),
    ] {
        assert_eq!(shares(&with_prefix("a", prefix)), shared, "{prefix:?}");
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
