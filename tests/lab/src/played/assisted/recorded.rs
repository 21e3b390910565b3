//! The played service beside what the real one showed: each step from one picture of an Agent to the next is one that was
//! recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    super::options::Delays,
    agents::{cleans_before_it_tries_again, is_new_verdict, must_clean, refuse, status},
    host::{Host, HostFacts, NextBoot},
    lifecycle::{self, Answer},
};
use crate::tools::shared_or_skipped;

/// What the operator reads in an Agent's status: the state, the conditions with their reasons, and whether the host leaves a
/// cluster. The approval changes `RequirementsMet`, so that is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Picture {
    state: String,
    conditions: Vec<String>,
    leaves: bool,
}

const CONDITIONS: [&str; 5] = ["Bound", "Validated", "SpecSynced", "Connected", "Installed"];

impl Picture {
    fn new(state: &str, condition: impl Fn(&str) -> String, leaves: bool) -> Self {
        Self {
            state: state.to_owned(),
            conditions: CONDITIONS.iter().map(|kind| condition(kind)).collect(),
            leaves,
        }
    }

    /// Whether the service could not apply the spec, and says so for a moment.
    fn flickers(&self) -> bool {
        self.conditions[2].starts_with("False")
    }
}

/// Adds a picture, unless it is the last one.
fn add(pictures: &mut Vec<Picture>, picture: Picture) {
    if pictures.last() != Some(&picture) {
        pictures.push(picture);
    }
}

/// The text of each recording by its name; `None`, after a message on stderr, if there are none.
fn recordings() -> Option<BTreeMap<String, String>> {
    let directory = shared_or_skipped("recordings/assisted-service")?;
    let files = fs::read_dir(directory).unwrap_or_else(|error| panic!("{error}"));
    let mut texts = BTreeMap::new();
    for file in files {
        let path = file.unwrap_or_else(|error| panic!("{error}")).path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
        texts.insert(name.into_owned(), text);
    }
    Some(texts)
}

/// The pictures of each Agent of a recording.
fn pictures(text: &str) -> Vec<Vec<Picture>> {
    let mut hosts: Map<String, Value> = Map::new();
    let mut pictures: Vec<Vec<Picture>> = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}"));
        let state = line["state"].as_str().unwrap_or_default();
        if state.is_empty() || line["gone"] == true {
            continue;
        }
        let agent = line["agent"].as_str().unwrap_or_default().to_owned();
        let count = hosts.len();
        let at = hosts.entry(agent).or_insert_with(|| json!(count));
        let at = at.as_u64().and_then(|at| usize::try_from(at).ok());
        let at = at.unwrap_or_else(|| panic!("a number"));
        if at == pictures.len() {
            pictures.push(Vec::new());
        }
        let condition = |kind: &str| {
            line["conditions"][kind]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let leaves = !line["deprovision"].is_null();
        add(&mut pictures[at], Picture::new(state, condition, leaves));
    }
    pictures
}

/// Each step from one picture to the next. Where the service flickers, the way without that counts too.
fn steps(all: &[Vec<Picture>]) -> BTreeSet<(Picture, Picture)> {
    let mut steps = BTreeSet::new();
    for pictures in all {
        let mut calm = Vec::new();
        for (at, picture) in pictures.iter().enumerate() {
            let next = pictures.get(at + 1);
            let passes = picture.flickers()
                && next.is_some_and(|next| next.state == picture.state && !next.flickers());
            if !passes {
                add(&mut calm, picture.clone());
            }
        }
        for way in [pictures, &calm] {
            steps.extend(
                way.windows(2)
                    .map(|pair| (pair[0].clone(), pair[1].clone())),
            );
        }
    }
    steps
}

/// A host of the played service, and what its Agent showed.
struct Run {
    host: Host,
    agent: kube::core::DynamicObject,
    now: Instant,
    delays: Delays,
    conflicts: bool,
    pictures: Vec<Picture>,
    /// A state that the real service passed too fast to show.
    unseen: Option<&'static str>,
}

impl Run {
    fn new() -> Self {
        let now = Instant::now();
        let agent = json!({"metadata": {"name": "a"}, "status": {}});
        let mut run = Self {
            host: Host::new("env", HostFacts::bare_metal(1), now),
            agent: serde_json::from_value(agent).unwrap_or_else(|error| panic!("{error}")),
            now,
            delays: Delays::default(),
            conflicts: false,
            pictures: Vec::new(),
            unseen: None,
        };
        run.host.next_boot = NextBoot::Disk;
        run.show();
        run
    }

