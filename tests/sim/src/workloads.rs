//! Workloads: what happens to the operator in a run, besides faults.

use std::{fmt, time::Duration};

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_crds::conditions::Reason;
use anyhow::Result;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    kube::{kind, store::list},
    oracles, strangers,
    vcenter::model::Vm,
    world::{NAMESPACE, World},
};

mod away;
mod byoh;
mod controls;
mod disaster;
mod foreign;
mod guests;
mod lending;
mod mixed;
mod moves;
mod predecessor;
mod rogues;
mod site;
mod tenants;

/// What happens to the operator in a run, besides faults.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name that people read and plans are printed with.
    pub name: &'static str,
    /// What happens, in a phrase.
    pub text: &'static str,
    /// Nothing in the workload races, so faults do not change how many VMs it takes.
    pub exact: bool,
    /// Instances of the operator. Of two, the one with the lease acts.
    pub instances: usize,
    /// Plays the workload.
    pub run: for<'a> fn(&'a mut Run) -> BoxFuture<'a, Result<()>>,
}

/// A workload that is being played.
pub struct Run {
    /// Its world.
    pub world: World,
    /// The states at rest, in order.
    pub rests: Vec<Rest>,
    /// How long each rest may take, beyond the time that the causes of faults last.
    pub patience: Duration,
    /// When the workload's own part began. Faults hit only what comes after that.
    pub begins: Duration,
}

/// A moment at which nothing changes any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// What the workload waited for.
    pub name: &'static str,
    /// The state.
    pub picture: Vec<String>,
    /// How long that took.
    pub took: Duration,
}

/// The operator is at rest after this time without an effect.
const QUIET: Duration = Duration::from_secs(130);
/// Longer than any outage. A step before the first fault may have to wait for the end of one.
pub const ANY_OUTAGE: Duration = Duration::from_secs(7200);
/// How long a rest may take (`converges_in_time`): ten minutes after the last fault has ended.
const PATIENCE: Duration = Duration::from_secs(600);

