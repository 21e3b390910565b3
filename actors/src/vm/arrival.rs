//! Dead on arrival: a VM whose Agent does not register by its deadline is given up and replaced. Pure.
//!
//! Flow:
//! 1. The deadline is over, and the actor takes a fresh look at the VM.
//! 2. The record gets [`class`] and evidence. This is final: a late Agent of the VM is never approved.
//! 3. The Agent is fenced. The VM is powered off, destroyed and proven absent.
//! 4. After a rest the next attempt starts, with another uuid.
//!
//! An Agent that registered and serves no Machine counts as well, if it is disconnected or gone for as long ([`lost`]).
//! A person may ask for another VM at any time before it serves. A VM that no Machine can have is replaced when its pool
//! wants other hardware ([`super::drift`]). So is a host of the buffer whose Agent sends no inventory by the deadline.
//!
//! Guarantees: only a VM whose Agent never served is given up. After a restore of the hub from a backup that is older
//! than the Agent, the guest may be a node. Such a VM is given up only by a person, or by an actor that switched it on
//! itself and has seen no Agent since. After [`REPLACEMENTS`] of them a person decides. Another template is a new start.

use std::time::Duration;

use agent_forge_crds::agent::{Failure, VmStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    domain::{identity::BootSource, recorded_vm::is_given_up, seconds},
    ports::vcenter::{PowerState, VmObservation},
    vm::lost::Lost,
};

/// How many VMs in a row are replaced for one AgentMachine. After that, another VM does not help.
pub const REPLACEMENTS: i32 = 4;
/// Rest after the first VM that was given up. It doubles up to [`LONGEST_REST`].
pub const FIRST_REST: Duration = Duration::from_secs(60);
/// The class of a VM that is given up because its Agent sent no inventory.
pub const NO_INVENTORY: &str = "AgentWithoutInventory";
/// Longest rest between two attempts.
pub const LONGEST_REST: Duration = Duration::from_secs(1800);

/// Whether the Agent of a VM is awaited, overdue, or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// There is time left, the Agent is known, or there is no VM yet.
    Awaited,
    /// The Agent has not registered by the deadline, was lost for as long, or a person asks for another VM.
    Overdue {
        /// Why.
        cause: Cause,
        /// So many were replaced before that a person has to decide.
        exhausted: bool,
        /// A person has allowed its replacement.
        allowed: bool,
    },
    /// The VM was given up: it is removed, whatever its Agent does.
    GivenUp,
    /// The VM before it was given up a short time ago: the next one waits.
    Resting(Duration),
}

/// Why a VM is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No Agent registered by the deadline.
    NotRegistered,
    /// Its Agent registered and was lost.
    Lost(Lost),
    /// A person asks for another VM.
    Asked,
    /// The pool wants other hardware, and no Machine can have this VM.
    TemplateChanged,
    /// It waits in the buffer, and its Agent sent no inventory by the deadline.
    NoInventory,
}

impl Cause {
    /// What happened, as a sentence for people.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::NotRegistered => "no Agent registered in time",
            Self::Lost(lost) => lost.explain(),
            Self::Asked => "a person asked for another VM",
            Self::TemplateChanged => "the pool wants other hardware",
            Self::NoInventory => "its Agent registered and sent no inventory in time",
        }
    }
}

/// What the cache shows of the VM's Agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing, and none was ever recorded.
    Unseen,
    /// An Agent that runs on the VM, or may.
    There,
    /// The Agent cannot be claimed any more. The duration says how much longer the actor waits for it.
    Lost(Lost, Duration),
    /// No Machine can have the VM, and its pool wants other hardware.
    Outdated,
    /// The VM began another life, and its Agent has not come back yet.
    NotBack,
    /// It waits in the buffer, and its Agent has sent no inventory: no Machine can have it.
    NoInventory,
}

/// Reads the arrival from the record. `agent`: what the cache shows of the Agent. `allowed`: the attempt whose
/// replacement a person asks for. `next`: what the next VM boots from. If its InfraEnv changed, the replacements are
/// counted from zero again.
#[must_use]
pub fn arrival(
    vm: &VmStatus,
    (failure, next): (Option<&Failure>, Option<&BootSource>),
    agent: Sight,
    allowed: Option<i32>,
    now: Timestamp,
) -> Arrival {
    if vm.bios_uuid.is_none() {
        let of_this = failure.filter(|f| vm.attempt.is_some() && f.attempt == vm.attempt);
        let rest = of_this.map_or(Duration::ZERO, |f| rest_of(f, next, now));
        return if rest.is_zero() {
            Arrival::Awaited
        } else {
            Arrival::Resting(rest)
        };
    }
    if is_given_up(vm, failure) {
        return Arrival::GivenUp;
    }
    let over = vm.discovery_deadline.as_ref().is_some_and(|d| d.0 <= now);
    let allowed = allowed.is_some() && allowed == vm.attempt;
    let cause = match agent {
        Sight::Lost(lost, Duration::ZERO) => Some(Cause::Lost(lost)),
        Sight::Outdated => Some(Cause::TemplateChanged),
        Sight::NotBack if over => Some(Cause::NotRegistered),
        // A VM that had an Agent once may be a node, even if the Agent is gone.
        Sight::Unseen if over && vm.agent_ref.is_none() => Some(Cause::NotRegistered),
        Sight::NoInventory if over && vm.agent_ref.is_none() => Some(Cause::NoInventory),
        _ => allowed.then_some(Cause::Asked),
    };
    let Some(cause) = cause else {
        return Arrival::Awaited;
    };
    Arrival::Overdue {
        cause,
        exhausted: cause != Cause::TemplateChanged
            && failure.map_or(0, |f| counted(f, next)) >= REPLACEMENTS,
        allowed,
    }
}

