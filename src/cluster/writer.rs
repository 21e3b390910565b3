//! Live reads and every write to the API server. Only this module may call the writing methods of `kube::Api`. Each
//! write passes the effect gate, carries its precondition and has a time limit.
//!
//! Patch types used: JSON merge patch (metadata, Agents, AgentMachines), and PUT on the status subresources. There is
//! no server-side apply and no strategic merge.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    domain::{
        goal,
        names::ObjectKey,
        text,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::{
        cluster::{
            AgentFilter, AgentMachineFilter, AgentPatch, Cluster, ClusterError, ClusterErrorKind,
            ClusterResult, NetworkReader, Notice, OwnPatch, Precondition, SecretRead,
            SecretVersion,
        },
        effect::{Effect, Gate, Settled},
        permit::{Ask, Permit},
    },
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    agent::{Goal, VsphereAgentStatus},
    external::{
        agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv,
        nmstate_config::NMStateConfig,
    },
    names::ALLOW_POOLS_FROM_ANNOTATION,
    pool::VsphereAgentPoolStatus,
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
        Preconditions, ValidationDirective,
    },
    core::{NamespaceResourceScope, ObjectList, PartialObjectMeta},
};
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{Instrument as _, field::Empty};

use super::{
    client::REQUEST_TIMEOUT,
    definitions,
    events::EventSink,
    live_agents::{LiveAgents, Page},
    machines, pausables,
    refusals::Refusals,
    scope::{self, Scope},
    trim,
    watches::{AGENTS_PAGE, PAGE},
};
use crate::{deadline, shared_reads::SharedReads};

pub mod installers;

/// The writer.
pub struct Writer {
    client: Client,
    scope: Scope,
    gate: Arc<dyn Gate>,
    events: EventSink,
    write_within: Duration,
    refusals: Refusals,
    live_agents: LiveAgents,
    live_pools: SharedReads<(), Option<VsphereAgentPool>, ClusterError>,
    live_pausables: SharedReads<(), Vec<Pausable>, ClusterError>,
    /// The kinds that can pause pools, as discovery last showed them.
    pausable_kinds: Mutex<HashMap<PausableKind, ApiResource>>,
}

