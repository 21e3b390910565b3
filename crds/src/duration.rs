//! Durations in Go's notation (`30m`, `1h15m30s`): the text format of `spec.iso.checkInterval` and
//! `spec.agent.discoveryTimeout`.

use std::fmt;
use std::time::Duration;

/// Schema pattern of a positive Go duration, or empty.
pub(crate) const PATTERN_OR_EMPTY: &str = r"^$|^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$";

/// A text that is not a duration. The message shows a valid one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDuration(String);

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no duration; write numbers with units (ns, us, ms, s, m, h), such as 30m or 1h15m",
            self.0
        )
    }
}

impl std::error::Error for InvalidDuration {}

/// Parses a non-negative duration in Go's notation (Go package `time`, `ParseDuration`): decimal numbers, each with a
/// unit, without spaces. `0` alone is zero.
///
/// # Errors
/// The text is empty, negative, has no unit, or is longer than about 584 years.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number_len = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(invalid()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || whole.len() > 20 {
            return Err(invalid());
        }
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        // 18 digits of an hour's fraction are finer than a nanosecond.
        let fraction = &fraction[..fraction.len().min(18)];
        let part = if fraction.is_empty() {
            0
        } else {
            let digits: u128 = fraction.parse().map_err(|_| invalid())?;
            digits * scale / 10u128.pow(fraction.len() as u32)
        };
        nanos += whole * scale + part;
        rest = tail;
    }
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("10m", 600_000_000_000),
            ("10m0s", 600_000_000_000),
            ("1h15m30.5s", 4_530_500_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("7ns", 7),
            ("+5s", 5_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_to_write() {
        for text in [
            "",
            "10",
            "m",
            "-5m",
            "10 m",
            "1d",
            "1h-5m",
            "..s",
            ".s",
            "1.2.3s",
            "9999999h",
            "１m",
            "99999999999999999999999999h",
            "tomorrow",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("such as 30m"), "{text}: {error}");
        }
    }
}
