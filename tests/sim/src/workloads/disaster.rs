//! Workloads in which a hub is lost and restored, and one with two hubs on one vCenter.
//!
//! Before each disaster, the guests of our VMs become nodes, as VMware Tools report
//! ([`crate::vcenter::model::Vm::node`]). From then on no VM may be touched until a person decides, no matter what a
//! hub knows of it.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{domain::names::ObjectKey, orphans, ports::effect::EffectKind};
use agent_forge_crds::{
    external::agent_machine::PAUSED_ANNOTATION,
    names::{FORCE_DELETE_ANNOTATION, MACHINE_NAME_ANNOTATION},
};
use agent_forge_lab::played::guests::identity;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Run, children, controls, marked, site::has_iso};
use crate::{
    director::Order,
    kube::{
        ApiServer, OURS, kind,
        store::{Store, backup::Backup, list, name_of, remove},
    },
    oracles,
    plan::Fault,
    promise::Oracle,
    vcenter::model::Vm,
    world::{NAMESPACE, World, at_home},
};

/// Time between the end of a process and the start of the next one.
const BETWEEN: Duration = Duration::from_millis(500);
/// How long an API server is unreachable while it is restored.
const RESTORE: Duration = Duration::from_secs(60);
/// How long upstream's controllers are stopped while a hub is restored.
const STILL: Duration = Duration::from_secs(10);
/// The discovery deadline of VMs, with a margin.
const DEADLINE: Duration = Duration::from_secs(2700);
/// Time until a scan has reported a missing VM and its VsphereAgent has checked: ten minutes if the last scan was just
/// too early, and one minute more.
const SCAN: Duration = Duration::from_secs(660);
/// How long a host of the buffer may be silent, with a margin.
const SILENT: Duration = Duration::from_secs(900);
/// The name of a rest that only a person ends.
const ASKED: &str = "a person is asked";

/// A backup does not have the status that the operator writes.
fn forget_status(store: &mut Store) {
    let ours = ["vsphereagents", "vsphereagentpools"].map(kind);
    store.rewrite(|kind, object| {
        if ours.contains(kind) {
            remove(object, "status");
        }
    });
}

/// A person allows the deletion of a VM.
fn forced() -> Value {
    json!({"metadata": {"annotations": {FORCE_DELETE_ANNOTATION: "true"}}})
}

impl Run {
    /// One pool with that many serving machines.
    pub(super) async fn serving(&mut self, machines: usize) -> Result<()> {
        self.world.pool("w", &json!({})).await?;
        self.scaled("they serve", machines).await
    }

    /// The workload's own part begins: upstream's controllers stop, and our running VMs count as nodes.
    fn disaster(&mut self) {
        self.world.director.still_upstream(RESTORE + STILL);
        self.nodes_from_here_on();
    }

    /// The workload's own part begins, and our running VMs count as nodes.
    fn nodes_from_here_on(&mut self) {
        self.begins = self.world.director.now();
        self.world.vcenter.write(|i| {
            let ours = i.vms.values_mut().filter(|v| oracles::marker(v).is_some());
            ours.filter(|vm| vm.on)
                .for_each(|vm| vm.node = Some(vm.name.clone()));
            let isos = i.files.keys().filter(|(_, p)| p.ends_with(".iso"));
            self.world.relics.extend(isos.cloned());
        });
        let text = || "DISASTER from here on".to_owned();
        self.world.director.line(text);
    }

    /// Rests until the operator asks a person. That takes `scans` scans for VMs in a row, one more for each fault, and
    /// the time `more`. A fault may spoil a scan, and only the next scan makes up for it.
    pub(super) async fn asks(
        &mut self,
        (scans, more): (u32, Duration),
        done: impl Fn(&World) -> bool,
    ) -> Result<()> {
        let patience = self.patience;
        self.patience += SCAN * scans + more;
        if scans > 0 {
            self.world.director.grant(SCAN);
        }
        self.rest(ASKED, done).await?;
        self.patience = patience;
        self.world.director.grant(Duration::ZERO);
        Ok(())
    }

    /// Ends the process. When this returns, the next process is about to start.
    pub(super) async fn between_processes(&self) {
        let kill = Order::Around(Fault::ProcessKilled, String::new(), 0);
        self.world.director.order(kill);
        tokio::time::sleep(BETWEEN).await;
    }

