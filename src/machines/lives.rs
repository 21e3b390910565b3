//! The lives of a VM that was recycled.

use agent_forge_actors::domain::recycle;
use jiff::Timestamp;
use serde::Serialize;

use super::{explain::trace, found::Found};

/// One life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Life {
    /// Its number.
    pub number: u32,
    /// When it began.
    pub since: Option<Timestamp>,
    /// When it ended; `None` for the present one.
    pub until: Option<Timestamp>,
    /// The Machine that it served.
    pub machine: Option<String>,
    /// The name of the host.
    pub host: Option<String>,
    /// The trace of that machine.
    pub trace: Option<String>,
    /// Address of that trace.
    pub url: Option<String>,
}

/// The lives on record and the present one. A VM in its first life has none to tell of. `url`: address of a trace, with `{}`
/// for its id.
pub(super) fn lives(found: &Found, url: Option<&str>) -> Vec<Life> {
    let Some(vm) = found.child.as_ref().and_then(|c| c.vm()) else {
        return Vec::new();
    };
    let mut all: Vec<Life> = vm
        .lives
        .iter()
        .map(|life| Life {
            number: u32::try_from(life.generation).unwrap_or_default(),
            since: life.since.as_ref().map(|t| t.0),
            until: life.until.as_ref().map(|t| t.0),
            machine: life.machine.clone(),
            host: life.host_name.clone(),
            trace: life.trace_id.clone(),
            url: life
                .trace_id
                .as_ref()
                .and_then(|id| Some(url?.replace("{}", id))),
        })
        .collect();
    let present = recycle::generation(vm);
    // From the intent to the renewal, the VM is still in the life whose end is recorded.
    if all.last().is_some_and(|last| last.number < present) {
        let trace = trace(found, url);
        let machine = vm.machine_ref.as_ref();
        all.push(Life {
            number: present,
            since: vm.generation_since.as_ref().map(|t| t.0),
            until: None,
            machine: machine.and_then(|m| m.name.clone()),
            host: found.agent.as_ref().and_then(|a| a.spec.hostname.clone()),
            trace: trace.as_ref().map(|t| t.id.clone()),
            url: trace.and_then(|t| t.url),
        });
    }
    all
}
