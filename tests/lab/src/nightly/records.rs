//! The results of all parts for one commit, as files: `<part>.json`, `<part>.log`, and a directory `<part>` if the part
//! keeps more.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// It reached its limit and was killed.
    TooLong,
    /// Something that it needs is missing.
    NotRun,
}

/// The result of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) outcome: Outcome,
    /// The command line that gave this result.
    pub(super) command: String,
    pub(super) seconds: u64,
    /// When it ended.
    pub(super) date: Timestamp,
    /// The line with the figures, or why the part was not run.
    pub(super) figures: String,
    /// The last lines of the output.
    pub(super) tail: Vec<String>,
}

/// Whether a part with this command has to run, given the record of an earlier start.
pub(super) fn is_due(earlier: Option<&Record>, command: &str, failed_too: bool) -> bool {
    let Some(record) = earlier.filter(|r| r.command == command) else {
        return true;
    };
    match record.outcome {
        Outcome::Passed => false,
        Outcome::Failed | Outcome::TooLong => failed_too,
        Outcome::NotRun => true,
    }
}

/// The directory with the results for one commit.
#[derive(Clone, Debug)]
pub(super) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The directory itself.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file with the whole output of a part.
    pub(super) fn log(&self, part: &str) -> PathBuf {
        self.dir.join(format!("{part}.log"))
    }

    fn file(&self, part: &str) -> PathBuf {
        self.dir.join(format!("{part}.json"))
    }

    /// The result of a part, if it has one.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub(super) fn get(&self, part: &str) -> Result<Option<Record>> {
        read_json(&self.file(part))
    }

    /// Keeps the result of a part.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn put(&self, part: &str, record: &Record) -> Result<()> {
        write_json(&self.file(part), record)
    }

    /// Removes everything that is kept of a part.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(super) fn forget(&self, part: &str) -> Result<()> {
        let removed = [
            fs::remove_file(self.file(part)),
            fs::remove_file(self.log(part)),
            fs::remove_dir_all(self.dir.join(part)),
        ];
        removed
            .into_iter()
            .filter(|r| !matches!(r, Err(e) if e.kind() == io::ErrorKind::NotFound))
            .collect::<io::Result<()>>()
            .with_context(|| format!("forget {part}"))
    }
}

/// What a file has. `None` if it does not exist.
///
/// # Errors
/// The file exists and cannot be read.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read
            .map_err(anyhow::Error::from)
            .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
            .with_context(|| format!("read {}", path.display())),
    }
}

/// Writes a file. A reader finds the whole new text or what was there before.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec_pretty(value)?)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("write {}", path.display()))
}

/// The last `count` lines.
pub(super) fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(count)..];
    last.iter().map(|&line| line.to_owned()).collect()
}

/// The text of a log. What is not UTF-8 is replaced.
///
/// # Errors
/// It cannot be read.
pub(super) fn text_of(log: &Path) -> Result<String> {
    let bytes = fs::read(log).with_context(|| format!("read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcome: Outcome) -> Record {
        Record {
            outcome,
            command: "true".into(),
            seconds: 3,
            date: Timestamp::UNIX_EPOCH,
            figures: "0 of 7 failed".into(),
            tail: vec!["one".into(), "two".into()],
        }
    }

    #[test]
    fn a_second_start_finds_the_results_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Records::new(dir.path().to_owned());
        assert_eq!(open().get("sim").unwrap(), None);
        open().put("sim", &record(Outcome::Failed)).unwrap();
        assert_eq!(open().get("sim").unwrap(), Some(record(Outcome::Failed)));
        open().put("sim", &record(Outcome::Passed)).unwrap();
        assert_eq!(open().get("sim").unwrap(), Some(record(Outcome::Passed)));
        assert_eq!(open().get("model").unwrap(), None);
    }

    #[test]
    fn a_forgotten_part_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        records.forget("flakes").unwrap();
        records.put("flakes", &record(Outcome::Failed)).unwrap();
        records.put("soak", &record(Outcome::Passed)).unwrap();
        fs::write(records.log("flakes"), "text").unwrap();
        fs::create_dir(dir.path().join("flakes")).unwrap();
        fs::write(dir.path().join("flakes").join("counts.json"), "{}").unwrap();
        records.forget("flakes").unwrap();
        let left = fs::read_dir(dir.path()).unwrap();
        let left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["soak.json"]);
    }

    #[test]
    fn a_half_written_result_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("sim.json"), "{").unwrap();
        let records = Records::new(dir.path().to_owned());
        let error = records.get("sim").unwrap_err();
        assert!(format!("{error:#}").contains("sim.json"), "{error:#}");
    }

    #[test]
    fn only_what_has_no_result_is_due() {
        use Outcome::{Failed, NotRun, Passed, TooLong};
        assert!(is_due(None, "true", false));
        for (outcome, due, due_if_failed_too) in [
            (Passed, false, false),
            (Failed, false, true),
            (TooLong, false, true),
            (NotRun, true, true),
        ] {
            let earlier = record(outcome);
            let is = |failed_too| is_due(Some(&earlier), "true", failed_too);
            assert_eq!(
                [is(false), is(true)],
                [due, due_if_failed_too],
                "{outcome:?}"
            );
            assert!(is_due(Some(&earlier), "true --more", false), "{outcome:?}");
        }
    }
}
