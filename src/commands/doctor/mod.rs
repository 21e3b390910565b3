//! `agent-forge doctor`: checks everything that the operator needs. Each check is green, yellow or red, with what to do.
//!
//! The looks at the outside are in [`cluster`], [`iso`] and [`vcenter`]. They change nothing: rights are asked by
//! SelfSubjectAccessReview, and vCenter is only read.

mod cluster;
mod iso;
mod nodes;
mod pool;
mod rights;
mod vcenter;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use agent_forge_actors::{
    domain::names::ObjectKey, nodes::follow::Source, ports::cluster::View as _, sessions::users,
};
use agent_forge_crds::conditions::Reason;
use clap::{Args as ClapArgs, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    AskVcenter, Asked,
    report::{self, Report, Verdict},
    sight::{self, Sight},
};
use crate::{args::Args, cluster::view::NamespaceGrant, machines::decide};

/// What `agent-forge doctor` checks.
#[derive(Clone, Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Only this pool, and what it needs. Default: all pools.
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,

    /// Whether vCenter is asked.
    #[command(flatten)]
    pub vcenter: AskVcenter,

    /// From which result on the exit code is 1.
    #[arg(
        long,
        env = "AGENT_FORGE_FAIL_ON",
        value_enum,
        default_value_t,
        value_name = "RESULT"
    )]
    pub fail_on: FailOn,
}

/// From which result on the exit code is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Yellow or red.
    #[default]
    Warning,
    /// Red.
    Error,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    /// Good.
    Green,
    /// A person should know it, or it could not be checked.
    Yellow,
    /// No VM comes, or none goes, until somebody corrects it.
    Red,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, for programs.
    pub check: &'static str,
    /// What was checked.
    pub about: String,
    /// The result.
    pub color: Color,
    /// One sentence.
    pub says: String,
    /// What a person does; empty if there is nothing to do.
    pub todo: String,
    /// Where to read more.
    pub page: &'static str,
}

impl Check {
    fn new(check: &'static str, about: &str, color: Color, says: impl Into<String>) -> Self {
        Self {
            check,
            about: about.to_owned(),
            color,
            says: says.into(),
            todo: String::new(),
            page: "docs/how-to/find-out-what-is-wrong.md",
        }
    }

    fn green(check: &'static str, about: &str, says: impl Into<String>) -> Self {
        Self::new(check, about, Color::Green, says)
    }

    fn yellow(check: &'static str, about: &str, says: impl Into<String>) -> Self {
        Self::new(check, about, Color::Yellow, says)
    }

    fn red(check: &'static str, about: &str, says: impl Into<String>) -> Self {
        Self::new(check, about, Color::Red, says)
    }

    fn todo(mut self, todo: impl Into<String>, page: &'static str) -> Self {
        self.todo = todo.into();
        self.page = page;
        self
    }

    /// A failure that the operator would show with this reason.
    fn because(
        check: &'static str,
        about: &str,
        reason: &Reason,
        message: impl Into<String>,
    ) -> Self {
        let known = reason.about();
        let says = format!("{reason}: {}", message.into());
        Self::red(check, about, says).todo(known.remedy, known.section.page())
    }
}

/// All checks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The worst result.
    worst: Color,
    /// The worst first.
    checks: Vec<Check>,
    #[serde(skip)]
    fail_on: FailOn,
}

/// Checks.
///
/// # Errors
/// The API server cannot be reached, or there is no such pool.
pub async fn run(args: &Args, asked: &DoctorArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let mut checks = cluster::checks(args, client).await;
    match Sight::with(args, client).await {
        Ok(sight) => {
            let secrets = namespaces_of_secrets(args, &sight);
            checks.extend(rights::checks(args, client, &secrets).await);
            checks.push(Check::green("lists", "cluster", "all kinds can be listed"));
            checks.extend(of_pools(args, asked, &sight).await?);
        }
        Err(e) => {
            checks.extend(rights::checks(args, client, &BTreeSet::new()).await);
            let todo = "Install the CRDs, and give this user the rights in config/rbac.";
            let page = "docs/how-to/install-on-kubernetes.md";
            checks.push(Check::red("lists", "cluster", format!("{e:#}")).todo(todo, page));
        }
    }
    report::print(&Diagnosis::of(checks, asked.fail_on), asked.asked.output)
}

/// The namespaces of the Secrets that pools and VMs name.
fn namespaces_of_secrets(args: &Args, sight: &Sight) -> BTreeSet<String> {
    let all = users::all(&sight.caches, args.secret_bound()).into_iter();
    let kubeconfigs = sight.caches.pools().into_iter();
    let kubeconfigs = kubeconfigs.filter_map(|p| Source::of(&p, args.secret_bound()).ok()?);
    all.map(|user| user.secret.namespace)
        .chain(kubeconfigs.map(|source| source.secret.namespace))
        .collect()
}

