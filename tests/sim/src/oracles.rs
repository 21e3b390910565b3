//! Checks promises: some after every change in vCenter, others at rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_actors::{
    domain::marker::{MARKER_KEY, Marker},
    migration::notes::Notes,
};
use agent_forge_crds::names::{AGENT_FINALIZER, AGENT_MACHINE_UID_ANNOTATION, POOL_FINALIZER};
use agent_forge_lab::played::guests::identity;
use serde_json::Value;

use crate::{
    kube::{
        ApiServer, OURS, kind,
        store::{Kind, Name, Store, is_deleting, list, name_of, text},
    },
    promise::{Failure, Oracle},
    tolerances::{BEGUN_ANEW, EJECTED, KNOWN_TO_PEOPLE, RESETS, UNKNOWN},
    vcenter::{
        Deed, VCenter,
        model::{Inventory, Ref, Vm},
    },
    world::{NAMESPACE, PASSWORD, World},
};

/// The VM folder of all pools.
pub const FOLDER: &str = "/dc1/vm/demo";
/// Checks every change in vCenter from now on.
pub fn watch(api: &ApiServer, vcenter: &VCenter) {
    let api = api.clone();
    vcenter.set_witness(Box::new(move |inventory, deed| {
        if matches!(deed, Deed::Created(_)) {
            api.director.note_created();
        }
        let broken = api.read(|store| judge(store, inventory, deed));
        for what in broken {
            api.director.violated(what);
        }
    }));
}

/// Key in the `extraConfig` of a VM that an admin copied from one of ours. The copy carries our marker but is foreign.
pub const COPY: &str = "somebody.copied-this";

/// The marker of a VM that is ours.
#[must_use]
pub fn marker(vm: &Vm) -> Option<Marker> {
    let ours = !vm.extra.contains_key(COPY);
    Marker::parse(vm.extra.get(MARKER_KEY).filter(|_| ours)?)
}

/// A broken promise `foreign_and_serving_untouched`.
fn touched(what: String) -> Failure {
    Oracle::ForeignAndServingUntouched.broken(what)
}

/// The Agent on the VM with that uuid.
fn agent_on<'a>(store: &'a Store, uuid: &str) -> Option<&'a Value> {
    let host = identity::swapped(uuid);
    let agents = store.objects.get(&kind("agents"));
    let mut agents = agents.into_iter().flatten();
    let agent = agents.find(|((_, name), _)| *name == host);
    agent.map(|(_, agent)| agent.as_ref())
}

/// Whether an Agent serves, or will serve soon.
#[must_use]
pub fn serves(agent: &Value) -> bool {
    !text(agent, "/spec/clusterDeploymentName/name").is_empty()
        || agent.pointer("/metadata/labels/agentMachineRef").is_some()
}

fn judge(store: &Store, inventory: &Inventory, deed: &Deed) -> Vec<Failure> {
    let mut broken = Vec::new();
    match deed {
        Deed::Created(_) => one_each(store, inventory, &mut broken),
        Deed::Touches(what, vm) => untouchable(store, inventory, what, vm, &mut broken),
        Deed::Destroyed(_) => {}
    }
    no_leak(store, inventory, &mut broken);
    trespass(store, inventory, &mut broken);
    broken
}

/// Whether the Agent of that VsphereAgent's VM is claimed by an AgentMachine of another control plane than the recorded
/// one.
fn serves_elsewhere(store: &Store, child: &Value) -> bool {
    let home = text(child, "/status/vm/agentMachineRef/namespace");
    let agent = agent_on(store, text(child, "/status/vm/biosUUID"));
    let claimed = agent.map_or("", |agent| {
        text(agent, "/metadata/annotations/agentMachineRefNamespace")
    });
    !claimed.is_empty() && claimed != home
}

