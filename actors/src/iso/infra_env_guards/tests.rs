//! Each guard as a table, and what a pool does while one applies.

use agent_forge_crds::{
    conditions::{INFRA_ENV_AVAILABLE, Reason, find_condition},
    external::{
        NamespacedName,
        infra_env::{AgentApproval, IMAGE_CREATED, IsoDownloadUrl},
    },
    pool::{IsoStatus, VsphereAgentPoolStatus},
};

use super::*;
use crate::{
    iso::of_pool::{self, NoSource},
    pool::{
        observed::Observed,
        outcome::Outcome,
        plan::{Action, plan},
        status::render,
    },
    testing::{
        World, agent_machine, agent_on, child_with_vm, condition, infra_env, pool, selector, with,
    },
};

fn auto(env: &mut InfraEnv) {
    env.spec.agent_approval = Some(AgentApproval { auto_approve: true });
}

fn url(env: &mut InfraEnv, url: &str) {
    let status = env.status.get_or_insert_default();
    status.iso_download_url = Some(IsoDownloadUrl::new(url));
}

fn reason_of(pool: &VsphereAgentPool, env: &InfraEnv, am: AgentMachine) -> Option<Reason> {
    guard(pool, env, &[Arc::new(am)], &|_| true).map(|g| g.reason)
}

fn bound(env: &mut InfraEnv) {
    env.spec.cluster_ref = Some(NamespacedName {
        name: "demo".to_owned(),
        namespace: "demo".to_owned(),
    });
}

fn failed(env: &mut InfraEnv) {
    let said = condition(IMAGE_CREATED, "False", "ImageCreationError");
    let said = with(said, |c| c.message = Some("no such release".to_owned()));
    env.status.get_or_insert_default().conditions = vec![said];
}

fn stale_url(env: &mut InfraEnv) {
    env.spec.os_image_version = Some("4.20".to_owned());
    url(env, "https://images.example/byid/1/4.19/x86_64/minimal.iso");
}

