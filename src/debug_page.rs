//! The actor tree as an HTML page: what each actor does, what it waits for, and how often it was restarted.

use std::fmt::Write as _;

use agent_forge_actors::{
    runtime::shell::Description,
    supervisor::{Described, Life},
};

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>agent-forge: actors</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #1d2330; background: #fff }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3em .7em; border-bottom: 1px solid #dde1e8; vertical-align: top }
td.child { padding-left: 2em } tr.head td { font-weight: 600 }
td.n { text-align: right; font-variant-numeric: tabular-nums }
tr.bad td { background: #fff1ef } tr.waits td { background: #fffaea }
.reason { font-weight: 600 } .quiet { color: #6a7282 }
@media (prefers-color-scheme: dark) { body { color: #e4e7ec; background: #14171c } th, td { border-color: #2b313b }
tr.bad td { background: #3b1f1c } tr.waits td { background: #332c14 } .quiet { color: #98a1b0 } }
</style></head><body>
"#;

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

/// The number, or a dash if there is none.
fn counted(number: Option<usize>) -> String {
    number.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

/// The reason of the last wake, and how long ago it was.
fn last_wake(state: &Description) -> String {
    match state.last_wake_seconds {
        Some(ago) => format!("{}, {ago} s ago", escaped(&state.last_wake)),
        None => "-".to_owned(),
    }
}

fn row(out: &mut String, actor: &Described) {
    let name = escaped(&actor.name);
    let Some(state) = &actor.state else {
        let why = match actor.life {
            Life::Alive => "does not answer".to_owned(),
            Life::Restarting { in_seconds } => {
                format!("died; is started anew in {in_seconds:.1} s")
            }
        };
        let _ = writeln!(
            out,
            "<tr class=bad><td class=child>{name}<td colspan=6>{why}<td class=n>{}<td class=n>{}",
            counted(actor.mailbox),
            actor.restarts
        );
        return;
    };
    let class = match (state.failures, state.waiting_on.is_empty()) {
        (1.., _) => " class=bad",
        (0, false) => " class=waits",
        (0, true) => "",
    };
    let mut waits = String::new();
    for (reason, message) in &state.waiting_on {
        let (reason, message) = (escaped(reason.as_str()), escaped(message));
        let _ = write!(
            waits,
            "<div><span class=reason>{reason}</span> {message}</div>"
        );
    }
    let _ = writeln!(
        out,
        "<tr{class}><td class=child>{name}<td>{}<td class=n>{}<td class=n>{}<td class=quiet>{}<td class=n>{}<td>{waits}\
         <td class=n>{}<td class=n>{}",
        if state.running { "running" } else { "idle" },
        state.passes,
        state.wakes,
        last_wake(state),
        state.failures,
        counted(actor.mailbox),
        actor.restarts
    );
}

/// Renders the page.
#[must_use]
pub fn page(actors: &[Described]) -> String {
    let mut out = String::from(HEAD);
    let (mut failing, mut waiting, mut restarts) = (0_usize, 0_usize, 0_u64);
    for actor in actors {
        restarts += actor.restarts;
        match &actor.state {
            None => failing += 1,
            Some(s) if s.failures > 0 => failing += 1,
            Some(s) if !s.waiting_on.is_empty() => waiting += 1,
            Some(_) => {}
        }
    }
    let _ = writeln!(
        out,
        "<h1>{} actors</h1><p>{failing} fail, {waiting} wait, {restarts} restarts. The same for programs: \
         <a href=/actors>/actors</a>.</p>\n<table><tr><th>Actor<th>State<th>Passes<th>Wakes<th>Last wake<th>Failures \
         in a row<th>Waiting on<th>Mailbox<th>Restarts",
        actors.len()
    );
    // One table for each supervisor.
    let mut above = None;
    for actor in actors {
        if above != Some(actor.supervisor) {
            above = Some(actor.supervisor);
            let _ = writeln!(
                out,
                "<tr class=head><td colspan=9>{}",
                escaped(actor.supervisor)
            );
        }
        row(&mut out, actor);
    }
    out += "</table></body></html>\n";
    out
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::conditions::Reason;

    use super::*;

    #[test]
    fn a_page_says_what_an_actor_waits_for_and_trusts_no_text() {
        let waits = Described {
            name: "vm/demo/a<b".to_owned(),
            supervisor: "supervisor",
            life: Life::Alive,
            restarts: 3,
            mailbox: Some(7),
            state: Some(Description {
                kind: "vm".to_owned(),
                last_wake: "agent changed".to_owned(),
                last_wake_seconds: Some(12),
                waiting_on: vec![(Reason::IsoNotReady, "<script>".to_owned())],
                ..Description::default()
            }),
        };
        let silent = Described {
            name: "sessions".to_owned(),
            supervisor: "supervisor",
            life: Life::Alive,
            restarts: 0,
            mailbox: None,
            state: None,
        };
        let dead = Described {
            name: "vm/demo/b".to_owned(),
            life: Life::Restarting { in_seconds: 4.96 },
            restarts: 5,
            ..silent.clone()
        };
        let page = page(&[waits, silent, dead]);
        for part in [
            "vm/demo/a&lt;b",
            "agent changed, 12 s ago",
            "<td colspan=9>supervisor\n<tr class=waits><td class=child>vm/demo",
            "<td class=n>-<td class=n>0",
            "IsoNotReady</span> &lt;script&gt;",
            "<td class=n>7<td class=n>3",
            "sessions<td colspan=6>does not answer",
            "vm/demo/b<td colspan=6>died; is started anew in 5.0 s<td class=n>-<td class=n>5",
            "3 actors</h1><p>2 fail, 1 wait, 8 restarts",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(!page.contains("<script>"), "{page}");
    }
}