/// Checks `one_vm_per_agent_machine`: each VsphereAgent has one VM, and so has each AgentMachine over all its VsphereAgents.
fn one_each(store: &Store, inventory: &Inventory, broken: &mut Vec<Failure>) {
    let mut vms: BTreeMap<Name, usize> = BTreeMap::new();
    for marker in inventory.vms.values().filter_map(marker) {
        *vms.entry(owner(&marker)).or_default() += 1;
    }
    for ((namespace, name), count) in vms.iter().filter(|(_, count)| **count > 1) {
        let many = format!("{namespace}/{name} has {count} VMs");
        broken.push(Oracle::OneVmPerAgentMachine.broken(many));
    }
    let children = kind("vsphereagents");
    let mut hosts: BTreeMap<String, Vec<&Name>> = BTreeMap::new();
    for owner in vms.keys() {
        let child = store.get(&children, owner);
        let annotations = child.as_ref().map(|c| &c["metadata"]["annotations"]);
        let wanted_by = annotations.and_then(|a| a[AGENT_MACHINE_UID_ANNOTATION].as_str());
        let elsewhere = child.as_ref().is_some_and(|c| serves_elsewhere(store, c));
        if let Some(uid) = wanted_by.filter(|_| !elsewhere) {
            hosts.entry(uid.to_owned()).or_default().push(owner);
        }
    }
    for (uid, owners) in hosts.iter().filter(|(_, owners)| owners.len() > 1) {
        let many = format!("{owners:?} have a VM each for AgentMachine {uid}");
        broken.push(Oracle::OneVmPerAgentMachine.broken(many));
    }
}

/// Namespace of a tenant that is not admitted.
pub const INTRUDER: &str = "intruder";

/// Checks `foreign_and_serving_untouched`: the pool of a tenant that is not admitted makes no VsphereAgents, VMs or
/// files.
fn trespass(store: &Store, inventory: &Inventory, broken: &mut Vec<Failure>) {
    let children = store.list(&kind("vsphereagents"), INTRUDER);
    let vms = inventory.vms.values().filter_map(marker);
    let vms = vms.filter(|m| m.namespace == INTRUDER).count();
    let files = inventory.files.keys();
    let own = |(_, path): &&(String, String)| path.contains(INTRUDER);
    let made = [children.len(), vms, files.filter(own).count()];
    if made != [0; 3] {
        broken.push(touched(format!(
            "a pool of a tenant that is not admitted has made {made:?} VsphereAgents, VMs and files"
        )));
    }
}

/// Checks that such a pool reports why it does nothing, and shows nothing of the other tenant's objects.
fn is_silent_on_others(store: &Store, broken: &mut Vec<Failure>) {
    for pool in store.list(&kind("vsphereagentpools"), INTRUDER) {
        let mut conditions = list(&pool, "/status/conditions").iter();
        let says = conditions.any(|c| c["type"] == "Ready" && c["reason"] == "NamespaceNotAllowed");
        let counted = pool.pointer("/status/agentMachines") != Some(&Value::from(0));
        if !says || counted {
            broken.push(touched(format!(
                "a pool of a tenant that is not admitted shows {}",
                pool["status"]
            )));
        }
    }
}

/// Checks `foreign_and_serving_untouched`: whether a write to that object, or to its status, is a write to something of
/// somebody else. The statuses of all pools and VsphereAgents are the operator's.
#[must_use]
pub fn is_foreign(store: &Store, of: &Kind, name: &Name, status: bool) -> bool {
    let reports = status && of.0 == OURS;
    !reports && store.foreign.contains(&(of.clone(), name.clone()))
}

fn owner(marker: &Marker) -> Name {
    (marker.namespace.clone(), marker.name.clone())
}

fn leak(id: &str, marker: &Marker) -> Failure {
    let (namespace, name) = (&marker.namespace, &marker.name);
    Oracle::NothingLeaks.broken(format!(
        "VM {id} is marked as the one of {namespace}/{name}, which does not hold it"
    ))
}

/// Whether the VsphereAgent in that VM's marker exists and is held by its finalizer until the VM is gone.
fn is_answered_for(store: &Store, marker: &Marker) -> bool {
    let (children, name) = (kind("vsphereagents"), owner(marker));
    let child = store.get(&children, &name);
    child.is_some_and(|c| {
        let held = is_held(&c, AGENT_FINALIZER) || store.unheld.contains(&(children, name));
        text(&c, "/metadata/uid") == marker.uid && held
    })
}

fn is_held(object: &Value, finalizer: &str) -> bool {
    let mut all = list(object, "/metadata/finalizers").iter();
    all.any(|f| f == finalizer)
}

