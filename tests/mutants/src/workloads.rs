//! Workloads that the simulation does not have. Each creates the situation in which one known fault shows.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::marker::{MARKER_KEY, Marker},
    ports::{effect::EffectKind, vcenter::GENERATION_KEY},
};
use agent_forge_lab::played::{assisted::INFRA_ENV_LABEL, foreign, object::Facts as _};
use agent_forge_sim::{
    director::Order,
    kube::{kind, store::name_of},
    oracles::{marker, serves},
    plan::Fault,
    promise::Oracle,
    rogue,
    vcenter::{
        Takes,
        model::{Inventory, Ref, Vm},
        tasks::Work,
    },
    workloads::{self, Run, Workload},
    world::{NAMESPACE, SECRET, World, at_home},
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    leaving::{
        leaving_host_claimed_at_login, leaving_host_claimed_unseen, leaving_host_unfenced_unseen,
        leaving_host_vetoed_unseen, rival_agent_unseen, unwanted_host_claimed_unseen,
    },
    scenes::{
        SOON, clone_vm, foreign_vm, no_token, our_vm, pairs_agree, pool_labels, until_effect,
        wanted_name,
    },
};

macro_rules! workloads {
    ($($name:ident $text:literal;)*) => {
        /// All workloads of this package. The name of each is the name of the function that plays it.
        pub const ALL: &[Workload] = &[$(Workload {
            name: stringify!($name),
            text: $text,
            exact: true,
            instances: 1,
            run: |run| Box::pin($name(run)),
        },)*];
    };
}

workloads! {
    bare_metal_agent_with_pool_labels "one machine comes up and goes down, beside a free, unapproved bare-metal Agent that carries the pool's labels";
    agent_deleted_after_vm "one machine comes up and goes down; its Agent may be deleted only after its VM";
    host_kept_by_people "a person keeps a host, and its Machine goes; then the person lets it go on, and a machine gets it";
    vm_name_taken "somebody's VM has the name that our VM should get";
    pool_removed_by_force "a pool disappears with its finalizer while its machine serves";
    foreign_vm_named_as_adopted "a user names somebody's VM in a VsphereAgent that he wrote, and deletes that VsphereAgent";
    vsphere_agent_deleted_while_serving "somebody deletes the VsphereAgent of a machine that serves";
    iso_upload_truncated "the first uploaded ISO loses its second half";
    credentials_of_another_namespace "a pool names the credentials of another namespace";
    reserved_agent_labels "a pool's labels claim its Agents for somebody's AgentMachine";
    iso_url_token_hidden "one machine comes up and goes down; no object may show the token of the ISO's URL";
    vm_copied_by_admin "an admin copies a machine's VM and removes the original; then the machine goes down";
    marker_names_another_namespace "the mark on a copy of a machine's VM names a namespace that does not use that vCenter";
    credentials_secret_deleted "somebody deletes the credentials Secret; then the machine goes down";
    hosts_match_their_machines "three machines come up in two pools; each AgentMachine gets the host that was made for it";
    two_pools_one_node_pool "two pools claim one NodePool";
    foreign_host_for_two_pools "two pools count one free foreign host while the provider does not run: one VM is made; then the provider runs again, and both machines go down";
    pool_deleted_while_scaling_up "a pool is deleted while it serves, and its NodePool wants more machines";
    second_machine_while_first_serves "a second machine is wanted while the first one serves; only one more VM is made";
    stale_watch_and_killed_actor "one machine comes up while all watches lag by 20 s, and its pool's actor is killed after the create";
    freed_agent_matches_foreign_selector "a machine goes down while somebody's NodePool waits for any Agent with its labels";
    vm_reference_reused_while_queued "twelve machines go down; a VM that waits for its slot gets another reference, and its old reference now names somebody's VM";
    infra_env_with_cluster_ref "an InfraEnv has a clusterRef, which is removed later; no VM may be made before";
    leaving_host_claimed_unseen "a host of the buffer is about to go while all watches lag by 20 s, and another control plane claims its Agent; then it releases it";
    leaving_host_unfenced_unseen "the same, and somebody gives its Agent the labels and the approval back";
    leaving_host_claimed_at_login "the same, and another control plane claims its Agent while the power-off waits for a new login at a slow vCenter";
    leaving_host_vetoed_unseen "the same, and a person forbids that the VM goes, on its VsphereAgent";
    unwanted_host_claimed_unseen "a host of the buffer is not wanted any more while all watches lag by 20 s, and another control plane claims its Agent; its VsphereAgent may not be deleted";
    rival_agent_unseen "a pool begins to approve Agents while all watches lag by 20 s, and a host registers with everything that identifies our VM; then it is removed, and the machine comes up";
}