    fn write(&mut self, part: &Value) {
        let whole = self.agent.data["status"].as_object_mut();
        let whole = whole.unwrap_or_else(|| panic!("a status"));
        for (key, value) in part.as_object().into_iter().flatten() {
            whole.insert(key.clone(), value.clone());
        }
        let shown = &self.agent.data["status"];
        let condition = |kind: &str| {
            let list = shown["conditions"].as_array().into_iter().flatten();
            let mut of_kind = list.filter(|c| c["type"] == kind);
            let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
            let found = of_kind
                .next()
                .unwrap_or_else(|| panic!("no condition {kind}"));
            format!("{} {}", text(found, "status"), text(found, "reason"))
        };
        let state = shown["debugInfo"]["state"].as_str().unwrap_or_default();
        let picture = Picture::new(state, condition, !shown["deprovision_info"].is_null());
        add(&mut self.pictures, picture);
    }

    /// Writes what the service writes in one pass.
    fn show(&mut self) {
        if must_clean(&self.host, &self.agent) {
            self.write(&json!({"deprovision_info": null}));
        }
        let mut wanted = status(&self.agent, &self.host);
        if self.conflicts && is_new_verdict(&self.agent, &self.host) {
            refuse(&mut wanted);
            self.write(&wanted);
            wanted = status(&self.agent, &self.host);
        }
        self.write(&wanted);
    }

    /// Lets time pass until the host is in that state, or in the stage of that number.
    fn until(&mut self, wanted: impl Fn(&Host) -> bool) {
        let end = self.now + Duration::from_secs(3600);
        while !wanted(&self.host) {
            let due = lifecycle::advance(&mut self.host, &self.delays, self.now);
            self.show();
            if wanted(&self.host) {
                return;
            }
            self.now = due.unwrap_or_else(|| panic!("stuck in {}", self.host.state.name()));
            assert!(self.now < end, "{} after an hour", self.host.state.name());
        }
    }

    fn until_state(&mut self, state: &str) {
        self.until(|host| host.state.name() == state);
    }

    fn binds(&mut self) {
        self.host.approved = true;
        let bound = lifecycle::bind(&mut self.host, ("a".into(), "b".into()), self.now);
        bound.unwrap_or_else(|error| panic!("{error}"));
        self.show();
    }

    /// The service tries to unbind, and remembers why it could not.
    fn unbinds(&mut self) {
        if cleans_before_it_tries_again(&self.host, &self.agent) {
            self.write(&json!({"deprovision_info": null}));
        }
        let outcome = lifecycle::unbind(&mut self.host, self.now);
        self.host.refused = outcome.err();
        self.show();
    }

    fn is_freed(&mut self) {
        self.unbinds();
        self.until_state("known-unbound");
    }

    fn is_discovered_again(&mut self) {
        self.boots_again();
        self.until_state("known-unbound");
    }

    /// The machine is switched off and starts discovery again.
    fn boots_again(&mut self) {
        self.host.set_agent(false, self.now);
        let answer = lifecycle::register(&mut self.host, self.now);
        assert_eq!(answer, Answer::Accepted);
        self.show();
    }

    /// Asserts that the real service showed each step, and that this host showed each state of the recording of `name`, and
    /// beside them only the one in `unseen`. If `states` has some, only those are asked for.
    fn is_like(&self, name: &str, states: &[&str]) {
        let Some(texts) = recordings() else {
            return;
        };
        let mut known = BTreeSet::new();
        for text in texts.values() {
            known.extend(steps(&pictures(text)));
        }
        let all = pictures(&texts[name]);
        for pair in self.pictures.windows(2) {
            let step = (pair[0].clone(), pair[1].clone());
            let from: Vec<_> = known
                .iter()
                .filter(|k| k.0 == step.0)
                .map(|k| &k.1)
                .collect();
            assert!(
                known.contains(&step),
                "{name}: never recorded: {:#?}\nthen {:#?}\nbut {from:#?}",
                step.0,
                step.1
            );
        }
        let shown: BTreeSet<&str> = self.pictures.iter().map(|p| p.state.as_str()).collect();
        let wanted = all.iter().flatten().map(|p| p.state.as_str());
        let wanted: BTreeSet<&str> = wanted
            .filter(|s| states.is_empty() || states.contains(s))
            .collect();
        let wanted: BTreeSet<&str> = wanted.into_iter().chain(self.unseen).collect();
        assert_eq!(shown, wanted, "{name}: the states");
    }
}

