//! The command line itself: its name as a plugin of kubectl, completion scripts and man pages.

use std::{io::Write as _, path::PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Command as Cli, CommandFactory as _, FromArgMatches as _};
use clap_complete::Shell;

use super::report::Verdict;
use crate::args::Args;

/// Name of the file with which kubectl offers this binary as `kubectl agent-forge`.
const PLUGIN: &str = "kubectl-agent_forge";

/// For which shell.
#[derive(Clone, Debug, ClapArgs)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Where man pages go.
#[derive(Clone, Debug, ClapArgs)]
pub struct ManArgs {
    /// An existing directory.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// The command line as this file's name asks for it: help of a plugin says `kubectl agent-forge`.
fn named(file: &str) -> Cli {
    let cli = Args::command();
    let plugin = PathBuf::from(file);
    if plugin.file_stem().is_some_and(|name| name == PLUGIN) {
        return cli.bin_name("kubectl agent-forge");
    }
    cli
}

/// Parses the command line of this process. If it is wrong, the process ends with exit code 2.
#[must_use]
pub fn parse() -> Args {
    let file = std::env::args().next().unwrap_or_default();
    let cli = named(&file);
    let matches = cli.get_matches();
    Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
}

/// Prints the completion script of a shell.
///
/// # Errors
/// Standard output is closed.
pub fn completion(asked: &CompletionArgs) -> anyhow::Result<Verdict> {
    let mut script = Vec::new();
    clap_complete::generate(
        asked.shell,
        &mut Args::command(),
        "agent-forge",
        &mut script,
    );
    let mut out = std::io::stdout().lock();
    out.write_all(&script).context("printing")?;
    Ok(Verdict::Nothing)
}

/// Writes one man page for each command.
///
/// # Errors
/// The directory does not exist or cannot be written.
pub fn man(asked: &ManArgs) -> anyhow::Result<Verdict> {
    let directory = &asked.directory;
    clap_mangen::generate_to(Args::command(), directory)
        .with_context(|| format!("writing man pages into {}", directory.display()))?;
    Ok(Verdict::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_the_name_by_which_the_file_was_called() {
        for (file, name) in [
            ("/usr/bin/agent-forge", "Usage: agent-forge "),
            ("kubectl-agent_forge", "Usage: kubectl agent-forge "),
            ("/x/kubectl-agent_forge.exe", "Usage: kubectl agent-forge "),
        ] {
            let help = named(file).render_help().to_string();
            assert!(help.contains(name), "{file}: {help}");
        }
    }

    #[test]
    fn each_command_has_a_man_page_and_is_completed() {
        let directory = tempfile::tempdir().expect("a directory");
        let asked = ManArgs {
            directory: directory.path().to_owned(),
        };
        man(&asked).expect("pages");
        let mut script = Vec::new();
        let mut cli = Args::command();
        clap_complete::generate(Shell::Bash, &mut cli, "agent-forge", &mut script);
        let script = String::from_utf8(script).expect("text");
        for command in Args::command().get_subcommands() {
            let name = command.get_name();
            let page = directory.path().join(format!("agent-forge-{name}.1"));
            assert!(page.exists(), "{name}");
            assert!(script.contains(&format!("agent__forge,{name})")), "{name}");
        }
    }
}