/// The workload with that name: one of this package, or one of the simulation.
#[must_use]
pub fn named(text: &str) -> Option<&'static Workload> {
    ALL.iter()
        .find(|w| w.name == text)
        .or_else(|| workloads::named(text))
}

async fn infra_env_with_cluster_ref(run: &mut Run) -> Result<()> {
    let envs = kind("infraenvs");
    let set = |run: &Run, cluster: Value| {
        let patch = json!({"spec": {"clusterRef": cluster}});
        run.world.api.merge(&envs, &at_home("demo"), &patch)
    };
    set(run, json!({"name": "demo", "namespace": NAMESPACE}))?;
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    tokio::time::sleep(SOON).await;
    let made = run.world.director.created();
    if made > 0 {
        let words = Oracle::ForeignAndServingUntouched.broken(format!(
            "{made} VMs were made for an InfraEnv that binds its hosts itself"
        ));
        run.world.director.violated(words);
    }
    set(run, json!(null))?;
    run.rest_with("one up", &[("w", 1)]).await
}

async fn bare_metal_agent_with_pool_labels(run: &mut Run) -> Result<()> {
    let mut labels = pool_labels("w");
    labels[INFRA_ENV_LABEL] = json!("demo");
    let host = rogue::host("Dell Inc.", "7F3K2", "0c:42:a1:00:00:01");
    // From then on the API server takes each write of the operator for a broken promise.
    let id = "0a000000-0000-4000-8000-0000000000f3";
    rogue::put(&run.world.api, id, labels, &host)?;
    run.one_up(&json!({})).await?;
    run.down().await
}

async fn agent_deleted_after_vm(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.world.play("w")?.scale(0);
    until_effect(&run.world, EffectKind::DeleteAgent).await?;
    if workloads::marked(&run.world) > 0 {
        let early =
            Oracle::ForeignAndServingUntouched.broken("the Agent is deleted while its VM is there");
        run.world.director.violated(early);
    }
    run.down().await
}

/// Whether the VMs of ours run in that life.
fn run_in_life(world: &World, life: Option<&str>) -> bool {
    let is_so = |vm: &Vm| vm.on && vm.extra.get(GENERATION_KEY).map(String::as_str) == life;
    world.our_vms().iter().all(is_so)
}

async fn host_kept_by_people(run: &mut Run) -> Result<()> {
    let recycles = json!({"release": {"policy": "Recycle"}});
    run.one_up(&recycles).await?;
    let children = kind("vsphereagents");
    let child = run.world.vsphere_agents().pop().context("none")?;
    let key = name_of(&child);
    let mark = |world: &World, value: Value| {
        let marked =
            json!({"metadata": {"annotations": {"agent-forge.containeroo.ch/skip-delete": value}}});
        world.api.merge(&children, &key, &marked)
    };
    mark(&run.world, json!("true"))?;
    run.world.play("w")?.scale(0);
    let kept = run
        .rest("it is kept", |world| {
            let said = world.of_pool("w", "/status/waitingOn").to_string();
            said.contains("Retained") && run_in_life(world, None)
        })
        .await;
    if !run_in_life(&run.world, None) {
        let changed = Oracle::ForeignAndServingUntouched
            .broken("a VM that people keep is off, or in its next life");
        run.world.director.violated(changed);
    }
    kept?;
    mark(&run.world, Value::Null)?;
    run.rest("it waits", |world| {
        let ready = world.of_pool("w", "/status/buffer/ready").as_u64();
        ready == Some(1) && run_in_life(world, Some("2"))
    })
    .await?;
    run.scaled("one up again", 1).await
}

