//! Which Secrets are needed, held and released.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    pool::{CredentialsSecretRef, HeldSecret, VsphereAgentPool},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    pool::plan::secrets::{is_check_due, plan},
    ports::{
        cluster::ClusterErrorKind,
        effect::EffectKind::{HoldSecret as Hold, PoolStatus as Record, ReleaseSecret as Release},
    },
    sessions::secret_ref::{finalizer, holds, on_record},
    testing::{self, World, child, child_with_vm},
    vm::testing::Bench,
};

fn names(keys: BTreeSet<ObjectKey>) -> Vec<String> {
    keys.into_iter().map(|k| k.to_string()).collect()
}

fn recorded_with(name: &str, secret: &str, namespace: &str) -> VsphereAgent {
    let mut child = child_with_vm(name);
    let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
    vm.expect("a VM").credentials_ref = Some(CredentialsSecretRef {
        name: secret.to_owned(),
        namespace: Some(namespace.to_owned()),
    });
    child
}

#[test]
fn what_the_spec_names_is_needed_while_the_pool_or_anybody_is_there() {
    let mut pool = testing::pool("w");
    let own = format!(
        "{}/{}",
        testing::NAMESPACE,
        pool.spec.vsphere.credentials_secret_ref.name
    );
    let own = std::slice::from_ref(&own);
    assert_eq!(names(needed(&pool, std::iter::empty(), &[])), own);
    pool.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let fresh = child("a");
    assert_eq!(names(needed(&pool, [&fresh].into_iter(), &[])), own);
    assert!(needed(&pool, std::iter::empty(), &[]).is_empty());
}

#[test]
fn what_a_record_names_is_needed_too_where_it_may_be_read() {
    let pool = testing::pool("w");
    let old = recorded_with("a", "before", testing::NAMESPACE);
    let far = recorded_with("b", "shared", "elsewhere");
    let children = [&old, &far];
    let bound = ["other".to_owned()];
    let all = names(needed(&pool, children.into_iter(), &bound));
    assert!(
        all.contains(&format!("{}/before", testing::NAMESPACE)),
        "{all:?}"
    );
    assert_eq!(all.len(), 2, "{all:?}");
    let allowed = ["elsewhere".to_owned()];
    let all = names(needed(&pool, children.into_iter(), &allowed));
    assert!(all.contains(&"elsewhere/shared".to_owned()), "{all:?}");
    assert_eq!(all.len(), 3, "{all:?}");
}

#[test]
fn only_a_confirmed_hold_counts() {
    let mut pool = testing::pool("w");
    let secret = ObjectKey::new("ns", "s");
    let mut entry = HeldSecret {
        name: "s".to_owned(),
        namespace: "ns".to_owned(),
        held: false,
    };
    let with = |pool: &mut VsphereAgentPool, entry: &HeldSecret| {
        pool.status.get_or_insert_default().held_secrets = vec![entry.clone()];
    };
    assert!(!holds(&pool, &secret));
    with(&mut pool, &entry);
    assert!(!holds(&pool, &secret));
    entry.held = true;
    with(&mut pool, &entry);
    assert!(holds(&pool, &secret));
    assert!(!holds(&pool, &ObjectKey::new("other", "s")));
    // A qualified name that the API server accepts: at most 63 characters after the slash.
    let name = finalizer(&pool);
    assert!(
        name.split('/').nth(1).is_some_and(|n| n.len() <= 63),
        "{name}"
    );
}

/// The Secret `vcenter`, as a pool's record names it.
fn entry(held: bool) -> HeldSecret {
    HeldSecret {
        name: "vcenter".to_owned(),
        namespace: testing::NAMESPACE.to_owned(),
        held,
    }
}

/// What a pass over the Secrets of a pool did and left on record. `checked`: that many seconds ago.
async fn tended(
    living: bool,
    record: Vec<HeldSecret>,
    checked: Option<u64>,
    change: impl FnOnce(&Bench, &mut World, &mut Memory),
) -> (Vec<EffectKind>, Vec<HeldSecret>) {
    let bench = Bench::new();
    let mut world = World::default();
    let mut memory = Memory::default();
    bench.hub.with(|o| {
        o.version = 10;
        let pool = o.pool.as_mut().expect("a pool");
        pool.status.get_or_insert_default().held_secrets = record;
        world.pool = pool.clone();
        if !living {
            o.child = None;
        }
    });
    let now = world.observed().now;
    let checked = checked.map(|ago| now.saturating_sub(Duration::from_secs(ago)));
    memory.secrets_checked = checked;
    change(&bench, &mut world, &mut memory);
    let mut s = world.observed();
    s.secrets_due = is_check_due(checked, s.now);
    let plan = plan(&s);
    let end = execute(&bench.context, &s, &plan, &mut memory).await;
    let told = bench.hub.with(|o| o.effects.clone());
    let kept = on_record(&memory.status.over(&s.pool)).to_vec();
    let stored = bench.hub.with(|o| o.pool.clone()).expect("a pool");
    assert_eq!(
        on_record(&stored),
        kept,
        "the record is as new as what was done"
    );
    let looked = memory.secrets_checked == Some(now);
    assert!(end.is_ok() || !looked, "not looked at where it failed");
    (told, kept)
}

