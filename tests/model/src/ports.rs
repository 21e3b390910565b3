//! The product's ports over a [`World`]. Every mutating call is one effect, which may go wrong as planned.

#![allow(
    clippy::result_large_err,
    reason = "the ports' own error types, as the adapters return them"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    domain::{
        failure::ReconcileError,
        goal,
        hardware::Hardware,
        identity::BiosUuid,
        names::{DatastorePath, MoRef, ObjectKey},
        node::NodeFacts,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    placement::Placer,
    ports::{
        clock::Clock,
        cluster::{
            AgentFilter, AgentMachineFilter, AgentPatch, Cluster, ClusterError, ClusterErrorKind,
            ClusterResult, NetworkReader, Notice, OwnPatch, Precondition, SecretRead, View,
        },
        effect::{Effect, EffectKind},
        nodes::HostedNodes,
        permit::Permit,
        sessions::{Sessions, Waker},
        slots::{Slots, turns::Limits},
        vcenter::{
            ByteStream, CreateVm, Datastores, Drives, Ended, FileInfo, FolderSight, Inventory,
            Listener, Machines, MarkedVm, News, Place, PlaceCandidates, PlaceRequest,
            Recommendation, Survey, TaskEnd, TaskRef, Tasks, VCenter, VcErrorKind, VcResult, VmAt,
            VmChange, VmObservation,
        },
    },
};
use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentStatus},
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    names::AGENT_MACHINE_LABEL,
    pool::{RefusedCredentials, VsphereAgentPool, VsphereAgentPoolStatus},
};
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tokio::sync::Notify;

use crate::{
    objects::{self, CLUSTER_ID, SERVER, STRANGER},
    shared::Shared,
    upstream::{self, Deed},
    world::{
        Fault, Harm, THEN, World, arcs, bump,
        form::bare,
        key,
        vcenter::{Late, Order, vc_error},
    },
};

/// What goes wrong with one effect of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blow {
    /// The effect is carried out, and the operator dies before it gets the answer.
    DiesAfter,
    /// The request is lost.
    Lost,
    /// The effect is carried out, and the answer is lost.
    Unheard,
    /// The effect is carried out later, and no answer comes.
    Late,
    /// The effect is carried out twice.
    Twice,
}

impl Blow {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::DiesAfter,
        Self::Lost,
        Self::Unheard,
        Self::Late,
        Self::Twice,
    ];

    /// The fault that it counts as.
    pub const fn fault(self) -> Fault {
        match self {
            Self::DiesAfter => Fault::Crash,
            Self::Lost => Fault::Loss,
            Self::Unheard | Self::Late => Fault::Unknown,
            Self::Twice => Fault::Duplicate,
        }
    }
}

/// The plan of one pass, and its result.
#[derive(Debug, Default)]
struct Script {
    blow: Option<(usize, Blow)>,
    between: Option<(usize, Deed)>,
    effects: Vec<EffectKind>,
}

struct Inner {
    world: Mutex<World>,
    script: Mutex<Script>,
    died: Notify,
    pools: Vec<Arc<VsphereAgentPool>>,
    monotonic: Duration,
}