/// Whether a person knows that no VsphereAgent holds this VM: its hub was lost, or a restored vCenter shows it by
/// mistake.
fn is_known(inventory: &Inventory, vm: &Vm) -> bool {
    let ghosts = &inventory.drift.ghosts;
    KNOWN_TO_PEOPLE.lets(vm.node.is_some() || ghosts.contains(&vm.object.id))
}

/// Checks `nothing_leaks`, and what a tenant that is not admitted is shown, at the end of a run, also after other failures.
#[must_use]
pub fn leaks(world: &World) -> Vec<Failure> {
    let mut broken = Vec::new();
    world.api.read(|store| {
        world.vcenter.read(|i| no_leak(store, i, &mut broken));
        is_silent_on_others(store, &mut broken);
    });
    broken
}

/// Checks `nothing_leaks` for all VMs.
fn no_leak(store: &Store, inventory: &Inventory, broken: &mut Vec<Failure>) {
    let marked = inventory
        .vms
        .values()
        .filter_map(|vm| Some((vm, marker(vm)?)));
    let leaking =
        marked.filter(|(vm, marker)| !is_known(inventory, vm) && !is_answered_for(store, marker));
    broken.extend(leaking.map(|(vm, marker)| leak(&vm.object.id, &marker)));
}

/// The two requests of the effect `eject_iso`. They are the only ones that a VM may get while it serves.
const EJECTS: [&str; 2] = ["empties a drive of", "answers a question of"];

/// The request that restarts a VM.
pub const RESETTING: &str = "resets";
/// Whether the Agent shows that its guest booted the discovery ISO instead of its disk.
fn booted_image(agent: &Value) -> bool {
    text(agent, "/status/debugInfo/state") == "installing-pending-user-action"
        && text(agent, "/status/debugInfo/stateInfo").starts_with("Expected the host to boot")
        && serves(agent)
}

/// The only request that a VM of the predecessor may get, or one that changes its pool: it writes the marker and changes
/// nothing else.
pub const STAMPS: &str = "stamps";

/// The request that marks a VM as left to people.
pub const RELEASES: &str = "lets go of";

/// How the marker of such a VM begins. Its former marker follows.
pub const RELEASED: &str = "released/";

/// The former marker of a VM that was left to people.
#[must_use]
pub fn released(vm: &Vm) -> Option<Marker> {
    Marker::parse(vm.extra.get(MARKER_KEY)?.strip_prefix(RELEASED)?)
}

/// Whether the record of that VM is being deleted and its pool keeps VMs.
fn may_release(store: &Store, child: Option<&Value>) -> bool {
    let keeps = |child: &Value| {
        let pool = pool_of(store, child);
        pool.is_some_and(|p| text(&p, "/spec/cleanupPolicy") == "Retain")
    };
    child.is_some_and(|child| is_deleting(child) && keeps(child))
}

/// Checks `nothing_leaks` for VMs that were left to people: the VsphereAgent is gone or in deletion, and the marker
/// names it.
fn let_go(store: &Store, inventory: &Inventory, broken: &mut Vec<Failure>) {
    let mark = |vm: &&Vm| {
        let mark = vm.extra.get(MARKER_KEY);
        mark.is_some_and(|m| m.starts_with(RELEASED))
    };
    for vm in inventory.vms.values().filter(mark) {
        let Some(marker) = released(vm) else {
            broken.push(Oracle::NothingLeaks.broken(format!(
                "the mark of VM {} does not show whose VM it was",
                vm.name
            )));
            continue;
        };
        let child = store.get(&kind("vsphereagents"), &owner(&marker));
        let lives =
            child.is_some_and(|c| text(&c, "/metadata/uid") == marker.uid && !is_deleting(&c));
        if lives {
            broken.push(Oracle::NothingLeaks.broken(format!(
                "VM {} is left to people but has a VsphereAgent",
                vm.name
            )));
        }
    }
}

