//! The flags of the operator that runs. A command takes them from its Deployment, so that it answers as that operator would and
//! nobody types them again. What the command line says counts more.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{
    ArgAction, ArgMatches, Command as Cli, CommandFactory as _, FromArgMatches as _,
    parser::ValueSource,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, EnvVar, PodTemplateSpec},
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::args::{Args, TargetArgs};

/// What manifests, chart and bundle of ours, and the chart whose names they keep, call the operator.
const LABELS: &str = "app.kubernetes.io/name in (agent-forge,agent-forge-operator)";
/// Value of `--operator`: no Deployment is asked.
const NONE: &str = "none";

/// An operator that runs in this cluster.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    /// `namespace/name` of its Deployment.
    name: String,
    /// Its version, if a label or the image's tag says it.
    version: Option<String>,
    flags: Vec<String>,
    /// Environment variables whose value is known.
    variables: Vec<(String, String)>,
}

impl Running {
    /// An error is a sentence.
    fn read(deployment: &Deployment) -> Result<Self, String> {
        let name = name(deployment);
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let containers = template.and_then(|t| Some(&t.spec.as_ref()?.containers));
        let (Some(template), Some(container)) = (template, containers.and_then(|all| all.first()))
        else {
            return Err(format!("Deployment {name} has no container"));
        };
        let all = container.env.iter().flatten();
        let variables: Vec<_> = all.map(|e| (e.name.clone(), value(e, template))).collect();
        let unknown = |arg: &String| {
            format!(
                "{arg} of Deployment {name} stands for a value that is not in it; --operator none leaves its flags out"
            )
        };
        let expand = |arg: &String| expanded(arg, &variables).ok_or_else(|| unknown(arg));
        let flags = container
            .args
            .iter()
            .flatten()
            .map(expand)
            .collect::<Result<_, _>>()?;
        let known = |(name, value): (String, Option<String>)| Some((name, value?));
        Ok(Self {
            version: version(deployment, container),
            flags,
            variables: variables.into_iter().filter_map(known).collect(),
            name,
        })
    }

    fn line(&self) -> String {
        let own = env!("CARGO_PKG_VERSION");
        let version = match self.version.as_deref() {
            Some(version) if version == own => format!(", version {own}"),
            Some(other) => format!(
                ", version {other}. This command is of version {own}: its answers may differ"
            ),
            None => String::new(),
        };
        format!("operator: {}{version}", self.name)
    }
}

fn name(deployment: &Deployment) -> String {
    format!(
        "{}/{}",
        deployment.namespace().unwrap_or_default(),
        deployment.name_any()
    )
}

/// The value of a variable, as far as the Deployment has it: its own, or that of an annotation of its Pods.
fn value(variable: &EnvVar, template: &PodTemplateSpec) -> Option<String> {
    let Some(from) = &variable.value_from else {
        return Some(variable.value.clone().unwrap_or_default());
    };
    let path = &from.field_ref.as_ref()?.field_path;
    let key = path
        .strip_prefix("metadata.annotations['")?
        .strip_suffix("']")?;
    let annotations = template
        .metadata
        .as_ref()
        .and_then(|m| m.annotations.as_ref());
    // Without the annotation, the variable is empty.
    Some(
        annotations
            .and_then(|all| all.get(key))
            .cloned()
            .unwrap_or_default(),
    )
}

/// An argument with the variables that it names as `$(NAME)`, as the kubelet expands it. `None`: a value is not known.
fn expanded(arg: &str, variables: &[(String, Option<String>)]) -> Option<String> {
    let (mut text, mut rest) = (String::new(), arg);
    while let Some((before, after)) = rest.split_once("$(") {
        let (name, end) = after.split_once(')')?;
        let (_, value) = variables.iter().find(|(variable, _)| variable == name)?;
        text += before;
        text += value.as_ref()?;
        rest = end;
    }
    Some(text + rest)
}