#[test]
fn each_guard_has_its_reason() {
    type Change = fn(&mut InfraEnv);
    let table: [(&str, Change, Option<Reason>); 8] = [
        ("as it should be", |_| {}, None),
        ("a cluster", bound, Some(Reason::LateBindingUnavailable)),
        ("no image", failed, Some(Reason::ImageNotCreated)),
        ("another version", stale_url, Some(Reason::IsoStale)),
        (
            "the version, more exactly",
            |env| {
                env.spec.os_image_version = Some("4.19.3".to_owned());
                url(
                    env,
                    "https://images.example/byapikey/T/4.19/x86_64/minimal.iso",
                );
            },
            None,
        ),
        (
            "a version that only begins alike",
            |env| {
                env.spec.os_image_version = Some("4.1".to_owned());
                url(
                    env,
                    "https://images.example/bytoken/T/4.19/x86_64/minimal.iso",
                );
            },
            Some(Reason::IsoStale),
        ),
        (
            "somebody's server: nobody knows",
            |env| {
                env.spec.os_image_version = Some("4.20".to_owned());
                url(env, "https://files.example/a/b/4.19/x.iso");
            },
            None,
        ),
        ("approval by itself, selectors with labels", auto, None),
    ];
    for (what, change, expected) in table {
        let env = with(infra_env(), change);
        let found = reason_of(&pool("workers"), &env, agent_machine("a"));
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn the_iso_that_lies_there_counts_too() {
    let pool = with(pool("workers"), |p| {
        let url = "https://images.example/byapikey/REDACTED/4.18/x86_64/full.iso";
        p.status = Some(VsphereAgentPoolStatus {
            iso: Some(IsoStatus {
                url: Some(url.to_owned()),
                ..IsoStatus::default()
            }),
            ..VsphereAgentPoolStatus::default()
        });
    });
    let env = with(infra_env(), |env| {
        env.spec.os_image_version = Some("4.19".to_owned());
        url(
            env,
            "https://images.example/byapikey/T/4.19/x86_64/full.iso",
        );
    });
    assert_eq!(
        reason_of(&pool, &env, agent_machine("a")),
        Some(Reason::IsoStale)
    );
}

#[test]
fn a_selector_without_labels_defeats_the_fence_where_the_service_approves() {
    let pin = (AGENT_MACHINE_LABEL, "a");
    let with_selector = |s| with(agent_machine("a"), |am| am.spec.agent_label_selector = s);
    let env = with(infra_env(), auto);
    let defeats = Some(Reason::AutoApproveDefeatsFence);
    for (what, am, expected) in [
        ("none", with_selector(None), defeats.clone()),
        (
            "empty",
            with_selector(Some(selector(&[], &[]))),
            defeats.clone(),
        ),
        (
            "our pin",
            with_selector(Some(selector(&[pin], &[]))),
            defeats.clone(),
        ),
        (
            "an absence",
            with_selector(Some(selector(&[], &[("x", "DoesNotExist", &[])]))),
            defeats,
        ),
        ("a label", agent_machine("a"), None),
    ] {
        assert_eq!(
            reason_of(&pool("workers"), &env, am.clone()),
            expected,
            "{what}"
        );
        assert_eq!(
            reason_of(&pool("workers"), &infra_env(), am),
            None,
            "{what}"
        );
    }
}

fn world(env: InfraEnv) -> Observed {
    let mut s = World::waiting(&["a"]).observed();
    s.infra_env = Some(Arc::new(env));
    s
}

#[test]
fn behind_a_guard_nobody_gets_a_new_vm_and_is_told_why() {
    let creates = |s: &Observed| {
        let all = plan(s).actions;
        all.iter().any(|a| matches!(a, Action::CreateChild { .. }))
    };
    assert!(creates(&world(infra_env())));
    for change in [bound, failed, stale_url] {
        let s = world(with(infra_env(), change));
        assert!(!creates(&s));
        let reason = s.guard().expect("a guard").reason;
        let plan = plan(&s);
        let row = plan.waiting.iter().find(|w| w.subject == "a");
        assert_eq!(row.map(|w| &w.reason), Some(&reason));
        let outcome = Outcome {
            no_source: of_pool::source(s.infra_env.as_deref()).err(),
            ..Outcome::default()
        };
        let status = render(&VsphereAgentPoolStatus::default(), &s, &plan, &outcome);
        let said = find_condition(&status.conditions, INFRA_ENV_AVAILABLE);
        let said = said.map(|c| (c.status.as_str(), c.reason.as_str().into()));
        assert_eq!(said, Some(("False", reason)));
    }
}

#[test]
fn of_an_image_that_could_not_be_made_nothing_is_fetched() {
    let env = with(infra_env(), failed);
    let Err(NoSource::ImageFailed(why)) = of_pool::source(Some(&env)) else {
        panic!("a source");
    };
    assert!(why.contains("no such release"), "{why}");
}

#[test]
fn a_host_that_has_its_vm_is_not_concerned() {
    let mut s = World::discovered("a").observed();
    s.infra_env = Some(Arc::new(with(infra_env(), bound)));
    let all = plan(&s).actions;
    assert!(
        all.iter()
            .any(|a| matches!(a, Action::Pin { .. } | Action::Prepare { .. })),
        "{all:?}"
    );
}

#[test]
fn the_service_approves_the_agents_of_its_own_infra_env() {
    let agent = agent_on(&child_with_vm("a"));
    let env = with(infra_env(), auto);
    assert!(approves(Some(&env), &agent));
    assert!(!approves(Some(&infra_env()), &agent) && !approves(None, &agent));
    let other = with(agent, |a| {
        a.metadata.namespace = Some("elsewhere".to_owned())
    });
    assert!(!approves(Some(&env), &other));
}

/// A guest registers with the InfraEnv of its ISO. If that one is gone, the guest never registers.
#[test]
fn an_iso_of_another_infra_env_makes_no_vm() {
    let env = infra_env();
    let with_iso = |change: fn(&mut k8s_openapi::api::core::v1::ObjectReference)| {
        with(pool("workers"), |p| {
            let mut reference = of_pool::reference(&infra_env());
            change(&mut reference);
            p.status.get_or_insert_default().iso = Some(IsoStatus {
                infra_env_ref: Some(reference),
                ..IsoStatus::default()
            });
        })
    };
    let read = |pool: VsphereAgentPool| reason_of(&pool, &env, agent_machine("a"));
    assert_eq!(read(with_iso(|_| {})), None);
    assert_eq!(read(with_iso(|r| r.uid = None)), None, "not recorded");
    let changes: [fn(&mut k8s_openapi::api::core::v1::ObjectReference); 3] = [
        |r| r.uid = Some("deleted since".to_owned()),
        |r| r.name = Some("other".to_owned()),
        |r| r.namespace = Some("other".to_owned()),
    ];
    for change in changes {
        assert_eq!(read(with_iso(change)), Some(Reason::IsoSourceChanged));
    }
}

#[test]
fn another_tenants_agent_machine_counts_and_is_not_named() {
    let env = with(infra_env(), auto);
    let theirs = with(agent_machine("secret-name"), |am| {
        am.spec.agent_label_selector = None;
    });
    let told = |shown: bool| {
        let choosers = [Arc::new(theirs.clone())];
        let found = guard(&pool("p"), &env, &choosers, &|_| shown).expect("a guard");
        assert_eq!(found.reason, Reason::AutoApproveDefeatsFence);
        found.message.contains("secret-name")
    };
    assert!(told(true) && !told(false));
}
