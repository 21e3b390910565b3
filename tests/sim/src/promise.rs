//! The promises that every run is judged by (its oracles), and a promise that a run broke.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::named;

named! {
    /// A promise that a run is checked for.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Oracle, "oracle":
    NothingLeaks "nothing_leaks" "every marked VM has its VsphereAgent with a finalizer, and a pool's status lists every ISO";
    OneVmPerAgentMachine "one_vm_per_agent_machine" "each AgentMachine has at most one VM";
    ForeignAndServingUntouched "foreign_and_serving_untouched" "the operator changes nothing that is foreign and no VM that serves";
    SameFinalState "same_final_state" "at rest, the world looks as it does without faults";
    SameNumberOfVms "same_number_of_vms" "the operator makes as many VMs as without faults";
    SilentAtRest "silent_at_rest" "at rest, the operator changes nothing";
    FewExtraCalls "few_extra_calls" "faults cost few calls, and an outage costs no more tries than its length explains";
    RecordsAreKept "records_are_kept" "what a status records of an attempt stays recorded";
    ConvergesInTime "converges_in_time" "everything that was begun ends in time";
    NoSecretInObjects "no_secret_in_objects" "no object but the Secret contains a password or a token";
    NoExtraActorsOrTasks "no_extra_actors_or_tasks" "as many actors and tasks are alive at the end as without faults";
    ProblemsAreExplained "problems_are_explained" "everything that is not ready gives a reason, and nothing panics";
    OneLeaderActs "one_leader_acts" "a process that lost the lease to another one never acts again";
    ChangesPassTheGate "changes_pass_the_gate" "every call that changes something passes the effect gate first";
    ProcessKeepsRunning "process_keeps_running" "the process ends only when somebody ends it";
    PlanFitsTheRun "plan_fits_the_run" "the run meets what its plan and its workload look for";
    PausesHold "pauses_hold" "the operator changes nothing of a pool or VM that is paused";
    VetoesHold "vetoes_hold" "the operator removes no VM, and switches none on, for which a person forbids that";
}

/// A promise that a run broke, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The promise.
    pub oracle: Oracle,
    /// What was found, in a phrase.
    pub what: String,
}

impl Oracle {
    /// A failure of this promise.
    pub fn broken(self, what: impl Into<String>) -> Failure {
        Failure {
            oracle: self,
            what: what.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}
