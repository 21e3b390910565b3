//! Our definitions equal those of the predecessor's 1.0.2 and 1.1.0, plus the optional fields named here, without the
//! rules named here. The predecessor's objects are read and written back without loss.

use crate::files;
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    manifest::{self, structural},
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Fields that 1.1.0 added.
const ADDED_TO_POOL_BY_1_1: &[&str] = &["status.ownedVMs[].ownerUID", "status.ownedVMs[].source"];
const ADDED_TO_AGENT_BY_1_1: &[&str] = &["status.vm.ownerUID", "status.vm.source"];
/// Fields that 1.1.0 makes immutable. In our definitions they may change, so that a mistake can be corrected without a
/// new pool.
const LIFTED_FROM_POOL: &[&str] = &[
    "spec.controlPlaneNamespace",
    "spec.hostedClusterRef",
    "spec.infraEnvRef",
    "spec.nodePoolRef",
    "spec.vsphere.credentialsSecretRef",
    "spec.vsphere.datacenter",
    "spec.vsphere.folder",
    "spec.vsphere.isoDatastore",
];
const LIFTED_FROM_AGENT: &[&str] = &["spec.poolRef"];
/// Fields that were added later. Everything below one of them is new as well.
const ADDED_TO_POOL: &[&str] = &[
    "spec.agent.discoveryTimeout",
    "spec.agent.nodeLabels",
    "spec.agent.platformLabels",
    "spec.agent.resourceClass",
    "spec.classes",
    "spec.dryRun",
    "spec.hosts",
    "spec.nodeCheck",
    "spec.power",
    "spec.powerOnAfter",
    "spec.reassign",
    "spec.release",
    "spec.scaling",
    "spec.infraEnvRef.namespace",
    "spec.iso.caBundleRef",
    "spec.iso.ejectAfterInstall",
    "status.buffer",
    "status.ownedVMs[].class",
    "status.foreignAgents",
    "status.nodes",
    "status.pastHosts",
    "status.reassign",
    "status.closed",
    "status.heldSecrets",
    "status.iso.bytesPerSecond",
    "status.iso.downloadedBytes",
    "status.iso.etaSeconds",
    "status.iso.sourceETag",
    "status.iso.history[].datastore",
    "status.iso.history[].url",
    "status.iso.image",
    "status.iso.infraEnvRef",
    "status.iso.lastModified",
    "status.iso.sourceKey",
    "status.iso.sourceLastModified",
    "status.iso.storedPath",
    "status.iso.totalBytes",
    "status.iso.urlHash",
    "status.iso.volatile",
    "status.refusedCredentials",
    "status.waitingOn",
];
const ADDED_TO_AGENT: &[&str] = &[
    "spec.class",
    "spec.goal",
    "status.cleanupPolicy",
    "status.clusterID",
    "status.isoEjection",
    "status.timeline",
    "status.traceID",
    "status.lastFailure",
    "status.vm.agentLostSince",
    "status.vm.agentMachinePaused",
    "status.vm.agentMachineRef",
    "status.vm.attempt",
    "status.vm.bootRepair",
    "status.vm.credentialsRef",
    "status.vm.discoveryDeadline",
    "status.vm.disk",
    "status.vm.esxiHost",
    "status.vm.firstPoweredOn",
    "status.vm.generation",
    "status.vm.generationSince",
    "status.vm.guestMayBeNode",
    "status.vm.hardwareDrift",
    "status.vm.hardwareVersion",
    "status.vm.hasSnapshot",
    "status.vm.infraEnvRef",
    "status.vm.instanceUUID",
    "status.vm.isoCreated",
    "status.vm.isoEjected",
    "status.vm.lives",
    "status.vm.macAddresses",
    "status.vm.machineVanishedPaused",
    "status.vm.mayServe",
    "status.vm.moref",
    "status.vm.pausedInVCenter",
    "status.vm.placement",
    "status.vm.powerState",
    "status.vm.recycle",
    "status.vm.replaceIgnored",
    "status.vm.served",
    "status.vm.serverInstanceUUID",
    "status.vm.server",
    "status.vm.skipDeleteInVCenter",
    "status.vm.switchedOnAgain",
    "status.vm.tagsMissing",
    "status.vm.takenFrom",
    "status.vm.taskID",
    "status.vm.template",
    "status.vm.usedStorageGiB",
    "status.vm.vmPath",
    "status.waitingOn",
];

fn directory(test: &str) -> Option<PathBuf> {
    files::shared("predecessor", test)
}

