//! A person's wish that a host goes to another pool as soon as it is free (`agent-forge move`). Pure.
//!
//! Guarantee: a wish takes a host from nobody that has it. It says who gets a host that waits in the buffer, and counts for a time
//! only.

use std::collections::BTreeMap;

use agent_forge_crds::{
    agent::VsphereAgent,
    names::{MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{goal, names::ObjectKey};

/// Which pool gets the host, and until when that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The pool.
    pub to: ObjectKey,
    /// The wish means nothing from then on.
    pub until: Timestamp,
}

/// The wish on that VsphereAgent. `None`: there is none, or the host is there.
///
/// # Errors
/// What is wrong with the annotations, as a sentence.
pub fn read(object: &VsphereAgent) -> Result<Option<Wish>, String> {
    let text = |key| object.annotations().get(key).map(String::as_str);
    let Some(to) = text(MOVE_TO_ANNOTATION).filter(|to| !to.is_empty()) else {
        return Ok(None);
    };
    let key = to
        .split_once('/')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty());
    let Some((namespace, name)) = key else {
        return Err(format!(
            "annotation {MOVE_TO_ANNOTATION} is {to:?}, and has no effect: write it as namespace/pool"
        ));
    };
    let until = text(MOVE_UNTIL_ANNOTATION).unwrap_or_default();
    let Ok(until) = until.parse::<Timestamp>() else {
        return Err(format!(
            "annotation {MOVE_UNTIL_ANNOTATION} is {until:?}, so {MOVE_TO_ANNOTATION} has no effect: write a time such as \
             2026-12-24T18:00:00Z"
        ));
    };
    let to = ObjectKey::new(namespace, name);
    Ok((goal::user(object) != to).then_some(Wish { to, until }))
}

/// The pool that is to get the host, if the wish counts at that time.
#[must_use]
pub fn to(object: &VsphereAgent, now: Timestamp) -> Option<ObjectKey> {
    let wish = read(object).ok().flatten();
    wish.filter(|wish| now < wish.until).map(|wish| wish.to)
}

/// What takes the wish off.
#[must_use]
pub fn over(object: &VsphereAgent) -> BTreeMap<String, Option<String>> {
    let keys = [MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION];
    let there = keys
        .into_iter()
        .filter(|key| object.annotations().contains_key(*key));
    there.map(|key| (key.to_owned(), None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NAMESPACE, at, buffered, with};

    fn wished(to: &str, until: &str) -> VsphereAgent {
        with(buffered("a"), |c| {
            let both = [(MOVE_TO_ANNOTATION, to), (MOVE_UNTIL_ANNOTATION, until)];
            let both = both.map(|(k, v)| (k.to_owned(), v.to_owned()));
            c.annotations_mut().extend(both);
        })
    }

    #[test]
    fn a_wish_counts_until_its_time_and_not_where_the_host_is_there() {
        let until = at(100).to_string();
        let object = wished("other/x", &until);
        let there = Some(ObjectKey::new("other", "x"));
        assert_eq!(to(&object, at(99)), there);
        assert_eq!(to(&object, at(100)), None);
        let own = format!("{NAMESPACE}/{}", object.spec.pool_ref.name);
        assert_eq!(to(&wished(&own, &until), at(0)), None);
        assert_eq!(to(&buffered("a"), at(0)), None);
        assert_eq!(over(&object).len(), 2);
        assert!(over(&buffered("a")).is_empty());
    }

    #[test]
    fn what_cannot_be_read_has_no_effect_and_says_so() {
        for (to_, until, words) in [
            ("x", "2026-12-24T18:00:00Z", "namespace/pool"),
            ("other/", "2026-12-24T18:00:00Z", "namespace/pool"),
            ("other/x", "tomorrow", "write a time"),
            ("other/x", "", "write a time"),
        ] {
            let object = wished(to_, until);
            assert_eq!(to(&object, at(0)), None);
            let said = read(&object).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