/// The ports.
#[derive(Clone)]
pub struct Ports(Arc<Inner>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(kind: ClusterErrorKind) -> ClusterError {
    ClusterError {
        kind,
        operation: "write",
        subject: "it".to_owned(),
        message: "as told".to_owned(),
    }
}

/// An error that does not show what happened.
trait NoAnswer {
    fn no_answer() -> Self;
}

impl NoAnswer for ClusterError {
    fn no_answer() -> Self {
        refused(ClusterErrorKind::Unavailable)
    }
}

impl NoAnswer for agent_forge_actors::ports::vcenter::VcError {
    fn no_answer() -> Self {
        vc_error(VcErrorKind::NoAnswer)
    }
}

impl Ports {
    /// Ports over `world` for one pass. It sees everything as `age` old, and one effect goes wrong.
    pub fn new(
        world: World,
        pools: &[Arc<VsphereAgentPool>],
        age: Duration,
        blow: Option<(usize, Blow)>,
    ) -> Self {
        Self(Arc::new(Inner {
            world: Mutex::new(world),
            script: Mutex::new(Script {
                blow,
                ..Script::default()
            }),
            died: Notify::new(),
            pools: pools.to_vec(),
            monotonic: THEN + age,
        }))
    }

    /// Another part of the world acts right before that effect: after the operator looked, and before its request
    /// arrives.
    #[must_use]
    pub fn between(self, at: usize, deed: Deed) -> Self {
        lock(&self.0.script).between = Some((at, deed));
        self
    }

    /// Waits until the operator has to die.
    pub async fn died(&self) {
        self.0.died.notified().await;
    }

    /// The world after the pass, and the effects that it tried.
    pub fn end(&self) -> (World, Vec<EffectKind>) {
        let world = lock(&self.0.world).clone();
        (world, std::mem::take(&mut lock(&self.0.script).effects))
    }

    fn with<T>(&self, f: impl FnOnce(&mut World) -> T) -> T {
        f(&mut lock(&self.0.world))
    }

    fn blow(&self, kind: EffectKind) -> Option<Blow> {
        let mut script = lock(&self.0.script);
        let n = script.effects.len();
        script.effects.push(kind);
        if let Some((_, deed)) = script.between.take_if(|(at, _)| *at == n) {
            self.with(|w| upstream::act(w, &deed));
        }
        script.blow.filter(|(at, _)| *at == n).map(|(_, blow)| blow)
    }

    async fn act<T, E: NoAnswer>(
        &self,
        kind: EffectKind,
        order: Option<(&Order, &str)>,
        deed: impl Fn(&mut World) -> Result<T, E>,
    ) -> Result<T, E> {
        match self.blow(kind) {
            None => self.with(deed),
            Some(Blow::Lost) => Err(E::no_answer()),
            Some(Blow::Unheard) => {
                let _ = self.with(deed);
                Err(E::no_answer())
            }
            Some(Blow::Late) => {
                let late = order.map(|(order, by)| Late {
                    order: order.clone(),
                    by: by.to_owned(),
                    looks: 0,
                });
                self.with(|w| w.late = late.map(Shared::new));
                Err(E::no_answer())
            }
            Some(Blow::Twice) => {
                let _ = self.with(&deed);
                self.with(deed)
            }
            Some(Blow::DiesAfter) => {
                let _ = self.with(deed);
                self.0.died.notify_one();
                std::future::pending().await
            }
        }
    }

    async fn order(&self, effect: &Effect, order: Order) -> VcResult<TaskRef> {
        let by = effect.subject.name();
        self.act(effect.kind, Some((&order, by)), |w| w.obey(&order, by))
            .await
    }
}

fn named<'a, K: ResourceExt + std::fmt::Debug>(
    all: &'a mut [Shared<K>],
    at: &Precondition,
    lenient: bool,
) -> ClusterResult<&'a mut Shared<K>> {
    let object = all
        .iter_mut()
        .find(|o| o.name_any() == at.key.name)
        .ok_or_else(|| refused(ClusterErrorKind::NotFound))?;
    let same = object.uid().as_deref() == Some(at.uid.as_str())
        && object.resource_version().as_deref() == Some(at.resource_version.as_str());
    if same || lenient {
        Ok(object)
    } else {
        Err(refused(ClusterErrorKind::Conflict))
    }
}

fn found<K: ResourceExt + Clone>(all: &[Shared<K>], key: &ObjectKey) -> Option<K> {
    let object = all.iter().find(|o| o.name_any() == key.name);
    object.map(Shared::as_ref_clone)
}

/// No pool of the model asks for Nodes.
#[async_trait]
impl HostedNodes for Ports {
    async fn nodes(&self, _: &secrecy::SecretString) -> Result<Vec<NodeFacts>, ReconcileError> {
        Ok(Vec::new())
    }
}

