//! Our definitions are the predecessor's plus the optional fields named here, and its objects read
//! and write back without loss.

use crate::{files, structural};
use agent_forge_crds::{VsphereAgent, VsphereAgentPool, manifest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Fields that came later. Everything below one of them is new as well.
const ADDED_TO_POOL: &[&str] = &[
    "spec.agent.discoveryTimeout",
    "spec.infraEnvRef.namespace",
    "spec.iso.caBundleRef",
    "spec.iso.ejectAfterInstall",
    "status.closed",
    "status.heldSecrets",
    "status.iso.bytesPerSecond",
    "status.iso.downloadedBytes",
    "status.iso.etaSeconds",
    "status.iso.sourceETag",
    "status.iso.history[].datastore",
    "status.iso.history[].url",
    "status.iso.infraEnvRef",
    "status.iso.sourceKey",
    "status.iso.sourceLastModified",
    "status.iso.storedPath",
    "status.iso.totalBytes",
    "status.iso.volatile",
    "status.refusedCredentials",
    "status.waitingOn",
];
const ADDED_TO_AGENT: &[&str] = &[
    "status.cleanupPolicy",
    "status.clusterID",
    "status.timeline",
    "status.traceID",
    "status.lastFailure",
    "status.vm.agentMachineRef",
    "status.vm.attempt",
    "status.vm.credentialsRef",
    "status.vm.discoveryDeadline",
    "status.vm.firstPoweredOn",
    "status.vm.infraEnvRef",
    "status.vm.instanceUUID",
    "status.vm.isoEjected",
    "status.vm.macAddresses",
    "status.vm.moref",
    "status.vm.placement",
    "status.vm.powerState",
    "status.vm.server",
    "status.vm.tagsMissing",
    "status.vm.taskID",
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
    for (file, ours, added) in [
        (manifest::POOL_FILE, manifest::pool(), ADDED_TO_POOL),
        (manifest::AGENT_FILE, manifest::agent(), ADDED_TO_AGENT),
    ] {
        let theirs = files::yaml(&directory.join(file));
        let ours = files::json(&ours);
        let mut difference = Difference::default();
        difference.schemas(
            files::schema(&theirs, "v1alpha1"),
            files::schema(&ours, "v1alpha1"),
            "",
        );
        assert_eq!(difference.wrong, Vec::<String>::new(), "{file}");
        let added: BTreeSet<String> = added.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(difference.added, added, "{file}");

        let frame = |definition: &Value| {
            let mut definition = definition.clone();
            let version = &mut definition["spec"]["versions"][0];
            version["schema"].take();
            version["additionalPrinterColumns"].take();
            assert_eq!(definition["spec"]["versions"].as_array().unwrap().len(), 1);
            (
                definition["metadata"]["name"].clone(),
                definition["spec"].clone(),
            )
        };
        assert_eq!(
            frame(&theirs),
            frame(&ours),
            "{file}: names, scope, subresources"
        );
        columns(&theirs, &ours, file);
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
    assert_eq!(theirs, ours[..theirs.len()], "{file}: columns");
    for column in &ours[theirs.len()..] {
        assert_eq!(
            column["priority"], 1,
            "{file}: {column} is only for -o wide"
        );
    }
}

#[derive(Default)]
struct Difference {
    wrong: Vec<String>,
    added: BTreeSet<String>,
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

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Equal as YAML means it: 1 is 1.0, and a set of words has no order.
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
    // The copy that other tests patch is that sample.
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

fn unchanged<K: DeserializeOwned + Serialize>(object: &Value, definition: &Value, file: &str) {
    let found = structural::problems(files::schema(definition, "v1alpha1"), object);
    assert_eq!(found, Vec::<String>::new(), "{file}");
    let typed: K =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(&files::json(&typed), object, "{file}");
}
