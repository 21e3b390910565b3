//! The API server's audit log: who requested what, with counts.
//!
//! It is independent of the operator. Writes per machine and idle requests are counted here.

use std::{
    collections::{BTreeMap, HashSet},
    fmt, fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// The audit log of one API server. What reads it fails as [`AuditLog::entries`] does.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    /// Earlier bytes are left out.
    from: u64,
}

/// One answered request, without its body (`audit.k8s.io/v1`, level Metadata).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The id of the request. A watch has two lines with the same id.
    #[serde(rename = "auditID")]
    id: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// The user. It is empty if the request was given up before the user was known.
    pub user: User,
    /// The client's `User-Agent`.
    #[serde(default)]
    pub user_agent: String,
    /// The object of the request; `None` for paths that are no resource.
    pub object_ref: Option<ObjectRef>,
    /// The answer.
    pub response_status: Option<Status>,
    /// When it reached this stage: for the rest, when it was answered.
    pub stage_timestamp: Timestamp,
    /// `ResponseStarted` for a watch, `ResponseComplete` for the rest, or `Panic`.
    pub stage: String,
}

/// The authenticated user of an [`Entry`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// For a ServiceAccount `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
}

/// The object of an [`Entry`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Plural name.
    pub resource: String,
    /// For instance `status`; else empty.
    pub subresource: String,
    /// Empty for the core group.
    pub api_group: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Empty for lists and collections, and for creates with a generated name.
    pub name: String,
}

/// The answer's status of an [`Entry`].
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
}

/// The kind of a write: verb, plural resource, subresource (or empty).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Plural name.
    pub resource: String,
    /// For instance `status`; else empty.
    pub subresource: String,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.subresource.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.subresource)
        }
    }
}

/// How many writes of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts(pub BTreeMap<Write, usize>);

impl WriteCounts {
    /// All writes.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Writes of one kind. `subresource` is empty for the object itself.
    pub fn of(&self, verb: &str, resource: &str, subresource: &str) -> usize {
        let write = Write {
            verb: verb.into(),
            resource: resource.into(),
            subresource: subresource.into(),
        };
        self.0.get(&write).copied().unwrap_or_default()
    }

    /// The counts without those of `resource`, for instance `leases` or `events`.
    #[must_use]
    pub fn without(mut self, resource: &str) -> Self {
        self.0.retain(|write, _| write.resource != resource);
        self
    }
}

impl fmt::Display for WriteCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (write, count) in &self.0 {
            writeln!(f, "{count:>6}  {write}")?;
        }
        write!(f, "{:>6}  in all", self.total())
    }
}

impl Entry {
    /// Whether it requested a change.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    /// HTTP status code of the answer; 0 if there was none.
    pub fn code(&self) -> u16 {
        self.response_status
            .as_ref()
            .map_or(0, |status| status.code)
    }
}

impl AuditLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, from: 0 }
    }

    /// The same log without what is in it now. A test on a shared API server reads only its own time.
    #[must_use]
    pub fn from_now(&self) -> Self {
        let written = fs::metadata(&self.path).map_or(0, |file| file.len());
        Self {
            path: self.path.clone(),
            from: written,
        }
    }

    /// Entries so far, oldest first, one per request: its answer, or for a watch its start.
    ///
    /// # Errors
    /// The log cannot be read, or a complete line of it is not an audit event.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let read = || {
            let mut file = fs::File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.from.saturating_sub(1)))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        match read() {
            Ok(text) if self.from == 0 => parse(&text),
            // A line may have been half written when this log began.
            Ok(text) => parse(text.split_once('\n').map_or("", |(_, rest)| rest)),
            // The server creates the file with its first entry.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("read {}", self.path.display())),
        }
    }

    /// Number of entries so far: a mark for [`AuditLog::since`].
    pub fn mark(&self) -> Result<usize> {
        Ok(self.entries()?.len())
    }

    /// Entries after a mark.
    pub fn since(&self, mark: usize) -> Result<Vec<Entry>> {
        let mut entries = self.entries()?;
        Ok(entries.split_off(mark.min(entries.len())))
    }

    /// Writes of `user`, accepted and refused (each costs a request), without requests for tokens and reviews.
    pub fn writes(&self, user: &str) -> Result<WriteCounts> {
        Ok(count_writes(&self.entries()?, user))
    }

    /// Requests of `user` that were forbidden (403). Each one shows a missing rule in its RBAC.
    pub fn forbidden(&self, user: &str) -> Result<Vec<Entry>> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.user.username == user && entry.code() == 403);
        Ok(entries)
    }
}