impl Waker for Ports {
    fn wake_pool(&self, _: &ObjectKey, _: &'static str) {}
}

impl Clock for Ports {
    fn wall(&self) -> Timestamp {
        objects::at(600 + 3600 * i64::from(self.with(|w| w.hours)))
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic
    }
}

impl View for Ports {
    fn ready(&self) -> bool {
        true
    }
    fn cluster_id(&self) -> String {
        CLUSTER_ID.to_owned()
    }
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        self.0.pools.clone()
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        let mut all = self.0.pools.iter();
        all.find(|p| ObjectKey::of(p.as_ref()) == *key).cloned()
    }
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        let mut all = self.all_children();
        all.retain(|c| c.spec.pool_ref.name == pool.name);
        all
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        let mut all = self.all_children().into_iter();
        all.find(|c| c.name_any() == key.name)
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.with(|w| arcs(w.shown_children()))
    }
    fn agent_machines(&self, _: &str) -> Vec<Arc<AgentMachine>> {
        self.with(|w| arcs(w.shown_agent_machines()))
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        self.agent_machines("")
    }
    fn machines(&self, _: &str) -> Vec<Arc<MachineFacts>> {
        self.with(|w| arcs(w.shown_machines()))
    }
    fn agents(&self, _: &str) -> Vec<Arc<Agent>> {
        self.with(|w| arcs(w.shown_agents()))
    }
    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>> {
        let mut there = InfraEnv::default();
        there.metadata.namespace = Some(key.namespace.clone());
        there.metadata.name = Some(key.name.clone());
        Some(Arc::new(there))
    }
    fn namespace_grant(&self, _: &str) -> Option<String> {
        Some("*".to_owned())
    }
}