/// Whether the operator may mark this VM of the predecessor. Exactly one record names it by uuid and name. The VM is in
/// the pool's folder, or its notes name the record. It has no marker of another record.
fn may_stamp(store: &Store, inventory: &Inventory, vm: &Vm) -> bool {
    let label = "/metadata/labels/agent-forge.containeroo.ch~1created-for";
    let wish = "/metadata/annotations/agent-forge.containeroo.ch~1adopt";
    // The operator leaves a VM that existed before alone, unless a person asks for it and an administrator of vCenter gave it to the
    // pool. A workload gives the VsphereAgent its name.
    let given = |child: &Value| {
        let pool = format!("/{NAMESPACE}/{}", text(child, "/spec/poolRef/name"));
        let mut mark = vm.extra.get("agent-forge.adopt").into_iter();
        text(child, wish) == "true"
            && mark.any(|mark| mark.ends_with(&pool))
            && text(child, "/metadata/name") == vm.name
    };
    let recorded = |child: &Value| {
        text(child, "/status/vm/biosUUID") == vm.uuid && text(child, "/status/vm/name") == vm.name
    };
    let names = |child: &Value| match text(child, label) {
        "adopted" => given(child),
        _ => recorded(child),
    };
    let children = store.list(&kind("vsphereagents"), "");
    let mut named = children.iter().filter(|c| names(c));
    let (Some(child), None) = (named.next(), named.next()) else {
        return false;
    };
    let alone = inventory.vms.values().filter(|v| v.uuid == vm.uuid).count() == 1;
    let unclaimed = marker(vm).is_none_or(|m| m.uid == text(child, "/metadata/uid"));
    // The predecessor's notes prove as much as the folder does.
    let noted = vm.annotation == Notes::text(text(child, "/metadata/uid"));
    alone && unclaimed && (noted || inventory.path(&vm.folder) == FOLDER)
}

/// The pool that uses a VsphereAgent.
fn pool_of(store: &Store, child: &Value) -> Option<Arc<Value>> {
    let (namespace, _) = name_of(child);
    let pool = match child.pointer("/spec/goal/pool") {
        Some(user) => (
            text(user, "/namespace").to_owned(),
            text(user, "/name").to_owned(),
        ),
        None => (namespace, text(child, "/spec/poolRef/name").to_owned()),
    };
    store.get(&kind("vsphereagentpools"), &pool)
}

/// A VM that serves is switched on only if its pool wants that.
fn may_switch_on(store: &Store, child: Option<&Value>) -> bool {
    let pool = child.and_then(|child| pool_of(store, child));
    pool.is_some_and(|p| text(&p, "/spec/power") == "EnsureOn")
}

/// Whether the operator may empty the VM's drive: its pool wants that, and the host is installed.
fn may_eject(store: &Store, agent: Option<&Value>, child: Option<&Value>) -> bool {
    let installed = |agent: &Value| {
        let is_so = |c: &Value| text(c, "/type") == "Installed" && text(c, "/status") == "True";
        list(agent, "/status/conditions").iter().any(is_so)
    };
    let wanted = |child: &Value| {
        let pool = pool_of(store, child);
        pool.is_some_and(|p| p.pointer("/spec/iso/ejectAfterInstall") == Some(&Value::Bool(true)))
    };
    EJECTED.lets(agent.is_some_and(installed) && child.is_some_and(wanted))
}

