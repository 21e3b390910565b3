//! Shares clients: equal credentials get the same client. A pool never uses a session that its own Secret could not
//! open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agent_forge_actors::{
    effect::Gate,
    model::{credentials, server::server_name},
    ports::vcenter::{Connector, Credentials, VCenter, VcResult},
};
use async_trait::async_trait;

use super::{client::Client, limits::Limits, options::Options, session::Asked, vcenter::Handle};

/// Logs in to vCenters; see the module's contract.
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
        let limits = Limits::new(options.max_concurrent_tasks);
        Self {
            gate,
            options: Arc::new(options),
            limits,
            clients: Mutex::default(),
        }
    }

    fn client(&self, credentials: &Credentials) -> VcResult<Arc<Client>> {
        let key = credentials::digest(credentials);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Removes a client whose login failed. Otherwise a Secret that changes again and again would leave a client for
    /// each version. A client that another caller uses stays.
    fn forget(&self, failed: &Arc<Client>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
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
        Ok(Arc::new(Handle(client)))
    }

    fn open(&self) -> Vec<Arc<dyn VCenter>> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|_, client| !client.session.closed());
        let handle = |client: &Arc<Client>| Arc::new(Handle(client.clone())) as Arc<dyn VCenter>;
        clients.values().map(handle).collect()
    }
}
