//! Builders for tests: the objects of one small hosted cluster, each as it usually is. A test says what differs.

pub mod nodes;
pub mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    agent::{Goal, NextLife, Placement, VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::{ConditionStatus, ConditionUpdate, READY, Reason, set_condition},
    external::{
        ForeignCondition, NamespacedName,
        agent::{
            AGENT_MACHINE_REF_LABEL, AGENT_MACHINE_REF_NAMESPACE_ANNOTATION, Agent, AgentSpec,
            AgentStatus, BOUND, CONNECTED, DebugInfo, INFRA_ENV_LABEL, Interface, Inventory,
            SPEC_SYNCED, SystemVendor, VALIDATED,
        },
        agent_machine::{
            AGENT_RESERVED, AgentMachine, AgentMachineSpec, AgentMachineStatus, NO_SUITABLE_AGENTS,
            NODE_POOL_ANNOTATION, PROVIDER_FINALIZER,
        },
        infra_env::{InfraEnv, InfraEnvSpec, InfraEnvStatus, IsoDownloadUrl},
    },
    names::{AGENT_MACHINE_LABEL, CREATED_FOR_BUFFER, CREATED_FOR_LABEL, POOL_FINALIZER},
    pool::{AgentSpec as PoolAgentSpec, InfraEnvRef, ObjectNameRef, VsphereAgentPool},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time,
};
use kube::ResourceExt;

use crate::{
    demand::lending::{Lender, Offer},
    domain::{
        identity::BiosUuid,
        managed_vm::ManagedVm,
        marker::{Marker, MayServe},
        names::{MoRef, ObjectKey},
        sizes::Sizes,
        tally::Tally,
        template,
        upstream::MachineFacts,
    },
    placement::request,
    pool::{
        act,
        observed::{Group, Observed},
    },
    ports::{
        cluster::{AgentPatch, OwnPatch},
        vcenter::{PowerState, VmObservation},
    },
};

/// Namespace of pool, InfraEnv and Agents.
pub const NAMESPACE: &str = "demo";
/// Namespace of AgentMachines and Machines.
pub const CONTROL_PLANE: &str = "demo-demo";
/// Name of pool and NodePool.
pub const POOL: &str = "workers";
/// Identity of the management cluster.
pub const CLUSTER_ID: &str = "cluster";
/// When everything was made.
pub const BORN: i64 = 1_700_000_000;
/// How old everything is.
pub const AGE: i64 = 600;

/// What the vCenter of tests calls itself.
pub const INSTANCE: &str = "5d1c0d6e-0000-4000-8000-00000000c0de";

/// `value`, changed.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

/// Time at `seconds` after [`BORN`].
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(BORN + seconds).expect("in range")
}

/// Labels from pairs.
pub fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

/// A selector of exact labels and expressions (key, operator, values).
pub fn selector(exact: &[(&str, &str)], expressions: &[(&str, &str, &[&str])]) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels(exact)),
        match_expressions: Some(
            expressions
                .iter()
                .map(|(key, operator, values)| LabelSelectorRequirement {
                    key: (*key).to_owned(),
                    operator: (*operator).to_owned(),
                    values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
                })
                .collect(),
        ),
    }
}

