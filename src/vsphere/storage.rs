//! Chooses the datastore. A recommendation of Storage DRS must still have room beside the creations under way. Without
//! Storage DRS, or if none of its recommendations fits, the datastore with the most free space is taken.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
};
use serde_json::Value;

use super::{
    cache::{SPACE, STRUCTURE},
    client::Client,
    lookup::{DATASTORE, candidates, unresolved},
    properties::{Properties, Question},
    storage_drs::Recommended,
    wire::{collector::Selection, reference_in},
};

/// A datastore, with the properties that placement needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datastore {
    /// Reference.
    pub(super) object: MoRef,
    /// Name.
    pub(super) name: String,
    /// Free bytes.
    pub(super) free: u64,
    /// Accessible and not in maintenance.
    pub(super) usable: bool,
    /// Ids of the hosts that can write to it.
    pub(super) hosts: HashSet<String>,
    /// Whether Storage DRS places new VMs there. Only known for a datastore of a cluster.
    pub(super) storage_drs: bool,
}

const DATASTORE_PATHS: &[&str] = &["summary", "host"];

impl Client {
    /// The datastore cluster or datastore with that name.
    pub(super) async fn store(
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
                    unresolved(
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

    /// The datastores of a datastore cluster, or the datastore itself, with their free space.
    pub(super) async fn datastores(&self, store: &MoRef) -> VcResult<Arc<Vec<Datastore>>> {
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

/// Chooses a datastore with room for `bytes` beside what is already reserved. A datastore with the best rating comes
/// first, then any other. Among equals it takes the one with the most space left, so that creations under way are
/// spread.
pub(super) fn choose<'a>(
    fitting: &[&'a Datastore],
    recommended: &[Recommended],
    reserved: &BTreeMap<String, u64>,
    bytes: u64,
) -> Option<&'a Datastore> {
    let left = |d: &Datastore| {
        d.free
            .saturating_sub(reserved.get(&d.object.id).copied().unwrap_or(0))
    };
    let rating = |d: &Datastore| {
        let own = recommended.iter().filter(|r| r.store == d.object);
        own.map(|r| r.rating).max()
    };
    let roomy = fitting.iter().copied().filter(|d| left(d) >= bytes);
    roomy.max_by_key(|d| (rating(d), left(d), std::cmp::Reverse(&d.object.id)))
}

/// The failure if no datastore has room.
pub(super) fn full(name: &str, bytes: u64, best: u64) -> VcError {
    let gib = |b: u64| b.div_ceil(1 << 30);
    VcError {
        kind: VcErrorKind::Fault(Fault::NoDiskSpace(name.to_owned())),
        operation: "Place",
        subject: format!("datastoreCluster {name:?}"),
        message: format!(
            "no datastore has {} GiB left beside the VMs that are being created (the emptiest one has {} GiB free)",
            gib(bytes),
            best >> 30
        ),
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
        object: properties.object.clone(),
        name: text("name")?.to_owned(),
        free: summary
            .get("freeSpace")
            .and_then(Value::as_u64)
            .unwrap_or(0),
        usable: accessible && text("maintenanceMode").is_none_or(|mode| mode == "normal"),
        hosts: hosts
            .filter_map(|mount| mount.get("key").and_then(reference_in))
            .map(|host| host.id)
            .collect(),
        storage_drs,
    })
}

/// Whether a `DatastoreHostMount` is usable. Unset flags mean yes.
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

    fn ds(id: &str, free: u64) -> Datastore {
        Datastore {
            object: MoRef::new("Datastore", id),
            name: id.to_owned(),
            free,
            usable: true,
            hosts: HashSet::new(),
            storage_drs: true,
        }
    }

    #[test]
    fn recommendations_count_only_where_the_promised_space_leaves_room() {
        let (a, b, c) = (ds("a", 100), ds("b", 90), ds("c", 80));
        let all = [&a, &b, &c];
        let rated = |store: &str, rating: i32| Recommended {
            store: MoRef::new("Datastore", store),
            rating,
        };
        let recommended = [rated("c", 2), rated("b", 5)];
        let none = BTreeMap::new();
        let pick = |rec: &[Recommended], res: &BTreeMap<String, u64>, bytes| {
            choose(&all, rec, res, bytes).map(|d| d.object.id.clone())
        };
        assert_eq!(pick(&recommended, &none, 50).as_deref(), Some("b"));
        assert_eq!(pick(&[], &none, 50).as_deref(), Some("a"));
        let equal = [rated("c", 3), rated("b", 3)];
        assert_eq!(pick(&equal, &none, 50).as_deref(), Some("b"));
        let promised = BTreeMap::from([("a".to_owned(), 30), ("b".to_owned(), 60)]);
        assert_eq!(pick(&equal, &promised, 50).as_deref(), Some("c"));
        assert_eq!(pick(&recommended, &promised, 50).as_deref(), Some("c"));
        assert_eq!(pick(&[], &promised, 50).as_deref(), Some("c"));
        assert_eq!(pick(&recommended, &none, 95).as_deref(), Some("a"));
        assert_eq!(pick(&recommended, &none, 101), None);
    }

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
