//! What a call to vCenter does, after faults were applied.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Course, VCenter, collector,
    model::{Collector, Fault, Inventory, Ref, Session},
    tasks::Work,
};
use crate::kube::store::{list, text};

/// A reply: HTTP status, session header, body.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// `vmware-api-session-id`
    pub session: Option<String>,
    /// JSON body. Null means no body.
    pub body: Value,
}

impl Reply {
    /// A reply with a result.
    #[must_use]
    pub fn ok(body: Value) -> Self {
        let status = if body.is_null() { 204 } else { 200 };
        Self {
            status,
            session: None,
            body,
        }
    }

    /// A reply with a status only.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }
}

impl From<Fault> for Reply {
    fn from(fault: Fault) -> Self {
        Self {
            status: 500,
            session: None,
            body: fault.0,
        }
    }
}

/// A method of a managed object.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Session header.
    pub token: String,
    /// Object.
    pub target: Ref,
    /// Method.
    pub method: String,
    /// Arguments.
    pub arguments: Value,
    /// The operator's process that calls.
    pub life: u32,
}

/// The managed objects that exist once.
#[must_use]
pub fn content() -> Value {
    let of = |kind: &str, id: &str| Ref::new(kind, id).json();
    json!({
        "_typeName": "ServiceContent",
        "about": {"_typeName": "AboutInfo", "instanceUuid": "2b1c6f0e-5a6f-4a5e-9f65-0d2a8c3b7e41"},
        "rootFolder": of("Folder", "group-d1"),
        "propertyCollector": of("PropertyCollector", "propertyCollector"),
        "sessionManager": of("SessionManager", "SessionManager"),
        "searchIndex": of("SearchIndex", "SearchIndex"),
        "viewManager": of("ViewManager", "ViewManager"),
        "fileManager": of("FileManager", "FileManager"),
    })
}

fn argument(invocation: &Invocation, name: &str) -> Result<Ref, Fault> {
    Ref::read(&invocation.arguments[name]).ok_or_else(|| Fault::argument(name))
}

impl VCenter {
    /// Calls a method.
    pub async fn invoke(&self, invocation: &Invocation, course: Course) -> Reply {
        if invocation.method == "Login" {
            return self.login(invocation);
        }
        let session = |i: &Inventory| i.sessions.get(&invocation.token).map(|s| s.automation);
        if self.read(session) != Some(false) {
            return Fault::new("NotAuthenticated", json!({"privilegeId": "System.View"})).into();
        }
        let result = if invocation.method == "WaitForUpdatesEx" {
            self.wait_for_updates(invocation).await
        } else {
            self.call(invocation, course)
        };
        match result {
            Ok(body) => Reply::ok(body),
            Err(fault) => fault.into(),
        }
    }

    fn login(&self, invocation: &Invocation) -> Reply {
        let text = |pointer| text(&invocation.arguments, pointer).to_owned();
        let given = (text("/userName"), text("/password"));
        self.write_quietly(|i| {
            if given != i.login {
                return Fault::new("InvalidLogin", json!({})).into();
            }
            let token = i.open_session(&given.0, invocation.life, false);
            let body = json!({"_typeName": "UserSession", "key": token, "userName": given.0});
            Reply {
                status: 200,
                session: Some(token),
                body,
            }
        })
    }

