//! Networks, and the backing that connects a NIC to one.

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{VcError, VcErrorKind, VcResult},
};

use super::{
    cache::STRUCTURE,
    client::Client,
    lookup::{NETWORK, unescaped, unresolved},
    properties::{Properties, Question},
    wire::{
        collector::Selection,
        device::{NicBacking, SwitchPort},
    },
};

/// A resolved network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// Reference.
    pub(super) object: MoRef,
    /// The backing of a NIC in this network.
    pub(super) backing: NicBacking,
}

impl Client {
    /// The network with that name in a datacenter.
    pub(super) async fn network(&self, datacenter: &MoRef, name: &str) -> VcResult<Network> {
        let look_up = async {
            let object = self
                .find_below(datacenter, name, NETWORK, "network")
                .await?
                .ok_or_else(|| {
                    unresolved(
                        "network",
                        name,
                        "no network of that name is visible to this user",
                    )
                })?;
            let switch = Selection::follow(
                "switch",
                "DistributedVirtualPortgroup",
                "config.distributedVirtualSwitch",
                Vec::new(),
            );
            let select = if object.kind == "DistributedVirtualPortgroup" {
                vec![switch]
            } else {
                Vec::new()
            };
            let mut question = Question::about(format!("network {name:?}")).from(&object, select);
            question = match object.kind.as_str() {
                "DistributedVirtualPortgroup" => question
                    .read("DistributedVirtualPortgroup", &["key"])
                    .read("DistributedVirtualSwitch", &["uuid"]),
                "OpaqueNetwork" => question.read("OpaqueNetwork", &["summary"]),
                _ => question.read("Network", &["name"]),
            };
            let facts = self.retrieve(question).await?;
            let backing = backing(&object, &facts).ok_or_else(|| VcError {
                kind: VcErrorKind::Undecodable,
                operation: "RetrievePropertiesEx",
                subject: format!("network {name:?}"),
                message: "vCenter does not tell how to connect to this network".to_owned(),
            })?;
            Ok(Network { object, backing })
        };
        self.cache
            .networks
            .get_or((datacenter.clone(), name.to_owned()), STRUCTURE, look_up)
            .await
    }
}

fn backing(network: &MoRef, facts: &[Properties]) -> Option<NicBacking> {
    let own = facts.iter().find(|p| p.object == *network)?;
    match network.kind.as_str() {
        "DistributedVirtualPortgroup" => {
            let switch_uuid = facts.iter().find_map(|p| p.text("uuid"))?.to_owned();
            let portgroup_key = own.text("key")?.to_owned();
            let port = SwitchPort {
                switch_uuid,
                portgroup_key,
            };
            Some(NicBacking::VirtualEthernetCardDistributedVirtualPortBackingInfo { port })
        }
        "OpaqueNetwork" => {
            let summary = own.value("summary")?;
            Some(NicBacking::VirtualEthernetCardOpaqueNetworkBackingInfo {
                opaque_network_id: summary.get("opaqueNetworkId")?.as_str()?.to_owned(),
                opaque_network_type: summary.get("opaqueNetworkType")?.as_str()?.to_owned(),
            })
        }
        _ => Some(NicBacking::VirtualEthernetCardNetworkBackingInfo {
            device_name: unescaped(own.text("name")?),
            network: network.into(),
        }),
    }
}