/// Marks an object as being deleted.
pub fn delete<K: kube::Resource>(object: &mut K) {
    object.meta_mut().deletion_timestamp = Some(Time(at(AGE)));
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn born<K: kube::Resource>(mut object: K, namespace: &str, uid: String) -> K {
    let meta = object.meta_mut();
    meta.namespace = Some(namespace.to_owned());
    meta.uid = Some(uid);
    meta.resource_version = Some("1".to_owned());
    meta.creation_timestamp = Some(Time(at(0)));
    object
}

/// A pool of NodePool `name`, with our finalizer, that offers label `customer: example`.
pub fn pool(name: &str) -> VsphereAgentPool {
    let mut pool = VsphereAgentPool::new(name, Default::default());
    pool.spec.hosted_cluster_ref = ObjectNameRef {
        name: "demo".to_owned(),
    };
    pool.spec.node_pool_ref = ObjectNameRef {
        name: name.to_owned(),
    };
    pool.spec.infra_env_ref = InfraEnvRef {
        name: "infra".to_owned(),
        namespace: None,
    };
    pool.spec.control_plane_namespace = CONTROL_PLANE.to_owned();
    pool.spec.agent = PoolAgentSpec {
        labels: labels(&[("customer", "example")]),
        ..PoolAgentSpec::default()
    };
    pool.spec.vsphere.iso_datastore = "isos".to_owned();
    pool.metadata.finalizers = Some(vec![POOL_FINALIZER.to_owned()]);
    pool.metadata.generation = Some(1);
    born(pool, NAMESPACE, format!("pool-{name}"))
}

/// An InfraEnv with an ISO.
pub fn infra_env() -> InfraEnv {
    let mut infra = InfraEnv {
        metadata: named("infra"),
        spec: InfraEnvSpec::default(),
        status: None,
    };
    infra.status = Some(InfraEnvStatus {
        iso_download_url: Some(IsoDownloadUrl::new("https://images.example/byid/1/x.iso")),
        created_time: Some(Time(at(0))),
        ..InfraEnvStatus::default()
    });
    born(infra, NAMESPACE, "infra".to_owned())
}

/// A condition on an object of another controller.
pub fn condition(type_: &str, status: &str, reason: &str) -> ForeignCondition {
    ForeignCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        ..ForeignCondition::default()
    }
}

/// An AgentMachine of NodePool [`POOL`] that waits: owner Machine, provider's finalizer, `NoSuitableAgents`.
pub fn agent_machine(name: &str) -> AgentMachine {
    let mut am = AgentMachine {
        metadata: named(name),
        spec: AgentMachineSpec {
            agent_label_selector: Some(selector(&[("customer", "example")], &[])),
            ..AgentMachineSpec::default()
        },
        status: None,
    };
    am.metadata.annotations = Some(labels(&[(
        NODE_POOL_ANNOTATION,
        &format!("{NAMESPACE}/{POOL}"),
    )]));
    am.metadata.finalizers = Some(vec![PROVIDER_FINALIZER.to_owned()]);
    am.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "Machine".to_owned(),
        name: name.to_owned(),
        uid: format!("m-{name}"),
        ..OwnerReference::default()
    }]);
    am.status = Some(AgentMachineStatus {
        conditions: vec![condition(AGENT_RESERVED, "False", NO_SUITABLE_AGENTS)],
        ..AgentMachineStatus::default()
    });
    born(am, CONTROL_PLANE, format!("am-{name}"))
}

/// Gives an AgentMachine its Agent.
pub fn reserve(am: &mut AgentMachine, agent: &Agent) {
    let status = am.status.get_or_insert_default();
    status.agent_ref = Some(NamespacedName {
        name: agent.name_any(),
        namespace: agent.namespace().unwrap_or_default(),
    });
    status.conditions = vec![condition(AGENT_RESERVED, "True", "AgentReserved")];
}

/// The Machine of an AgentMachine of that name.
pub fn machine(name: &str) -> MachineFacts {
    MachineFacts {
        key: ObjectKey::new(CONTROL_PLANE, name),
        uid: format!("m-{name}"),
        deleting: false,
        paused: false,
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
    }
}

/// The VsphereAgent that the pool makes for the AgentMachine of that name.
pub fn child(name: &str) -> VsphereAgent {
    let made = act::child_object(&pool(POOL), &agent_machine(name), &machine(name), name);
    let mut made = born(made, NAMESPACE, format!("va-{name}"));
    made.metadata.generation = Some(1);
    made
}

/// MAC of the VM of that VsphereAgent.
pub fn mac(name: &str) -> String {
    let sum = name
        .bytes()
        .fold(0_u16, |a, b| a.wrapping_mul(31).wrapping_add(b.into()));
    let [hi, lo] = sum.to_be_bytes();
    format!("00:50:56:00:{hi:02x}:{lo:02x}")
}