impl Writer {
    /// A writer on `client` that reads nothing outside `scope`. No write takes longer than `write_within`.
    #[must_use]
    pub fn new(
        client: Client,
        scope: Scope,
        gate: Arc<dyn Gate>,
        events: EventSink,
        write_within: Duration,
    ) -> Self {
        Self {
            client,
            scope,
            gate,
            events,
            write_within: write_within.min(REQUEST_TIMEOUT),
            refusals: Refusals::default(),
            live_agents: LiveAgents::default(),
            live_pools: SharedReads::default(),
            live_pausables: SharedReads::default(),
            pausable_kinds: Mutex::default(),
        }
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn read<T>(
        &self,
        operation: &'static str,
        subject: String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> ClusterResult<T> {
        bounded(Instant::now() + REQUEST_TIMEOUT, operation, subject, call).await
    }

    /// Refuses to read an object in a namespace that is not served, even if a status names it.
    fn served(&self, operation: &'static str, subject: &str, namespace: &str) -> ClusterResult<()> {
        if self.scope.serves(namespace) {
            return Ok(());
        }
        Err(ClusterError {
            kind: ClusterErrorKind::NotServed,
            operation,
            subject: subject.to_owned(),
            message: format!(
                "namespace {namespace} is not among --namespaces: add it, so that the operator can read it"
            ),
        })
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<PausableKind, ApiResource>> {
        let all = self.pausable_kinds.lock();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists objects that can pause pools. Discovery is asked once for each kind, and again when the kind is not there any more.
    async fn list_pausables(
        &self,
        kind: PausableKind,
        namespace: &str,
        name: Option<&str>,
    ) -> ClusterResult<Vec<Pausable>> {
        let subject = format!("{}s in {namespace}", kind.as_str());
        let params = match name {
            Some(name) => ListParams::default().fields(&format!("metadata.name={name}")),
            None => ListParams::default(),
        };
        let mut known = self.kinds().get(&kind).cloned();
        loop {
            let was_known = known.is_some();
            let resource = match known.take() {
                Some(resource) => resource,
                None => {
                    let find = pausables::served(&self.client, kind);
                    let Some(found) = self.read("discover", subject.clone(), find).await? else {
                        return Ok(Vec::new());
                    };
                    self.kinds().insert(kind, found.clone());
                    found
                }
            };
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &resource);
            let page = |from: ListParams| {
                let (api, fields) = (api.clone(), params.field_selector.clone());
                let params = ListParams {
                    field_selector: fields,
                    ..from
                };
                async move { api.list(&params).await }
            };
            let mut found = Vec::new();
            let keep = |object| found.push(pausables::facts(&object));
            match self.list((&subject, PAGE), page, keep).await {
                Ok(()) => return Ok(found),
                // That version is not served any more.
                Err(e) if e.kind == ClusterErrorKind::NotFound && was_known => {
                    self.kinds().remove(&kind);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads a list in pages of that many objects. `keep` takes each object before the next page is read.
    async fn list<K, F>(
        &self,
        (subject, most): (&str, u32),
        page: impl Fn(ListParams) -> F + Send,
        mut keep: impl FnMut(K) + Send,
    ) -> ClusterResult<()>
    where
        K: Clone + Send,
        F: Future<Output = kube::Result<ObjectList<K>>> + Send,
    {
        let mut params = ListParams::default().limit(most);
        loop {
            let read = page(params.clone());
            let list = self.read("list", subject.to_owned(), read).await?;
            let next = list.metadata.continue_.filter(|token| !token.is_empty());
            list.items.into_iter().for_each(&mut keep);
            let Some(next) = next else { return Ok(()) };
            params = params.continue_token(&next);
        }
    }

    async fn agents_page(&self, namespace: &str, from: Option<String>) -> ClusterResult<Page> {
        let api: Api<Agent> = self.api(namespace);
        let mut params = ListParams::default().limit(AGENTS_PAGE);
        params.continue_token = from;
        let subject = format!("Agents in {namespace}");
        let page = self.read("list", subject, api.list(&params)).await?;
        Ok(Page {
            agents: page.items,
            next: page.metadata.continue_.filter(|token| !token.is_empty()),
        })
    }

    async fn effect<'a, T>(
        &self,
        asks: impl Into<Ask<'a>>,
        operation: &'static str,
        subject: String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> ClusterResult<T> {
        // The time limit counts from before the gate is asked. So an admitted call ends before the Lease runs out.
        let end = Instant::now() + self.write_within;
        let asks = asks.into();
        let effect = asks.effect;
        let admitted = match asks.check() {
            Ok(()) => self.gate.admit(effect).await,
            outdated => outdated,
        };
        if let Err(hold) = admitted {
            let message = effect.held_back(&hold);
            return Err(ClusterError {
                kind: ClusterErrorKind::Held(Box::new(hold)),
                operation,
                subject,
                message,
            });
        }
        let result = bounded(end, operation, subject, call).await;
        self.gate.settled(
            effect,
            match &result {
                Ok(_) => Settled::Done,
                Err(e) if e.kind == ClusterErrorKind::Unavailable => Settled::Unknown,
                Err(_) => Settled::Refused,
            },
        );
        result
    }

    /// Like [`Self::effect`], for a write that is valid only for the version in `at`. If the server has refused a write
    /// for that version, the write is not sent again.
    async fn effect_at<'a, T>(
        &self,
        asks: impl Into<Ask<'a>>,
        at: &Precondition,
        operation: &'static str,
        subject: String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> ClusterResult<T> {
        let version = format!("{}/{}", at.uid, at.resource_version);
        if let Some(kind) = self.refusals.holds(&subject, &version) {
            let message = "the view still shows a version that was refused already".to_owned();
            return Err(ClusterError {
                kind,
                operation,
                subject,
                message,
            });
        }
        let result = self.effect(asks, operation, subject, call).await;
        if let Err(e) = &result
            && !at.resource_version.is_empty()
        {
            self.refusals.note(&e.subject, &version, &e.kind);
        }
        result
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that patches, behind the gate"
    )]
    async fn merge<'a, K>(
        &self,
        asks: impl Into<Ask<'a>>,
        at: &Precondition,
        mut patch: Value,
        field_validation: Option<ValidationDirective>,
    ) -> ClusterResult<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        patch["metadata"]["uid"] = json!(at.uid);
        if !at.resource_version.is_empty() {
            patch["metadata"]["resourceVersion"] = json!(at.resource_version);
        }
        let api: Api<K> = self.api(&at.key.namespace);
        let params = PatchParams {
            field_validation,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let call = api.patch_metadata(&at.key.name, &params, &patch);
        self.effect_at(asks, at, "patch", subject::<K>(&at.key), call)
            .await
            .map(|_| ())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that deletes, behind the gate"
    )]
    async fn delete<K>(&self, permit: &Permit<Precondition>) -> ClusterResult<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let at = permit.of();
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(at.uid.clone()),
            resource_version: Some(at.resource_version.clone()),
        });
        let api: Api<K> = self.api(&at.key.namespace);
        let result = self
            .effect_at(
                permit,
                at,
                "delete",
                subject::<K>(&at.key),
                api.delete(&at.key.name, &params),
            )
            .await;
        match result {
            Err(e) if e.kind == ClusterErrorKind::NotFound => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// PUT on the status subresource. The server takes the status, and ignores everything else except identity and
    /// version. Returns the new version, and the status as the server has it.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that writes status, behind the gate"
    )]
    async fn status<K>(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &impl Serialize,
    ) -> ClusterResult<(String, Value)>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let kind = ApiResource::erase::<K>(&());
        let mut object = DynamicObject::new(&at.key.name, &kind);
        object.metadata.namespace = Some(at.key.namespace.clone());
        object.metadata.uid = Some(at.uid.clone());
        object.metadata.resource_version = Some(at.resource_version.clone());
        let text = subject::<K>(&at.key);
        object.data = json!({ "status": status });
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &at.key.namespace, &kind);
        let params = PostParams::default();
        let call = api.replace_status(&at.key.name, &params, &object);
        let mut written = self
            .effect_at(effect, at, "update status", text, call)
            .await?;
        let version = written.resource_version().unwrap_or_default();
        Ok((version, written.data["status"].take()))
    }
}

