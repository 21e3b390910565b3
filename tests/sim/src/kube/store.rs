//! The objects of the simulated API server: what a write does, without a network.
//!
//! Guarantees, as the real server gives them for custom resources:
//! - There is one revision for all objects, and a write that changes nothing does not count.
//! - `status` and the rest are written through different endpoints.
//! - `generation` counts changes outside metadata and status.
//! - An object with finalizers stays until the last one is removed.
//! - uid and resourceVersion in a write are preconditions.
//!
//! Not simulated: schemas (nothing is pruned, defaulted or refused), field managers, conversion between API versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{KINDS, versions};

pub mod backup;

/// Group and plural, e.g. `("cluster.x-k8s.io", "machines")`.
pub type Kind = (String, String);
/// Namespace (empty for cluster-wide kinds) and name.
pub type Name = (String, String);

/// A kind that the server offers.
#[derive(Clone, Debug)]
pub struct Served {
    /// For example `AgentMachine`.
    pub kind: String,
    /// Versions, the stored one first.
    pub versions: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether it has a status subresource.
    pub status: bool,
}

impl Served {
    fn of((group, plural): &Kind) -> Self {
        let mut rows = KINDS.iter();
        let row = rows.find(|(_, known, _)| known == plural);
        Self {
            kind: row.map(|(.., kind)| (*kind).to_owned()).unwrap_or_default(),
            versions: versions(group).iter().map(|v| (*v).to_owned()).collect(),
            namespaced: plural != "namespaces",
            status: !["secrets", "events", "leases"].contains(&plural.as_str()),
        }
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted.
    Deleted,
}

/// One line of the log that watches read.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Revision of the change.
    pub revision: u64,
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object.
    pub namespace: String,
    /// What happened.
    pub change: Change,
    /// The object after the change. For a deletion: its last state, with the revision of the deletion.
    pub object: Arc<Value>,
    /// When it happened, since the start of the world.
    pub at: std::time::Duration,
    /// The event in the forms that were sent already.
    pub sent: Sent,
}

/// An event that many watches send is encoded once, by version and by whether it has metadata only.
#[derive(Clone, Debug, Default)]
pub struct Sent(Arc<Mutex<Vec<(String, bool, Bytes)>>>);

impl Sent {
    /// The encoded event for that version. `make` encodes it the first time.
    pub fn or(&self, version: &str, metadata_only: bool, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all
            .iter()
            .find(|(v, m, _)| v == version && *m == metadata_only);
        if let Some((.., bytes)) = known {
            return bytes.clone();
        }
        let bytes = make();
        all.push((version.to_owned(), metadata_only, bytes.clone()));
        bytes
    }
}

/// A refusal: code, reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// A refusal.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
        }
    }

    /// What is asked for does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "NotFound", message)
    }

    /// The request is not allowed to say that.
    fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// The refusal as a `Status` object.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

/// How an object is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// With PUT.
    Put,
    /// With PATCH.
    Patch,
}

/// The answer to a write.
pub type Written = Result<Arc<Value>, Refusal>;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Store {
    /// The kinds that the server offers, by group and plural.
    pub served: BTreeMap<Kind, Served>,
    /// The objects.
    pub objects: BTreeMap<Kind, BTreeMap<Name, Arc<Value>>>,
    /// All changes, oldest first.
    pub log: Vec<Entry>,
    /// A watch that begins before this revision has to list again.
    pub compacted: u64,
    /// Objects whose finalizers somebody removed. Their controllers add them again.
    pub unheld: BTreeSet<(Kind, Name)>,
    /// Objects of somebody else. The operator may not write or delete them.
    pub foreign: BTreeSet<(Kind, Name)>,
    /// Revisions at which objects were restored from a backup.
    pub disasters: Vec<u64>,
    revision: u64,
    uids: u64,
    /// Makes uids differ between seeds.
    pub seed: u64,
}

/// The time of a write.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall-clock time.
    pub wall: Timestamp,
    /// Time since the start of the world.
    pub since: std::time::Duration,
}

/// The text at a JSON pointer. Empty if there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The list at a JSON pointer. Empty if there is none.
#[must_use]
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// Namespace and name of an object.
#[must_use]
pub fn name_of(object: &Value) -> Name {
    let part = |pointer| text(object, pointer).to_owned();
    (part("/metadata/namespace"), part("/metadata/name"))
}

