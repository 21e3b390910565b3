//! The rule as a table: an Agent and a VM that belong together, one fact changed, and what the rule says.

use agent_forge_crds::external::agent::{
    BARE_METAL_HOST_LABEL, INFRA_ENV_LABEL, Inventory, SystemVendor,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;

use super::*;
use crate::testing::{NAMESPACE, agent_on, at, child_with_vm, foreign_agent, mac};

type Change = fn(&mut Agent, &mut VmIdentity);

fn inventory(agent: &mut Agent) -> &mut Inventory {
    let status = agent.status.get_or_insert_default();
    status.inventory.get_or_insert_default()
}

fn vendor(agent: &mut Agent) -> &mut SystemVendor {
    inventory(agent).system_vendor.get_or_insert_default()
}

fn owner(agent: &mut Agent, uid: &str) {
    agent.metadata.owner_references = Some(vec![OwnerReference {
        kind: "InfraEnv".to_owned(),
        name: "infra".to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
}

fn source(vm: &mut VmIdentity) -> &mut BootSource {
    vm.infra_env.as_mut().expect("recorded")
}

/// An Agent and its VM, with all evidence on record.
fn pair() -> (Agent, VmIdentity) {
    let child = child_with_vm("a");
    let recorded = child.status.as_ref().and_then(|s| s.vm.as_ref());
    let uuid = recorded.and_then(|vm| vm.bios_uuid.as_deref());
    let vm = VmIdentity {
        bios_uuid: uuid.and_then(BiosUuid::parse).expect("a uuid"),
        macs: MacAddress::parse(&mac("a")).into_iter().collect(),
        infra_env: Some(BootSource {
            namespace: NAMESPACE.to_owned(),
            name: "infra".to_owned(),
            uid: Some("infra-uid".to_owned()),
        }),
        first_powered_on: Some(at(0)),
    };
    (agent_on(&child), vm)
}

fn check(table: &[(&str, Change, AgentMatch)]) {
    for (what, change, expected) in table {
        let (mut agent, mut vm) = pair();
        change(&mut agent, &mut vm);
        assert_eq!(agent_runs_on(&agent, &vm), *expected, "{what}");
    }
}

#[test]
fn the_rule_asks_for_the_uuid_by_name_and_serial() {
    use AgentMatch::{NotYet, Other, Partly, Same};
    let other = |n| BiosUuid::derive("c", "u", n);
    assert_ne!(other(2), other(3));
    check(&[
        ("both", |_, _| {}, Same),
        (
            "the name in the other byte order",
            |a, vm| a.metadata.name = Some(vm.bios_uuid.to_string()),
            Same,
        ),
        (
            "no serial: by the name",
            |a, _| vendor(a).serial_number = None,
            Same,
        ),
        (
            "a name that is no uuid: by the serial",
            |a, _| a.metadata.name = Some("host-7".to_owned()),
            Same,
        ),
        (
            "another machine's name",
            |a, _| a.metadata.name = Some(BiosUuid::derive("c", "u", 3).to_string()),
            Partly(Misfit::Name),
        ),
        (
            "another maker's serial",
            |a, _| vendor(a).manufacturer = Some("Dell Inc.".to_owned()),
            Partly(Misfit::Serial),
        ),
        (
            "another VM's serial",
            |a, _| {
                let serial = "VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2";
                vendor(a).serial_number = Some(serial.to_owned());
            },
            Partly(Misfit::Serial),
        ),
        (
            "another uuid",
            |_, vm| vm.bios_uuid = BiosUuid::derive("c", "u", 2),
            Other,
        ),
        ("another machine", |a, _| *a = foreign_agent("metal"), Other),
        (
            "no inventory at all: by the name",
            |a, _| a.status = None,
            NotYet,
        ),
    ]);
}

#[test]
fn the_rule_asks_for_a_mac() {
    check(&[
        (
            "one of two cards",
            |_, vm| vm.macs.extend(MacAddress::parse("02:00:00:00:00:01")),
            AgentMatch::Same,
        ),
        (
            "another card",
            |a, _| inventory(a).interfaces.truncate(1),
            AgentMatch::Partly(Misfit::Mac),
        ),
        (
            "no inventory of cards yet",
            |a, _| inventory(a).interfaces.clear(),
            AgentMatch::NotYet,
        ),
        (
            "no cards on record yet",
            |_, vm| vm.macs.clear(),
            AgentMatch::NotYet,
        ),
    ]);
}

#[test]
fn the_rule_asks_for_the_infra_env_that_the_vm_boots_from() {
    use AgentMatch::{NotYet, Partly, Same};
    check(&[
        (
            "another label",
            |a, _| {
                let label = (INFRA_ENV_LABEL.to_owned(), "other".to_owned());
                a.labels_mut().extend([label]);
            },
            Partly(Misfit::InfraEnv),
        ),
        (
            "another namespace",
            |a, _| a.metadata.namespace = Some("elsewhere".to_owned()),
            Partly(Misfit::InfraEnv),
        ),
        ("no label yet", |a, _| a.metadata.labels = None, NotYet),
        (
            "no label, and another namespace",
            |a, _| {
                a.metadata.labels = None;
                a.metadata.namespace = Some("elsewhere".to_owned());
            },
            Partly(Misfit::InfraEnv),
        ),
        ("owned by it", |a, _| owner(a, "infra-uid"), Same),
        (
            "owned by one that was made anew under its name",
            |a, _| owner(a, "infra-uid-2"),
            Partly(Misfit::InfraEnv),
        ),
        (
            "whose uid was never recorded",
            |a, vm| {
                owner(a, "infra-uid-2");
                source(vm).uid = None;
            },
            Same,
        ),
        (
            "never recorded",
            |a, vm| {
                a.metadata.labels = None;
                vm.infra_env = None;
            },
            Same,
        ),
    ]);
}

#[test]
fn the_rule_asks_for_an_age_that_fits() {
    let created = |a: &mut Agent, seconds| a.metadata.creation_timestamp = Some(Time(at(seconds)));
    let table = [
        (-301, AgentMatch::Partly(Misfit::Age)),
        (-300, AgentMatch::Same),
        (0, AgentMatch::Same),
        (86_400, AgentMatch::Same),
    ];
    for (seconds, expected) in table {
        let (mut agent, mut vm) = pair();
        created(&mut agent, seconds);
        assert_eq!(agent_runs_on(&agent, &vm), expected, "{seconds} s");
        vm.first_powered_on = None;
        assert_eq!(agent_runs_on(&agent, &vm), AgentMatch::Same, "{seconds} s");
    }
}

#[test]
fn what_a_bare_metal_host_owns_runs_on_no_vm() {
    check(&[(
        "owned by a BareMetalHost",
        |a, _| {
            let label = (BARE_METAL_HOST_LABEL.to_owned(), "host-7".to_owned());
            a.labels_mut().extend([label]);
        },
        AgentMatch::Partly(Misfit::BareMetal),
    )]);
}

#[test]
fn an_agent_names_the_machines_of_its_name_and_of_its_serial() {
    let (mut agent, vm) = pair();
    let ours = |all: Vec<BiosUuid>| all.iter().any(|u| u.same_machine(vm.bios_uuid));
    assert_eq!(named_machines(&agent).len(), 1);
    let elsewhere = BiosUuid::derive("c", "u", 3);
    agent.metadata.name = Some(elsewhere.to_string());
    let named = named_machines(&agent);
    assert!(named.contains(&elsewhere) && ours(named));
    assert!(named_machines(&foreign_agent("metal")).is_empty());
}