    /// Restores the hub's etcd from a backup, with its NodePool. The operator waits and continues.
    async fn roll_back(&mut self, backup: &Backup, replicas: usize) -> Result<()> {
        self.disaster();
        self.world.director.take_api(RESTORE);
        self.world.api.poke();
        tokio::time::sleep(RESTORE / 2).await;
        self.world.api.write(|s, _| s.roll_back(backup, OURS));
        tokio::time::sleep(RESTORE / 2 + STILL).await;
        self.world.play("w")?.scale(replicas);
        Ok(())
    }

    /// A person gives a machine up: its node is drained and its Machine deleted. Another machine comes. The next
    /// AgentMachine may have bound the Agent of a missing VM, because that Agent was not fenced in time. Then the
    /// operator asks the person once more.
    async fn give_up(&mut self, name: &str, machines: usize) -> Result<()> {
        self.world.vcenter.write(|i| {
            let vm = i.vms.values_mut().find(|vm| vm.name == name);
            vm.into_iter().for_each(|vm| vm.node = None);
        });
        self.world.play("w")?.remediate(name).await?;
        let replaced = move |world: &World| {
            let running = world.running("w");
            running.len() == machines
                && !running.iter().any(|n| n == name)
                && marked(world) == machines
                && children(world) == machines
        };
        let asked = |world: &World| {
            let all = world.vsphere_agents();
            let missing = all.iter().filter(|c| waits(c, "VMMissing"));
            let machine = |c: &Arc<Value>| {
                let name = c["metadata"]["annotations"].get(MACHINE_NAME_ANNOTATION)?;
                name.as_str().map(str::to_owned)
            };
            missing.filter_map(machine).find(|m| *m != name)
        };
        let world = &self.world;
        world
            .patiently("replaced", self.patience, || {
                replaced(world) || asked(world).is_some()
            })
            .await?;
        if let Some(again) = asked(world) {
            world.play("w")?.remediate(&again).await?;
        }
        self.rest("replaced", replaced).await
    }

    /// Somebody removes the Agents of our VMs.
    fn remove_agents(&self) {
        let api = &self.world.api;
        api.write(|s, now| s.evict_all(&kind("agents"), now));
    }

    /// No VM is a node any more.
    fn drain(&self) {
        self.world
            .vcenter
            .write(|i| i.vms.values_mut().for_each(|vm| vm.node = None));
    }

    /// A person allows the deletion of each VM, and asks for none.
    fn force(&self) -> Result<()> {
        for child in self.world.vsphere_agents() {
            let (children, api) = (kind("vsphereagents"), &self.world.api);
            api.merge(&children, &name_of(&child), &forced())?;
        }
        Ok(())
    }

    /// A person deletes the VsphereAgent of a machine that is not a node any more. Its deletion is allowed.
    async fn let_go(&mut self) -> Result<()> {
        self.drain();
        for child in self.world.vsphere_agents() {
            let key = name_of(&child);
            self.world.director.force(ObjectKey::new(NAMESPACE, &key.1));
            self.world.api.delete(&kind("vsphereagents"), &key)?;
        }
        self.rest_with("down", &[("w", 0)]).await
    }

    /// A person removes a VM by hand, with its files and its Agent.
    fn bury(&self, vm: &Vm) {
        self.world.vcenter.write(|i| {
            // Finds it by its uuid, because it may have been registered again under another reference.
            let mut all = i.vms.values();
            let found = all.find(|v| v.uuid == vm.uuid).map(|v| v.object.id.clone());
            if let Some(id) = found {
                i.remove_vm(&id);
            }
            i.files
                .retain(|(store, path), _| format!("[{store}] {path}") != vm.path);
        });
        // The VM may never have had an Agent.
        let name = at_home(&identity::swapped(&vm.uuid));
        let _ = self.world.api.delete(&kind("agents"), &name);
    }
}

/// Whether this VsphereAgent waits for that reason.
fn waits(child: &Value, reason: &str) -> bool {
    let mut conditions = list(child, "/status/conditions").iter();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "False" && c["reason"] == reason)
}

/// How many VsphereAgents wait for that reason.
pub(super) fn waiting(api: &ApiServer, reason: &str) -> usize {
    let all = api.list(&kind("vsphereagents"), "");
    all.iter().filter(|c| waits(c, reason)).count()
}

/// How many Events there are with that reason.
pub(super) fn told(api: &ApiServer, reason: &str) -> usize {
    let all = api.list(&kind("events"), "");
    all.iter().filter(|e| e["reason"] == reason).count()
}

