//! The actions of the supervisor: spawn, stop and describe the actors of its map.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, rpc::CallResult};

use super::{
    Described, Life, SupervisorMsg, SupervisorState, clients::WakeThrough, handle::Handle, id,
    routing::ActorKey,
};
use crate::{
    byoh::ByohInstaller,
    domain::names::ObjectKey,
    iso::{IsoCache, IsoCacheArgs},
    news::NewsDesk,
    orphans::OrphanScan,
    placement::{Placement, PlacementArgs},
    pool::PoolWorker,
    runtime::{
        mailbox::{Counted, Mailbox},
        shell::{Shell, Worker},
    },
    sessions::{SessionArgs, SessionMsg, VCenterSessions, log_out_everywhere},
    vm::VmWorker,
};

impl SupervisorState {
    /// Whether an actor should exist for that key.
    pub(super) fn wanted(&self, key: &ActorKey) -> bool {
        match key {
            ActorKey::Sessions
            | ActorKey::Placement
            | ActorKey::Orphans
            | ActorKey::News
            | ActorKey::IsoCache(_) => true,
            ActorKey::Byoh => self.ports.byoh.is_some(),
            ActorKey::Pool(k) => self.ports.view.pool(k).is_some(),
            ActorKey::Vm(k) => self.ports.view.child(k).is_some(),
        }
    }

    pub(super) async fn wake(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        key: &ActorKey,
        reason: &'static str,
    ) -> Result<(), ActorProcessingErr> {
        if self.stopping {
            return Ok(());
        }
        if !self.wanted(key) {
            self.stop(key);
            return Ok(());
        }
        if let Some(handle) = self.actors.get(key) {
            handle.wake(reason);
            return Ok(());
        }
        self.ensure(myself, key).await.map(|_| ())
    }

    pub(super) fn stop(&mut self, key: &ActorKey) {
        self.pending.remove(key);
        match self.actors.get(key) {
            Some(handle) => handle.cell().stop(Some("its object is gone".to_owned())),
            None => self.forget(key),
        }
    }

    /// The actor has ended and stays away. Its series are dropped only now: a pass that still ran would have set them again.
    pub(super) fn forget(&mut self, key: &ActorKey) {
        self.budgets.remove(key);
        if let ActorKey::Pool(pool) = key {
            self.ports.instruments.drop_pool(pool);
        }
    }

    /// The actor for that key, spawned if it does not exist. `None` while a dead one waits for its backoff.
    pub(super) async fn ensure(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        key: &ActorKey,
    ) -> Result<Option<Handle>, ActorProcessingErr> {
        if let Some(handle) = self.actors.get(key) {
            return Ok(Some(handle.clone()));
        }
        if self.pending.contains_key(key) || self.stopping {
            return Ok(None);
        }
        let handle = self.spawn(myself, key).await?;
        self.by_id.insert(id(handle.cell().get_id()), key.clone());
        self.actors.insert(key.clone(), handle.clone());
        self.publish(key, Some(&handle));
        self.count(key.kind());
        Ok(Some(handle))
    }

    /// Spawns the actor for that key.
    async fn spawn(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        key: &ActorKey,
    ) -> Result<Handle, ActorProcessingErr> {
        let (ports, context, cell) = (&self.ports, self.context.clone(), myself.get_cell());
        let waker = Arc::new(WakeThrough(myself.clone()));
        match key {
            ActorKey::Sessions => {
                let spawned = Actor::spawn_linked(None, VCenterSessions, self.of_sessions(), cell);
                Ok(Handle::Sessions(self.counted(key, spawned.await?.0)))
            }
            ActorKey::Placement => {
                let spawned = Actor::spawn_linked(None, Placement, self.of_placement(), cell);
                Ok(Handle::Placement(self.counted(key, spawned.await?.0)))
            }
            ActorKey::IsoCache(cache) => {
                let args = IsoCacheArgs {
                    key: cache.clone(),
                    cluster_id: ports.view.cluster_id(),
                    sessions: context.sessions.clone(),
                    source: ports.iso_source.clone(),
                    waker,
                    clock: ports.clock.clone(),
                    instruments: ports.instruments.clone(),
                };
                let spawned = Actor::spawn_linked(None, IsoCache, args, cell);
                Ok(Handle::Iso(self.counted(key, spawned.await?.0)))
            }
            ActorKey::Orphans => {
                let doubts = self.doubts.clone();
                self.shell(key, OrphanScan { context, doubts }, cell).await
            }
            ActorKey::News => {
                let desk = NewsDesk {
                    context,
                    notes: self.news.clone(),
                    waker,
                };
                self.shell(key, desk, cell).await
            }
            ActorKey::Byoh => {
                let worker = self.of_byoh().ok_or("the installer is off")?;
                self.shell(key, worker, cell).await
            }
            ActorKey::Pool(pool) => {
                let (isos, pool) = (self.isos.clone(), pool.clone());
                let worker = PoolWorker {
                    context,
                    isos,
                    key: pool,
                };
                self.shell(key, worker, cell).await
            }
            ActorKey::Vm(vm) => {
                let vm = vm.clone();
                self.shell(key, VmWorker { context, key: vm }, cell).await
            }
        }
    }

    fn of_sessions(&self) -> SessionArgs {
        let ports = &self.ports;
        SessionArgs {
            cluster: ports.cluster.clone(),
            view: ports.view.clone(),
            connector: ports.connector.clone(),
            clock: ports.clock.clone(),
            instruments: ports.instruments.clone(),
            server_rule: ports.server_rule.clone(),
            ledger: ports.ledger.clone(),
        }
    }

