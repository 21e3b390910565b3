//! The times of the week at which the buffer has another size. Pure.

use std::time::Duration;

use agent_forge_crds::pool::BufferWindow;
use jiff::{
    Timestamp, ToSpan as _, Zoned,
    civil::{Date, Time},
    tz::TimeZone,
};

/// Names of the days, Monday first.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// One window, parsed.
struct Window {
    /// On which days it begins, Monday first.
    days: [bool; 7],
    from: Time,
    to: Time,
    zone: TimeZone,
    hosts: usize,
}

/// What the schedule says at `now`: the number of hosts, `None` outside all windows; and how long until it may say
/// something else, `None` without windows.
///
/// # Errors
/// A window cannot be read: which one, and how it is written.
pub fn at(
    windows: &[BufferWindow],
    now: Timestamp,
) -> Result<(Option<usize>, Option<Duration>), String> {
    let (mut hosts, mut left) = (None, None);
    for (number, window) in windows.iter().enumerate() {
        let window = parse(window).map_err(|why| format!("window {}: {why}", number + 1))?;
        let (open, edge) = window.at(now);
        if open {
            hosts = hosts.max(Some(window.hosts));
        }
        left = [left, edge].into_iter().flatten().min();
    }
    Ok((hosts, left))
}

fn parse(window: &BufferWindow) -> Result<Window, String> {
    let time = |text: &str| {
        text.parse::<Time>()
            .map_err(|_| format!("{text:?} is no time of day; write it as 07:00"))
    };
    let zone = TimeZone::get(&window.time_zone).map_err(|_| {
        format!(
            "{:?} is no time zone; write one such as Europe/Zurich or UTC",
            window.time_zone
        )
    })?;
    Ok(Window {
        days: days(&window.days)?,
        from: time(&window.from)?,
        to: time(&window.to)?,
        zone,
        hosts: usize::try_from(window.buffer_agents).unwrap_or_default(),
    })
}

fn days(text: &str) -> Result<[bool; 7], String> {
    let number = |name: &str| {
        let found = DAYS.iter().position(|day| *day == name);
        found.ok_or_else(|| {
            format!("{text:?} names no days; write them as Mon-Fri or Mon,Wed,Sat-Sun")
        })
    };
    let mut all = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        // `Sat-Mon` goes over the end of the week.
        let length = (last + 7 - first) % 7;
        for day in first..=first + length {
            all[day % 7] = true;
        }
    }
    Ok(all)
}

impl Window {
    /// Whether it is open, and how long until it opens or closes. Where the clock changes, a time that does not exist is
    /// the one after the gap.
    fn at(&self, now: Timestamp) -> (bool, Option<Duration>) {
        let today = Zoned::new(now, self.zone.clone()).date();
        // A window of yesterday may be open; each one opens within eight days.
        let spans =
            (-1..=8).filter_map(|offset: i64| self.on(today.checked_add(offset.days()).ok()?));
        let (mut open, mut next) = (false, None::<Timestamp>);
        for (from, to) in spans {
            open |= from <= now && now < to;
            let later = [from, to].into_iter().filter(|edge| *edge > now).min();
            next = [next, later].into_iter().flatten().min();
        }
        let left = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
        (open, left)
    }

    /// The window that begins on that day.
    fn on(&self, day: Date) -> Option<(Timestamp, Timestamp)> {
        let place = usize::try_from(day.weekday().to_monday_zero_offset()).ok()?;
        if !*self.days.get(place)? {
            return None;
        }
        let end = if self.to > self.from {
            day
        } else {
            day.tomorrow().ok()?
        };
        let at = |day: Date, time: Time| {
            let zoned = day.to_datetime(time).to_zoned(self.zone.clone());
            zoned.ok().map(|zoned| zoned.timestamp())
        };
        Some((at(day, self.from)?, at(end, self.to)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &str, from: &str, to: &str, zone: &str, hosts: i32) -> BufferWindow {
        BufferWindow {
            days: days.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            time_zone: zone.to_owned(),
            buffer_agents: hosts,
        }
    }

    fn says(windows: &[BufferWindow], now: &str) -> (Option<usize>, u64) {
        let (hosts, left) = at(windows, now.parse().expect("a time")).expect("a schedule");
        (hosts, left.map_or(0, |left| left.as_secs() / 60))
    }

    #[test]
    fn the_largest_open_window_counts_until_its_end() {
        let all = [
            window("Mon-Fri", "07:00", "19:00", "Europe/Zurich", 5),
            window("Fri", "16:00", "18:00", "UTC", 9),
        ];
        // 2026-11-26 is a Thursday; Zurich is an hour ahead of UTC.
        assert_eq!(says(&all, "2026-11-26T05:59:00Z"), (None, 1));
        assert_eq!(says(&all, "2026-11-26T06:00:00Z"), (Some(5), 12 * 60));
        assert_eq!(says(&all, "2026-11-26T17:59:00Z"), (Some(5), 1));
        assert_eq!(says(&all, "2026-11-26T18:00:00Z"), (None, 12 * 60));
        assert_eq!(says(&all, "2026-11-27T16:30:00Z"), (Some(9), 90));
        assert_eq!(says(&all, "2026-11-27T18:00:00Z"), (None, 60 * 60));
        assert_eq!(says(&[], "2026-11-27T18:00:00Z"), (None, 0));
    }

    #[test]
    fn a_window_that_ends_before_it_begins_goes_over_midnight() {
        let all = [window("Sun", "22:00", "06:00", "UTC", 1)];
        assert_eq!(says(&all, "2026-11-29T22:00:00Z"), (Some(1), 8 * 60));
        assert_eq!(says(&all, "2026-11-30T05:59:00Z"), (Some(1), 1));
        assert_eq!(says(&all, "2026-11-30T06:00:00Z").0, None);
        let whole = [window("Sat-Mon", "00:00", "00:00", "UTC", 2)];
        assert_eq!(says(&whole, "2026-11-30T23:59:00Z"), (Some(2), 1));
        assert_eq!(says(&whole, "2026-12-01T00:00:00Z").0, None);
        assert_eq!(says(&whole, "2026-11-28T00:00:00Z").0, Some(2));
    }

    #[test]
    fn where_the_clock_changes_the_time_of_day_counts() {
        let all = [window("Sun", "02:30", "05:00", "Europe/Zurich", 1)];
        // 2026-03-29: 02:30 does not exist, and 03:30 in summer time is 01:30 UTC.
        assert_eq!(says(&all, "2026-03-29T01:29:00Z"), (None, 1));
        assert_eq!(says(&all, "2026-03-29T01:30:00Z"), (Some(1), 90));
        // 2026-10-25: 02:30 exists twice, and the first one counts.
        assert_eq!(says(&all, "2026-10-25T00:30:00Z"), (Some(1), 210));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let now = "2026-11-26T06:00:00Z".parse().expect("a time");
        for (wrong, word) in [
            (window("Mo-Fr", "07:00", "19:00", "UTC", 1), "Mo-Fr"),
            (window("Mon", "7", "19:00", "UTC", 1), "\"7\""),
            (window("Mon", "07:00", "19:00", "Zurich", 1), "Zurich"),
        ] {
            let good = window("Mon", "07:00", "19:00", "UTC", 1);
            let why = at(&[good, wrong], now).expect_err("an error");
            assert!(why.starts_with("window 2: ") && why.contains(word), "{why}");
        }
    }
}