fn finalizers(object: &Value) -> &[Value] {
    list(object, "/metadata/finalizers")
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Removes a field of an object.
pub fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Removes empty fields, as the server does.
fn tidy(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = metadata.get(field).is_some_and(|value| match value {
            Value::Null => true,
            Value::Array(all) => all.is_empty(),
            Value::Object(all) => all.is_empty(),
            _ => false,
        });
        if empty {
            metadata.remove(field);
        }
    }
}

/// JSON Merge Patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(object) = target.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
    // Indexing leaves a null where a nested patch removes a field that never existed. It is removed here.
    if let Some(object) = target.as_object_mut() {
        object.retain(|_, v| !v.is_null());
    }
}

impl Store {
    /// The latest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Uses up a revision without a change.
    pub fn skip(&mut self) {
        self.revision += 1;
    }

    /// Offers the kind with that plural.
    pub fn serve(&mut self, plural: &str) {
        let kind = super::kind(plural);
        self.objects.entry(kind.clone()).or_default();
        let served = Served::of(&kind);
        self.served.insert(kind, served);
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<Arc<Value>> {
        self.objects.get(kind)?.get(name).cloned()
    }

    /// All objects of a kind, of one namespace if that is not empty.
    #[must_use]
    pub fn list(&self, kind: &Kind, namespace: &str) -> Vec<Arc<Value>> {
        let all = self.objects.get(kind).into_iter().flatten();
        all.filter(|((ns, _), _)| namespace.is_empty() || ns == namespace)
            .map(|(_, o)| o.clone())
            .collect()
    }

    /// What was written of a kind, in order.
    #[must_use]
    pub fn written(&self, kind: &Kind) -> Vec<Arc<Value>> {
        let mine = |e: &&Entry| e.kind == *kind && e.change != Change::Deleted;
        let all = self.log.iter().filter(mine);
        all.map(|e| e.object.clone()).collect()
    }

    fn missing(kind: &Kind, name: &Name) -> Refusal {
        Refusal::not_found(format!("{}.{} {:?} not found", kind.1, kind.0, name.1))
    }

    fn record(
        &mut self,
        kind: &Kind,
        name: &Name,
        change: Change,
        mut object: Value,
        now: Moment,
    ) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let object = Arc::new(object);
        let objects = self.objects.entry(kind.clone()).or_default();
        if change == Change::Deleted {
            objects.remove(name);
        } else {
            objects.insert(name.clone(), object.clone());
        }
        self.log.push(Entry {
            revision: self.revision,
            kind: kind.clone(),
            namespace: name.0.clone(),
            change,
            object: object.clone(),
            at: now.since,
            sent: Sent::default(),
        });
        object
    }

