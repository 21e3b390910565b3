//! Everything that must exist before a pool is created: namespaces, the played upstream with its guests, an InfraEnv,
//! credentials. Demo, bench and tests begin with it.

use agent_forge_crds::names::ALLOW_POOLS_FROM_ANNOTATION;
use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{
    Lab,
    lab::{
        apply::apply,
        manifest::{CREDENTIALS, OPERATOR_NAMESPACE, credentials, namespace, secret},
    },
    parts::VCenterProcess,
    played::{Delays, HostedCluster, ImageOptions, PlayedOptions, Upstream},
};

/// Prepares hosted clusters on the lab's first vCenter. All have their NodePools and Agents in the namespaces of the
/// first one, and share the InfraEnv, which has its name.
///
/// # Errors
/// There is no cluster, the lab has no vCenter, the API server refuses something, or the InfraEnv does not get its image.
pub async fn set(
    lab: &Lab,
    clusters: &[HostedCluster],
    delays: Delays,
    image: ImageOptions,
) -> Result<Upstream> {
    let vcenter = lab.vcenters().first().context("the lab has one vCenter")?;
    set_with(lab, vcenter, OPERATOR_NAMESPACE, clusters, delays, image).await
}

/// The same with another vCenter and another namespace of the operator.
///
/// # Errors
/// As [`set`].
pub async fn set_with(
    lab: &Lab,
    vcenter: &VCenterProcess,
    operator_namespace: &str,
    clusters: &[HostedCluster],
    delays: Delays,
    image: ImageOptions,
) -> Result<Upstream> {
    let client = lab.admin();
    let cluster = clusters.first().context("a hosted cluster")?;
    let planes = clusters.iter().map(|c| c.control_plane_namespace.as_str());
    let rest = [
        cluster.namespace.as_str(),
        operator_namespace,
        cluster.agent_namespace.as_str(),
    ];
    for name in planes.chain(rest) {
        let mut object = namespace(name);
        // The pools are in the cluster's namespace. If the InfraEnv is in another namespace, that one must admit them.
        if name == cluster.agent_namespace && name != cluster.namespace {
            object["metadata"]["annotations"] =
                json!({ ALLOW_POOLS_FROM_ANNOTATION: cluster.namespace });
        }
        apply(&client, &object).await?;
    }
    let played = PlayedOptions {
        clusters: clusters.to_vec(),
        delays,
        image,
    };
    let upstream = Upstream::start(&client, Some(vcenter.admin()?), played).await?;
    let service = upstream.service(&cluster.agent_namespace)?;
    service.create_infra_env(&cluster.name, json!({})).await?;
    let credentials = secret(&cluster.namespace, CREDENTIALS, &credentials(vcenter));
    apply(&client, &credentials).await?;
    Ok(upstream)
}