impl Run {
    /// A run in that world.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self {
            world,
            rests: Vec::new(),
            patience: PATIENCE,
            begins: Duration::ZERO,
        }
    }

    /// Waits for `done`, then for quiet, and records the state.
    ///
    /// # Errors
    /// It does not happen in time.
    pub async fn rest(&mut self, name: &'static str, done: impl Fn(&World) -> bool) -> Result<()> {
        let began = self.world.director.now();
        let world = &self.world;
        world.patiently(name, self.patience, || done(world)).await?;
        let took = world.director.now().saturating_sub(began);
        self.quiet().await?;
        for mut failure in oracles::at_rest(&self.world) {
            failure.what = format!("at rest {name:?}: {}", failure.what);
            self.world.director.violated(failure);
        }
        let picture = oracles::picture(&self.world);
        self.world.director.line(|| format!("REST {name}"));
        self.rests.push(Rest {
            name,
            picture,
            took,
        });
        Ok(())
    }

    /// Waits for `done`, also through any outage.
    ///
    /// # Errors
    /// It does not happen in time.
    pub async fn waits(&self, what: &str, done: impl Fn(&World) -> bool) -> Result<()> {
        let (world, patience) = (&self.world, self.patience + ANY_OUTAGE);
        world.patiently(what, patience, || done(world)).await
    }

    /// Waits until nothing changes any more.
    ///
    /// # Errors
    /// It does not end.
    pub async fn quiet(&self) -> Result<()> {
        let director = &self.world.director;
        let began = director.now();
        let undisturbed = || {
            director.is_mended()
                && director.api_away_until().is_none()
                && !director.is_held()
                && !director.vcenter_is_away()
                && !uploads(&self.world)
                && !self
                    .world
                    .vcenter
                    .read(|i| i.vms.values().any(|vm| vm.busy))
        };
        loop {
            // The operator still has to notice outages that end in this time.
            let (before, calm) = (director.deeds(), undisturbed());
            tokio::time::sleep(QUIET).await;
            if calm && undisturbed() && director.deeds() == before {
                return Ok(());
            }
            anyhow::ensure!(
                director.now() < began + self.patience + director.causes() + QUIET,
                "effects do not end: {:?}",
                director.effects().last()
            );
        }
    }

    /// Waits until all NodePools have as many running Machines as replicas, and nothing else is left.
    ///
    /// # Errors
    /// It does not happen in time.
    pub async fn rest_with(&mut self, name: &'static str, counts: &[(&str, usize)]) -> Result<()> {
        self.rest(name, |world| {
            let total: usize = counts.iter().map(|(_, n)| n).sum();
            let fits = counts.iter().all(|(pool, count)| world.runs(pool, *count));
            fits && marked(world) == total && children(world) == total
        })
        .await
        .map_err(|e| {
            let pools = self.world.node_pools.iter();
            let machine_state: Vec<_> = pools.map(|(_, p)| p.describe()).collect();
            let picture = oracles::picture(&self.world);
            e.context(format!("{machine_state:?}\n{picture:#?}"))
        })
    }

    /// Sets the replicas of the NodePool `w`, and rests with them.
    ///
    /// # Errors
    /// It does not happen in time.
    pub async fn scaled(&mut self, name: &'static str, replicas: usize) -> Result<()> {
        self.world.play("w")?.scale(replicas);
        self.rest_with(name, &[("w", replicas)]).await
    }

    /// Creates the pool `w` and its NodePool, and rests with one machine. `patch` is merged over the pool's spec.
    ///
    /// # Errors
    /// It does not happen in time.
    pub async fn one_up(&mut self, patch: &Value) -> Result<()> {
        self.world.pool("w", patch).await?;
        self.scaled("one up", 1).await
    }

    /// Rests without a machine of the NodePool `w`.
    ///
    /// # Errors
    /// It does not happen in time.
    pub async fn down(&mut self) -> Result<()> {
        self.scaled("down", 0).await
    }

    /// The machine of the NodePool `w` that runs. Empty if there is none.
    fn running(&self) -> String {
        self.world.running("w").pop().unwrap_or_default()
    }

    /// A health check replaces that machine.
    async fn remediate(&mut self, sick: &str) -> Result<()> {
        self.world.play("w")?.remediate(sick).await?;
        self.rest_with_another("replaced", sick).await
    }

    /// Rests with one machine, which is not `old`.
    async fn rest_with_another(&mut self, name: &'static str, old: &str) -> Result<()> {
        self.rest(name, |world| {
            let running = world.running("w");
            running.len() == 1 && running[0] != old && marked(world) == 1 && children(world) == 1
        })
        .await
    }
}

/// Number of VMs with our marker, without those of a second tenant.
#[must_use]
pub fn marked(world: &World) -> usize {
    let ours = |vm: &Vm| oracles::marker(vm).is_some_and(|m| m.namespace == NAMESPACE);
    world
        .vcenter
        .read(|i| i.vms.values().filter(|vm| ours(vm)).count())
}

/// Number of VsphereAgents, without those of a second tenant.
#[must_use]
pub fn children(world: &World) -> usize {
    world.api.list(&kind("vsphereagents"), NAMESPACE).len()
}

/// Whether a pool reports that it uploads its ISO, or that its last try failed because vCenter was unreachable. Such a
/// pool is not at rest: it has to try again when vCenter is back. An upload that hangs has no effects for longer than
/// [`QUIET`].
fn uploads(world: &World) -> bool {
    let says = |reason: &str| {
        reason == "ISOUploading" || Reason::from(reason).says_nothing_of_its_object()
    };
    let pools = world.api.list(&kind("vsphereagentpools"), "");
    pools.iter().any(|pool| {
        let mut conditions = list(pool, "/status/conditions").iter();
        conditions.any(|c| c["type"] == "ISOReady" && c["reason"].as_str().is_some_and(says))
    })
}

macro_rules! workloads {
    ($($kind:ident $name:ident = $run:path $(, $instances:literal)?: $text:literal;)*) => {
        /// All workloads that are enumerated.
        pub const ALL: &[Workload] = &[$(Workload {
            name: stringify!($name),
            text: $text,
            exact: is_exact!($kind),
            instances: 1 $(+ $instances - 1)?,
            run: |run| Box::pin($run(run)),
        },)*];
    };
}

