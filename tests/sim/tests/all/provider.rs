//! The played agent provider acts as the real one in cases that a cluster in good order does not meet. The facts come
//! from `controllers/agentmachine_controller.go` of openshift/cluster-api-provider-agent.

use std::time::Duration;

use agent_forge_lab::played::{
    HostedCluster, PlayedOptions, kinds,
    mirror::Mirror,
    provider::{
        AGENT_MACHINE_REF, AGENT_MACHINE_REF_NAMESPACE, BACKUP_LABEL, FINALIZER, HOOK, PAUSED,
        Provider,
    },
};
use agent_forge_sim::{
    director::Director,
    kube::{
        ApiServer, kind,
        store::{self, Kind, Name, Via},
    },
    plan::Plan,
};
use serde_json::{Value, json};

/// Long enough for all passes that a change causes.
const SETTLED: Duration = Duration::from_secs(10);
const AGENT: &str = "host";

/// An API server and the provider of one hosted cluster. There is no Cluster API and no assisted service.
struct Scene {
    api: ApiServer,
    cluster: HostedCluster,
    _provider: Provider,
}

fn machines() -> Kind {
    kind("machines")
}

fn agent_machines() -> Kind {
    kind("agentmachines")
}

fn agents() -> Kind {
    kind("agents")
}

fn free() -> Value {
    json!({"conditions": [
        {"type": "Bound", "status": "False"},
        {"type": "Connected", "status": "True"},
        {"type": "Validated", "status": "True"},
    ]})
}

impl Scene {
    async fn new() -> Self {
        let director = Director::new(Plan::default());
        let api = ApiServer::new(director, jiff::Timestamp::UNIX_EPOCH, 1);
        let cluster = HostedCluster::new("demo", "hc");
        api.namespace(&cluster.agent_namespace);
        api.namespace(&cluster.control_plane_namespace);
        let client = api.client();
        let agents = Mirror::start(&client, &kinds::agent(), &cluster.agent_namespace);
        let options = PlayedOptions::default();
        let provider = Provider::start(&client, cluster.clone(), agents, &options)
            .await
            .expect("the provider");
        Self {
            api,
            cluster,
            _provider: provider,
        }
    }

    /// A Machine with that bootstrap, and its AgentMachine.
    fn machine(&self, name: &str, bootstrap: Value) {
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "metadata": {"name": name, "finalizers": ["machine.cluster.x-k8s.io"]},
            "spec": {"clusterName": "hc", "bootstrap": bootstrap},
        });
        let uid = self.create(&machines(), machine)["metadata"]["uid"].clone();
        let owner = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": uid,
        });
        let agent_machine = json!({
            "apiVersion": "capi-provider.agent-install.openshift.io/v1beta1",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {},
        });
        self.create(&agent_machines(), agent_machine);
    }

    /// An approved Agent that is not bound.
    fn agent(&self) {
        let agent = json!({
            "apiVersion": "agent-install.openshift.io/v1beta1",
            "metadata": {"name": AGENT}, "spec": {"approved": true},
        });
        self.create(&agents(), agent);
        self.status(&agents(), AGENT, free());
    }

    fn key(&self, kind: &Kind, name: &str) -> Name {
        let namespace = if *kind == agents() {
            &self.cluster.agent_namespace
        } else {
            &self.cluster.control_plane_namespace
        };
        (namespace.clone(), name.to_owned())
    }

    fn create(&self, kind: &Kind, object: Value) -> Value {
        let (namespace, _) = self.key(kind, "");
        let created = self.api.create(kind, &namespace, object);
        created.expect("created").as_ref().clone()
    }

    fn status(&self, kind: &Kind, name: &str, status: Value) {
        let key = self.key(kind, name);
        let written = self.api.write(|s, now| {
            s.update(kind, &key, (Via::Patch, true), now, |mut object| {
                store::merge(&mut object, &json!({ "status": status }));
                object
            })
        });
        written.expect("written");
    }

    fn merge(&self, kind: &Kind, name: &str, patch: Value) {
        let merged = self.api.merge(kind, &self.key(kind, name), &patch);
        merged.expect("merged");
    }

    fn delete(&self, kind: &Kind, name: &str) {
        let key = self.key(kind, name);
        let deleted = self.api.delete(kind, &key);
        deleted.expect("deleted");
    }

    /// The object; null if there is none.
    fn get(&self, kind: &Kind, name: &str) -> Value {
        let key = self.key(kind, name);
        let found = self.api.get(kind, &key);
        found.map_or(Value::Null, |object| object.as_ref().clone())
    }

    fn claimant(&self) -> Value {
        self.get(&agents(), AGENT)["metadata"]["labels"][AGENT_MACHINE_REF].clone()
    }

    fn waits_for(&self, name: &str, reason: &str) {
        let deleting = json!([{"type": "Deleting", "status": "True", "reason": reason}]);
        self.status(&machines(), name, json!({"conditions": deleting}));
    }
}

async fn settle() {
    tokio::time::sleep(SETTLED).await;
}

fn user_data() -> Value {
    json!({"dataSecretName": "user-data"})
}

/// `ensureAgentLabeled`: any value but its own is replaced.
#[tokio::test(start_paused = true)]
async fn a_label_of_another_machine_is_overwritten() {
    let scene = Scene::new().await;
    scene.machine("m", user_data());
    scene.agent();
    settle().await;
    assert_eq!(scene.claimant(), "m");
    let other = json!({"metadata": {"labels": {AGENT_MACHINE_REF: "other"}}});
    scene.merge(&agents(), AGENT, other);
    settle().await;
    assert_eq!(scene.claimant(), "m");
}