/// How many VsphereAgents record their VM and have a bound Agent.
fn recorded(world: &World) -> usize {
    let all = world.vsphere_agents();
    let whole = |c: &Value| {
        c.pointer("/status/vm/moref").is_some()
            && c.pointer("/status/vm/phase") == Some(&json!("Bound"))
    };
    all.iter().filter(|c| whole(c)).count()
}

/// All status is lost, as when a backup is applied with kubectl. Name and uid of each VsphereAgent lead to its VM.
pub(super) async fn hub_restored_without_status(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    run.between_processes().await;
    run.disaster();
    run.world.api.write(|s, _| forget_status(s));
    run.rest("known again", |world| {
        recorded(world) == 1 && has_iso(world, "w")
    })
    .await?;
    run.drain();
    run.down().await
}

/// A backup tool restores objects with new uids and without status. The owners of the VsphereAgents are gone under
/// their old uids, so the VsphereAgents are deleted. No VsphereAgent has the uid in the VM's mark. The operator reports
/// that, and a person removes the VM when its node is drained.
pub(super) async fn hub_restored_new_uids_no_status(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    let node = run.world.vm_of_ours()?;
    run.between_processes().await;
    run.disaster();
    let namespaces = [NAMESPACE, &run.world.cluster.control_plane_namespace];
    run.world.api.write(|s, _| {
        forget_status(s);
        s.rebear(&namespaces, &[kind("vsphereagents")]);
    });
    // The operator repeats an Event that was lost on its way.
    run.asks((2, orphans::SAID), |world| {
        children(world) == 0 && told(&world.api, "OrphanVM") > 0
    })
    .await?;
    run.bury(&node);
    run.give_up(&node.name, 1).await
}

/// A backup tool restores objects with new uids and with their status. The Agent shows which machine its VM serves.
/// When the machine goes down, its VM has the mark of an old uid, and a person removes it.
pub(super) async fn hub_restored_new_uids(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    let node = run.world.vm_of_ours()?;
    run.between_processes().await;
    run.disaster();
    let namespaces = [NAMESPACE, &run.world.cluster.control_plane_namespace];
    run.world.api.write(|s, _| s.rebear(&namespaces, &[]));
    run.rest("the Machines are known", |world| {
        waiting(&world.api, "MachineStateUnknown") == 0 && recorded(world) == 1
    })
    .await?;
    run.world.play("w")?.scale(0);
    run.rest(ASKED, |world| waiting(&world.api, "OwnershipUnproven") == 1)
        .await?;
    run.bury(&node);
    run.rest_with("down", &[("w", 0)]).await
}

/// etcd is rolled back by some minutes. Of two machines that serve, one was being made then.
pub(super) async fn etcd_rollback_during_create(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    let asked = |world: &World| world.director.times(EffectKind::CreateVm) == 2;
    run.world.play("w")?.scale(2);
    let world = &run.world;
    world
        .patiently("another VM is asked for", run.patience, || asked(world))
        .await?;
    let backup = run.world.api.read(Store::backup);
    run.rest_with("two serve", &[("w", 2)]).await?;
    run.roll_back(&backup, 2).await?;
    // A process that kept running remembers that the VM served. A process that started later sees a VM without an
    // Agent.
    run.asks((0, DEADLINE), |world| {
        let without = ["AgentMissing", "AgentDiscoveryExpired"];
        let asked: usize = without.iter().map(|r| waiting(&world.api, r)).sum();
        asked == 1 && recorded(world) == 1
    })
    .await?;
    let lost = run.world.play("w")?.machines();
    let running = run.world.running("w");
    let mut names = lost.iter().filter_map(|m| m.metadata.name.clone());
    let lost = names.find(|n| !running.contains(n));
    run.give_up(&lost.context("a Machine that waits")?, 2).await
}

/// etcd is rolled back by some minutes, and a machine has gone down since. Only the scan reports that its VM is
/// missing: its Agent is bound, and nothing else looks for the VM of a serving host.
pub(super) async fn etcd_rollback_before_scale_down(run: &mut Run) -> Result<()> {
    run.serving(2).await?;
    let both = run.world.running("w");
    let backup = run.world.api.read(Store::backup);
    run.scaled("one down", 1).await?;
    let left = run.world.running("w");
    let gone = both.into_iter().find(|n| !left.contains(n));
    run.roll_back(&backup, 2).await?;
    run.asks((1, Duration::ZERO), |world| {
        waiting(&world.api, "VMMissing") == 1 && recorded(world) == 2
    })
    .await?;
    run.give_up(&gone.context("a Machine that went")?, 2).await
}

