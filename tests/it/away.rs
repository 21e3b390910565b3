//! VMs that vCenter cannot show for a while, and a VM folder that a person deletes. Runs the operator's binary.

use agent_forge_lab::parts::{
    VCenterOptions,
    vcenter_trouble::{ForeignVm, VmAction},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::{
    site::Site,
    trouble::sites,
    world::{LIMIT, Setup, World},
};

impl Site {
    /// The reasons for which machines of this site wait, at the pool and at the VsphereAgents.
    async fn waits(&self, world: &World) -> Result<Vec<String>> {
        let pool = world.pools().get(&self.name).await?.status;
        let all = world.children().list(&Default::default()).await?;
        let ours = all
            .into_iter()
            .filter(|c| c.spec.pool_ref.name == self.name);
        let rows = ours.flat_map(|c| c.status.unwrap_or_default().waiting_on);
        let rows = rows.chain(pool.unwrap_or_default().waiting_on);
        Ok(rows.map(|row| row.reason.into()).collect())
    }

    async fn until_waits(&self, world: &World, reason: &str) -> Result<()> {
        let said = async || Ok(self.waits(world).await?.iter().any(|r| r == reason));
        let waited = world.until(reason, said).await;
        self.explained(world, waited).await
    }

    /// The reference of the only VM here.
    async fn only_vm(&self) -> Result<String> {
        let inventory = self.admin.inventory().await?;
        let [vm] = inventory.vms.as_slice() else {
            anyhow::bail!("not one VM: {:?}", inventory.vms);
        };
        Ok(vm.moref.clone())
    }
}

/// A datastore is unreachable while a machine is deleted. The VsphereAgent stays until the VM can be seen again.
async fn hidden(world: &World, site: &Site) -> Result<()> {
    site.up(world, &json!({})).await?;
    let vm = site.only_vm().await?;
    site.admin.act(&vm, VmAction::Hide).await?;
    site.nodes.scale(0);
    site.until_waits(world, "VMInaccessible").await?;
    ensure!(site.only_vm().await? == vm);
    site.admin.act(&vm, VmAction::Show).await?;
    site.empties(world).await?;
    site.never_double(1, 1)
}

/// A person deletes the folder of a serving VM. Its Machine is replaced, and the operator creates the folder again.
async fn folder_deleted(world: &World, site: &Site) -> Result<()> {
    site.up(world, &json!({})).await?;
    let vm = site.only_vm().await?;
    site.admin.delete_folder(&site.name).await?;
    let sick = site.nodes.running().pop().context("it ran")?;
    site.nodes.remediate(&sick).await?;
    let replaced = || {
        site.nodes
            .running()
            .first()
            .is_some_and(|name| *name != sick)
    };
    let waited = site.nodes.wait("another Machine", LIMIT, replaced).await;
    site.explained(world, waited).await?;
    ensure!(site.only_vm().await? != vm);
    site.empties(world).await?;
    site.never_double(1, 2)
}

/// Another VM has the name. Another folder in the spec solves that at once.
async fn mended(world: &World, site: &Site) -> Result<()> {
    site.nodes.scale(1);
    let named = || site.nodes.agent_machines().len() == 1;
    site.nodes.wait("an AgentMachine", LIMIT, named).await?;
    let machine = site.nodes.agent_machines().pop().context("it is there")?;
    let theirs = ForeignVm {
        name: machine.metadata.name.clone().context("a name")?,
        folder: site.name.clone(),
        ..ForeignVm::default()
    };
    let theirs = site.admin.create_vm(&theirs).await?;
    site.open(world, &json!({})).await?;
    site.until_waits(world, "NameConflict").await?;
    let patch = json!({"vsphere": {"folder": format!("{}-2", site.name)}});
    world.patch_pool(&site.name, &patch).await?;
    site.running(world, 1).await?;
    site.admin.act(&theirs, VmAction::Destroy).await?;
    site.empties(world).await
}

/// vCenter gets another address. The Secret first names a wrong vCenter by mistake, and then the new address.
async fn renamed(world: &World, site: &Site, other: &Site) -> Result<()> {
    site.up(world, &json!({})).await?;
    let before = other.admin.calls().await?.logins("vim");
    let leads_to = |server: String, ca: String| {
        let data = json!({"server": server, "caBundle": ca});
        async move {
            world
                .set_secret_data(world.namespace(), &site.name, data)
                .await
        }
    };
    leads_to(
        other.process.url().to_owned(),
        other.process.ca_pem().to_owned(),
    )
    .await?;
    let led = async || Ok(other.admin.calls().await?.logins("vim") > before);
    world.until("a login at the other vCenter", led).await?;
    site.nodes.scale(0);
    site.until_waits(world, "ServerMismatch").await?;
    site.only_vm().await?;
    let url = site.process.url().replace("127.0.0.1", "localhost");
    ensure!(url != site.process.url(), "{url}");
    leads_to(url, site.process.ca_pem().to_owned()).await?;
    site.empties(world).await?;
    site.never_double(1, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_seen_is_not_let_go_and_what_was_deleted_holds_nothing_up() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let wanted = ["hidden", "foldergone", "mended", "renamed", "another"]
        .map(|name| (name, VCenterOptions::default()));
    let sites = sites(&world, &wanted).await?;
    let (a, b, c, d) = tokio::join!(
        hidden(&world, &sites[0]),
        folder_deleted(&world, &sites[1]),
        mended(&world, &sites[2]),
        renamed(&world, &sites[3], &sites[4])
    );
    a.context("hidden")?;
    b.context("folder deleted")?;
    c.context("mended")?;
    d.context("renamed")
}
