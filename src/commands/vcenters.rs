//! Sessions with the vCenters that pools name. They can read, and change nothing.

use std::{collections::BTreeMap, sync::Arc};

use agent_forge_actors::{
    domain::{
        names::{MoRef, ObjectKey},
        server::ServerRule,
    },
    ports::{
        effect::{Effect, EffectKind, Subject},
        vcenter::{Connector as _, Credentials, VCenter, VcResult},
    },
    sessions::{credentials, secret_ref},
};
use agent_forge_crds::names::ALLOW_POOLS_FROM_ANNOTATION;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use secrecy::SecretString;

use super::read_only::ReadOnly;
use crate::{
    args::Args,
    vsphere::{self, VsphereConnector},
};

/// The vCenters.
pub struct Vcenters {
    client: Client,
    connector: VsphereConnector,
    rule: ServerRule,
}

impl Vcenters {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(args: &Args, client: &Client) -> Self {
        let options = vsphere::Options {
            allow_http: args.vsphere_allow_http,
            allow_local: args.vsphere_allow_local_server,
            ..vsphere::Options::default()
        };
        Self {
            client: client.clone(),
            connector: VsphereConnector::new(Arc::new(ReadOnly), options),
            rule: args.server_rule(),
        }
    }

    /// The credentials in a Secret, for pools of that namespace.
    ///
    /// # Errors
    /// The Secret cannot be read, does not admit the namespace, or has a key that cannot be used.
    pub async fn credentials(
        &self,
        key: &ObjectKey,
        namespace: &str,
    ) -> anyhow::Result<Credentials> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let secret = api
            .get(&key.name)
            .await
            .with_context(|| format!("reading Secret {key}"))?;
        let pools_from = secret.annotations().get(ALLOW_POOLS_FROM_ANNOTATION);
        secret_ref::admit(key, pools_from.map(String::as_str), namespace)
            .map_err(|refused| anyhow::anyhow!(refused.message))?;
        let data: BTreeMap<String, SecretString> = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(name, bytes)| {
                Some((name, SecretString::from(String::from_utf8(bytes.0).ok()?)))
            })
            .collect();
        credentials::parse(&data, &self.rule).with_context(|| format!("Secret {key}"))
    }

    /// A session with the credentials in a Secret, for pools of that namespace.
    ///
    /// # Errors
    /// As [`Self::credentials`]; or vCenter does not answer, is not trusted, or refuses the login.
    pub async fn session(
        &self,
        key: &ObjectKey,
        namespace: &str,
    ) -> anyhow::Result<Arc<dyn VCenter>> {
        let credentials = self.credentials(key, namespace).await?;
        Ok(self.connect(&credentials).await?)
    }

    /// A session with these credentials.
    ///
    /// # Errors
    /// vCenter does not answer, is not trusted, or refuses the login.
    pub async fn connect(&self, credentials: &Credentials) -> VcResult<Arc<dyn VCenter>> {
        self.connector.connect(credentials).await
    }

    /// The privileges of `ids` that the user lacks on that object. `None`: vCenter does not say.
    ///
    /// # Errors
    /// vCenter does not answer.
    pub async fn lacking(
        &self,
        credentials: &Credentials,
        on: &MoRef,
        ids: &[&str],
    ) -> VcResult<Option<Vec<String>>> {
        self.connector.lacking(credentials, on, ids).await
    }

    /// Logs out.
    pub async fn close(self) {
        for session in self.connector.open() {
            let subject = Subject::Server(session.server().to_owned());
            session
                .logout(&Effect::new(EffectKind::Logout, subject))
                .await;
        }
    }
}
