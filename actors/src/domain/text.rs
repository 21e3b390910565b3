//! Texts of others: of vCenter, of guests, of the API server. They may hold anything.

/// The character would forge a line of the log, or move a terminal: a control character, or one that changes the direction of
/// writing.
#[must_use]
pub fn steers(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A text of others on one line, where it enters. What [`steers`] is escaped, so that it can still be read.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_forges_a_line_or_moves_a_terminal() {
        let odd = "a\nERROR b\r\t\u{1b}[31m\u{9b}2J\u{202e}c\u{2028}\u{7}";
        let shown = plain(odd);
        assert!(!shown.contains(steers), "{shown:?}");
        assert_eq!(
            shown,
            r"a\nERROR b\r\t\u{1b}[31m\u{9b}2J\u{202e}c\u{2028}\u{7}"
        );
        assert_eq!(plain("Zürich, 東京: 1 °C"), "Zürich, 東京: 1 °C");
    }
}