/// `mapAgentToAgentMachine`: of two AgentMachines with the same Agent, only the first one hears of it. So they do not
/// overwrite each other's label for ever.
#[tokio::test(start_paused = true)]
async fn an_agent_wakes_one_of_its_machines() {
    let scene = Scene::new().await;
    for name in ["a", "b"] {
        scene.machine(name, user_data());
        let reference = json!({"name": AGENT, "namespace": scene.cluster.agent_namespace});
        scene.status(&agent_machines(), name, json!({"agentRef": reference}));
    }
    scene.agent();
    let namespace = &scene.cluster.control_plane_namespace;
    let claim = json!({"metadata": {"annotations": {AGENT_MACHINE_REF_NAMESPACE: namespace}}});
    scene.merge(&agents(), AGENT, claim);
    settle().await;
    let version =
        |scene: &Scene| scene.get(&agents(), AGENT)["metadata"]["resourceVersion"].clone();
    let before = version(&scene);
    settle().await;
    assert_eq!(version(&scene), before);
}

/// `processBootstrapDataSecret`: without a Secret, the search goes on, and the bootstrap data follow later.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_bootstrap_secret_gets_an_agent() {
    let scene = Scene::new().await;
    scene.machine("m", json!({}));
    settle().await;
    let waiting = scene.get(&agent_machines(), "m");
    assert_eq!(
        waiting["status"]["conditions"][1]["type"],
        "AgentRequirementsMet"
    );
    scene.agent();
    settle().await;
    assert_eq!(scene.claimant(), "m");
    let spec = scene.get(&agents(), AGENT)["spec"].clone();
    assert_eq!(spec["clusterDeploymentName"]["name"], "hc");
    assert_eq!(spec["ignitionEndpointTokenReference"], Value::Null);

    scene.merge(
        &machines(),
        "m",
        json!({"spec": {"bootstrap": user_data()}}),
    );
    settle().await;
    let spec = scene.get(&agents(), AGENT)["spec"].clone();
    assert_eq!(spec["machineConfigPool"], "ignition");
    assert_eq!(
        spec["ignitionEndpointTokenReference"]["name"],
        "agent-user-data"
    );
}

/// `handleDeletionHook` knows only one reason of the condition `Deleting`. A finalizer that is left after the hook stays.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_outlives_the_hook_stays() {
    let scene = Scene::new().await;
    scene.machine("m", user_data());
    settle().await;
    scene.waits_for("m", "WaitingForInfrastructureDeletion");
    scene.delete(&machines(), "m");
    scene.merge(
        &machines(),
        "m",
        json!({"metadata": {"annotations": {HOOK: null}}}),
    );
    scene.delete(&agent_machines(), "m");
    settle().await;
    let left = scene.get(&agent_machines(), "m");
    assert_eq!(left["metadata"]["finalizers"], json!([FINALIZER]));

    // The Machine's end releases it.
    scene.merge(&machines(), "m", json!({"metadata": {"finalizers": null}}));
    settle().await;
    assert_eq!(scene.get(&agent_machines(), "m"), Value::Null);
}

/// The Machine's state does not matter: a paused AgentMachine that is deleted goes at once, and its Agent stays bound.
#[tokio::test(start_paused = true)]
async fn a_paused_agent_machine_is_released_without_unbinding() {
    for waits in [false, true] {
        let scene = Scene::new().await;
        scene.machine("m", user_data());
        scene.agent();
        settle().await;
        scene.merge(
            &agent_machines(),
            "m",
            json!({"metadata": {"annotations": {PAUSED: "true"}}}),
        );
        if waits {
            scene.delete(&machines(), "m");
        }
        settle().await;
        let bound = scene.get(&agents(), AGENT);
        scene.delete(&agent_machines(), "m");
        if waits {
            scene.waits_for("m", "WaitingForPreTerminateHook");
        }
        settle().await;
        assert_eq!(scene.get(&agent_machines(), "m"), Value::Null, "{waits}");
        let machine = scene.get(&machines(), "m");
        assert_eq!(
            machine["metadata"]["annotations"][HOOK],
            Value::Null,
            "{waits}"
        );
        assert_eq!(scene.get(&agents(), AGENT), bound, "{waits}");
        assert_eq!(scene.claimant(), "m");
    }
}

/// A paused AgentMachine gets hook and finalizer, but no Agent. Every value other than `true` pauses nothing.
#[tokio::test(start_paused = true)]
async fn only_the_value_true_pauses() {
    for (value, claimed) in [("true", false), ("yes", true), ("", true)] {
        let scene = Scene::new().await;
        scene.machine("m", user_data());
        let pause = json!({"metadata": {"annotations": {PAUSED: value}}});
        scene.merge(&agent_machines(), "m", pause);
        scene.agent();
        settle().await;
        let agent_machine = scene.get(&agent_machines(), "m");
        assert_eq!(agent_machine["metadata"]["finalizers"], json!([FINALIZER]));
        let backup = &agent_machine["metadata"]["labels"][BACKUP_LABEL];
        assert_eq!(*backup == "true", claimed, "{value:?}");
        let machine = scene.get(&machines(), "m");
        assert_eq!(machine["metadata"]["annotations"][HOOK], "");
        assert_eq!(scene.claimant() == "m", claimed, "{value:?}");
    }
}