/// How many VMs in a row were given up that booted from the ISO of that InfraEnv.
fn counted(failure: &Failure, source: Option<&BootSource>) -> i32 {
    let then = failure.infra_env_ref.as_ref().and_then(BootSource::read);
    let changed = then
        .as_ref()
        .zip(source)
        .is_some_and(|(a, b)| !a.is_same(b));
    if changed {
        0
    } else {
        failure.count.unwrap_or(0)
    }
}

/// The time left of the rest after a VM was given up. A clock that was set back does not make it longer.
fn rest_of(failure: &Failure, next: Option<&BootSource>, now: Timestamp) -> Duration {
    let doublings = counted(failure, next).clamp(1, 16) - 1;
    let rest = FIRST_REST.saturating_mul(1 << doublings).min(LONGEST_REST);
    let since = failure.time.as_ref().map(|t| now.duration_since(t.0));
    match since.and_then(|s| Duration::try_from(s).ok()) {
        Some(gone_by) => rest.saturating_sub(gone_by),
        None => rest,
    }
}

/// Whether the guest may be an installed node. A guest that waits to be discovered has no name of its own. The Assisted
/// Installer accepts no host called localhost, so no node has that name.
#[must_use]
pub fn may_serve(shown: &VmObservation) -> bool {
    let runs_tools = shown.tools.as_deref() == Some("guestToolsRunning");
    let named = shown
        .guest_host
        .as_deref()
        .is_none_or(|h| h != "localhost" && !h.starts_with("localhost."));
    shown.power != PowerState::Off && runs_tools && shown.guest_address.is_some() && named
}

/// How far the VM got, in one word.
#[must_use]
pub fn class(shown: &VmObservation) -> &'static str {
    match (shown.power, shown.tools.as_deref(), &shown.guest_address) {
        (PowerState::Off | PowerState::Suspended, ..) => "NotRunning",
        (_, Some("guestToolsRunning"), Some(_)) => "NotRegistered",
        (_, Some("guestToolsRunning"), None) => "NoAddress",
        _ => "NoGuest",
    }
}

/// What a person should look at, by class.
#[must_use]
pub fn advice(class: &str) -> &'static str {
    match class {
        "NotRunning" => "it was switched off: see its events in vCenter",
        "NotRegistered" => {
            "its guest runs and has an address, but no Agent registered: check DNS, proxy and firewall from there to the assisted \
             service, and the InfraEnv"
        }
        "NoAddress" => "its guest runs and has no address: check DHCP, VLAN and port group",
        _ => "no guest came up: look at its console; does it boot the ISO?",
    }
}

/// How far a VM got that is given up for that cause, in one word.
#[must_use]
pub fn class_of(cause: Cause, shown: &VmObservation) -> &'static str {
    match cause {
        Cause::NotRegistered => class(shown),
        Cause::Lost(lost) => lost.class(),
        Cause::Asked => "Asked",
        Cause::TemplateChanged => "TemplateChanged",
        Cause::NoInventory => NO_INVENTORY,
    }
}

/// The record that gives the VM up.
#[must_use]
pub fn failure(
    vm: &VmStatus,
    cause: Cause,
    before: Option<&Failure>,
    shown: &VmObservation,
    now: Timestamp,
) -> Failure {
    let source = vm.infra_env_ref.as_ref().and_then(BootSource::read);
    // Another template may be what mends it.
    let before = before.filter(|_| cause != Cause::TemplateChanged);
    let before = before.map_or(0, |f| counted(f, source.as_ref()));
    Failure {
        attempt: vm.attempt,
        count: Some(before.saturating_add(1)),
        infra_env_ref: vm.infra_env_ref.clone(),
        class: Some(class_of(cause, shown).to_owned()),
        time: Some(Time(seconds::whole(now))),
        bios_uuid: vm.bios_uuid.clone(),
        moref: Some(shown.moref.id.clone()),
        power_state: Some(shown.power.as_str().to_owned()),
        tools_status: shown.tools.clone(),
        guest_address: shown.guest_address.clone(),
        guest_host_name: shown.guest_host.clone(),
    }
}

#[cfg(test)]
mod tests;
