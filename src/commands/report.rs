//! How commands print what they found, and what their exit code says.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use agent_forge_actors::domain::text;
use agent_forge_crds::docs;
use anyhow::Context as _;
use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// What a command found. It is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Exit code 0: nothing to do.
    Nothing,
    /// Exit code 1: a person should look at it.
    Findings,
    /// Exit code 2: it could not find out.
    Unknown,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Nothing => Self::SUCCESS,
            Verdict::Findings => Self::from(1),
            Verdict::Unknown => Self::from(2),
        }
    }
}

/// What a command found.
pub trait Report: Serialize {
    /// For people.
    fn text(&self) -> String;
    /// Whether a person should look at it.
    fn verdict(&self) -> Verdict;
    /// The text for people with colours, for a terminal.
    fn painted(&self, text: String) -> String {
        text
    }
}

/// Prints the report to standard output, with the addresses of the pages that it names.
///
/// # Errors
/// Standard output is closed.
pub fn print(report: &impl Report, output: Output) -> anyhow::Result<Verdict> {
    let text = match output {
        Output::Table if has_colours() => report.painted(visible(&report.text())),
        Output::Table => visible(&report.text()),
        Output::Json => {
            escaped(&serde_json::to_string_pretty(report).context("printing JSON")?) + "\n"
        }
        Output::Yaml => serde_saphyr::to_string(report).context("printing YAML")?,
    };
    write(&docs::linked(&text))?;
    Ok(report.verdict())
}

/// Whether standard output is a terminal, and the person has nothing against colours (no-color.org).
fn has_colours() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    std::io::stdout().is_terminal() && !is_unwanted
}

/// Prints a text to standard output.
///
/// # Errors
/// Standard output is closed.
pub fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("printing")
}

/// The text without what would steer a terminal. Names and messages are of others: a control character, or one that
/// changes the direction of writing, becomes a replacement character. Lines and tabs stay.
#[must_use]
pub fn visible(text: &str) -> String {
    let steers = |c: char| text::steers(c) && !['\n', '\t'].contains(&c);
    text.replace(steers, "\u{fffd}")
}

/// JSON with the same meaning, without what would steer a terminal. `serde_json` escapes only the first 32 characters. (YAML is
/// escaped by its own library.)
#[must_use]
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if text::steers(c) && c != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

/// A sentence of others on one line: each piece of white space is a blank.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Rows below a header. Each column is as wide as its widest cell.
#[must_use]
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    let fold = |cell: String| match cell.contains(['\n', '\r', '\t']) {
        true => one_line(&cell),
        false => cell,
    };
    let rows = rows
        .into_iter()
        .map(|row| row.into_iter().map(fold).collect());
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells.map(|(c, width)| format!("{c:<width$}  ")).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Formats the time since `then` as kubectl does.
#[must_use]
pub fn age(now: Timestamp, then: Timestamp) -> String {
    span(now.duration_since(then).as_secs())
}

/// Formats a number of seconds as kubectl does, in its largest unit.
#[must_use]
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_blanks_at_their_end() {
        let rows = [["a", ""], ["longer", "x"]].map(|row| row.map(str::to_owned).to_vec());
        let text = table(&["N", "WHAT"], rows);
        assert_eq!(text, "N       WHAT\na\nlonger  x\n");
    }

    /// Whoever may annotate an object must not be able to write a line of the report, or to steer the terminal.
    #[test]
    fn texts_of_others_neither_steer_the_terminal_nor_make_lines() {
        let text = "a \u{1b}[2J\u{7}b\u{202e}c\n\td\r";
        assert_eq!(
            visible(text),
            "a \u{fffd}[2J\u{fffd}b\u{fffd}c\n\td\u{fffd}"
        );
        assert_eq!(one_line("not\n ready\r\n"), "not ready");
        let json = serde_json::to_string_pretty(&[text, "\u{9b}2J\u{7f}é"]).expect("JSON");
        let shown = escaped(&json);
        assert!(!shown.contains(|c| text::steers(c) && c != '\n'), "{shown}");
        let read: [String; 2] = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read, [text, "\u{9b}2J\u{7f}é"]);
        let row = ["a\nb", "c"].map(str::to_owned).to_vec();
        assert_eq!(table(&["N", "WHAT"], [row]), "N    WHAT\na b  c\n");
    }

    #[test]
    fn ages_are_in_the_largest_unit() {
        for (seconds, text) in [(-3, "0s"), (119, "119s"), (7199, "119m"), (172_800, "2d")] {
            assert_eq!(span(seconds), text);
        }
    }
}
