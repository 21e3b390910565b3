//! What people write to hold the operator back: pauses, vetoes, and marks on a VM in vCenter. Pure.
//!
//! Our own annotations count only with the value `true`. The pause annotation of Cluster API counts with any value.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agent_forge_crds::{
    agent::VmStatus,
    names::{
        DELETE_CHECK_PREFIX, PAUSED_ANNOTATION, POWER_ON_CHECK_PREFIX, SKIP_DELETE_ANNOTATION,
    },
};
use jiff::Timestamp;

use super::text;

/// `extraConfig` key of a VM with which an administrator of vCenter pauses all work on it.
pub const PAUSE_KEY: &str = "agent-forge.pause";
/// `extraConfig` key of a VM with which an administrator of vCenter keeps it when its VsphereAgent goes.
pub const SKIP_DELETE_KEY: &str = "agent-forge.skip-delete";

/// `extraConfig` key of a VM with which an administrator of vCenter gives a VM that the operator did not make to a pool. The value
/// is `<identity of the cluster>/<namespace>/<pool>`, so that another hub with a pool of that name gets nothing. The operator never
/// writes it.
pub const ADOPT_KEY: &str = "agent-forge.adopt";

/// What an administrator of vCenter has marked a VM with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VmMarks {
    /// [`PAUSE_KEY`] is set.
    pub paused: bool,
    /// [`SKIP_DELETE_KEY`] is set.
    pub skip_delete: bool,
}

impl VmMarks {
    /// The marks on record.
    #[must_use]
    pub fn recorded(vm: &VmStatus) -> Self {
        Self {
            paused: vm.paused_in_vcenter == Some(true),
            skip_delete: vm.skip_delete_in_vcenter == Some(true),
        }
    }

    /// Puts them on record.
    pub fn record(self, vm: &mut VmStatus) {
        vm.paused_in_vcenter = self.paused.then_some(true);
        vm.skip_delete_in_vcenter = self.skip_delete.then_some(true);
    }

    /// Reads the values of both keys.
    #[must_use]
    pub fn read(pause: Option<&str>, skip_delete: Option<&str>) -> Self {
        Self {
            paused: pause.is_some_and(is_truthy),
            skip_delete: skip_delete.is_some_and(is_truthy),
        }
    }
}

/// Whether a value in vCenter means "yes", in the words that VM Operator accepts.
fn is_truthy(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    ["1", "on", "t", "true", "y", "yes"].contains(&value.as_str())
}

/// Annotations of an object.
pub type Annotations = BTreeMap<String, String>;

fn is_set(annotations: &Annotations, key: &str) -> bool {
    annotations.get(key).is_some_and(|value| value == "true")
}

/// Whether our own pause annotation holds.
#[must_use]
pub fn is_paused(annotations: &Annotations) -> bool {
    is_set(annotations, PAUSED_ANNOTATION)
}

/// Whether the VM stays when this VsphereAgent goes.
#[must_use]
pub fn skips_delete(annotations: &Annotations) -> bool {
    is_set(annotations, SKIP_DELETE_ANNOTATION)
}

/// A pause that somebody has asked for. It may be over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Where it is written, e.g. `spec.paused of Cluster demo-demo/demo`.
    pub source: String,
    /// When it ends; `None`: when somebody ends it.
    pub until: Option<Timestamp>,
    /// It is a mark in vCenter: `force-delete` does not override it.
    pub in_vcenter: bool,
}

impl Pause {
    /// A pause that holds until somebody ends it.
    #[must_use]
    pub fn by(source: String) -> Self {
        Self {
            source,
            until: None,
            in_vcenter: false,
        }
    }

    fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// Which change a veto forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The removal of the VM.
    Delete,
    /// Switching the VM on.
    PowerOn,
}

/// Somebody forbids a change until the annotation is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veto {
    /// What it forbids.
    pub check: Check,
    /// Who: the part of the annotation's name after the slash.
    pub holder: String,
    /// Why: the value of the annotation.
    pub why: String,
    /// The object with the annotation, e.g. `VsphereAgentPool demo/w`.
    pub object: String,
}

impl Veto {
    /// The vetoes on an object that people call `object`, in the order of their names.
    pub fn read<'a>(
        annotations: &'a Annotations,
        object: &'a str,
    ) -> impl Iterator<Item = Self> + 'a {
        annotations.iter().filter_map(move |(key, why)| {
            let delete = key.strip_prefix(DELETE_CHECK_PREFIX);
            let delete = delete.map(|holder| (Check::Delete, holder));
            let power_on = || key.strip_prefix(POWER_ON_CHECK_PREFIX);
            let (check, holder) =
                delete.or_else(|| power_on().map(|holder| (Check::PowerOn, holder)))?;
            Some(Self {
                check,
                holder: holder.to_owned(),
                why: text::plain(why),
                object: object.to_owned(),
            })
        })
    }
}

