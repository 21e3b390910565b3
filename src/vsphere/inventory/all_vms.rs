//! Reads all VMs of a vCenter, page by page, through a view that exists for one question.

use std::sync::Arc;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        effect::EffectKind,
        vcenter::{VcErrorKind, VcResult},
    },
};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::vsphere::rpc::{
    call::Call,
    client::Client,
    properties::{Properties, Question},
    session::{self, Asked},
    wire::{
        NoArguments, Ref,
        collector::{CreateContainerView, Selection},
    },
};

impl Client {
    /// Reads these properties of all VMs, with one page in memory at a time. Each page has the time limit of a call.
    /// The view is destroyed even when the caller stops.
    pub(crate) async fn each_vm(
        &self,
        paths: &'static [&'static str],
        mut each: impl FnMut(Properties) -> VcResult<()>,
    ) -> VcResult<()> {
        let Some(me) = self.me().upgrade() else {
            return Err(session::closed(self.server()));
        };
        let (tell, mut told) = mpsc::channel(1);
        tokio::spawn(async move { me.tell_of_all_vms(paths, &tell).await }.in_current_span());
        loop {
            match told.recv().await {
                Some(Ok(Some(page))) => page.into_iter().try_for_each(&mut each)?,
                Some(Ok(None)) => return Ok(()),
                Some(Err(e)) => return Err(e),
                None => {
                    let message = "the look at all VMs was interrupted".to_owned();
                    let operation = "RetrievePropertiesEx";
                    return Err(self.server_failure(operation, VcErrorKind::NoAnswer, message));
                }
            }
        }
    }

    async fn tell_of_all_vms(
        self: Arc<Self>,
        paths: &'static [&'static str],
        tell: &mpsc::Sender<VcResult<Option<Vec<Properties>>>>,
    ) {
        let view = match self.view_of_all_vms().await {
            Ok(view) => view,
            Err(e) => return drop(tell.send(Err(e)).await),
        };
        tokio::select! {
            biased;
            () = tell.closed() => {}
            () = self.tell_of_view(&view, paths, tell) => {}
        }
        let effect = self.session_effect(EffectKind::SessionView);
        let call = Call::new(&view, "DestroyView", &NoArguments {}).about("all VMs");
        if let Err(e) = self.mutate::<Value>(&effect, call).await {
            tracing::debug!(server = self.server(), error = %e, "a view stays until the session ends");
        }
    }

    async fn tell_of_view(
        &self,
        view: &MoRef,
        paths: &[&'static str],
        tell: &mpsc::Sender<VcResult<Option<Vec<Properties>>>>,
    ) {
        let members = Selection::follow("members", "ContainerView", "view", Vec::new());
        let question = Question::about("all VMs")
            .read("VirtualMachine", paths)
            .found_from(view, vec![members]);
        let mut pages = match self.pages(question).await {
            Ok(pages) => pages,
            Err(e) => return drop(tell.send(Err(e)).await),
        };
        loop {
            let page = pages.next(self).await;
            let goes_on = matches!(page, Ok(Some(_)));
            if tell.send(page).await.is_err() || !goes_on {
                return;
            }
        }
    }

    async fn view_of_all_vms(&self) -> VcResult<MoRef> {
        let session = self.session(Asked::ByCall).await?;
        let content = &session.endpoint.content;
        let manager: MoRef = content.view_manager.clone().into();
        let arguments = CreateContainerView {
            container: content.root_folder.clone(),
            kinds: vec!["VirtualMachine"],
            recursive: true,
        };
        let call = Call::new(&manager, "CreateContainerView", &arguments).about("all VMs");
        let missing = call.failure(VcErrorKind::Undecodable, "the reply names no view");
        let effect = self.session_effect(EffectKind::SessionView);
        let view = self.mutate::<Ref>(&effect, call).await?;
        view.map(MoRef::from).ok_or(missing)
    }
}
