//! Label selectors: whether labels satisfy one, which labels would satisfy it, and which keys it can match on.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_crds::{
    external::agent::{AGENT_MACHINE_REF_LABEL, CLUSTER_ORDER_LABEL},
    names::AGENT_MACHINE_LABEL,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Why no set of labels that we may write satisfies a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("selector requirement on label {key:?} cannot be met: {why}")]
pub struct Unsatisfiable {
    /// Label key.
    pub key: String,
    /// As a sentence.
    pub why: String,
}

/// Whether `labels` satisfy `selector`. A missing or empty selector matches everything; an unknown operator nothing.
#[must_use]
pub fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else {
        return true;
    };
    let exact = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(k, v)| labels.get(k) == Some(v));
    exact
        && selector.match_expressions.iter().flatten().all(|e| {
            let value = labels.get(&e.key);
            let listed = value.is_some_and(|v| e.values.iter().flatten().any(|x| x == v));
            match e.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Whether only the assisted service or the provider writes the label, and the operator never does. These are the labels for
/// the claim, the InfraEnv, the inventory and the classification.
#[must_use]
pub fn is_service_label(key: &str) -> bool {
    const DOMAIN: &str = "agent-install.openshift.io";
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let below = domain.strip_suffix(DOMAIN);
    key == AGENT_MACHINE_REF_LABEL
        || key == CLUSTER_ORDER_LABEL
        || below.is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
}

/// Keys that the selector asks to be present.
#[must_use]
pub fn wanted_keys(selector: Option<&LabelSelector>) -> BTreeSet<String> {
    let wants = |r: &Requirements| r.exact.is_some() || r.allowed.is_some() || r.exists;
    per_key(selector)
        .into_iter()
        .filter(|(_, r)| wants(r))
        .map(|(k, _)| k)
        .collect()
}

/// Everything that a selector asks of one label.
#[derive(Clone, Debug, Default)]
struct Requirements {
    exact: Option<String>,
    /// Values that every `In` allows, in the order of the first.
    allowed: Option<Vec<String>>,
    denied: BTreeSet<String>,
    exists: bool,
    absent: bool,
    unknown: Option<String>,
}

impl Requirements {
    fn hold_for(&self, value: Option<&String>) -> bool {
        let Some(value) = value else {
            return self.exact.is_none() && self.allowed.is_none() && !self.exists;
        };
        !self.absent
            && self.exact.as_ref().is_none_or(|v| v == value)
            && self.allowed.as_ref().is_none_or(|a| a.contains(value))
            && !self.denied.contains(value)
    }

    /// A value that meets all requirements; `None`: the label must be absent.
    fn choose(&self) -> Result<Option<String>, String> {
        let wanted = self.exact.is_some() || self.allowed.is_some() || self.exists;
        if self.absent {
            let why = "DoesNotExist contradicts another requirement";
            return if wanted {
                Err(why.to_owned())
            } else {
                Ok(None)
            };
        }
        if !wanted {
            return Ok(None);
        }
        let any = || {
            std::iter::once("true".to_owned())
                .chain((1..=self.denied.len()).map(|n| format!("true-{n}")))
        };
        let candidates: Vec<String> = match (&self.exact, &self.allowed) {
            (Some(exact), _) => vec![exact.clone()],
            (None, Some(allowed)) => allowed.clone(),
            (None, None) => any().collect(),
        };
        let fits = |v: &String| self.hold_for(Some(v));
        match candidates.iter().find(|v| fits(v)) {
            Some(value) => Ok(Some(value.clone())),
            None => Err("its requirements contradict each other".to_owned()),
        }
    }
}

fn per_key(selector: Option<&LabelSelector>) -> BTreeMap<String, Requirements> {
    let mut all: BTreeMap<String, Requirements> = BTreeMap::new();
    let Some(selector) = selector else {
        return all;
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        all.entry(key.clone()).or_default().exact = Some(value.clone());
    }
    for e in selector.match_expressions.iter().flatten() {
        let r = all.entry(e.key.clone()).or_default();
        let values: Vec<String> = e.values.iter().flatten().cloned().collect();
        match e.operator.as_str() {
            "In" => match &mut r.allowed {
                Some(allowed) => allowed.retain(|v| values.contains(v)),
                None => r.allowed = Some(values),
            },
            "NotIn" => r.denied.extend(values),
            "Exists" => r.exists = true,
            "DoesNotExist" => r.absent = true,
            other => r.unknown = Some(other.to_owned()),
        }
    }
    all
}

/// The labels to set (`Some`) or remove (`None`) on an object that has the labels `present`. With them, both `base` and the
/// selector hold. Labels of the service ([`is_service_label`]) are never among them: the object has what the selector asks
/// of them, or nothing can satisfy it.
///
/// # Errors
/// [`Unsatisfiable`] names the first label whose requirements contradict `base`, each other, or what the service set.
pub fn labels_for(
    selector: Option<&LabelSelector>,
    base: &Labels,
    present: &Labels,
) -> Result<BTreeMap<String, Option<String>>, Unsatisfiable> {
    let mut out: BTreeMap<String, Option<String>> = base
        .iter()
        .map(|(k, v)| (k.clone(), Some(v.clone())))
        .collect();
    for (key, asked) in per_key(selector) {
        let refuse = |why: String| {
            Err(Unsatisfiable {
                key: key.clone(),
                why,
            })
        };
        if let Some(operator) = &asked.unknown {
            return refuse(format!("unknown operator {operator:?}"));
        }
        let now = base.get(&key).or_else(|| present.get(&key));
        if asked.hold_for(now) {
            continue;
        }
        if let Some(ours) = base.get(&key) {
            return refuse(format!(
                "the pool gives it the value {ours:?} (spec.agent), which the AgentMachine does not accept"
            ));
        }
        if is_service_label(&key) {
            return refuse("the assisted service sets this label, and not so".to_owned());
        }
        match asked.choose() {
            Ok(value) => out.insert(key, value),
            Err(why) => return refuse(why),
        };
    }
    Ok(out)
}

/// Whether labels can be found for an object that does not exist yet. Its service labels are not known yet, so requirements
/// on them count as met.
///
/// # Errors
/// As [`labels_for`].
pub fn satisfiable(selector: Option<&LabelSelector>, base: &Labels) -> Result<(), Unsatisfiable> {
    let ours = selector.cloned().map(|mut s| {
        if let Some(exact) = &mut s.match_labels {
            exact.retain(|k, _| !is_service_label(k));
        }
        if let Some(expressions) = &mut s.match_expressions {
            expressions.retain(|e| !is_service_label(&e.key));
        }
        s
    });
    labels_for(ours.as_ref(), base, &Labels::new()).map(|_| ())
}

/// What the selector asks for and these labels do not give, as people write it. The labels of the service and the pin are no
/// labels of a pool, and do not count.
#[must_use]
pub fn unmet(selector: Option<&LabelSelector>, labels: &Labels) -> Vec<String> {
    let asked = per_key(selector).into_iter();
    let ours = asked.filter(|(key, _)| key != AGENT_MACHINE_LABEL && !is_service_label(key));
    let lacks = ours.filter(|(key, r)| r.unknown.is_some() || !r.hold_for(labels.get(key)));
    lacks
        .map(|(key, asked)| match (&asked.exact, &asked.allowed) {
            (Some(value), _) => format!("{key}={value}"),
            (None, Some(values)) => format!("{key} in ({})", values.join(", ")),
            (None, None) => key,
        })
        .collect()
}

/// Whether the text is a valid label value: at most 63 of `[A-Za-z0-9_.-]`, alphanumeric at both ends, or empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(inner)
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

/// Whether the text is a valid label key: a name of at most 63 of `[A-Za-z0-9_.-]`, after an optional DNS name and a slash.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').unzip();
    let name = name.unwrap_or(text);
    let is_part = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty()
            && part.chars().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_part);
    domain.is_none_or(is_domain) && !name.is_empty() && is_label_value(name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn selector(exact: &[(&str, &str)], expressions: &[(&str, &str, &[&str])]) -> LabelSelector {
        LabelSelector {
            match_labels: Some(labels(exact)),
            match_expressions: Some(
                expressions
                    .iter()
                    .map(|(key, op, values)| LabelSelectorRequirement {
                        key: (*key).to_owned(),
                        operator: (*op).to_owned(),
                        values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
                    })
                    .collect(),
            ),
        }
    }

    #[test]
    fn all_operators_are_met() {
        let s = selector(
            &[("a", "1")],
            &[
                ("b", "In", &["x", "y"]),
                ("c", "Exists", &[]),
                ("d", "NotIn", &["bad"]),
                ("e", "DoesNotExist", &[]),
            ],
        );
        let present = labels(&[("d", "bad"), ("e", "there")]);
        let patch = labels_for(Some(&s), &labels(&[("pool", "p")]), &present).expect("satisfiable");
        assert_eq!(patch["b"], Some("x".to_owned()));
        assert_eq!(patch["e"], None);
        assert_eq!(patch["pool"], Some("p".to_owned()));
    }

    #[test]
    fn what_must_be_there_is_wanted() {
        let s = selector(
            &[("exact", "1")],
            &[
                ("listed", "In", &["x"]),
                ("any", "Exists", &[]),
                ("other", "NotIn", &["bad"]),
                ("none", "DoesNotExist", &[]),
            ],
        );
        let keys = wanted_keys(Some(&s));
        assert_eq!(Vec::from_iter(keys), ["any", "exact", "listed"]);
        assert_eq!(wanted_keys(None), BTreeSet::new());
    }

    #[test]
    fn contradictions_name_the_label() {
        let base = labels(&[("role", "worker")]);
        for s in [
            selector(&[("role", "infra")], &[]),
            selector(&[], &[("role", "In", &["infra"])]),
            selector(&[], &[("role", "DoesNotExist", &[])]),
            selector(&[], &[("role", "Sounds", &["like"])]),
        ] {
            assert_eq!(
                labels_for(Some(&s), &base, &Labels::new())
                    .expect_err("contradiction")
                    .key,
                "role"
            );
        }
    }

    #[test]
    fn several_requirements_on_one_label_are_met_together() {
        for (expressions, value) in [
            (
                vec![("k", "In", &["a", "b"][..]), ("k", "In", &["b", "c"][..])],
                "b",
            ),
            (
                vec![("k", "In", &["a", "b"][..]), ("k", "NotIn", &["a"][..])],
                "b",
            ),
            (
                vec![("k", "NotIn", &["true"][..]), ("k", "Exists", &[][..])],
                "true-1",
            ),
        ] {
            let s = selector(&[], &expressions);
            let patch = labels_for(Some(&s), &Labels::new(), &labels(&[("k", "a")]));
            let got = patch.expect("satisfiable").get("k").cloned();
            assert!(
                got == Some(Some(value.to_owned())) || got.is_none() && value == "true-1",
                "{expressions:?}: {got:?}"
            );
            let fresh = labels_for(Some(&s), &Labels::new(), &Labels::new()).expect("satisfiable");
            assert_eq!(fresh["k"].as_deref(), Some(value), "{expressions:?}");
        }
    }

    #[test]
    fn labels_that_the_infra_env_sets_are_kept_where_they_fit_and_changed_where_not() {
        let present = labels(&[("zone", "a"), ("tier", "gold")]);
        let fits = selector(&[], &[("zone", "In", &["b", "a"]), ("tier", "Exists", &[])]);
        assert_eq!(
            labels_for(Some(&fits), &Labels::new(), &present),
            Ok(BTreeMap::new())
        );
        let other = selector(&[], &[("zone", "In", &["b"]), ("tier", "NotIn", &["gold"])]);
        let patch = labels_for(Some(&other), &Labels::new(), &present).expect("satisfiable");
        assert_eq!(patch["zone"].as_deref(), Some("b"));
        assert_eq!(patch["tier"], None);
    }

    #[test]
    fn labels_of_the_service_are_asked_for_but_never_written() {
        let arch = "inventory.agent-install.openshift.io/cpu-architecture";
        for key in [
            arch,
            "infraenvs.agent-install.openshift.io",
            "agent-install.openshift.io/bmh",
            "agentclassification.agent-install.openshift.io/big",
            "agentMachineRef",
        ] {
            assert!(is_service_label(key), "{key}");
            for (operator, values) in [
                ("In", &["x"][..]),
                ("Exists", &[]),
                ("DoesNotExist", &[]),
                ("NotIn", &["y"]),
            ] {
                let s = selector(&[], &[(key, operator, values)]);
                assert_eq!(satisfiable(Some(&s), &Labels::new()), Ok(()));
                for present in [labels(&[]), labels(&[(key, "x")]), labels(&[(key, "y")])] {
                    match labels_for(Some(&s), &Labels::new(), &present) {
                        Ok(patch) => assert!(patch.is_empty() && matches(Some(&s), &present)),
                        Err(e) => assert!(e.key == key && !matches(Some(&s), &present)),
                    }
                }
            }
        }
        for key in [
            "customer",
            "my-agent-install.openshift.io",
            "agent-forge.containeroo.ch/agent-machine",
            "hypershift.openshift.io/nodepool-role",
        ] {
            assert!(!is_service_label(key), "{key}");
        }
    }

    proptest! {
        #[test]
        fn what_is_offered_satisfies(
            exact in proptest::collection::btree_map("[a-c]", "[x-z]", 0..3),
            expressions in proptest::collection::vec(("[a-e]", 0..4usize, proptest::collection::vec("[x-z]", 0..3)), 0..4),
            base in proptest::collection::btree_map("[a-e]", "[x-z]", 0..3),
            present in proptest::collection::btree_map("[a-e]", "[x-z]", 0..5),
        ) {
            let ops = ["In", "NotIn", "Exists", "DoesNotExist"];
            let s = LabelSelector {
                match_labels: Some(exact),
                match_expressions: Some(expressions.into_iter().map(|(key, op, values)| LabelSelectorRequirement {
                    key, operator: ops[op].to_owned(), values: Some(values),
                }).collect()),
            };
            // The result of a search over all values of one label at a time: whether some value, or none, meets all
            // requirements.
            let keys: BTreeSet<&String> = s.match_labels.iter().flatten().map(|(k, _)| k)
                .chain(s.match_expressions.iter().flatten().map(|e| &e.key)).collect();
            let possible = keys.iter().all(|k| {
                let only = LabelSelector {
                    match_labels: Some(s.match_labels.iter().flatten().filter(|(x, _)| x == k).map(|(k, v)| (k.clone(), v.clone())).collect()),
                    match_expressions: Some(s.match_expressions.iter().flatten().filter(|e| e.key == **k).cloned().collect()),
                };
                let tries = ["x", "y", "z", "w"].iter().map(|v| labels(&[(k.as_str(), v)])).chain([labels(&[])]);
                match base.get(*k) {
                    Some(v) => matches(Some(&only), &labels(&[(k.as_str(), v.as_str())])),
                    None => tries.into_iter().any(|l| matches(Some(&only), &l)),
                }
            });
            prop_assert_eq!(labels_for(Some(&s), &base, &present).is_ok(), possible);
            if let Ok(patch) = labels_for(Some(&s), &base, &present) {
                let mut result = present;
                for (k, v) in patch {
                    match v { Some(v) => { result.insert(k, v); } None => { result.remove(&k); } }
                }
                prop_assert!(matches(Some(&s), &result));
                for (k, v) in &base { prop_assert_eq!(result.get(k), Some(v)); }
            }
        }
    }
}
