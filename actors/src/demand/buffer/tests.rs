//! What a buffer is to be, and what its Agents carry.

use agent_forge_crds::{names::AGENT_MACHINE_LABEL, pool::BufferWindow};

use super::*;
use crate::testing::{
    POOL, agent_machine, agent_on, at, child_with_vm, claim, labels, pool, selector, with,
};

#[test]
fn the_size_is_the_base_the_open_window_or_the_larger_limit() {
    let window = BufferWindow {
        days: "Mon-Sun".to_owned(),
        from: "00:00".to_owned(),
        to: "00:00".to_owned(),
        time_zone: "UTC".to_owned(),
        buffer_agents: 1,
    };
    let base = ScalingSpec {
        buffer_agents: Some(2),
        buffer_max_age: Some("72h".to_owned()),
        ..ScalingSpec::default()
    };
    let read = |spec: &ScalingSpec| {
        let (size, wrong) = Size::read(spec, false, at(0));
        (
            size.wanted,
            size.most,
            size.max_age.is_some(),
            !wrong.is_empty(),
        )
    };
    assert_eq!(read(&ScalingSpec::default()), (0, 0, false, false));
    assert_eq!(read(&base), (2, 2, true, false));
    let more = with(base.clone(), |s| s.buffer_max = Some(5));
    assert_eq!(read(&more), (2, 5, true, false));
    let less = with(base.clone(), |s| s.buffer_max = Some(1));
    assert_eq!(read(&less), (2, 2, true, false));
    // A window replaces the base, also by less.
    let open = with(more, |s| s.buffer_schedule = vec![window.clone()]);
    assert_eq!(read(&open), (1, 5, true, false));
    let wrong = with(open, |s| {
        s.buffer_schedule[0].time_zone = "Zurich".to_owned()
    });
    assert_eq!(read(&wrong), (2, 5, true, true));
    let wrong = with(base, |s| s.buffer_max_age = Some("long".to_owned()));
    assert_eq!(read(&wrong), (2, 2, false, true));
}

#[test]
fn names_differ_by_place_and_pool_and_fit_everywhere() {
    let one = pool(POOL);
    assert_eq!(name(&one, 0), name(&one, 0));
    assert_ne!(name(&one, 0), name(&one, 1));
    assert_ne!(
        name(&one, 0),
        name(&with(one.clone(), |p| p.metadata.uid = None), 0)
    );
    assert!(name(&one, 0).starts_with("workers-"));
    let long = pool(&format!("{}.x", "a".repeat(200)));
    let name = name(&long, 3);
    assert!(name.len() <= LONGEST && !name.contains("-."), "{name}");
    assert!(selector::is_label_value(&name), "{name}");
    assert_eq!(named("workers-0a", 1), "workers-0a-1");
    assert_eq!(named("a.b", 12), "a-b-12");
    let cut = named(&format!("{}-bc", "a".repeat(60)), 1);
    assert_eq!(cut, format!("{}-1", "a".repeat(60)));
}

#[test]
fn an_agent_waits_without_labels_and_approved_only_while_nobody_can_choose_it() {
    let child = child_with_vm("a");
    let bare = agent_on(&child);
    let child = ManagedVm::read(Arc::new(child));
    let asks = |exact: &[(&str, &str)]| {
        let am = with(agent_machine("w-0"), |am| {
            am.spec.agent_label_selector = Some(selector(exact, &[]));
        });
        vec![Arc::new(am)]
    };
    let own = asks(&[("customer", "example")]);
    let patch = |pool: &VsphereAgentPool, choosers: &[_], auto, agent: &Agent| {
        wait(pool, &child, choosers, auto, true, agent)
    };
    let pool = pool(POOL);
    let first = patch(&pool, &own, false, &bare).expect("a patch");
    assert_eq!(first.approved, Some(true));
    assert_eq!(first.hostname.as_deref(), Some("a-1"));
    assert!(first.labels.is_empty() && !takes_away(&first));
    let waits = with(bare.clone(), |a| {
        a.spec.approved = true;
        a.spec.hostname = Some("a-1".to_owned());
        a.spec.role = "worker".to_owned();
    });
    assert_eq!(
        patch(&pool, &own, false, &waits),
        None,
        "it is as it should be"
    );
    // An AgentMachine that takes any Agent appears.
    let chosen = patch(&pool, &asks(&[]), false, &waits).expect("a patch");
    assert!(chosen.approved == Some(false) && takes_away(&chosen));
    assert_eq!(
        patch(&pool, &asks(&[]), true, &waits),
        None,
        "the service approves it"
    );
    let gone = with(asks(&[]), |all| {
        crate::testing::delete(Arc::make_mut(&mut all[0]));
    });
    assert_eq!(patch(&pool, &gone, false, &waits), None);
    // It comes back with the labels of its last use.
    let back = with(waits.clone(), |a| {
        let used = labels(&[
            ("customer", "example"),
            (AGENT_MACHINE_LABEL, "w-9"),
            ("rack", "7"),
        ]);
        a.metadata.labels.get_or_insert_default().extend(used);
    });
    let patched = patch(&pool, &own, false, &back).expect("a patch");
    let removed: Vec<_> = patched.labels.keys().map(String::as_str).collect();
    assert_eq!(removed, [AGENT_MACHINE_LABEL, "customer"]);
    assert!(patched.approved.is_none() && takes_away(&patched));
    // A pool that approves nothing leaves the approval to people.
    let people = with(pool.clone(), |p| p.spec.agent.approve = Some(false));
    let unapproved = with(waits.clone(), |a| a.spec.approved = false);
    assert_eq!(patch(&people, &own, false, &unapproved), None);
    assert_eq!(patch(&people, &own, false, &waits), None);
    assert!(patch(&people, &asks(&[]), false, &waits).is_some());
}

#[test]
fn ready_is_what_could_be_claimed_but_for_labels_and_approval() {
    let child = child_with_vm("a");
    let ready = with(agent_on(&child), |a| {
        a.spec.hostname = Some("a-1".to_owned());
        a.spec.role = "worker".to_owned();
    });
    let child = ManagedVm::read(Arc::new(child));
    let is = |change: &dyn Fn(&mut Agent)| {
        is_ready(&pool(POOL), &child, &with(ready.clone(), |a| change(a)))
    };
    assert!(is(&|_| {}));
    assert!(!is(&|a| a.spec.hostname = None));
    assert!(!is(&|a| a.spec.role = "master".to_owned()));
    assert!(!is(&|a| claim(a, &agent_machine("w-0"))));
    assert!(!is(&crate::testing::delete));
    for type_ in [BOUND, CONNECTED, VALIDATED, SPEC_SYNCED] {
        assert!(!is(&|a| {
            let status = a.status.as_mut().expect("a status");
            status.conditions.retain(|c| c.type_ != type_);
        }));
    }
}