#[test]
fn definitions_equal_those_of_the_predecessor_but_for_the_added_fields() {
    let Some(directory) = directory("definitions_equal_those_of_the_predecessor") else {
        return;
    };
    type Kind = (
        &'static str,
        Value,
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
    );
    let kinds: [Kind; 2] = [
        (
            manifest::POOL_FILE,
            files::json(&manifest::pool()),
            ADDED_TO_POOL,
            ADDED_TO_POOL_BY_1_1,
            LIFTED_FROM_POOL,
        ),
        (
            manifest::AGENT_FILE,
            files::json(&manifest::agent()),
            ADDED_TO_AGENT,
            ADDED_TO_AGENT_BY_1_1,
            LIFTED_FROM_AGENT,
        ),
    ];
    let old = |kind: &Kind| {
        (
            directory.join(kind.0),
            [kind.2, kind.3].concat(),
            Vec::new(),
        )
    };
    let new = |kind: &Kind| {
        let file = directory.join("v1.1.0").join(kind.0);
        (file, kind.2.to_vec(), kind.4.to_vec())
    };
    let versions = kinds.iter().flat_map(|k| [(k, old(k)), (k, new(k))]);
    for ((_, ours, ..), (file, added, lifted)) in versions {
        let theirs = files::yaml(&file);
        let file = file.display();
        let mut difference = Difference::default();
        difference.schemas(
            files::schema(&theirs, "v1alpha1"),
            files::schema(ours, "v1alpha1"),
            "",
        );
        // Three fields may be absent together since then, and rules say which ones.
        let relaxed = "became Some(Array [String(\"agent\"), String(\"infraEnvRef\"), String(\"template\"), String(\"vsphere\")])";
        difference.wrong.retain(|found| {
            let required = found.starts_with("spec required: ") && found.ends_with(relaxed);
            !required && !found.starts_with("spec x-kubernetes-validations: None became ")
        });
        assert_eq!(difference.wrong, Vec::<String>::new(), "{file}");
        let set = |paths: Vec<&str>| -> BTreeSet<String> {
            paths.into_iter().map(str::to_owned).collect()
        };
        assert_eq!(difference.added, set(added), "{file}");
        assert_eq!(difference.lifted, set(lifted), "{file}");

        let frame = |definition: &Value| {
            let mut definition = definition.clone();
            let spec = &mut definition["spec"];
            // What ours add: a category, and the second version with fields to select by.
            spec["names"].as_object_mut().unwrap().remove("categories");
            let versions = spec["versions"].as_array_mut().unwrap();
            versions.truncate(1);
            let version = versions[0].as_object_mut().unwrap();
            for field in ["schema", "additionalPrinterColumns", "selectableFields"] {
                version.remove(field);
            }
            (
                definition["metadata"]["name"].clone(),
                definition["spec"].clone(),
            )
        };
        assert_eq!(
            frame(&theirs),
            frame(ours),
            "{file}: names, scope, subresources"
        );
        columns(&theirs, ours, &file.to_string());
    }
}

fn columns(theirs: &Value, ours: &Value, file: &str) {
    let list = |definition: &Value| {
        definition["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .clone()
    };
    let (theirs, ours) = (list(theirs), list(ours));
    let also: Vec<&Value> = ours.iter().filter(|c| theirs.contains(c)).collect();
    assert_eq!(theirs.iter().collect::<Vec<_>>(), also, "{file}: columns");
    assert_eq!(ours.last().unwrap()["name"], "Age", "{file}");
    let added = ours.iter().filter(|column| !theirs.contains(column));
    let shown = added.filter(|column| column["priority"] != 1);
    let shown: Vec<&Value> = shown.map(|column| &column["name"]).collect();
    assert_eq!(
        shown,
        ["Ready", "Reason"],
        "{file}: the others are only for -o wide"
    );
}

/// Objects are converted by their `apiVersion` alone.
#[test]
fn both_versions_have_the_same_schema_and_the_predecessors_is_stored() {
    for definition in [
        files::json(&manifest::pool()),
        files::json(&manifest::agent()),
    ] {
        let versions = definition["spec"]["versions"].as_array().unwrap();
        let [stored, next] = &versions[..] else {
            panic!("{} versions", versions.len());
        };
        assert_eq!(
            (&stored["name"], &next["name"]),
            (&"v1alpha1".into(), &"v1beta1".into())
        );
        assert_eq!(
            (&stored["storage"], &next["storage"]),
            (&true.into(), &false.into())
        );
        for field in [
            "served",
            "schema",
            "subresources",
            "additionalPrinterColumns",
        ] {
            assert_eq!(stored[field], next[field], "{field}");
        }
        assert!(definition["spec"]["conversion"].is_null(), "strategy None");
    }
}

#[derive(Default)]
struct Difference {
    wrong: Vec<String>,
    added: BTreeSet<String>,
    /// Fields that are immutable in their definition but not in ours.
    lifted: BTreeSet<String>,
}

impl Difference {
    fn schemas(&mut self, theirs: &Value, ours: &Value, path: &str) {
        let (theirs, ours) = (theirs.as_object().unwrap(), ours.as_object().unwrap());
        let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        for key in keys {
            let (left, right) = (theirs.get(key), ours.get(key));
            match (key.as_str(), left, right) {
                ("description", _, _) => {}
                ("properties", Some(left), Some(right)) => self.properties(left, right, path),
                ("items" | "additionalProperties", Some(left), Some(right)) => {
                    self.schemas(left, right, &format!("{path}[]"));
                }
                (_, Some(left), Some(right)) if same(left, right) => {}
                ("x-kubernetes-validations", Some(rules), None) if only_immutable(rules) => {
                    self.lifted.insert(path.to_owned());
                }
                _ => self
                    .wrong
                    .push(format!("{path} {key}: {left:?} became {right:?}")),
            }
        }
    }

    fn properties(&mut self, theirs: &Value, ours: &Value, path: &str) {
        let (theirs, ours) = (theirs.as_object().unwrap(), ours.as_object().unwrap());
        for (name, left) in theirs {
            let path = join(path, name);
            match ours.get(name) {
                Some(right) => self.schemas(left, right, &path),
                None => self.wrong.push(format!("{path}: is missing")),
            }
        }
        for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
            self.added.insert(join(path, name));
        }
    }
}

