//! What a Namespace or a Secret allows pools of other namespaces: the one rule for the annotation `allow-pools-from`.
//!
//! Guarantee: an annotation that is missing, empty or misspelled allows no pool.

/// Entry that allows pools of every namespace.
const ALL: &str = "*";

/// Whether the value of [`ALLOW_POOLS_FROM_ANNOTATION`](agent_forge_crds::names::ALLOW_POOLS_FROM_ANNOTATION) on a Namespace
/// or a Secret allows pools of `pool_namespace`. Entries are separated by commas, trimmed, and compared exactly; `*` allows
/// all.
#[must_use]
pub fn allows(annotation: Option<&str>, pool_namespace: &str) -> bool {
    let entries = annotation.into_iter().flat_map(|text| text.split(','));
    let mut named = entries.map(str::trim).filter(|entry| !entry.is_empty());
    named.any(|entry| entry == ALL || entry == pool_namespace)
}

/// Which of two namespaces that share hosts does not admit pools of the other one: first that one, then the other. `grant`: the
/// annotation of a namespace. `None`: both do, or they are one.
#[must_use]
pub fn refusing(
    one: &str,
    other: &str,
    grant: impl Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    let mut both = [(one, other), (other, one)].into_iter();
    let refused = both.find(|(to, from)| to != from && !allows(grant(to).as_deref(), from));
    refused.map(|(to, from)| (to.to_owned(), from.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exact_entry_or_the_star_admits_a_namespace() {
        for (annotation, namespace, admitted) in [
            (None, "a", false),
            (Some(""), "a", false),
            (Some("a"), "a", true),
            (Some("a"), "b", false),
            (Some(" a , b "), "b", true),
            (Some("a,b"), "c", false),
            (Some("*"), "c", true),
            (Some("a, *"), "c", true),
            // Only a lone star is a pattern. Upper and lower case differ.
            (Some("a*"), "ab", false),
            (Some("A"), "a", false),
            (Some("ab"), "a", false),
            (Some("a b"), "a", false),
            (Some("a;b"), "a", false),
            // An empty entry does not allow a pool without a namespace.
            (Some(",,"), "", false),
        ] {
            let said = allows(annotation, namespace);
            assert_eq!(said, admitted, "{annotation:?} for {namespace:?}");
        }
    }
}