/// Finalizers of Secrets. Only the metadata of a Secret is read, never its contents.
impl Writer {
    async fn secret_metadata(
        &self,
        key: &ObjectKey,
    ) -> ClusterResult<Option<PartialObjectMeta<Secret>>> {
        let api: Api<Secret> = self.api(&key.namespace);
        let call = api.get_metadata_opt(&key.name);
        self.read("get", subject::<Secret>(key), call).await
    }

    async fn secret_finalizers(
        &self,
        effect: &Effect,
        secret: &PartialObjectMeta<Secret>,
        finalizers: Vec<String>,
    ) -> ClusterResult<()> {
        let at = Precondition::of(secret);
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        self.merge::<Secret>(effect, &at, patch, None).await
    }
}

fn subject<K: Resource<DynamicType = ()>>(key: &ObjectKey) -> String {
    format!("{} {key}", K::kind(&()))
}

pub(super) async fn bounded<T>(
    end: Instant,
    operation: &'static str,
    subject: String,
    call: impl Future<Output = kube::Result<T>>,
) -> ClusterResult<T> {
    let span = tracing::info_span!(
        "k8s.request",
        otel.name = operation,
        otel.kind = "client",
        object = %subject,
        // The client fills these fields ([`super::called`]).
        http.request.method = Empty,
        http.response.status_code = Empty,
        server.address = Empty,
        server.port = Empty,
        url.scheme = Empty,
        otel.status_code = Empty,
        error.type = Empty,
    );
    let result = in_time(end, operation, subject, call)
        .instrument(span.clone())
        .await;
    if let Err(e) = &result {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", e.reason().as_str());
    }
    result
}

