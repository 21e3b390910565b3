//! What is to be done for one config. Pure.
//!
//! The order of the checks is that of BYOH's contract. While BYOH does not ask, nothing is written, so that the resourceVersion
//! of a config stays equal. Everything that is written was decided from live reads.

use std::{collections::BTreeMap, sync::Arc};

use agent_forge_crds::{
    AgentForgeInstallerConfig, AgentForgeInstallerConfigStatus,
    conditions::{HOST_RELEASED, READY, Reason},
    external::{
        ByoMachine,
        agent_machine::PAUSED_ANNOTATION,
        byoh::{CLUSTER_NAME_LABEL, GROUP, K8S_VERSION_ANNOTATION},
    },
    installer::{INSTALL_KEY, UNINSTALL_KEY},
    names::{INSTALLER_FINALIZER, LOST_HOST_ANNOTATION},
};
use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::ResourceExt as _;

use super::{
    scripts::{self, Scripts},
    secret,
    status::{self, Problem},
};
use crate::{
    domain::{names::ObjectKey, upstream::Pausable},
    ports::byoh::ScriptsSecret,
};

/// What is known of one config.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The config.
    pub config: Arc<AgentForgeInstallerConfig>,
    /// Its Cluster.
    pub cluster: Option<Pausable>,
    /// The ByoMachine that its owner reference names.
    pub machine: Option<Arc<ByoMachine>>,
    /// The ByoHosts that name its Secret.
    pub hosts: Vec<ObjectKey>,
    /// What only a live read shows. `None`: all of this comes from the caches.
    pub live: Option<Live>,
    /// Now.
    pub now: Time,
}

/// What only a live read shows.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The Secret of the name that the config's gets.
    pub secret: Option<ScriptsSecret>,
    /// Content of the ConfigMap with the scripts, if the config names one.
    pub texts: Option<BTreeMap<String, String>>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing more.
    Rest,
    /// Nothing now, for this reason.
    Wait(Reason, String),
    /// All of it is read from the API server, and decided again.
    Look,
    /// The finalizers become these: ours is among them.
    Hold(Vec<String>),
    /// The Secret is created.
    Create(Box<Secret>),
    /// The status becomes this. With a reason, the config goes on waiting.
    Status(
        Box<AgentForgeInstallerConfigStatus>,
        Option<(Reason, String)>,
    ),
    /// The finalizers become these: ours is not among them any more.
    Release(Vec<String>),
}

/// The owner of a config that is a ByoMachine.
#[must_use]
pub fn owner(config: &AgentForgeInstallerConfig) -> Option<&OwnerReference> {
    let is_of_byoh = |api_version: &str| {
        let group = api_version.split_once('/').map(|(group, _)| group);
        group == Some(GROUP)
    };
    let mut owners = config.owner_references().iter();
    owners.find(|o| o.kind == "ByoMachine" && is_of_byoh(&o.api_version))
}

/// Name of the Cluster of a config.
#[must_use]
pub fn cluster_name(config: &AgentForgeInstallerConfig) -> Option<&str> {
    config.labels().get(CLUSTER_NAME_LABEL).map(String::as_str)
}

/// What is to be done for that config.
#[must_use]
pub fn decide(facts: &Facts) -> Next {
    if let Some(by) = pausing(facts) {
        return Next::Wait(Reason::Paused, format!("paused by {by}"));
    }
    if facts.config.metadata.deletion_timestamp.is_some() {
        return end(facts);
    }
    let is_ready = facts.config.status.as_ref().is_some_and(|s| s.ready);
    if is_ready {
        return Next::Rest;
    }
    match asked(facts) {
        Ok(machine) => supply(facts, machine),
        Err(lacking) => Next::Wait(Reason::ScriptsNotAwaited, lacking),
    }
}

/// What pauses the config.
fn pausing(facts: &Facts) -> Option<String> {
    let cluster = facts.cluster.as_ref().filter(|c| c.paused);
    if let Some(cluster) = cluster {
        return Some(format!("spec.paused of Cluster {}", cluster.key));
    }
    let annotated = facts.config.annotations().contains_key(PAUSED_ANNOTATION);
    annotated.then(|| format!("annotation {PAUSED_ANNOTATION}"))
}

/// The ByoMachine, if it asks for the scripts and its host is known. Else what is missing.
fn asked(facts: &Facts) -> Result<&ByoMachine, String> {
    let config = &facts.config;
    let name = cluster_name(config).ok_or_else(|| format!("no label {CLUSTER_NAME_LABEL}"))?;
    if facts.cluster.is_none() {
        return Err(format!("there is no Cluster {name}"));
    }
    let owner = owner(config).ok_or("it has no ByoMachine as owner")?;
    let machine = facts.machine.as_deref();
    let machine = machine.filter(|m| m.uid().as_ref() == Some(&owner.uid));
    let machine =
        machine.ok_or_else(|| format!("its owner, ByoMachine {}, is not there", owner.name))?;
    if !machine.awaits_scripts() {
        return Err(format!("ByoMachine {} has no host yet", owner.name));
    }
    if machine.host_info().is_none() {
        return Err(format!(
            "status.hostinfo of ByoMachine {} is not complete",
            owner.name
        ));
    }
    if !config.annotations().contains_key(K8S_VERSION_ANNOTATION) {
        return Err(format!("no annotation {K8S_VERSION_ANNOTATION}"));
    }
    Ok(machine)
}

