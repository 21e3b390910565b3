//! Compares our recorded request bodies with `vim_rs`. Each parameter is read with the vendor's type, and the vendor's
//! call is made with it. The body of that call must equal ours.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, bail};
use miniserde::Deserialize;
use serde_json::Value;
use vim_rs::{core::Client, mo, types::structs};

use crate::{Findings, compare::compare, ear::Ear, golden};

/// Calls of the Automation API, for which `vim_rs` has no types.
const NOT_VIM: &[&str] = &["hello", "attach", "attach-multiple-tags-to-object"];

/// A recorded body.
struct Body(Value);

impl Body {
    /// A required parameter.
    fn the<T: Deserialize>(&self, name: &str) -> Result<T> {
        let value = self.0.get(name).with_context(|| format!("no {name}"))?;
        read(name, value)
    }

    /// An optional parameter.
    fn any<T: Deserialize>(&self, name: &str) -> Result<Option<T>> {
        self.0.get(name).map(|value| read(name, value)).transpose()
    }
}

pub fn read<T: Deserialize>(name: &str, value: &Value) -> Result<T> {
    miniserde::json::from_str(&value.to_string())
        .map_err(|_| anyhow::anyhow!("{name} is no {}", std::any::type_name::<T>()))
}

/// Makes a call of `method` with the parameters of `body`. The call itself fails, because there is no server.
async fn say(ear: &Arc<Ear>, method: &str, body: &Body) -> Result<()> {
    let handle: vim_rs::core::client::VimClientHandle = ear.clone();
    let said = match method {
        "Login" => mo::SessionManager::new(handle, "x")
            .login(
                &body.the::<String>("userName")?,
                &body.the::<String>("password")?,
                body.any::<String>("locale")?.as_deref(),
            )
            .await
            .map(drop),
        "Logout" => mo::SessionManager::new(handle, "x").logout().await,
        "FindByInventoryPath" => mo::SearchIndex::new(handle, "x")
            .find_by_inventory_path(&body.the::<String>("inventoryPath")?)
            .await
            .map(drop),
        "FindAllByUuid" => mo::SearchIndex::new(handle, "x")
            .find_all_by_uuid(
                body.any("datacenter")?.as_ref(),
                &body.the::<String>("uuid")?,
                body.the("vmSearch")?,
                body.any("instanceUuid")?,
            )
            .await
            .map(drop),
        "CreateFolder" => mo::Folder::new(handle, "x")
            .create_folder(&body.the::<String>("name")?)
            .await
            .map(drop),
        "CreateVM_Task" => mo::Folder::new(handle, "x")
            .create_vm_task(
                &body.the("config")?,
                &body.the("pool")?,
                body.any("host")?.as_ref(),
            )
            .await
            .map(drop),
        "ReconfigVM_Task" => mo::VirtualMachine::new(handle, "x")
            .reconfig_vm_task(&body.the("spec")?)
            .await
            .map(drop),
        "AnswerVM" => {
            mo::VirtualMachine::new(handle, "x")
                .answer_vm(
                    &body.the::<String>("questionId")?,
                    &body.the::<String>("answerChoice")?,
                )
                .await
        }
        "PowerOnVM_Task" => mo::VirtualMachine::new(handle, "x")
            .power_on_vm_task(body.any("host")?.as_ref())
            .await
            .map(drop),
        "PowerOffVM_Task" => mo::VirtualMachine::new(handle, "x")
            .power_off_vm_task()
            .await
            .map(drop),
        "Destroy_Task" => mo::VirtualMachine::new(handle, "x")
            .destroy_task()
            .await
            .map(drop),
        "RetrievePropertiesEx" => mo::PropertyCollector::new(handle, "x")
            .retrieve_properties_ex(
                &body.the::<Vec<structs::PropertyFilterSpec>>("specSet")?,
                &body.the("options")?,
            )
            .await
            .map(drop),
        "ContinueRetrievePropertiesEx" => mo::PropertyCollector::new(handle, "x")
            .continue_retrieve_properties_ex(&body.the::<String>("token")?)
            .await
            .map(drop),
        "CreatePropertyCollector" => mo::PropertyCollector::new(handle, "x")
            .create_property_collector()
            .await
            .map(drop),
        "CreateFilter" => mo::PropertyCollector::new(handle, "x")
            .create_filter(&body.the("spec")?, body.the("partialUpdates")?)
            .await
            .map(drop),
        "WaitForUpdatesEx" => mo::PropertyCollector::new(handle, "x")
            .wait_for_updates_ex(
                body.any::<String>("version")?.as_deref(),
                body.any("options")?.as_ref(),
            )
            .await
            .map(drop),
        "CreateListView" => mo::ViewManager::new(handle, "x")
            .create_list_view(
                body.any::<Vec<structs::ManagedObjectReference>>("obj")?
                    .as_deref(),
            )
            .await
            .map(drop),
        "CreateContainerView" => mo::ViewManager::new(handle, "x")
            .create_container_view(
                &body.the("container")?,
                body.any::<Vec<String>>("type")?.as_deref(),
                body.the("recursive")?,
            )
            .await
            .map(drop),
        "ModifyListView" => mo::ListView::new(handle, "x")
            .modify_list_view(
                body.any::<Vec<structs::ManagedObjectReference>>("add")?
                    .as_deref(),
                body.any::<Vec<structs::ManagedObjectReference>>("remove")?
                    .as_deref(),
            )
            .await
            .map(drop),
        "DestroyView" => mo::ListView::new(handle, "x").destroy_view().await,
        "RecommendDatastores" => mo::StorageResourceManager::new(handle, "x")
            .recommend_datastores(&body.the("storageSpec")?)
            .await
            .map(drop),
        "MakeDirectory" => {
            mo::FileManager::new(handle, "x")
                .make_directory(
                    &body.the::<String>("name")?,
                    body.any("datacenter")?.as_ref(),
                    body.any("createParentDirectories")?,
                )
                .await
        }
        "MoveDatastoreFile_Task" => mo::FileManager::new(handle, "x")
            .move_datastore_file_task(
                &body.the::<String>("sourceName")?,
                body.any("sourceDatacenter")?.as_ref(),
                &body.the::<String>("destinationName")?,
                body.any("destinationDatacenter")?.as_ref(),
                body.any("force")?,
            )
            .await
            .map(drop),
        "DeleteDatastoreFile_Task" => mo::FileManager::new(handle, "x")
            .delete_datastore_file_task(
                &body.the::<String>("name")?,
                body.any("datacenter")?.as_ref(),
            )
            .await
            .map(drop),
        "SearchDatastore_Task" => mo::HostDatastoreBrowser::new(handle, "x")
            .search_datastore_task(
                &body.the::<String>("datastorePath")?,
                body.any("searchSpec")?.as_ref(),
            )
            .await
            .map(drop),
        other => bail!("no call is known for {other}: add it here"),
    };
    // It has failed without a server. Only the request counts.
    drop(said);
    Ok(())
}

/// Every recorded body.
pub fn recorded() -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(golden()).context("recorded bodies")? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&path)?;
        let body = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        all.insert(name.into_owned(), body);
    }
    Ok(all)
}

/// Checks all of them.
///
/// # Errors
/// They cannot be read.
pub async fn check(client: &Arc<Client>, findings: &mut Findings) -> Result<()> {
    let ear = Ear::deaf(client);
    for (name, body) in recorded()? {
        let method = name.split('.').next().unwrap_or(&name);
        if NOT_VIM.contains(&method) {
            continue;
        }
        let what = format!("body {name}");
        let differences = match say(&ear, method, &Body(body.clone())).await {
            Err(e) => vec![format!("{e:#}")],
            Ok(()) => match ear.take_asked() {
                Some(mut said) => {
                    // It is optional on the parameters themselves, and it names the request, not the method.
                    if let Some(said) = said.as_object_mut() {
                        said.remove("_typeName");
                    }
                    compare(&body, &said)
                }
                None => vec!["the call asked nothing".to_owned()],
            },
        };
        findings.note(&what, &differences);
    }
    Ok(())
}
