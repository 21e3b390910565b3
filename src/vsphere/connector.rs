//! Shares clients: equal credentials, equal client. A pool never uses a session that its own Secret could not open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agent_forge_actors::{
    effect::Gate,
    ports::vcenter::{Connector, Credentials, VCenter, VcResult},
};
use async_trait::async_trait;

use super::{
    client::Client, http::server_name, limits::Limits, login::digest, options::Options,
    session::Asked, vcenter::Handle,
};

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
        let key = digest(credentials);
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
}

#[async_trait]
impl Connector for VsphereConnector {
    async fn connect(&self, credentials: &Credentials) -> VcResult<Arc<dyn VCenter>> {
        let client = self.client(credentials)?;
        client.session(Asked::Explicitly).await?;
        Ok(Arc::new(Handle(client)))
    }
}
