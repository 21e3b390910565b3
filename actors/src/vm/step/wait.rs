//! Steps that are to wait, and how long.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use super::steps::Step;

/// How often a foreign VM under our name is looked at again.
pub const CONFLICT_PROBE: Duration = Duration::from_secs(30);
/// How soon it is asked again whether the pools that start before run.
pub const FIRST_ONES: Duration = Duration::from_secs(15);
/// How often a VM that serves is looked at again while it is missing, switched off or not proven.
pub const MISSING_PROBE: Duration = Duration::from_secs(60);
/// Pause between two proofs of absence: a create whose reply was lost may still be running.
pub const PROOF_PAUSE: Duration = Duration::from_secs(2);
/// Answers needed before a VM counts as absent.
pub const PROOFS: u8 = 2;
/// Answers needed while a create may still be running whose reply and task were lost.
pub const PROOFS_AFTER_LOST_CREATE: u8 = 15;
/// Tries to switch a suspended VM off before a person is asked.
pub const SUSPENDED_TRIES: u8 = 3;

/// `Err`: the step that comes next. `Ok`: nothing is left to do.
pub(super) type Met = Result<(), Step>;

/// To wait for that reason, and to look `again` after so long.
pub(super) fn hold(reason: Reason, message: impl Into<String>, again: Option<Duration>) -> Step {
    Step::Hold {
        reason,
        message: message.into(),
        again,
    }
}