/// Recorded identity and place of the VM of a VsphereAgent, before the first call to vCenter.
pub fn intent(child: &VsphereAgent, attempt: u32) -> VmStatus {
    let uid = child.uid().unwrap_or_default();
    VmStatus {
        name: child.name_any(),
        bios_uuid: Some(BiosUuid::derive(CLUSTER_ID, &uid, attempt).to_string()),
        attempt: i32::try_from(attempt).ok(),
        placement: Some(Placement {
            datacenter: Some("dc1".to_owned()),
            datacenter_ref: Some("datacenter-1".to_owned()),
            folder: Some("demo".to_owned()),
            folder_ref: Some("group-v1".to_owned()),
            resource_pool: Some("cluster/Resources".to_owned()),
            resource_pool_ref: Some("resgroup-1".to_owned()),
            datastore: Some("ds1".to_owned()),
            datastore_ref: Some("datastore-1".to_owned()),
            network: Some("VM Network".to_owned()),
            ..Placement::default()
        }),
        server: Some("vc.example".to_owned()),
        server_instance_uuid: Some(INSTANCE.to_owned()),
        ..VmStatus::default()
    }
}

/// What the VM of a VsphereAgent says of its guest, if it was made for what that names.
pub fn may_serve(child: &VsphereAgent) -> MayServe {
    let vm = crate::domain::managed_vm::ManagedVm::read(std::sync::Arc::new(child.clone()));
    MayServe {
        life: 1,
        machine: vm.offered_to().map(str::to_owned),
    }
}

/// What is recorded of a VM that runs.
pub fn running(child: &VsphereAgent) -> VmStatus {
    VmStatus {
        moref: Some(format!("vm-{}", child.name_any())),
        instance_uuid: Some(format!("instance-{}", child.name_any())),
        mac_addresses: vec![mac(&child.name_any())],
        power_state: Some("poweredOn".to_owned()),
        may_serve: Some(may_serve(child).to_string()),
        ..intent(child, 1)
    }
}

/// A VsphereAgent whose VM runs.
pub fn child_with_vm(name: &str) -> VsphereAgent {
    with(child(name), |c| {
        let vm = running(c);
        c.status = Some(VsphereAgentStatus {
            cluster_id: Some(CLUSTER_ID.to_owned()),
            vm: Some(vm),
            ..VsphereAgentStatus::default()
        });
    })
}

/// The VM of that VsphereAgent does not go on for that reason, as its actor says. `None`: it goes on.
pub fn obstruct(child: &mut VsphereAgent, reason: Option<Reason>) {
    let update = ConditionUpdate {
        type_: READY,
        status: ConditionStatus::from(reason.is_none()),
        reason: reason.as_ref().unwrap_or(&Reason::VmCreated),
        message: "",
        observed_generation: None,
    };
    let status = child.status.get_or_insert_default();
    set_condition(&mut status.conditions, &update, &Time(at(0)));
}

/// The pool moves the VsphereAgent into its buffer.
pub fn move_to_buffer(child: &mut VsphereAgent) {
    let read = crate::domain::managed_vm::ManagedVm::read(std::sync::Arc::new(child.clone()));
    patch(child, &act::into_buffer(&read, None));
}

/// A pool of the group that has these hosts in its buffer.
pub fn lender(world: &World, hosts: &[VsphereAgent]) -> Lender {
    let hardware = request::hardware(&world.pool).expect("hardware");
    let host = |child: &VsphereAgent| {
        let child = with(child.clone(), |c| {
            c.spec.pool_ref.name = "lender".to_owned();
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("a record").template = Some(template::record(&hardware));
        });
        Offer {
            agents: [ObjectKey::of(&agent_on(&child))].into(),
            child: ManagedVm::read(Arc::new(child)),
            left: None,
            refusal: None,
        }
    };
    Lender {
        key: ObjectKey::new(NAMESPACE, "lender"),
        refusal: None,
        hosts: hosts.iter().map(host).collect(),
    }
}

