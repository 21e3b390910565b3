//! Sessions with the vCenters that pools name. They can read, and change nothing.
//!
//! Guarantee: a password that the operator may not send now is not sent by a command either. The refusals are in the status
//! of the pools (`status.refusedCredentials`), and the rule is the operator's ([`Ledger`]).

use std::{collections::BTreeMap, sync::Arc};

use agent_forge_actors::{
    domain::{
        failure::ReconcileError,
        names::{MoRef, ObjectKey},
        server::ServerRule,
    },
    ports::{
        cluster::SecretVersion,
        effect::{Effect, EffectKind, Subject},
        vcenter::{Connector as _, Credentials, VCenter, VcResult},
    },
    sessions::{credentials, ledger::Ledger, login::Login, refusals::Door, secret_ref},
};
use agent_forge_crds::{VsphereAgentPool, names::ALLOW_POOLS_FROM_ANNOTATION};
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
    ledger: Arc<Ledger>,
    pools: Vec<Arc<VsphereAgentPool>>,
}

/// Credentials, and the Secret that they were read from.
pub struct Found {
    /// The credentials.
    pub credentials: Credentials,
    secret: ObjectKey,
    version: SecretVersion,
}

impl Vcenters {
    /// Nothing is connected yet. `pools`: all that may have a refusal on record.
    #[must_use]
    pub fn new(args: &Args, client: &Client, pools: Vec<Arc<VsphereAgentPool>>) -> Self {
        let options = vsphere::Options {
            allow_http: args.vsphere_allow_http,
            allow_local: args.vsphere_allow_local_server,
            ..vsphere::Options::default()
        };
        Self {
            client: client.clone(),
            ledger: options.ledger.clone(),
            connector: VsphereConnector::new(Arc::new(ReadOnly), options),
            rule: args.server_rule(),
            pools,
        }
    }

