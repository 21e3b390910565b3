//! Names: keys of Kubernetes objects, managed object references, datastore paths.

use std::fmt;

/// `namespace/name` of a namespaced Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Key of `namespace/name`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Key of an object; objects without a namespace get the empty one.
    pub fn of<K: kube::ResourceExt>(object: &K) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// vSphere managed object reference (`VirtualMachine` `vm-42`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoRef {
    /// Managed object type, e.g. `VirtualMachine`.
    pub kind: String,
    /// Identifier within this vCenter, e.g. `vm-42`.
    pub id: String,
}

impl MoRef {
    /// A reference of type `kind` with identifier `id`.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            id: id.into(),
        }
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// A file or directory on a datastore, written `[datastore] path` (vSphere's datastore path notation).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatastorePath {
    /// Datastore name.
    pub datastore: String,
    /// Path below the datastore's root, without leading slash.
    pub path: String,
}

/// Why a text is not a usable datastore path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDatastorePath {
    /// Not of the form `[datastore] path`.
    #[error("{0:?} is not of the form `[datastore] path`")]
    Form(String),
    /// A segment is empty, `.` or `..`, or holds a control character. Or the path begins with a space, which
    /// `[datastore] path` does not show.
    #[error("path {0:?} begins with a space, or has an empty, relative or unprintable segment")]
    Segment(String),
    /// The datastore's name is empty or holds a bracket.
    #[error("datastore name {0:?} is empty or holds a bracket")]
    Datastore(String),
}

impl DatastorePath {
    /// Checks and joins datastore name and path. An empty path names the datastore's root.
    ///
    /// # Errors
    /// [`BadDatastorePath`] for anything that could name a place other than the one written.
    pub fn new(datastore: &str, path: &str) -> Result<Self, BadDatastorePath> {
        if datastore.is_empty()
            || datastore.contains(['[', ']'])
            || datastore.chars().any(char::is_control)
        {
            return Err(BadDatastorePath::Datastore(datastore.to_owned()));
        }
        let trimmed = path.trim_matches('/');
        let bad = |s: &str| {
            s.is_empty() || s == "." || s == ".." || s.chars().any(|c| c.is_control() || c == '\\')
        };
        let blank = trimmed.starts_with(char::is_whitespace);
        if blank || (!trimmed.is_empty() && trimmed.split('/').any(bad)) {
            return Err(BadDatastorePath::Segment(path.to_owned()));
        }
        Ok(Self {
            datastore: datastore.to_owned(),
            path: trimmed.to_owned(),
        })
    }

    /// Parses `[datastore] path`.
    ///
    /// # Errors
    /// [`BadDatastorePath`], as for [`DatastorePath::new`].
    pub fn parse(text: &str) -> Result<Self, BadDatastorePath> {
        let form = || BadDatastorePath::Form(text.to_owned());
        let rest = text.strip_prefix('[').ok_or_else(form)?;
        let (datastore, path) = rest.split_once(']').ok_or_else(form)?;
        Self::new(datastore, path.trim_start())
    }

    /// The directory that holds this file; `None` at the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.path.is_empty() {
            return None;
        }
        let path = self
            .path
            .rsplit_once('/')
            .map_or("", |(dir, _)| dir)
            .to_owned();
        Some(Self {
            datastore: self.datastore.clone(),
            path,
        })
    }

    /// Last segment.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.path
            .rsplit_once('/')
            .map_or(self.path.as_str(), |(_, name)| name)
    }

    /// A path below this directory.
    ///
    /// # Errors
    /// [`BadDatastorePath`], as for [`DatastorePath::new`].
    pub fn join(&self, name: &str) -> Result<Self, BadDatastorePath> {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.path)
        };
        Self::new(&self.datastore, &path)
    }

    /// Do both name one file? On vSAN and vVol a top-level directory is an object with a name and an id
    /// (`DatastoreNamespaceManager`). vCenter accepts either. It may show the id where the caller gave the name.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        let (Some((top, below)), Some((other_top, other_below))) =
            (self.path.split_once('/'), other.path.split_once('/'))
        else {
            return self == other;
        };
        let one_is_an_id = is_object_id(top) != is_object_id(other_top);
        self.datastore == other.datastore
            && below == other_below
            && (top == other_top || one_is_an_id)
    }
}

/// A uuid (vSAN), also behind `rfc4122.`, or 128 bits behind `naa.` (vVol).
fn is_object_id(name: &str) -> bool {
    let id = name
        .strip_prefix("rfc4122.")
        .or_else(|| name.strip_prefix("naa."))
        .unwrap_or(name);
    id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        && id.bytes().filter(u8::is_ascii_hexdigit).count() == 32
}

impl fmt::Display for DatastorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.datastore, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datastore_paths_round_trip() {
        for text in ["[ds 1] a/b.iso", "[ds1] ", "[ds1] vm/vm.vmx"] {
            assert_eq!(DatastorePath::parse(text).expect(text).to_string(), text);
        }
        let p = DatastorePath::parse("[ds] a/b/c.iso").expect("path");
        assert_eq!(p.parent().expect("parent").to_string(), "[ds] a/b");
        assert_eq!(p.file_name(), "c.iso");
    }

    #[test]
    fn a_directory_at_the_top_may_go_by_its_id() {
        let id = "59427457-6c5a-a917-7997-0200103eedbc";
        let path = |text: &str| DatastorePath::parse(text).expect(text);
        for (one, other, same) in [
            (
                "[ds] isos/a.iso".to_owned(),
                "[ds] isos/a.iso".to_owned(),
                true,
            ),
            (
                "[ds] isos/a.iso".to_owned(),
                format!("[ds] {id}/a.iso"),
                true,
            ),
            (
                format!("[ds] {id}/ns/a.iso"),
                "[ds] isos/ns/a.iso".to_owned(),
                true,
            ),
            (
                "[ds] isos/a.iso".to_owned(),
                format!("[ds] rfc4122.{id}/a.iso"),
                true,
            ),
            (
                "[ds] isos/a.iso".to_owned(),
                "[ds] naa.600c0ff00025d3a1b2c3d45501000000/a.iso".to_owned(),
                true,
            ),
            (
                "[ds] isos/a.iso".to_owned(),
                "[ds] others/a.iso".to_owned(),
                false,
            ),
            (
                "[ds] isos/a.iso".to_owned(),
                format!("[ds] {id}/b.iso"),
                false,
            ),
            (
                "[ds] isos/a.iso".to_owned(),
                format!("[other] {id}/a.iso"),
                false,
            ),
            (
                "[ds] isos/ns/a.iso".to_owned(),
                format!("[ds] isos/{id}/a.iso"),
                false,
            ),
            (
                format!("[ds] {id}/a.iso"),
                format!("[ds] {}/a.iso", id.replace('5', "6")),
                false,
            ),
            ("[ds] a.iso".to_owned(), "[ds] a.iso".to_owned(), true),
            ("[ds] a.iso".to_owned(), format!("[ds] {id}/a.iso"), false),
        ] {
            let (one, other) = (path(&one), path(&other));
            assert_eq!(one.is_same_file(&other), same, "{one}, {other}");
            assert_eq!(other.is_same_file(&one), same, "{other}, {one}");
        }
    }

    #[test]
    fn paths_that_could_leave_their_place_are_refused() {
        for bad in [
            "ds1 x",
            "[ds",
            "[] x",
            "[ds] ../x",
            "[ds] a//b",
            "[ds] a/./b",
            "[ds] a\\b",
            "[ds] a\nb",
            "[ds] / a",
        ] {
            assert!(DatastorePath::parse(bad).is_err(), "{bad}");
        }
    }
}
