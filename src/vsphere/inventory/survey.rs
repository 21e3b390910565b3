//! The survey of all VMs with their owners. Calls at about the same time share one survey.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    orphans::MOST_MARKED,
    ports::vcenter::{Survey, VcError, VcResult},
};

use crate::{
    shared_reads::SharedReads,
    vsphere::{
        machines::observation::{self, SURVEY_PATHS},
        rpc::{client::Client, properties::MAX_KEPT},
    },
};

/// How long a survey waits for more callers.
pub(crate) const GATHER: Duration = Duration::from_millis(15);

/// The surveys under way.
pub(crate) type Surveys = SharedReads<(), Arc<Survey>, VcError>;

impl Client {
    /// All VMs as they are after this call.
    pub(super) async fn shared_survey(&self) -> VcResult<Arc<Survey>> {
        let survey = || async { self.survey_now().await.map(Arc::new) };
        self.surveys.same("", survey).await
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
