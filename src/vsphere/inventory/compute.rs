//! Compute topology: the hosts where the VMs of a resource pool can run.

use std::sync::Arc;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{ComputeTopology, Host, VcError, VcResult},
};
use serde_json::Value;

use super::{cache::STRUCTURE, lookup::candidates};
use crate::vsphere::rpc::{
    client::Client,
    properties::{Properties, Question},
    wire::collector::Selection,
};

impl Client {
    /// The compute resource of a resource pool or cluster of that name.
    pub(super) async fn compute(
        &self,
        datacenter: &MoRef,
        name: &str,
    ) -> VcResult<Arc<ComputeTopology>> {
        let look_up = async {
            let below = self.datacenter_path(datacenter).await?;
            let mut start = None;
            for path in candidates(&below, "host", name) {
                if let Some(found) = self.at_path(&path).await? {
                    start = Some(found);
                    break;
                }
            }
            let missing = |why: &str| VcError::unresolved("resourcePool", name, why);
            let start = start.ok_or_else(|| {
                missing("no resource pool or cluster of that path is visible to this user")
            })?;
            let hosts = || {
                vec![Selection::follow(
                    "hosts",
                    "ComputeResource",
                    "host",
                    Vec::new(),
                )]
            };
            let select = match start.kind.as_str() {
                "ResourcePool" | "VirtualApp" => {
                    vec![Selection::follow("owner", "ResourcePool", "owner", hosts())]
                }
                "ComputeResource" | "ClusterComputeResource" => hosts(),
                other => return Err(missing(&format!("the object of that path is a {other}"))),
            };
            let question = Question::about(format!("resource pool {name:?}"))
                .read("ComputeResource", &["resourcePool", "configurationEx"])
                .read(
                    "HostSystem",
                    &[
                        "name",
                        "network",
                        "runtime.connectionState",
                        "runtime.inMaintenanceMode",
                    ],
                )
                .from(&start, select);
            let found = self.retrieve(question).await?;
            topology(&start, &found)
                .map(Arc::new)
                .ok_or_else(|| missing("its cluster is not visible to this user"))
        };
        self.cache
            .topologies
            .get_or((datacenter.clone(), name.to_owned()), STRUCTURE, look_up)
            .await
    }
}

fn topology(start: &MoRef, found: &[Properties]) -> Option<ComputeTopology> {
    let compute = found.iter().find(|p| {
        matches!(
            p.object.kind.as_str(),
            "ComputeResource" | "ClusterComputeResource"
        )
    })?;
    let is_pool = matches!(start.kind.as_str(), "ResourcePool" | "VirtualApp");
    let pool = if is_pool {
        start.clone()
    } else {
        compute.reference("resourcePool")?
    };
    let drs = compute
        .value("configurationEx")
        .and_then(|c| c.pointer("/drsConfig/enabled"))
        .and_then(Value::as_bool);
    let hosts = found
        .iter()
        .filter(|p| p.object.kind == "HostSystem")
        .map(|p| Host {
            moref: p.object.clone(),
            name: p.text("name").unwrap_or_default().to_owned(),
            connected: p
                .text("runtime.connectionState")
                .is_none_or(|state| state == "connected"),
            in_maintenance: p.flag("runtime.inMaintenanceMode").unwrap_or(false),
            networks: p.references("network").into_iter().collect(),
        });
    Some(ComputeTopology {
        resource_pool: pool,
        // A cluster without DRS needs a named host, even if it has only one.
        chooses_host: drs.unwrap_or(compute.object.kind == "ComputeResource"),
        hosts: hosts.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vsphere::rpc::wire::collector::ObjectContent;

    #[test]
    fn vcenter_chooses_where_it_has_drs_or_nothing_to_choose() {
        let compute = |kind: &str, drs: Option<bool>| -> Properties {
            let mut config = serde_json::json!({"_typeName": "ComputeResourceConfigInfo"});
            if let Some(enabled) = drs {
                config["drsConfig"] = serde_json::json!({"enabled": enabled});
            }
            let content: ObjectContent = serde_json::from_value(serde_json::json!({
                "obj": {"type": kind, "value": "domain-1"},
                "propSet": [{"name": "configurationEx", "val": config}],
            }))
            .expect("content");
            content.into()
        };
        let pool = MoRef::new("ResourcePool", "p");
        for (kind, drs, chosen) in [
            ("ClusterComputeResource", Some(true), true),
            ("ClusterComputeResource", Some(false), false),
            // The user may not read that.
            ("ClusterComputeResource", None, false),
            ("ComputeResource", None, true),
        ] {
            let topology = topology(&pool, &[compute(kind, drs)]).expect("a cluster");
            assert_eq!(topology.chooses_host, chosen, "{kind} {drs:?}");
        }
    }
}
