//! An explanation for people.

use jiff::Timestamp;

use crate::{
    commands::report::{self, one_line},
    machines::explain::Explanation,
};

/// The whole text.
pub(super) fn text(e: &Explanation) -> String {
    let pool = e.pool.as_ref().map(|pool| format!(" of pool {pool}"));
    let mut text = format!("{}{}\n\n", e.subject, pool.unwrap_or_default());
    let members = e.chain.iter().map(|m| {
        let name = m.name.clone().unwrap_or_else(|| "-".to_owned());
        vec![m.kind.to_string(), name, m.state.clone()]
    });
    text += &report::table(&["OBJECT", "NAME", "STATE"], members);
    text += "\nHow we know that they belong together\n";
    for proof in &e.proofs {
        let mark = match proof.holds {
            Some(true) => "yes",
            Some(false) => "NO ",
            None => "?  ",
        };
        let [one, other] = proof.between;
        text += &format!("  {mark}  {one} - {other}: {}\n", one_line(&proof.fact));
    }
    if e.proofs.is_empty() {
        text += "  there is only one object\n";
    }
    text += "\nWhat it waits for\n";
    if e.waits.is_empty() {
        text += "  nothing\n";
    }
    for wait in &e.waits {
        let since = wait
            .since
            .map(|since| format!(", for {}", report::age(e.seen, since)));
        text += &format!(
            "  {} ({}{})\n      {}\n      Meaning: {}\n      Who can end it: {}\n      What to do: {}\n      See {}\n",
            wait.reason,
            wait.subject,
            since.unwrap_or_default(),
            one_line(&wait.message),
            wait.meaning,
            wait.who.words(),
            wait.remedy,
            wait.page
        );
    }
    if let Some(hosts) = &e.foreign_hosts {
        text += &format!("\nHosts of its InfraEnv that are not VMs of agent-forge: {hosts}\n");
    }
    for veto in &e.standing {
        text += &format!("\nNothing waits for it now: {}\n", one_line(veto));
    }
    for note in &e.notes {
        text += &format!("\nNote: {}\n", one_line(note));
    }
    text += &lives(e);
    if !e.timeline.is_empty() {
        text += "\nTimeline\n";
        let rows = e.timeline.iter().map(|m| {
            let at = m.at.map_or("?".to_owned(), |at| format!("{at:.0}"));
            let after = m
                .after_seconds
                .map_or(String::new(), |s| format!("+{}", report::span(s)));
            vec![
                format!("  {at}"),
                after,
                m.event.clone(),
                format!("attempt {}", m.attempt),
            ]
        });
        text += &report::table(&["  AT", "AFTER", "EVENT", "VM"], rows);
    }
    if let Some(trace) = &e.trace {
        let url = trace.url.as_ref().map(|url| format!(": {url}"));
        text += &format!("\nTrace {}{}\n", trace.id, url.unwrap_or_default());
    }
    text
}

/// A row for each life of the VM, if there was more than one.
fn lives(e: &Explanation) -> String {
    if e.lives.is_empty() {
        return String::new();
    }
    let at = |at: Option<Timestamp>| at.map_or_else(|| "?".to_owned(), |at| format!("{at:.0}"));
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let rows = e.lives.iter().map(|life| {
        let until = match life.until {
            Some(until) => at(Some(until)),
            None => "now".to_owned(),
        };
        vec![
            format!("  {}", life.number),
            at(life.since),
            until,
            word(&life.machine),
            word(&life.host),
            life.url.clone().unwrap_or_else(|| word(&life.trace)),
        ]
    });
    let header = ["  LIFE", "SINCE", "UNTIL", "MACHINE", "HOST", "TRACE"];
    format!("\nLives of the VM\n{}", report::table(&header, rows))
}
