//! How a host moves between its states. Pure functions of a host, the step times and the current time.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::options::Delays,
    host::{Content, Host, NextBoot, VMWARE, Validation},
    state::HostState,
};

/// Install stages of a worker that joins an existing cluster. The host reboots in the fourth.
pub const STAGES: [&str; 7] = [
    "Starting installation",
    "Installing",
    "Writing image to disk",
    "Rebooting",
    "Configuring",
    "Joined",
    "Done",
];
/// What the service says of a host that booted its image where it expected the disk.
pub const BOOTED_IMAGE: &str = "Expected the host to boot from disk, but it booted the installation image - please reboot and fix boot \
                                order to boot from disk Virtual_disk (sda, /dev/disk/by-path/pci-0000:03:00.0-scsi-0:0:0:0)";
/// What it says of a host that starts over in the middle of its install.
pub const RESTARTED: &str = "The host unexpectedly restarted during the installation";
/// Number of the stage (from 1) in which the host reboots from its disk.
pub const REBOOTING: usize = 4;

/// Moves the host as far as possible until `now`. Returns when the host moves again by itself. After a long pause, each step
/// happens at its own time, but not before the last call.
pub fn advance(host: &mut Host, delays: &Delays, now: Instant) -> Option<Instant> {
    let again = loop {
        match next(host, delays) {
            Some((due, step)) if due <= now => apply(host, step, due.max(host.looked)),
            other => break other.map(|(due, _)| due),
        }
    };
    host.looked = now;
    again
}

/// What happens to a host next by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Upgrade,
    Report,
    Check,
    Validate,
    Silence,
    Enter(HostState),
    Rejoin(HostState),
    Stage,
    FirstBoot,
    Join,
}

fn next(host: &Host, delays: &Delays) -> Option<(Instant, Step)> {
    let silence = (!host.agent_runs).then(|| {
        (
            host.heard.max(host.since) + delays.disconnect,
            Step::Silence,
        )
    });
    let in_discovery = || {
        if !host.agent_runs {
            return silence;
        }
        let since = host.since.max(host.heard);
        Some(if !host.upgraded {
            (since + delays.upgrade, Step::Upgrade)
        } else if host.reported {
            (since + delays.inventory + delays.monitor, Step::Validate)
        } else {
            (since + delays.inventory, Step::Report)
        })
    };
    let revalidated = |good: bool| {
        if !host.agent_runs {
            return silence;
        }
        (is_sufficient(host) != good).then(|| (host.since + delays.monitor, Step::Validate))
    };
    let heard_after =
        |delay: Duration, step: Step| host.agent_runs.then(|| (host.since + delay, step));
    match host.state {
        HostState::DiscoveringUnbound | HostState::Discovering => in_discovery(),
        HostState::KnownUnbound => revalidated(true),
        // Its validation in the cluster fails until the agent process has polled once more.
        HostState::Insufficient if host.agent_runs && !host.checked => {
            Some((host.since + delays.agent_poll, Step::Check))
        }
        HostState::InsufficientUnbound | HostState::Insufficient => revalidated(false),
        HostState::Known if !host.agent_runs => silence,
        HostState::Known if !is_sufficient(host) => revalidated(true),
        HostState::Known => host.approved.then(|| {
            (
                host.since + delays.install_start,
                Step::Enter(HostState::Installing),
            )
        }),
        HostState::Binding => heard_after(delays.agent_poll, Step::Rejoin(HostState::Discovering)),
        HostState::Installing | HostState::InstallingInProgress => installing(host, delays),
        // No timeout applies here. With a dead agent the host stays in this state for ever.
        HostState::Unbinding => heard_after(
            delays.agent_poll,
            Step::Rejoin(HostState::DiscoveringUnbound),
        ),
        HostState::Reclaiming | HostState::ReclaimingRebooting
            if !host.powered || host.reclaim_stalls =>
        {
            Some((
                host.since + delays.reclaim_limit,
                Step::Enter(HostState::UnbindingPendingUserAction),
            ))
        }
        HostState::Reclaiming => Some((
            host.since + delays.reclaim,
            Step::Enter(HostState::ReclaimingRebooting),
        )),
        HostState::ReclaimingRebooting => Some((
            host.since + delays.reclaim_reboot,
            Step::Rejoin(HostState::DiscoveringUnbound),
        )),
        // The host answers again, for example because its machine was resumed. It does not register for that.
        HostState::DisconnectedUnbound if host.shown.is_none() => heard_after(
            delays.agent_poll,
            Step::Enter(HostState::DiscoveringUnbound),
        ),
        HostState::DisconnectedUnbound | HostState::Disconnected => {
            heard_after(delays.agent_poll, Step::Validate)
        }
        // An agent process that still runs is told to end. It starts again, and registers.
        HostState::UnbindingPendingUserAction => heard_after(
            delays.agent_poll,
            Step::Rejoin(HostState::DiscoveringUnbound),
        ),
        // Nothing but a boot from the disk ends this. Then the service finds the Node in the cluster.
        HostState::InstallingPendingUserAction => {
            let booted = host.on_disk.filter(|_| host.powered)?;
            Some((booted + delays.install_stage, Step::Join))
        }
        HostState::AddedToExistingCluster | HostState::Error => None,
    }
}

