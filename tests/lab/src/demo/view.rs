//! What people see: on a terminal a table that lives, elsewhere a line per change.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _, stdout},
};

use super::track::{Line, Milestone, Track};

/// One line about the play itself.
pub(super) fn say(text: &str) {
    out(&format!("==> {text}\n"));
}

/// Writes to stdout; a reader that went away ends nothing.
pub(super) fn out(text: &str) {
    let mut stdout = stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}

/// The live view.
#[derive(Default)]
pub(super) struct View {
    drawn: usize,
    told: BTreeMap<String, String>,
}

fn last(line: &Line) -> Option<Milestone> {
    line.reached.keys().next_back().copied()
}

impl View {
    /// Shows what is new.
    pub(super) fn show(&mut self, track: &Track) {
        if stdout().is_terminal() {
            self.draw(track)
        } else {
            self.tell(track)
        }
    }

    /// Leaves what was drawn standing.
    pub(super) fn finish(&mut self, track: &Track) {
        self.show(track);
        self.drawn = 0;
    }

    fn draw(&mut self, track: &Track) {
        let mut text = String::new();
        if self.drawn > 0 {
            text += &format!("\x1b[{}A", self.drawn);
        }
        text += &format!("\x1b[2K  {:<26}{}\n", "ISO", track.iso);
        text += &format!("\x1b[2K  {:<26}{}  now\n", "", header());
        for (name, line) in &track.lines {
            text += &format!("\x1b[2K  {name:<26}{}  {}\n", row(line), line.phase);
        }
        self.drawn = track.lines.len() + 2;
        out(&text);
    }

    fn tell(&mut self, track: &Track) {
        let iso = self.told.entry("ISO".to_owned()).or_default();
        if *iso != track.iso {
            iso.clone_from(&track.iso);
            out(&format!(
                "  {:>6.1} s  ISO  {iso}\n",
                track.elapsed().as_secs_f64()
            ));
        }
        for (name, line) in &track.lines {
            let now = last(line)
                .map(Milestone::title)
                .unwrap_or("AgentMachine created")
                .to_owned();
            if self.told.get(name) != Some(&now) {
                let phase = match line.phase.as_str() {
                    "" => String::new(),
                    phase => format!("  ({phase})"),
                };
                let at = track.elapsed().as_secs_f64();
                out(&format!("  {at:>6.1} s  {name}  {now}{phase}\n"));
                self.told.insert(name.clone(), now);
            }
        }
    }
}

/// Column titles.
pub(super) fn header() -> String {
    Milestone::ALL
        .iter()
        .map(|m| format!("{:>12}", m.title()))
        .collect()
}

/// Seconds after the scale-up, per milestone.
pub(super) fn row(line: &Line) -> String {
    Milestone::ALL
        .iter()
        .map(|m| match line.at(*m) {
            Some(at) => format!("{:>10.1} s", at.as_secs_f64()),
            None => format!("{:>12}", "-"),
        })
        .collect()
}
