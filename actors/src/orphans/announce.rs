//! Says what the scan found: one Event and one line for each orphan, again every [`SAID`].

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::{conditions::event, docs};

use super::judge::Orphan;
use crate::{
    context::Context,
    domain::names::{MoRef, ObjectKey},
    ports::cluster::{Notice, Regarding},
    runtime::announcer::{Announcer, Due, Pace},
};

/// How long an announcement of an orphan counts. After that the scan announces it again, while it is still an orphan. API
/// servers keep an Event for an hour by default (`--event-ttl`). So with a scan every ten minutes one Event is always
/// visible.
pub const SAID: Duration = Duration::from_secs(3000);
const PACE: Pace = Pace {
    again: Some(SAID),
    ..Pace::NEWS
};

/// The most characters of a name from vCenter that a message repeats.
const QUOTED: usize = 80;

/// What is remembered of one vCenter.
#[derive(Clone, Debug, Default)]
pub(super) struct LastScan {
    /// Orphans of the last scan.
    pub(super) vms: BTreeSet<MoRef>,
    /// Which of them were announced.
    pub(super) announcer: Announcer<MoRef>,
}

/// The vCenter that an orphan was found on, and who uses it.
pub(super) struct Place<'a> {
    pub(super) server: &'a str,
    pub(super) namespaces: &'a BTreeSet<String>,
}

/// A name from vCenter as a quotation, so that no part of it looks like the operator's own text.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(QUOTED).collect();
    format!("{short:?}")
}

/// `fate`: what happened to it in this scan, as a clause. `true`: it was announced now.
pub(super) fn announce(
    context: &Context,
    place: &Place<'_>,
    orphan: &Orphan,
    fate: &str,
    known: &mut LastScan,
) -> bool {
    let (now, vm) = (context.clock.monotonic(), &orphan.vm);
    let announcer = &mut known.announcer;
    if announcer.announce(vm.moref.clone(), "", now, PACE) != Due::Now {
        return false;
    }
    let note = format!(
        "VM {} ({}, {}) on {} carries our mark ({}), and {}; {fate}. If nothing needs it, remove it by hand: \
         {} says how",
        quoted(&vm.name),
        quoted(&vm.moref.id),
        vm.power.as_str(),
        place.server,
        vm.marker,
        orphan.why.explain(),
        docs::linked("docs/runbooks/AgentForgeOrphanVMs.md"),
    );
    tracing::warn!("{note}");
    notify(context, place, orphan, (true, event::ORPHAN_VM), note);
    true
}

/// Writes an Event about the VsphereAgent in the marker. It does so only if its namespace uses that vCenter, because the
/// name comes from the vCenter.
pub(super) fn notify(
    context: &Context,
    place: &Place<'_>,
    orphan: &Orphan,
    (warning, reason): (bool, &'static str),
    note: String,
) {
    let marker = &orphan.vm.marker;
    if !place.namespaces.contains(&marker.namespace) {
        tracing::info!("no Event: no pool and no VsphereAgent of that namespace uses this vCenter");
        return;
    }
    context.cluster.notify(Notice {
        regarding: Regarding {
            api_version: agent_forge_crds::names::API_VERSION.to_owned(),
            kind: "VsphereAgent".to_owned(),
            key: ObjectKey::new(&marker.namespace, &marker.name),
            uid: marker.uid.clone(),
        },
        warning,
        reason,
        action: "ScanForOrphans",
        note,
    });
}