    /// A uid that no other object has.
    fn uid(&mut self) -> String {
        self.uids += 1;
        let seed = [self.seed.to_be_bytes(), self.uids.to_be_bytes()].concat();
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, &seed).to_string()
    }

    /// POST.
    ///
    /// # Errors
    /// The object exists, its namespace does not exist or is in deletion, or it has no name.
    pub fn create(
        &mut self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        now: Moment,
    ) -> Written {
        let served = self.served[kind].clone();
        let name = (namespace.to_owned(), name_of(&object).1);
        if name.1.is_empty() {
            return Err(Refusal::invalid("metadata.name: Required value"));
        }
        if served.namespaced {
            let home = (String::new(), namespace.to_owned());
            let Some(found) = self.get(&super::kind("namespaces"), &home) else {
                let missing = format!("namespaces {namespace:?} not found");
                return Err(Refusal::not_found(missing));
            };
            if is_deleting(&found) {
                return Err(Refusal::new(
                    403,
                    "Forbidden",
                    format!(
                        "unable to create new content in namespace {namespace} because it is being terminated"
                    ),
                ));
            }
            object["metadata"]["namespace"] = json!(namespace);
        }
        if self.get(kind, &name).is_some() {
            return Err(Refusal::new(
                409,
                "AlreadyExists",
                format!("{}.{} {:?} already exists", kind.1, kind.0, name.1),
            ));
        }
        let uid = self.uid();
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(seconds(now.wall));
        metadata["generation"] = json!(1);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            remove(metadata, field);
        }
        if served.status {
            remove(&mut object, "status");
        }
        object["kind"] = json!(served.kind);
        tidy(&mut object);
        Ok(self.record(kind, &name, Change::Added, object, now))
    }

    /// PUT or PATCH of the object, or with `true` of its status. `change` turns the present object into the wanted one.
    /// It does not know which fields may not change.
    ///
    /// # Errors
    /// The object does not exist, a precondition fails, or a change is not allowed.
    pub fn update(
        &mut self,
        kind: &Kind,
        name: &Name,
        door: (Via, bool),
        now: Moment,
        change: impl FnOnce(Value) -> Value,
    ) -> Written {
        let (via, status) = door;
        let Some(old) = self.get(kind, name) else {
            return Err(Self::missing(kind, name));
        };
        let mut wanted = change(old.as_ref().clone());
        for field in ["resourceVersion", "uid"] {
            let pointer = format!("/metadata/{field}");
            let (given, have) = (text(&wanted, &pointer), text(&old, &pointer));
            if given.is_empty() || given == have {
                continue;
            }
            if field == "uid" && via == Via::Patch {
                // For a patch, the uid is an immutable field like others.
                let message = format!("metadata.uid: Invalid value: {given:?}: field is immutable");
                return Err(Refusal::invalid(message));
            }
            return Err(conflict(kind, name, field, given, have));
        }
        let new = if status {
            let mut new = old.as_ref().clone();
            match wanted.get_mut("status") {
                Some(wanted) => new["status"] = wanted.take(),
                None => remove(&mut new, "status"),
            }
            new
        } else {
            let keeps = self.served[kind].status;
            Self::apply(&old, &mut wanted, keeps)?;
            wanted
        };
        if new == *old {
            return Ok(old);
        }
        if is_deleting(&new) && finalizers(&new).is_empty() {
            // Watches see the revision of the deletion. The answer has the revision of the object as it was.
            self.record(kind, name, Change::Deleted, new.clone(), now);
            return Ok(Arc::new(new));
        }
        Ok(self.record(kind, name, Change::Modified, new, now))
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn set_status(&mut self, kind: &Kind, name: &Name, status: &Value, now: Moment) -> Written {
        self.update(kind, name, (Via::Patch, true), now, |mut object| {
            object["status"] = status.clone();
            object
        })
    }

    /// Applies a write to the object itself. Identity and deletion mark stay as they are, and so does a status that has
    /// its own subresource.
    fn apply(old: &Value, new: &mut Value, keeps_status: bool) -> Result<(), Refusal> {
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ] {
            match old["metadata"].get(field) {
                Some(have) => new["metadata"][field] = have.clone(),
                None => remove(&mut new["metadata"], field),
            }
        }
        for field in ["kind", "apiVersion"] {
            new[field] = old[field].clone();
        }
        if keeps_status {
            match old.get("status") {
                Some(have) => new["status"] = have.clone(),
                None => remove(new, "status"),
            }
        }
        tidy(new);
        let before = finalizers(old);
        if is_deleting(old) && finalizers(new).iter().any(|f| !before.contains(f)) {
            return Err(Refusal::invalid(
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
            ));
        }
        if body(old, keeps_status) != body(new, keeps_status) {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
        }
        Ok(())
    }

    /// DELETE. Returns the object as it is afterwards, or `None` when it is gone at once.
    ///
    /// # Errors
    /// The object does not exist, or a precondition fails.
    pub fn delete(
        &mut self,
        kind: &Kind,
        name: &Name,
        preconditions: &Value,
        now: Moment,
    ) -> Result<Option<Arc<Value>>, Refusal> {
        let Some(old) = self.get(kind, name) else {
            return Err(Self::missing(kind, name));
        };
        for field in ["uid", "resourceVersion"] {
            let given = preconditions[field].as_str().unwrap_or_default();
            let have = text(&old, &format!("/metadata/{field}"));
            if !given.is_empty() && given != have {
                return Err(conflict(kind, name, field, given, have));
            }
        }
        let mut new = old.as_ref().clone();
        // The content of a namespace holds it back like a finalizer.
        let held = !finalizers(&new).is_empty() || kind.1 == "namespaces" && kind.0.is_empty();
        if !held {
            self.record(kind, name, Change::Deleted, new, now);
            return Ok(None);
        }
        if !is_deleting(&new) {
            new["metadata"]["deletionTimestamp"] = json!(seconds(now.wall));
            new["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            let generation = new["metadata"]["generation"].as_u64().unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
            return Ok(Some(self.record(kind, name, Change::Modified, new, now)));
        }
        Ok(Some(old))
    }

    /// Removes an object without regard to finalizers, as the end of a namespace or a person by force does.
    pub fn evict(&mut self, kind: &Kind, name: &Name, now: Moment) {
        if let Some(old) = self.get(kind, name) {
            self.record(kind, name, Change::Deleted, old.as_ref().clone(), now);
        }
    }

    /// Removes all objects of a kind so.
    pub fn evict_all(&mut self, kind: &Kind, now: Moment) {
        let all = self.objects.get(kind).into_iter().flatten();
        let names: Vec<Name> = all.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.evict(kind, name, now));
    }

    /// Replaces an object completely, including fields that no request can change.
    pub fn replace(&mut self, kind: &Kind, name: &Name, object: Value, now: Moment) {
        self.record(kind, name, Change::Modified, object, now);
    }

    /// Objects whose owners are all gone.
    #[must_use]
    pub fn orphans(&self) -> Vec<(Kind, Name, String)> {
        let all = self.with_dead_owners().filter(|(.., left)| left.is_empty());
        all.map(|(k, n, o, _)| (k.clone(), n.clone(), text(o, "/metadata/uid").to_owned()))
            .collect()
    }

    /// Objects that have lost some of their owners, with the references to the others.
    #[must_use]
    pub fn half_orphans(&self) -> Vec<(Kind, Name, Vec<Value>)> {
        let all = self
            .with_dead_owners()
            .filter(|(.., left)| !left.is_empty());
        all.map(|(k, n, _, left)| (k.clone(), n.clone(), left))
            .collect()
    }

    fn with_dead_owners(&self) -> impl Iterator<Item = (&Kind, &Name, &Arc<Value>, Vec<Value>)> {
        let alive: BTreeSet<&str> = self
            .objects
            .values()
            .flatten()
            .map(|(_, o)| text(o, "/metadata/uid"))
            .collect();
        let all = self
            .objects
            .iter()
            .flat_map(|(k, objects)| objects.iter().map(move |(n, o)| (k, n, o)));
        all.filter(|(_, _, o)| !is_deleting(o))
            .filter_map(move |(k, n, o)| {
                let owners = o.pointer("/metadata/ownerReferences")?.as_array()?;
                let lives = |owner: &&Value| alive.contains(text(owner, "/uid"));
                let left: Vec<Value> = owners.iter().filter(lives).cloned().collect();
                (left.len() < owners.len()).then_some((k, n, o, left))
            })
    }
}