/// The way to a Secret and a status that names it.
fn supply(facts: &Facts, machine: &ByoMachine) -> Next {
    let Some(live) = &facts.live else {
        return Next::Look;
    };
    let config = &facts.config;
    let wanted = match written(facts, live, machine) {
        Ok(scripts) => secret::of(config, scripts),
        Err((reason, why)) => return wait(facts, Problem::of(READY, reason, why)),
    };
    // Somebody may have got what is there already, so it is not made again.
    let found = live.secret.as_ref();
    if found.is_some_and(|found| !secret::is_it(found, &wanted)) {
        let name = secret::name(config);
        let why = format!("Secret {name} exists, and is not of this config or has other scripts");
        return wait(facts, Problem::of(READY, Reason::SecretTaken, why));
    }
    let mut finalizers = config.finalizers().to_vec();
    if !finalizers.iter().any(|f| f == INSTALLER_FINALIZER) {
        finalizers.push(INSTALLER_FINALIZER.to_owned());
        return Next::Hold(finalizers);
    }
    match found {
        Some(_) => Next::Status(Box::new(status::ready(config, &facts.now)), None),
        None => Next::Create(Box::new(wanted)),
    }
}

/// The scripts for that host.
fn written(facts: &Facts, live: &Live, machine: &ByoMachine) -> Result<Scripts, (Reason, String)> {
    let spec = &facts.config.spec;
    if let Some(bundle) = &spec.bundle {
        let host = machine.host_info().cloned().unwrap_or_default();
        let version = facts.config.annotations().get(K8S_VERSION_ANNOTATION);
        let request = scripts::Request {
            os_name: host.os_name,
            os_image: host.os_image,
            architecture: host.architecture,
            kubernetes_version: version.cloned().unwrap_or_default(),
            bundle: scripts::Bundle {
                repository: bundle.repository.clone(),
                digest: bundle.digest.clone(),
            },
        };
        let unsupported = |e: scripts::Unsupported| (Reason::HostUnsupported, e.to_string());
        return scripts::render(&request).map_err(unsupported);
    }
    let name = spec.scripts_from.as_ref();
    let name = name.map_or("", |from| from.config_map_ref.name.as_str());
    let missing = |what: String| (Reason::ScriptsMissing, what);
    let texts = live.texts.as_ref();
    let texts = texts.ok_or_else(|| missing(format!("there is no ConfigMap {name}")))?;
    let text = |key: &str| {
        let found = texts.get(key).filter(|text| !text.trim().is_empty());
        let text = found.ok_or_else(|| missing(format!("ConfigMap {name} has no {key}")))?;
        scripts::judge_template(text).map_err(|refused| {
            let scripts::RefusedTemplate { line, what } = refused;
            let why = format!("ConfigMap {name}, {key}, line {line}: {what}");
            (Reason::ScriptRefused, why)
        })?;
        Ok(text.clone())
    };
    Ok(Scripts {
        install: text(INSTALL_KEY)?,
        uninstall: text(UNINSTALL_KEY)?,
    })
}

/// The way out: the Secret stays while a ByoHost names it.
fn end(facts: &Facts) -> Next {
    let config = &facts.config;
    let mut finalizers = config.finalizers().to_vec();
    finalizers.retain(|f| f != INSTALLER_FINALIZER);
    if finalizers.len() == config.finalizers().len() {
        return Next::Rest;
    }
    let lost = config.annotations().get(LOST_HOST_ANNOTATION);
    let lost = lost.iter().flat_map(|lost| lost.split(',')).map(str::trim);
    let is_lost = |host: &ObjectKey| lost.clone().any(|lost| lost == host.to_string());
    if let Some(host) = facts.hosts.iter().find(|host| !is_lost(host)) {
        let name = secret::name(config);
        let why = format!(
            "ByoHost {host} names Secret {name}; if that host is lost, name it in the annotation {LOST_HOST_ANNOTATION} of this config"
        );
        return wait(
            facts,
            Problem::of(HOST_RELEASED, Reason::HostNamesSecret, why),
        );
    }
    if facts.live.is_none() {
        return Next::Look;
    }
    Next::Release(finalizers)
}

/// The config waits, and its status says why. It is written from live reads, and only if it changes.
fn wait(facts: &Facts, problem: Problem) -> Next {
    let new = status::waiting(&facts.config, &facts.now, &problem);
    let Problem { reason, why, .. } = problem;
    if facts.config.status.as_ref() == Some(&new) {
        return Next::Wait(reason, why);
    }
    match facts.live {
        Some(_) => Next::Status(Box::new(new), Some((reason, why))),
        None => Next::Look,
    }
}

#[cfg(test)]
pub(super) mod tests;
