//! Which namespaces are served: all of them, or those of `--namespaces`.

use std::collections::BTreeSet;

use kube::{Api, Client, Resource, core::NamespaceResourceScope};

/// The namespaces in which objects are watched, read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(BTreeSet<String>);

impl Scope {
    /// These namespaces; all namespaces if the list is empty.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Self {
        let names = namespaces.iter().map(|n| n.trim().to_owned());
        Self(names.filter(|n| !n.is_empty()).collect())
    }

    /// Whether every namespace is served.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The namespace whose uid is the cluster's id, if no flag says it. `own` is the operator's.
    #[must_use]
    pub fn identity<'a>(&self, own: &'a str) -> &'a str {
        match self.is_all() {
            true => "kube-system",
            false => own,
        }
    }

    /// Whether that namespace is served.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.is_all() || self.0.contains(namespace)
    }

    /// The names of `--namespaces`; none if all namespaces are served.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The parts that one watch of a kind covers each.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        if self.is_all() {
            return vec![None];
        }
        self.0.iter().cloned().map(Some).collect()
    }
}

/// What one watch covers: a namespace, or (`None`) all namespaces.
pub type Part = Option<String>;

/// The API for the objects of a part.
pub fn api<K>(client: &Client, part: &Part) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match part {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_named_is_all_and_what_is_named_is_a_watch_each() {
        for (named, parts, serves) in [
            (&[][..], vec![None], [true, true]),
            (&["", " "], vec![None], [true, true]),
            (&["b", " a", "b"], vec![Some("a"), Some("b")], [true, false]),
        ] {
            let named: Vec<String> = named.iter().map(|n| (*n).to_owned()).collect();
            let scope = Scope::of(&named);
            let found = scope.parts();
            let found: Vec<_> = found.iter().map(Option::as_deref).collect();
            assert_eq!(found, parts, "{named:?}");
            assert_eq!(["a", "c"].map(|n| scope.serves(n)), serves, "{named:?}");
            assert_eq!(scope.names().count(), parts.iter().flatten().count());
        }
    }
}
