//! Passes in which something changes between the proof and the effect.

use agent_forge_crds::conditions::Reason;

use super::*;
use crate::domain::names::MoRef;

/// A VM that is to be removed by all that is known. It was looked at a moment ago.
async fn going() -> Bench {
    let mut bench = on().await;
    let shown = bench.site.with(|i| i.vms[0].clone());
    bench.memory.seen = Ownership::Ours(Box::new(shown));
    release(&bench);
    bench
}

/// A vCenter was restored from a backup: our VM has another reference, and its old one leads to a foreign VM.
fn swap(bench: &Bench) {
    bench.site.with(|i| {
        let theirs = with(i.vms[0].clone(), |vm| {
            vm.marker = None;
            vm.name = "precious".to_owned();
            vm.bios_uuid = Some(BiosUuid::derive("theirs", "theirs", 1));
            vm.instance_uuid = Some("theirs".to_owned());
            vm.power = PowerState::On;
        });
        i.vms[0].moref = MoRef::new("VirtualMachine", "vm-77");
        i.vms.push(theirs);
    });
}

fn theirs(bench: &Bench) -> Option<PowerState> {
    bench.site.with(|i| {
        let mut all = i.vms.iter();
        all.find(|vm| vm.name == "precious").map(|vm| vm.power)
    })
}

#[tokio::test]
async fn a_reference_that_leads_to_another_vm_by_now_is_not_acted_upon() {
    let mut bench = going().await;
    swap(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(theirs(&bench), Some(PowerState::On));
    assert_eq!(bench.site.with(|i| i.vms.len()), 1, "ours is gone");
}

/// The VM is looked at before the power-off, and again before the destruction.
#[tokio::test]
async fn each_call_has_a_look_of_its_own() {
    let mut bench = going().await;
    bench.site.with(|i| i.destroy_refused = Some("vm-1"));
    bench.until(|b| b.times(E::PowerOff) == 1).await;
    let off = bench.site.with(|i| i.vms[0].clone());
    bench.memory.seen = Ownership::Ours(Box::new(off));
    bench.site.with(|i| i.destroy_refused = None);
    swap(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(theirs(&bench), Some(PowerState::On));
}

#[tokio::test]
async fn a_tag_is_attached_to_no_vm_but_ours() {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
    });
    bench.site.with(|i| i.tags_fail = true);
    bench.until(Bench::is_on).await;
    bind_agent(&bench);
    bench.site.with(|i| i.tags_fail = false);
    swap(&bench);
    bench.restart();
    let tried = bench.times(E::AttachTags);
    bench.until(|b| b.vm().tags_missing.is_none()).await;
    assert_eq!(bench.vm().moref.as_deref(), Some("vm-77"));
    assert_eq!(bench.times(E::AttachTags), tried + 1, "to ours alone");
}

/// The cache shows the Machine gone, and the API server has it: one of them is late.
#[tokio::test]
async fn a_machine_that_is_there_after_all_holds_the_vm_that_served_it() {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    release(&bench);
    bench.hub.with(|o| {
        o.agents.clear();
        o.unseen_machines = vec![testing::machine("a")];
    });
    for _ in 0..5 {
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::MachineRemains));
    }
    assert_eq!((bench.times(E::PowerOff), bench.times(E::Destroy)), (0, 0));
    bench.hub.with(|o| o.unseen_machines.clear());
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
}

/// An AgentMachine that no cache shows yet could choose its Agent. By then the Agent matches no selector.
#[tokio::test]
async fn an_agent_whose_vm_goes_can_be_chosen_by_nobody_who_comes() {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.hub.with(|o| {
        let agent = &mut o.agents[0];
        agent.labels_mut().clear();
        agent.labels_mut().insert("rack".to_owned(), "7".to_owned());
        agent.spec.cluster_deployment_name = None;
        agent.spec.approved = true;
    });
    release(&bench);
    bench.site.with(|i| i.power_off_fails = true);
    for _ in 0..3 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    let approved = bench.hub.with(|o| o.agents[0].spec.approved);
    assert!(!approved, "nobody asks for that label today");
    bench.site.with(|i| i.power_off_fails = false);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
}

/// Its Agent registered and was bound, while the cache was late.
#[tokio::test]
async fn an_agent_of_another_name_that_only_a_list_shows_holds_its_vm() {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.hub.with(|o| {
        let mut agent = o.agents.remove(0);
        agent.metadata.name = Some("another-name".to_owned());
        o.unseen_agents = vec![agent];
        delete(o.child.as_mut().expect("it exists"));
    });
    for _ in 0..5 {
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::AgentBound));
    }
    assert_eq!(bench.times(E::PowerOff), 0);
}