async fn in_time<T>(
    end: Instant,
    operation: &'static str,
    subject: String,
    call: impl Future<Output = kube::Result<T>>,
) -> ClusterResult<T> {
    let failed = |kind, message| {
        Err(ClusterError {
            kind,
            operation,
            subject,
            message,
        })
    };
    match deadline::until(end, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => failed(classify(&e), text::plain(&e.to_string())),
        Err(_) => failed(
            ClusterErrorKind::Unavailable,
            "no answer in time".to_owned(),
        ),
    }
}

fn classify(e: &kube::Error) -> ClusterErrorKind {
    match e {
        kube::Error::Api(s) => match (s.code, s.reason.as_str()) {
            (404, _) => ClusterErrorKind::NotFound,
            (409, "AlreadyExists") => ClusterErrorKind::AlreadyExists,
            (409, _) => ClusterErrorKind::Conflict,
            (401 | 403, _) => ClusterErrorKind::Forbidden,
            // Another object has that name. The API server answers so if the uid in a patch is not the object's uid.
            (422, _) if names_uid(s) => ClusterErrorKind::Conflict,
            (400 | 422, _) => ClusterErrorKind::Invalid,
            _ => ClusterErrorKind::Unavailable,
        },
        kube::Error::SerdeError(_) => ClusterErrorKind::Undecodable,
        _ => ClusterErrorKind::Unavailable,
    }
}

fn names_uid(status: &kube::core::Status) -> bool {
    let causes = status.details.as_ref().map(|d| d.causes.as_slice());
    causes
        .unwrap_or_default()
        .iter()
        .any(|c| c.field == "metadata.uid")
}

/// A merge patch that leaves nothing of an earlier goal. A field that a later release adds has to be named here.
fn whole(goal: &Goal) -> Value {
    let Goal {
        agent_machine,
        machine,
        life,
        before,
        pool,
    } = goal;
    let before = (!before.is_empty()).then_some(before);
    json!({
        "agentMachine": agent_machine, "machine": machine, "life": life, "before": before, "pool": pool
    })
}

fn metadata(patch: &OwnPatch) -> Value {
    let mut metadata = json!({});
    if !patch.labels.is_empty() {
        metadata["labels"] = json!(patch.labels);
    }
    if !patch.annotations.is_empty() {
        metadata["annotations"] = json!(patch.annotations);
    }
    if let Some(finalizers) = &patch.finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    json!({ "metadata": metadata })
}

/// What the operator takes from a Secret.
pub(crate) fn secret_read(secret: Secret) -> SecretRead {
    let version = SecretVersion {
        uid: secret.uid().unwrap_or_default(),
        resource_version: secret.resource_version().unwrap_or_default(),
    };
    let pools_from = secret.annotations().get(ALLOW_POOLS_FROM_ANNOTATION);
    let pools_from = pools_from.cloned();
    let data = secret.data.unwrap_or_default().into_iter();
    let data = data
        .filter_map(|(k, v)| Some((k, SecretString::from(String::from_utf8(v.0).ok()?))))
        .collect();
    SecretRead {
        version,
        pools_from,
        data,
    }
}

