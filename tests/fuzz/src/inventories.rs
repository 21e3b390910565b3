//! Agents with their inventories, as the assisted service writes them.

use agent_forge::cluster::trim;
use agent_forge_actors::domain::{
    identity::{BiosUuid, BootSource, MacAddress, VmIdentity, agent_runs_on},
    index_keys::{self, IndexKey},
};
use agent_forge_crds::external::agent::Agent;

/// BIOS uuid and MAC address of the VM of the examples.
const UUID: &str = "423e36c8-723d-2b24-8590-0eb1d9180aa2";
const MAC: &str = "00:50:56:aa:bb:01";

/// An Agent survives a round trip. The index has it for each VM that it may run on. What a trim drops changes no answer.
pub(crate) fn check(data: &[u8]) {
    let Ok(agent) = serde_json::from_slice::<Agent>(data) else {
        return;
    };
    let written = serde_json::to_vec(&agent).unwrap_or_else(|e| panic!("not written: {e}"));
    let read: Agent = serde_json::from_slice(&written).unwrap_or_else(|e| panic!("not read: {e}"));
    assert!(read == agent, "another Agent after a round trip");
    let vm = vm();
    let answer = agent_runs_on(&agent, &vm);
    let keys = index_keys::of_agent(&agent);
    if answer.may_run_there() {
        let key = IndexKey::machine(vm.bios_uuid);
        assert!(keys.contains(&key), "{answer:?}, and not in the index");
    }
    let mut trimmed = agent;
    trim::agent(&mut trimmed);
    assert_eq!(agent_runs_on(&trimmed, &vm), answer, "after the trim");
    assert!(index_keys::of_agent(&trimmed) == keys, "after the trim");
}

fn vm() -> VmIdentity {
    VmIdentity {
        bios_uuid: BiosUuid::parse(UUID).unwrap_or_else(|| unreachable!()),
        macs: MacAddress::parse(MAC).into_iter().collect(),
        infra_env: Some(BootSource {
            namespace: "demo".to_owned(),
            name: "demo".to_owned(),
            uid: None,
        }),
        first_powered_on: Some(jiff::Timestamp::UNIX_EPOCH),
    }
}

/// A host of that VM: known, claimed, with another byte order, and without a serial number.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let host = include_str!("../examples/agent.json");
    let other = |from: &str, to: &str| {
        assert!(host.contains(from), "the example has {from}");
        host.replace(from, to).into_bytes()
    };
    vec![
        host.as_bytes().to_vec(),
        other("c8363e42-3d72-242b-8590-0eb1d9180aa2", UUID),
        other("VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2", ""),
        other(MAC, "00-50-56-AA-BB-02"),
    ]
}
