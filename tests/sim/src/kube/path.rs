//! Reads from a request's path what it asks for.

use super::store::{Kind, Name};

/// A request's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The resources of a group version, or the versions of a group.
    Discovery {
        /// Group.
        group: String,
        /// Version. Empty: the versions are asked for.
        version: String,
    },
    /// A kind in one namespace, or in all (empty namespace).
    Collection {
        /// Kind.
        kind: Kind,
        /// Version.
        version: String,
        /// Namespace.
        namespace: String,
    },
    /// An object.
    Object {
        /// Kind.
        kind: Kind,
        /// Version.
        version: String,
        /// Namespace and name.
        name: Name,
        /// Whether the path names the status subresource.
        status: bool,
    },
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
    let version = version.to_owned();
    let kind = |plural: &str| (group.to_owned(), plural.to_owned());
    let object = |plural: &str, namespace: &str, name: &str, status| Target::Object {
        kind: kind(plural),
        version: version.clone(),
        name: (namespace.to_owned(), name.to_owned()),
        status,
    };
    let collection = |plural: &str, namespace: &str| Target::Collection {
        kind: kind(plural),
        version: version.clone(),
        namespace: namespace.to_owned(),
    };
    Some(match rest {
        [] => Target::Discovery {
            group: group.to_owned(),
            version,
        },
        ["namespaces", namespace, plural, name, "status"] => object(plural, namespace, name, true),
        ["namespaces", namespace, plural, name] => object(plural, namespace, name, false),
        ["namespaces", namespace, plural] => collection(plural, namespace),
        [plural, name] => object(plural, "", name, false),
        [plural] => collection(plural, ""),
        _ => return None,
    })
}