/// The fields whose changes `generation` counts.
fn body(object: &Value, keeps_status: bool) -> BTreeMap<&String, &Value> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| *key != "metadata" && !(keeps_status && *key == "status"))
        .collect()
}

fn conflict(kind: &Kind, name: &Name, field: &str, given: &str, have: &str) -> Refusal {
    let message = if field == "uid" {
        format!("Precondition failed: UID in precondition: {given}, UID in object meta: {have}")
    } else {
        format!(
            "Operation cannot be fulfilled on {}.{} {:?}: the object has been modified; please apply your changes to \
             the latest version and try again",
            kind.1, kind.0, name.1
        )
    };
    Refusal::new(409, "Conflict", message)
}

/// Whole seconds, in the format of `metav1.Time`.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// tests/sim/tests/all/conformance.rs compares the store with the real API server.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kube::kind;

    pub(crate) fn now() -> Moment {
        Moment {
            wall: Timestamp::UNIX_EPOCH,
            since: std::time::Duration::ZERO,
        }
    }

    pub(crate) fn store() -> (Store, Kind, Name) {
        let mut store = Store::default();
        store.serve("namespaces");
        store.serve("agents");
        let namespace = json!({"metadata": {"name": "n"}});
        let made = store.create(&kind("namespaces"), "", namespace, now());
        made.expect("namespace");
        let thing = json!({"metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"x": 1}, "status": {"lost": true}});
        let made = store.create(&kind("agents"), "n", thing, now());
        made.expect("thing");
        (store, kind("agents"), ("n".to_owned(), "a".to_owned()))
    }
}