#[async_trait]
impl Cluster for Ports {
    async fn live_child(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgent>> {
        Ok(self.with(|w| found(&w.children, key)))
    }
    async fn live_pool(&self, key: &ObjectKey) -> ClusterResult<Option<VsphereAgentPool>> {
        Ok(self.pool(key).map(|pool| pool.as_ref().clone()))
    }
    async fn live_pausables(
        &self,
        _: PausableKind,
        _: &str,
        _: Option<&str>,
    ) -> ClusterResult<Vec<Pausable>> {
        Ok(Vec::new())
    }
    async fn live_children(
        &self,
        pool: &ObjectKey,
        _: &BTreeSet<String>,
    ) -> ClusterResult<Vec<VsphereAgent>> {
        Ok(self.with(|w| {
            let own = |c: &&Shared<VsphereAgent>| c.spec.pool_ref.name == pool.name;
            let all = w.children.iter().filter(own);
            all.map(Shared::as_ref_clone).collect()
        }))
    }
    async fn live_agent(&self, key: &ObjectKey) -> ClusterResult<Option<Agent>> {
        Ok(self.with(|w| found(&w.agents, key)))
    }
    async fn live_agents(&self, _: &str, wanted: AgentFilter) -> ClusterResult<Vec<Agent>> {
        Ok(self.with(|w| {
            let all = w.agents.iter().map(Shared::as_ref_clone);
            all.filter(|a| wanted(a)).collect()
        }))
    }
    async fn live_agent_machine(&self, key: &ObjectKey) -> ClusterResult<Option<AgentMachine>> {
        Ok(self.with(|w| found(&w.agent_machines, key)))
    }
    async fn live_agent_machines(
        &self,
        wanted: AgentMachineFilter,
    ) -> ClusterResult<Vec<AgentMachine>> {
        Ok(self.with(|w| {
            let all = w.agent_machines.iter().map(Shared::as_ref_clone);
            all.filter(|am| wanted(am)).collect()
        }))
    }
    async fn live_infra_env(&self, _: &ObjectKey) -> ClusterResult<Option<InfraEnv>> {
        Ok(None)
    }
    async fn live_network_configs(
        &self,
        _: &str,
        _: usize,
        _: NetworkReader<'_>,
    ) -> ClusterResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }
    async fn live_hosted_cluster(&self, _: &ObjectKey) -> ClusterResult<bool> {
        Ok(true)
    }
    async fn live_machines(&self, _: &str) -> ClusterResult<Vec<MachineFacts>> {
        Ok(self.with(|w| w.machines.iter().map(Shared::as_ref_clone).collect()))
    }
    async fn secret(&self, _: &ObjectKey) -> ClusterResult<Option<SecretRead>> {
        Ok(None)
    }
    async fn config_map(&self, _: &ObjectKey) -> ClusterResult<Option<BTreeMap<String, String>>> {
        Ok(None)
    }
    async fn hold_secret(&self, _: &Effect, _: &ObjectKey, _: &str) -> ClusterResult<bool> {
        unreachable!("the Secret is held")
    }
    async fn release_secret(&self, _: &Effect, _: &ObjectKey, _: &str) -> ClusterResult<()> {
        unreachable!("the Secret is held")
    }
    async fn create_child(
        &self,
        effect: &Effect,
        child: &VsphereAgent,
    ) -> ClusterResult<VsphereAgent> {
        self.act(effect.kind, None, |w| {
            let name = child.name_any();
            if w.children.iter().any(|c| c.name_any() == name) {
                return Err(refused(ClusterErrorKind::AlreadyExists));
            }
            let wanted = goal::wanted_by(child);
            let same = |c: &Shared<VsphereAgent>| wanted.is_some() && goal::wanted_by(c) == wanted;
            if w.children.iter().any(same) {
                w.harmed(Harm::Doubled);
            }
            let n = w.count_born(&name, |(children, _)| children);
            let mut made = child.clone();
            made.metadata.uid = Some(format!("va-{name}-{n}"));
            made.metadata.resource_version = Some("1".to_owned());
            made.metadata.generation = Some(1);
            // The present time, except in worlds in which hours pass.
            made.metadata.creation_timestamp = Some(Time(objects::at(600)));
            w.children.push(Shared::new(made.clone()));
            w.children.sort_by_key(|c| c.name_any());
            Ok(made)
        })
        .await
    }
    async fn patch_child(
        &self,
        permit: &Permit<Precondition>,
        patch: &OwnPatch,
    ) -> ClusterResult<()> {
        self.act(permit.effect().kind, None, |w| {
            named(&mut w.children, permit.of(), w.lenient)?.change(|child| {
                merge(child.labels_mut(), &patch.labels);
                merge(child.annotations_mut(), &patch.annotations);
                if let Some(goal) = &patch.goal {
                    child.spec.goal = Some(goal.clone());
                }
                if let Some((pool, owners)) = &patch.pool {
                    child.spec.pool_ref.name.clone_from(pool);
                    child.metadata.owner_references = Some(owners.clone());
                }
                if let Some(finalizers) = &patch.finalizers {
                    child.metadata.finalizers = Some(finalizers.clone());
                }
                bump(child);
            });
            w.reap();
            Ok(())
        })
        .await
    }
    async fn delete_child(&self, permit: &Permit<Precondition>) -> ClusterResult<()> {
        self.act(permit.effect().kind, None, |w| {
            named(&mut w.children, permit.of(), w.lenient)?.change(|child| {
                let now = Time(objects::at(600));
                child.metadata.deletion_timestamp.get_or_insert(now);
                bump(child);
            });
            w.reap();
            Ok(())
        })
        .await
    }
    async fn child_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &VsphereAgentStatus,
    ) -> ClusterResult<String> {
        self.act(effect.kind, None, |w| {
            let child = named(&mut w.children, at, w.lenient)?;
            Ok(child.change(|child| {
                let mut status = status.clone();
                bare(&mut status);
                if child.status.as_ref() == Some(&status) {
                    return child.resource_version().unwrap_or_default();
                }
                child.status = Some(status);
                bump(child)
            }))
        })
        .await
    }
    async fn patch_pool(&self, _: &Effect, _: &Precondition, _: &OwnPatch) -> ClusterResult<()> {
        unreachable!("the pool stays")
    }
    async fn pool_status(
        &self,
        _: &Effect,
        _: &Precondition,
        _: &VsphereAgentPoolStatus,
    ) -> ClusterResult<String> {
        unreachable!("the pool stays")
    }
    async fn pin(
        &self,
        effect: &Effect,
        at: &Precondition,
        label: &str,
        value: &str,
    ) -> ClusterResult<()> {
        self.act(effect.kind, None, |w| {
            named(&mut w.agent_machines, at, w.lenient)?.change(|am| {
                let selector = am.spec.agent_label_selector.get_or_insert_default();
                let labels = selector.match_labels.get_or_insert_default();
                labels.insert(label.to_owned(), value.to_owned());
                bump(am);
            });
            Ok(())
        })
        .await
    }
    async fn patch_agent(&self, permit: &Permit<AgentPatch>) -> ClusterResult<()> {
        let patch = permit.of();
        let at = Precondition {
            key: patch.key.clone(),
            uid: patch.uid.clone(),
            resource_version: patch.resource_version.clone(),
        };
        self.act(permit.effect().kind, None, |w| {
            if patch.key.name == STRANGER {
                w.harmed(Harm::ForeignTouched);
            }
            let agent = named(&mut w.agents, &at, w.lenient)?;
            agent.change(|agent| {
                merge(agent.labels_mut(), &patch.labels);
                merge(agent.annotations_mut(), &patch.annotations);
                merge(&mut agent.spec.node_labels, &patch.node_labels);
                agent.spec.approved = patch.approved.unwrap_or(agent.spec.approved);
                if patch.hostname.is_some() {
                    agent.spec.hostname.clone_from(&patch.hostname);
                }
                if let Some(role) = &patch.role {
                    agent.spec.role.clone_from(role);
                }
                bump(agent);
            });
            let agent = agent.arc();
            let promised = patch.labels.get(AGENT_MACHINE_LABEL);
            if w.lives && promised.is_some_and(Option::is_some) {
                let owner = w.vm_of(&agent).and_then(|vm| vm.marker.as_ref());
                if owner.is_none_or(|owner| owner.name != permit.effect().subject.name()) {
                    w.harmed(Harm::OthersTouched);
                }
            }
            if patch.approved == Some(true) && !crate::verdict::may_be_approved(w, &agent) {
                w.harmed(Harm::LateApproved);
            }
            Ok(())
        })
        .await
    }
    async fn delete_agent(&self, permit: &Permit<Precondition>) -> ClusterResult<()> {
        let at = permit.of();
        self.act(permit.effect().kind, None, |w| {
            let agent = named(&mut w.agents, at, w.lenient)?.arc();
            if at.key.name == STRANGER {
                w.harmed(Harm::ForeignTouched);
            }
            if agent.is_claimed_or_bound() {
                w.harmed(Harm::ServingDestroyed);
            }
            w.agents.retain(|a| key(a.arc().as_ref()) != at.key);
            Ok(())
        })
        .await
    }
    fn notify(&self, _: Notice) {}
}

