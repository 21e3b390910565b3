//! Datastores and datastore clusters, with the facts that placement needs.

use std::sync::Arc;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Datastore, VcError, VcResult},
};
use serde_json::Value;

use super::{
    cache::{SPACE, STRUCTURE},
    lookup::{DATASTORE, candidates},
};
use crate::vsphere::rpc::{
    client::Client,
    properties::{Properties, Question},
    wire::{collector::Selection, reference_in},
};

const DATASTORE_PATHS: &[&str] = &["summary", "host"];

impl Client {
    /// A datastore cluster or datastore of that name.
    pub(crate) async fn store(
        &self,
        datacenter: &MoRef,
        name: &str,
        field: &'static str,
    ) -> VcResult<MoRef> {
        let look_up = async {
            let below = self.datacenter_path(datacenter).await?;
            for path in candidates(&below, "datastore", name) {
                if let Some(found) = self.at_path(&path).await?
                    && found.kind == "StoragePod"
                {
                    return Ok(found);
                }
            }
            self.find_below(datacenter, name, DATASTORE, field)
                .await?
                .ok_or_else(|| {
                    VcError::unresolved(
                        field,
                        name,
                        "no datastore cluster or datastore of that name is visible to this user",
                    )
                })
        };
        self.cache
            .stores
            .get_or((datacenter.clone(), name.to_owned()), STRUCTURE, look_up)
            .await
    }

    /// The datastores behind a datastore cluster or datastore, with their free space.
    pub(crate) async fn datastores(&self, store: &MoRef) -> VcResult<Arc<Vec<Datastore>>> {
        let look_up = async {
            let children = Selection::follow("children", "StoragePod", "childEntity", Vec::new());
            let select = if store.kind == "StoragePod" {
                vec![children]
            } else {
                Vec::new()
            };
            let mut question = Question::about(store.to_string())
                .read("Datastore", DATASTORE_PATHS)
                .from(store, select);
            if store.kind == "StoragePod" {
                question = question.read("StoragePod", &["podStorageDrsEntry"]);
            }
            let found = self.retrieve(question).await?;
            let storage_drs = found
                .iter()
                .filter_map(|p| p.value("podStorageDrsEntry"))
                .any(|entry| {
                    let enabled = entry.pointer("/storageDrsConfig/podConfig/enabled");
                    enabled.and_then(Value::as_bool).unwrap_or(false)
                });
            let mut all = Vec::new();
            for properties in found.iter().filter(|p| p.object.kind == "Datastore") {
                properties.require_readable(DATASTORE_PATHS)?;
                all.extend(datastore(properties, storage_drs));
            }
            Ok(Arc::new(all))
        };
        self.cache.space.get_or(store.clone(), SPACE, look_up).await
    }
}

fn datastore(properties: &Properties, storage_drs: bool) -> Option<Datastore> {
    let summary = properties.value("summary")?;
    let text = |key: &str| summary.get(key).and_then(Value::as_str);
    let accessible = summary
        .get("accessible")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let hosts = properties
        .list("host")
        .iter()
        .filter(|mount| mounted(mount));
    Some(Datastore {
        moref: properties.object.clone(),
        name: text("name")?.to_owned(),
        free: summary
            .get("freeSpace")
            .and_then(Value::as_u64)
            .unwrap_or(0),
        accessible,
        in_maintenance: text("maintenanceMode").is_some_and(|mode| mode != "normal"),
        hosts: hosts
            .filter_map(|mount| mount.get("key").and_then(reference_in))
            .map(|host| host.id)
            .collect(),
        storage_drs,
    })
}

/// `DatastoreHostMount`: unset flags mean yes.
fn mounted(mount: &Value) -> bool {
    let Some(info) = mount.get("mountInfo") else {
        return false;
    };
    let flag = |key: &str| info.get(key).and_then(Value::as_bool).unwrap_or(true);
    flag("mounted")
        && flag("accessible")
        && info.get("accessMode").and_then(Value::as_str) != Some("readOnly")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_counts_when_it_can_write() {
        for (info, wanted) in [
            (
                json!({"accessMode": "readWrite", "mounted": true, "accessible": true}),
                true,
            ),
            (json!({"accessMode": "readWrite"}), true),
            (json!({"accessMode": "readOnly"}), false),
            (
                json!({"accessMode": "readWrite", "accessible": false}),
                false,
            ),
            (json!({"accessMode": "readWrite", "mounted": false}), false),
        ] {
            assert_eq!(mounted(&json!({"mountInfo": info})), wanted);
        }
    }
}
