//! How actors reach each other through the supervisor: pools ask their ISO caches, and ISO caches wake pools.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;
use ractor::ActorRef;

use super::{msg::SupervisorMsg, routing::ActorKey};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    iso::{
        self, PruneNews,
        msg::{IsoKey, IsoMsg, IsoState, IsoWant},
        of_pool::IsoCaches,
    },
    ports::sessions::{NewsWaker, Waker},
    runtime::mailbox::Counted,
};

/// Wakes actors on behalf of others.
pub(super) struct WakeThrough(pub(super) ActorRef<SupervisorMsg>);

impl Waker for WakeThrough {
    fn wake_pool(&self, pool: &ObjectKey, reason: &'static str) {
        let _ = self
            .0
            .send_message(SupervisorMsg::Wake(ActorKey::Pool(pool.clone()), reason));
    }
}

impl NewsWaker for WakeThrough {
    fn wake_vm(&self, vm: &ObjectKey, reason: &'static str) {
        let _ = self
            .0
            .send_message(SupervisorMsg::Wake(ActorKey::Vm(vm.clone()), reason));
    }

    fn wake_news(&self) {
        let _ = self
            .0
            .send_message(SupervisorMsg::Wake(ActorKey::News, "vcenter"));
    }
}

/// Finds the ISO cache of a datastore and asks it.
pub(super) struct IsoDesk(pub(super) ActorRef<SupervisorMsg>);

impl IsoDesk {
    async fn cache(&self, key: IsoKey) -> Result<Counted<IsoMsg>, ReconcileError> {
        let found = self
            .0
            .call(
                |reply| SupervisorMsg::IsoCache(key, reply),
                Some(Duration::from_secs(5)),
            )
            .await;
        match found {
            Ok(ractor::rpc::CallResult::Success(actor)) => Ok(actor),
            _ => Err(ReconcileError {
                side: ErrorSource::Iso,
                reason: Reason::IsoCacheRestarting,
                message: "the ISO cache is being restarted; trying again".to_owned(),
                class: Class::Transient,
            }),
        }
    }
}

#[async_trait]
impl IsoCaches for IsoDesk {
    async fn ensure(&self, key: IsoKey, want: IsoWant) -> Result<IsoState, ReconcileError> {
        iso::ensure(&self.cache(key).await?, want).await
    }

    async fn clear(&self, key: IsoKey, left: IsoWant) -> Result<PruneNews, ReconcileError> {
        iso::clear(&self.cache(key).await?, left).await
    }

    fn leave(&self, pool: &ObjectKey) {
        let _ = self
            .0
            .send_message(SupervisorMsg::LeaveIsoCaches(pool.clone()));
    }
}