macro_rules! is_exact {
    (exact) => {
        true
    };
    (races) => {
        false
    };
}

// Whether its events race, its name, the function that plays it, how many instances of the operator there are, and
// what happens.
workloads! {
    exact one_machine = one_machine: "one machine comes up, then goes down";
    exact two_pools = two_pools: "two pools with one VM folder: three machines come up";
    exact scale_up_and_down = scale_up_and_down: "two machines come up, one goes down, and one comes up again";
    races machine_deleted_after_registration = site::machine_deleted_after_registration: "a Machine is deleted when its Agent has registered, and another one is wanted a second later";
    exact node_pool_and_pool_deletion = node_pool_and_pool_deletion: "one machine comes up; then its NodePool and its pool are deleted";
    races guest_never_registers = site::guest_never_registers: "a guest never registers; the operator replaces its VM after the deadline";
    races guest_falls_silent = site::guest_falls_silent: "a guest registers and falls silent; the operator replaces its VM after the same deadline";
    exact new_discovery_image = site::new_discovery_image: "the InfraEnv gets another discovery image; the operator prunes the old one";
    exact vm_renamed_and_destroyed = site::vm_renamed_and_destroyed: "somebody renames a serving VM and later destroys it; a health check replaces its Machine";
    exact invalid_network_corrected = site::invalid_network_corrected: "a pool names a network that does not exist; an edit corrects it";
    exact password_changed = site::password_changed: "the password changes, in vCenter first";
    races machine_deleted_during_create = machine_deleted_during_create: "a Machine is deleted while its VM is made";
    exact takeover_from_predecessor = predecessor::takeover_from_predecessor: "two machines of the predecessor are taken over, one of which cannot be proven at first; then both go down";
    exact vm_adopted = predecessor::vm_adopted: "a person asks to adopt a VM that was made by hand and serves; an administrator of vCenter allows it later; its status is emptied, its Machine goes, it is kept, and a person gives it up to the pool";
    exact two_instances_one_lease = up_and_down, 2: "one machine comes up and goes down, with two instances of the operator and one lease";
    exact namespace_deletion = site::namespace_deletion: "the namespace is deleted while a machine goes down; each seed but the first has its own order";
    exact hub_restored_without_status = disaster::hub_restored_without_status: "the hub comes back from a backup without status";
    exact hub_restored_new_uids_no_status = disaster::hub_restored_new_uids_no_status: "the hub comes back with new uids and without status; then a person gives the machine up";
    exact hub_restored_new_uids = disaster::hub_restored_new_uids: "the hub comes back with new uids and with its status; then the machine goes down";
    exact etcd_rollback_during_create = disaster::etcd_rollback_during_create: "etcd is rolled back to when one of two machines was being made; then a person gives that machine up";
    exact etcd_rollback_before_scale_down = disaster::etcd_rollback_before_scale_down: "etcd is rolled back to before a machine went down; then a person gives that machine up";
    exact etcd_rollback_after_claim = disaster::etcd_rollback_after_claim: "etcd is rolled back under the operator to when a host waited in the buffer that serves by now; then the buffer ends, and a person forces the end of the host";
    exact hub_restored_after_claim = disaster::hub_restored_after_claim: "the same, and another process starts meanwhile";
    exact two_hubs_one_vcenter = disaster::two_hubs_one_vcenter: "two hubs share one vCenter: one was restored from the backup of the other, and is given up by force";
    exact cluster_moved_to_another_hub = disaster::cluster_moved_to_another_hub: "a paused AgentMachine is deleted and its Agent removed, as when a cluster moves to another hub; then a person lets the VM go";
    exact machines_restored_new_uids = disaster::machines_restored_new_uids: "Machines come back with new uids, their VsphereAgents and Agents are deleted; then the machine goes down";
    exact health_check_and_rolling_upgrade = health_check_and_rolling_upgrade: "a health check replaces a Machine; then a rolling upgrade runs with maxSurge 1";
    exact iso_ejected_after_install = site::iso_ejected_after_install: "installed hosts give their ISO back, one with a locked tray; then comes another image, and the old one is pruned";
    exact iso_datastore_changed = site::iso_datastore_changed: "the pool gets another ISO datastore; the ISO in a drive stays on the old one until that VM is deleted";
    exact pool_of_unadmitted_tenant = tenants::pool_of_unadmitted_tenant: "one machine comes up and goes down, beside a pool of a tenant that is not admitted and that names the same NodePool, control plane and InfraEnv";
    exact rival_agent = rogues::rival_agent: "a host registers with everything that identifies our VM, and is removed again; then the machine goes down";
    exact lookalike_agents = rogues::lookalike_agents: "one machine comes up and goes down, beside hosts that match our VM in all but one thing each";
    exact vm_hidden_by_vcenter = away::vm_hidden_by_vcenter: "a machine goes down while vCenter cannot show its VM, as when its datastore is unreachable";
    exact vm_folder_deleted = away::vm_folder_deleted: "the VM folder is deleted with a serving VM in it; a health check replaces its Machine";
    exact infra_env_replaced = away::infra_env_replaced: "the InfraEnv is deleted when its ISO is ready, a machine is wanted, and an InfraEnv of that name is created again";
    exact agent_claimed_elsewhere = moves::agent_claimed_elsewhere: "another control plane claims an Agent before it serves; its AgentMachine gets another host; then the Agent comes back";
    races agent_deleted_before_serving = guests::agent_deleted_before_serving: "an Agent is deleted before it serves; the operator replaces its VM after a deadline";
    exact replacement_requested = guests::replacement_requested: "a person asks for another VM before the first one serves, and once more when the second one serves";
    exact network_card_replaced = guests::network_card_replaced: "a network card is replaced before and after its VM serves; then the machine goes down";
    exact agent_machine_label_removed = moves::agent_machine_label_removed: "the label with the AgentMachine's name is removed before and after the VM serves; then the machine goes down";
    races node_pool_moved = moves::node_pool_moved: "a NodePool moves from one pool to another while its VM is made; then the machine goes down";
    exact vm_retained = moves::vm_retained: "a pool keeps its VM and is deleted; the operator ignores that VM from then on";
    exact tags_changed = guests::tags_changed: "the pool wants other tags while a VM waits for approval, and others when it serves; then the machine goes down";
    exact vm_suspended = guests::vm_suspended: "a VM is suspended before and after it serves; the machine goes down, and vCenter refuses to switch off a suspended VM";
    races spec_edited = site::spec_edited: "a field of the pool is changed while one VM serves and another is made, and changed back; then both machines go down";
    exact template_changed = site::template_changed: "a VM is made too small beside one that serves; another template replaces it, and not the one that serves";
    exact dry_run_ends = controls::dry_run_ends: "a pool in a dry run changes nothing, also when its machine goes; each time it goes on after the dry run";
    exact limits_of_a_pool = controls::limits_of_a_pool: "a pool may have two VMs and make one at a time; three machines are wanted, and the third comes up when the limit is raised";
    exact serving_vm_switched_off = controls::serving_vm_switched_off: "somebody switches off a VM that serves, and its pool has it switched on again; then the machine goes down";
    exact host_of_the_buffer_claimed = controls::host_of_the_buffer_claimed: "a host waits in the buffer, a machine gets it, and the buffer is filled again; it grows, is emptied, and the machine goes down";
    exact boot_order_broken = guests::boot_order_broken: "somebody changes the boot order of a VM before its installation; its guest boots the ISO again, and the VM is reset";
    races host_recycled = controls::host_recycled: "the Machine of a host goes, and its VM waits for the next one, serves it and comes back with the same disk; then nothing is recycled any more";
    races service_writes_late = controls::service_writes_late: "the same, with a service that writes to an Agent late, in parts and with conflicts: states that pass soon are never shown";
    exact agent_state_unknown = controls::agent_state_unknown: "a host of the buffer is to go, and its Agent shows a state that the operator does not know; then it shows one that it knows";
    races image_with_other_content = controls::image_with_other_content: "a host waits in the buffer, and the InfraEnv gets a new image, first with the same content and then with a proxy: only then another host comes";
    races status_of_an_earlier_life = disaster::status_of_an_earlier_life: "a backup tool gives the VsphereAgent of a host in its second life the status of the first one; then its Machine goes";
    races status_emptied_in_a_later_life = disaster::status_emptied_in_a_later_life: "the same, and the status is emptied";
    races hosted_cluster_gone = controls::hosted_cluster_gone: "a hosted cluster goes with its Machine, and its kubeconfig before the host is free; the VM waits all the same, and goes";
    exact host_lent = lending::host_lent: "a host waits in the buffer of one pool, and a machine of another pool of the group gets it; then that machine goes down";
    exact host_before_clusters = lending::host_before_clusters: "a pool without a NodePool keeps a host, and a machine of another pool of the group gets it; then that machine goes down";
    exact host_moved = lending::host_moved: "a person gives a host that serves back to the pool without a NodePool, and its machine goes; then that pool keeps one less";
    exact host_of_a_class = lending::host_of_a_class: "the NodePool of a pool chooses a class: a large host waits in the buffer, a machine gets it, and then goes down";
    exact kept_disk_stays_with_its_cluster = lending::kept_disk_stays_with_its_cluster: "a host with the data of one hosted cluster waits, and a machine of another one in the group gets a VM of its own";
    exact host_wanted_by_two = lending::host_wanted_by_two: "two pools of a group want the one host that waits in the buffer of a third; then both machines go down";
    exact host_of_byoh = byoh::host_of_byoh: "a host of BYOH asks for its scripts while its cluster is paused, gets them after that, and leaves its machine later than that goes";
    exact foreign_host_counts = foreign::foreign_host_counts: "a bare-metal host is free when two machines are wanted, and counts for its pool: one VM comes up, and the host serves; then both machines go down";
    exact mixed_estate = mixed::mixed_estate: "beside hosts and Nodes of each kind a host waits in the buffer and serves; the service passes labels for Nodes on, and a person adds one; the hosted cluster is away for a while; then all goes down";
    exact host_reserved_by_osac = mixed::host_reserved_by_osac: "OSAC reserves the host that waits in the buffer; a machine gets another one, and the cluster order gets the reserved one; then all goes down";
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The workload with that name.
#[must_use]
pub fn named(text: &str) -> Option<&'static Workload> {
    ALL.iter().find(|w| w.name == text)
}