#[async_trait]
impl Cluster for Writer {
    async fn live_child(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgent>> {
        let api: Api<VsphereAgent> = self.api(&key.namespace);
        self.read("get", subject::<VsphereAgent>(key), api.get_opt(&key.name))
            .await
    }

    async fn live_pool(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgentPool>> {
        self.served("list", &subject::<VsphereAgentPool>(key), &key.namespace)?;
        let named = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let list = || async {
            let api: Api<VsphereAgentPool> = self.api(&key.namespace);
            let subject = subject::<VsphereAgentPool>(key);
            let list = self.read("list", subject, api.list(&named)).await?;
            Ok(list.items.into_iter().next())
        };
        self.live_pools.same(&key.to_string(), list).await
    }

    async fn live_pausables(
        &self,
        kind: PausableKind,
        namespace: &str,
        name: Option<&str>,
    ) -> ClusterResult<Vec<Pausable>> {
        let what = kind.as_str();
        self.served("list", &format!("{what}s in {namespace}"), namespace)?;
        let list = || self.list_pausables(kind, namespace, name);
        let key = format!("{what}/{namespace}/{}", name.unwrap_or_default());
        self.live_pausables.same(&key, list).await
    }

    async fn live_children(
        &self,
        pool: &ObjectKey,
        elsewhere: &BTreeSet<String>,
    ) -> ClusterResult<Vec<VsphereAgent>> {
        let mut found = Vec::new();
        for namespace in elsewhere.iter().chain([&pool.namespace]) {
            let api: Api<VsphereAgent> = self.api(namespace);
            let page = |params: ListParams| {
                let api = api.clone();
                async move { api.list(&params).await }
            };
            let keep = |mut child: VsphereAgent| {
                trim::metadata(&mut child);
                let is_its = [goal::user(&child), goal::maker(&child)].contains(pool);
                found.extend(is_its.then_some(child));
            };
            self.list((&format!("VsphereAgents of {pool}"), PAGE), page, keep)
                .await?;
        }
        Ok(found)
    }

    async fn live_agent(&self, key: &ObjectKey) -> ClusterResult<Option<Agent>> {
        let subject = subject::<Agent>(key);
        self.served("get", &subject, &key.namespace)?;
        let api: Api<Agent> = self.api(&key.namespace);
        self.read("get", subject, api.get_opt(&key.name)).await
    }

    async fn live_agents(&self, namespace: &str, wanted: AgentFilter) -> ClusterResult<Vec<Agent>> {
        self.served("list", &format!("Agents in {namespace}"), namespace)?;
        let page = |from| self.agents_page(namespace, from);
        self.live_agents.list(namespace, wanted, page).await
    }

    async fn live_agent_machine(&self, key: &ObjectKey) -> ClusterResult<Option<AgentMachine>> {
        let subject = subject::<AgentMachine>(key);
        self.served("get", &subject, &key.namespace)?;
        let api: Api<AgentMachine> = self.api(&key.namespace);
        self.read("get", subject, api.get_opt(&key.name)).await
    }

    async fn live_agent_machines(
        &self,
        wanted: AgentMachineFilter,
    ) -> ClusterResult<Vec<AgentMachine>> {
        let mut found = Vec::new();
        for part in self.scope.parts() {
            let api: Api<AgentMachine> = scope::api(&self.client, &part);
            let page = |params: ListParams| {
                let api = api.clone();
                async move { api.list(&params).await }
            };
            let keep = |mut am: AgentMachine| {
                trim::metadata(&mut am);
                found.extend(Some(am).filter(|am| wanted(am)));
            };
            self.list(("AgentMachines", AGENTS_PAGE), page, keep)
                .await?;
        }
        Ok(found)
    }

    async fn live_infra_env(&self, key: &ObjectKey) -> ClusterResult<Option<InfraEnv>> {
        let subject = subject::<InfraEnv>(key);
        self.served("get", &subject, &key.namespace)?;
        let api: Api<InfraEnv> = self.api(&key.namespace);
        self.read("get", subject, api.get_opt(&key.name)).await
    }

    async fn live_network_configs(
        &self,
        namespace: &str,
        most: usize,
        read: NetworkReader<'_>,
    ) -> ClusterResult<BTreeMap<String, String>> {
        let subject = format!("NMStateConfigs of namespace {namespace}");
        self.served("list", &subject, namespace)?;
        let api: Api<NMStateConfig> = self.api(namespace);
        let page = |params: ListParams| {
            let api = api.clone();
            async move { api.list(&params).await }
        };
        let mut found = BTreeMap::new();
        let keep = |config: NMStateConfig| {
            if found.len() <= most {
                found.extend(read(&config));
            }
        };
        match self.list((&subject, PAGE), page, keep).await {
            Err(e) if e.kind == ClusterErrorKind::NotFound => Ok(BTreeMap::new()),
            read => read.map(|()| found),
        }
    }

    async fn live_hosted_cluster(&self, key: &ObjectKey) -> ClusterResult<bool> {
        let subject = format!("HostedCluster {key}");
        self.served("list", &subject, &key.namespace)?;
        let find = pausables::served(&self.client, PausableKind::HostedCluster);
        let found = self.read("list", subject.clone(), find).await?;
        let kind = found.ok_or_else(|| ClusterError {
            kind: ClusterErrorKind::NotFound,
            operation: "list",
            subject: subject.clone(),
            message: "this API server serves no HostedClusters, so it is not known whether that one is gone"
                .to_owned(),
        })?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &kind);
        let named = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let list = self
            .read("list", subject, api.list_metadata(&named))
            .await?;
        Ok(!list.items.is_empty())
    }

    async fn live_machines(&self, namespace: &str) -> ClusterResult<Vec<MachineFacts>> {
        self.served("list", &format!("Machines in {namespace}"), namespace)?;
        let version = machines::served_version(&self.client).await?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &version.api_resource());
        let page = |params: ListParams| {
            let api = api.clone();
            async move { api.list_metadata(&params).await }
        };
        let mut found = Vec::new();
        let keep = |machine| found.push(machines::facts(&machine, version));
        self.list(
            (&format!("Machines in {namespace}"), AGENTS_PAGE),
            page,
            keep,
        )
        .await?;
        Ok(found)
    }

