//! The objects of a NodePool as HyperShift and CAPI create them.

use serde_json::{Map, Value, json};

use super::{
    super::{
        kinds,
        mirror::Object,
        object::Facts as _,
        options::{HostedCluster, MachineApi},
    },
    NODE_POOL, NodePoolOptions, Pool,
};

/// Finalizer of every Machine.
pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
/// Label with the CAPI cluster's name.
pub const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label with the MachineSet's name.
pub const SET_LABEL: &str = "cluster.x-k8s.io/set-name";

/// Label with the hash of the template.
const HASH_LABEL: &str = "machine-template-hash";

/// Name of the Secret with the user data of a revision.
#[must_use]
pub fn user_data(options: &NodePoolOptions, revision: u32) -> String {
    format!("user-data-{}-{}", options.name, hash(revision))
}

/// Name of the MachineSet of a revision.
#[must_use]
pub fn set_name(options: &NodePoolOptions, revision: u32) -> String {
    format!("{}-{}", options.name, hash(revision))
}

/// Five characters that differ between revisions.
fn hash(revision: u32) -> String {
    // Knuth's multiplicative hash spreads small numbers over all digits.
    format!("{:05x}", revision.wrapping_mul(2_654_435_761) >> 12)
}

/// The name that CAPI uses for the cluster: `spec.infraID` of the HostedCluster.
fn infra_id(cluster: &HostedCluster) -> String {
    format!("{}-x7k2p", cluster.name)
}

fn labels(options: &NodePoolOptions, set: &str) -> Value {
    let selector = format!("{}-{}", infra_id(&options.cluster), options.name);
    let mut labels = Map::new();
    labels.insert(CLUSTER_LABEL.to_owned(), json!(infra_id(&options.cluster)));
    labels.insert(SET_LABEL.to_owned(), json!(set));
    labels.insert(
        "cluster.x-k8s.io/deployment-name".to_owned(),
        json!(options.name),
    );
    labels.insert(selector.clone(), json!(selector));
    let revision = set.strip_prefix(&format!("{}-", options.name));
    labels.insert(HASH_LABEL.to_owned(), json!(revision));
    Value::Object(labels)
}

/// The reference to an infrastructure object or template, as each CAPI version writes it.
fn infrastructure(api: MachineApi, kind: &str, name: &str, namespace: &str) -> Value {
    match api {
        MachineApi::V1Beta1 => json!({
            "apiVersion": format!("{}/v1beta1", kinds::PROVIDER_GROUP),
            "kind": kind, "name": name, "namespace": namespace,
        }),
        MachineApi::V1Beta2 => {
            json!({"apiGroup": kinds::PROVIDER_GROUP, "kind": kind, "name": name})
        }
    }
}

/// An owner reference. With `controller`, as CAPI sets it on the objects that it manages.
#[must_use]
pub fn owner(object: &Object, controller: bool) -> Value {
    let types = object.types.clone().unwrap_or_default();
    let mut reference = json!({"apiVersion": types.api_version, "kind": types.kind, "name": object.name(), "uid": object.uid()});
    if controller {
        reference["controller"] = json!(true);
        reference["blockOwnerDeletion"] = json!(true);
    }
    reference
}

impl Pool {
    fn annotations(&self) -> Value {
        json!({NODE_POOL: self.identity(), "hypershift.openshift.io/release-version": "4.19.0"})
    }

    /// Metadata and body of the template for all AgentMachines of the pool.
    pub(super) fn template(&self) -> (Value, Value) {
        let spec = match &self.options.agent_label_selector {
            Some(selector) => json!({"agentLabelSelector": selector}),
            None => json!({}),
        };
        let metadata = json!({"name": self.template_name(), "annotations": self.annotations()});
        (metadata, json!({"spec": {"template": {"spec": spec}}}))
    }

    pub(super) fn template_name(&self) -> String {
        format!("{}-template", self.options.name)
    }

    /// Metadata and body of the MachineSet of a revision.
    pub(super) fn machine_set(&self, revision: u32, replicas: usize) -> (Value, Value) {
        let options = &self.options;
        let name = set_name(options, revision);
        let labels = labels(options, &name);
        let metadata = json!({"name": name, "annotations": self.annotations(), "labels": labels});
        let template = infrastructure(
            self.api(),
            "AgentMachineTemplate",
            &self.template_name(),
            &options.cluster.control_plane_namespace,
        );
        let spec = json!({
            "clusterName": infra_id(&options.cluster),
            "replicas": replicas,
            "selector": {"matchLabels": {SET_LABEL: name}},
            "template": {
                "metadata": {"labels": labels, "annotations": self.annotations()},
                "spec": {
                    "clusterName": infra_id(&options.cluster),
                    "bootstrap": {"dataSecretName": user_data(options, revision)},
                    "infrastructureRef": template,
                },
            },
        });
        (metadata, json!({ "spec": spec }))
    }

    /// Metadata and body of an AgentMachine. Its set owns it until its Machine becomes the owner.
    pub(super) fn agent_machine(&self, name: &str, set: &Object) -> (Value, Value) {
        let mut annotations = self.annotations();
        annotations["cluster.x-k8s.io/cloned-from-name"] = json!(self.template_name());
        annotations["cluster.x-k8s.io/cloned-from-groupkind"] =
            json!(format!("AgentMachineTemplate.{}", kinds::PROVIDER_GROUP));
        let metadata = json!({
            "name": name,
            "annotations": annotations,
            "labels": labels(&self.options, set.name()),
            "ownerReferences": [owner(set, false)],
        });
        let spec = match &self.options.agent_label_selector {
            Some(selector) => json!({"agentLabelSelector": selector}),
            None => json!({}),
        };
        (metadata, json!({ "spec": spec }))
    }

    /// Metadata and body of a Machine.
    pub(super) fn machine(&self, name: &str, set: &Object) -> (Value, Value) {
        let options = &self.options;
        let metadata = json!({
            "name": name,
            "annotations": self.annotations(),
            "labels": labels(options, set.name()),
            "finalizers": [MACHINE_FINALIZER],
            "ownerReferences": [owner(set, true)],
        });
        let namespace = &options.cluster.control_plane_namespace;
        let spec = json!({
            "clusterName": infra_id(&options.cluster),
            "bootstrap": {"dataSecretName": set.text("/spec/template/spec/bootstrap/dataSecretName")},
            "infrastructureRef": infrastructure(self.api(), "AgentMachine", name, namespace),
        });
        (metadata, json!({ "spec": spec }))
    }
}