/// Checks `foreign_and_serving_untouched`: no request changes a foreign VM or one that serves. The ISO of an installed
/// host may be ejected ([`EJECTS`]). A host that booted the ISO instead of its disk may lose it, get another boot order, and
/// be reset twice. A VM that runs is not made ready for another life.
fn untouchable(
    store: &Store,
    inventory: &Inventory,
    what: &str,
    vm: &Ref,
    broken: &mut Vec<Failure>,
) {
    let Some(vm) = inventory.vms.get(&vm.id) else {
        return;
    };
    if what == STAMPS {
        if !may_stamp(store, inventory, vm) {
            broken.push(touched(format!(
                "stamp: somebody {what} {}, which no record names at its place",
                vm.name
            )));
        }
        return;
    }
    if let Some(node) = &vm.node {
        broken.push(touched(format!(
            "node: somebody {what} the VM of node {node}"
        )));
        return;
    }
    let Some(marker) = marker(vm) else {
        broken.push(touched(format!(
            "foreign: somebody {what} {} ({})",
            vm.name, vm.object.id
        )));
        return;
    };
    let host = identity::swapped(&vm.uuid);
    let agent = agent_on(store, &vm.uuid);
    let child = store.get(&kind("vsphereagents"), &owner(&marker));
    if what == RELEASES {
        if !may_release(store, child.as_deref()) {
            broken.push(touched(format!(
                "released: somebody {what} {}, which no pool keeps",
                vm.name
            )));
        }
        return;
    }
    let astray = agent.is_some_and(booted_image);
    if what == RESETTING {
        let resets = vm.resets;
        if !astray || resets >= RESETS.allows {
            broken.push(touched(format!(
                "reset: somebody {what} {} after {resets} resets, and its Agent says that it booted the ISO: {astray}",
                vm.name
            )));
        }
        return;
    }
    if EJECTS.contains(&what) {
        if !astray && !may_eject(store, agent, child.as_deref()) {
            broken.push(touched(format!(
                "drive: somebody {what} {} although its pool does not want that, or it is not installed",
                vm.name
            )));
        }
        return;
    }
    // A request to switch on a VM that is on changes nothing.
    let nothing = what == "switches on" && vm.on;
    let again = what == "switches on" && may_switch_on(store, child.as_deref());
    let ordered = what == "reconfigures" && astray;
    if agent.is_some_and(serves) && !nothing && !again && !ordered {
        broken.push(touched(format!(
            "serving: somebody {what} {} whose Agent {host} serves",
            vm.name
        )));
    }
    if what == "renews" && vm.on {
        broken.push(touched(format!(
            "on: somebody {what} {}, which runs",
            vm.name
        )));
    }
    let leaves = child.is_some_and(|c| {
        let given_up = c["status"]["lastFailure"]["attempt"].as_u64();
        is_deleting(&c) || given_up == Some(u64::from(marker.attempt))
    });
    // The orphan scan may destroy a VM that never ran and that a restored vCenter shows by mistake.
    let ghost = inventory.drift.ghosts.contains(&vm.object.id) && vm.boots == 0;
    if what == "destroys" && !leaves && !ghost {
        broken.push(touched(format!(
            "wanted: somebody destroys {} whose VsphereAgent is neither being deleted nor given up",
            vm.name
        )));
    }
}

/// The last attempt that a VsphereAgent's status gives up.
fn given_up(child: &Value) -> Option<i64> {
    child["status"]["lastFailure"]["attempt"].as_i64()
}

/// Checks what must hold when nothing changes any more.
#[must_use]
pub fn at_rest(world: &World) -> Vec<Failure> {
    let mut broken = Vec::new();
    world.api.read(|store| {
        world.vcenter.read(|i| trespass(store, i, &mut broken));
        world.vcenter.read(|i| let_go(store, i, &mut broken));
        is_silent_on_others(store, &mut broken);
        for (plural, finalizer) in [
            ("vsphereagents", AGENT_FINALIZER),
            ("vsphereagentpools", POOL_FINALIZER),
        ] {
            for object in store.list(&kind(plural), "") {
                unexplained(plural, &object, &mut broken);
                if !is_held(&object, finalizer) {
                    let unheld = format!("{} of {plural} has no finalizer", name_of(&object).1);
                    broken.push(Oracle::NothingLeaks.broken(unheld));
                }
            }
        }
        // `no_secret_in_objects`: only the Secret itself contains the password.
        let secrets = kind("secrets");
        for (kind, objects) in &store.objects {
            for (name, object) in objects.iter().filter(|_| *kind != secrets) {
                if object.to_string().contains(PASSWORD) {
                    broken.push(Oracle::NoSecretInObjects.broken(format!(
                        "{} {}/{} contains the password",
                        kind.1, name.0, name.1
                    )));
                }
            }
        }
    });
    world.vcenter.read(|i| {
        let foreign = i.vms.get("vm-1").is_some_and(|vm| vm.on && vm.boots == 1);
        if !foreign {
            let changed = "foreign: the database VM is not as it was".to_owned();
            broken.push(touched(changed));
        }
        let strangers = world.strangers.iter();
        broken.extend(strangers.flat_map(|s| s.changed(i)));
    });
    broken
}

/// Checks `nothing_leaks` for files: no half-written file of a dead process is left.
#[must_use]
pub fn left_over(world: &World) -> Vec<Failure> {
    world.vcenter.read(|i| {
        let partial = i.files.keys().filter(|(_, p)| p.contains(".partial"));
        let told = partial
            .map(|(store, path)| format!("a half-written file is left over: [{store}] {path}"));
        told.map(|what| Oracle::NothingLeaks.broken(what)).collect()
    })
}

