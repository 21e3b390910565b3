//! `agent-forge doctor` finds each planted misconfiguration, and nothing in a healthy lab.

use agent_forge_lab::lab::{
    apply::apply,
    manifest::{OPERATOR_NAMESPACE, credentials},
};
use anyhow::{Context as _, Result, ensure};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cli::{Shown, command},
    world::{Setup, World},
};

/// What is wrong: the pool's spec, keys of its Secret (`null` removes one), or a flag.
enum Plant {
    Pool(Value),
    Secret(Value),
    Flag(&'static str),
    Privilege(&'static str),
}
use Plant::{Flag, Pool, Privilege, Secret};

/// What is planted, the check that must find it, its color, and a word of its sentence.
fn plants() -> Vec<(Plant, &'static str, &'static str, &'static str)> {
    let vsphere = |field: &str, value: &str| Pool(json!({"vsphere": {field: value}}));
    let secret = |name: &str| Pool(json!({"vsphere": {"credentialsSecretRef": {"name": name}}}));
    let zeros = "0".repeat(64);
    vec![
        (
            vsphere("datacenter", "nowhere"),
            "objects",
            "red",
            "datacenter",
        ),
        (
            vsphere("resourcePool", "nowhere"),
            "objects",
            "red",
            "resourcePool",
        ),
        (
            vsphere("datastoreCluster", "nowhere"),
            "objects",
            "red",
            "datastoreCluster",
        ),
        (
            vsphere("isoDatastore", "nowhere"),
            "objects",
            "red",
            "isoDatastore",
        ),
        (vsphere("network", "nowhere"), "objects", "red", "network"),
        (
            vsphere("scsiType", "ide"),
            "spec",
            "red",
            "spec.vsphere.scsiType",
        ),
        (
            vsphere("networkAdapterType", "token-ring"),
            "spec",
            "red",
            "networkAdapterType",
        ),
        (
            Pool(json!({"agent": {"labels": {"agentMachineRef": "x"}}})),
            "spec",
            "red",
            "agentMachineRef",
        ),
        (
            Pool(json!({"infraEnvRef": {"name": "nowhere"}})),
            "infraenv",
            "red",
            "InfraEnvNotFound",
        ),
        (
            Pool(json!({"infraEnvRef": {"name": "early"}})),
            "infraenv",
            "red",
            "LateBindingUnavailable",
        ),
        (
            Pool(json!({"nodePoolRef": {"name": "healthy"}})),
            "neighbours",
            "red",
            "PoolConflict",
        ),
        (
            Pool(json!({"template": {"diskGiB": 65536}})),
            "space",
            "red",
            "NoDiskSpace",
        ),
        (
            Pool(json!({"iso": {"caBundleRef": {"name": "nowhere"}}})),
            "image",
            "red",
            "ISOCABundleMissing",
        ),
        (
            Flag("--min-free-datastore-gib=1000000"),
            "space",
            "red",
            "NoDiskSpace",
        ),
        (secret("nowhere"), "secret", "red", "SecretNotFound"),
        (
            Pool(
                json!({"vsphere": {"credentialsSecretRef": {"name": "closed", "namespace": OPERATOR_NAMESPACE}}}),
            ),
            "secret",
            "red",
            "SecretNamespaceRefused",
        ),
        (
            Secret(json!({"password": null})),
            "secret",
            "red",
            "\"password\"",
        ),
        (
            Secret(json!({"thumbprint": "abc"})),
            "secret",
            "red",
            "InvalidCredentials",
        ),
        (
            Secret(json!({"server": "ftp://vc"})),
            "secret",
            "red",
            "InvalidCredentials",
        ),
        (
            Secret(json!({"server": "http://vc.example"})),
            "secret",
            "red",
            "InvalidCredentials",
        ),
        (
            Secret(json!({"server": "https://vcenter.invalid"})),
            "dns",
            "red",
            "VCenterUnreachable",
        ),
        (
            Secret(json!({"server": "https://127.0.0.1:1"})),
            "tcp",
            "red",
            "VCenterUnreachable",
        ),
        (
            Secret(json!({"thumbprint": zeros})),
            "login",
            "red",
            "UntrustedCertificate",
        ),
        (
            Secret(json!({"password": "wrong"})),
            "login",
            "red",
            "InvalidCredentials",
        ),
        (
            Secret(json!({"caBundle": null, "insecure": "true"})),
            "certificate",
            "yellow",
            "not checked",
        ),
        (
            Flag("--vsphere-allow-local-server=false"),
            "secret",
            "red",
            "VCenterNotAllowed",
        ),
        (
            Flag("--allowed-vcenters=other.example"),
            "secret",
            "red",
            "VCenterNotAllowed",
        ),
        (
            Flag("--iso-allow-local-source=false"),
            "image",
            "red",
            "ISOAddressNotAllowed",
        ),
        (
            Privilege("VirtualMachine.Inventory.Create"),
            "privileges",
            "red",
            "on VM folder",
        ),
        (
            Privilege("Resource.AssignVMToPool"),
            "privileges",
            "red",
            "on resource pool",
        ),
        (
            Privilege("Datastore.AllocateSpace"),
            "privileges",
            "red",
            "on datastores of the VMs",
        ),
        (
            Privilege("Datastore.FileManagement"),
            "privileges",
            "red",
            "on ISO datastore",
        ),
        (
            Privilege("Network.Assign"),
            "privileges",
            "red",
            "on network",
        ),
    ]
}

/// The checks that are not green, as name, color and sentence.
fn findings(shown: &Shown) -> Result<Vec<[String; 3]>> {
    let report = shown.json()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = report["checks"].as_array().context("checks")?;
    let bad = checks.iter().filter(|c| c["color"] != "green");
    Ok(bad
        .map(|c| [text(&c["check"]), text(&c["color"]), text(&c["says"])])
        .collect())
}

/// Makes the pool of a plant, and returns what the doctor says.
async fn examined(world: &World, at: usize, plant: &Plant) -> Result<Shown> {
    let name = format!("sick-{at}");
    let mut data = credentials(&world.process);
    if let Secret(change) = plant {
        for (key, value) in change.as_object().into_iter().flatten() {
            if value.is_null() {
                data.as_object_mut().context("keys")?.remove(key);
            } else {
                data[key] = value.clone();
            }
        }
    }
    world
        .set_secret_data(world.namespace(), &name, data)
        .await?;
    let mut patch = json!({"vsphere": {"credentialsSecretRef": {"name": name}}});
    if let Pool(change) = plant {
        patch = change.clone();
    }
    world.create_pool(&name, &patch).await?;
    node_pool(world, &name, json!({})).await?;
    if let Privilege(id) = plant {
        world.vcenter.deny(&[(id, "")]).await?;
    }
    let mut args = vec![
        "doctor",
        name.as_str(),
        "-n",
        world.namespace(),
        "-o",
        "json",
    ];
    if let Flag(flag) = plant {
        args.insert(0, flag);
    }
    let shown = command(world, &args).await;
    world.vcenter.deny(&[]).await?;
    world.pools().delete(&name, &Default::default()).await?;
    shown
}

/// A NodePool for the pool of the same name.
async fn node_pool(world: &World, name: &str, management: Value) -> Result<()> {
    let mut spec = json!({
        "clusterName": "demo", "replicas": 0, "release": {"image": "registry.example.com/release:4.20"},
        "platform": {"type": "Agent", "agent": {}}, "management": {"upgradeType": "Replace"},
    });
    for (key, value) in management.as_object().into_iter().flatten() {
        spec["management"][key] = value.clone();
    }
    let object = json!({
        "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool",
        "metadata": {"name": name, "namespace": world.namespace()}, "spec": spec,
    });
    apply(&world.client, &object).await?;
    Ok(())
}

/// An InfraEnv that no played service fills.
async fn infra_env(world: &World, name: &str, spec: Value) -> Result<()> {
    let object = json!({
        "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "InfraEnv",
        "metadata": {"name": name, "namespace": world.namespace()}, "spec": spec,
    });
    apply(&world.client, &object).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_planted_misconfiguration_is_found_and_a_healthy_lab_has_none() -> Result<()> {
    let mut world = World::without_pool(Setup::own_lab()).await?;
    world.stop_operator().await?;
    world.create_pool("healthy", &json!({})).await?;
    world
        .set_secret_data(
            world.operator_namespace(),
            "closed",
            credentials(&world.process),
        )
        .await?;
    let pull_secret = json!({"pullSecretRef": {"name": "pull"}});
    let mut early = pull_secret.clone();
    early["clusterRef"] = json!({"name": "demo", "namespace": world.namespace()});
    infra_env(&world, "early", early).await?;
    let alone = findings(&command(&world, &["doctor", "-o", "json"]).await?)?;
    ensure!(
        matches!(&alone[..], [one] if one[0] == "timelimits" && one[1] == "yellow"),
        "a pool without a NodePool: {alone:?}"
    );
    node_pool(&world, "healthy", json!({"autoRepair": true})).await?;
    let hasty = findings(&command(&world, &["doctor", "-o", "json"]).await?)?;
    ensure!(
        matches!(&hasty[..], [one] if one[0] == "timelimits" && one[2].contains("MachineHealthCheck")),
        "a health check of 20 minutes: {hasty:?}"
    );
    node_pool(&world, "healthy", json!({"autoRepair": false})).await?;
    let healthy = command(&world, &["doctor", "-o", "json"]).await?;
    let server = healthy.errors.contains("API server: https://");
    ensure!(server, "{}", healthy.errors);
    ensure!(
        findings(&healthy)? == Vec::<[String; 3]>::new() && healthy.code == 0,
        "{}",
        healthy.text
    );
    let plants = plants();
    ensure!(plants.len() >= 25, "{} plants", plants.len());
    let mut missed = Vec::new();
    for (at, (plant, check, color, word)) in plants.iter().enumerate() {
        let shown = examined(&world, at, plant).await?;
        let found = findings(&shown)?;
        let hit = |f: &[String; 3]| f[0] == *check && f[1] == *color && f[2].contains(word);
        // Only what follows from it is told beside it.
        if shown.code != 1 || found.len() > 2 || !found.iter().any(hit) {
            missed.push(format!("{check} {word}: {found:#?}{}", shown.errors));
        }
    }
    ensure!(missed.is_empty(), "{}", missed.join("\n"));
    let typo = command(&world, &["doctor", "-n", "nowhere"]).await?;
    ensure!(
        typo.code == 2 && typo.errors.contains("no namespace nowhere"),
        "{}{}",
        typo.text,
        typo.errors
    );
    let empty = command(
        &world,
        &["doctor", "-n", world.operator_namespace(), "-o", "json"],
    )
    .await?;
    let empty = findings(&empty)?;
    ensure!(
        matches!(&empty[..], [one] if one[0] == "pools" && one[1] == "yellow"),
        "a namespace without a pool: {empty:?}"
    );
    acting_predecessor(&world).await?;
    let unknown = command(&world, &["doctor", "none"]).await?;
    ensure!(
        unknown.code == 2 && unknown.errors.contains("no VsphereAgentPool none"),
        "{}",
        unknown.errors
    );
    Ok(())
}

async fn acting_predecessor(world: &World) -> Result<()> {
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::coordination::v1::Lease>(&());
    let leases: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), world.operator_namespace(), &resource);
    let now = jiff::Timestamp::now();
    let lease = serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "agent-forge-operator.containeroo.ch", "namespace": world.operator_namespace()},
        "spec": {"holderIdentity": "old_1", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}")},
    }))?;
    leases.create(&PostParams::default(), &lease).await?;
    let shown = command(world, &["doctor", "healthy", "-o", "json"]).await?;
    let found = findings(&shown)?;
    ensure!(
        matches!(&found[..], [one] if one[0] == "predecessor" && one[1] == "red"),
        "{found:?}"
    );
    Ok(())
}