fn one(_: &Bench, world: &mut World, _: &mut Memory) {
    world.children = vec![child("a")];
}

#[tokio::test]
async fn what_is_needed_is_recorded_held_and_looked_at_again() {
    let (no, yes) = (|| vec![entry(false)], || vec![entry(true)]);
    let lately = Some(299);
    let alone = |_: &Bench, _: &mut World, _: &mut Memory| {};
    let (told, kept) = tended(false, vec![], None, alone).await;
    assert_eq!(
        (told, kept),
        (vec![Record, Hold, Record], yes()),
        "no VM yet"
    );
    for (what, before, checked, effects, after) in [
        ("new", vec![], None, &[Record, Hold, Record][..], yes()),
        (
            "new beside others",
            vec![],
            lately,
            &[Record, Hold, Record],
            yes(),
        ),
        ("not held yet", no(), lately, &[Hold, Record], yes()),
        ("held", yes(), lately, &[], yes()),
        ("held, long ago", yes(), Some(300), &[Hold], yes()),
        ("held, before a start", yes(), None, &[Hold], yes()),
    ] {
        let (told, kept) = tended(true, before, checked, one).await;
        assert_eq!((&told[..], kept), (effects, after), "{what}");
    }
    let refused = |bench: &Bench, world: &mut World, memory: &mut Memory| {
        one(bench, world, memory);
        let refused = (Hold, ClusterErrorKind::Conflict);
        bench.hub.with(|o| o.fails.extend([refused]));
    };
    let (told, kept) = tended(true, vec![], None, refused).await;
    assert_eq!((told, kept), (vec![Record], no()), "it was refused");
}

#[tokio::test]
async fn a_secret_elsewhere_that_does_not_admit_the_pool_gets_no_finalizer() {
    let elsewhere = |bench: &Bench, world: &mut World, memory: &mut Memory| {
        one(bench, world, memory);
        let far = CredentialsSecretRef {
            name: "vcenter".to_owned(),
            namespace: Some("elsewhere".to_owned()),
        };
        world.pool.spec.vsphere.credentials_secret_ref = far.clone();
        let stored = |o: &mut crate::vm::testing::hub::Objects| {
            o.pool
                .as_mut()
                .expect("a pool")
                .spec
                .vsphere
                .credentials_secret_ref = far;
        };
        bench.hub.with(stored);
    };
    let not_held = HeldSecret {
        namespace: "elsewhere".to_owned(),
        ..entry(false)
    };
    let (told, kept) = tended(true, vec![], None, elsewhere).await;
    assert_eq!((told, kept), (vec![Record], vec![not_held.clone()]));

    // It did admit the pool once. A Secret that gives no login need not stay.
    let held = HeldSecret {
        held: true,
        ..not_held.clone()
    };
    let (told, kept) = tended(true, vec![held], None, elsewhere).await;
    assert_eq!((told, kept), (vec![Release, Record], vec![not_held]));
}

#[tokio::test]
async fn what_nobody_needs_is_let_go_after_a_live_look() {
    let goes = |_: &Bench, world: &mut World, _: &mut Memory| {
        world.pool.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    };
    for (what, living, before, effects, after) in [
        ("nothing", false, vec![], &[][..], vec![]),
        (
            "nobody",
            false,
            vec![entry(true)],
            &[Release, Record],
            vec![],
        ),
        (
            "somebody, live",
            true,
            vec![entry(true)],
            &[],
            vec![entry(true)],
        ),
    ] {
        let (told, kept) = tended(living, before, Some(1), goes).await;
        assert_eq!((&told[..], kept), (effects, after), "{what}");
    }
    let unmarked = |bench: &Bench, world: &mut World, memory: &mut Memory| {
        one(bench, world, memory);
        world.pool.metadata.finalizers = None;
    };
    let (told, kept) = tended(true, vec![], None, unmarked).await;
    assert_eq!(
        (told, kept),
        (vec![], vec![]),
        "a pool without our finalizer"
    );
}