/// A namespace that was named, and has no pool.
fn empty(sight: &Sight, namespace: &str) -> anyhow::Result<Check> {
    let known = sight.caches.namespaces.get(&NamespaceGrant::key(namespace));
    anyhow::ensure!(
        known.is_some(),
        "there is no namespace {namespace}, or it is not among --namespaces"
    );
    let says = "there is no VsphereAgentPool in it, so nothing of it was checked";
    let todo = "Name another namespace, or -A to check all pools.";
    let page = "docs/how-to/find-out-what-is-wrong.md";
    let about = format!("namespace {namespace}");
    Ok(Check::yellow("pools", &about, says).todo(todo, page))
}

async fn of_pools(args: &Args, asked: &DoctorArgs, sight: &Sight) -> anyhow::Result<Vec<Check>> {
    let namespace = asked.asked.place.namespace.as_ref();
    let wanted = |key: &ObjectKey| {
        namespace.is_none_or(|n| key.namespace == *n)
            && asked.pool.as_ref().is_none_or(|name| key.name == *name)
    };
    let keys = sight
        .caches
        .pools()
        .into_iter()
        .map(|p| ObjectKey::of(p.as_ref()));
    let keys: Vec<ObjectKey> = keys.filter(wanted).collect();
    if let (true, Some(name)) = (keys.is_empty(), &asked.pool) {
        anyhow::bail!("there is no VsphereAgentPool {name}");
    }
    let mut checks = Vec::new();
    if let (true, Some(namespace)) = (keys.is_empty(), namespace) {
        checks.push(empty(sight, namespace)?);
    }
    let vcenters = vcenter::Doctors::new(args, sight);
    for key in keys {
        let about = format!("pool {key}");
        let Some((observed, plan)) =
            decide::decide(&sight.caches, &key, args.secret_bound(), Timestamp::now())
        else {
            continue;
        };
        checks.extend(pool::checks(&about, &observed, &plan));
        checks.push(pool::time_limits(args, &sight.client, &about, &observed.pool).await);
        checks.extend(iso::checks(args, &sight.client, &about, &observed).await);
        let offline = asked.vcenter.offline;
        checks.extend(
            nodes::check(
                args,
                &sight.client,
                &about,
                (&sight.caches, &observed),
                offline,
            )
            .await,
        );
        if !offline {
            checks.extend(vcenters.checks(args, &about, &observed.pool).await);
        }
    }
    vcenters.close().await;
    Ok(checks)
}

impl Diagnosis {
    fn of(mut checks: Vec<Check>, fail_on: FailOn) -> Self {
        // Within a colour the order stays: first what others depend on.
        checks.sort_by_key(|check| Reverse(check.color));
        let worst = checks.first().map(|check| check.color);
        Self {
            worst: worst.unwrap_or(Color::Green),
            checks,
            fail_on,
        }
    }

    /// The checks that are green, by what was checked.
    fn green(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for check in self.checks.iter().filter(|c| c.color == Color::Green) {
            match groups.iter_mut().find(|(about, _)| *about == check.about) {
                Some((_, names)) => names.push(check.check),
                None => groups.push((&check.about, vec![check.check])),
            }
        }
        groups
    }
}

const RED: &str = "RED   ";
const YELLOW: &str = "YELLOW";
const GREEN: &str = "green ";

impl Report for Diagnosis {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut count: BTreeMap<Color, usize> = BTreeMap::new();
        for check in &self.checks {
            *count.entry(check.color).or_default() += 1;
            let word = match check.color {
                Color::Green => continue,
                Color::Yellow => YELLOW,
                Color::Red => RED,
            };
            text += &format!(
                "{word}  {} ({}): {}\n        What to do: {}\n        See {}\n",
                check.check,
                check.about,
                report::one_line(&check.says),
                check.todo,
                check.page
            );
        }
        for (about, names) in self.green() {
            text += &format!("{GREEN}  {about}: {}\n", names.join(", "));
        }
        let of = |color| count.get(&color).copied().unwrap_or(0);
        text + &format!(
            "\n{} green, {} yellow, {} red\n",
            of(Color::Green),
            of(Color::Yellow),
            of(Color::Red)
        )
    }

    fn verdict(&self) -> Verdict {
        let from = match self.fail_on {
            FailOn::Warning => Color::Yellow,
            FailOn::Error => Color::Red,
        };
        match self.worst >= from {
            true => Verdict::Findings,
            false => Verdict::Nothing,
        }
    }

    fn painted(&self, text: String) -> String {
        let paint = |line: &str| {
            for (word, colour) in [(RED, 31), (YELLOW, 33), (GREEN, 32)] {
                if let Some(rest) = line.strip_prefix(word) {
                    return format!("\u{1b}[{colour}m{word}\u{1b}[0m{rest}");
                }
            }
            line.to_owned()
        };
        text.split('\n').map(paint).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
