//! What people read: figures, lists and the report.

use std::{fmt::Write as _, fs};

use super::{
    checkout::Checkout,
    parts::Part,
    records::{Outcome, Record},
};

/// A part with its result, if it has one.
pub(super) type Row = (Part, Option<Record>);

impl Outcome {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::TooLong => "too long",
            Self::NotRun => "not run",
        }
    }
}

/// Seconds as `1h02m03s`, without leading zeros.
pub(super) fn time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds:02}s"),
        _ => format!("{hours}h{minutes:02}m{seconds:02}s"),
    }
}

/// The line of a log that has the result in numbers. For `cargo test`, the sum over its programs.
pub(super) fn figures(log: &str, is_test: bool) -> String {
    if is_test && let Some(sum) = test_results(log) {
        return sum;
    }
    let known = [" failed, ", " states by ", " mutants tested"];
    let has_digit = |line: &&str| line.contains(|c: char| c.is_ascii_digit());
    let numbers = || log.lines().map(str::trim).filter(has_digit);
    let result = numbers().rfind(|line| known.iter().any(|word| line.contains(word)));
    result
        .or_else(|| numbers().next_back())
        .unwrap_or_default()
        .to_owned()
}

/// The sum of lines such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`. `None` without one.
fn test_results(log: &str) -> Option<String> {
    let results = log
        .lines()
        .filter_map(|l| l.trim().strip_prefix("test result: "));
    let (mut programs, mut passed, mut failed, mut ignored) = (0, 0, 0, 0);
    for result in results {
        programs += 1;
        for item in result.split([';', '.']) {
            let mut words = item.split_whitespace();
            let (number, what) = (words.next(), words.next());
            let number: u64 = number.and_then(|n| n.parse().ok()).unwrap_or_default();
            match what {
                Some("passed") => passed += number,
                Some("failed") => failed += number,
                Some("ignored") => ignored += number,
                _ => {}
            }
        }
    }
    let sum = format!("{passed} passed, {failed} failed, {ignored} ignored in {programs} programs");
    (programs > 0).then_some(sum)
}

/// Cores and memory of this machine.
pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let memory = kib.map_or("unknown memory".into(), |k| {
        format!("{:.0} GiB", k / 1024.0 / 1024.0)
    });
    format!("{cores} cores, {memory}")
}

/// One line for each part.
pub(super) fn list(rows: &[Row]) -> String {
    let mut out = String::new();
    for (part, record) in rows {
        let word = record.as_ref().map_or("-", |r| r.outcome.word());
        let _ = writeln!(out, "{:<44} {word:<9} {}", part.name, part.proves);
    }
    out
}

/// How many parts ended in which way, in words.
pub(super) fn summary(rows: &[Row]) -> String {
    let count = |wanted: Option<Outcome>| {
        let same = |row: &&Row| row.1.as_ref().map(|r| r.outcome) == wanted;
        rows.iter().filter(same).count()
    };
    let mut text = format!(
        "{} of {} parts passed",
        count(Some(Outcome::Passed)),
        rows.len()
    );
    for outcome in [Outcome::Failed, Outcome::TooLong, Outcome::NotRun] {
        match count(Some(outcome)) {
            0 => {}
            n => {
                let _ = write!(text, ", {n} {}", outcome.word());
            }
        }
    }
    match count(None) {
        0 => {}
        n => {
            let _ = write!(text, ", {n} without a result");
        }
    }
    text
}

/// The report, as Markdown.
pub(super) fn markdown(checkout: &Checkout, seed: u64, machine: &str, rows: &[Row]) -> String {
    let records = || rows.iter().filter_map(|(_, record)| record.as_ref());
    let date = records().map(|r| r.date).max();
    let date = date.map_or("-".into(), |d| d.strftime("%Y-%m-%d %H:%M UTC").to_string());
    let dirty = if checkout.dirty {
        ", with changes that are not committed"
    } else {
        ""
    };
    let all = time(records().map(|r| r.seconds).sum());
    let mut out = format!(
        "# Nightly tests\n\n{} in {all}.\n\n| | |\n|---|---|\n| Date | {date} |\n| Commit | `{}`{dirty} |\n| Seed | {seed} |\n| Machine | {machine} |\n\n",
        summary(rows),
        checkout.commit
    );
    out += "| Part | Result | Time | Figures |\n|---|---|---|---|\n";
    for (part, record) in rows {
        let _ = match record {
            None => writeln!(out, "| `{}` | - | - | |", part.name),
            Some(r) => writeln!(
                out,
                "| `{}` | {} | {} | {} |",
                part.name,
                r.outcome.word(),
                time(r.seconds),
                r.figures.replace('|', "\\|")
            ),
        };
    }
    for (part, record) in rows {
        if let Some(record) = record
            && matches!(record.outcome, Outcome::Failed | Outcome::TooLong)
        {
            out += &failure(part, record);
        }
    }
    out
}