/// etcd is rolled back to when a host waited in the buffer that serves by now. The record shows a free host. The end of the
/// buffer does not remove it: its VM says that it may serve. `between`: the process ends meanwhile, and another one starts.
async fn rolled_back_after_claim(run: &mut Run, between: bool) -> Result<()> {
    let scaling = json!({"scaling": {"bufferAgents": 1, "maxVMs": 1}});
    run.world.pool("w", &scaling).await?;
    run.rest("a host waits", |world| controls::has(world, 0, 1))
        .await?;
    let backup = run.world.api.read(Store::backup);
    run.world.play("w")?.scale(1);
    run.rest("it serves", |world| controls::has(world, 1, 0))
        .await?;
    if between {
        run.between_processes().await;
    }
    run.roll_back(&backup, 0).await?;
    controls::buffer(&run.world, 0)?;
    let asked = run
        .asks((0, SILENT), |world| {
            waiting(&world.api, "RecordOutdated") == 1 && marked(world) == 1
        })
        .await;
    if marked(&run.world) != 1 {
        let gone = Oracle::ForeignAndServingUntouched
            .broken("a host is gone that serves an AgentMachine which the hub has forgotten");
        run.world.director.violated(gone);
    }
    asked?;
    // A person finds out that the guest is no node any more, and forces the end.
    run.drain();
    let children = kind("vsphereagents");
    for child in run.world.vsphere_agents() {
        let key = name_of(&child);
        run.world.director.force(ObjectKey::new(NAMESPACE, &key.1));
        run.world.api.merge(&children, &key, &forced())?;
        run.world.api.delete(&children, &key)?;
    }
    run.rest_with("down", &[("w", 0)]).await
}

/// The operator runs on while etcd is rolled back.
pub(super) async fn etcd_rollback_after_claim(run: &mut Run) -> Result<()> {
    rolled_back_after_claim(run, false).await
}

/// Another process starts after etcd was rolled back.
pub(super) async fn hub_restored_after_claim(run: &mut Run) -> Result<()> {
    rolled_back_after_claim(run, true).await
}

/// A backup tool gives the VsphereAgent of a host in its second life the status of the first one, or `emptied` none. When its
/// Machine goes, the host waits on a new disk: that of the second life has served.
async fn restored_in_another_life(run: &mut Run, emptied: bool) -> Result<()> {
    let children = kind("vsphereagents");
    let status_of = |world: &World| {
        let all = world.vsphere_agents();
        all.first().map_or(Value::Null, |c| c["status"].clone())
    };
    let release = json!({"release": {"policy": "Recycle"}});
    run.one_up(&release).await?;
    let (host, first) = (controls::ours(&run.world), status_of(&run.world));
    run.world.play("w")?.scale(0);
    controls::comes_back(run, "it waits", &host).await?;
    run.world.play("w")?.scale(1);
    run.rest("it serves again", |world| {
        controls::has(world, 1, 0) && controls::has_claimed(world)
    })
    .await?;
    run.between_processes().await;
    run.begins = run.world.director.now();
    run.world.api.write(|s, _| {
        s.rewrite(|kind, object| {
            if *kind == children {
                object["status"] = if emptied { Value::Null } else { first.clone() };
            }
        });
    });
    run.rest("it serves on", |world| {
        controls::has(world, 1, 0) && status_of(world)["vm"]["moref"].is_string()
    })
    .await?;
    run.world.play("w")?.scale(0);
    controls::comes_back(run, "it waits again", &host).await?;
    let life = status_of(&run.world)["vm"]["generation"].as_u64();
    anyhow::ensure!(life == Some(3), "it waits in life {life:?}");
    controls::let_go(run).await
}

/// See [`restored_in_another_life`].
pub(super) async fn status_of_an_earlier_life(run: &mut Run) -> Result<()> {
    restored_in_another_life(run, false).await
}

/// See [`restored_in_another_life`].
pub(super) async fn status_emptied_in_a_later_life(run: &mut Run) -> Result<()> {
    restored_in_another_life(run, true).await
}

