//! Rebuilds a host's record from its Agent, for Agents that were created by hand or survived a restart of the lab.

use kube::core::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    super::object::Facts as _,
    host::{Content, Host, HostFacts, Interface, Validation},
    inventory, lifecycle,
    state::HostState,
};

/// The host as its Agent last showed it. Its machine counts as powered on. Its agent process counts as answering,
/// unless the Agent shows it as disconnected, or as waiting for a boot.
#[must_use]
pub fn host(agent: &DynamicObject, infra_env: &str, now: Instant) -> Host {
    let mut host = Host::new(infra_env, facts(agent), now);
    host.has_agent = true;
    host.state = state(agent.text("/status/debugInfo/state"));
    let has_inventory = agent.at("/status/inventory/memory").is_some();
    host.shown = has_inventory.then(|| host.facts.clone());
    host.reported = has_inventory;
    host.upgraded = has_inventory;
    host.checked = host.state == HostState::Known;
    host.validation = match agent
        .condition("Validated")
        .map(|condition| condition.status)
    {
        Some("True") => Validation::Passing,
        Some("False") => Validation::Failing,
        _ => Validation::Never,
    };
    let in_cluster = !matches!(
        host.state,
        HostState::DiscoveringUnbound
            | HostState::KnownUnbound
            | HostState::InsufficientUnbound
            | HostState::DisconnectedUnbound
            | HostState::Unbinding
            | HostState::UnbindingPendingUserAction
            | HostState::Reclaiming
            | HostState::ReclaimingRebooting
    );
    let name = agent.text("/spec/clusterDeploymentName/name");
    if in_cluster && !name.is_empty() {
        host.cluster = Some((
            agent
                .text("/spec/clusterDeploymentName/namespace")
                .to_owned(),
            name.to_owned(),
        ));
    }
    if host.state == HostState::AddedToExistingCluster {
        host.stage = lifecycle::STAGES.len();
        host.written = Some((host.facts.disk_id.clone(), Content::System));
        host.agent_runs = false;
    }
    if host.state == HostState::InstallingPendingUserAction {
        let said = agent.text("/status/debugInfo/stateInfo");
        host.info = Some(lifecycle::BOOTED_IMAGE).filter(|text| *text == said);
        let stage = agent.text("/status/progress/currentStage");
        let number = lifecycle::STAGES.iter().position(|s| *s == stage);
        host.stage = number.map_or(0, |number| number + 1);
        host.stage_at = agent.text("/status/progress/stageUpdateTime").parse().ok();
    }
    if matches!(
        host.state,
        HostState::DisconnectedUnbound
            | HostState::Disconnected
            | HostState::UnbindingPendingUserAction
    ) {
        host.agent_runs = false;
    }
    host
}

fn state(name: &str) -> HostState {
    use HostState as S;
    let all = [
        S::KnownUnbound,
        S::InsufficientUnbound,
        S::DisconnectedUnbound,
        S::Binding,
        S::Discovering,
        S::Known,
        S::Insufficient,
        S::Disconnected,
        S::Installing,
        S::InstallingInProgress,
        S::InstallingPendingUserAction,
        S::AddedToExistingCluster,
        S::Error,
        S::Unbinding,
        S::UnbindingPendingUserAction,
        S::Reclaiming,
        S::ReclaimingRebooting,
    ];
    all.into_iter()
        .find(|state| state.name() == name)
        .unwrap_or(S::DiscoveringUnbound)
}

fn facts(agent: &DynamicObject) -> HostFacts {
    let text = |pointer: &str| {
        agent
            .text(&format!("/status/inventory{pointer}"))
            .to_owned()
    };
    let number = |pointer: &str| {
        agent
            .at(&format!("/status/inventory{pointer}"))
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    let interfaces = agent
        .at("/status/inventory/interfaces")
        .and_then(Value::as_array);
    let interface = |shown: &Value| Interface {
        name: shown["name"].as_str().unwrap_or_default().to_owned(),
        mac: shown["macAddress"].as_str().unwrap_or_default().to_owned(),
        ipv4: shown["ipV4Addresses"][0].as_str().map(str::to_owned),
        carrier: shown["hasCarrier"].as_bool().unwrap_or_default(),
    };
    let disk = text("/disks/0/id");
    let disk_id = disk.strip_prefix(inventory::DISK_BY_ID).map(str::to_owned);
    HostFacts {
        id: agent.name().to_owned(),
        serial: text("/systemVendor/serialNumber"),
        manufacturer: text("/systemVendor/manufacturer"),
        product: text("/systemVendor/productName"),
        is_virtual: agent.flag("/status/inventory/systemVendor/virtual"),
        interfaces: interfaces.into_iter().flatten().map(interface).collect(),
        cpus: u32::try_from(number("/cpu/count")).unwrap_or(u32::MAX),
        memory_mib: number("/memory/physicalBytes") >> 20,
        disk_gib: number("/disks/0/sizeBytes") >> 30,
        disk_uuid: disk_id.is_some(),
        disk_id: disk_id.unwrap_or_default(),
    }
}