/// Status fields that must not change while the attempt is the same.
const KEPT: [&str; 12] = [
    "/status/clusterID",
    "/status/vm/biosUUID",
    "/status/vm/vmPath",
    "/status/vm/credentialsRef",
    "/status/vm/server",
    "/status/vm/placement/datastore",
    "/status/vm/instanceUUID",
    "/status/vm/macAddresses",
    "/status/vm/infraEnvRef",
    "/status/vm/firstPoweredOn",
    "/status/vm/served",
    "/status/vm/guestMayBeNode",
];

/// Whether a record may start again: its VM was never made, and the InfraEnv whose ISO it needed is gone.
fn begins_anew(store: &Store, before: &Value, now: &Value) -> bool {
    let source = before.pointer("/status/vm/infraEnvRef/uid");
    let there = store.list(&kind("infraenvs"), "");
    let is_gone = |uid: &Value| there.iter().all(|env| env["metadata"]["uid"] != *uid);
    let was_never_made = before.pointer("/status/vm/moref").is_none()
        && now.pointer("/status/vm/biosUUID").is_none();
    BEGUN_ANEW.lets(was_never_made && source.is_some_and(is_gone))
}

/// Whether a recorded value is still there. When somebody replaces a network card, the operator adds the new address
/// and keeps the old one.
fn keeps(field: &str, was: Option<&Value>, is: Option<&Value>) -> bool {
    if field == "/status/vm/macAddresses" {
        let [was, is] = [was, is].map(|all| all.map_or(&[][..], |all| list(all, "")));
        return was.iter().all(|mac| is.contains(mac));
    }
    was == is
}

/// Checks `records_are_kept`: what a status records of an attempt stays recorded, and attempts only increase.
#[must_use]
pub fn lost(world: &World) -> Vec<Failure> {
    let children = kind("vsphereagents");
    let mut broken = Vec::new();
    world.api.read(|store| {
        let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
        let mut disasters = store.disasters.iter().peekable();
        for entry in store.log.iter().filter(|e| e.kind == children) {
            // Objects from a backup are older than the objects that they replace.
            while disasters.next_if(|d| **d < entry.revision).is_some() {
                last.clear();
            }
            let now: &Value = &entry.object;
            let Some(before) = last.insert(text(now, "/metadata/uid"), now) else {
                continue;
            };
            let attempt = |o: &Value| o.pointer("/status/vm/attempt").and_then(Value::as_i64);
            let name = text(now, "/metadata/name");
            let life = |o: &Value| o.pointer("/status/vm/generation").and_then(Value::as_i64);
            match (attempt(before), attempt(now)) {
                // Another life of the same VM begins. What was before says nothing of it.
                (a, b) if a == b && life(now) > life(before) => continue,
                (Some(a), Some(b)) if b > a => continue,
                // The operator gave the attempt up. Its record ends before the next attempt begins.
                (Some(a), _) if given_up(now).is_some_and(|failed| failed >= a) => continue,
                // vCenter lost the VM, and the operator proved that it is absent. It may make the VM again.
                _ if world.director.lost() > 0 && now.pointer("/status/vm/biosUUID").is_none() => {
                    continue;
                }
                // The VM was not made yet and its InfraEnv is gone. The record starts again with the next InfraEnv.
                _ if begins_anew(store, before, now) => continue,
                (Some(a), b) if b != Some(a) => {
                    let other = format!("{name}: attempt {a} became {b:?}");
                    broken.push(Oracle::RecordsAreKept.broken(other));
                    continue;
                }
                _ => {}
            }
            for field in KEPT {
                let empty = Value::Array(Vec::new());
                let was = before.pointer(field).filter(|v| **v != empty);
                if was.is_some() && !keeps(field, was, now.pointer(field)) {
                    let is = now.pointer(field).unwrap_or(&Value::Null);
                    let other = format!("{name}: {field} {was:?} became {is}");
                    broken.push(Oracle::RecordsAreKept.broken(other));
                }
            }
        }
    });
    broken.dedup();
    broken.truncate(5);
    broken
}

