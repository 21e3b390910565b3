//! View, collector and filter of one session. They die with it.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{effect::EffectKind, model::names::MoRef, ports::vcenter::VcResult};
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

/// vCenter answers a quiet long poll after that long.
const MAX_WAIT: u32 = 20;
/// And we give it that much more before we call it silent.
const MARGIN: Duration = Duration::from_secs(10);

/// View, collector and filter of one session.
#[derive(Clone)]
pub(super) struct Plumbing {
    session: Arc<Session>,
    view: MoRef,
    collector: MoRef,
}

fn task(id: &str) -> Ref {
    Ref {
        kind: "Task".to_owned(),
        value: id.to_owned(),
    }
}

impl Plumbing {
    /// Builds it, in three requests.
    pub(super) async fn build(client: &Client) -> VcResult<Self> {
        // One replay with a new session is inside these calls; if the session changes between them, the later call
        // fails on an object of the earlier session and the watcher builds anew.
        let session = client.session(Asked::ByCall).await?;
        let effect = client.session_effect(EffectKind::SessionView);
        let content = &session.endpoint.content;
        let manager: MoRef = content.view_manager.clone().into();
        let call = Call::new(
            &manager,
            "CreateListView",
            &CreateListView { obj: Vec::new() },
        )
        .about("task list");
        let missing = call.failure(
            agent_forge_actors::ports::vcenter::VcErrorKind::Undecodable,
            "the reply names no view",
        );
        let view: Ref = client
            .scoped(Some(&effect), &session, call)
            .await?
            .ok_or(missing)?;
        let root = session.property_collector();
        let call = Call::new(&root, "CreatePropertyCollector", &NoArguments {}).about("task list");
        let missing = call.failure(
            agent_forge_actors::ports::vcenter::VcErrorKind::Undecodable,
            "the reply names no collector",
        );
        let collector: Ref = client
            .scoped(Some(&effect), &session, call)
            .await?
            .ok_or(missing)?;
        let (view, collector) = (MoRef::from(view), MoRef::from(collector));
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
        client.scoped::<Ref>(Some(&effect), &session, call).await?;
        Ok(Self {
            session,
            view,
            collector,
        })
    }

    /// Takes tasks into the view and others out of it; returns those that vCenter does not know.
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
        let unknown: Option<Vec<Ref>> = client.scoped(Some(&effect), &self.session, call).await?;
        Ok(unknown
            .unwrap_or_default()
            .into_iter()
            .map(|r| r.value)
            .collect())
    }

    /// Waits for news after `version`; `None` when there were none for a while.
    pub(super) async fn poll(
        self,
        client: Arc<Client>,
        version: String,
        pause: Duration,
    ) -> VcResult<Option<UpdateSet>> {
        tokio::time::sleep(pause).await;
        let arguments = WaitForUpdatesEx {
            version,
            options: WaitOptions {
                max_wait_seconds: MAX_WAIT,
            },
        };
        let call = Call::new(&self.collector, "WaitForUpdatesEx", &arguments)
            .about("task list")
            .within(Duration::from_secs(u64::from(MAX_WAIT)) + MARGIN);
        client.scoped(None, &self.session, call).await
    }

    /// Gives it back to vCenter, if the session still lives. Best effort: it dies with the session anyway.
    pub(super) async fn dismantle(self, client: Arc<Client>) {
        let effect = client.session_effect(EffectKind::SessionView);
        if client
            .session
            .current()
            .is_none_or(|s| s.generation != self.session.generation)
        {
            return;
        }
        for (object, method) in [
            (&self.collector, "DestroyPropertyCollector"),
            (&self.view, "DestroyView"),
        ] {
            let call = Call::new(object, method, &NoArguments {}).about("task list");
            if client
                .scoped::<Value>(Some(&effect), &self.session, call)
                .await
                .is_err()
            {
                return;
            }
        }
    }
}
