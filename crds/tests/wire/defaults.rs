//! Values of absent fields: the methods return the defaults of the schema.

use crate::files;
use agent_forge_crds::pool::VsphereAgentPool;
use agent_forge_crds::{VsphereAgent, manifest};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn collect(schema: &Value, path: &str, all: &mut BTreeMap<String, Value>) {
    if let Some(default) = schema.get("default") {
        all.insert(path.to_owned(), default.clone());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        collect(property, &format!("{path}.{name}"), all);
    }
}

#[test]
fn methods_answer_with_the_defaults_of_the_schema() {
    let definition = files::json(&manifest::pool());
    let mut schema = BTreeMap::new();
    collect(
        &files::schema(&definition, "v1alpha1")["properties"]["spec"],
        "",
        &mut schema,
    );

    let spec = VsphereAgentPool::default().spec;
    let methods = BTreeMap::from([
        (".agent.approve".to_owned(), json!(spec.agent.approve())),
        (".agent.role".to_owned(), json!(spec.agent.role())),
        (".cleanupPolicy".to_owned(), json!(spec.cleanup_policy())),
        (
            ".iso.retainVersions".to_owned(),
            json!(spec.retain_versions()),
        ),
        (
            ".template.diskGiB".to_owned(),
            json!(spec.template.disk_gib()),
        ),
        (
            ".template.memoryMiB".to_owned(),
            json!(spec.template.memory_mib()),
        ),
        (
            ".template.numCPUs".to_owned(),
            json!(spec.template.num_cpus()),
        ),
        (
            ".vsphere.datacenter".to_owned(),
            json!(spec.vsphere.datacenter()),
        ),
        (
            ".vsphere.firmware".to_owned(),
            json!(spec.vsphere.firmware().as_str()),
        ),
        (
            ".vsphere.guestID".to_owned(),
            json!(spec.vsphere.guest_id()),
        ),
        (
            ".vsphere.networkAdapterType".to_owned(),
            json!(spec.vsphere.network_adapter_type()),
        ),
        (
            ".vsphere.scsiType".to_owned(),
            json!(spec.vsphere.scsi_type()),
        ),
    ]);
    assert_eq!(methods, schema);
    assert_eq!(spec.check_interval(), "10m");
}

#[test]
fn empty_names_stand_for_derived_ones() {
    let mut pool: VsphereAgentPool = serde_json::from_value(files::fixture("pool.yaml")).unwrap();
    for empty in [None, Some(String::new())] {
        pool.spec.vsphere.folder = empty.clone();
        pool.spec.vsphere.credentials_secret_ref.namespace = empty.clone();
        let iso = pool.spec.iso.get_or_insert_default();
        iso.path_prefix = empty.clone();
        iso.check_interval = empty;
        assert_eq!(pool.spec.folder(), "demo");
        assert_eq!(pool.credentials_namespace(), "demo");
        assert_eq!(pool.iso_path_prefix(), "agent-forge/demo/demo-worker");
        assert_eq!(pool.spec.check_interval(), "10m");
    }
    pool.spec.vsphere.folder = Some("a/b".into());
    pool.spec.vsphere.credentials_secret_ref.namespace = Some("vault".into());
    pool.spec.iso.get_or_insert_default().path_prefix = Some("isos".into());
    assert_eq!(pool.spec.folder(), "a/b");
    assert_eq!(pool.credentials_namespace(), "vault");
    assert_eq!(pool.iso_path_prefix(), "isos");
}

#[test]
fn reading_and_writing_adds_nothing() {
    let least = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1",
        "kind": "VsphereAgentPool",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "hostedClusterRef": {"name": "h"},
            "nodePoolRef": {"name": "np"},
            "infraEnvRef": {"name": "i"},
            "controlPlaneNamespace": "n-h",
            "vsphere": {
                "credentialsSecretRef": {"name": "s"},
                "datastoreCluster": "d",
                "isoDatastore": "i",
                "resourcePool": "r",
                "network": "n",
            },
            "template": {},
            "agent": {"labels": {"a": "b"}},
        },
        "status": {},
    });
    let pool: VsphereAgentPool = serde_json::from_value(least.clone()).unwrap();
    assert_eq!(files::json(&pool), least);

    let least = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1",
        "kind": "VsphereAgent",
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"poolRef": {"name": "p"}},
        "status": {"vm": {"name": "a", "phase": "FromTheFuture"}},
    });
    let agent: VsphereAgent = serde_json::from_value(least.clone()).unwrap();
    assert_eq!(files::json(&agent), least);
}

#[test]
fn an_object_without_spec_or_with_holes_reads_instead_of_failing_its_list() {
    for spec in [
        None,
        Some(json!(null)),
        Some(json!({})),
        Some(json!({"vsphere": {"folder": null}})),
    ] {
        let mut object = json!({"metadata": {"name": "p", "namespace": "n"}});
        if let Some(spec) = spec {
            object["spec"] = spec;
        }
        let pool: VsphereAgentPool = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(pool.spec, VsphereAgentPool::default().spec, "{object}");
        let agent: VsphereAgent = serde_json::from_value(object).unwrap();
        assert_eq!(agent.spec.pool_ref.name, "");
    }
}