fn discovered() -> Run {
    let mut run = Run::new();
    run.until_state("known-unbound");
    run
}

fn bound() -> Run {
    let mut run = discovered();
    run.binds();
    run
}

fn installed() -> Run {
    let mut run = bound();
    run.until_state("added-to-existing-cluster");
    run
}

fn freed() -> Run {
    let mut run = installed();
    run.is_freed();
    run
}

#[test]
fn a_host_is_installed_as_recorded() {
    for conflicts in [false, true] {
        let mut run = Run::new();
        run.conflicts = conflicts;
        run.until_state("known-unbound");
        run.binds();
        run.until_state("added-to-existing-cluster");
        run.is_like("scale-up", &[]);
        // While the service is away nothing is written.
        run.is_like("service-restarted", &[]);
    }
}

#[test]
fn a_host_is_freed_as_recorded() {
    freed().is_like("scale-down", &[]);
}

#[test]
fn a_freed_host_is_installed_again_as_recorded() {
    let mut run = freed();
    run.is_discovered_again();
    run.binds();
    run.until_state("added-to-existing-cluster");
    run.is_like("recycle", &[]);
}

#[test]
fn a_freed_host_whose_guest_dies_unheard_is_like_the_recorded_one() {
    let mut run = freed();
    // Its guest died while nobody listened.
    run.host.set_agent(false, run.now);
    run.until_state("disconnected-unbound");
    run.is_like("recycle-service-away", &[]);
}

#[test]
fn a_host_that_a_stranger_claims_is_like_the_recorded_one() {
    let mut run = freed();
    run.is_discovered_again();
    run.is_like("stranger-claims", &[]);
}

#[test]
fn a_host_that_boots_its_image_again_is_like_the_recorded_one() {
    let mut run = Run::new();
    run.host.next_boot = NextBoot::Image;
    run.unseen = Some("discovering");
    run.until_state("known-unbound");
    run.binds();
    run.until_state("installing-pending-user-action");
    lifecycle::boot_disk(&mut run.host, run.now);
    run.until_state("added-to-existing-cluster");
    run.is_like("boots-the-iso-again", &[]);
}

#[test]
fn a_host_that_is_cut_off_before_its_install_is_like_the_recorded_one() {
    let mut run = bound();
    run.until_state("insufficient");
    run.is_freed();
    run.is_discovered_again();
    run.is_like("cut-insufficient", &[]);
}

#[test]
fn a_host_that_is_cut_off_after_it_joined_is_like_the_recorded_one() {
    let mut run = bound();
    run.until(|host| host.stage > 0 && lifecycle::STAGES[host.stage - 1] == "Joined");
    // The first try takes the Node away, the second one unbinds the host.
    run.unbinds();
    run.unbinds();
    run.is_like("cut-joined", &[]);
}

#[test]
fn a_silent_guest_is_like_the_recorded_one() {
    let mut run = discovered();
    run.host.set_agent(false, run.now);
    run.until_state("disconnected-unbound");
    let own = [
        "discovering-unbound",
        "known-unbound",
        "disconnected-unbound",
    ];
    run.is_like("silent-guest", &own);
}

#[test]
fn a_host_that_is_cut_off_while_it_writes_is_like_the_recorded_one() {
    let mut run = bound();
    run.until(|host| host.stage == 2);
    run.is_freed();
    run.is_discovered_again();
    run.is_like("cut-while-writing", &[]);
}

#[test]
fn a_host_that_is_bound_when_it_is_dead_is_like_the_recorded_one() {
    let mut run = discovered();
    run.host.set_agent(false, run.now);
    run.binds();
    for _ in 0..3 {
        run.now += Duration::from_secs(60);
        lifecycle::advance(&mut run.host, &run.delays, run.now);
        run.unbinds();
    }
    let own = ["discovering-unbound", "known-unbound", "binding"];
    run.is_like("dead-in-binding", &own);
    // The other way out: the guest registers again.
    run.boots_again();
    run.until_state("discovering");
    run.is_freed();
}
