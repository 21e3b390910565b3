//! Retention that waits: while a VM of ours is in the making nothing is let go, since it is not known yet which ISO it gets
//! into its drive. Where that lasts (a create that vCenter refuses for days), people are told who holds back what. Pure.

use std::time::Duration;

use crate::domain::names::ObjectKey;

/// So long it is nobody's trouble: VMs come one after the other.
const LASTS: Duration = Duration::from_secs(600);

/// Since when (monotonic) old versions have been held back on end, and whether that was told.
#[derive(Debug, Default)]
pub struct Held(Option<(Duration, bool)>);

impl Held {
    /// `files` old versions stay because of `child`, whose VM may be in the making: what to tell of it, once in the time that
    /// it lasts.
    pub fn by(&mut self, child: &ObjectKey, files: usize, now: Duration) -> Option<String> {
        let (since, told) = self.0.get_or_insert((now, false));
        if *told || now.saturating_sub(*since) < LASTS {
            return None;
        }
        *told = true;
        Some(format!(
            "old versions held back for {} minutes: {files}. None is removed while a VM may be in the making, and VsphereAgent \
             {child} has the identity of one on record and no VM yet; see its status",
            LASTS.as_secs() / 60
        ))
    }

    /// Nothing is held back.
    pub fn over(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once() {
        let (child, minute) = (ObjectKey::new("demo", "a"), Duration::from_secs(60));
        let mut held = Held::default();
        let told = |from: u32, held: &mut Held| {
            let times = (from..from + 30).filter_map(|n| held.by(&child, 2, n * minute));
            times.collect::<Vec<_>>()
        };
        let said = told(0, &mut held);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("10 minutes: 2") && said[0].contains("demo/a"));
        assert_eq!(told(30, &mut held).len(), 0);
        held.over();
        assert_eq!(told(60, &mut held).len(), 1, "held back anew");
        for n in 90..150 {
            assert_eq!(held.by(&child, 2, n * minute), None);
            held.over();
        }
    }
}