fn version(deployment: &Deployment, container: &Container) -> Option<String> {
    let labelled = deployment
        .labels()
        .get("app.kubernetes.io/version")
        .cloned();
    let tagged = || {
        let image = container.image.as_deref()?.split('@').next()?;
        // A port is no tag.
        let (_, tag) = image.rsplit('/').next()?.split_once(':')?;
        Some(tag.to_owned())
    };
    let version = labelled.or_else(tagged)?;
    let version = version.trim_start_matches('v');
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

/// These arguments with the flags of the operator that runs. Says on standard error which one it is, or why it is not known.
///
/// # Errors
/// It is open which operator is meant, or its flags cannot be used. Answers by other flags would be wrong.
pub(super) async fn settle(args: &Args, client: &Client) -> anyhow::Result<Args> {
    if let Some(flags) = in_this_pod(&args.target) {
        eprintln!("operator: of this container");
        return Ok(merged(std::env::args_os(), &flags, &[], true)?);
    }
    let named = args.target.operator.as_deref();
    if named == Some(NONE) {
        return Ok(args.clone());
    }
    let found = match deployments(client, named).await {
        Ok(found) => found,
        Err(why) if named.is_some() => anyhow::bail!(why),
        Err(why) => return Ok(unknown(args, &why)),
    };
    let Some(running) = one_of(&found).map_err(anyhow::Error::msg)? else {
        return Ok(unknown(args, "no Deployment of it is in this cluster"));
    };
    eprintln!("{}", running.line());
    let own = std::env::args_os();
    let merged = merged(own, &running.flags, &running.variables, named.is_some());
    let about = || {
        format!(
            "the flags of {}; --operator none leaves them out",
            running.name
        )
    };
    let mut merged = merged.with_context(about)?;
    merged.home = running.name.split('/').next().map(str::to_owned);
    Ok(merged)
}

fn unknown(args: &Args, why: &str) -> Args {
    eprintln!(
        "operator: {why}. Its flags are taken for the defaults; give them to this command if it has others"
    );
    args.clone()
}

/// The flags of the operator in whose container this command runs (`kubectl exec`).
fn in_this_pod(target: &TargetArgs) -> Option<Vec<String>> {
    let elsewhere = target.kubeconfig.is_some() || target.chooses();
    if elsewhere
        || target.operator.is_some()
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_none()
    {
        return None;
    }
    let first = std::fs::read_link("/proc/1/exe").ok()?;
    if std::process::id() == 1 || first != std::env::current_exe().ok()? {
        return None;
    }
    let line = std::fs::read("/proc/1/cmdline").ok()?;
    let words = line
        .split(|byte| *byte == 0)
        .skip(1)
        .filter(|word| !word.is_empty());
    Some(
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    )
}

/// Deployments of the operator: the `named` one, else all of the cluster. An error is a sentence.
pub(super) async fn deployments(
    client: &Client,
    named: Option<&str>,
) -> Result<Vec<Deployment>, String> {
    if let Some(named) = named.filter(|named| *named != NONE) {
        let (namespace, name) = named
            .split_once('/')
            .ok_or("write --operator NAMESPACE/NAME")?;
        let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let found = api.get(name).await.map_err(|e| e.to_string())?;
        return Ok(vec![found]);
    }
    let api: Api<Deployment> = Api::all(client.clone());
    let listed = api.list(&ListParams::default().labels(LABELS)).await;
    listed.map(|all| all.items).map_err(|e| match e {
        kube::Error::Api(status) if status.code == 403 => {
            "you may not list Deployments; name it with --operator NAMESPACE/NAME".to_owned()
        }
        e => e.to_string(),
    })
}

/// The only one. An error is a sentence.
fn one_of(deployments: &[Deployment]) -> Result<Option<Running>, String> {
    match deployments {
        [] => Ok(None),
        [one] => Running::read(one).map(Some),
        several => {
            let names: Vec<String> = several.iter().map(name).collect();
            Err(format!(
                "there are several operators, choose one with --operator: {}",
                names.join(", ")
            ))
        }
    }
}

/// The command line `own` with those flags of the operator that it does not give itself. An environment variable of this process
/// counts as given. Of a Deployment that nobody named, no flag counts that lets this command reach more: whoever may make one in
/// any namespace could set it.
fn merged(
    own: impl IntoIterator<Item = OsString>,
    flags: &[String],
    variables: &[(String, String)],
    named: bool,
) -> Result<Args, clap::Error> {
    let own: Vec<OsString> = own.into_iter().collect();
    let cli = Args::command();
    let given = cli.clone().try_get_matches_from(&own)?;
    let program = "agent-forge".to_owned();
    let told = cli
        .clone()
        .try_get_matches_from([&program].into_iter().chain(flags))?;
    let mut line: Vec<OsString> = own.iter().take(1).cloned().collect();
    line.extend(words(&cli, &given, (&told, variables), named));
    line.extend(own.iter().skip(1).cloned());
    let matches = cli.try_get_matches_from(line)?;
    Args::from_arg_matches(&matches)
}

/// What the operator was told and this command was not.
fn words(
    cli: &Cli,
    given: &ArgMatches,
    (told, variables): (&ArgMatches, &[(String, String)]),
    named: bool,
) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in cli.get_arguments() {
        let (id, Some(long)) = (arg.get_id().as_str(), arg.get_long()) else {
            continue;
        };
        let is_given = matches!(
            source(given, id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        // Which cluster, and as whom, is for the person to say.
        if is_given || TargetArgs::has(id) || !named && long.contains("-allow-") {
            continue;
        }
        let variable = variables
            .iter()
            .find(|(name, _)| arg.get_env().is_some_and(|env| env == name.as_str()));
        if source(told, id) == Some(ValueSource::CommandLine) {
            if matches!(arg.get_action(), ArgAction::SetTrue) {
                words.push(format!("--{long}").into());
                continue;
            }
            for value in told.get_raw(id).into_iter().flatten() {
                let mut word = OsString::from(format!("--{long}="));
                word.push(value);
                words.push(word);
            }
        } else if let Some((_, value)) = variable {
            words.push(format!("--{long}={value}").into());
        }
    }
    words
}

fn source(matches: &ArgMatches, id: &str) -> Option<ValueSource> {
    matches.try_contains_id(id).ok()?;
    matches.value_source(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn deployment(namespace: &str, image: &str, args: &[&str]) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "agent-forge", "namespace": namespace},
            "spec": {"selector": {}, "template": {
                "metadata": {"annotations": {"olm.targetNamespaces": "a,b"}},
                "spec": {"containers": [{
                    "name": "manager", "image": image, "args": args,
                    "env": [
                        {"name": "AGENT_FORGE_CLUSTER_ID", "value": "blue"},
                        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                        {"name": "TARGET", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}},
                    ],
                }]}},
            },
        }))
        .expect("a Deployment")
    }

    fn running(image: &str, args: &[&str]) -> Running {
        let found = one_of(&[deployment("system", image, args)]);
        found.expect("readable").expect("one")
    }

    #[test]
    fn flags_and_variables_of_the_operator_count_unless_the_person_says_otherwise() {
        let running = running(
            "registry.example:5000/agent-forge:v1.0.0@sha256:00",
            &[
                "--namespaces=$(TARGET)",
                "--leader-elect",
                "--secret-namespaces=s",
                "--kubeconfig=/operator",
                "--vsphere-allow-http=true",
            ],
        );
        let told = (running.name.as_str(), running.version.as_deref());
        assert_eq!(told, ("system/agent-forge", Some("1.0.0")));
        let merged = |own: &[&str], named| {
            let (flags, variables) = (&running.flags, &running.variables);
            merged(line(own), flags, variables, named).expect("merged")
        };
        let args = merged(&["agent-forge", "top", "-n", "a"], false);
        assert_eq!(args.namespaces, ["a", "b"]);
        assert_eq!(args.secret_bound(), ["s"]);
        assert_eq!(args.cluster_id.as_deref(), Some("blue"));
        assert!(args.lease.leader_elect && args.target.kubeconfig.is_none());
        assert!(args.command.is_some());
        // Nobody named that Deployment.
        assert!(!args.vsphere_allow_http);
        assert!(merged(&["agent-forge", "top"], true).vsphere_allow_http);
        let args = merged(
            &["agent-forge", "--cluster-id=red", "top", "--namespaces=c"],
            false,
        );
        assert_eq!(args.namespaces, ["c"]);
        assert_eq!(args.cluster_id.as_deref(), Some("red"));
    }

    #[test]
    fn an_argument_whose_value_is_not_known_is_no_value() {
        for arg in [
            "--namespaces=$(POD_UID)",
            "--namespaces=$(NONE)",
            "--namespaces=$(POD",
        ] {
            let said = one_of(&[deployment("n", "i", &[arg])]).expect_err(arg);
            assert!(said.starts_with(arg), "{said}");
        }
    }

    #[test]
    fn another_version_is_said_and_an_image_without_a_tag_says_none() {
        let line = |image: &str| running(image, &[]).line();
        assert_eq!(
            line("host:5000/agent-forge"),
            "operator: system/agent-forge"
        );
        assert_eq!(line("agent-forge:latest"), "operator: system/agent-forge");
        assert!(line("agent-forge:v0.9.1").contains("version 0.9.1. This command is of version"));
        let own = env!("CARGO_PKG_VERSION");
        let same = format!("operator: system/agent-forge, version {own}");
        assert_eq!(line(&format!("agent-forge:{own}")), same);
    }

    #[test]
    fn several_operators_are_a_question_and_not_a_guess() {
        assert_eq!(one_of(&[]), Ok(None));
        let two = ["a", "b"].map(|namespace| deployment(namespace, "i", &[]));
        let said = one_of(&two).expect_err("two");
        assert!(
            said.ends_with("--operator: a/agent-forge, b/agent-forge"),
            "{said}"
        );
    }
}
