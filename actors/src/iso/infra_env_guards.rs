//! Why an InfraEnv prevents new VMs, although it may offer an ISO. Pure.
//!
//! Guarantee: a guard only prevents VMs that do not exist yet. Hosts that have a VM are not affected.

use std::sync::Arc;

use agent_forge_crds::{
    conditions::Reason,
    external::{
        agent::{Agent, INFRA_ENV_LABEL},
        agent_machine::AgentMachine,
        infra_env::InfraEnv,
    },
    names::AGENT_MACHINE_LABEL,
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use crate::{
    domain::{
        identity::BootSource,
        names::ObjectKey,
        selector::{self, Labels},
        text,
    },
    ports::{cluster::View, iso_source::IsoUrl},
};

/// Why no VM is made from an InfraEnv.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Why, as one word.
    pub reason: Reason,
    /// Sentence, with what a person can do.
    pub message: String,
}

/// Why the pool must make no VMs from that InfraEnv. `choosers`: the AgentMachines of all hosted clusters. The message
/// names only those that `shown` allows.
#[must_use]
pub fn guard(
    pool: &VsphereAgentPool,
    infra_env: &InfraEnv,
    choosers: &[Arc<AgentMachine>],
    shown: &dyn Fn(&AgentMachine) -> bool,
) -> Option<Guard> {
    late_binding(infra_env)
        .or_else(|| of_another(pool, infra_env))
        .or_else(|| image(infra_env))
        .or_else(|| stale(pool, infra_env))
        .or_else(|| defeated(infra_env, choosers, shown))
}

fn named(infra_env: &InfraEnv) -> String {
    let namespace = infra_env.namespace().unwrap_or_default();
    format!("InfraEnv {namespace}/{}", infra_env.name_any())
}

fn late_binding(infra_env: &InfraEnv) -> Option<Guard> {
    let cluster = infra_env.spec.cluster_ref.as_ref()?;
    Some(Guard {
        reason: Reason::LateBindingUnavailable,
        message: format!(
            "{} has spec.clusterRef ({}): its hosts are bound to that cluster from the start, so no VM is made; use an \
             InfraEnv without clusterRef",
            named(infra_env),
            cluster.name
        ),
    })
}

/// The guard if the InfraEnv `key` does not exist. Its ISO may still be on the datastore.
#[must_use]
pub fn gone(key: &ObjectKey) -> Guard {
    Guard {
        reason: Reason::InfraEnvNotFound,
        message: format!("InfraEnv {key} does not exist: no VM is made from an ISO of it"),
    }
}

/// The ISO on the datastore is of another InfraEnv, or of a deleted one with the same name. The Agent of its guest
/// would register with that one.
fn of_another(pool: &VsphereAgentPool, infra_env: &InfraEnv) -> Option<Guard> {
    let iso = pool.status.as_ref().and_then(|s| s.iso.as_ref())?;
    let source = BootSource::read(iso.infra_env_ref.as_ref()?)?;
    let now = BootSource::of(infra_env);
    (!source.is_same(&now)).then(|| Guard {
        reason: Reason::IsoSourceChanged,
        message: format!(
            "the ISO on the datastore is of {source}, and the pool's is {now} now: no VM is made until that ISO is there"
        ),
    })
}

fn image(infra_env: &InfraEnv) -> Option<Guard> {
    let why = infra_env.image_failure()?;
    Some(Guard {
        reason: Reason::ImageNotCreated,
        message: image_failed(infra_env, why),
    })
}

/// The sentence for an image that the service could not make.
#[must_use]
pub fn image_failed(infra_env: &InfraEnv, why: &str) -> String {
    format!(
        "the assisted service could not make the image of {} (ImageCreated is False: {}): nothing is fetched and no VM is made",
        named(infra_env),
        text::plain(why.lines().next().unwrap_or_default())
    )
}

