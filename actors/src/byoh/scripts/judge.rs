//! Whether the agent of BYOH can run a script that a user gives.

/// The name of the one key that the agent replaces, as Go's `text/template` reads it.
const KEY: &str = ".BundleDownloadPath";

/// What Go's `text/template` takes for space inside an action.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The longest script, in bytes. Linux takes 128 KiB for one argument of a program (`MAX_ARG_STRLEN`); the rest is for paths.
const LONGEST: usize = 120 * 1024;

/// Why a script is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct RefusedTemplate {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there, in words.
    pub what: String,
}

/// Accepts a script whose only actions are `{{.BundleDownloadPath}}`. Space around the key and trim markers (`{{-`, `-}}`) are
/// allowed as in Go. Another key would become `<no value>` without an error, and anything else may fail on the host.
///
/// # Errors
/// The first place that the agent cannot run.
pub fn judge_template(text: &str) -> Result<(), RefusedTemplate> {
    let refused = |at: usize, what: String| {
        let line = text.as_bytes()[..at].split(|b| *b == b'\n').count();
        Err(RefusedTemplate { line, what })
    };
    if text.len() > LONGEST {
        let what = format!("the script is longer than {LONGEST} bytes");
        return refused(LONGEST, what);
    }
    if let Some(at) = text.find('\0') {
        return refused(at, "a NUL byte cannot be in a script".to_owned());
    }
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        let inside = &rest[at + 2..];
        let Some(after) = after_key(inside) else {
            let action = inside.split(['}', '\n']).next().unwrap_or_default();
            let action: String = action.chars().take(60).collect();
            let what = format!("the agent of BYOH replaces {{{{{KEY}}}}} only, not `{{{{{action}`");
            return refused(text.len() - inside.len(), what);
        };
        rest = after;
    }
    Ok(())
}

/// What follows the action, if it is the key. `inside` begins after `{{`.
fn after_key(inside: &str) -> Option<&str> {
    let trimmed = inside.strip_prefix('-');
    let trimmed = trimmed.filter(|rest| rest.starts_with(SPACE));
    let begin = trimmed.unwrap_or(inside).trim_start_matches(SPACE);
    let behind = begin.strip_prefix(KEY)?;
    let end = behind.trim_start_matches(SPACE);
    // A trim marker has space before it.
    let marker = (end.len() < behind.len()).then_some("-}}");
    let trims = marker.and_then(|marker| end.strip_prefix(marker));
    trims.or_else(|| end.strip_prefix("}}"))
}
