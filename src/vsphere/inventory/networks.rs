//! Networks, and the NIC backing that connects to each.

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{VcError, VcErrorKind, VcResult},
};

use super::{
    cache::STRUCTURE,
    lookup::{NETWORK, unescaped},
};
use crate::vsphere::rpc::{
    client::Client,
    properties::{Properties, Question},
    wire::{
        collector::Selection,
        device::{NicBacking, SwitchPort},
    },
};

/// A resolved network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// Reference.
    pub(crate) object: MoRef,
    /// Backing of a NIC that connects to it.
    pub(crate) backing: NicBacking,
}

impl Client {
    /// The network of that name in a datacenter.
    pub(crate) async fn network(&self, datacenter: &MoRef, name: &str) -> VcResult<Network> {
        let look_up = async {
            let object = self
                .find_below(datacenter, name, NETWORK, "network")
                .await?
                .ok_or_else(|| {
                    VcError::unresolved(
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
            let backing = backing(&object, &facts).ok_or_else(|| {
                VcError::new(
                    VcErrorKind::Undecodable,
                    "RetrievePropertiesEx",
                    format!("network {name:?}"),
                    "vCenter does not tell how to connect to this network",
                )
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