async fn one_machine(run: &mut Run) -> Result<()> {
    strangers::enter(run).await?;
    up_and_down(run).await
}

async fn up_and_down(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.down().await
}

async fn two_pools(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.pool("x", &json!({})).await?;
    run.world.play("w")?.scale(2);
    run.world.play("x")?.scale(1);
    run.rest_with("three up", &[("w", 2), ("x", 1)]).await
}

async fn scale_up_and_down(run: &mut Run) -> Result<()> {
    strangers::enter(run).await?;
    run.world.pool("w", &json!({})).await?;
    run.scaled("two up", 2).await?;
    run.scaled("one down", 1).await?;
    run.scaled("up again", 2).await
}

async fn node_pool_and_pool_deletion(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.world.play("w")?.delete_node_pool().await?;
    run.world.delete_pool("w")?;
    run.rest("all gone", |world| {
        let left = world.api.list(&kind("vsphereagentpools"), "").len();
        left + children(world) + marked(world) == 0
    })
    .await
}

async fn machine_deleted_during_create(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    run.waits("a VM is asked for", |world| {
        world.director.times(EffectKind::CreateVm) > 0
    })
    .await?;
    run.down().await
}

async fn health_check_and_rolling_upgrade(run: &mut Run) -> Result<()> {
    strangers::enter(run).await?;
    run.one_up(&json!({})).await?;
    run.remediate(&run.running()).await?;
    let old = run.running();
    run.world.play("w")?.rolling_upgrade(1)?;
    run.rest_with_another("upgraded", &old).await
}