    /// The credentials in a Secret, for pools of that namespace.
    ///
    /// # Errors
    /// The Secret cannot be read, does not admit the namespace, or has a key that cannot be used.
    pub async fn credentials(&self, key: &ObjectKey, namespace: &str) -> anyhow::Result<Found> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let secret = api
            .get(&key.name)
            .await
            .with_context(|| format!("reading Secret {key}"))?;
        let pools_from = secret.annotations().get(ALLOW_POOLS_FROM_ANNOTATION);
        secret_ref::admit(
            secret_ref::CREDENTIALS,
            key,
            pools_from.map(String::as_str),
            namespace,
        )
        .map_err(|refused| anyhow::anyhow!(refused.message))?;
        let version = SecretVersion {
            uid: secret.uid().unwrap_or_default(),
            resource_version: secret.resource_version().unwrap_or_default(),
        };
        let data: BTreeMap<String, SecretString> = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(name, bytes)| {
                Some((name, SecretString::from(String::from_utf8(bytes.0).ok()?)))
            })
            .collect();
        let parsed = credentials::parse(&data, &self.rule);
        Ok(Found {
            credentials: parsed.with_context(|| format!("Secret {key}"))?,
            secret: key.clone(),
            version,
        })
    }

    /// A session with the credentials in a Secret, for pools of that namespace.
    ///
    /// # Errors
    /// As [`Self::credentials`] and [`Self::connect`].
    pub async fn session(
        &self,
        key: &ObjectKey,
        namespace: &str,
    ) -> anyhow::Result<Arc<dyn VCenter>> {
        let found = self.credentials(key, namespace).await?;
        Ok(self.connect(&found).await?)
    }

    /// A session with these credentials.
    ///
    /// # Errors
    /// vCenter does not answer, is not trusted, or refuses the login. "not tried": it refused these credentials lately, or
    /// others of the account, and nothing was sent.
    pub async fn connect(&self, found: &Found) -> Result<Arc<dyn VCenter>, ReconcileError> {
        let login = Login::of(&found.credentials, found.version.clone());
        self.ledger.recall(&login, &self.pools);
        if let Some(rest) = self.ledger.refrains(&login, Door::Session) {
            let told = login.told(&found.secret, rest);
            let message = format!("not tried: {}", told.message);
            return Err(ReconcileError { message, ..told });
        }
        Ok(self.connector.connect(&found.credentials).await?)
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

    /// What the console of a running VM shows now, as a PNG.
    ///
    /// # Errors
    /// vCenter does not answer, or refuses.
    pub async fn screen(&self, found: &Found, vm: &MoRef) -> VcResult<Vec<u8>> {
        let picture = self.connector.screen(&found.credentials, vm).await?;
        Ok(picture.to_vec())
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::testing::World;
    use agent_forge_actors::ports::vcenter::Trust;
    use agent_forge_crds::{Time, conditions::Reason, pool::RefusedCredentials};
    use clap::Parser as _;
    use jiff::{SignedDuration, Timestamp};

    /// A pool with the refusal of a password, that many minutes ago.
    fn refused(version: &str, account: &str, minutes: i64) -> Arc<VsphereAgentPool> {
        refused_twice(version, account, (minutes, None))
    }

    /// The same, and of another password of the account before it.
    fn refused_twice(
        version: &str,
        account: &str,
        (minutes, earlier): (i64, Option<i64>),
    ) -> Arc<VsphereAgentPool> {
        let ago = |minutes| Timestamp::now() - SignedDuration::from_mins(minutes);
        let pool = World::serving().pool;
        let mut pool: VsphereAgentPool = serde_json::from_value(pool).expect("a pool");
        pool.status.get_or_insert_default().refused_credentials = Some(RefusedCredentials {
            account: Some(account.to_owned()),
            earlier_at: earlier.map(|minutes| Time(ago(minutes))),
            refused_at: Some(Time(ago(minutes))),
            secret_resource_version: version.to_owned(),
            secret_uid: "u-secret".to_owned(),
            ..RefusedCredentials::default()
        });
        Arc::new(pool)
    }

    #[tokio::test]
    async fn a_command_sends_no_password_that_rests_and_says_so() {
        let vcenter = TcpListener::bind("127.0.0.1:0").expect("a port");
        vcenter.set_nonblocking(true).expect("a socket");
        let address = vcenter.local_addr().expect("an address");
        let flags = ["agent-forge", "--vsphere-allow-http=true"];
        let flags = flags
            .into_iter()
            .chain(["--vsphere-allow-local-server=true"]);
        let args = Args::parse_from(flags);
        let client = Client::try_from(kube::Config::new(
            "http://127.0.0.1:1".parse().expect("a URI"),
        ));
        let client = client.expect("a client");
        let found = Found {
            credentials: Credentials {
                server: format!("http://{address}/").parse().expect("a URL"),
                username: "Forge@vsphere.local".to_owned(),
                password: SecretString::from("p"),
                trust: Trust::System,
            },
            secret: ObjectKey::new("demo", "vc"),
            version: SecretVersion {
                uid: "u-secret".to_owned(),
                resource_version: "7".to_owned(),
            },
        };
        let account = "forge@127.0.0.1";
        let table = [
            (
                "the same bytes",
                vec![refused("7", account, 1)],
                Some(Reason::InvalidCredentials),
            ),
            (
                "others of the account, twice",
                vec![refused("5", account, 1), refused("6", account, 2)],
                Some(Reason::LoginLimited),
            ),
            (
                "others of the account, twice, by the record of one pool",
                vec![refused_twice("6", account, (1, Some(2)))],
                Some(Reason::LoginLimited),
            ),
            (
                "others of the account, once",
                vec![refused("6", account, 1)],
                None,
            ),
            (
                "the same bytes, long ago",
                vec![refused("7", account, 11)],
                None,
            ),
            ("no refusal", vec![], None),
        ];
        for (what, pools, reason) in table {
            let vcenters = Vcenters::new(&args, &client, pools);
            let connecting = vcenters.connect(&found);
            let end = tokio::time::timeout(std::time::Duration::from_millis(300), connecting).await;
            let was_asked = vcenter.accept().is_ok();
            assert_eq!(was_asked, reason.is_none(), "{what}");
            if let Some(reason) = reason {
                let told = end.expect("an answer").err().expect(what);
                assert_eq!(told.reason, reason, "{what}");
                let said = told.message;
                assert!(
                    said.starts_with("not tried: ") && said.contains("Secret demo/vc"),
                    "{said}"
                );
            }
        }
    }
}
