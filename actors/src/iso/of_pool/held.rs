//! Retention that waits. Old versions of the ISO stay while a VM of ours is in the making. Meanwhile it is unknown
//! which ISO it gets into its drive. If that lasts (a create that vCenter rejects for days), an Event names the
//! VsphereAgent and the number of files.

use std::time::Duration;

use crate::{domain::names::ObjectKey, runtime::announcer::Pace};

/// Up to that time the wait is normal: VMs are made one after the other.
const LASTS: Duration = Duration::from_secs(600);

/// Old versions that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The VsphereAgent whose VM may be in the making.
    pub by: ObjectKey,
    /// How many files stay.
    pub files: usize,
}

impl HeldBack {
    /// When it is announced.
    pub const PACE: Pace = Pace::once(LASTS);

    /// The note of its Event.
    #[must_use]
    pub fn note(&self) -> String {
        format!(
            "old versions held back for {} minutes: {}. None is removed while a VM may be in the making, and VsphereAgent {} \
             has the identity of one on record and no VM yet; see its status",
            LASTS.as_secs() / 60,
            self.files,
            self.by
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::announcer::{Announcer, Due};

    #[test]
    fn what_lasts_is_announced_once() {
        let minute = Duration::from_secs(60);
        let held = HeldBack {
            by: ObjectKey::new("demo", "a"),
            files: 2,
        };
        let note = held.note();
        assert!(
            note.contains("10 minutes: 2") && note.contains("demo/a"),
            "{note}"
        );
        let mut announcer = Announcer::default();
        let mut announced =
            |n: u32| announcer.announce((), "", n * minute, HeldBack::PACE) == Due::Now;
        assert_eq!((0..60).filter(|n| announced(*n)).count(), 1);
        announcer.over(&());
        let mut announced =
            |n: u32| announcer.announce((), "", n * minute, HeldBack::PACE) == Due::Now;
        assert_eq!(
            (60..90).filter(|n| announced(*n)).count(),
            1,
            "held back again"
        );
        let short = (90..150).filter(|n| {
            let now = announcer.announce((), "", *n * minute, HeldBack::PACE) == Due::Now;
            announcer.over(&());
            now
        });
        assert_eq!(short.count(), 0);
    }
}