/// Checks `nothing_leaks` for ISOs: a file in a pool's directory that no pool's status lists would never be removed.
/// The documentation describes what deleted pools leave behind.
#[must_use]
pub fn strays(world: &World) -> Vec<Failure> {
    // Two hubs share one directory. Each lists only its own files.
    if world.second.is_some() {
        return Vec::new();
    }
    let mut listed = BTreeSet::new();
    let mut directories = Vec::new();
    world.api.read(|store| {
        for pool in store.list(&kind("vsphereagentpools"), "") {
            let (namespace, name) = name_of(&pool);
            directories.push(format!("agent-forge/{namespace}/{name}/"));
            let places = list(&pool, "/status/iso/history").iter();
            let places = places.map(|h| (text(h, "/datastore"), text(h, "/path")));
            listed.extend(places.map(|(store, path)| (store.to_owned(), path.to_owned())));
        }
    });
    world.vcenter.read(|i| {
        let isos = i.files.keys().filter(|(_, p)| p.ends_with(".iso"));
        let unknown = isos.filter(|file| {
            let ours = directories.iter().any(|d| file.1.starts_with(d.as_str()));
            ours && !listed.contains(*file) && !world.relics.contains(*file)
        });
        unknown
            .map(|(store, path)| {
                Oracle::NothingLeaks.broken(format!("no status lists the ISO [{store}] {path}"))
            })
            .collect()
    })
}

/// Checks `problems_are_explained`: every condition that is not true has a reason and a message.
fn unexplained(plural: &str, object: &Value, broken: &mut Vec<Failure>) {
    let name = text(object, "/metadata/name");
    let conditions = list(object, "/status/conditions");
    if conditions.is_empty() {
        let bare = format!("{plural} {name} has no condition");
        broken.push(Oracle::ProblemsAreExplained.broken(bare));
    }
    for condition in conditions {
        let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
        let status = text(condition, "/status");
        if status != "True" && (reason.is_empty() || message.is_empty()) {
            broken.push(Oracle::ProblemsAreExplained.broken(format!(
                "{plural} {name}: {} is {status} without reason and message",
                text(condition, "/type")
            )));
        }
        if status == "Unknown" && reason != UNKNOWN.allows.as_str() {
            broken.push(Oracle::ProblemsAreExplained.broken(format!(
                "{plural} {name}: {} is Unknown ({reason})",
                text(condition, "/type")
            )));
        }
    }
}

