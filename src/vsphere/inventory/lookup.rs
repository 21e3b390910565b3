//! Finds objects by name: inventory paths, datacenters, datastores, networks.

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{VcError, VcErrorKind, VcResult},
};
use serde::Serialize;

use super::cache::STRUCTURE;
use crate::vsphere::rpc::{
    call::Call,
    client::Client,
    properties::{Properties, Question},
    session::Asked,
    wire::{Ref, collector::Selection},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindByInventoryPath<'a> {
    inventory_path: &'a str,
}

/// A kind of object below a datacenter.
#[derive(Clone, Copy)]
pub(crate) struct Sort {
    /// Folder of the datacenter, and the datacenter's property with all such objects at any depth.
    folder: &'static str,
    property: &'static str,
    base: &'static str,
    /// Types of these objects.
    kinds: &'static [&'static str],
}

/// Datastores.
pub(crate) const DATASTORE: Sort = Sort {
    folder: "datastore",
    property: "datastore",
    base: "Datastore",
    kinds: &["Datastore"],
};
/// Networks of any type.
pub(super) const NETWORK: Sort = Sort {
    folder: "network",
    property: "network",
    base: "Network",
    kinds: &["Network", "DistributedVirtualPortgroup", "OpaqueNetwork"],
};

impl Client {
    /// The object at this path below the root folder. `None`: it does not exist, or the user cannot see it.
    pub(super) async fn at_path(&self, path: &str) -> VcResult<Option<MoRef>> {
        let path = path.trim_matches('/');
        let found = self
            .cache
            .paths
            .get_or(path.to_owned(), STRUCTURE, async {
                let index: MoRef = self
                    .session(Asked::ByCall)
                    .await?
                    .endpoint
                    .content
                    .search_index
                    .clone()
                    .into();
                let arguments = FindByInventoryPath {
                    inventory_path: path,
                };
                let call = Call::new(&index, "FindByInventoryPath", &arguments).about(path);
                self.read::<Ref>(call)
                    .await?
                    .map(MoRef::from)
                    .ok_or_else(|| VcError::unresolved("path", path, "not found"))
            })
            .await;
        match found {
            Ok(object) => Ok(Some(object)),
            Err(e) if matches!(e.kind, VcErrorKind::Unresolved { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A datacenter by name or path.
    pub(crate) async fn find_datacenter(&self, name: &str) -> VcResult<MoRef> {
        let path = name.trim_matches('/');
        if let Some(found) = self.at_path(path).await?
            && found.kind == "Datacenter"
        {
            let known = path.to_owned();
            self.cache
                .datacenters
                .get_or(found.clone(), STRUCTURE, async { Ok(known) })
                .await?;
            return Ok(found);
        }
        let mut matching = Vec::new();
        if !path.contains('/') {
            // Datacenters may be in folders.
            let root: MoRef = self
                .session(Asked::ByCall)
                .await?
                .endpoint
                .content
                .root_folder
                .clone()
                .into();
            let children = Selection::follow(
                "folders",
                "Folder",
                "childEntity",
                vec![Selection::SelectionSpec { name: "folders" }],
            );
            let question = Question::about(format!("datacenter {name:?}"))
                .read("Datacenter", &["name"])
                .from(&root, vec![children]);
            matching = self.retrieve(question).await?;
            matching.retain(|p| {
                p.object.kind == "Datacenter" && p.text("name").is_some_and(|n| same_name(n, name))
            });
        }
        match matching.as_slice() {
            [one] => Ok(one.object.clone()),
            [] => Err(VcError::unresolved(
                "datacenter",
                name,
                "no datacenter of that name is visible to this user",
            )),
            _ => Err(VcError::unresolved(
                "datacenter",
                name,
                "several datacenters have that name: write its path",
            )),
        }
    }

    /// Inventory path of a datacenter, without leading slash (`folder/dc`).
    pub(crate) async fn datacenter_path(&self, datacenter: &MoRef) -> VcResult<String> {
        let look_up = async {
            let up = Selection::follow(
                "up",
                "ManagedEntity",
                "parent",
                vec![Selection::SelectionSpec { name: "up" }],
            );
            let question = Question::about(datacenter.to_string())
                .read("ManagedEntity", &["name", "parent"])
                .from(datacenter, vec![up]);
            let chain = self.retrieve(question).await?;
            path_of(datacenter, &chain).ok_or_else(|| {
                VcError::unresolved(
                    "datacenter",
                    &datacenter.id,
                    "its folders are not visible to this user",
                )
            })
        };
        self.cache
            .datacenters
            .get_or(datacenter.clone(), STRUCTURE, look_up)
            .await
    }

    /// An object below a datacenter, found by its path in the datacenter's folder, by inventory path, or by its bare name.
    /// The bare name may be at any depth: a datastore may be part of a cluster. `field` is the field of the spec with the
    /// name.
    pub(crate) async fn find_below(
        &self,
        datacenter: &MoRef,
        name: &str,
        sort: Sort,
        field: &'static str,
    ) -> VcResult<Option<MoRef>> {
        let below = self.datacenter_path(datacenter).await?;
        for path in candidates(&below, sort.folder, name) {
            if let Some(found) = self.at_path(&path).await?
                && sort.kinds.contains(&found.kind.as_str())
            {
                return Ok(Some(found));
            }
        }
        // Port groups are named after their subnets, so a bare name may contain a slash.
        if name.starts_with('/') {
            return Ok(None);
        }
        let all = Selection::follow("all", "Datacenter", sort.property, Vec::new());
        let question = Question::about(format!("{} {name:?}", sort.base))
            .read(sort.base, &["name"])
            .found_from(datacenter, vec![all]);
        let mut matching = self.retrieve(question).await?;
        matching.retain(|p| p.text("name").is_some_and(|n| same_name(n, name)));
        if matching.len() > 1 {
            let why = format!("{} objects have that name: write its path", matching.len());
            return Err(VcError::unresolved(field, name, why));
        }
        Ok(matching.pop().map(|p| p.object))
    }
}

/// Paths that a name in the spec may mean, the most likely one first.
pub(super) fn candidates(datacenter: &str, folder: &str, name: &str) -> Vec<String> {
    let trimmed = name.trim_matches('/');
    let relative = format!("{datacenter}/{folder}/{trimmed}");
    let absolute = trimmed.starts_with(&format!("{datacenter}/"));
    match (absolute, name.starts_with('/')) {
        (true, true) => vec![trimmed.to_owned()],
        (true, false) => vec![trimmed.to_owned(), relative],
        (false, _) => vec![relative],
    }
}

/// vCenter escapes `%`, `/` and `\` in names. People write either form.
pub(super) fn same_name(wire: &str, written: &str) -> bool {
    wire == written || unescaped(wire) == written
}

/// A name as people see it.
pub(super) fn unescaped(wire: &str) -> String {
    wire.replace("%2f", "/")
        .replace("%2F", "/")
        .replace("%5c", "\\")
        .replace("%5C", "\\")
        .replace("%25", "%")
}

/// Joins the names of a chain of parents, without the root folder.
fn path_of(start: &MoRef, chain: &[Properties]) -> Option<String> {
    let mut names = Vec::new();
    let mut current = start.clone();
    loop {
        let here = chain.iter().find(|p| p.object == current)?;
        let Some(parent) = here.reference("parent") else {
            break;
        };
        names.push(here.text("name")?.to_owned());
        if names.len() > chain.len() {
            return None;
        }
        current = parent;
    }
    names.reverse();
    Some(names.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::vsphere::rpc::played;

    #[tokio::test]
    async fn a_mere_name_is_found_as_people_see_it_and_only_where_it_is_one_objects() {
        let named =
            |name: &str| json!({"name": "name", "val": {"_typeName": "string", "_value": name}});
        let object = |kind: &str, properties: Value| json!({"obj": played::one(kind), "propSet": properties});
        let parent = json!({"name": "parent", "val": played::one("Folder")});
        let client = played::client(move |last, asked| {
            let objects = match last {
                // No path leads to it.
                "FindByInventoryPath" => return (200, Value::Null),
                "RetrievePropertiesEx" if asked.contains("ManagedEntity") => json!([
                    object("Datacenter", json!([named("dc"), parent])),
                    object("Folder", json!([named("Datacenters")])),
                ]),
                "RetrievePropertiesEx" => json!([
                    object("Network", json!([named("VM-10.0.0.0%2f24")])),
                    object("OpaqueNetwork", json!([named("twice")])),
                    object("DistributedVirtualPortgroup", json!([named("twice")])),
                ]),
                _ => return (404, json!({})),
            };
            (200, json!({"objects": objects}))
        });
        let datacenter = MoRef::new("Datacenter", "Datacenter");
        for (name, found) in [
            ("VM-10.0.0.0/24", true),
            ("VM-10.0.0.0%2f24", true),
            ("VM-10.0.0.0/25", false),
            // A path that leads to nothing.
            ("/dc/network/VM-10.0.0.0/24", false),
        ] {
            let seen = client
                .find_below(&datacenter, name, NETWORK, "network")
                .await;
            let wanted = found.then(|| MoRef::new("Network", "Network"));
            assert_eq!(seen.expect("an answer"), wanted, "{name}");
        }
        let seen = client
            .find_below(&datacenter, "twice", NETWORK, "network")
            .await;
        let several = seen.expect_err("ambiguous");
        let kind = VcErrorKind::Unresolved {
            field: "network",
            value: "twice".to_owned(),
        };
        assert_eq!(several.kind, kind);
        assert!(several.message.contains("path"), "{several}");
    }

    #[test]
    fn names_are_tried_where_people_mean_them() {
        for (name, wanted) in [
            ("cluster/Resources", vec!["dc/host/cluster/Resources"]),
            ("/dc/host/c/Resources", vec!["dc/host/c/Resources"]),
            ("dc/host/c", vec!["dc/host/c", "dc/host/dc/host/c"]),
            ("/c/Resources/", vec!["dc/host/c/Resources"]),
        ] {
            assert_eq!(candidates("dc", "host", name), wanted, "{name}");
        }
    }

    #[test]
    fn escaped_names_are_equal_to_what_people_see() {
        assert!(same_name("VM%2fNet%25", "VM/Net%"));
        assert!(same_name("VM%2fNet", "VM%2fNet"));
        assert!(!same_name("a", "b"));
    }
}