fn merge(all: &mut BTreeMap<String, String>, patch: &BTreeMap<String, Option<String>>) {
    for (key, value) in patch {
        match value {
            Some(value) => all.insert(key.clone(), value.clone()),
            None => all.remove(key),
        };
    }
}

#[async_trait]
impl Sessions for Ports {
    async fn session(&self, _: &ObjectKey, _: &str) -> Result<Arc<dyn VCenter>, ReconcileError> {
        Ok(Arc::new(self.clone()))
    }

    async fn refusal(&self, _: &ObjectKey) -> Option<RefusedCredentials> {
        None
    }
}

#[async_trait]
impl Placer for Ports {
    async fn place(
        &self,
        _: Arc<dyn VCenter>,
        _: Effect,
        request: PlaceRequest,
    ) -> Result<Place, ReconcileError> {
        Ok(Place {
            datacenter: MoRef::new("Datacenter", "datacenter-1"),
            folder: MoRef::new("Folder", "group-v1"),
            resource_pool: MoRef::new("ResourcePool", "resgroup-1"),
            datastore: ("ds1".to_owned(), MoRef::new("Datastore", "id-ds1")),
            host: None,
            network: request.network,
        })
    }
}

#[async_trait]
impl VCenter for Ports {
    fn server(&self) -> &str {
        SERVER
    }
    fn instance(&self) -> Option<String> {
        Some("5d1c0d6e-0000-4000-8000-00000000c0de".to_owned())
    }
    fn insecure(&self) -> bool {
        false
    }
    fn login_refused(&self) -> bool {
        false
    }
    async fn reachable(&self) -> VcResult<()> {
        Ok(())
    }
    async fn logout(&self, _: &Effect) {}
}

