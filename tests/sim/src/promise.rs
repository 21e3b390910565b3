//! The promises that every run is judged by (its oracles), and a promise that a run broke.

use std::{fmt, str::FromStr};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

macro_rules! oracles {
    ($($oracle:ident $code:literal $name:literal $text:literal;)*) => {
        /// A promise that a run is checked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Oracle {
            $(#[doc = $text] $oracle,)*
        }

        impl Oracle {
            /// Every oracle.
            pub const ALL: &'static [Self] = &[$(Self::$oracle,)*];

            /// The name that people read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$oracle => $name,)* }
            }

            /// A short code.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$oracle => $code,)* }
            }

            /// What is promised, in a sentence without its full stop.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$oracle => $text,)* }
            }
        }
    };
}

oracles! {
    NothingLeaks "O1" "nothing_leaks" "every marked VM has its VsphereAgent with a finalizer, and a pool's status lists every ISO";
    OneVmPerAgentMachine "O2" "one_vm_per_agent_machine" "each AgentMachine has at most one VM";
    ForeignAndServingUntouched "O3" "foreign_and_serving_untouched" "the operator changes nothing that is foreign and no VM that serves";
    SameFinalState "O4" "same_final_state" "at rest, the world looks as it does without faults";
    SameNumberOfVms "O5" "same_number_of_vms" "the operator makes as many VMs as without faults";
    SilentAtRest "O6" "silent_at_rest" "at rest, the operator changes nothing";
    FewExtraCalls "O7" "few_extra_calls" "faults cost few calls, and an outage costs no more tries than its length explains";
    RecordsAreKept "O8" "records_are_kept" "what a status records of an attempt stays recorded";
    ConvergesInTime "O9" "converges_in_time" "everything that was begun ends in time";
    NoSecretInObjects "O10" "no_secret_in_objects" "no object but the Secret contains a password or a token";
    NoExtraActorsOrTasks "O11" "no_extra_actors_or_tasks" "as many actors and tasks are alive at the end as without faults";
    ProblemsAreExplained "O12" "problems_are_explained" "everything that is not ready gives a reason, and nothing panics";
    OneLeaderActs "O13" "one_leader_acts" "a process that lost the lease to another one never acts again";
    ChangesPassTheGate "O14" "changes_pass_the_gate" "every call that changes something passes the effect gate first";
    ProcessKeepsRunning "O15" "process_keeps_running" "the process ends only when somebody ends it";
    PlanFitsTheRun "O16" "plan_fits_the_run" "the run meets what its plan and its workload look for";
    PausesHold "O17" "pauses_hold" "the operator changes nothing of a pool or VM that is paused";
    VetoesHold "O18" "vetoes_hold" "the operator removes no VM, and switches none on, for which a person forbids that";
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

impl FromStr for Oracle {
    type Err = anyhow::Error;

    /// Reads a name or a code.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL
            .iter()
            .find(|o| o.name() == text || o.code() == text);
        found
            .copied()
            .with_context(|| format!("no oracle is called {text}; `sim list` shows all"))
    }
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