impl std::fmt::Display for Veto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let forbids = match self.check {
            Check::Delete => "deletion",
            Check::PowerOn => "power-on",
        };
        write!(
            f,
            "{} on {} forbids {forbids}: {}",
            self.holder, self.object, self.why
        )
    }
}

/// How the operator runs as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It acts.
    #[default]
    Earnest,
    /// `--dry-run`: it writes only status and Events.
    DryRun,
    /// `--dry-run` while the predecessor acts: it writes neither, and its log has the plan.
    Silent,
}

/// A dry run: everything is planned, and nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// Who asked for it, e.g. `--dry-run`.
    pub source: String,
    /// Status and Events are not written either.
    pub silent: bool,
}

/// Everything that people have written to hold back the work on one pool or VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The dry run, if there is one.
    pub dry_run: Option<DryRun>,
    /// Pauses of the object and of everything that it belongs to. Some may be over.
    pub pauses: Vec<Pause>,
    /// Vetoes.
    pub vetoes: Vec<Veto>,
    /// Values that mean nothing, in sentences. They pause nothing.
    pub invalid: Vec<String>,
    /// The VsphereAgent is being deleted with `force-delete`.
    pub forced: bool,
    /// The caches may mix two histories of the API server.
    pub in_doubt: bool,
    /// Why a part of a namespace that it depends on is unknown, in sentences.
    pub over_bound: BTreeSet<String>,
}

impl Holds {
    /// What the caches show may be of two histories, or not all of it: nothing counts as absent.
    #[must_use]
    pub fn is_unclear(&self) -> bool {
        self.in_doubt || !self.over_bound.is_empty()
    }

    /// The pause that holds longest at `now`, if any holds.
    #[must_use]
    pub fn pause(&self, now: Timestamp) -> Option<&Pause> {
        let counts = |pause: &&Pause| pause.holds(now) && (pause.in_vcenter || !self.forced);
        let longest = |pause: &&Pause| pause.until.unwrap_or(Timestamp::MAX);
        // The first of several that hold equally long.
        self.pauses.iter().rev().filter(counts).max_by_key(longest)
    }

    /// The vetoes against that change.
    pub fn vetoes(&self, check: Check) -> impl Iterator<Item = &Veto> {
        self.vetoes.iter().filter(move |veto| veto.check == check)
    }

    /// Nothing is written, not even a status.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.dry_run.as_ref().is_some_and(|run| run.silent)
    }

    /// How long until the pause ends by itself. `None`: there is none, or only a person ends it.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let until = self.pause(now)?.until?;
        Duration::try_from(until.duration_since(now)).ok()
    }

    /// Adds what a `spec.pausedUntil` of HyperShift says: a boolean, or a time in RFC 3339. `object`: its kind and name.
    pub fn add_paused_until(&mut self, text: &str, object: &str) {
        let source = format!("spec.pausedUntil of {object}");
        match paused_until(text) {
            Ok(PausedUntil::Never) => {}
            Ok(PausedUntil::Removed) => self.pauses.push(Pause::by(source)),
            Ok(PausedUntil::Time(until)) => self.pauses.push(Pause {
                until: Some(until),
                ..Pause::by(source)
            }),
            Err(Invalid) => self.invalid.push(format!(
                "{source} is {text:?}, which is neither a boolean nor a time in RFC 3339: it pauses nothing"
            )),
        }
    }
}

/// What a valid `spec.pausedUntil` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PausedUntil {
    Never,
    Removed,
    Time(Timestamp),
}

/// The value is neither a boolean nor a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Invalid;