/// Whether all rules only say that the value may not change.
fn only_immutable(rules: &Value) -> bool {
    let mut rules = rules.as_array().into_iter().flatten();
    rules.all(|rule| rule["rule"] == "self == oldSelf")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Equal in the sense of YAML: 1 equals 1.0, and a set of words has no order.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().all(|item| right.contains(item))
        }
        _ => left == right,
    }
}

#[test]
fn sample_of_the_predecessor_reads_validates_and_writes_back_unchanged() {
    let Some(directory) = directory("sample_of_the_predecessor") else {
        return;
    };
    let sample = files::yaml(&directory.join("agentforge_v1alpha1_vsphereagentpool.yaml"));
    unchanged::<VsphereAgentPool>(&sample, &files::json(&manifest::pool()), "sample");
    // The copy that other tests patch equals that sample.
    let ours = files::fixture("pool.yaml");
    assert_eq!(ours["spec"], sample["spec"], "tests/fixtures/pool.yaml");
}

#[test]
fn recorded_objects_of_the_predecessor_read_validate_and_write_back_unchanged() {
    let Some(directory) = directory("recorded_objects_of_the_predecessor") else {
        return;
    };
    let (pool, agent) = (
        files::json(&manifest::pool()),
        files::json(&manifest::agent()),
    );
    let mut count = 0;
    for file in files::yaml_files(&directory.join("recorded")) {
        let name = file.display().to_string();
        let recorded = files::yaml(&file);
        for object in recorded["vsphereagentpools"]
            .as_array()
            .into_iter()
            .flatten()
        {
            unchanged::<VsphereAgentPool>(object, &pool, &name);
            count += 1;
        }
        for object in recorded["vsphereagents"].as_array().into_iter().flatten() {
            unchanged::<VsphereAgent>(object, &agent, &name);
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} recorded objects were found");
}

/// What 1.1.0 and later releases write. No objects of them are recorded. The fields come from their definitions and
/// from what is known about these releases.
#[test]
fn what_1_1_0_and_later_write_reads_validates_and_writes_back_unchanged() {
    let vm = json!({
        "name": "demo-worker-1",
        "biosUUID": "c824c2ad-870a-528c-8c15-9efba0d051bf",
        "ownerUID": "0c1dbb4e-0f2b-4f0c-9d6e-3f5a5e1f7b10",
        "source": "VsphereAgent",
        "phase": "Bound",
    });
    let agent = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1",
        "kind": "VsphereAgent",
        "metadata": {"name": "demo-worker-1", "namespace": "demo"},
        "spec": {"poolRef": {"name": "demo"}},
        "status": {
            "vm": vm,
            "conditions": [{
                "type": "ISOEjected",
                "status": "False",
                "reason": "EjectionInProgress",
                "message": "recorded",
                "lastTransitionTime": "2026-11-21T05:23:23Z",
            }],
            "isoEjection": {
                "vmName": "demo-worker-1",
                "biosUUID": "c824c2ad-870a-528c-8c15-9efba0d051bf",
                "ownerUID": "0c1dbb4e-0f2b-4f0c-9d6e-3f5a5e1f7b10",
                "datacenter": "dc1",
                "deviceKey": 3000,
                "isoPath": "[isos] agent-forge/demo/demo/aa.iso",
                "startedAt": "2026-11-21T05:23:23Z",
                "disconnectStarted": true,
                "questionID": "7",
            },
        },
    });
    unchanged::<VsphereAgent>(&agent, &files::json(&manifest::agent()), "agent");
    let mut pool = files::fixture("pool.yaml");
    let seen = json!({"name": "metal-7", "source": "DiscoveredAgent"});
    pool["status"] = json!({
        "ownedVMs": [vm, seen],
        "iso": {
            "path": "agent-forge/demo/demo/aa.iso",
            "urlHash": "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
            "lastModified": "Wed, 23 Sep 2026 01:24:34 GMT",
        },
    });
    pool["spec"]["iso"]["ejectAfterInstall"] = true.into();
    unchanged::<VsphereAgentPool>(&pool, &files::json(&manifest::pool()), "pool");
}

fn unchanged<K: DeserializeOwned + Serialize>(object: &Value, definition: &Value, file: &str) {
    let found = structural::problems(files::schema(definition, "v1alpha1"), object);
    assert_eq!(found, Vec::<String>::new(), "{file}");
    let typed: K =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(&files::json(&typed), object, "{file}");
}