async fn vm_name_taken(run: &mut Run) -> Result<()> {
    // The first machine creates the folder.
    run.one_up(&json!({})).await?;
    let folder = our_vm(&run.world).await?.folder;
    run.down().await?;
    run.world.play("w")?.scale(1);
    let name = wanted_name(&run.world).await?;
    let theirs = foreign_vm(
        &run.world,
        &name,
        &folder,
        "42310000-0000-4000-8000-0000000000f1",
    );
    run.world.vcenter.write(|i| {
        if let Some(vm) = i.vms.get_mut(&theirs) {
            vm.on = false;
        }
    });
    let told = || {
        let mut all = run.world.vsphere_agents().into_iter();
        all.any(|c| c.to_string().contains("NameConflict"))
    };
    run.world.until("the conflict is told", SOON, told).await?;
    tokio::time::sleep(Duration::from_secs(120)).await;
    run.world.play("w")?.scale(0);
    run.rest("down", |world| workloads::children(world) == 0)
        .await
}

async fn pool_removed_by_force(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let pools = kind("vsphereagentpools");
    run.world
        .api
        .write(|s, now| s.evict(&pools, &at_home("w"), now));
    // Garbage collection deletes the VsphereAgent after its owner. It stays because its Agent serves.
    tokio::time::sleep(SOON).await;
    run.world.play("w")?.scale(0);
    run.rest("down", |world| {
        workloads::children(world) + workloads::marked(world) == 0
    })
    .await
}

async fn foreign_vm_named_as_adopted(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let folder = our_vm(&run.world).await?.folder;
    let uuid = "42310000-0000-4000-8000-0000000000f2";
    foreign_vm(&run.world, "precious", &folder, uuid);
    let children = kind("vsphereagents");
    let object = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent",
        "metadata": {
            "name": "precious",
            "labels": {
                "agent-forge.containeroo.ch/created-for": "adopted",
                "agent-forge.containeroo.ch/vsphere-agent-pool": "w",
            },
        },
        "spec": {"poolRef": {"name": "w"}},
    });
    run.world.api.create(&children, NAMESPACE, object)?;
    let status = json!({"vm": {"name": "precious", "biosUUID": uuid}});
    (run.world.api).set_status(&children, &at_home("precious"), &status)?;
    tokio::time::sleep(SOON).await;
    run.world.api.delete(&children, &at_home("precious"))?;
    run.rest_with("one up, as before", &[("w", 1)]).await
}

async fn vsphere_agent_deleted_while_serving(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let child = run.world.vsphere_agents().into_iter().next();
    let child = child.context("a VsphereAgent")?;
    (run.world.api).delete(&kind("vsphereagents"), &name_of(&child))?;
    tokio::time::sleep(SOON).await;
    run.down().await
}

