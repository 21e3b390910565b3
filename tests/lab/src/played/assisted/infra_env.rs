//! The InfraEnv controller: gives each InfraEnv its image URL.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use serde_json::json;

use super::{
    super::{
        condition::{self, Condition, Shape},
        desk::Player,
        mirror::Mirror,
        nature,
        object::Facts as _,
    },
    INFRA_ENV_LABEL,
    image_server::ImageServer,
};

const FINALIZER: &str = "infraenv.agent-install.openshift.io/ai-deprovision";

/// InfraEnvs that get no URL for now, by name.
pub type Withheld = Arc<Mutex<BTreeSet<String>>>;

pub struct Controller {
    pub infra_envs: Mirror,
    pub images: ImageServer,
    pub withheld: Withheld,
    pub delay: Duration,
}

impl Player for Controller {
    async fn pass(&self, key: &str) -> Result<Option<Duration>> {
        let Some(infra_env) = self.infra_envs.get(key) else {
            return Ok(None);
        };
        if infra_env.is_deleting() {
            if infra_env.has_finalizer(FINALIZER) {
                let ended = self.infra_envs.remove_finalizer(&infra_env, FINALIZER);
                ended.await?;
            }
            return Ok(None);
        }
        if !infra_env.has_finalizer(FINALIZER) {
            let added = self.infra_envs.add_finalizer(&infra_env, FINALIZER);
            added.await?;
            return Ok(Some(self.delay));
        }
        self.images.touch(self.infra_envs.namespace(), key);
        let withheld = self
            .withheld
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(key);
        let has_url = !infra_env.text("/status/isoDownloadURL").is_empty();
        if withheld && has_url {
            // Like an InfraEnv whose image does not exist yet: no URL and no condition.
            let pending = json!({"isoDownloadURL": "", "createdTime": null, "conditions": null});
            self.infra_envs.patch_status(&infra_env, pending).await?;
        } else if !withheld && !has_url {
            let url = self.images.publish(self.infra_envs.namespace(), key);
            let created = condition::seconds(nature::now());
            let available = Condition::new(
                "ImageCreated",
                "True",
                "InfraEnvAvailable",
                "Image has been created",
            );
            let before = infra_env.at("/status/conditions");
            let conditions = condition::render(&[available], before, Shape::Metav1, nature::now());
            let status = json!({
                "isoDownloadURL": url, "createdTime": created, "conditions": conditions,
                "agentLabelSelector": {"matchLabels": {INFRA_ENV_LABEL: key}},
            });
            self.infra_envs.patch_status(&infra_env, status).await?;
        }
        Ok(None)
    }
}
