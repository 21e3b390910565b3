//! Hosts that register with the identity of our VM. None of them is labelled or approved, and the VsphereAgent names
//! them. The VM's own guest never registers here, so each Agent is one that this test registered.

use agent_forge_crds::{
    VsphereAgent,
    agent::VmStatus,
    external::agent::{Agent, BARE_METAL_HOST_LABEL},
    names::AGENT_MACHINE_LABEL,
};
use agent_forge_lab::played::{
    assisted::host::{HostFacts, VMWARE},
    guests::identity::{self, Quirk},
};
use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};

use crate::{
    look::{merge, merge_status},
    world::{LIMIT, Setup, World},
};

/// A host with this id that reports the VM's identity.
fn host(vm: &VmStatus, id: &str) -> HostFacts {
    let metal = HostFacts::bare_metal(7);
    let uuid = vm.bios_uuid.as_deref().unwrap_or_default();
    let mut interfaces = metal.interfaces.clone();
    interfaces[0].mac = vm.mac_addresses.first().cloned().unwrap_or_default();
    HostFacts {
        id: id.to_owned(),
        serial: identity::serial(uuid),
        manufacturer: VMWARE.to_owned(),
        product: "VMware20,1".to_owned(),
        is_virtual: true,
        interfaces,
        ..metal
    }
}

fn recorded(child: &VsphereAgent) -> Option<&VmStatus> {
    child.status.as_ref()?.vm.as_ref()
}

impl World {
    /// Registers a host with the assisted service.
    async fn register(&self, infra_env: &str, host: HostFacts) -> Result<()> {
        let service = self.upstream.service(&self.cluster.agent_namespace)?;
        service.register(infra_env, host).await?;
        Ok(())
    }

    async fn is_untouched(&self, name: &str) -> Result<()> {
        let agent: Agent = self.agents().get(name).await?;
        let labelled = agent.labels().contains_key(AGENT_MACHINE_LABEL);
        ensure!(!agent.spec.approved && !labelled, "{agent:?}");
        Ok(())
    }

    async fn remove_agent(&self, name: &str) -> Result<()> {
        self.agents().delete(name, &DeleteParams::default()).await?;
        self.until("it is gone", async || {
            Ok(self.agents().get_opt(name).await?.is_none())
        })
        .await
    }

    async fn set_first_start(&self, child: &str, at: &Value) -> Result<()> {
        let status = json!({"vm": {"firstPoweredOn": at}});
        merge_status(&self.children(), child, status).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_registers_as_our_vm_is_named_and_never_approved() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let guests = world.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("/", Quirk::DeadOnArrival);
    let _nodes = world.wanted(1).await?;
    world
        .until_within(LIMIT, "a VM that runs", async || {
            let children = world.all_children().await?;
            let vm = children.first().and_then(recorded);
            Ok(vm.is_some_and(|vm| vm.first_powered_on.is_some()))
        })
        .await?;
    let child = world.only_child().await?;
    let vm = recorded(&child).context("recorded")?;
    let source = vm
        .infra_env_ref
        .as_ref()
        .context("the InfraEnv is recorded")?;
    let infra_env = source.name.clone().context("its name")?;
    let uuid = vm.bios_uuid.clone().context("a uuid")?;
    // Each host differs in one value.
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    service.create_infra_env("other", json!({})).await?;
    let elsewhere = "0a000000-0000-4000-8000-0000000000f7";
    for (name, infra_env) in [
        (elsewhere, infra_env.as_str()),
        ("rogue-infra", "other"),
        ("rogue-metal", infra_env.as_str()),
    ] {
        world.register(infra_env, host(vm, name)).await?;
        if name == "rogue-metal" {
            let labels = json!({"metadata": {"labels": {BARE_METAL_HOST_LABEL: "host-7"}}});
            merge(&world.agents(), name, labels).await?;
        }
        world.until_waits("AgentUnproven", &[name]).await?;
        world.is_untouched(name).await?;
        world.remove_agent(name).await?;
    }
    let then = serde_json::to_value(&vm.first_powered_on)?;
    let later = json!("2099-01-01T00:00:00Z");
    world.set_first_start(&child.name_any(), &later).await?;
    let early = "rogue-early";
    world.register(&infra_env, host(vm, early)).await?;
    world.until_waits("AgentUnproven", &[early]).await?;
    world.is_untouched(early).await?;
    world.remove_agent(early).await?;
    world.set_first_start(&child.name_any(), &then).await?;

    // Two hosts that match in everything.
    let both = [identity::swapped(&uuid), uuid];
    for name in &both {
        world.register(&infra_env, host(vm, name)).await?;
    }
    let names: Vec<&str> = both.iter().map(String::as_str).collect();
    world.until_waits("RivalAgents", &names).await?;
    world
        .until("both show what they are", async || {
            let agents = world.all_agents().await?;
            let shown = |a: &&Agent| a.inventory().is_some();
            Ok(agents.iter().filter(shown).count() == both.len())
        })
        .await?;
    world.until_waits("RivalAgents", &names).await?;
    for name in &both {
        world.is_untouched(name).await?;
    }
    // A person finds out which one is not the VM's.
    world.remove_agent(&both[1]).await?;
    world
        .until("the other one is approved", async || {
            Ok(world.agents().get(&both[0]).await?.spec.approved)
        })
        .await
}