async fn iso_upload_truncated(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.play("w")?.scale(1);
    let vcenter = run.world.vcenter.clone();
    let whole = loop {
        let cut = vcenter.write(|i| {
            let mut files = i.files.iter_mut();
            let uploaded = files.find(|((_, path), _)| path.contains(".partial"));
            uploaded.map(|(_, file)| {
                let whole = file.bytes.len();
                file.bytes = file.bytes.slice(..whole / 2);
                whole
            })
        });
        if let Some(whole) = cut {
            break whole;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    run.rest_with("one up", &[("w", 1)]).await?;
    let short = vcenter.read(|i| {
        let isos = i.files.iter().filter(|((_, p), _)| p.ends_with(".iso"));
        isos.filter(|(_, f)| f.bytes.len() != whole).count()
    });
    if short > 0 {
        let cut = format!("{short} ISOs on the datastore are cut off");
        run.world
            .director
            .violated(Oracle::SameFinalState.broken(cut));
    }
    Ok(())
}

/// Switching a VM off takes more than a minute, so that others wait for a slot.
const SLOW_OFF: Takes = |work| match work {
    Work::PowerOff(..) => Some(100_000),
    _ => None,
};

async fn vm_reference_reused_while_queued(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.scaled("twelve up", 12).await?;
    run.world.vcenter.set_tempo(SLOW_OFF);
    run.world.play("w")?.scale(0);
    let waits = |i: &Inventory| {
        let all = i.vms.values().filter(|v| v.on && marker(v).is_some());
        let (busy, rest): (Vec<_>, Vec<_>) = all.partition(|v| v.busy);
        let first = rest.first().filter(|_| busy.len() > 8);
        first.map(|vm| Vm::clone(vm))
    };
    let world = &run.world;
    let one_waits = || world.vcenter.read(waits).is_some();
    world.until("one that waits", SOON, one_waits).await?;
    // The operator has looked at it by then.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let theirs = world.vcenter.write(|i| {
        let vm = waits(i)?;
        let number = i.number();
        let mut moved = vm.clone();
        moved.object = Ref::new("VirtualMachine", format!("vm-{number}"));
        i.vms.insert(moved.object.id.clone(), moved);
        let id = vm.object.id.clone();
        let precious = Vm {
            name: "precious".to_owned(),
            uuid: format!("4231{number:04x}-0000-4000-8000-000000000000"),
            instance_uuid: format!("50310000-0000-4000-8000-{number:012x}"),
            path: "[ds-0] precious/precious.vmx".to_owned(),
            extra: Default::default(),
            ..vm
        };
        i.vms.insert(id.clone(), precious);
        Some(id)
    });
    let theirs = theirs.context("none waits any more")?;
    run.rest_with("down", &[("w", 0)]).await?;
    let on = |i: &Inventory| i.vms.get(&theirs).is_some_and(|v| v.on);
    if !run.world.vcenter.read(on) {
        let gone = Oracle::ForeignAndServingUntouched.broken("somebody's VM is off, or gone");
        run.world.director.violated(gone);
    }
    Ok(())
}

async fn credentials_of_another_namespace(run: &mut Run) -> Result<()> {
    run.world.api.namespace("other");
    let secrets = kind("secrets");
    let theirs = run.world.api.get(&secrets, &at_home(SECRET.1));
    let theirs = theirs.context("no Secret")?;
    let copy = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "data": theirs["data"],
    });
    run.world.api.create(&secrets, "other", copy)?;
    let reference =
        json!({"vsphere": {"credentialsSecretRef": {"name": "theirs", "namespace": "other"}}});
    run.world.pool("w", &reference).await?;
    run.world.play("w")?.scale(1);
    tokio::time::sleep(SOON).await;
    if run.world.director.times(EffectKind::Login) > 0 {
        let used = Oracle::ForeignAndServingUntouched
            .broken("the credentials of another namespace were used");
        run.world.director.violated(used);
    }
    run.world.play("w")?.scale(0);
    run.rest("down", |world| workloads::children(world) == 0)
        .await
}

async fn reserved_agent_labels(run: &mut Run) -> Result<()> {
    let labels = json!({"agent": {"labels": {"agent-install.openshift.io/somebodys": "x"}}});
    run.world.pool("w", &labels).await?;
    run.world.play("w")?.scale(1);
    tokio::time::sleep(SOON).await;
    if run.world.director.created() > 0 {
        let used = Oracle::ForeignAndServingUntouched
            .broken("a pool serves although only another service may give its labels");
        run.world.director.violated(used);
    }
    run.down().await
}

