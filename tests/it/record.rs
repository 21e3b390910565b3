//! What happened to the Machines and AgentMachines of a control plane: the fields that agent-forge reads, in the order
//! of the API server's own revisions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use agent_forge_lab::played::{mirror::Object, object::Facts as _, task::Task};
use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use kube::{
    Api,
    core::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};

/// One state of an object. `gone` is its last state, at the revision of its end.
#[derive(Clone, Debug)]
struct Entry {
    revision: u64,
    kind: &'static str,
    gone: bool,
    object: Object,
}

/// Records every state of some objects until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    seen: Arc<Mutex<Vec<Entry>>>,
    _watches: Vec<Task>,
}

impl Recorder {
    /// Begins with the objects of `apis`, which must be empty.
    pub fn start(apis: [(&'static str, Api<DynamicObject>); 2]) -> Self {
        let seen: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let watches = apis.map(|(kind, api)| Task::spawn(follow(kind, api, seen.clone())));
        Self {
            seen,
            _watches: watches.into(),
        }
    }

    /// The history so far.
    pub fn history(&self) -> Result<History> {
        let mut all = self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        all.sort_by_key(|e| e.revision);
        History::of(&all)
    }
}

async fn follow(kind: &'static str, api: Api<DynamicObject>, into: Arc<Mutex<Vec<Entry>>>) {
    let mut events = Box::pin(watcher(api, watcher::Config::default()));
    loop {
        let (object, gone) = match events.try_next().await {
            Ok(Some(Event::Apply(object) | Event::InitApply(object))) => (object, false),
            Ok(Some(Event::Delete(object))) => (object, true),
            Ok(Some(Event::Init | Event::InitDone)) => continue,
            Ok(None) => return,
            // A broken watch would leave states out. What is missing fails the comparison.
            Err(error) => {
                tracing::warn!(kind, %error, "the watch of the recorder broke");
                continue;
            }
        };
        let revision = object.metadata.resource_version.as_deref();
        let entry = Entry {
            revision: revision.and_then(|r| r.parse().ok()).unwrap_or_default(),
            kind,
            gone,
            object: Arc::new(object),
        };
        into.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry);
    }
}

/// What happened, in words that do not depend on random names: `<kind> <field> = <value>`. The first list has the steps
/// of all Machines by their sets. The others have those of each Machine and its AgentMachine, by the Machine's part in
/// the play. Each step has its place in the whole history.
#[derive(Debug, Default)]
pub struct History(BTreeMap<String, Vec<String>>);

/// Steps that come in any case, but at no certain place: two controllers write at the same time, or one writes in two
/// requests instead of one.
const AT_ANY_PLACE: [&str; 3] = [
    "AgentMachine AgentReserved = NoSuitableAgents",
    "Machine Deleting = NotDeleting",
    "Machine phase = Pending",
];

/// Steps that only show how fast somebody was. A Machine is `Provisioned` if its Node comes later than its provider ID.
/// `DrainingNode` and the two after it show if that takes longer than a pass. The agent provider removes its finalizer
/// just when Cluster API deletes the AgentMachine. Cluster API waits for the AgentMachine unless it is already gone. A
/// Machine whose AgentMachine is gone may end in the pass that finds its deletion, before a write of its phase.
const BY_CHANCE: [&str; 8] = [
    "Machine phase = Provisioned",
    "Machine phase = Deleting",
    "Machine Deleting = DrainingNode",
    "Machine Deleting = WaitingForVolumeDetach",
    "Machine Deleting = DeletingNode",
    "Machine Deleting = WaitingForInfrastructureDeletion",
    "AgentMachine deletionTimestamp = set",
    "AgentMachine finalizer agentmachine.agent-install.openshift.io/deprovision is gone",
];

/// Steps whose order counts among all Machines: when they come, serve and go.
const AMONG_ALL: [&str; 4] = [
    "Machine exists = yes",
    "Machine phase = Running",
    "Machine deletionTimestamp = set",
    "Machine exists = no",
];

impl History {
    fn of(entries: &[Entry]) -> Result<Self> {
        let names = Names::of(entries)?;
        let mut fields: BTreeMap<(&str, &str), BTreeMap<String, String>> = BTreeMap::new();
        let mut history = Self::default();
        for entry in entries {
            let name = entry.object.name();
            let before = fields.entry((entry.kind, name)).or_default();
            let after = match entry.gone {
                true => BTreeMap::from([("exists".to_owned(), "no".to_owned())]),
                false => project(entry, &names),
            };
            let changed = after
                .iter()
                .filter(|(field, value)| before.get(*field) != Some(value))
                .map(|(field, value)| format!("{} {field} = {value}", entry.kind));
            let lost = before
                .keys()
                .filter(|field| !entry.gone && !after.contains_key(*field))
                .map(|field| format!("{} {field} is gone", entry.kind));
            for step in changed.chain(lost) {
                history.add(names.plain(name), step);
            }
            *before = after;
        }
        Ok(history)
    }