/// Changes the VsphereAgent by that patch.
pub fn patch(child: &mut VsphereAgent, patch: &OwnPatch) {
    merge(child.labels_mut(), &patch.labels);
    merge(child.annotations_mut(), &patch.annotations);
    if let Some(goal) = &patch.goal {
        child.spec.goal = Some(goal.clone());
    }
    if let Some(class) = &patch.class {
        child.spec.class.clone_from(class);
    }
    if let Some((pool, owners)) = &patch.pool {
        child.spec.pool_ref.name.clone_from(pool);
        child.metadata.owner_references = Some(owners.clone());
    }
}

fn merge(texts: &mut BTreeMap<String, String>, patch: &BTreeMap<String, Option<String>>) {
    for (key, value) in patch {
        match value {
            Some(value) => texts.insert(key.clone(), value.clone()),
            None => texts.remove(key),
        };
    }
}

/// The pool asks for that life of its first VM.
pub fn ask_for_life(child: &mut VsphereAgent, generation: i32) {
    let life = NextLife {
        attempt: 1,
        generation,
    };
    child.spec.goal.get_or_insert_default().life = Some(life);
}

/// A VsphereAgent in the buffer, whose VM runs.
pub fn buffered(name: &str) -> VsphereAgent {
    with(child_with_vm(name), |c| {
        let labels = c.labels_mut();
        labels.remove(AGENT_MACHINE_LABEL);
        labels.insert(CREATED_FOR_LABEL.to_owned(), CREATED_FOR_BUFFER.to_owned());
        c.annotations_mut().clear();
        c.spec.goal = Some(Goal::default());
        let says = may_serve(c).to_string();
        if let Some(vm) = c.status.as_mut().and_then(|s| s.vm.as_mut()) {
            vm.may_serve = Some(says);
        }
    })
}

/// The marker of a VsphereAgent's VM.
pub fn marker(child: &VsphereAgent, attempt: u32) -> Marker {
    Marker {
        cluster_id: CLUSTER_ID.to_owned(),
        namespace: NAMESPACE.to_owned(),
        name: child.name_any(),
        uid: child.uid().unwrap_or_default(),
        attempt,
    }
}

/// The VM of a VsphereAgent as vCenter shows it: ours, with the right boot order.
pub fn shown(child: &VsphereAgent, power: PowerState) -> VmObservation {
    use crate::ports::vcenter::BootDevice;
    let name = child.name_any();
    VmObservation {
        moref: MoRef::new("VirtualMachine", format!("vm-{name}")),
        bios_uuid: Some(BiosUuid::derive(
            CLUSTER_ID,
            &child.uid().unwrap_or_default(),
            1,
        )),
        instance_uuid: Some(format!("instance-{name}")),
        folder: Some(MoRef::new("Folder", "group-v1")),
        marker: Some(marker(child, 1)),
        may_serve: Some(may_serve(child)),
        generation: None,
        disk: None,
        change_version: None,
        marks: crate::domain::holds::VmMarks::default(),
        adopt: None,
        annotation: String::new(),
        power,
        connection_state: "connected".to_owned(),
        macs: crate::domain::identity::MacAddress::parse(&mac(&name))
            .into_iter()
            .collect(),
        disk_keys: vec![2000],
        cdroms: vec![],
        boot_order: vec![BootDevice::Disk(2000), BootDevice::Cdrom],
        vm_path: String::new(),
        tools: None,
        guest_address: None,
        hardware: crate::domain::hardware::ShownHardware::default(),
        guest_host: None,
        name,
    }
}