async fn iso_url_token_hidden(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    no_token(&run.world);
    run.down().await
}

async fn vm_copied_by_admin(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let vm = our_vm(&run.world).await?;
    let copy = clone_vm(&run.world, &vm);
    run.world.vcenter.write(|i| i.vms.remove(&vm.object.id));
    run.world.play("w")?.scale(0);
    run.patience = Duration::from_secs(1800);
    run.rest("down", |world| {
        world.machines("w") == 0 && workloads::children(world) == 0
    })
    .await?;
    if !run.world.vcenter.read(|i| i.vms.contains_key(&copy)) {
        let gone = Oracle::ForeignAndServingUntouched.broken("the admin's copy is gone");
        run.world.director.violated(gone);
    }
    // The orphan scan reports it once.
    tokio::time::sleep(SOON * 2).await;
    Ok(())
}

async fn marker_names_another_namespace(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.world.api.namespace("other");
    let vm = our_vm(&run.world).await?;
    let copy = clone_vm(&run.world, &vm);
    let theirs = Marker {
        namespace: "other".to_owned(),
        ..marker(&vm).context("no mark")?
    };
    run.world.vcenter.write(|i| {
        if let Some(copy) = i.vms.get_mut(&copy) {
            copy.extra.insert(MARKER_KEY.to_owned(), theirs.to_string());
        }
    });
    // Two scans.
    tokio::time::sleep(SOON * 2 + Duration::from_secs(60)).await;
    let events = run.world.api.list(&kind("events"), "other");
    if !events.is_empty() {
        let believed = Oracle::ForeignAndServingUntouched
            .broken("an Event was sent in a namespace that only a VM's mark names");
        run.world.director.violated(believed);
    }
    run.down().await
}

async fn credentials_secret_deleted(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let secrets = kind("secrets");
    run.world.api.delete(&secrets, &at_home(SECRET.1))?;
    tokio::time::sleep(SOON).await;
    let there = run.world.api.get(&secrets, &at_home(SECRET.1));
    if there.is_none() && workloads::marked(&run.world) > 0 {
        let gone = Oracle::NothingLeaks
            .broken("the credentials are gone, and the VM that they remove is there");
        run.world.director.violated(gone);
    }
    run.down().await
}

async fn hosts_match_their_machines(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    run.world.pool("x", &json!({})).await?;
    run.world.play("w")?.scale(2);
    run.world.play("x")?.scale(1);
    run.rest_with("three up", &[("w", 2), ("x", 1)]).await?;
    pairs_agree(&run.world);
    Ok(())
}

async fn two_pools_one_node_pool(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    let rival = json!({"nodePoolRef": {"name": "w"}});
    run.world.pool("x", &rival).await?;
    run.world.play("w")?.scale(1);
    tokio::time::sleep(SOON).await;
    let made = run.world.director.created();
    if made > 0 {
        let double = Oracle::OneVmPerAgentMachine.broken(format!(
            "{made} VMs were made for an AgentMachine that two pools claim"
        ));
        run.world.director.violated(double);
    }
    run.down().await
}