    fn add(&mut self, part: String, step: String) {
        let mut put = |list: String, step| self.0.entry(list).or_default().push(step);
        if AMONG_ALL.contains(&step.as_str()) {
            let set = part.rsplit_once('.').map_or("?", |(set, _)| set);
            put("all".to_owned(), format!("{set} {step}"));
        }
        if AT_ANY_PLACE.contains(&step.as_str()) {
            put(format!("{part}, at any place"), step);
        } else if !BY_CHANCE.contains(&step.as_str()) {
            put(part, step);
        }
    }

    /// Text for people, one line for each step. Equal histories have equal texts.
    pub fn told(mut self) -> String {
        let mut lines = Vec::new();
        for (part, steps) in &mut self.0 {
            if part.ends_with("at any place") {
                steps.sort();
            }
            lines.extend(steps.iter().map(|step| format!("{part}: {step}")));
        }
        lines.join("\n")
    }
}

/// Words for names that are random.
struct Names(Vec<(String, String)>);

impl Names {
    /// A Machine's part in the play is `set-<number of its set>.<its place>`: its place in the order in which the
    /// Machines of that set end. One that stays is the last.
    fn of(entries: &[Entry]) -> Result<Self> {
        let mut sets: Vec<(&str, &str)> = Vec::new();
        let mut ends: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for entry in entries.iter().filter(|e| e.kind == "Machine") {
            let set = entry.object.label("cluster.x-k8s.io/set-name");
            let set = set.context("a Machine with the name of its set")?;
            let hash = entry.object.label("machine-template-hash");
            let number = sets.iter().position(|(s, _)| *s == set).unwrap_or_else(|| {
                sets.push((set, hash.unwrap_or("no hash")));
                sets.len() - 1
            });
            let end = match entry.gone {
                true => entry.revision,
                false => u64::MAX,
            };
            ends.insert(entry.object.name(), (number, end));
        }
        let mut order: Vec<_> = ends
            .into_iter()
            .map(|(name, place)| (place, name))
            .collect();
        order.sort_unstable();
        let mut names: Vec<(String, String)> = Vec::new();
        for number in 0..sets.len() {
            let of_set = order.iter().filter(|(place, _)| place.0 == number);
            for (place, (_, name)) in of_set.enumerate() {
                names.push(((*name).to_owned(), format!("set-{number}.{place}")));
            }
        }
        // The name of a Machine begins with that of its set, so sets come later.
        for (number, (set, hash)) in sets.iter().enumerate() {
            names.push(((*set).to_owned(), format!("set-{number}")));
            names.push(((*hash).to_owned(), format!("hash-{number}")));
        }
        Ok(Self(names))
    }

    fn plain(&self, text: &str) -> String {
        let replace = |text: String, (name, part): &(String, String)| text.replace(name, part);
        self.0.iter().fold(text.to_owned(), replace)
    }
}

/// The fields of an object that agent-forge or the agent provider reads.
fn project(entry: &Entry, names: &Names) -> BTreeMap<String, String> {
    let object = &entry.object;
    let meta = &object.metadata;
    let mut fields = BTreeMap::from([("exists".to_owned(), "yes".to_owned())]);
    let mut put = |field: &str, value: &str| {
        fields.insert(names.plain(field), names.plain(value));
    };
    for (kind, map) in [("label", &meta.labels), ("annotation", &meta.annotations)] {
        for (key, value) in map.iter().flatten() {
            put(&format!("{kind} {key}"), value);
        }
    }
    for finalizer in meta.finalizers.iter().flatten() {
        put(&format!("finalizer {finalizer}"), "set");
    }
    let owners: Vec<String> = meta.owner_references.iter().flatten().map(owner).collect();
    put("owners", &owners.join(", "));
    if object.is_deleting() {
        put("deletionTimestamp", "set");
    }
    for pointer in ["/spec/providerID", "/status/agentRef/name"] {
        if object.at(pointer).is_some() {
            put(pointer, "set");
        }
    }
    if object.flag("/status/ready") {
        put("/status/ready", "true");
    }
    match object.text("/status/phase") {
        "" => {}
        phase => put("phase", phase),
    }
    if let Some(reserved) = object.condition("AgentReserved") {
        put("AgentReserved", reserved.reason);
    }
    if let Some(deleting) = object.condition("Deleting") {
        put("Deleting", deleting.reason);
    }
    fields
}

fn owner(owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference) -> String {
    let controller = if owner.controller == Some(true) {
        " controller"
    } else {
        ""
    };
    let blocks = if owner.block_owner_deletion == Some(true) {
        " blocking"
    } else {
        ""
    };
    format!(
        "{} {} {}{controller}{blocks}",
        owner.api_version, owner.kind, owner.name
    )
}