    async fn secret(&self, key: &ObjectKey) -> ClusterResult<Option<SecretRead>> {
        let api: Api<Secret> = self.api(&key.namespace);
        let found = self
            .read("get", subject::<Secret>(key), api.get_opt(&key.name))
            .await?;
        Ok(found.map(secret_read))
    }

    async fn config_map(&self, key: &ObjectKey) -> ClusterResult<Option<BTreeMap<String, String>>> {
        let api: Api<ConfigMap> = self.api(&key.namespace);
        let found = self
            .read("get", subject::<ConfigMap>(key), api.get_opt(&key.name))
            .await?;
        Ok(found.map(|map| map.data.unwrap_or_default()))
    }

    async fn hold_secret(
        &self,
        effect: &Effect,
        key: &ObjectKey,
        finalizer: &str,
    ) -> ClusterResult<bool> {
        let Some(secret) = self.secret_metadata(key).await? else {
            return Ok(false);
        };
        let mut finalizers = secret.finalizers().to_vec();
        if finalizers.iter().any(|f| f == finalizer) {
            return Ok(true);
        }
        if secret.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        finalizers.push(finalizer.to_owned());
        self.secret_finalizers(effect, &secret, finalizers).await?;
        Ok(true)
    }

    async fn release_secret(
        &self,
        effect: &Effect,
        key: &ObjectKey,
        finalizer: &str,
    ) -> ClusterResult<()> {
        let Some(secret) = self.secret_metadata(key).await? else {
            return Ok(());
        };
        let mut finalizers = secret.finalizers().to_vec();
        finalizers.retain(|f| f != finalizer);
        if finalizers.len() == secret.finalizers().len() {
            return Ok(());
        }
        match self.secret_finalizers(effect, &secret, finalizers).await {
            Err(e) if e.kind == ClusterErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that creates, behind the gate"
    )]
    async fn create_child(
        &self,
        effect: &Effect,
        child: &VsphereAgent,
    ) -> ClusterResult<VsphereAgent> {
        let key = ObjectKey::of(child);
        let api: Api<VsphereAgent> = self.api(&key.namespace);
        let params = PostParams::default();
        let call = api.create(&params, child);
        let subject = subject::<VsphereAgent>(&key);
        self.effect(effect, "create", subject, call).await
    }