    fn call(&self, invocation: &Invocation, course: Course) -> Result<Value, Fault> {
        let Invocation {
            target,
            token,
            arguments,
            ..
        } = invocation;
        let task = |work: Work| -> Result<Value, Fault> {
            if let Some(vm) = work.vm()
                && !self.read(|i| i.vms.contains_key(&vm.id))
            {
                return Err(Fault::not_found(vm));
            }
            Ok(self.start(work, course).json())
        };
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        match invocation.method.as_str() {
            "Logout" => {
                self.write(|i| i.sessions.remove(token));
                Ok(Value::Null)
            }
            "RetrievePropertiesEx" => self.write_quietly(|i| i.retrieve(token, arguments)),
            "ContinueRetrievePropertiesEx" => self.write_quietly(|i| i.next_page(&text("token"))),
            "FindByInventoryPath" => Ok(self.read(|i| {
                i.at_path(&text("inventoryPath"))
                    .map_or(Value::Null, |r| r.json())
            })),
            "FindAllByUuid" => Ok(self.read(|i| {
                let wanted = text("uuid");
                let found = i.vms.values();
                let found = found.filter(|v| !v.hidden && v.uuid.eq_ignore_ascii_case(&wanted));
                found.map(|v| v.object.json()).collect::<Vec<_>>().into()
            })),
            "CreateFolder" => self.write(|i| {
                let name = text("name");
                if let Some(holder) = i.child(target, &name) {
                    return Err(Fault::duplicate(&name, &holder));
                }
                let id = format!("group-v{}", i.number());
                Ok(i.add("Folder", &id, &name, Some(target)).json())
            }),
            "CreateVM_Task" => {
                let pool = argument(invocation, "pool")?;
                if pool.kind != "ResourcePool" {
                    return Err(Fault::argument("pool"));
                }
                if !self.read(|i| i.nodes.contains_key(target)) {
                    return Err(Fault::not_found(target));
                }
                task(Work::Create(target.clone(), arguments.clone()))
            }
            "ReconfigVM_Task" => task(Work::Reconfigure(target.clone(), arguments["spec"].clone())),
            "AnswerVM" => {
                self.touch("answers a question of", target);
                self.write(|i| i.answer(target, arguments))
                    .map(|()| Value::Null)
            }
            "PowerOnVM_Task" => task(Work::PowerOn(target.clone())),
            "PowerOffVM_Task" => task(Work::PowerOff(target.clone())),
            "ResetVM_Task" => task(Work::Reset(target.clone())),
            "Destroy_Task" => task(Work::Destroy(target.clone())),
            "SearchDatastore_Task" => {
                let patterns = list(arguments, "/searchSpec/matchPattern");
                task(Work::Search(text("datastorePath"), patterns.to_vec()))
            }
            "MoveDatastoreFile_Task" => {
                task(Work::Move(text("sourceName"), text("destinationName")))
            }
            "DeleteDatastoreFile_Task" => task(Work::Delete(text("name"))),
            "MakeDirectory" => self
                .write(|i| i.make_directory(&text("name")))
                .map(|()| Value::Null),
            _ => self.write(|i| i.session_call(invocation)),
        }
    }

    async fn wait_for_updates(&self, invocation: &Invocation) -> Result<Value, Fault> {
        let limit = invocation.arguments["options"]["maxWaitSeconds"].as_u64();
        let limit = limit.unwrap_or(0);
        let until = Instant::now() + Duration::from_secs(limit);
        let asked = invocation.arguments["version"].as_str().unwrap_or_default();
        let mut changed = self.changed.listener();
        let mine = self.write(|i| i.begin_wait(invocation, asked))?;
        loop {
            changed.catch_up();
            if let Some(update) = self.write_quietly(|i| i.updates(invocation, mine, asked))? {
                return Ok(update);
            }
            tokio::select! {
                biased;
                () = changed.news() => {}
                () = tokio::time::sleep_until(until) => return Ok(Value::Null),
            }
        }
    }

    /// Changes something that no long poll waits for, so it wakes none.
    pub(super) fn write_quietly<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> T {
        change(&mut self.lock())
    }
}

impl Inventory {
    /// Opens a session.
    pub fn open_session(&mut self, user: &str, life: u32, automation: bool) -> String {
        let token = format!("sess10n-t0ken-{}", self.number());
        let session = Session {
            user: user.to_owned(),
            life,
            automation,
            ..Session::default()
        };
        self.sessions.insert(token.clone(), session);
        token
    }

    fn session(&self, token: &str) -> Result<&Session, Fault> {
        let session = self.sessions.get(token);
        session.ok_or_else(|| Fault::new("NotAuthenticated", json!({})))
    }

    /// The object at an inventory path.
    #[must_use]
    pub fn at_path(&self, path: &str) -> Option<Ref> {
        let mut here = Ref::new("Folder", "group-d1");
        for name in path.split('/').filter(|n| !n.is_empty()) {
            // Datacenters and clusters have hidden folders and pools, which a path leaves out.
            here = self.child(&here, name)?;
        }
        Some(here)
    }

    fn retrieve(&mut self, token: &str, arguments: &Value) -> Result<Value, Fault> {
        let specs = list(arguments, "/specSet");
        let found = collector::retrieve(self, self.session(token)?, specs)?;
        let page = arguments["options"]["maxObjects"].as_u64().unwrap_or(100);
        self.page(found, usize::try_from(page).unwrap_or(100))
    }

    fn page(&mut self, mut found: Vec<Value>, size: usize) -> Result<Value, Fault> {
        if found.is_empty() {
            return Ok(Value::Null);
        }
        let rest = found.split_off(found.len().min(size));
        let mut result = json!({"_typeName": "RetrieveResult", "objects": found});
        if !rest.is_empty() {
            let token = format!("page-{}", self.number());
            result["token"] = json!(token);
            self.pages.insert(token, rest);
        }
        Ok(result)
    }