#[async_trait]
impl Machines for Ports {
    async fn find_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>> {
        Ok(self.with(|w| w.look(uuid)))
    }
    async fn observe(&self, vm: &MoRef) -> VcResult<Option<VmObservation>> {
        Ok(self.with(|w| {
            let mut all = w.vms.iter();
            all.find(|v| v.moref == *vm).map(Shared::as_ref_clone)
        }))
    }
    async fn create_vm(&self, effect: &Effect, vm: &CreateVm) -> VcResult<TaskRef> {
        self.order(effect, Order::Create(Box::new(vm.clone())))
            .await
    }
    async fn configure<'a>(
        &'a self,
        permit: &Permit<VmAt>,
        change: &VmChange,
    ) -> VcResult<Ended<'a>> {
        let order = Order::Configure(permit.of().clone(), Box::new(change.clone()));
        let task = self.order(permit.effect(), order);
        let task = task.await?;
        Ok(Box::pin(async move { self.wait(&task).await.flatten() }))
    }
    async fn reset(&self, _: &Permit<VmAt>) -> VcResult<TaskRef> {
        unreachable!("no VM boots its ISO again here")
    }
    async fn power_on(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let order = Order::On(permit.of().moref.clone());
        self.order(permit.effect(), order).await
    }
    async fn power_off(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let order = Order::Off(permit.of().moref.clone());
        self.order(permit.effect(), order).await
    }
    async fn destroy(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let order = Order::Destroy(permit.of().moref.clone());
        self.order(permit.effect(), order).await
    }
    async fn attach_tags(&self, _: &Effect, _: &MoRef, _: &[String]) -> VcResult<()> {
        unreachable!("no tags here")
    }
}

#[async_trait]
impl Inventory for Ports {
    async fn place_candidates(&self, _: &PlaceRequest) -> VcResult<PlaceCandidates> {
        unreachable!("the placer does")
    }
    async fn ensure_folder(&self, _: &Effect, _: &MoRef, _: &str) -> VcResult<MoRef> {
        unreachable!("the placer does")
    }
    async fn recommend_datastores(
        &self,
        _: &PlaceCandidates,
        _: &MoRef,
        _: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        unreachable!("the placer does")
    }
    async fn survey(&self) -> VcResult<Arc<Survey>> {
        Ok(self.with(|w| {
            let marked = |v: &Shared<VmObservation>| {
                Some(MarkedVm {
                    moref: v.moref.clone(),
                    name: v.name.clone(),
                    marker: v.marker.clone()?,
                    power: v.power,
                    has_boot_order: !v.boot_order.is_empty(),
                    marks: v.marks,
                    num_cpus: v.hardware.num_cpus,
                    memory_mib: v.hardware.memory_mib,
                })
            };
            let marked = w.vms.iter().filter_map(marked).collect();
            Arc::new(Survey {
                marked,
                bare: Vec::new(),
            })
        }))
    }
    async fn folder_sight(&self, _: &MoRef, _: &MoRef) -> VcResult<FolderSight> {
        Ok(FolderSight::Visible)
    }
}

#[async_trait]
impl Datastores for Ports {
    async fn datacenter(&self, _: &str) -> VcResult<MoRef> {
        unreachable!("no files here")
    }
    async fn stat(&self, _: &MoRef, _: &DatastorePath) -> VcResult<Option<u64>> {
        unreachable!("no files here")
    }
    async fn list(&self, _: &MoRef, _: &DatastorePath) -> VcResult<Option<Vec<FileInfo>>> {
        unreachable!("no files here")
    }
    async fn make_directory(&self, _: &Effect, _: &MoRef, _: &DatastorePath) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn upload(
        &self,
        _: &Effect,
        _: &MoRef,
        _: &DatastorePath,
        _: u64,
        _: ByteStream,
    ) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn move_file(
        &self,
        _: &Effect,
        _: &MoRef,
        _: &DatastorePath,
        _: &DatastorePath,
    ) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn delete_file(&self, _: &Effect, _: &MoRef, _: &DatastorePath) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn drives(&self) -> VcResult<Drives> {
        unreachable!("no files here")
    }
}

impl News for Ports {
    /// It tells nothing.
    fn follow(&self, _vms: BTreeSet<String>, _listener: Listener) {}
}

#[async_trait]
impl Tasks for Ports {
    fn slots(&self) -> Slots {
        Slots::new(Limits::tasks(8))
    }
    async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        let created = Some(&task.0).filter(|t| t.starts_with("vm-"));
        let result = created.map(|id| MoRef::new("VirtualMachine", id));
        Ok(Ok(TaskEnd::Success(result)))
    }
}
