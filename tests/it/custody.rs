//! A credentials Secret stays as long as a VM needs it, in whatever order things are deleted.

use std::collections::BTreeSet;

use agent_forge_crds::names::CREDENTIALS_FINALIZER_PREFIX;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::json;

use crate::{
    witness::Witness,
    world::{POOL, Setup, World},
};

const SECRET: &str = "vsphere-credentials";

impl World {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    /// uids of the pools with a finalizer on the Secret; `None` if the Secret does not exist.
    pub async fn holders(&self, secret: &str) -> Result<Option<BTreeSet<String>>> {
        let found = self.secrets().get_metadata_opt(secret).await?;
        Ok(found.map(|s| {
            let all = s.finalizers().iter();
            all.filter_map(|f| f.strip_prefix(CREDENTIALS_FINALIZER_PREFIX))
                .map(str::to_owned)
                .collect()
        }))
    }

    async fn uid_of_pool(&self, pool: &str) -> Result<String> {
        self.pools().get(pool).await?.uid().context("a uid")
    }

    pub async fn until_holders(&self, secret: &str, pools: &[&str]) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for pool in pools {
            wanted.insert(self.uid_of_pool(pool).await?);
        }
        self.until(&format!("Secret {secret} held by {pools:?}"), async || {
            Ok(self.holders(secret).await?.as_ref() == Some(&wanted))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_takes_its_vms_along() -> Result<()> {
    let world = World::start(Setup::own_lab()).await?;
    let nodes = world.up(2).await?;
    world.settled(2).await?;
    world.until_holders(SECRET, &[POOL]).await?;

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces
        .delete(world.namespace(), &DeleteParams::default())
        .await?;
    world
        .until("a Secret that waits for its VMs", async || {
            let secret = world.secrets().get_metadata_opt(SECRET).await?;
            Ok(secret
                .context("the Secret went before the VMs")?
                .metadata
                .deletion_timestamp
                .is_some())
        })
        .await?;
    // The Machines are in another namespace. As long as they exist, their VMs exist.
    ensure!(
        world.vms().await?.len() == 2,
        "VMs that serve Machines went"
    );
    nodes.scale(0);
    world
        .until("neither VMs nor the namespace", async || {
            let vms = world.vms().await?.len();
            Ok(vms == 0 && namespaces.get_opt(world.namespace()).await?.is_none())
        })
        .await?;
    world.audited().await?;
    let forbidden = world.log.forbidden(&world.access.user)?;
    // Only the creation of Events is refused, because the namespace is being deleted.
    let other = forbidden.iter().find(|e| !e.uri.contains("/events"));
    ensure!(other.is_none(), "refused: {other:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_stays_while_a_pool_or_a_vm_needs_it_and_no_longer() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    let witness = Witness::start(world.sight());
    world.create_pool("other", &json!({})).await?;
    let (first, second) = (
        world.node_pool().await?,
        world.node_pool_named("other").await?,
    );
    world.until_holders(SECRET, &[POOL, "other"]).await?;
    first.scale(1);
    second.scale(1);
    world.running(&first, 1).await?;
    world.running(&second, 1).await?;

    // The spec names another Secret, but the VM's record still names the old one.
    let password = world.process.options().password.clone();
    world.set_secret("renamed", &password).await?;
    world
        .patch_pool(
            POOL,
            &json!({"vsphere": {"credentialsSecretRef": {"name": "renamed"}}}),
        )
        .await?;
    world.until_holders("renamed", &[POOL]).await?;
    world.until_holders(SECRET, &[POOL, "other"]).await?;

    // A person deletes the Secret. It stays until the pool that still names it is gone, even if the operator restarts.
    world
        .secrets()
        .delete(SECRET, &DeleteParams::default())
        .await?;
    first.scale(0);
    world.settled(1).await?;
    world.until_holders(SECRET, &["other"]).await?;
    world.until_holders("renamed", &[POOL]).await?;
    second.scale(0);
    world
        .until("the last VM on its way out", async || {
            let children = world.all_children().await?;
            let leaving =
                |c: &agent_forge_crds::VsphereAgent| c.metadata.deletion_timestamp.is_some();
            Ok(children.is_empty() || children.iter().any(leaving))
        })
        .await?;
    world.crash().await?;
    world.settled(0).await?;
    world.until_holders(SECRET, &["other"]).await?;
    world
        .pools()
        .delete("other", &DeleteParams::default())
        .await?;
    world
        .until("the Secret gone", async || {
            Ok(world.holders(SECRET).await?.is_none())
        })
        .await?;
    witness.verdict()
}
