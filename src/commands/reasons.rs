//! `agent-forge reasons`: what a reason means, who can end the wait, and what that person does.

use std::io::Write as _;

use agent_forge_crds::{conditions::Reason, docs::linked};
use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::report::Verdict;

/// Which reason.
#[derive(Clone, Debug, ClapArgs)]
pub struct ReasonsArgs {
    /// A reason as a status shows it, such as AgentBound. Default: all, one line each.
    pub word: Option<String>,
}

/// Prints one reason, or all.
///
/// # Errors
/// No reason has that word, or standard output is closed.
pub fn run(asked: &ReasonsArgs) -> anyhow::Result<Verdict> {
    let text = match &asked.word {
        Some(word) => one(word)?,
        None => all(),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(linked(&text).as_bytes())
        .context("printing")?;
    Ok(Verdict::Nothing)
}

fn one(word: &str) -> anyhow::Result<String> {
    let mut all = Reason::ALL.iter();
    let reason = all.find(|r| r.as_str().eq_ignore_ascii_case(word));
    let reason = reason.with_context(|| {
        format!(
            "{word:?} is no reason of this release. If a status shows it, vCenter gave its fault that name, and the message beside it \
             has vCenter's sentence. agent-forge reasons lists all"
        )
    })?;
    let about = reason.about();
    Ok(format!(
        "{reason}: {}\n  goes on  {}\n  who      {}\n  remedy   {}\n  page     {}\n",
        about.meaning,
        about.class.words(),
        about.who.words(),
        about.remedy,
        about.section.page()
    ))
}

fn all() -> String {
    let row = |reason: &Reason| {
        let about = reason.about();
        format!(
            "{:<26} {:<9} {}\n",
            reason.as_str(),
            about.class.word(),
            about.meaning
        )
    };
    Reason::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_explained_in_any_case_and_an_unknown_one_says_what_it_may_be() {
        for word in ["AgentBound", "agentbound"] {
            let text = one(word).expect("known");
            assert!(text.starts_with("AgentBound: The Agent serves"), "{text}");
            assert!(
                text.contains("  page     docs/reference/reasons.md#deletion"),
                "{text}"
            );
        }
        let unknown = one("SystemError").expect_err("vCenter's own");
        assert!(
            unknown
                .to_string()
                .contains("vCenter gave its fault that name")
        );
    }

    #[test]
    fn each_reason_has_a_line() {
        let text = all();
        assert_eq!(text.lines().count(), Reason::ALL.len());
        let begins = |reason: &&Reason| !text.lines().any(|l| l.starts_with(&format!("{reason} ")));
        assert_eq!(Reason::ALL.iter().find(begins), None);
    }
}
