//! Reads from a request's path what it asks for.

use super::store::{Kind, Name};

/// A request's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Group and plural.
    pub kind: Kind,
    /// Version.
    pub version: String,
    /// What of that kind.
    pub what: What,
}

/// What of a kind a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The resources of the group version, or the versions of the group if the version is empty. There is no plural.
    Discovery,
    /// All objects of this namespace, or of all (empty namespace).
    Collection(String),
    /// The object of that name. `true`: the path names its status subresource.
    Object(Name, bool),
}

/// Reads a path. `None` for paths that are not simulated.
#[must_use]
pub fn parse(path: &str) -> Option<Target> {
    let all: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match all.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group] => (*group, "", &[][..]),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let object = |namespace: &str, name: &str, status| {
        What::Object((namespace.to_owned(), name.to_owned()), status)
    };
    let (plural, what) = match rest {
        [] => ("", What::Discovery),
        ["namespaces", namespace, plural, name, "status"] => {
            (*plural, object(namespace, name, true))
        }
        ["namespaces", namespace, plural, name] => (*plural, object(namespace, name, false)),
        ["namespaces", namespace, plural] => (*plural, What::Collection((*namespace).to_owned())),
        [plural, name] => (*plural, object("", name, false)),
        [plural] => (*plural, What::Collection(String::new())),
        _ => return None,
    };
    Some(Target {
        kind: (group.to_owned(), plural.to_owned()),
        version: version.to_owned(),
        what,
    })
}
