//! Edits that are made from the CRD's schema: a real API server admits those that count as valid, and refuses the others.
//! The operator gets over each valid one.

use agent_forge_crds::VsphereAgentPool;
use agent_forge_lab::{Lab, LabOptions, install_tls_provider};
use agent_forge_sim::{edits, matrix, sample, workloads};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_admits_the_valid_edits_and_no_others() {
    install_tls_provider();
    let lab = Lab::start(LabOptions::default()).await.expect("a lab");
    let pools: Api<VsphereAgentPool> = Api::namespaced(lab.admin(), "default");
    let pool = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgentPool", "metadata": {"name": "w"},
        "spec": {
            "hostedClusterRef": {"name": "demo"}, "nodePoolRef": {"name": "w"}, "infraEnvRef": {"name": "demo"},
            "controlPlaneNamespace": "demo-demo",
            "vsphere": {"credentialsSecretRef": {"name": "vsphere"}, "datastoreCluster": "store", "isoDatastore": "iso",
                "resourcePool": "cluster/Resources", "network": "VM Network"},
            "template": {}, "agent": {"labels": {"customer": "example"}},
        },
    });
    let pool = serde_json::from_value(pool).expect("a pool");
    let made = pools.create(&PostParams::default(), &pool).await;
    made.expect("the API server admits the pool");
    let rehearsal = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let edits = edits::all().expect("the schema is known");
    let mut counts = [0, 0];
    for edit in &edits {
        let patch = Patch::Merge(edit.patch());
        match pools.patch("w", &rehearsal, &patch).await {
            Ok(_) => assert!(edit.is_valid, "admitted: {edit:?}"),
            Err(kube::Error::Api(status)) if status.code == 422 => {
                assert!(!edit.is_valid, "refused: {edit:?}: {status}");
            }
            Err(e) => panic!("{edit:?}: {e}"),
        }
        counts[usize::from(edit.is_valid)] += 1;
    }
    let [refused, admitted] = counts;
    eprintln!("{admitted} edits admitted, {refused} refused");
    assert!(admitted > 100 && refused > 50);
}

/// Every so many-th world is played with each change; `cargo lab soak` plays them all.
const EVERY: usize = 8;

#[test]
fn the_operator_gets_over_each_valid_edit() {
    let edits = edits::all().expect("the schema is known");
    let count = 2 * edits.iter().filter(|edit| edit.is_valid).count();
    let seed = sample::seed();
    let first = seed.bytes().map(usize::from).sum::<usize>() % EVERY;
    eprintln!(
        "{}={seed}: worlds {}, {}, ... of {count}",
        sample::VARIABLE,
        first + 1,
        first + 1 + EVERY
    );
    let workload = workloads::named("spec_edited").expect("a workload");
    let mut failed = Vec::new();
    for world in (first + 1..=count).step_by(EVERY) {
        let verdict = matrix::reference(workload, world as u64).verdict();
        if !verdict.failures.is_empty() {
            failed.push(verdict);
        }
    }
    let told: Vec<String> = failed.iter().map(matrix::summary).collect();
    let first = failed.first().map(matrix::report).unwrap_or_default();
    assert!(failed.is_empty(), "{}\n{first}", told.join("\n"));
}