/// Reads it as HyperShift does, which accepts Go's words for booleans.
fn paused_until(text: &str) -> Result<PausedUntil, Invalid> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => return Ok(PausedUntil::Removed),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => return Ok(PausedUntil::Never),
        _ => {}
    }
    // The parser also accepts other forms of ISO 8601, which HyperShift refuses.
    let at = |n: usize| text.as_bytes().get(n).copied();
    let is_rfc3339 = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
        .into_iter()
        .all(|(n, sign)| at(n) == Some(sign));
    let time = text
        .parse()
        .ok()
        .filter(|_| is_rfc3339 && !text.contains('['));
    time.map(PausedUntil::Time).ok_or(Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn paused_until_is_read_as_hypershift_reads_it() {
        let noon = PausedUntil::Time(time("2026-01-01T12:00:00Z"));
        for (text, meant) in [
            ("true", Ok(PausedUntil::Removed)),
            ("1", Ok(PausedUntil::Removed)),
            ("False", Ok(PausedUntil::Never)),
            ("2026-01-01T12:00:00Z", Ok(noon)),
            ("2026-01-01T14:00:00+02:00", Ok(noon)),
            ("2026-01-01T12:00:00.0Z", Ok(noon)),
            ("", Err(Invalid)),
            ("yes", Err(Invalid)),
            ("tRUE", Err(Invalid)),
            ("2026-01-01", Err(Invalid)),
            ("2026-01-01 12:00:00Z", Err(Invalid)),
            ("2026-01-01T12:00Z", Err(Invalid)),
            ("2026-01-01T12:00:00", Err(Invalid)),
            ("2026-01-01T12:00:00+00:00[UTC]", Err(Invalid)),
        ] {
            assert_eq!(paused_until(text), meant, "{text:?}");
        }
    }

    #[test]
    fn ours_count_only_with_true_and_vcenter_has_several_words() {
        for (value, ours, vcenter) in [
            ("true", true, true),
            ("True", false, true),
            ("yes", false, true),
            ("1", false, true),
            (" on ", false, true),
            ("false", false, false),
            ("", false, false),
            ("2", false, false),
        ] {
            let annotated = |key: &str| Annotations::from([(key.to_owned(), value.to_owned())]);
            assert_eq!(is_paused(&annotated(PAUSED_ANNOTATION)), ours, "{value:?}");
            let skips = skips_delete(&annotated(SKIP_DELETE_ANNOTATION));
            assert_eq!(skips, ours, "{value:?}");
            let marks = VmMarks {
                paused: vcenter,
                skip_delete: false,
            };
            assert_eq!(VmMarks::read(Some(value), None), marks, "{value:?}");
            let marks = VmMarks {
                paused: false,
                skip_delete: vcenter,
            };
            assert_eq!(VmMarks::read(None, Some(value)), marks, "{value:?}");
        }
    }

    #[test]
    fn the_longest_pause_counts_and_ends_by_itself() {
        let mut holds = Holds::default();
        holds.add_paused_until("2026-01-01T13:00:00Z", "NodePool a/b");
        holds.add_paused_until("2026-01-01T12:30:00Z", "HostedCluster a/c");
        holds.add_paused_until("soon", "HostedCluster a/d");
        assert_eq!(holds.invalid.len(), 1);
        let noon = time("2026-01-01T12:00:00Z");
        let source = |holds: &Holds, now| holds.pause(now).map(|p| p.source.clone());
        assert_eq!(
            source(&holds, noon).as_deref(),
            Some("spec.pausedUntil of NodePool a/b")
        );
        assert_eq!(holds.left(noon), Some(Duration::from_secs(3600)));
        let one = time("2026-01-01T13:00:00Z");
        assert_eq!((source(&holds, one), holds.left(one)), (None, None));
        holds.pauses.push(Pause::by("first".to_owned()));
        holds.pauses.push(Pause::by("second".to_owned()));
        assert_eq!(source(&holds, noon).as_deref(), Some("first"));
        assert_eq!(holds.left(noon), None, "only a person ends it");
    }

    #[test]
    fn force_delete_overrides_all_but_vcenter() {
        let now = Timestamp::UNIX_EPOCH;
        let mut holds = Holds {
            pauses: vec![Pause::by("a pool".to_owned())],
            forced: true,
            ..Holds::default()
        };
        assert_eq!(holds.pause(now), None);
        let admins = Pause {
            in_vcenter: true,
            ..Pause::by("the VM".to_owned())
        };
        holds.pauses.push(admins.clone());
        assert_eq!(holds.pause(now), Some(&admins));
    }

    #[test]
    fn vetoes_are_read_by_their_prefixes() {
        let annotations = Annotations::from([
            (format!("{DELETE_CHECK_PREFIX}backup"), "runs".to_owned()),
            (format!("{DELETE_CHECK_PREFIX}audit"), String::new()),
            (format!("{POWER_ON_CHECK_PREFIX}licence"), "none".to_owned()),
            (PAUSED_ANNOTATION.to_owned(), "true".to_owned()),
        ]);
        let all: Vec<_> = Veto::read(&annotations, "VsphereAgent a/b").collect();
        let holds = Holds {
            vetoes: all,
            ..Holds::default()
        };
        let named = |check| -> Vec<_> { holds.vetoes(check).map(|v| v.holder.as_str()).collect() };
        assert_eq!(named(Check::Delete), ["audit", "backup"]);
        assert_eq!(named(Check::PowerOn), ["licence"]);
        let words = holds.vetoes(Check::PowerOn).next().map(ToString::to_string);
        let expected = "licence on VsphereAgent a/b forbids power-on: none";
        assert_eq!(words.as_deref(), Some(expected));
    }
}