    async fn patch_child(
        &self,
        permit: &Permit<Precondition>,
        patch: &OwnPatch,
    ) -> ClusterResult<()> {
        let mut body = metadata(patch);
        if let Some(goal) = &patch.goal {
            body["spec"]["goal"] = whole(goal);
        }
        if let Some(class) = &patch.class {
            body["spec"]["class"] = json!(class);
        }
        if let Some((name, owners)) = &patch.pool {
            body["spec"]["poolRef"] = json!({ "name": name });
            body["metadata"]["ownerReferences"] = json!(owners);
        }
        // A definition without the field refuses the whole patch. Dropped alone, the field would leave half of it.
        let strict = Some(ValidationDirective::Strict);
        let done = self.merge::<VsphereAgent>(permit, permit.of(), body, strict);
        done.await.map_err(definitions::explain)
    }

    async fn delete_child(&self, permit: &Permit<Precondition>) -> ClusterResult<()> {
        self.delete::<VsphereAgent>(permit).await
    }

    async fn child_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &VsphereAgentStatus,
    ) -> ClusterResult<String> {
        let (version, kept) = self.status::<VsphereAgent>(effect, at, status).await?;
        let sent = serde_json::to_value(status).unwrap_or_default();
        match definitions::forgotten(&sent, &kept) {
            None => Ok(version),
            Some(field) => Err(ClusterError {
                kind: ClusterErrorKind::Invalid,
                operation: "update status",
                subject: subject::<VsphereAgent>(&at.key),
                message: format!(
                    "the installed definition of VsphereAgent is older than this release, and the API server drops {field}: what only \
                     that field remembers is not done. Apply config/crd of this release"
                ),
            }),
        }
    }

    async fn patch_pool(
        &self,
        effect: &Effect,
        at: &Precondition,
        patch: &OwnPatch,
    ) -> ClusterResult<()> {
        self.merge::<VsphereAgentPool>(effect, at, metadata(patch), None)
            .await
    }

    async fn pool_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &VsphereAgentPoolStatus,
    ) -> ClusterResult<String> {
        let written = self.status::<VsphereAgentPool>(effect, at, status).await?;
        Ok(written.0)
    }

    async fn pin(
        &self,
        effect: &Effect,
        at: &Precondition,
        label: &str,
        value: &str,
    ) -> ClusterResult<()> {
        let patch =
            json!({ "spec": { "agentLabelSelector": { "matchLabels": { label: value } } } });
        // Only the operator writes this label, and the uid proves that it is the same object. A later version is fine,
        // and common: the agent provider writes the AgentMachine while it waits.
        let at = Precondition {
            resource_version: String::new(),
            ..at.clone()
        };
        self.merge::<AgentMachine>(effect, &at, patch, None).await
    }

    async fn patch_agent(&self, permit: &Permit<AgentPatch>) -> ClusterResult<()> {
        let patch = permit.of();
        let mut body = json!({ "metadata": {} });
        if !patch.labels.is_empty() {
            body["metadata"]["labels"] = json!(patch.labels);
        }
        if !patch.annotations.is_empty() {
            body["metadata"]["annotations"] = json!(patch.annotations);
        }
        let fields = [
            ("approved", patch.approved.map(Value::from)),
            ("hostname", patch.hostname.clone().map(Value::from)),
            ("role", patch.role.clone().map(Value::from)),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                body["spec"][field] = value;
            }
        }
        if !patch.node_labels.is_empty() {
            body["spec"]["nodeLabels"] = json!(patch.node_labels);
        }
        let at = Precondition {
            key: patch.key.clone(),
            uid: patch.uid.clone(),
            resource_version: patch.resource_version.clone(),
        };
        self.merge::<Agent>(permit, &at, body, None).await
    }

    async fn delete_agent(&self, permit: &Permit<Precondition>) -> ClusterResult<()> {
        self.delete::<Agent>(permit).await
    }

    fn notify(&self, notice: Notice) {
        self.events.record(notice);
    }
}

#[cfg(test)]
mod tests;