/// The Agent that registers from the VM of a VsphereAgent: discovered, free, not approved.
pub fn agent_on(child: &VsphereAgent) -> Agent {
    let recorded = child.status.as_ref().and_then(|s| s.vm.as_ref());
    let uuid = recorded
        .and_then(|vm| vm.bios_uuid.as_deref())
        .and_then(BiosUuid::parse)
        .expect("a recorded identity");
    let hex = uuid.to_string().replace('-', "");
    let pairs: Vec<String> = hex
        .as_bytes()
        .chunks(2)
        .map(|p| String::from_utf8_lossy(p).into_owned())
        .collect();
    let serial = format!("VMware-{}-{}", pairs[..8].join(" "), pairs[8..].join(" "));
    let mut agent = foreign_agent(&uuid.swapped().to_string());
    let vendor = SystemVendor {
        serial_number: Some(serial),
        product_name: Some("VMware20,1".to_owned()),
        manufacturer: Some("VMware, Inc.".to_owned()),
        is_virtual: Some(true),
    };
    let nic = |mac: String| Interface {
        name: None,
        mac_address: Some(mac),
    };
    let status = agent.status.get_or_insert_default();
    status.inventory = Some(Inventory {
        hostname: None,
        disks: Vec::new(),
        report_time: None,
        system_vendor: Some(vendor),
        interfaces: vec![
            nic("02:42:ac:11:00:02".to_owned()),
            nic(mac(&child.name_any()).to_uppercase().replace(':', "-")),
        ],
    });
    agent
}

/// The approval of an Agent in its present state.
pub fn approval(agent: &Agent) -> AgentPatch {
    AgentPatch {
        approved: Some(true),
        ..AgentPatch::of(agent)
    }
}

/// Changes `agent` as the API server does on that patch.
pub fn patch_agent(agent: &mut Agent, patch: &AgentPatch) {
    let merge = |all: &mut BTreeMap<String, String>, patch: &BTreeMap<String, Option<String>>| {
        for (key, value) in patch {
            match value {
                Some(value) => all.insert(key.clone(), value.clone()),
                None => all.remove(key),
            };
        }
    };
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
}

/// A free Agent that passes its checks and is not approved.
pub fn foreign_agent(name: &str) -> Agent {
    let mut agent = Agent {
        metadata: named(name),
        spec: AgentSpec::default(),
        status: None,
    };
    agent.metadata.labels = Some(labels(&[(INFRA_ENV_LABEL, "infra")]));
    agent.status = Some(AgentStatus {
        debug_info: Some(DebugInfo {
            state: Some("known-unbound".to_owned()),
            state_info: None,
        }),
        conditions: vec![
            condition(BOUND, "False", "Unbound"),
            condition(CONNECTED, "True", "AgentIsConnected"),
            condition(VALIDATED, "True", "ValidationsPassing"),
            condition(SPEC_SYNCED, "True", "SyncOK"),
        ],
        ..AgentStatus::default()
    });
    born(agent, NAMESPACE, format!("agent-{name}"))
}

/// Lets an AgentMachine claim an Agent, label, annotation and binding, as the provider does.
pub fn claim(agent: &mut Agent, am: &AgentMachine) {
    agent
        .labels_mut()
        .insert(AGENT_MACHINE_REF_LABEL.to_owned(), am.name_any());
    agent.annotations_mut().insert(
        AGENT_MACHINE_REF_NAMESPACE_ANNOTATION.to_owned(),
        am.namespace().unwrap_or_default(),
    );
    agent.spec.cluster_deployment_name = Some(NamespacedName {
        name: "demo".to_owned(),
        namespace: CONTROL_PLANE.to_owned(),
    });
    if let Some(status) = &mut agent.status {
        status.conditions = vec![condition(BOUND, "True", "Bound")];
    }
}

/// A world that one pool looks at.
#[derive(Clone, Debug)]
pub struct World {
    /// The pool.
    pub pool: VsphereAgentPool,
    /// Its neighbours.
    pub other_pools: Vec<VsphereAgentPool>,
    /// AgentMachines of the control plane namespace.
    pub agent_machines: Vec<AgentMachine>,
    /// Machines.
    pub machines: Vec<MachineFacts>,
    /// AgentMachines of other namespaces.
    pub elsewhere: Vec<AgentMachine>,
    /// VsphereAgents of the pool.
    pub children: Vec<VsphereAgent>,
    /// VsphereAgents of other pools, by the uid of the AgentMachine that they are for.
    pub made_by_others: BTreeMap<String, ObjectKey>,
    /// Agents.
    pub agents: Vec<Agent>,
    /// Names that exist in several control planes.
    pub ambiguous: BTreeSet<String>,
    /// Annotations `allow-pools-from`, by Namespace.
    pub grants: BTreeMap<String, String>,
    /// Other pools of the group.
    pub lenders: Vec<Lender>,
    /// Own hosts that another VsphereAgent has on record.
    pub half_moved: BTreeMap<String, ObjectKey>,
    /// Names that other pools have.
    pub taken_names: BTreeSet<String>,
    /// How long everything has been waiting or on offer.
    pub waited: Duration,
}

