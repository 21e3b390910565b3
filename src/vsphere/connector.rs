//! Shares clients: equal credentials give the same client. A pool never uses a session that its own Secret could not
//! open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use agent_forge_actors::{
    domain::{names::MoRef, server::server_name},
    ports::{
        effect::{Effect, Gate},
        vcenter::{Connector, Credentials, VCenter, VcResult},
    },
    sessions::credentials,
};
use async_trait::async_trait;

use super::rpc::{
    client::Client, http::unchecked, limits::Limits, locked, options::Options, session::Asked,
};

/// Logs in to vCenters and shares the clients.
pub struct VsphereConnector {
    gate: Arc<dyn Gate>,
    options: Arc<Options>,
    limits: Limits,
    clients: Mutex<HashMap<[u8; 32], Arc<Client>>>,
}

impl std::fmt::Debug for VsphereConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VsphereConnector")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl VsphereConnector {
    /// A connector without any session.
    #[must_use]
    pub fn new(gate: Arc<dyn Gate>, options: Options) -> Self {
        let limits = Limits::new(options.tasks);
        Self {
            gate,
            options: Arc::new(options),
            limits,
            clients: Mutex::default(),
        }
    }

    fn client(&self, credentials: &Credentials) -> VcResult<Arc<Client>> {
        let key = credentials::digest(credentials);
        let mut clients = locked(&self.clients);
        clients.retain(|_, client| !client.session.closed());
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let bounds = self.limits.of(&server_name(&credentials.server));
        let client = Client::new(
            credentials.clone(),
            Arc::clone(&self.gate),
            Arc::clone(&self.options),
            bounds,
        )?;
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    /// The privileges of `ids` that the user of these credentials lacks on that object. `None`: vCenter does not say.
    ///
    /// # Errors
    /// As for a call of a session.
    pub async fn lacking(
        &self,
        credentials: &Credentials,
        on: &MoRef,
        ids: &[&str],
    ) -> VcResult<Option<Vec<String>>> {
        self.client(credentials)?.lacking(on, ids).await
    }

    /// What the console of a running VM shows now, as a PNG.
    ///
    /// # Errors
    /// As for a call of a session; `NoPermission` where the user may not see it.
    pub async fn screen(&self, credentials: &Credentials, vm: &MoRef) -> VcResult<bytes::Bytes> {
        self.client(credentials)?.screen(vm).await
    }

    /// Drops a client whose login failed, so that changing credentials do not pile up clients. A client that another
    /// caller has stays.
    fn forget(&self, failed: &Arc<Client>) {
        let mut clients = locked(&self.clients);
        clients.retain(|_, client| {
            !Arc::ptr_eq(client, failed)
                || Arc::strong_count(client) > 2
                || client.session.current().is_some()
        });
    }
}

#[async_trait]
impl Connector for VsphereConnector {
    async fn connect(&self, credentials: &Credentials) -> VcResult<Arc<dyn VCenter>> {
        let client = self.client(credentials)?;
        if let Err(e) = client.session(Asked::Explicitly).await {
            self.forget(&client);
            return Err(e);
        }
        Ok(client)
    }

    fn open(&self) -> Vec<Arc<dyn VCenter>> {
        let mut clients = locked(&self.clients);
        clients.retain(|_, client| !client.session.closed());
        let session = |client: &Arc<Client>| Arc::clone(client) as Arc<dyn VCenter>;
        clients.values().map(session).collect()
    }
}

#[async_trait]
impl VCenter for Client {
    fn server(&self) -> &str {
        self.http.server()
    }

    fn instance(&self) -> Option<String> {
        self.session.instance()
    }

    fn insecure(&self) -> bool {
        unchecked(&self.credentials)
    }

    fn login_refused(&self) -> bool {
        self.session.refused()
    }

    async fn reachable(&self) -> VcResult<()> {
        self.is_there().await
    }

    async fn logout(&self, effect: &Effect) {
        self.close(effect).await;
    }
}