/// The state for `same_final_state`, as people see it. It leaves out names, numbers and times that differ between runs.
#[must_use]
pub fn picture(world: &World) -> Vec<String> {
    let mut lines = Vec::new();
    world.api.read(|store| {
        for plural in ["vsphereagents", "vsphereagentpools", "agents"] {
            for object in store.list(&kind(plural), "") {
                let told = |c: &Value| {
                    let [type_, status, reason] = ["/type", "/status", "/reason"].map(|p| text(c, p));
                    format!("{type_}={status}({reason})")
                };
                let conditions = list(&object, "/status/conditions").iter();
                let mut conditions: Vec<String> = conditions.map(told).collect();
                conditions.sort();
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
                let mut labels: Vec<&str> = labels.into_iter().flat_map(|l| l.keys().map(String::as_str)).filter(|k| *k != "somebody").collect();
                labels.sort_unstable();
                lines.push(format!(
                    "{plural} pool={} phase={} reason={} power={} attempt={} approved={} role={} labels={labels:?} deleting={} {conditions:?}",
                    text(&object, "/spec/poolRef/name"),
                    text(&object, "/status/vm/phase"),
                    text(&object, "/status/vm/reason"),
                    text(&object, "/status/vm/powerState"),
                    object.pointer("/status/vm/attempt").unwrap_or(&Value::Null),
                    object.pointer("/spec/approved").unwrap_or(&Value::Null),
                    text(&object, "/spec/role"),
                    is_deleting(&object),
                ));
            }
        }
    });
    let configs = world.api.list(&kind("agentforgeinstallerconfigs"), "");
    lines.extend(configs.iter().map(|config| {
        let conditions = list(config, "/status/conditions").iter();
        let told = conditions.map(|c| ["type", "status", "reason"].map(|key| &c[key]));
        let told: Vec<_> = told.collect();
        let (ready, deleting) = (&config["status"]["ready"], is_deleting(config));
        format!("installer config ready={ready} deleting={deleting} {told:?}")
    }));
    world.vcenter.read(|i| {
        for vm in i.vms.values() {
            let tags = i.tags.get(&vm.object.id).map_or(0, BTreeSet::len);
            let folder = i.path(&vm.folder);
            lines.push(format!(
                "vm marked={} {} boot={} discs={} tags={tags} folder={folder}",
                if released(vm).is_some() {
                    "released".to_owned()
                } else {
                    marker(vm).is_some().to_string()
                },
                vm.power(),
                vm.boot_order.len(),
                vm.discs()
            ));
        }
        // [`strays`] checks how many ISOs there are. A repeated download may have other bytes, and then another name.
        let isos = i.files.keys().any(|(_, p)| p.ends_with(".iso"));
        let configs = i.files.keys().filter(|(_, p)| p.ends_with(".vmx")).count();
        lines.push(format!("files isos={isos} vmx={configs}"));
    });
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{
        agent::{Placement, VmStatus, VsphereAgentStatus},
        pool::CredentialsSecretRef,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        kube::store::tests::{now, store},
        vcenter::model::furnished,
    };

    #[test]
    fn of_strangers_only_the_status_of_our_kinds_may_be_written() {
        let mut store = Store::default();
        let name = ("tenant".to_owned(), "w".to_owned());
        let (pools, agents) = (kind("vsphereagentpools"), kind("agents"));
        for kind in [&pools, &agents] {
            assert!(!is_foreign(&store, kind, &name, false));
            store.foreign.insert((kind.clone(), name.clone()));
            assert!(is_foreign(&store, kind, &name, false));
        }
        assert!(!is_foreign(&store, &pools, &name, true));
        assert!(is_foreign(&store, &agents, &name, true));
    }

    #[test]
    fn what_has_to_stay_recorded_is_called_as_the_status_calls_it() {
        let text = || Some("x".to_owned());
        let vm = VmStatus {
            bios_uuid: text(),
            vm_path: text(),
            credentials_ref: Some(CredentialsSecretRef::default()),
            server: text(),
            instance_uuid: text(),
            mac_addresses: vec!["x".to_owned()],
            infra_env_ref: Some(Default::default()),
            served: Some(true),
            guest_may_be_node: Some(true),
            first_powered_on: Some(agent_forge_crds::Time(jiff::Timestamp::UNIX_EPOCH)),
            placement: Some(Placement {
                datastore: text(),
                ..Placement::default()
            }),
            ..VmStatus::default()
        };
        let status = VsphereAgentStatus {
            cluster_id: text(),
            vm: Some(vm),
            ..VsphereAgentStatus::default()
        };
        let object = json!({ "status": status });
        for field in KEPT {
            assert!(object.pointer(field).is_some(), "{field}");
        }
    }

    #[test]
    fn two_vsphere_agents_for_one_agent_machine_have_no_two_vms() {
        let ((mut store, ..), mut inventory) = (store(), furnished("u", "p"));
        store.serve("vsphereagents");
        for (n, (name, wanted_by)) in [("a", "x"), ("b", "y"), ("c", "x")].into_iter().enumerate() {
            let made = json!({"metadata": {"name": name, "finalizers": [AGENT_FINALIZER],
                "annotations": {AGENT_MACHINE_UID_ANNOTATION: wanted_by}}});
            let made = store.create(&kind("vsphereagents"), "n", made, now());
            let made = made.expect("it is new");
            let marker = Marker {
                cluster_id: "c".to_owned(),
                namespace: "n".to_owned(),
                name: name.to_owned(),
                uid: text(&made, "/metadata/uid").to_owned(),
                attempt: 1,
            };
            let id = format!("vm-{name}");
            let vm = Vm {
                object: Ref::new("VirtualMachine", &id),
                extra: BTreeMap::from([(MARKER_KEY.to_owned(), marker.to_string())]),
                ..inventory.vms["vm-1"].clone()
            };
            inventory.vms.insert(id, vm);
            let mut broken = Vec::new();
            one_each(&store, &inventory, &mut broken);
            assert_eq!(broken.len(), usize::from(n == 2), "{broken:?}");
        }
    }
}
