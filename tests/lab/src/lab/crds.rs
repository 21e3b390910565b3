//! Which CRDs a lab serves, and when they are served.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Error,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    apply::{apply, documents},
    options::{LabOptions, MachineVersions},
};
use crate::{
    parts::process::Process,
    patience::HANG,
    tools::{repository, shared},
};

/// Prefix of files with the CRD that HyperShift installs instead of the upstream file of the same name.
const BUNDLED: &str = "hypershift-bundled_";
const PROVIDER_GROUP: &str = "capi-provider.agent-install.openshift.io";
const CLUSTER_API_GROUP: &str = "cluster.x-k8s.io";
/// CRDs that are sent to the API server at the same time.
const AT_A_TIME: usize = 8;

/// Directory of the real foreign CRDs, if it exists: `$AGENT_FORGE_SHARED/upstream-crds`, else the directory beside the
/// repository.
pub fn upstream_directory() -> Option<PathBuf> {
    shared("upstream-crds")
}

/// Directory of the lab's own minimal definitions.
pub fn minimal_directory() -> PathBuf {
    repository().join("tests/lab/crds")
}

/// The project's own CRDs as they are shipped (`config/crd`).
///
/// # Errors
/// They are missing or not YAML.
pub fn own() -> Result<Vec<Value>> {
    let directory = repository().join("config/crd");
    let found = read(&directory)?;
    ensure!(
        !found.is_empty(),
        "{} holds no CRD: run `cargo crdgen`",
        directory.display()
    );
    Ok(found.into_values().collect())
}

/// The foreign CRDs that `options` ask for.
///
/// # Errors
/// They are missing, not YAML, or do not have a requested version.
pub fn foreign(options: &LabOptions) -> Result<Vec<Value>> {
    let real = upstream_directory().filter(|_| !options.minimal_crds);
    let directory = real.unwrap_or_else(minimal_directory);
    let mut found = read(&directory)?;
    ensure!(!found.is_empty(), "{} holds no CRD", directory.display());
    if options.generation.bundled_crd() {
        for (name, bundled) in read(&directory.join("variants"))? {
            let name = name.strip_prefix(BUNDLED).unwrap_or(&name).to_owned();
            if group(&bundled) == PROVIDER_GROUP {
                ensure!(
                    found.insert(name.clone(), bundled).is_some(),
                    "a variant of {name}, which does not exist"
                );
            }
        }
    }
    for definition in found
        .values_mut()
        .filter(|definition| group(definition) == CLUSTER_API_GROUP)
    {
        serve(definition, options.served_machine_versions())?;
    }
    Ok(found.into_values().collect())
}

/// The CRDs of BYOH that its hosts and machines need: the real ones, or the lab's own minimal ones.
///
/// # Errors
/// They are missing or not YAML.
pub fn byoh() -> Result<Vec<Value>> {
    let real = upstream_directory().map(|directory| directory.join("byoh"));
    let directory = real.filter(|directory| directory.is_dir());
    let directory = directory.unwrap_or_else(|| minimal_directory().join("byoh"));
    let mut found = read(&directory)?;
    found.retain(|name, _| name.contains("_byomachines") || name.contains("_byohosts"));
    ensure!(found.len() == 2, "{} lacks CRDs", directory.display());
    Ok(found.into_values().collect())
}

/// CRDs of all YAML files directly in `directory`, by file name. Empty if the directory does not exist.
fn read(directory: &Path) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    if !directory.is_dir() {
        return Ok(found);
    }
    for item in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = item
            .with_context(|| format!("list {}", directory.display()))?
            .path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for (index, document) in documents(&text)
            .with_context(|| path.display().to_string())?
            .into_iter()
            .enumerate()
        {
            if document["kind"] == "CustomResourceDefinition" {
                found.insert(
                    if index == 0 {
                        name.clone()
                    } else {
                        format!("{name}#{index}")
                    },
                    document,
                );
            }
        }
    }
    Ok(found)
}

fn group(definition: &Value) -> &str {
    definition["spec"]["group"].as_str().unwrap_or_default()
}

/// Makes `definition` serve only `versions`, if it has more.
fn serve(definition: &mut Value, versions: MachineVersions) -> Result<()> {
    let only = match versions {
        MachineVersions::V1Beta1 => "v1beta1",
        MachineVersions::Both => return Ok(()),
    };
    let name = definition["metadata"]["name"].to_string();
    let Some(known) = definition["spec"]["versions"].as_array_mut() else {
        bail!("CRD {name} has no versions")
    };
    known.retain(|version| version["name"] == only);
    let [version] = known.as_mut_slice() else {
        bail!("CRD {name} has no version {only}")
    };
    version["served"] = true.into();
    version["storage"] = true.into();
    Ok(())
}

/// Sends `definitions` to the API server and waits until it serves each of them.
///
/// # Errors
/// A definition is refused, or not established in time. The error names it.
pub async fn establish(client: &Client, definitions: &[Value]) -> Result<()> {
    stream::iter(definitions)
        .map(|definition| async move {
            let applied = apply(client, definition).await?;
            let name = applied.metadata.name.context("a CRD without a name")?;
            let api: Api<CustomResourceDefinition> = Api::all(client.clone());
            let established = await_condition(api, &name, is_crd_established());
            timeout(HANG, established)
                .await
                .with_context(|| {
                    format!("CRD {name} was not established within {} s", HANG.as_secs())
                })?
                .with_context(|| format!("wait for CRD {name}"))?;
            anyhow::Ok(())
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect()
        .await
}

/// Waits until `server` lists every served version of `definitions`. An API server that starts with CRDs in its store
/// reports ready before that. A client that asks once for all kinds would miss some.
///
/// # Errors
/// A version is not listed in time. The error names it.
pub async fn served(client: &Client, definitions: &[Value], server: &Process) -> Result<()> {
    let wanted = served_kinds(definitions);
    let versions: BTreeSet<&str> = wanted.iter().map(|(version, _)| version.as_str()).collect();
    server
        .until_ready(HANG, || async {
            let mut listed = BTreeSet::new();
            // The resources of a version may be served before the version is in the list of all groups.
            let groups = client.list_api_groups().await.context("list the groups")?;
            let groups = groups.groups.into_iter().flat_map(|group| group.versions);
            let known: BTreeSet<String> = groups.map(|version| version.group_version).collect();
            for version in versions.iter().filter(|version| known.contains(**version)) {
                match client.list_api_group_resources(version).await {
                    Ok(list) => listed.extend(
                        list.resources
                            .into_iter()
                            .map(|resource| ((*version).to_owned(), resource.name)),
                    ),
                    Err(Error::Api(status)) if status.is_not_found() => {}
                    Err(error) => return Err(error).with_context(|| format!("list {version}")),
                }
            }
            let missing: Vec<String> = wanted
                .difference(&listed)
                .map(|(version, plural)| format!("{plural} of {version}"))
                .collect();
            ensure!(
                missing.is_empty(),
                "it does not serve {} yet",
                missing.join(", ")
            );
            Ok(())
        })
        .await
}

/// What `definitions` serve, as (`apiVersion`, plural).
fn served_kinds(definitions: &[Value]) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    definitions
        .iter()
        .flat_map(|definition| {
            definition["spec"]["versions"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|version| version["served"] == true)
                .map(move |version| {
                    (
                        format!("{}/{}", group(definition), text(&version["name"])),
                        text(&definition["spec"]["names"]["plural"]),
                    )
                })
        })
        .collect()
}
