//! vCenter gets another address. Runs the operator's binary.

use agent_forge_lab::parts::VCenterOptions;
use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    site::Site,
    trouble::sites,
    world::{Setup, World},
};

impl Site {
    /// Waits until a machine of this site waits for this reason, at the pool or at a VsphereAgent.
    async fn until_waits(&self, world: &World, reason: &str) -> Result<()> {
        let said = async || {
            let pool = world.pools().get(&self.name).await?.status;
            let all = world.all_children().await?.into_iter();
            let ours = all.filter(|c| c.spec.pool_ref.name == self.name);
            let rows = ours.flat_map(|c| c.status.unwrap_or_default().waiting_on);
            let mut rows = rows.chain(pool.unwrap_or_default().waiting_on);
            Ok(rows.any(|row| row.reason.as_str() == reason))
        };
        let waited = world.until(reason, said).await;
        self.explained(world, waited).await
    }
}

/// The Secret first names a wrong vCenter by mistake, and then the new address. No restart is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_vcenter_that_gets_another_address_holds_nothing_up() -> Result<()> {
    let world = &World::without_pool(Setup::default()).await?;
    let wanted = ["renamed", "another"].map(|name| (name, VCenterOptions::default()));
    let sites = sites(world, &wanted).await?;
    let [site, other] = &sites[..] else {
        anyhow::bail!("two sites");
    };
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
    ensure!(site.admin.inventory().await?.vms.len() == 1);
    let url = site.process.url().replace("127.0.0.1", "localhost");
    ensure!(url != site.process.url(), "{url}");
    leads_to(url, site.process.ca_pem().to_owned()).await?;
    site.empties(world).await?;
    site.never_double(1, 1)
}