    fn of_placement(&self) -> PlacementArgs {
        PlacementArgs {
            clock: self.ports.clock.clone(),
            view: self.ports.view.clone(),
            floor: self.context.settings.datastore_floor,
        }
    }

    /// The installer for BYOH; `None` if it is off.
    fn of_byoh(&self) -> Option<ByohInstaller> {
        let ports = &self.ports;
        Some(ByohInstaller {
            view: ports.view.clone(),
            cluster: ports.cluster.clone(),
            installers: ports.byoh.clone()?,
            clock: ports.clock.clone(),
            instruments: ports.instruments.clone(),
        })
    }

    /// Spawns an actor that works in passes.
    async fn shell<W: Worker>(
        &self,
        key: &ActorKey,
        worker: W,
        cell: ActorCell,
    ) -> Result<Handle, ActorProcessingErr> {
        let spawned = Actor::spawn_linked(None, Shell::<W>::default(), worker, cell);
        Ok(Handle::Shell(spawned.await?.0, self.mailbox(key)))
    }

    fn mailbox(&self, key: &ActorKey) -> Arc<Mailbox> {
        Mailbox::new(key.kind(), self.ports.instruments.clone())
    }

    fn counted<M>(&self, key: &ActorKey, actor: ActorRef<M>) -> Counted<M> {
        Counted::new(actor, self.mailbox(key))
    }

    /// Publishes which session and placement actor is alive.
    pub(super) fn publish(&self, key: &ActorKey, handle: Option<&Handle>) {
        match (key, handle) {
            (ActorKey::Sessions, Some(Handle::Sessions(a))) => {
                drop(self.sessions.send_replace(Some(a.clone())))
            }
            (ActorKey::Sessions, _) => drop(self.sessions.send_replace(None)),
            (ActorKey::Placement, Some(Handle::Placement(a))) => {
                drop(self.placement.send_replace(Some(a.clone())))
            }
            (ActorKey::Placement, _) => drop(self.placement.send_replace(None)),
            _ => {}
        }
    }

    pub(super) fn count(&self, kind: &'static str) {
        let n = self.actors.keys().filter(|k| k.kind() == kind).count();
        self.ports
            .instruments
            .actors(kind, i64::try_from(n).unwrap_or(i64::MAX));
    }

    pub(super) async fn resync(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let view = self.ports.view.clone();
        if !view.ready() || self.stopping {
            return Ok(());
        }
        let pools = view
            .pools()
            .into_iter()
            .map(|p| ActorKey::Pool(ObjectKey::of(p.as_ref())));
        let children = view
            .all_children()
            .into_iter()
            .map(|c| ActorKey::Vm(ObjectKey::of(c.as_ref())));
        for key in pools.chain(children) {
            self.ensure(myself, &key).await?;
        }
        let gone: Vec<ActorKey> = self
            .actors
            .keys()
            .filter(|k| !self.wanted(k))
            .cloned()
            .collect();
        for key in gone {
            self.stop(&key);
        }
        Ok(())
    }

    pub(super) fn describe(&self, reply: RpcReplyPort<Vec<Described>>) {
        let now = self.ports.clock.monotonic();
        let dead = |due: &Duration| Life::Restarting {
            in_seconds: due.saturating_sub(now).as_secs_f64(),
        };
        let pending = self.pending.iter().map(|(k, due)| (k, (None, dead(due))));
        let alive = self.actors.iter();
        let alive = alive.map(|(k, h)| (k, (Some(h.clone()), Life::Alive)));
        let all: BTreeMap<&ActorKey, (Option<Handle>, Life)> = pending.chain(alive).collect();
        let described: Vec<_> = all
            .into_iter()
            .map(|(key, (handle, life))| {
                let described = Described {
                    name: key.to_string(),
                    supervisor: "supervisor",
                    life,
                    restarts: self.restarts.get(key).copied().unwrap_or_default(),
                    mailbox: handle.as_ref().map(Handle::mailbox),
                    state: None,
                };
                (handle, described)
            })
            .collect();
        tokio::spawn(async move {
            let all = described.into_iter().map(|(handle, described)| async move {
                let state = match handle {
                    Some(handle) => handle.describe().await,
                    None => None,
                };
                Described { state, ..described }
            });
            let _ = reply.send(futures::future::join_all(all).await);
        });
    }

    pub(super) fn shutdown(&mut self, reply: RpcReplyPort<()>) {
        self.stopping = true;
        let sessions = match self.actors.get(&ActorKey::Sessions) {
            Some(Handle::Sessions(a)) => Some(a.clone()),
            _ => None,
        };
        let connector = self.ports.connector.clone();
        let others: Vec<Handle> = self
            .actors
            .iter()
            .filter(|(k, _)| **k != ActorKey::Sessions)
            .map(|(_, h)| h.clone())
            .collect();
        tokio::spawn(async move {
            let stops = others.iter().map(|h| async move {
                let _ = h
                    .cell()
                    .stop_and_wait(None, Some(Duration::from_secs(5)))
                    .await;
            });
            futures::future::join_all(stops).await;
            let within = Duration::from_secs(5);
            let asked = match sessions {
                Some(sessions) => sessions
                    .actor
                    .call(SessionMsg::LogOut, Some(within))
                    .await
                    .ok(),
                None => None,
            };
            if !matches!(asked, Some(CallResult::Success(()))) {
                // The session actor is dead or waits for a login: the open sessions are closed nevertheless.
                let closing = log_out_everywhere(connector.as_ref());
                let _ = tokio::time::timeout(within, closing).await;
            }
            let _ = reply.send(());
        });
    }
}
