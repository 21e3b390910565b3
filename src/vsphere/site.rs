//! Where the VMs of a resource pool can run: its compute resource and hosts.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{PlaceRequest, VcResult},
};
use serde_json::Value;

use super::{
    cache::STRUCTURE,
    client::Client,
    lookup::{candidates, unresolved},
    properties::{Properties, Question},
    storage::Datastore,
    wire::collector::Selection,
};

/// The datacenter, and the name of the resource pool.
pub(super) type SiteKey = (MoRef, String);

/// Where the VMs of a resource pool can run.
#[derive(Debug)]
pub(super) struct Site {
    /// The resource pool.
    pub(super) pool: MoRef,
    /// Whether vCenter chooses the host: the cluster has DRS, or it is a standalone host.
    chosen: bool,
    hosts: Vec<Host>,
    turn: AtomicUsize,
}

/// A host that accepts VMs.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// Reference.
    pub(super) object: MoRef,
    name: String,
    networks: HashSet<MoRef>,
}

impl Client {
    /// The site of the resource pool or cluster with that name.
    pub(super) async fn site(&self, datacenter: &MoRef, name: &str) -> VcResult<Arc<Site>> {
        let look_up = async {
            let below = self.datacenter_path(datacenter).await?;
            let mut start = None;
            for path in candidates(&below, "host", name) {
                if let Some(found) = self.at_path(&path).await? {
                    start = Some(found);
                    break;
                }
            }
            let missing = |why: &str| unresolved("resourcePool", name, why);
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
            site(&start, &found)
                .map(Arc::new)
                .ok_or_else(|| missing("its cluster is not visible to this user"))
        };
        self.cache
            .sites
            .get_or((datacenter.clone(), name.to_owned()), STRUCTURE, look_up)
            .await
    }
}

impl Site {
    /// The host to name in a create, if one must be named.
    pub(super) fn host_for(
        &self,
        seeing: &[&Host],
        datastore: &Datastore,
    ) -> Option<(String, MoRef)> {
        if self.chosen {
            return None;
        }
        let able: Vec<_> = seeing
            .iter()
            .filter(|h| datastore.hosts.contains(&h.object.id))
            .collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let host = able.get(turn.checked_rem(able.len())?)?;
        Some((host.name.clone(), host.object.clone()))
    }
}

fn site(start: &MoRef, found: &[Properties]) -> Option<Site> {
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
        .filter(|p| takes_vms(p))
        .map(|p| Host {
            object: p.object.clone(),
            name: p.text("name").unwrap_or_default().to_owned(),
            networks: p.references("network").into_iter().collect(),
        });
    Some(Site {
        pool,
        // In a cluster without DRS the host must be named, even if there is only one.
        chosen: drs.unwrap_or(compute.object.kind == "ComputeResource"),
        hosts: hosts.collect(),
        turn: AtomicUsize::new(0),
    })
}

fn takes_vms(host: &Properties) -> bool {
    host.text("runtime.connectionState")
        .is_none_or(|state| state == "connected")
        && !host.flag("runtime.inMaintenanceMode").unwrap_or(false)
}

