//! Commands that show things to people. They change nothing: each effect except a login is refused
//! ([`read_only::ReadOnly`]). One exception: `adopt --apply` writes VsphereAgents, with the rights of the person.
//!
//! They see the cluster through the same caches as the operator, which one list of each kind fills ([`sight`]). So a
//! command gives the operator's own answers.

pub mod adopt;
pub mod cli;
pub mod collect;
mod console;
pub mod doctor;
pub mod explain;
pub mod hosts;
pub mod iso;
pub mod manifest_file;
pub mod moves;
pub mod orphans;
pub mod plan;
pub mod privileges;
pub mod read_only;
pub mod reasons;
pub mod report;
mod running;
pub mod sight;
pub mod top;
pub mod validate;
pub mod vcenters;

use clap::{Args as ClapArgs, Subcommand, builder::BoolishValueParser};

use self::report::{Output, Verdict};
use crate::args::{Args, TargetArgs};

/// What to do instead of running the operator.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the discovery ISOs that pools keep: versions, digest, size, age, source, and which VMs mount them.
    Iso(iso::IsoArgs),
    /// Explain one machine: its objects and how they belong together, what it waits for, and who can end that.
    Explain(explain::ExplainArgs),
    /// Show what the operator would do for a pool now, or with a changed pool before it is applied, and what that costs.
    Plan(plan::PlanArgs),
    /// List VMs with this cluster's marker that no VsphereAgent records.
    Orphans(orphans::OrphansArgs),
    /// Show which VMs that the operator did not make could be adopted, and what proof is missing. With --apply: ask the operator to.
    Adopt(adopt::AdoptArgs),
    /// Show the steps that give the host of a Machine to another pool of its group. With --apply: take them.
    Move(moves::MoveArgs),
    /// Print the role that the vCenter user needs, as a table or as a command of govc.
    Privileges(privileges::PrivilegesArgs),
    /// Check a file offline: would the API server accept it, and could the operator use it?
    Validate(validate::ValidateArgs),
    /// Check everything that the operator needs, and say what to do.
    Doctor(doctor::DoctorArgs),
    /// Show which host served which hosted cluster and Machine, and when: hosts that are there, and hosts that are gone.
    Hosts(hosts::HostsArgs),
    /// Show a live table of machines, with sums per pool.
    Top(top::TopArgs),
    /// Explain a reason: what it means, who can end the wait, and how.
    Reasons(reasons::ReasonsArgs),
    /// Write a support archive: objects, statuses and Events, redacted. Never a Secret.
    Collect(collect::CollectArgs),
    /// Print a shell completion script.
    Completion(cli::CompletionArgs),
    /// Write a man page for each command into a directory.
    Man(cli::ManArgs),
}

impl Command {
    /// Which namespaces it looks at, if it looks at a cluster.
    fn place(&mut self) -> Option<&mut Place> {
        match self {
            Self::Iso(all) => Some(&mut all.asked.place),
            Self::Explain(all) => Some(&mut all.asked.place),
            Self::Plan(all) => Some(&mut all.asked.place),
            Self::Orphans(all) => Some(&mut all.asked.place),
            Self::Adopt(all) => Some(&mut all.asked.place),
            Self::Move(all) => Some(&mut all.asked.place),
            Self::Doctor(all) => Some(&mut all.asked.place),
            Self::Hosts(all) => Some(&mut all.asked.place),
            Self::Top(all) => Some(&mut all.place),
            Self::Collect(all) => Some(&mut all.place),
            Self::Privileges(_)
            | Self::Validate(_)
            | Self::Reasons(_)
            | Self::Completion(_)
            | Self::Man(_) => None,
        }
    }
}

/// Which namespaces.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Place {
    /// Only objects of this namespace. Default: that of the kubeconfig's context. If it names none, or in a Pod: all.
    #[arg(long, short, env = "AGENT_FORGE_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Objects of all namespaces, whatever --namespace says.
    #[arg(long, short = 'A', env = "AGENT_FORGE_ALL_NAMESPACES", value_parser = BoolishValueParser::new())]
    pub all_namespaces: bool,
}

impl Place {
    /// Takes the namespace of the context if none is asked for, and says so on standard error.
    fn settle(&mut self, target: &TargetArgs) {
        if self.all_namespaces {
            self.namespace = None;
        }
        if self.namespace.is_some() || self.all_namespaces {
            return;
        }
        self.namespace = target.namespace();
        if let Some(namespace) = &self.namespace {
            eprintln!("namespace: {namespace} (of the context; -A for all)");
        }
    }
}

/// Which objects, and how they are printed.
#[derive(Clone, Debug, ClapArgs)]
pub struct Asked {
    /// Which namespaces.
    #[command(flatten)]
    pub place: Place,

    /// How the result is printed.
    #[arg(
        long,
        short,
        env = "AGENT_FORGE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub output: Output,
}

/// Whether vCenter is asked.
#[derive(Clone, Debug, ClapArgs)]
pub struct AskVcenter {
    /// Do not log in to vCenter. What only vCenter knows is then not shown.
    #[arg(long, env = "AGENT_FORGE_OFFLINE", value_parser = BoolishValueParser::new())]
    pub offline: bool,
}

/// Runs a command.
///
/// # Errors
/// It could not find out. The message says what to do.
pub async fn run(args: &Args, command: &Command) -> anyhow::Result<Verdict> {
    let mut command = command.clone();
    if let Some(place) = command.place() {
        place.settle(&args.target);
    }
    match &command {
        Command::Iso(asked) => iso::run(args, asked).await,
        Command::Explain(asked) => explain::run(args, asked).await,
        Command::Plan(asked) => plan::run(args, asked).await,
        Command::Orphans(asked) => orphans::run(args, asked).await,
        Command::Adopt(asked) => adopt::run(args, asked).await,
        Command::Move(asked) => moves::run(args, asked).await,
        Command::Privileges(asked) => privileges::run(asked),
        Command::Validate(asked) => validate::run(asked),
        Command::Doctor(asked) => doctor::run(args, asked).await,
        Command::Hosts(asked) => hosts::run(args, asked).await,
        Command::Top(asked) => top::run(args, asked).await,
        Command::Reasons(asked) => reasons::run(asked),
        Command::Collect(asked) => collect::run(args, asked).await,
        Command::Completion(asked) => cli::completion(asked),
        Command::Man(asked) => cli::man(asked),
    }
}