/// A hosted cluster moves to another hub. Its AgentMachine is paused and deleted, so the provider releases it without
/// unbinding its Agent. Then the Agent is removed. The node keeps running until a person gives it up.
pub(super) async fn cluster_moved_to_another_hub(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    run.nodes_from_here_on();
    let agent_machines = kind("agentmachines");
    let control_plane = run.world.cluster.control_plane_namespace.clone();
    let name = run.world.running("w").pop();
    let key = (control_plane, name.context("a Machine")?);
    let pause = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: "true"}}});
    run.world.api.merge(&agent_machines, &key, &pause)?;
    let noted = |world: &World| {
        let mut all = world.vsphere_agents().into_iter();
        all.any(|c| c["status"]["vm"]["agentMachinePaused"] == true)
    };
    run.waits("the pause is on record", noted).await?;
    // The provider releases hook and AgentMachine at once. The Machine is deleted after that.
    run.world.api.delete(&agent_machines, &key)?;
    run.world.play("w")?.scale(0);
    run.waits("its Machine vanishes", |world| {
        let left = world.api.get(&agent_machines, &key);
        left.is_none() && world.machines("w") == 0
    })
    .await?;
    run.remove_agents();
    let held =
        |world: &World| waiting(&world.api, "MachineVanishedPaused") == 1 && marked(world) == 1;
    run.asks((0, Duration::ZERO), held).await?;
    // The annotation alone ends nothing.
    run.force()?;
    run.rest("a person is still asked", held).await?;
    run.let_go().await
}

/// Objects come back with new uids and status, but the Machines have other uids. If somebody deletes Agent and
/// VsphereAgent before a person has matched the Machines, a node is left that the operator may not touch.
pub(super) async fn machines_restored_new_uids(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    run.between_processes().await;
    run.disaster();
    let control_plane = run.world.cluster.control_plane_namespace.clone();
    run.world.api.write(|s, _| s.rebear(&[&control_plane], &[]));
    run.remove_agents();
    run.world.api.write(|s, now| {
        let children = kind("vsphereagents");
        for child in s.list(&children, "") {
            let _ = s.delete(&children, &name_of(&child), &json!({}), now);
        }
    });
    run.asks((0, Duration::ZERO), |world| {
        waiting(&world.api, "MachineStateUnknown") == 1 && marked(world) == 1
    })
    .await?;
    run.drain();
    run.down().await
}

/// Two hubs: one is restored from the other's backup, half of it without status, while the other one continues. Then a
/// person ends the restored hub by force.
pub(super) async fn two_hubs_one_vcenter(run: &mut Run) -> Result<()> {
    run.serving(2).await?;
    run.disaster();
    let all = run.world.running("w");
    let bare = all.first().context("two serve")?.clone();
    let second = run.world.second_hub(|kind, object| {
        if ["namespaces", "events", "leases"].contains(&kind.1.as_str()) {
            return None;
        }
        let mut object = object.clone();
        if *kind == self::kind("vsphereagents") && object["metadata"]["name"] == bare {
            remove(&mut object, "status");
        }
        Some(object)
    })?;
    let hub = second.clone();
    run.rest("the second hub asks a person", move |_| {
        waiting(&hub, "ClusterIDChanged") == 1 && waiting(&hub, "MachineStateUnknown") == 1
    })
    .await?;
    // Either VM may be the one that is removed. The other one stays a node.
    run.world.play("w")?.prefer_for_deletion(&bare).await?;
    run.world.vcenter.write(|i| {
        let goes = i.vms.values_mut().filter(|vm| vm.name == bare);
        goes.for_each(|vm| vm.node = None);
    });
    run.scaled("the first hub goes on", 1).await?;
    abandon(&second)?;
    run.rest("the second hub touches nothing as it goes", move |_| {
        let left = second.list(&kind("vsphereagents"), "");
        left.len() == 1 && left.iter().all(|c| waits(c, "OwnershipUnproven"))
    })
    .await
}

/// A person gives a hub up: upstream's objects are removed by force, and the pool is deleted.
fn abandon(hub: &ApiServer) -> Result<()> {
    hub.write(|s, now| {
        for plural in ["agents", "agentmachines", "machines"] {
            s.evict_all(&kind(plural), now);
        }
        let pools = kind("vsphereagentpools");
        s.delete(&pools, &at_home("w"), &json!({}), now)
    })?;
    Ok(())
}
