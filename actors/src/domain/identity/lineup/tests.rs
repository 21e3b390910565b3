//! Several Agents of one VM: which one is its own, and which message the operator shows.

use agent_forge_crds::{
    agent::{Milestone, VsphereAgent},
    conditions::Reason,
    external::agent::{BARE_METAL_HOST_LABEL, INFRA_ENV_LABEL},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use super::*;
use crate::testing::{agent_machine, agent_on, child_with_vm, claim, with};

fn read(child: &VsphereAgent) -> ManagedVm {
    ManagedVm::read(Arc::new(child.clone()))
}

/// The same machine under its other name.
fn rival(agent: &Agent) -> Agent {
    with(agent.clone(), |a| {
        let name = super::super::BiosUuid::parse(&a.name_any()).expect("a uuid");
        a.metadata.name = Some(name.swapped().to_string());
        a.metadata.uid = Some("rival".to_owned());
    })
}

/// Records that Agent as the VM's own Agent, which has served.
fn served(child: &mut VsphereAgent, agent: &Agent) {
    let status = child.status.get_or_insert_default();
    status.timeline = vec![Milestone {
        event: Milestone::BOUND.to_owned(),
        attempt: 1,
        at: None,
    }];
    status.vm.get_or_insert_default().agent_ref = Some(ObjectReference {
        name: Some(agent.name_any()),
        namespace: agent.namespace(),
        uid: agent.uid(),
        ..ObjectReference::default()
    });
}

#[test]
fn of_two_that_match_none_is_approved_and_both_are_named() {
    let child = child_with_vm("a");
    let (ours, other) = (Arc::new(agent_on(&child)), agent_on(&child));
    let other = Arc::new(rival(&other));
    let alone = [ours.clone()];
    let lineup = read(&child).lineup(&alone);
    assert_eq!(lineup.approvable().map(|a| a.uid()), Some(ours.uid()));
    assert_eq!(lineup.doubt(), None);
    for both in [[ours.clone(), other.clone()], [other.clone(), ours.clone()]] {
        let lineup = read(&child).lineup(&both);
        assert!(lineup.own.is_none() && lineup.approvable().is_none());
        let doubt = lineup.doubt().expect("a doubt");
        assert_eq!(doubt.reason, Reason::RivalAgents);
        for agent in &both {
            assert!(doubt.message.contains(&agent.name_any()), "{doubt:?}");
        }
    }
}

#[test]
fn one_that_is_quicker_than_the_inventory_of_the_other_is_not_approved() {
    let child = child_with_vm("a");
    let ours = agent_on(&child);
    let other = Arc::new(rival(&ours));
    let bare = Arc::new(with(ours, |a| a.status = None));
    let both = [bare.clone(), other.clone()];
    let lineup = read(&child).lineup(&both);
    assert!(lineup.own.is_none() && lineup.approvable().is_none());
    assert_eq!(lineup.doubt().map(|d| d.reason), Some(Reason::RivalAgents));
    // The only Agent waits for its inventory, and the operator shows no doubt.
    let alone = [bare];
    let lineup = read(&child).lineup(&alone);
    assert!(lineup.own.is_none() && lineup.doubt().is_none());
}

#[test]
fn one_that_is_bound_already_stays_the_vms_own() {
    let mut child = child_with_vm("a");
    let mut ours = agent_on(&child);
    let other = Arc::new(rival(&ours));
    claim(&mut ours, &agent_machine("a"));
    let claimed = Arc::new(ours.clone());
    let both = [other.clone(), claimed.clone()];
    let lineup = read(&child).lineup(&both);
    assert_eq!(lineup.own.map(|a| a.uid()), Some(claimed.uid()));
    assert!(lineup.approvable().is_none(), "nobody is approved anew");
    assert!(lineup.doubt().is_some());
    // And when its Machine let it go, by the record, whatever its labels say then.
    let freed = with(agent_on(&child), |a| {
        let label = (INFRA_ENV_LABEL.to_owned(), "other".to_owned());
        a.labels_mut().extend([label]);
    });
    served(&mut child, &freed);
    let both = [other.clone(), Arc::new(freed.clone())];
    let lineup = read(&child).lineup(&both);
    assert_eq!(lineup.own.map(|a| a.uid()), Some(freed.uid()));
    // Another object of that name is another Agent.
    let anew = with(freed, |a| a.metadata.uid = Some("anew".to_owned()));
    let label = (BARE_METAL_HOST_LABEL.to_owned(), "host".to_owned());
    let anew = [Arc::new(with(anew, |a| a.labels_mut().extend([label])))];
    assert!(read(&child).lineup(&anew).own.is_none());
}

#[test]
fn one_that_matches_in_part_is_never_the_vms_own() {
    let child = child_with_vm("a");
    let ours = Arc::new(agent_on(&child));
    let label = (BARE_METAL_HOST_LABEL.to_owned(), "host".to_owned());
    let metal = with(rival(&ours), |a| a.labels_mut().extend([label]));
    let metal = Arc::new(metal);
    let alone = [metal.clone()];
    let lineup = read(&child).lineup(&alone);
    assert!(lineup.own.is_none() && lineup.rivals.is_empty());
    let doubt = lineup.doubt().expect("a doubt");
    assert_eq!(doubt.reason, Reason::AgentUnproven);
    assert!(doubt.message.contains("BareMetalHost"), "{doubt:?}");
    // Beside the VM's own Agent it blocks no approval.
    let both = [metal, ours.clone()];
    let lineup = read(&child).lineup(&both);
    assert_eq!(lineup.approvable().map(|a| a.uid()), Some(ours.uid()));
    assert_eq!(lineup.doubt(), None);
}