/// The hosts that have the network, a datastore and the ISO datastore. If there is none, the error names the field that
/// causes it.
pub(super) fn meeting<'a>(
    site: &'a Site,
    request: &PlaceRequest,
    network: &MoRef,
    stores: &[Datastore],
    iso_stores: &[Datastore],
) -> VcResult<Vec<&'a Host>> {
    let sees_store = |h: &Host| {
        stores
            .iter()
            .any(|d| d.usable && d.hosts.contains(&h.object.id))
    };
    let sees_iso = |h: &Host| {
        iso_stores
            .iter()
            .any(|d| d.usable && d.hosts.contains(&h.object.id))
    };
    let sees_network = |h: &Host| h.networks.contains(network);
    let place = &request.resource_pool;
    if site.hosts.is_empty() {
        return Err(unresolved(
            "resourcePool",
            place,
            "none of its hosts is connected and out of maintenance",
        ));
    }
    let any = |sees: &dyn Fn(&Host) -> bool| site.hosts.iter().any(sees);
    if !any(&sees_network) {
        return Err(unresolved(
            "network",
            &request.network,
            format!("no usable host of {place:?} has this network"),
        ));
    }
    if !any(&sees_store) {
        let why = format!("no usable host of {place:?} has an accessible datastore of it mounted");
        return Err(unresolved(
            "datastoreCluster",
            &request.datastore_cluster,
            why,
        ));
    }
    if !any(&sees_iso) {
        let why = format!("it is not mounted on any usable host of {place:?}, where the VMs run");
        return Err(unresolved("isoDatastore", &request.iso_datastore, why));
    }
    let all: Vec<&Host> = site
        .hosts
        .iter()
        .filter(|h| sees_network(h) && sees_store(h) && sees_iso(h))
        .collect();
    if all.is_empty() {
        let why = format!(
            "no usable host of {place:?} has network, datastore and this ISO datastore together"
        );
        return Err(unresolved("isoDatastore", &request.iso_datastore, why));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_forge_actors::{
        model::hardware::{DiskController, Firmware, Hardware, NetworkAdapter},
        ports::vcenter::VcErrorKind,
    };

    use super::{super::wire::collector::ObjectContent, *};

    fn host(id: &str, networks: &[&str]) -> Host {
        Host {
            object: MoRef::new("HostSystem", id),
            name: id.to_owned(),
            networks: networks.iter().map(|n| MoRef::new("Network", *n)).collect(),
        }
    }

    fn store(id: &str, hosts: &[&str]) -> Datastore {
        Datastore {
            object: MoRef::new("Datastore", id),
            name: id.to_owned(),
            free: 1 << 40,
            usable: true,
            hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
            storage_drs: false,
        }
    }

    fn site(chosen: bool, hosts: Vec<Host>) -> Site {
        Site {
            pool: MoRef::new("ResourcePool", "p"),
            chosen,
            hosts,
            turn: AtomicUsize::new(0),
        }
    }

    fn request() -> PlaceRequest {
        PlaceRequest {
            datacenter: "dc".into(),
            folder: "f".into(),
            resource_pool: "c/Resources".into(),
            datastore_cluster: "pod".into(),
            iso_datastore: "iso".into(),
            network: "net".into(),
            bytes: 1,
            reserved: BTreeMap::new(),
            hardware: Hardware {
                guest_id: "g".into(),
                firmware: Firmware::Efi,
                num_cpus: 1,
                memory_mib: 1,
                disk_gib: 1,
                eagerly_scrub: false,
                disk_controller: DiskController::ParaVirtual,
                network_adapter: NetworkAdapter::Vmxnet3,
            },
        }
    }

    #[test]
    fn the_field_to_blame_is_named() {
        let net = MoRef::new("Network", "n");
        let site = site(true, vec![host("h1", &["n"]), host("h2", &[])]);
        let table = [
            (
                &net,
                vec![store("d", &["h1"])],
                vec![store("i", &["h1"])],
                None,
            ),
            (
                &net,
                vec![store("d", &["h1"])],
                vec![store("i", &["h9"])],
                Some("isoDatastore"),
            ),
            (
                &net,
                vec![store("d", &["h9"])],
                vec![store("i", &["h1"])],
                Some("datastoreCluster"),
            ),
            (
                &MoRef::new("Network", "x"),
                vec![store("d", &["h1"])],
                vec![store("i", &["h1"])],
                Some("network"),
            ),
            // Each of them is on some host, but never all on the same host.
            (
                &net,
                vec![store("d", &["h1"])],
                vec![store("i", &["h2"])],
                Some("isoDatastore"),
            ),
        ];
        for (network, stores, isos, blamed) in table {
            match (meeting(&site, &request(), network, &stores, &isos), blamed) {
                (Ok(hosts), None) => assert_eq!(hosts.len(), 1),
                (Err(e), Some(wanted)) => {
                    assert!(
                        matches!(e.kind, VcErrorKind::Unresolved { field, .. } if field == wanted),
                        "{e}"
                    );
                }
                (got, wanted) => panic!("{got:?} instead of {wanted:?}"),
            }
        }
    }

    #[test]
    fn hosts_take_turns_only_where_no_drs_chooses() {
        let datastore = store("d", &["h1", "h2"]);
        let hosts = || vec![host("h1", &["n"]), host("h2", &["n"]), host("h3", &["n"])];
        let without = site(false, hosts());
        let seeing: Vec<&Host> = without.hosts.iter().collect();
        let picks: Vec<_> = (0..4)
            .filter_map(|_| without.host_for(&seeing, &datastore))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(picks, ["h1", "h2", "h1", "h2"]);
        let with = site(true, hosts());
        assert_eq!(
            with.host_for(&with.hosts.iter().collect::<Vec<_>>(), &datastore),
            None
        );
        // For example, the other hosts of that cluster are in maintenance.
        let single = site(false, vec![host("h1", &["n"])]);
        let named = single.host_for(&single.hosts.iter().collect::<Vec<_>>(), &datastore);
        assert_eq!(named.map(|(name, _)| name).as_deref(), Some("h1"));
    }

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
            // The user may not read the DRS setting.
            ("ClusterComputeResource", None, false),
            ("ComputeResource", None, true),
        ] {
            let site = super::site(&pool, &[compute(kind, drs)]).expect("a site");
            assert_eq!(site.chosen, chosen, "{kind} {drs:?}");
        }
    }
}
