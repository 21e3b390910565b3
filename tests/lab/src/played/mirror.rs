//! A live copy of the objects of one kind in one namespace, and the writes to them.
//!
//! List and watch fill a map by name, and every change reaches all subscribers. The answer to a write is put into the
//! map at once, so a controller reads its own writes.
//!
//! Guarantees: an object never returns to an older resourceVersion. Subscribers get every changed name in order, also
//! objects that vanished during a broken watch. An object in a new list exists, even if it was gone before (a restored
//! etcd). Assumption: resourceVersions of one kind are numbers that can be compared (true for API servers with etcd).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{object::Facts as _, task::Task};

/// One object of a mirror. Shared, never changed in place.
pub type Object = Arc<DynamicObject>;

/// A change of one object. `old` is absent if it is new, `new` if it is gone.
#[derive(Debug, Clone)]
pub struct Change {
    /// The state before.
    pub old: Option<Object>,
    /// The state after.
    pub new: Option<Object>,
}

impl Change {
    /// The object, or what it was.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Its name, as the key of a [`super::desk::Desk`].
    #[must_use]
    pub fn name(&self) -> Option<String> {
        self.object().map(|object| object.name().to_owned())
    }
}

/// See the module's contract. Cheap to clone; the watch ends with the last clone. A write fails if the API server refuses it.
#[derive(Debug, Clone)]
pub struct Mirror(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    api: Api<DynamicObject>,
    resource: ApiResource,
    namespace: String,
    state: Arc<State>,
    ready: watch::Receiver<bool>,
    _watch: Task,
}

#[derive(Debug, Default)]
struct State(Mutex<Copy>);

#[derive(Debug, Default)]
struct Copy {
    objects: BTreeMap<String, Object>,
    /// UIDs of objects that are gone. The answer to an object's last write may come after the watch has reported its
    /// end.
    gone: BTreeSet<String>,
    subscribers: Vec<mpsc::UnboundedSender<Change>>,
}

impl Copy {
    fn publish(&mut self, change: &Change) {
        self.subscribers
            .retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// The number in a resourceVersion; 0 for an object that the API server never saw.
fn revision(object: &DynamicObject) -> u64 {
    object
        .metadata
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Copy> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, object: DynamicObject) -> Object {
        let mut copy = self.lock();
        if copy.gone.contains(object.uid()) {
            return Arc::new(object);
        }
        let old = copy.objects.get(object.name()).cloned();
        if let Some(have) = &old
            && revision(have) >= revision(&object)
        {
            return have.clone();
        }
        let new = Arc::new(object);
        copy.objects.insert(new.name().to_owned(), new.clone());
        copy.publish(&Change {
            old,
            new: Some(new.clone()),
        });
        new
    }

    fn remove(&self, name: &str, until: u64) {
        let mut copy = self.lock();
        if copy
            .objects
            .get(name)
            .is_some_and(|have| revision(have) <= until)
            && let Some(old) = copy.objects.remove(name)
        {
            copy.gone.insert(old.uid().to_owned());
            copy.publish(&Change {
                old: Some(old),
                new: None,
            });
        }
    }

    fn names(&self) -> BTreeSet<String> {
        self.lock().objects.keys().cloned().collect()
    }
}

impl Mirror {
    /// Starts to copy `resource` of `namespace`. [`Mirror::synced`] waits until the copy is complete.
    #[must_use]
    pub fn start(client: &Client, resource: &ApiResource, namespace: &str) -> Self {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, resource);
        let state = Arc::new(State::default());
        let (ready_in, ready) = watch::channel(false);
        let watch = Task::spawn(follow(
            api.clone(),
            state.clone(),
            ready_in,
            resource.kind.clone(),
        ));
        Self(Arc::new(Inner {
            api,
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            state,
            ready,
            _watch: watch,
        }))
    }

    /// Waits for the first complete list.
    ///
    /// # Errors
    /// The watch ended, which happens only when the runtime stops.
    pub async fn synced(&self) -> Result<()> {
        let mut ready = self.0.ready.clone();
        ready
            .wait_for(|done| *done)
            .await
            .with_context(|| format!("watch of {} ended", self.0.resource.kind))?;
        Ok(())
    }