impl Default for World {
    fn default() -> Self {
        Self {
            pool: pool(POOL),
            other_pools: vec![],
            agent_machines: vec![],
            machines: vec![],
            elsewhere: vec![],
            children: vec![],
            made_by_others: BTreeMap::new(),
            agents: vec![],
            ambiguous: BTreeSet::new(),
            grants: BTreeMap::new(),
            lenders: vec![],
            half_moved: BTreeMap::new(),
            taken_names: BTreeSet::new(),
            waited: Duration::from_secs(5),
        }
    }
}

impl World {
    /// AgentMachines that wait, with their Machines.
    pub fn waiting(names: &[&str]) -> Self {
        Self {
            agent_machines: names.iter().map(|n| agent_machine(n)).collect(),
            machines: names.iter().map(|n| machine(n)).collect(),
            ..Self::default()
        }
    }

    /// One AgentMachine with Machine, VsphereAgent, running VM and its Agent (discovered, free).
    pub fn discovered(name: &str) -> Self {
        let child = child_with_vm(name);
        Self {
            agents: vec![agent_on(&child)],
            children: vec![child],
            ..Self::waiting(&[name])
        }
    }

    /// What the pool's pass is made from.
    pub fn observed(&self) -> Observed {
        let now = Duration::from_secs(1000);
        let since = now.saturating_sub(self.waited);
        let arcs = |all: &[VsphereAgentPool]| all.iter().cloned().map(Arc::new).collect();
        Observed {
            key: ObjectKey::of(&self.pool),
            pool: Arc::new(self.pool.clone()),
            sizes: Sizes::of(&Arc::new(self.pool.clone())),
            other_pools: arcs(&self.other_pools),
            agent_machines: self.agent_machines.iter().cloned().map(Arc::new).collect(),
            machines: self.machines.clone(),
            recorded_homes: BTreeMap::new(),
            choosers: self
                .agent_machines
                .iter()
                .chain(&self.elsewhere)
                .cloned()
                .map(Arc::new)
                .collect(),
            children: self
                .children
                .iter()
                .cloned()
                .map(|c| ManagedVm::read(Arc::new(c)))
                .collect(),
            made_by_others: self.made_by_others.clone(),
            matching: self
                .agents
                .iter()
                .map(|a| Tally::of(a, &self.pool.spec.agent.labels))
                .sum(),
            agents: self.agents.iter().cloned().map(Arc::new).collect(),
            foreign: Default::default(),
            infra_env_key: ObjectKey::new(NAMESPACE, "infra"),
            infra_env: Some(Arc::new(infra_env())),
            ambiguous_names: self.ambiguous.clone(),
            grants: self
                .grants
                .iter()
                .map(|(name, grant)| (name.clone(), Some(grant.clone())))
                .collect(),
            waiting_since: self
                .agent_machines
                .iter()
                .filter_map(|am| Some((am.uid()?, since)))
                .collect(),
            spare_since: self
                .children
                .iter()
                .filter_map(|c| Some((c.uid()?, since)))
                .collect(),
            pending: Default::default(),
            secret_namespaces: Vec::new(),
            secrets_due: true,
            now,
            wall: at(AGE),
            holds: Default::default(),
            was_stopped: false,
            group: Group {
                lenders: self.lenders.clone(),
                half_moved: self.half_moved.clone(),
                taken_names: self.taken_names.clone(),
                ..Group::default()
            },
            index: Default::default(),
        }
    }
}
