//! View, collector and filter of one session. They are gone when the session ends.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    effect::{Effect, EffectKind},
    model::names::MoRef,
    ports::vcenter::{VcError, VcErrorKind, VcResult},
};
use serde_json::Value;

use super::super::{
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

/// Seconds after which vCenter answers a long poll without news.
pub(super) const MAX_WAIT: u32 = 20;
/// How much longer the client waits before it treats vCenter as silent.
pub(super) const MARGIN: Duration = Duration::from_secs(10);

/// View, collector and filter of one session.
#[derive(Clone)]
pub(super) struct Plumbing {
    parts: Parts,
    view: MoRef,
    collector: MoRef,
}

/// The objects that vCenter keeps in one session until the client destroys them. Destroying the collector also destroys
/// the filter.
#[derive(Clone)]
pub(super) struct Parts {
    session: Arc<Session>,
    view: Option<MoRef>,
    collector: Option<MoRef>,
}

/// A failed set-up: the reason, and the objects that must be destroyed.
pub(super) struct Unbuilt {
    pub(super) why: VcError,
    pub(super) left: Option<Parts>,
}

fn task(id: &str) -> Ref {
    Ref {
        kind: "Task".to_owned(),
        value: id.to_owned(),
    }
}

impl Plumbing {
    /// Creates the objects, in three requests.
    ///
    /// # Errors
    /// The reason, and the objects that exist by then. An object that vCenter created without its reply reaching us is
    /// removed with the session.
    pub(super) async fn build(client: &Client) -> Result<Self, Unbuilt> {
        // If the session changes between these calls, a later call fails on an object of the earlier session. Then the
        // watcher creates everything again.
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

    /// The objects to destroy when they are no longer needed.
    pub(super) fn into_parts(self) -> Parts {
        self.parts
    }

    /// Adds tasks to the view and removes others. Returns those that vCenter does not know.
    pub(super) async fn modify(
        self,
        client: Arc<Client>,
        add: Vec<String>,
        remove: Vec<String>,
    ) -> VcResult<Vec<String>> {
        let effect = client.session_effect(EffectKind::SessionView);
        let arguments = ModifyListView {
            add: add.iter().map(|id| task(id)).collect(),
            remove: remove.iter().map(|id| task(id)).collect(),
        };
        let call = Call::new(&self.view, "ModifyListView", &arguments).about("task list");
        let unknown: Option<Vec<Ref>> = client
            .scoped(Some(&effect), &self.parts.session, call)
            .await?;
        Ok(unknown
            .unwrap_or_default()
            .into_iter()
            .map(|r| r.value)
            .collect())
    }

    /// Waits for updates after `version`; `None` if there were none for a while.
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

    /// Destroys the objects in vCenter. Returns `false` if vCenter did not answer, so that it must be tried again. If
    /// the session is gone, its objects are gone too.
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