    /// The namespace of the copied objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// The kind of the copied objects.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.0.resource
    }

    /// The object with this name, as last seen.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Object> {
        self.0.state.lock().objects.get(name).cloned()
    }

    /// All objects, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Object> {
        self.0.state.lock().objects.values().cloned().collect()
    }

    /// The objects that fit, by name.
    #[must_use]
    pub fn select(&self, fits: impl Fn(&Object) -> bool) -> Vec<Object> {
        let copy = self.0.state.lock();
        let fitting = copy.objects.values().filter(|object| fits(object));
        fitting.cloned().collect()
    }

    /// First every present object, then all later changes.
    #[must_use]
    pub fn changes(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut copy = self.0.state.lock();
        for object in copy.objects.values() {
            // The receiver exists, so this cannot fail.
            let _ = sender.send(Change {
                old: None,
                new: Some(object.clone()),
            });
        }
        copy.subscribers.push(sender);
        receiver
    }

    /// The object as the API server has it now; `None` if it does not exist.
    ///
    /// # Errors
    /// The API server did not answer.
    pub async fn fetch(&self, name: &str) -> Result<Option<Object>> {
        match self.0.api.get_opt(name).await? {
            Some(object) => Ok(Some(self.0.state.put(object))),
            None => {
                if let Some(have) = self.get(name) {
                    self.0.state.remove(name, revision(&have));
                }
                Ok(None)
            }
        }
    }

    /// Creates an object of the mirror's kind.
    pub async fn create(&self, metadata: Value, body: Value) -> Result<Object> {
        let mut object = DynamicObject::new("", &self.0.resource).data(body);
        object.metadata = serde_json::from_value(metadata).context("metadata of a new object")?;
        object.metadata.namespace = Some(self.0.namespace.clone());
        let created = self.0.api.create(&PostParams::default(), &object).await?;
        Ok(self.0.state.put(created))
    }

    /// Merge-patches the object. If it changed since `seen`, the API server answers with a conflict.
    pub async fn patch(&self, seen: &DynamicObject, body: Value) -> Result<Object> {
        self.merge(seen.name(), guarded(seen, body)).await
    }

    /// Adds a finalizer to the object. As [`Mirror::patch`].
    pub async fn add_finalizer(&self, seen: &DynamicObject, finalizer: &str) -> Result<Object> {
        let mut all = seen.metadata.finalizers.clone().unwrap_or_default();
        all.push(finalizer.to_owned());
        self.patch(seen, json!({"metadata": {"finalizers": all}}))
            .await
    }

    /// Removes a finalizer from the object. As [`Mirror::patch`].
    pub async fn remove_finalizer(&self, seen: &DynamicObject, finalizer: &str) -> Result<Object> {
        let mut left = seen.metadata.finalizers.clone().unwrap_or_default();
        left.retain(|kept| kept != finalizer);
        self.patch(seen, json!({"metadata": {"finalizers": left}}))
            .await
    }

    /// Merge-patches the object in whatever version it is, as controllers do that patch without a lock.
    pub async fn merge(&self, name: &str, body: Value) -> Result<Object> {
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(body));
        let merged = self.0.api.patch(name, &parameters, &patch).await?;
        Ok(self.0.state.put(merged))
    }

    /// Merge-patches the status. If the object changed since `seen`, the API server answers with a conflict.
    pub async fn patch_status(&self, seen: &DynamicObject, status: Value) -> Result<Object> {
        let patch = Patch::Merge(guarded(seen, json!({ "status": status })));
        let (api, parameters) = (&self.0.api, PatchParams::default());
        let patched = api.patch_status(seen.name(), &parameters, &patch).await?;
        Ok(self.0.state.put(patched))
    }

    /// Writes the whole object (PUT), as controllers do that call `Update`.
    pub async fn replace(&self, object: &DynamicObject) -> Result<Object> {
        let (api, parameters) = (&self.0.api, PostParams::default());
        let replaced = api.replace(object.name(), &parameters, object).await?;
        Ok(self.0.state.put(replaced))
    }

    /// Requests the deletion of exactly this object. An object that is already gone counts as success.
    pub async fn delete(&self, object: &DynamicObject) -> Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: object.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.0.api.delete(object.name(), &parameters).await {
            Ok(answer) => {
                // Finalizers keep it. From now on it is being deleted.
                if let Some(dying) = answer.left().filter(|object| object.is_deleting()) {
                    self.0.state.put(dying);
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// A merge patch that is valid only for the version in `seen`.
fn guarded(seen: &DynamicObject, mut body: Value) -> Value {
    body["metadata"]["resourceVersion"] = json!(seen.metadata.resource_version);
    body["metadata"]["uid"] = json!(seen.metadata.uid);
    body
}

async fn follow(
    api: Api<DynamicObject>,
    state: Arc<State>,
    ready: watch::Sender<bool>,
    kind: String,
) {
    let mut events = watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    let mut before: BTreeSet<String> = BTreeSet::new();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Apply(object))) => drop(state.put(object)),
            Ok(Some(Event::Delete(object))) => {
                state.lock().gone.insert(object.uid().to_owned());
                state.remove(object.name(), revision(&object));
            }
            Ok(Some(Event::Init)) => {
                listed.clear();
                before = state.names();
            }
            Ok(Some(Event::InitApply(object))) => {
                listed.insert(object.name().to_owned());
                // A restored backup brings back objects that were gone.
                state.lock().gone.remove(object.uid());
                state.put(object);
            }
            Ok(Some(Event::InitDone)) => {
                // A new list reports no deletions. Objects that are not in it are gone.
                for gone in before.difference(&listed) {
                    state.remove(gone, u64::MAX);
                }
                ready.send_replace(true);
            }
            Ok(None) => return,
            Err(error) => tracing::debug!(%kind, %error, "watch interrupted"),
        }
    }
}
