//! Every foreign field that we read or write exists in the real definition with the same type.

use crate::{files, full};
use agent_forge_crds::manifest::structural;
use serde_json::Value;

const AGENT_MACHINES: &str = "capi-provider.agent-install.openshift.io_agentmachines.yaml";
const LEGACY_AGENT_MACHINES: &str =
    "variants/hypershift-bundled_capi-provider.agent-install.openshift.io_agentmachines.yaml";
const AGENTS: &str = "agent-install.openshift.io_agents.yaml";
const INFRA_ENVS: &str = "agent-install.openshift.io_infraenvs.yaml";
const BYO_MACHINES: &str = "byoh/infrastructure.cluster.x-k8s.io_byomachines.yaml";
const BYO_HOSTS: &str = "byoh/infrastructure.cluster.x-k8s.io_byohosts.yaml";
const MACHINES: [&str; 2] = [
    "cluster.x-k8s.io_machines.yaml",
    "variants/hypershift-bundled_cluster.x-k8s.io_machines.yaml",
];

/// File of each definition with an object that has every field we know.
fn cases() -> Vec<(&'static str, Value)> {
    vec![
        (AGENT_MACHINES, files::json(&full::agent_machine(None))),
        (
            LEGACY_AGENT_MACHINES,
            files::json(&full::agent_machine(Some("Warning"))),
        ),
        (AGENTS, files::json(&full::agent())),
        (INFRA_ENVS, files::json(&full::infra_env())),
        (BYO_MACHINES, files::json(&full::byo_machine())),
        (BYO_HOSTS, files::json(&full::byo_host())),
    ]
}

/// The problems, without required fields that others fill in and that we never write.
fn wrong(definition: &Value, object: &Value) -> Vec<String> {
    let mut found = structural::problems(files::schema(definition, "v1beta1"), object);
    found.retain(|problem| !problem.ends_with(": is required"));
    found
}

fn identity(definition: &Value, object: &Value) {
    let spec = &definition["spec"];
    let version = object["apiVersion"].as_str().unwrap();
    assert_eq!(
        version,
        format!("{}/v1beta1", spec["group"].as_str().unwrap())
    );
    assert_eq!(object["kind"], spec["names"]["kind"]);
    assert_eq!(spec["scope"], "Namespaced");
}

#[test]
fn every_foreign_field_exists_with_its_type_in_the_real_definitions() {
    let Some(directory) = files::shared("upstream-crds", "contract with the real definitions")
    else {
        return;
    };
    for (file, object) in cases() {
        let definition = files::yaml(&directory.join(file));
        identity(&definition, &object);
        assert_eq!(wrong(&definition, &object), Vec::<String>::new(), "{file}");
    }
    for file in MACHINES {
        let definition = files::yaml(&directory.join(file));
        let served: Vec<&str> = files::versions(&definition).map(|(name, _)| name).collect();
        for version in agent_forge_crds::external::MachineVersion::NEWEST_FIRST {
            assert!(served.contains(&version.as_str()), "{file}: {version:?}");
            let resource = version.api_resource();
            assert_eq!(
                definition["spec"]["names"]["plural"], resource.plural,
                "{file}"
            );
            assert_eq!(definition["spec"]["group"], resource.group, "{file}");
        }
    }
}

#[test]
fn every_foreign_field_exists_in_the_definitions_of_the_lab() {
    let directory = files::workspace().join("tests/lab/crds");
    for (file, object) in cases() {
        let definition = files::yaml(&directory.join(file));
        identity(&definition, &object);
        assert_eq!(wrong(&definition, &object), Vec::<String>::new(), "{file}");
    }
}

/// The check itself finds the errors that it is for.
#[test]
fn the_contract_notices_an_unknown_field_and_another_type() {
    let definition = files::yaml(
        &files::workspace()
            .join("tests/lab/crds")
            .join(AGENT_MACHINES),
    );
    let good = files::json(&full::agent_machine(None));
    let mut unknown = good.clone();
    unknown["spec"]["hostname"] = "x".into();
    assert_eq!(
        wrong(&definition, &unknown),
        ["spec.hostname: is not in the schema"]
    );
    let mut other_type = good;
    other_type["status"]["ready"] = "yes".into();
    assert_eq!(
        wrong(&definition, &other_type),
        ["status.ready: must be of type boolean, and is \"yes\""]
    );
    let legacy = files::json(&full::agent_machine(Some("Warning")));
    assert_eq!(
        wrong(&definition, &legacy),
        ["status.conditions[0].severity: is not in the schema"]
    );
}