/// Counts the writes of `user` in `entries`.
pub fn count_writes(entries: &[Entry], user: &str) -> WriteCounts {
    let mut counts = BTreeMap::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.user.username == user && entry.is_write())
    {
        let Some(object) = &entry.object_ref else {
            continue;
        };
        // A review is a question that HTTP sends as a create.
        if object.resource.ends_with("reviews") || object.subresource == "token" {
            continue;
        }
        let write = Write {
            verb: entry.verb.clone(),
            resource: object.resource.clone(),
            subresource: object.subresource.clone(),
        };
        *counts.entry(write).or_default() += 1;
    }
    WriteCounts(counts)
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    // The last line may be half written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut seen = HashSet::new();
    let mut entries = Vec::new();
    for line in complete.lines().filter(|line| !line.is_empty()) {
        let entry: Entry =
            serde_json::from_str(line).with_context(|| format!("read an audit event: {line}"))?;
        // The first line of a request stays, so that a mark keeps its meaning while the log grows.
        if seen.insert(entry.id.clone()) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(id: u8, verb: &str, resource: &str, subresource: &str, user: &str) -> String {
        json!({
            "auditID": id.to_string(), "stage": "ResponseComplete", "verb": verb, "requestURI": "/x", "user": {"username": user},
            "objectRef": {"resource": resource, "subresource": subresource}, "responseStatus": {"code": 200},
            "stageTimestamp": "2026-01-02T03:04:05.680000Z"
        })
        .to_string()
    }

    #[test]
    fn only_the_users_own_writes_count() {
        let text = [
            line(1, "patch", "agents", "", "op"),
            line(2, "patch", "agents", "status", "op"),
            line(3, "patch", "agents", "status", "op"),
            line(4, "get", "agents", "", "op"),
            line(5, "create", "selfsubjectaccessreviews", "", "op"),
            line(6, "create", "agents", "", "other"),
        ]
        .join("\n")
            + "\n{\"half\":";
        let entries = parse(&text).expect("complete lines");
        let counts = count_writes(&entries, "op");
        assert_eq!(
            (
                counts.total(),
                counts.of("patch", "agents", "status"),
                counts.of("patch", "agents", "")
            ),
            (3, 2, 1)
        );
        assert_eq!(counts.without("agents").total(), 0);
    }

    #[test]
    fn who_was_not_known_yet_when_the_request_was_given_up_is_nobody() {
        let of_nobody = line(1, "get", "secrets", "", "op").replace(r#"{"username":"op"}"#, "{}");
        let text = [of_nobody, line(2, "patch", "agents", "", "op")].join("\n") + "\n";
        let entries = parse(&text).expect("complete lines");
        assert_eq!(entries[0].user.username, "");
        assert_eq!(count_writes(&entries, "op").total(), 1);
    }

    #[test]
    fn a_request_with_two_stages_is_one_entry() {
        let text = [
            line(1, "watch", "agents", "", "op"),
            line(2, "get", "agents", "", "op"),
            line(1, "watch", "agents", "", "op"),
        ];
        let entries = parse(&(text.join("\n") + "\n")).expect("complete lines");
        assert_eq!(
            entries
                .iter()
                .map(|entry| entry.verb.as_str())
                .collect::<Vec<_>>(),
            ["watch", "get"]
        );
    }
}
