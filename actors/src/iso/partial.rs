//! Names of files that are on their way, and the proof that no flight writes to one any more.
//!
//! A name shows its writer: `<source>.partial-<owner>-<run>-<flight>`. The owner is this cache of this management
//! cluster, of which only one runs at a time. The run is one life of that actor. So a file of our own from another run
//! is dead. Of this run, all files are dead except that of the flight that writes. No flight number is used twice. A
//! file of another owner is left alone, unless it was not written for [`ABANDONED`], many times longer than a transfer
//! may take.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::msg::IsoKey;

/// A partial file of another cluster that did not change for that long has no writer. The time is long because the
/// datastore's clock is not ours.
pub(super) const ABANDONED: Duration = Duration::from_secs(24 * 3600);

const INFIX: &str = ".partial-";

/// Whose partial files these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    owner: String,
    run: String,
}

impl Origin {
    /// The cache `key` of the cluster `cluster_id`, in the run that began at `born`.
    #[must_use]
    pub fn new(cluster_id: &str, key: &IsoKey, born: Timestamp) -> Self {
        Self {
            owner: short(&format!("{cluster_id}\n{key}")),
            run: short(&born.as_nanosecond().to_string()),
        }
    }

    /// Name of the partial file of flight number `flight`.
    #[must_use]
    pub fn name(&self, source_key: &str, flight: u64) -> String {
        let (source, flight) = (digest(source_key, 8), number(flight));
        format!("{source}{INFIX}{}-{}-{flight}", self.owner, self.run)
    }

    /// Whether a file of this name, last changed at `modified`, is proven to have no writer. `writes`: the flight of
    /// this run that may write, as it was known after the file was seen.
    pub(super) fn is_dead(
        &self,
        name: &str,
        writes: Option<u64>,
        modified: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let Some((owner, run, flight)) = parse(name) else {
            return false;
        };
        if owner == self.owner {
            return run != self.run || writes.is_none_or(|id| number(id) != flight);
        }
        modified.is_some_and(|at| at < now && now.duration_since(at).unsigned_abs() >= ABANDONED)
    }
}

/// Owner, run and flight in a name of this form.
fn parse(name: &str) -> Option<(&str, &str, &str)> {
    let (source, rest) = name.split_once(INFIX)?;
    let mut parts = rest.split('-');
    let (owner, run, flight) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let sound = hex(source, 16) && [owner, run, flight].iter().all(|part| hex(part, 8));
    (sound && parts.next().is_none()).then_some((owner, run, flight))
}

fn number(flight: u64) -> String {
    short(&flight.to_string())
}

fn digest(text: &str, bytes: usize) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..bytes])
}

fn short(text: &str) -> String {
    digest(text, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_proven_dead_is_dead() {
        let at = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).expect("in range");
        let key = |datastore: &str| IsoKey {
            server: "vc".to_owned(),
            datacenter: "dc1".to_owned(),
            datastore: datastore.to_owned(),
        };
        let me = Origin::new("hub", &key("ds1"), at(0));
        let before = Origin::new("hub", &key("ds1"), at(-60));
        let others = [
            Origin::new("another hub", &key("ds1"), at(0)),
            Origin::new("hub", &key("ds2"), at(0)),
        ];
        let day = 24 * 3600;
        for (name, writes, age, dead) in [
            (me.name("k", 1), Some(1), 0, false),
            (me.name("k", 1), Some(1), 9 * day, false),
            (me.name("k", 1), Some(2), 0, true),
            (me.name("k", 1), None, 0, true),
            (before.name("k", 1), Some(1), 0, true),
            (before.name("other", 7), Some(1), 0, true),
            (others[0].name("k", 1), None, day - 1, false),
            (others[0].name("k", 1), None, day, true),
            (others[1].name("k", 1), None, day - 1, false),
            ("rescue.iso".to_owned(), None, 9 * day, false),
            (format!("{}.iso", "0".repeat(64)), None, 9 * day, false),
            (
                "0123456789abcdef.partial-mine".to_owned(),
                None,
                9 * day,
                false,
            ),
            (format!("{}x", before.name("k", 1)), None, 9 * day, false),
            (
                format!("{}-00000000", before.name("k", 1)),
                None,
                9 * day,
                false,
            ),
        ] {
            let judged = me.is_dead(&name, writes, Some(at(-age)), at(0));
            assert_eq!(judged, dead, "{name}, {writes:?} writes, {age} s old");
        }
        let foreign = others[0].name("k", 1);
        assert!(
            !me.is_dead(&foreign, None, None, at(0)),
            "its age is not known"
        );
        assert!(
            !me.is_dead(&foreign, None, Some(at(9 * day)), at(0)),
            "a clock is wrong"
        );
        assert_ne!(me.name("k", 1), me.name("k", 2));
    }
}
