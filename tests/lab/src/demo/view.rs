//! The output for people: on a terminal a live table, elsewhere one line per change.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write, stdout},
    sync::{Arc, Mutex, PoisonError},
};

use super::track::{Line, Milestone, Track};

/// Where the demo prints to. Clones share the output.
#[derive(Clone)]
pub struct Voice {
    out: Arc<Mutex<dyn Write + Send>>,
    /// It is a terminal, so the table can be redrawn.
    terminal: bool,
}

impl Voice {
    /// Standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self {
            out: Arc::new(Mutex::new(stdout())),
            terminal: stdout().is_terminal(),
        }
    }

    /// Any writer.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self {
            out: Arc::new(Mutex::new(out)),
            terminal: false,
        }
    }

    /// One line about the demo itself.
    pub(super) fn say(&self, text: &str) {
        self.out(&format!("==> {text}\n"));
    }

    /// Writes. A closed reader does not end the demo.
    pub(super) fn out(&self, text: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }
}

/// The live view.
pub(super) struct View {
    voice: Voice,
    drawn: usize,
    told: BTreeMap<String, String>,
}

fn last(line: &Line) -> Option<Milestone> {
    line.reached.keys().next_back().copied()
}

impl View {
    pub(super) fn new(voice: &Voice) -> Self {
        Self {
            voice: voice.clone(),
            drawn: 0,
            told: BTreeMap::new(),
        }
    }

    /// Shows what is new.
    pub(super) fn show(&mut self, track: &Track) {
        if self.voice.terminal {
            self.draw(track)
        } else {
            self.tell(track)
        }
    }

    /// Ends the live table. What was drawn stays on the screen.
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
        self.voice.out(&text);
    }

    fn tell(&mut self, track: &Track) {
        let iso = self.told.entry("ISO".to_owned()).or_default();
        if *iso != track.iso {
            iso.clone_from(&track.iso);
            self.voice.out(&format!(
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
                self.voice
                    .out(&format!("  {at:>6.1} s  {name}  {now}{phase}\n"));
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
