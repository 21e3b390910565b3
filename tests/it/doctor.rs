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

/// What is planted, and a word of the sentence about it.
type Planted = (Plant, &'static str);

/// Each check, with what it must find. All is red except the certificate that is not checked.
fn plants() -> Vec<(&'static str, Vec<Planted>)> {
    let vsphere = |field: &str, value: &str| Pool(json!({"vsphere": {field: value}}));
    let missing = |field| (vsphere(field, "nowhere"), field);
    let credentials = |secret| Pool(json!({"vsphere": {"credentialsSecretRef": secret}}));
    let closed = json!({"name": "closed", "namespace": OPERATOR_NAMESPACE});
    let infra_env = |name: &str| Pool(json!({"infraEnvRef": {"name": name}}));
    let labels = json!({"agent": {"labels": {"agentMachineRef": "x"}}});
    let contested = json!({"nodePoolRef": {"name": "healthy"}});
    let huge = json!({"template": {"diskGiB": 65536}});
    let bundle = json!({"iso": {"caBundleRef": {"name": "nowhere"}}});
    let key = |name: &str, value: &str| Secret(json!({name: value}));
    let server = |url: &str| key("server", url);
    let (zeros, wrong) = ("0".repeat(64), "InvalidCredentials");
    let unchecked = json!({"caBundle": null, "insecure": "true"});
    let places = [
        "datacenter",
        "resourcePool",
        "datastoreCluster",
        "isoDatastore",
        "network",
    ];
    vec![
        ("objects", places.into_iter().map(missing).collect()),
        (
            "spec",
            vec![
                (vsphere("scsiType", "ide"), "spec.vsphere.scsiType"),
                missing("networkAdapterType"),
                (Pool(labels), "agentMachineRef"),
            ],
        ),
        (
            "infraenv",
            vec![
                (infra_env("nowhere"), "InfraEnvNotFound"),
                (infra_env("early"), "LateBindingUnavailable"),
            ],
        ),
        ("neighbours", vec![(Pool(contested), "PoolConflict")]),
        (
            "space",
            vec![
                (Pool(huge), "NoDiskSpace"),
                (Flag("--min-free-datastore-gib=1000000"), "NoDiskSpace"),
            ],
        ),
        (
            "image",
            vec![
                (Pool(bundle), "ISOCABundleMissing"),
                (
                    Flag("--iso-allow-local-source=false"),
                    "ISOAddressNotAllowed",
                ),
            ],
        ),
        (
            "secret",
            vec![
                (credentials(json!({"name": "nowhere"})), "SecretNotFound"),
                (credentials(closed), "SecretNamespaceRefused"),
                (Secret(json!({"password": null})), "\"password\""),
                (key("thumbprint", "abc"), wrong),
                (server("ftp://vc"), wrong),
                (server("http://vc.example"), wrong),
                (
                    Flag("--vsphere-allow-local-server=false"),
                    "VCenterNotAllowed",
                ),
                (
                    Flag("--allowed-vcenters=other.example"),
                    "VCenterNotAllowed",
                ),
            ],
        ),
        (
            "dns",
            vec![(server("https://vcenter.invalid"), "VCenterUnreachable")],
        ),
        (
            "tcp",
            vec![(server("https://127.0.0.1:1"), "VCenterUnreachable")],
        ),
        (
            "login",
            vec![
                (key("thumbprint", &zeros), "UntrustedCertificate"),
                (key("password", "wrong"), wrong),
            ],
        ),
        ("certificate", vec![(Secret(unchecked), "not checked")]),
        (
            "privileges",
            vec![
                (Privilege("VirtualMachine.Inventory.Create"), "on VM folder"),
                (Privilege("Resource.AssignVMToPool"), "on resource pool"),
                (
                    Privilege("Datastore.AllocateSpace"),
                    "on datastores of the VMs",
                ),
                (Privilege("Datastore.FileManagement"), "on ISO datastore"),
                (Privilege("Network.Assign"), "on network"),
            ],
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
    // A pool without a NodePool.
    finds_only(&world, &[], ["timelimits", "yellow", ""]).await?;
    node_pool(&world, "healthy", json!({"autoRepair": true})).await?;
    // A health check of 20 minutes.
    finds_only(&world, &[], ["timelimits", "yellow", "MachineHealthCheck"]).await?;
    node_pool(&world, "healthy", json!({"autoRepair": false})).await?;
    let healthy = command(&world, &["doctor", "-o", "json"]).await?;
    let server = healthy.errors.contains("API server: https://");
    ensure!(server, "{}", healthy.errors);
    ensure!(
        findings(&healthy)? == Vec::<[String; 3]>::new() && healthy.code == 0,
        "{}",
        healthy.text
    );
    let (mut planted, mut missed) = (0, Vec::new());
    for (check, plants) in plants() {
        let color = if check == "certificate" {
            "yellow"
        } else {
            "red"
        };
        for (plant, word) in plants {
            planted += 1;
            let shown = examined(&world, planted, &plant).await?;
            let found = findings(&shown)?;
            let hit = |f: &[String; 3]| f[0] == check && f[1] == color && f[2].contains(word);
            // Only what follows from it is told beside it.
            if shown.code != 1 || found.len() > 2 || !found.iter().any(hit) {
                missed.push(format!("{check} {word}: {found:#?}{}", shown.errors));
            }
        }
    }
    ensure!(planted >= 25, "{planted} plants");
    ensure!(missed.is_empty(), "{}", missed.join("\n"));
    let typo = command(&world, &["doctor", "-n", "nowhere"]).await?;
    ensure!(
        typo.code == 2 && typo.errors.contains("no namespace nowhere"),
        "{}",
        typo.said()
    );
    // A namespace without a pool.
    let empty = ["-n", world.operator_namespace()];
    finds_only(&world, &empty, ["pools", "yellow", ""]).await?;
    acting_predecessor(&world).await?;
    let unknown = command(&world, &["doctor", "none"]).await?;
    ensure!(
        unknown.code == 2 && unknown.errors.contains("no VsphereAgentPool none"),
        "{}",
        unknown.errors
    );
    Ok(())
}

/// Checks that the doctor finds only this, in this color, with this word.
async fn finds_only(world: &World, args: &[&str], [check, color, word]: [&str; 3]) -> Result<()> {
    let args = [&["doctor", "-o", "json"], args].concat();
    let found = findings(&command(world, &args).await?)?;
    ensure!(
        matches!(&found[..], [one] if one[0] == check && one[1] == color && one[2].contains(word)),
        "{check}: {found:?}"
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
    finds_only(world, &["healthy"], ["predecessor", "red", ""]).await
}
