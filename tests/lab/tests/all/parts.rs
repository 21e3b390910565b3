//! Tests that the lab's parts do what the operator's tests need.

use std::process::Command;

use agent_forge_lab::{Lab, LabOptions, ProviderGeneration, apply_yaml, played::kinds, tools};
use anyhow::{Context as _, Result, ensure};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::json;

/// Runs the simulated vCenter's own tests, which check how strict it is.
#[test]
fn the_simulated_vcenters_own_tests_pass() -> Result<()> {
    let module = tools::repository().join("tests/lab/vcenter");
    for arguments in [["vet", "./..."], ["test", "./..."]] {
        let done = Command::new("go")
            .args(arguments)
            .current_dir(&module)
            .output()
            .context("run go: install Go (https://go.dev/dl)")?;
        ensure!(
            done.status.success(),
            "go {arguments:?}:\n{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}

/// A clone alone has only the lab's own CRDs. Where the real ones are available, all other tests use those.
#[tokio::test]
async fn a_lab_starts_with_its_own_definitions_of_foreign_kinds() -> Result<()> {
    // Only the legacy format has `severity`. The current CRD drops it.
    let condition = json!({"type": "Ready", "status": "False", "severity": "Info", "reason": "NoSuitableAgents", "message": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let object = json!({
        "apiVersion": "capi-provider.agent-install.openshift.io/v1beta1", "kind": "AgentMachine",
        "metadata": {"name": "a", "namespace": "default"}, "spec": {},
    });
    for (generation, severity_kept) in [
        (ProviderGeneration::Current, false),
        (ProviderGeneration::Legacy, true),
    ] {
        let lab = Lab::start(LabOptions {
            generation,
            minimal_crds: true,
            controller_manager: false,
            ..LabOptions::default()
        })
        .await?;
        apply_yaml(&lab.admin(), &object.to_string()).await?;
        let kind = kinds::agent_machine();
        let api: Api<DynamicObject> = Api::default_namespaced_with(lab.admin(), &kind);
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let patched = api
            .patch_status("a", &PatchParams::default(), &patch)
            .await?;
        let kept = patched.data["status"]["conditions"][0]["severity"] == "Info";
        assert_eq!(kept, severity_kept, "{generation:?}");
    }
    Ok(())
}