fn failure(part: &Part, record: &Record) -> String {
    format!(
        "\n## {}: {}\n\nIt has to show: {}\n\nRepeat it with `{}`. Its output ends with:\n\n````text\n{}\n````\n",
        part.name,
        record.outcome.word(),
        part.proves,
        record.command,
        record.tail.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::Timestamp;

    use super::{super::parts, *};

    #[test]
    fn times_are_short() {
        let texts = [0, 59, 60, 3599, 3600, 36_125].map(time);
        assert_eq!(
            texts,
            ["0s", "59s", "1m00s", "59m59s", "1h00m00s", "10h02m05s"]
        );
    }

    #[test]
    fn the_figures_of_each_kind_of_output_are_found() {
        let sim = "one_machine: one machine comes up; 20 effects, 300 plans\n\
            2 of 300 failed, 1 as known; 3.2s; hash of all traces 0f\n\n  m1 | 20 0\nError: 2 plans failed\n";
        let model = "1000 states, 3 wait, 10s\n\n\
            310571 states by 1904125 transitions, at most 60 deep, all explored: true, 83s, 900 MiB at most\n";
        let soak = "work  9 VMs made, 9 destroyed\nkept  no process panicked\n";
        let tests = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
            7 warnings\ntest result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 8 filtered out; finished in 2.55s\n";
        for (log, wanted) in [
            (
                sim,
                "2 of 300 failed, 1 as known; 3.2s; hash of all traces 0f",
            ),
            (
                model,
                "310571 states by 1904125 transitions, at most 60 deep, all explored: true, 83s, 900 MiB at most",
            ),
            (soak, "work  9 VMs made, 9 destroyed"),
            (tests, "7 passed, 2 failed, 1 ignored in 2 programs"),
            ("nothing\n", ""),
        ] {
            assert_eq!(figures(log, log == tests), wanted);
        }
    }

    fn rows() -> Vec<Row> {
        let all = parts::all(&parts::Setup {
            workloads: vec!["one_machine".into()],
            seed: 7,
            flake_rounds: 3,
            dir: Path::new("target/nightly/abc"),
        });
        let record = |outcome, figures: &str, command: String| Record {
            outcome,
            command,
            seconds: 61,
            date: Timestamp::UNIX_EPOCH,
            figures: figures.into(),
            tail: vec!["broken promise".into()],
        };
        let result = |part: &Part| match part.name.as_str() {
            "tests" => Some(record(Outcome::Passed, "7 passed", part.command())),
            "soak" => Some(record(Outcome::Failed, "a|b", part.command())),
            "mutants" => Some(record(Outcome::NotRun, "not installed", part.command())),
            _ => None,
        };
        let wanted = ["tests", "it", "soak", "mutants"];
        all.into_iter()
            .filter(|p| wanted.contains(&p.name.as_str()))
            .map(|p| (p.clone(), result(&p)))
            .collect()
    }

    #[test]
    fn the_report_has_results_and_how_to_repeat_failures() {
        let checkout = Checkout {
            commit: "abc".into(),
            dirty: true,
        };
        let text = markdown(&checkout, 7, "2 cores, 24 GiB", &rows());
        assert_eq!(
            text,
            "# Nightly tests\n\n\
            1 of 4 parts passed, 1 failed, 1 not run, 1 without a result in 3m03s.\n\n\
            | | |\n|---|---|\n| Date | 1970-01-01 00:00 UTC |\n\
            | Commit | `abc`, with changes that are not committed |\n| Seed | 7 |\n| Machine | 2 cores, 24 GiB |\n\n\
            | Part | Result | Time | Figures |\n|---|---|---|---|\n\
            | `tests` | passed | 1m01s | 7 passed |\n\
            | `it` | - | - | |\n\
            | `soak` | failed | 1m01s | a\\|b |\n\
            | `mutants` | not run | 1m01s | not installed |\n\n\
            ## soak: failed\n\n\
            It has to show: Every promise holds while 200 machines come and go and the operator is killed every 5 s.\n\n\
            Repeat it with `cargo lab soak --minutes 20`. Its output ends with:\n\n\
            ````text\nbroken promise\n````\n"
        );
    }

    #[test]
    fn the_list_has_one_line_for_each_part() {
        let text = list(&rows());
        let words: Vec<&str> = text
            .lines()
            .filter_map(|l| l.get(45..54).map(str::trim))
            .collect();
        assert_eq!(words, ["passed", "-", "failed", "not run"]);
    }
}
