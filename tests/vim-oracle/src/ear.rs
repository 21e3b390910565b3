//! A client between the stubs of `vim_rs` and the wire. It records the requests. It checks that each answer fits the
//! vendor's type in every field.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use miniserde::{Deserialize, Serialize};
use serde_json::Value;
use vim_rs::{
    core::{
        Client,
        client::{BoxFuture, Error, PropertyValue, Result, Transport, VimClient},
    },
    types::structs,
};

use crate::compare::compare;

/// A client that records what passes through it. It can also work without a server.
pub struct Ear {
    behind: Arc<Client>,
    passes: bool,
    asked: Mutex<Option<Value>>,
    heard: Mutex<Vec<(String, Vec<String>)>>,
}

impl Ear {
    /// A client that sends nothing to a server.
    pub fn deaf(client: &Arc<Client>) -> Arc<Self> {
        Self::new(client, false)
    }

    /// A client that passes on the requests and checks the answers.
    pub fn between(client: &Arc<Client>) -> Arc<Self> {
        Self::new(client, true)
    }

    fn new(client: &Arc<Client>, passes: bool) -> Arc<Self> {
        Arc::new(Self {
            behind: Arc::clone(client),
            passes,
            asked: Mutex::default(),
            heard: Mutex::default(),
        })
    }

    /// Body of the last request; `{}` if it had none.
    pub fn take_asked(&self) -> Option<Value> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The answers so far, with the differences in each.
    pub fn take_heard(&self) -> Vec<(String, Vec<String>)> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ask(&self, params: Option<&(dyn Serialize + Send + Sync)>) -> Result<()> {
        let body = params.map_or_else(|| "{}".to_owned(), |p| miniserde::json::to_string(p));
        let body = serde_json::from_str(&body).map_err(|e| Error::ParseError(e.to_string()))?;
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        if self.passes {
            Ok(())
        } else {
            Err(Error::ParseError("only listening".to_owned()))
        }
    }

    fn hear(&self, what: String, bytes: &[u8]) {
        if let Some(differences) = judge(&what, bytes) {
            self.heard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((what, differences));
        }
    }
}

/// The differences after the answer was read and written with the vendor's type.
fn faithful<T: Deserialize + Serialize>(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let Ok(ours) = serde_json::from_str::<Value>(&text) else {
        return vec![format!("is not JSON: {text}")];
    };
    let Ok(read) = miniserde::json::from_str::<T>(&text) else {
        return vec![format!(
            "does not decode as {}: {text}",
            std::any::type_name::<T>()
        )];
    };
    match serde_json::from_str(&miniserde::json::to_string(&read)) {
        Ok(theirs) => compare(&ours, &theirs),
        Err(e) => vec![e.to_string()],
    }
}

/// `None` if the type of the answer is not listed here.
fn judge(what: &str, bytes: &[u8]) -> Option<Vec<String>> {
    let name = what.rsplit('.').next().unwrap_or(what);
    Some(match name {
        "RetrievePropertiesEx" => faithful::<structs::RetrieveResult>(bytes),
        "WaitForUpdatesEx" => faithful::<structs::UpdateSet>(bytes),
        "RecommendDatastores" => faithful::<structs::StoragePlacementResult>(bytes),
        "FindAllByUuid" | "ModifyListView" => {
            faithful::<Vec<structs::ManagedObjectReference>>(bytes)
        }
        "config" => faithful::<structs::VirtualMachineConfigInfo>(bytes),
        "runtime" => faithful::<structs::VirtualMachineRuntimeInfo>(bytes),
        "currentSession" => faithful::<structs::UserSession>(bytes),
        "info" => faithful::<structs::TaskInfo>(bytes),
        "content" => faithful::<structs::ServiceContent>(bytes),
        "FindByInventoryPath"
        | "CreateFolder"
        | "CreateFilter"
        | "CreateListView"
        | "CreateContainerView"
        | "CreatePropertyCollector" => faithful::<structs::ManagedObjectReference>(bytes),
        task if task.ends_with("_Task") => faithful::<structs::ManagedObjectReference>(bytes),
        _ => return None,
    })
}

impl VimClient for Ear {
    fn service_content(&self) -> &structs::ServiceContent {
        self.behind.service_content()
    }

    fn transport(&self) -> Transport {
        Transport::Json
    }

    fn api_release(&self) -> String {
        self.behind.api_release()
    }

    fn invoke<'a>(
        &'a self,
        svc: &'a str,
        mo_type: &'a str,
        mo_id: &'a str,
        method_name: &'a str,
        params: Option<&'a (dyn Serialize + Send + Sync)>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.ask(params)?;
            let bytes =
                VimClient::invoke(&*self.behind, svc, mo_type, mo_id, method_name, params).await?;
            self.hear(format!("{mo_type}.{method_name}"), &bytes);
            Ok(bytes)
        })
    }

    fn invoke_optional<'a>(
        &'a self,
        svc: &'a str,
        mo_type: &'a str,
        mo_id: &'a str,
        method_name: &'a str,
        params: Option<&'a (dyn Serialize + Send + Sync)>,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            self.ask(params)?;
            let bytes =
                VimClient::invoke_optional(&*self.behind, svc, mo_type, mo_id, method_name, params)
                    .await?;
            if let Some(bytes) = &bytes {
                self.hear(format!("{mo_type}.{method_name}"), bytes);
            }
            Ok(bytes)
        })
    }

    fn invoke_void<'a>(
        &'a self,
        svc: &'a str,
        mo_type: &'a str,
        mo_id: &'a str,
        method_name: &'a str,
        params: Option<&'a (dyn Serialize + Send + Sync)>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.ask(params)?;
            VimClient::invoke_void(&*self.behind, svc, mo_type, mo_id, method_name, params).await
        })
    }

    fn fetch_property_raw<'a>(
        &'a self,
        svc: &'a str,
        mo_type: &'a str,
        mo_id: &'a str,
        property: &'a str,
    ) -> BoxFuture<'a, Result<Option<PropertyValue>>> {
        Box::pin(async move {
            let found =
                VimClient::fetch_property_raw(&*self.behind, svc, mo_type, mo_id, property).await?;
            if let Some(PropertyValue::Json(bytes)) = &found {
                self.hear(format!("{mo_type}.{property}"), bytes);
            }
            Ok(found)
        })
    }
}