/// The InfraEnv asks for another version than the ISO that it offers, or than the ISO that new VMs would boot.
fn stale(pool: &VsphereAgentPool, infra_env: &InfraEnv) -> Option<Guard> {
    let wanted = infra_env.spec.os_image_version.as_deref();
    let wanted = wanted.map(str::trim).filter(|w| !w.is_empty())?;
    let offered = infra_env.iso_download_url().map(|url| url.expose());
    let iso = pool.status.as_ref().and_then(|s| s.iso.as_ref());
    let lying = iso.and_then(|iso| iso.url.as_deref());
    let other = |url: &str| version(url).filter(|v| !fits(v, wanted));
    let (where_, found) = offered
        .and_then(|url| Some(("the ISO that it offers", other(url)?)))
        .or_else(|| Some(("the ISO on the datastore", other(lying?)?)))?;
    Some(Guard {
        reason: Reason::IsoStale,
        message: format!(
            "{} asks for osImageVersion {}, and {where_} is of version {}: no VM is made until they agree",
            named(infra_env),
            text::plain(wanted),
            text::plain(&found)
        ),
    })
}

/// The version in an address of the Assisted Service: the path segment after the one that names the image.
fn version(url: &str) -> Option<String> {
    let url = IsoUrl::parse(url).ok().filter(IsoUrl::is_assisted)?;
    url.version()
}

/// One version may be more exact than the other: `4.19` and `4.19.3`.
fn fits(a: &str, b: &str) -> bool {
    let begins = |long: &str, short: &str| {
        let rest = long.strip_prefix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    begins(a, b) || begins(b, a)
}

/// The service approves its Agents by itself, and again after each withdrawal. Then only labels prevent an Agent from
/// being chosen. This guard applies if the selector of an AgentMachine asks for no label of its own. Our pin does not
/// count, because it is set only after the AgentMachine appears.
fn defeated(
    infra_env: &InfraEnv,
    choosers: &[Arc<AgentMachine>],
    shown: &dyn Fn(&AgentMachine) -> bool,
) -> Option<Guard> {
    if !infra_env.auto_approves() {
        return None;
    }
    let bare = Labels::from([(INFRA_ENV_LABEL.to_owned(), infra_env.name_any())]);
    let asks_nothing = |am: &&Arc<AgentMachine>| {
        let mut selector = am.spec.agent_label_selector.clone().unwrap_or_default();
        if let Some(exact) = &mut selector.match_labels {
            exact.remove(AGENT_MACHINE_LABEL);
        }
        selector::matches(Some(&selector), &bare)
    };
    let chooser = choosers.iter().find(asks_nothing)?;
    let who = if shown(chooser) {
        let namespace = chooser.namespace().unwrap_or_default();
        format!("AgentMachine {namespace}/{}", chooser.name_any())
    } else {
        "an AgentMachine of another tenant".to_owned()
    };
    Some(Guard {
        reason: Reason::AutoApproveDefeatsFence,
        message: format!(
            "{} approves its Agents by itself, and {who} takes any Agent: one whose Machine goes could be chosen again, so no \
             VM is made. Switch spec.agentApproval.autoApprove off, or give that NodePool an agentLabelSelector",
            named(infra_env),
        ),
    })
}

/// Whether the service approves that Agent by itself. Then the operator does not withdraw the approval, because the
/// service would approve again, without end.
#[must_use]
pub fn approves(infra_env: Option<&InfraEnv>, agent: &Agent) -> bool {
    infra_env.is_some_and(|env| {
        let is_its = agent.infra_env() == env.metadata.name.as_deref()
            && agent.metadata.namespace == env.metadata.namespace;
        env.auto_approves() && is_its
    })
}

/// The same, by the Agent's own InfraEnv as the cache shows it.
#[must_use]
pub fn is_auto_approved(view: &dyn View, agent: &Agent) -> bool {
    let namespace = agent.namespace().unwrap_or_default();
    let key = agent
        .infra_env()
        .map(|name| ObjectKey::new(&namespace, name));
    let infra_env = key.and_then(|key| view.infra_env(&key));
    approves(infra_env.as_deref(), agent)
}

#[cfg(test)]
mod tests;
