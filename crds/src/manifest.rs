//! The CustomResourceDefinitions as they are installed, and the generated files.

mod reference;
pub mod structural;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::names::NEXT_VERSION;

/// File name of the pool's definition in `config/crd`.
pub const POOL_FILE: &str = "agent-forge.containeroo.ch_vsphereagentpools.yaml";
/// File name of the agent's definition in `config/crd`.
pub const AGENT_FILE: &str = "agent-forge.containeroo.ch_vsphereagents.yaml";
/// File names of the definitions for BYOH, in the overlay that installs them.
pub const INSTALLER_FILES: [&str; 2] = [
    "agent-forge.containeroo.ch_agentforgeinstallerconfigtemplates.yaml",
    "agent-forge.containeroo.ch_agentforgeinstallerconfigs.yaml",
];
/// Path of the field reference, from the workspace root.
pub const REFERENCE_PATH: &str = "docs/reference/crds.md";

const HEADER: &str = "# Written by `cargo crdgen` from crds/src; edit the types, not this file.\n";

/// Definition of `VsphereAgentPool`.
pub fn pool() -> CustomResourceDefinition {
    in_both_versions(refine(crate::VsphereAgentPool::crd()))
}

/// Definition of `VsphereAgent`.
pub fn agent() -> CustomResourceDefinition {
    in_both_versions(refine(crate::VsphereAgent::crd()))
}

/// Definitions for BYOH: `AgentForgeInstallerConfigTemplate` and `AgentForgeInstallerConfig`.
pub fn installer() -> [CustomResourceDefinition; 2] {
    [
        refine(crate::AgentForgeInstallerConfigTemplate::crd()),
        refine(crate::AgentForgeInstallerConfig::crd()),
    ]
}

/// Files of `config/crd`, and their copies for Helm (`config/chart-crds`) and OLM (`config/olm`), as (path from the workspace
/// root, content).
///
/// # Errors
/// A definition cannot be written as YAML, which would be a defect of the types.
pub fn crd_files() -> Result<Vec<(String, String)>, serde_saphyr::SerializeError> {
    let mut files = vec![(
        "config/crd/kustomization.yaml".to_owned(),
        format!(
            "{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\n\
             kind: Kustomization\n\
             resources:\n\
             - {POOL_FILE}\n\
             - {AGENT_FILE}\n"
        ),
    )];
    for (file, crd) in [(POOL_FILE, pool()), (AGENT_FILE, agent())] {
        let yaml = serde_saphyr::to_string(&crd)?;
        let whole = format!("{HEADER}---\n{yaml}");
        files.push((format!("config/crd/{file}"), whole.clone()));
        // Helm reads nothing outside a chart.
        files.push((format!("config/chart-crds/files/{file}"), whole));
        // OLM reads the first document of a file, and the comment before `---` would be that.
        files.push((format!("config/olm/manifests/{file}"), yaml));
    }
    // Only who switches the installer on has its kinds. OLM has no such switch.
    for (file, crd) in INSTALLER_FILES.into_iter().zip(installer()) {
        let yaml = serde_saphyr::to_string(&crd)?;
        let whole = format!("{HEADER}---\n{yaml}");
        for folder in ["overlays/byoh-installer", "chart-crds/files/byoh-installer"] {
            files.push((format!("config/{folder}/{file}"), whole.clone()));
        }
    }
    Ok(files)
}

/// The page with every field of all kinds, as (path from the workspace root, content).
pub fn reference_file() -> (String, String) {
    (
        REFERENCE_PATH.to_owned(),
        reference::page(&[pool(), agent()], &installer()),
    )
}

fn refine(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            // The title only repeats the kind.
            schema.title = None;
            unwrap_lines(schema);
        }
    }
    crd
}

/// The same definition, which serves [`NEXT_VERSION`] too.
fn in_both_versions(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    // Without a converter, the API server changes `apiVersion` only. So the schemas have to be equal.
    let next = crd.spec.versions.clone();
    crd.spec.versions.extend(
        next.into_iter()
            .map(|version| CustomResourceDefinitionVersion {
                name: NEXT_VERSION.to_owned(),
                storage: false,
                ..version
            }),
    );
    crd
}

/// Joins the lines of each description. Their breaks come from the line width of the source.
fn unwrap_lines(schema: &mut JSONSchemaProps) {
    if let Some(text) = &mut schema.description {
        *text = text
            .split("\n\n")
            .map(|paragraph| paragraph.replace('\n', " "))
            .collect::<Vec<_>>()
            .join("\n");
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|map| map.values_mut())
    {
        unwrap_lines(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => unwrap_lines(items),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(unwrap_lines),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        unwrap_lines(values);
    }
}
