//! The survey reads all VMs of a vCenter with their marks. Callers that ask at about the same time share one survey.
//!
//! Guarantee: a survey begins after the caller has asked, never before. Each client runs one survey at a time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    orphans::MOST_MARKED,
    ports::vcenter::{Survey, VcErrorKind, VcResult},
};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{
    client::Client,
    observation::{self, SURVEY_PATHS},
    properties::MAX_KEPT,
};

/// How long a survey waits for more callers.
const GATHER: Duration = Duration::from_millis(15);

type Told = VcResult<Arc<Survey>>;

#[derive(Default)]
struct State {
    waiting: Vec<oneshot::Sender<Told>>,
    runs: bool,
}

/// Callers that wait for the next survey.
#[derive(Clone, Default)]
pub(super) struct Surveys(Arc<Mutex<State>>);

impl Surveys {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a caller. Returns `true` for the first one, who starts the survey.
    fn join(&self, asker: oneshot::Sender<Told>) -> bool {
        self.with(|s| {
            s.waiting.push(asker);
            !std::mem::replace(&mut s.runs, true)
        })
    }

    /// Takes the waiting callers. If there are none, the next caller starts a new survey.
    fn take(&self) -> Vec<oneshot::Sender<Told>> {
        self.with(|s| {
            s.runs = !s.waiting.is_empty();
            std::mem::take(&mut s.waiting)
        })
    }
}

/// Guards the running survey. If it ends early, its callers get an error and the next caller starts a new one.
struct Running {
    surveys: Surveys,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.surveys.with(|s| *s = State::default());
        }
    }
}

impl Client {
    /// All VMs as they are after this call.
    pub(super) async fn survey(&self) -> Told {
        let (tell, told) = oneshot::channel();
        if self.surveys.join(tell) {
            let running = Running {
                surveys: self.surveys.clone(),
                ended: false,
            };
            let me = self.me();
            // In a task of its own: the first caller may give up while the others still wait.
            let work = async move {
                let mut running = running;
                loop {
                    tokio::time::sleep(GATHER).await;
                    let askers = running.surveys.take();
                    if askers.is_empty() {
                        running.ended = true;
                        return;
                    }
                    let Some(client) = me.upgrade() else {
                        return;
                    };
                    let survey = client.survey_now().await.map(Arc::new);
                    for asker in askers {
                        let _ = asker.send(survey.clone());
                    }
                }
            };
            tokio::spawn(work.in_current_span());
        }
        told.await.unwrap_or_else(|_| {
            let message = "the look at all VMs was interrupted".to_owned();
            Err(self.server_failure("RetrievePropertiesEx", VcErrorKind::NoAnswer, message))
        })
    }

    async fn survey_now(&self) -> VcResult<Survey> {
        let mut survey = Survey::default();
        let mut kept = 0;
        self.each_vm(SURVEY_PATHS, |vm| {
            survey.marked.extend(observation::marked(&vm));
            if let Some(bare) = observation::bare(&vm) {
                kept += bare.name.len() + bare.vm_path.as_ref().map_or(0, String::len) + 128;
                survey.bare.push(bare);
            }
            if survey.marked.len() > MOST_MARKED {
                return Err(
                    self.endless("all VMs", &format!("more than {MOST_MARKED} with a mark"))
                );
            }
            if kept > MAX_KEPT {
                return Err(self.endless("all VMs", &format!("more than {MAX_KEPT} bytes")));
            }
            Ok(())
        })
        .await?;
        survey.marked.sort_by(|a, b| a.moref.cmp(&b.moref));
        survey.bare.sort_by(|a, b| a.moref.cmp(&b.moref));
        Ok(survey)
    }
}
