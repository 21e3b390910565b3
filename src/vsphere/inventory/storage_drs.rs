//! Asks Storage DRS for a datastore for a new VM.

use agent_forge_actors::{
    domain::{hardware::Hardware, names::MoRef},
    ports::vcenter::{Recommendation, VcResult},
};

use super::cache::SPACE;
use crate::vsphere::{
    machines::config,
    rpc::{
        call::Call,
        client::Client,
        session::Asked,
        wire::{
            reference_in,
            storage::{
                PodDiskLocator, RecommendDatastores, StorageDrsPodSelectionSpec,
                StoragePlacementResult, StoragePlacementSpec, VmPodConfigForPlacement,
            },
            unboxed,
        },
    },
};

impl Client {
    /// What Storage DRS recommends for such a VM. VMs that are placed together share the answer: Storage DRS knows
    /// nothing of VMs that are still being created. Empty when it recommends nothing or refuses: free space decides
    /// then.
    pub(super) async fn recommended(
        &self,
        pod: &MoRef,
        folder: &MoRef,
        pool: &MoRef,
        hardware: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        let key = format!("{pod} {folder} {pool} {hardware:?}");
        let ask = self.ask_storage_drs(pod, folder, pool, hardware);
        self.cache.recommendations.get_or(key, SPACE, ask).await
    }

    async fn ask_storage_drs(
        &self,
        pod: &MoRef,
        folder: &MoRef,
        pool: &MoRef,
        hardware: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        let session = self.session(Asked::ByCall).await?;
        let Some(manager) = session.endpoint.content.storage_resource_manager.clone() else {
            return Ok(Vec::new());
        };
        let arguments = question(pod, folder, pool, hardware);
        let call =
            Call::new(&manager.into(), "RecommendDatastores", &arguments).about(pod.to_string());
        match self.read::<StoragePlacementResult>(call).await {
            Ok(answer) => Ok(proposals(&answer.unwrap_or_default())),
            Err(e) if e.fault().is_some() => {
                tracing::warn!(server = self.server(), error = %e, "no recommendation by Storage DRS");
                Ok(Vec::new())
            }
            Err(e) => Err(e),
        }
    }
}

fn question(pod: &MoRef, folder: &MoRef, pool: &MoRef, hardware: &Hardware) -> RecommendDatastores {
    let disk = PodDiskLocator {
        disk_id: config::DISK_KEY,
        disk_backing_info: config::disk_backing(hardware.eagerly_scrub),
    };
    RecommendDatastores {
        storage_spec: StoragePlacementSpec {
            kind: "create",
            folder: folder.into(),
            resource_pool: pool.into(),
            config_spec: config::diskful(hardware),
            pod_selection_spec: StorageDrsPodSelectionSpec {
                initial_vm_config: vec![VmPodConfigForPlacement {
                    storage_pod: pod.into(),
                    disk: vec![disk],
                }],
                storage_pod: pod.into(),
            },
        },
    }
}

fn proposals(answer: &StoragePlacementResult) -> Vec<Recommendation> {
    let actions = answer
        .recommendations
        .iter()
        .flat_map(|r| r.action.iter().map(|action| (r.rating, action)));
    actions
        .filter_map(|(rating, action)| {
            let datastore = action
                .get("destination")
                .map(unboxed)
                .and_then(reference_in)?;
            Some(Recommendation { datastore, rating })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn proposals_keep_their_rating_and_nothing_is_no_proposal() {
        let rec = |rating: i32, id: &str| {
            json!({"_typeName": "ClusterRecommendation", "key": "1", "rating": rating, "action": [
                {"destination": {"type": "Datastore", "value": id}, "_typeName": "StoragePlacementAction"},
                {"_typeName": "ClusterMigrationAction"}]})
        };
        let answer = json!({"recommendations": [rec(2, "a"), rec(5, "b")]});
        let seen: Vec<_> = proposals(&serde_json::from_value(answer).expect("answer"))
            .into_iter()
            .map(|r| (r.datastore.id, r.rating))
            .collect();
        assert_eq!(seen, [("a".to_owned(), 2), ("b".to_owned(), 5)]);
        let none = serde_json::from_value(json!({"drsFault": {"reason": "x"}})).expect("answer");
        assert!(proposals(&none).is_empty());
    }
}
