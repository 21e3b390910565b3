//! A fresh lab with one hosted cluster, one pool with its ISO in place, and one operator.

use std::{path::Path, time::Duration};

use agent_forge_crds::{VsphereAgentPool, conditions, external::agent::Agent};
use anyhow::{Context as _, Result};
use kube::{
    Api,
    api::PostParams,
    core::{ApiResource, DynamicObject},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Plan;
use crate::{
    Lab, LabOptions, OperatorAccess,
    lab::manifest::{OPERATOR_NAMESPACE, agent_selector, pool},
    parts::{
        Operator, OperatorOptions, VCenterAdmin, VCenterOptions, vcenter_trouble::DatastoreState,
    },
    patience::HANG,
    played::{HostedCluster, HostedClusterPlay, Upstream},
    stage,
};

const NAMESPACE: &str = "bench";
const CLUSTER: &str = "bench";
const POOL: &str = "bench-worker";

/// The parts of a run. Fields are dropped in this order: the operator first, the lab last.
pub(crate) struct World {
    pub(crate) operator: Operator,
    pub(crate) nodes: HostedClusterPlay,
    pub(crate) pools: Api<VsphereAgentPool>,
    pub(crate) upstream: Upstream,
    pub(crate) vcenter: VCenterAdmin,
    pub(crate) access: OperatorAccess,
    pub(crate) lab: Lab,
    pub(crate) cluster: HostedCluster,
    options: OperatorOptions,
}

impl World {
    /// Starts everything and waits until the pool's ISO is on its datastore.
    ///
    /// # Errors
    /// A part does not start, or the ISO does not arrive.
    pub(crate) async fn start(program: &Path, plan: &Plan) -> Result<Self> {
        let world = Self::without_pool(program, plan).await?;
        world.with_iso(&json!({})).await?;
        Ok(world)
    }

    /// Starts everything except the pool.
    ///
    /// # Errors
    /// A part does not start.
    pub(super) async fn without_pool(program: &Path, plan: &Plan) -> Result<Self> {
        let options = VCenterOptions {
            create_delay: plan.create,
            power_on_delay: plan.power_on,
            reconfigure_delay: super::RECONFIGURE,
            tls: plan.tls,
            ..VCenterOptions::default()
        };
        let lab = Lab::start(LabOptions::default().vcenter(options)).await?;
        let client = lab.admin();
        let cluster = HostedCluster::new(NAMESPACE, CLUSTER);
        let clusters = std::slice::from_ref(&cluster);
        let upstream = stage::set(&lab, clusters, plan.delays.clone(), plan.image.clone()).await?;
        let process = lab.vcenters().first().context("the lab has one vCenter")?;
        let vcenter = process.admin()?;
        // The datastores of the simulated vCenter take 90 VMs.
        let room = DatastoreState {
            free_bytes: Some(1 << 50),
            ..DatastoreState::default()
        };
        for datastore in ["ds-0", "ds-1", "ds-2"] {
            vcenter.set_datastore(datastore, &room).await?;
        }
        let access = lab.kubeconfig_for_operator(OPERATOR_NAMESPACE).await?;
        let mut options = OperatorOptions::new(program, &access.kubeconfig)
            .args([format!("--max-concurrent-vcenter-tasks={}", plan.tasks)]);
        options.env.extend(plan.env.clone());
        let operator = lab.operator(&options).await?;
        let nodes = upstream
            .node_pool(&cluster, POOL, Some(agent_selector()))
            .await?;
        let pools: Api<VsphereAgentPool> = Api::namespaced(client, NAMESPACE);
        Ok(Self {
            operator,
            nodes,
            pools,
            upstream,
            vcenter,
            access,
            lab,
            cluster,
            options,
        })
    }

    /// Creates the pool with `patch` merged into its spec, and waits for its ISO.
    ///
    /// # Errors
    /// The API server refuses the pool, or the ISO does not arrive.
    pub(super) async fn with_iso(&self, patch: &Value) -> Result<()> {
        self.pools
            .create(&PostParams::default(), &pool(&self.cluster, POOL, patch)?)
            .await
            .context("create the pool")?;
        self.until_pool("its ISO on the datastore", |pool| {
            let status = pool.status.as_ref();
            status.is_some_and(|s| conditions::is_true(&s.conditions, conditions::ISO_READY))
        })
        .await
    }

    /// Starts another operator in place of the stopped one. Returns the time until it was ready.
    ///
    /// # Errors
    /// It does not become ready.
    pub(crate) async fn start_anew(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.operator = self.lab.operator(&self.options).await?;
        Ok(begun.elapsed())
    }

    /// How an operator is started here.
    pub(crate) fn options(&self) -> &OperatorOptions {
        &self.options
    }

    /// Name of the pool.
    pub(super) fn pool_name(&self) -> &'static str {
        POOL
    }

    /// All Agents.
    pub(crate) fn agents(&self) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.lab.admin(),
            NAMESPACE,
            &ApiResource::erase::<Agent>(&()),
        )
    }

    /// Waits until `done` holds for the pool.
    ///
    /// # Errors
    /// It does not hold within [`HANG`]. The error has the pool's status and the end of the operator's log.
    pub(crate) async fn until_pool(
        &self,
        what: &str,
        done: impl Fn(&VsphereAgentPool) -> bool,
    ) -> Result<()> {
        let holds = |pool: Option<&VsphereAgentPool>| pool.is_some_and(&done);
        let waited =
            tokio::time::timeout(HANG, await_condition(self.pools.clone(), POOL, holds)).await;
        match waited {
            Ok(outcome) => {
                outcome.with_context(|| format!("wait for the pool to show {what}"))?;
                Ok(())
            }
            Err(_) => {
                let pool = self.pools.get(POOL).await?;
                anyhow::bail!(
                    "the pool did not show {what} within {} s; its status: {}\nthe operator's log ends with:\n{}",
                    HANG.as_secs(),
                    serde_json::to_string(&pool.status)?,
                    self.operator.process.tail()
                )
            }
        }
    }
}