fn installing(host: &Host, delays: &Delays) -> Option<(Instant, Step)> {
    let due = host.since + delays.install_stage;
    if host.stage < REBOOTING && !host.agent_runs {
        return Some((
            host.heard.max(host.since) + delays.disconnect,
            Step::Enter(HostState::Error),
        ));
    }
    if host.stage == REBOOTING {
        return host.powered.then_some((due, Step::FirstBoot));
    }
    Some((due, Step::Stage))
}

fn apply(host: &mut Host, step: Step, now: Instant) {
    match step {
        Step::Upgrade => {
            host.upgraded = true;
            host.since = now;
        }
        Step::Check => {
            host.checked = true;
            validate(host, now);
        }
        Step::Report => {
            host.reported = true;
            host.shown = Some(host.facts.clone());
        }
        Step::Validate => validate(host, now),
        Step::Silence => {
            let states = [HostState::DisconnectedUnbound, HostState::Disconnected];
            host.enter(states[usize::from(host.cluster.is_some())], now);
        }
        Step::Enter(state) => {
            host.enter(state, now);
            if state == HostState::Installing {
                host.stage = 0;
            }
            // From now on the disk starts discovery, at each boot.
            if state == HostState::ReclaimingRebooting
                && let Some((_, content)) = &mut host.written
            {
                *content = Content::Discovery(host.infra_env.clone());
            }
        }
        Step::Rejoin(state) => {
            // A host that was reclaimed boots an image, and so has its agent process.
            if host.state == HostState::ReclaimingRebooting {
                host.upgraded = false;
            }
            // What fails in a cluster may be good enough for none.
            if host.validation == Validation::Failing && is_sufficient(host) {
                host.validation = Validation::Passing;
            }
            host.enter(state, now);
            host.reported = false;
            host.checked = false;
            host.stage = 0;
            host.set_agent(true, now);
            host.powered = true;
        }
        Step::Stage => next_stage(host, now),
        Step::FirstBoot => match host.next_boot {
            NextBoot::Disk => next_stage(host, now),
            NextBoot::Image => {
                host.set_agent(true, now);
                host.enter_as(HostState::InstallingPendingUserAction, BOOTED_IMAGE, now);
            }
        },
        Step::Join => {
            host.stage = STAGES.len();
            host.enter(HostState::AddedToExistingCluster, now);
        }
    }
}

fn next_stage(host: &mut Host, now: Instant) {
    host.stage += 1;
    host.since = now;
    host.enter(HostState::InstallingInProgress, now);
    if host.stage == REBOOTING {
        host.set_agent(false, now);
        host.written = Some((host.facts.disk_id.clone(), Content::System));
    }
    if host.stage == STAGES.len() {
        host.enter(HostState::AddedToExistingCluster, now);
    }
}

fn validate(host: &mut Host, now: Instant) {
    let bound = host.cluster.is_some();
    let (validation, states) = if is_sufficient(host) && (host.checked || !bound) {
        let known = [HostState::KnownUnbound, HostState::Known];
        (Validation::Passing, known)
    } else {
        let not_enough = [HostState::InsufficientUnbound, HostState::Insufficient];
        (Validation::Failing, not_enough)
    };
    host.validation = validation;
    host.enter(states[usize::from(bound)], now);
}

/// Whether the host has the minimum hardware of a worker and a usable name. In a cluster, VMware disks must also show
/// their UUID.
#[must_use]
pub fn is_sufficient(host: &Host) -> bool {
    let facts = &host.facts;
    let hardware = facts.cpus >= 2 && facts.memory_mib >= 8192 && facts.disk_gib >= 100;
    let disks = host.cluster.is_none() || facts.manufacturer != VMWARE || facts.disk_uuid;
    hardware && disks && is_hostname(&host.effective_hostname())
}

