//! The states of VsphereAgents, with one object for each. `tests/fixtures/states/vsphereagents.json` has objects that earlier
//! code wrote. Tests read them with the code of today.
//!
//! Guarantee: a recorded object stays as it was written, unless a flag asks for new ones.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use agent_forge_actors::domain::{
    disk::{self, Disk},
    managed_vm::ManagedVm,
    reassign::Taking,
    recycle::{self, Stage},
};
use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent},
    pool::CleanupPolicy,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{kube::store, run::Outcome};

/// The command that adds states.
pub const COMMAND: &str = "cargo run -p agent-forge-sim -- states --record";

/// Objects by their state.
pub type States = BTreeMap<String, Value>;

/// What decides what becomes of a VM, as the operator reads it: the phase, then a word for all that is not usual.
#[must_use]
pub fn summary(vm: &ManagedVm) -> String {
    let record = vm.vm();
    let is = |of: fn(&VmStatus) -> bool| record.is_some_and(of);
    let (disk, way) = (record.map(disk::of), vm.recycling());
    let status = vm.object.status.as_ref();
    let retains = status.is_some_and(|s| s.cleanup_policy == Some(CleanupPolicy::Retain));
    let is_asked = |attempt| record.and_then(|vm| vm.attempt) == Some(attempt);
    let words = [
        (vm.in_buffer, "in-buffer"),
        (vm.identity.is_some(), "identity"),
        (is(|vm| vm.moref.is_some()), "made"),
        (is(|vm| recycle::generation(vm) > 1), "later-life"),
        (disk == Some(Disk::Unknown), "disk-unknown"),
        (matches!(disk, Some(Disk::DataOf(_))), "disk-kept"),
        (matches!(way, Stage::Asked(_)), "recycle-asked"),
        (matches!(way, Stage::Recorded(_)), "recycle-recorded"),
        (way == Stage::Begun, "recycle-begun"),
        (vm.taking() == Taking::Asked, "take-asked"),
        (vm.taking() == Taking::Recorded, "take-recorded"),
        (vm.taking() == Taking::Done, "taken"),
        (vm.is_marked(), "marked"),
        (vm.is_outdated(), "outdated"),
        (vm.has_served(&[]), "served"),
        (vm.guest_may_be_node(), "may-be-node"),
        (is(|vm| vm.boot_repair.is_some()), "reset"),
        (is(|vm| !vm.switched_on_again.is_empty()), "switched-on"),
        (is(|vm| vm.tags_missing == Some(true)), "tags-missing"),
        (is(|vm| vm.agent_lost_since.is_some()), "agent-lost"),
        (is(|vm| vm.machine_vanished_paused.is_some()), "vanished"),
        (vm.replace_annotation().is_some_and(is_asked), "replace"),
        (vm.skips_delete(), "skip-delete"),
        (retains, "retained"),
        (vm.adopted, "adopted"),
        (vm.reborn, "reborn"),
        (vm.given_up, "given-up"),
        (vm.deleting, "deleting"),
        (vm.forced, "forced"),
        (!vm.has_finalizer, "no-finalizer"),
    ];
    let phase = record.and_then(|vm| vm.phase.as_ref());
    let phase = phase.map_or("no-phase", |phase| phase.as_str());
    let mut all = vec![phase];
    all.extend(words.iter().filter(|(holds, _)| *holds).map(|(_, w)| *w));
    all.join(" ")
}

/// Reads an object as the operator does.
///
/// # Errors
/// It is not a VsphereAgent.
pub fn read(object: &Value) -> Result<ManagedVm> {
    let parsed: VsphereAgent = serde_json::from_value(object.clone())?;
    Ok(ManagedVm::read(Arc::new(parsed)))
}

/// The states in that run. Of the objects in one state it keeps the longest one: that has the most fields.
///
/// # Errors
/// An object cannot be read.
pub fn of(run: &Outcome) -> Result<States> {
    let mut states = States::new();
    for object in &run.vsphere_agents {
        let state = summary(&read(object)?);
        let mut object = object.as_ref().clone();
        store::remove(&mut object["metadata"], "resourceVersion");
        add(&mut states, [(state, object)]);
    }
    Ok(states)
}

/// Adds states.
pub fn add(states: &mut States, more: impl IntoIterator<Item = (String, Value)>) {
    let length = |object: &Value| object.to_string().len();
    for (state, object) in more {
        let known = states.get(&state);
        if known.is_none_or(|known| length(known) < length(&object)) {
            states.insert(state, object);
        }
    }
}

fn file() -> PathBuf {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    fixtures.join("states/vsphereagents.json")
}

/// The recorded states.
///
/// # Errors
/// The file cannot be read.
pub fn recorded() -> Result<States> {
    let text = fs::read_to_string(file()).context("vsphereagents.json")?;
    let mut all: Value = serde_json::from_str(&text)?;
    Ok(serde_json::from_value(all["states"].take())?)
}

/// Those of these states that are not recorded.
///
/// # Errors
/// The file cannot be read.
pub fn not_recorded(states: &States) -> Result<Vec<&str>> {
    let known = recorded()?;
    let new = states.keys().filter(|state| !known.contains_key(*state));
    Ok(new.map(String::as_str).collect())
}

/// Records those of these states that are not recorded yet. With `anew` it records all of them, and no others stay.
///
/// # Errors
/// The file cannot be read or written.
pub fn record(mut states: States, anew: bool) -> Result<()> {
    if !anew {
        states.extend(recorded()?);
    }
    // One line for each object: such a line comes once and stays.
    let row = |(state, object): (&String, &Value)| format!("{}: {object}", json!(state));
    let rows: Vec<String> = states.iter().map(row).collect();
    let (by, rows) = (json!(COMMAND), rows.join(",\n"));
    let text = format!("{{\n\"writtenBy\": {by},\n\"states\": {{\n{rows}\n}}\n}}\n");
    fs::write(file(), text).context("vsphereagents.json")
}
