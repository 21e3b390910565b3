//! What people read about each hold.

use agent_forge_crds::conditions::Reason;

use crate::{
    domain::holds::{Check, DryRun, Holds, Pause},
    ports::effect::Hold,
};

pub(super) fn by_doubt() -> Hold {
    Hold {
        reason: Reason::HistoryUnclear,
        holder: "the caches".to_owned(),
        why: "a watch had to list again, as after a restore of the API server: nothing is ended or reset until all kinds were listed \
              again"
            .to_owned(),
        until: None,
    }
}

/// What people read about a namespace of which a part is unknown.
#[must_use]
pub fn by_bound(holds: &Holds) -> Option<Hold> {
    let all: Vec<&str> = holds.over_bound.iter().map(String::as_str).collect();
    let why = all.join("; ");
    (!why.is_empty()).then(|| Hold {
        reason: Reason::NamespaceTooLarge,
        holder: "the caches".to_owned(),
        why,
        until: None,
    })
}

pub(super) fn by_dry_run(run: &DryRun) -> Hold {
    Hold {
        reason: Reason::DryRun,
        holder: run.source.clone(),
        why: format!("dry run by {}", run.source),
        until: None,
    }
}

/// What people read about a pause.
#[must_use]
pub fn by_pause(pause: &Pause) -> Hold {
    let end = match pause.until {
        Some(until) => format!("until {until}"),
        None => "until a person ends that".to_owned(),
    };
    Hold {
        reason: Reason::Paused,
        holder: pause.source.clone(),
        why: format!("paused by {}, {end}", pause.source),
        until: pause.until,
    }
}

pub(super) fn by_veto(check: Check, holds: &Holds) -> Option<Hold> {
    let first = holds.vetoes(check).next()?;
    let all: Vec<String> = holds.vetoes(check).map(ToString::to_string).collect();
    Some(Hold {
        reason: Reason::Vetoed,
        holder: first.holder.clone(),
        why: all.join("; "),
        until: None,
    })
}