/// Whether the service accepts this hostname.
#[must_use]
pub fn is_hostname(name: &str) -> bool {
    let reserved = [
        "localhost",
        "localhost.localdomain",
        "localhost4",
        "localhost6",
        "localhost4.localdomain4",
    ];
    let character = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(character);
    name.len() <= 63
        && !name.starts_with('-')
        && name.split('.').all(label)
        && !reserved.contains(&name)
}

/// Lets the host join `cluster`.
///
/// # Errors
/// The host's state does not allow it. The service tries again later.
pub fn bind(host: &mut Host, cluster: (String, String), now: Instant) -> Result<(), String> {
    if host.state != HostState::KnownUnbound {
        return Err(format!(
            "host in state {} cannot be bound",
            host.state.name()
        ));
    }
    host.cluster = Some(cluster);
    host.kept = false;
    host.reported = false;
    host.enter(HostState::Binding, now);
    Ok(())
}

/// Lets the host leave its cluster.
///
/// # Errors
/// The host's state does not allow it. The service tries again later.
pub fn unbind(host: &mut Host, now: Instant) -> Result<(), String> {
    use HostState as S;
    let next = match host.state {
        S::Known | S::Discovering | S::Disconnected | S::Insufficient => S::Unbinding,
        S::AddedToExistingCluster => S::Reclaiming,
        S::Error | S::InstallingPendingUserAction => S::UnbindingPendingUserAction,
        // The reclaim fails. The service then takes the Node away, and next time there is nothing left to reclaim.
        S::Installing | S::InstallingInProgress if host.stage > REBOOTING && !host.kept => {
            host.kept = true;
            return Err("host cannot be reclaimed before its install is done".to_owned());
        }
        S::Installing | S::InstallingInProgress => S::UnbindingPendingUserAction,
        _ => {
            host.kept = true;
            return Err(format!(
                "host in state {} cannot be unbound",
                host.state.name()
            ));
        }
    };
    // If a try failed before, the Node is gone already.
    host.left = host.cluster.take().filter(|_| !host.kept);
    "auto-assign".clone_into(&mut host.role);
    host.stage = 0;
    host.kept = false;
    host.reported = false;
    host.enter(next, now);
    Ok(())
}

/// The machine booted its installed disk: it runs without an agent process.
pub fn boot_disk(host: &mut Host, now: Instant) {
    host.powered = true;
    if host.state == HostState::InstallingPendingUserAction {
        host.set_agent(false, now);
        host.on_disk = Some(now);
    }
}

/// What the service answers to an agent process that registers again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It knows the host, and the process goes on.
    Accepted,
    /// Not in this state. The process tries again.
    TryAgain,
    /// Forbidden. The process stays silent until its machine boots again.
    Forbidden,
}

/// The agent process in a discovery image registers again.
pub fn register(host: &mut Host, now: Instant) -> Answer {
    use HostState as S;
    host.powered = true;
    host.on_disk = None;
    let next = match host.state {
        S::DiscoveringUnbound
        | S::DisconnectedUnbound
        | S::InsufficientUnbound
        | S::KnownUnbound
        | S::Unbinding
        | S::UnbindingPendingUserAction
        | S::ReclaimingRebooting => S::DiscoveringUnbound,
        S::Discovering | S::Disconnected | S::Insufficient | S::Known | S::Binding => {
            S::Discovering
        }
        S::AddedToExistingCluster => S::InstallingPendingUserAction,
        S::Installing | S::InstallingInProgress if host.stage >= REBOOTING => {
            S::InstallingPendingUserAction
        }
        // An install fails if its host starts over in the middle.
        S::Installing | S::InstallingInProgress => S::Error,
        S::Error => return Answer::Accepted,
        S::InstallingPendingUserAction => return Answer::Forbidden,
        S::Reclaiming => return Answer::TryAgain,
    };
    host.set_agent(true, now);
    host.heard = now;
    host.since = now;
    host.looked = now;
    host.upgraded = false;
    host.reported = false;
    host.checked = false;
    match next {
        S::InstallingPendingUserAction => host.enter_as(next, BOOTED_IMAGE, now),
        S::Error => host.enter_as(next, RESTARTED, now),
        _ => host.enter(next, now),
    }
    Answer::Accepted
}

#[cfg(test)]
mod tests;