async fn foreign_host_for_two_pools(run: &mut Run) -> Result<()> {
    let labels = json!({"kind": "any"});
    let cluster = run.world.cluster.clone();
    for pool in ["w", "x"] {
        run.world.node_pool(&cluster, pool, &labels).await?;
        run.world.play(pool)?.scale(1);
    }
    run.waits("both machines wait for an Agent", |world| {
        let all = world.api.list(&kind("agentmachines"), "");
        let waits = |am: &&Arc<Value>| {
            let accepted = am["metadata"]["finalizers"].is_array();
            accepted && am.to_string().contains("NoSuitableAgents")
        };
        all.iter().filter(waits).count() == 2
    })
    .await?;
    run.world.upstream.end_providers();
    let service = run.world.upstream.service(NAMESPACE)?;
    let host = foreign::bare_metal(service, "demo", 1, labels.clone(), true).await?;
    let host = (kind("agents"), at_home(host.name()));
    run.world.api.write(|s, _| s.foreign.insert(host));
    let counts = json!({"hosts": {"countForeign": true}, "agent": {"labels": labels}});
    for pool in ["w", "x"] {
        run.world.pool_alone(pool, &counts)?;
    }
    tokio::time::sleep(SOON).await;
    let made = run.world.director.created();
    if made != 1 {
        let what = format!("{made} VMs were made for two machines beside one foreign host");
        let wrong = Oracle::SameNumberOfVms.broken(what);
        run.world.director.violated(wrong);
    }
    run.world.upstream.join(cluster).await?;
    let have = |world: &World, machines: usize, vms: usize| {
        ["w", "x"].iter().all(|pool| world.runs(pool, machines)) && workloads::marked(world) == vms
    };
    run.rest("both serve", |world| have(world, 1, 1)).await?;
    for pool in ["w", "x"] {
        run.world.play(pool)?.scale(0);
    }
    run.rest("down", |world| have(world, 0, 0)).await
}

async fn pool_deleted_while_scaling_up(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.world.delete_pool("w")?;
    run.world.play("w")?.scale(2);
    no_more_than(run, 1, Duration::from_secs(120)).await?;
    run.world.play("w")?.delete_node_pool().await?;
    run.rest("all gone", |world| {
        let pools = world.api.list(&kind("vsphereagentpools"), "");
        pools.len() + workloads::children(world) + workloads::marked(world) == 0
    })
    .await
}

async fn second_machine_while_first_serves(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    run.world.play("w")?.scale(2);
    no_more_than(run, 2, Duration::from_secs(120)).await?;
    run.rest_with("two up", &[("w", 2)]).await
}

async fn stale_watch_and_killed_actor(run: &mut Run) -> Result<()> {
    run.world.pool("w", &json!({})).await?;
    let director = run.world.director.clone();
    director.lag(Duration::from_secs(120));
    run.world.play("w")?.scale(1);
    until_effect(&run.world, EffectKind::CreateChild).await?;
    // The actor that replaces it remembers nothing, and its watch does not show the new VsphereAgent yet.
    let pool = format!("{NAMESPACE}/w");
    director.order(Order::Around(Fault::ActorKilled, pool, 1));
    no_more_than(run, 1, Duration::from_secs(180)).await?;
    run.rest_with("one up", &[("w", 1)]).await
}

/// Checks `same_number_of_vms`: for a while, no more VMs than that are created.
async fn no_more_than(run: &Run, most: u32, lasting: Duration) -> Result<()> {
    let director = run.world.director.clone();
    let more = || director.created() > most;
    if run.world.until("one VM more", lasting, more).await.is_ok() {
        let made = Oracle::SameNumberOfVms.broken(format!(
            "{} VMs were made, for {most} machines",
            director.created()
        ));
        director.violated(made);
        anyhow::bail!("and so on");
    }
    Ok(())
}

async fn freed_agent_matches_foreign_selector(run: &mut Run) -> Result<()> {
    run.one_up(&json!({})).await?;
    let selector = json!({"matchLabels": {"customer": "example"}});
    let world = &run.world;
    let theirs = world
        .upstream
        .node_pool(&world.cluster, "theirs", Some(selector))
        .await?;
    theirs.scale(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    run.world.play("w")?.scale(0);
    let gone = |world: &World| {
        world.machines("w") + workloads::children(world) + workloads::marked(world) == 0
    };
    let down = run.rest("down", gone).await;
    let agents = run.world.api.list(&kind("agents"), "");
    if !theirs.running().is_empty() || agents.iter().any(|a| serves(a)) {
        let taken = Oracle::ForeignAndServingUntouched
            .broken("somebody's Machine got a host whose removal had begun");
        run.world.director.violated(taken);
    }
    down
}