    fn next_page(&mut self, token: &str) -> Result<Value, Fault> {
        let rest = self.pages.remove(token);
        let rest = rest.ok_or_else(|| Fault::argument("token"))?;
        self.page(rest, 100)
    }

    /// Calls of views and collectors. These end with their session.
    fn session_call(&mut self, invocation: &Invocation) -> Result<Value, Fault> {
        let Invocation {
            target,
            token,
            arguments,
            method,
            ..
        } = invocation;
        let number = self.number();
        let id = |kind: &str| format!("session[{token}]{kind}-{number}");
        let refs = |key: &str| -> Vec<Ref> {
            let all = list(&arguments[key], "").iter();
            all.filter_map(Ref::read).collect()
        };
        let known: Vec<Ref> = refs("add")
            .into_iter()
            .filter(|r| self.session(token).is_ok_and(|s| self.exists(s, r)))
            .collect();
        let gone = || Fault::not_found(target);
        let session = self
            .sessions
            .get_mut(token)
            .ok_or_else(|| Fault::new("NotAuthenticated", json!({})))?;
        match method.as_str() {
            "CreateListView" => {
                let seen = refs("obj").into_iter().collect();
                session.views.insert(id("view"), seen);
                Ok(Ref::new("ListView", id("view")).json())
            }
            "ModifyListView" => {
                let view = session.views.get_mut(&target.id).ok_or_else(gone)?;
                for object in refs("remove") {
                    view.remove(&object);
                }
                let unknown: Vec<Value> = refs("add")
                    .iter()
                    .filter(|r| !known.contains(r))
                    .map(Ref::json)
                    .collect();
                view.extend(known);
                Ok(unknown.into())
            }
            "CreateContainerView" => {
                session.containers.insert(id("view"));
                Ok(Ref::new("ContainerView", id("view")).json())
            }
            "DestroyView" => {
                let was = session.views.remove(&target.id).is_some()
                    || session.containers.remove(&target.id);
                if was { Ok(Value::Null) } else { Err(gone()) }
            }
            "CreatePropertyCollector" => {
                let collector = Collector::default();
                session.collectors.insert(id("collector"), collector);
                Ok(Ref::new("PropertyCollector", id("collector")).json())
            }
            "DestroyPropertyCollector" => session
                .collectors
                .remove(&target.id)
                .map(|_| Value::Null)
                .ok_or_else(gone),
            "CreateFilter" => {
                let collector = session.collectors.get_mut(&target.id).ok_or_else(gone)?;
                let filter = (arguments["spec"].clone(), Default::default());
                collector.filters.push(filter);
                Ok(Ref::new("PropertyFilter", id("filter")).json())
            }
            other => panic!("not played: {other} of {target:?}"),
        }
    }

    fn collector(&mut self, invocation: &Invocation) -> Result<&mut Collector, Fault> {
        let session = self.sessions.get_mut(&invocation.token);
        let session = session.ok_or_else(|| Fault::new("RequestCanceled", json!({})))?;
        let found = session.collectors.get_mut(&invocation.target.id);
        found.ok_or_else(|| Fault::not_found(&invocation.target))
    }

    fn begin_wait(&mut self, invocation: &Invocation, asked: &str) -> Result<u64, Fault> {
        let collector = self.collector(invocation)?;
        if asked.is_empty() {
            for (_, told) in &mut collector.filters {
                told.clear();
            }
        } else if asked != collector.version.to_string() {
            return Err(Fault::new("InvalidCollectorVersion", json!({})));
        }
        collector.waits += 1;
        Ok(collector.waits)
    }

    fn updates(
        &mut self,
        invocation: &Invocation,
        mine: u64,
        asked: &str,
    ) -> Result<Option<Value>, Fault> {
        let collector = self.collector(invocation)?;
        if collector.waits != mine {
            return Err(Fault::new("RequestCanceled", json!({})));
        }
        let mut filters = std::mem::take(&mut collector.filters);
        let mut sets = Vec::new();
        for (spec, told) in &mut filters {
            let session = self.session(&invocation.token)?;
            let changes = collector::changes(self, session, spec, told)?;
            if !changes.is_empty() {
                sets.push(json!({"_typeName": "PropertyFilterUpdate", "objectSet": changes}));
            }
        }
        let collector = self.collector(invocation)?;
        collector.filters = filters;
        if sets.is_empty() && !asked.is_empty() {
            return Ok(None);
        }
        collector.version += 1;
        let version = collector.version.to_string();
        Ok(Some(
            json!({"_typeName": "UpdateSet", "version": version, "filterSet": sets}),
        ))
    }
}
