//! View, collector and filter of one session. They die with it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        effect::{Effect, EffectKind},
        vcenter::{VcError, VcErrorKind, VcResult},
    },
};
use serde_json::Value;

use crate::vsphere::rpc::{
    call::Call,
    client::Client,
    properties::Question,
    session::{Asked, Session},
    wire::{
        NoArguments, Ref,
        collector::{
            CreateFilter, CreateListView, ModifyListView, Selection, UpdateSet, WaitForUpdatesEx,
            WaitOptions,
        },
    },
};

/// Seconds after which vCenter answers a quiet long poll.
pub(super) const MAX_WAIT: u32 = 20;
/// How much longer the client waits before vCenter counts as silent.
pub(super) const MARGIN: Duration = Duration::from_secs(10);

/// View, collector and filter of one session.
#[derive(Clone)]
pub(super) struct Plumbing {
    parts: Parts,
    view: MoRef,
    collector: MoRef,
}

/// What vCenter keeps for the client in one session until it is destroyed. The filter goes with its collector.
#[derive(Clone)]
pub(super) struct Parts {
    session: Arc<Session>,
    view: Option<MoRef>,
    collector: Option<MoRef>,
}

/// Building failed: why, and what to destroy.
pub(super) struct Unbuilt {
    pub(super) why: VcError,
    pub(super) left: Option<Parts>,
}

/// Members of the view: tasks and VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    pub(super) tasks: BTreeSet<String>,
    pub(super) vms: BTreeSet<String>,
}

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.vms.is_empty()
    }

    fn refs(&self) -> Vec<Ref> {
        let of = |kind: &'static str| {
            move |id: &String| Ref {
                kind: kind.to_owned(),
                value: id.clone(),
            }
        };
        let tasks = self.tasks.iter().map(of("Task"));
        tasks.chain(self.vms.iter().map(of(VM))).collect()
    }
}

/// The type of a VM's reference.
pub(super) const VM: &str = "VirtualMachine";
/// What is told of a VM.
pub(super) const POWER: &str = "runtime.powerState";
pub(super) const CONNECTION: &str = "runtime.connectionState";
/// Another value with each change of the configuration. `VirtualMachineConfigInfo.changeVersion`.
pub(super) const VERSION: &str = "config.changeVersion";

impl Plumbing {
    /// Builds all, in three requests.
    ///
    /// # Errors
    /// What failed, and what exists by then. Objects whose reply was lost go with the session.
    pub(super) async fn build(client: &Client) -> Result<Self, Unbuilt> {
        // If the session changes between these calls, the later one fails on an object of the earlier session. The
        // watcher then builds all again.
        let session = match client.session(Asked::ByCall).await {
            Ok(session) => session,
            Err(why) => return Err(Unbuilt { why, left: None }),
        };
        let mut parts = Parts {
            session,
            view: None,
            collector: None,
        };
        match parts.fill(client).await {
            Ok((view, collector)) => Ok(Self {
                parts,
                view,
                collector,
            }),
            Err(why) => Err(Unbuilt {
                why,
                left: Some(parts),
            }),
        }
    }

    /// What to destroy when it is not needed any more.
    pub(super) fn into_parts(self) -> Parts {
        self.parts
    }

    /// Adds members to the view and removes others. Returns those that vCenter does not know.
    pub(super) async fn modify(
        self,
        client: Arc<Client>,
        add: Members,
        remove: Members,
    ) -> VcResult<Members> {
        let effect = client.session_effect(EffectKind::SessionView);
        let arguments = ModifyListView {
            add: add.refs(),
            remove: remove.refs(),
        };
        let call = Call::new(&self.view, "ModifyListView", &arguments).about("task list");
        let unknown: Option<Vec<Ref>> = client
            .scoped(Some(&effect), &self.parts.session, call)
            .await?;
        let mut missing = Members::default();
        for unknown in unknown.unwrap_or_default() {
            let kind = if unknown.kind == VM {
                &mut missing.vms
            } else {
                &mut missing.tasks
            };
            kind.insert(unknown.value);
        }
        Ok(missing)
    }

    /// Waits for news after `version`; `None` if there were none for a while.
    pub(super) async fn poll(
        self,
        client: Arc<Client>,
        version: String,
        pause: Duration,
        max_wait: u32,
    ) -> VcResult<Option<UpdateSet>> {
        tokio::time::sleep(pause).await;
        let arguments = WaitForUpdatesEx {
            version,
            options: WaitOptions {
                max_wait_seconds: max_wait,
            },
        };
        let call = Call::new(&self.collector, "WaitForUpdatesEx", &arguments)
            .about("task list")
            .within(Duration::from_secs(u64::from(max_wait)) + MARGIN);
        client.scoped(None, &self.parts.session, call).await
    }
}

impl Parts {
    async fn fill(&mut self, client: &Client) -> VcResult<(MoRef, MoRef)> {
        let effect = client.session_effect(EffectKind::SessionView);
        let manager: MoRef = self.session.endpoint.content.view_manager.clone().into();
        let arguments = CreateListView { obj: Vec::new() };
        let call = Call::new(&manager, "CreateListView", &arguments);
        let made = self.made(client, &effect, call, "the reply names no view");
        let made = made.await?;
        let view = self.view.insert(made).clone();
        let root = self.session.property_collector();
        let call = Call::new(&root, "CreatePropertyCollector", &NoArguments {});
        let made = self.made(client, &effect, call, "the reply names no collector");
        let made = made.await?;
        let collector = self.collector.insert(made).clone();
        let members = Selection::follow("members", "ListView", "view", Vec::new());
        let spec = Question::about("task list")
            .read("Task", &["info.state", "info.error", "info.result"])
            .read(VM, &[POWER, CONNECTION, VERSION])
            .found_from(&view, vec![members])
            .into_filter();
        let arguments = CreateFilter {
            spec,
            partial_updates: false,
        };
        let call = Call::new(&collector, "CreateFilter", &arguments).about("task list");
        client
            .scoped::<Ref>(Some(&effect), &self.session, call)
            .await?;
        Ok((view, collector))
    }

    async fn made(
        &self,
        client: &Client,
        effect: &Effect,
        call: Call,
        missing: &str,
    ) -> VcResult<MoRef> {
        let call = call.about("task list");
        let missing = call.failure(VcErrorKind::Undecodable, missing);
        let made: Option<Ref> = client.scoped(Some(effect), &self.session, call).await?;
        made.map(MoRef::from).ok_or(missing)
    }

    /// Destroys what exists at vCenter. `false` when vCenter did not answer, so that the caller tries again. Objects of
    /// a lost session are gone already.
    pub(super) async fn give_back(&mut self, client: &Client) -> bool {
        let effect = client.session_effect(EffectKind::SessionView);
        let current = client.session.current();
        if current.is_none_or(|s| s.generation != self.session.generation) {
            return true;
        }
        for (object, method) in [
            (&mut self.collector, "DestroyPropertyCollector"),
            (&mut self.view, "DestroyView"),
        ] {
            let Some(known) = object.as_ref() else {
                continue;
            };
            let call = Call::new(known, method, &NoArguments {}).about("task list");
            let done = client.scoped::<Value>(Some(&effect), &self.session, call);
            if let Err(e) = done.await
                && matches!(e.kind, VcErrorKind::Unreachable | VcErrorKind::NoAnswer)
            {
                return false;
            }
            *object = None;
        }
        true
    }
}
