//! The phases and waits of a machine's trace, from its timeline. Pure.

use agent_forge_crds::{
    WaitingOn,
    agent::Milestone,
    external::agent::{Agent, INSTALLED},
};
use jiff::{SignedDuration, Timestamp};

use super::timeline::{
    BOUND, DELETING, DESTROY, INSTALL, NODE, ROOT, UNFINISHED, WAIT, attempt_of, begun_by,
    ended_by, micro, under,
};
use crate::{
    domain::{seconds, trace::TraceId},
    ports::tracer::{PhaseSpan, Under},
};

/// A wait is sent in pieces of that length, each when it is over. So the trace shows a wait while it still lasts.
const PIECE: SignedDuration = SignedDuration::from_mins(5);
/// The most whole pieces that are sent, the last ones of a wait. A piece that ended more than an hour ago was sent then, or
/// will never be sent.
const PIECES: i64 = 12;

/// The object that the spans are about.
#[derive(Clone, Copy, Debug)]
pub struct SpanSubject<'a> {
    /// The machine's trace.
    pub trace: TraceId,
    /// Namespace of the VsphereAgent.
    pub namespace: &'a str,
    /// Name of the VsphereAgent.
    pub name: &'a str,
    /// Name of its pool.
    pub pool: &'a str,
    /// The trace of the machine that its VM served in the life before. The first phase links to the first phase there.
    pub before: Option<TraceId>,
}

impl SpanSubject<'_> {
    fn span(
        &self,
        name: &'static str,
        attempt: i32,
        start: Timestamp,
        end: Timestamp,
        abandoned: bool,
    ) -> PhaseSpan {
        let attempt = u32::try_from(attempt).unwrap_or(1);
        let root = self.trace.phase(ROOT, 1);
        let id = self.trace.phase(name, attempt);
        PhaseSpan {
            trace: self.trace,
            id,
            parent: (id != root).then_some(root),
            link: self.before.filter(|_| id == root).map(|trace| Under {
                trace,
                span: trace.phase(ROOT, 1),
            }),
            name,
            start,
            end: end.max(start),
            attributes: vec![
                ("k8s.namespace.name", self.namespace.to_owned()),
                ("agent_forge.machine", self.name.to_owned()),
                ("agent_forge.pool", self.pool.to_owned()),
                ("agent_forge.attempt", attempt.to_string()),
            ],
            abandoned,
        }
    }
}

/// The phases that are over, from the record alone.
#[must_use]
pub fn phases(about: &SpanSubject<'_>, timeline: &[Milestone]) -> Vec<PhaseSpan> {
    let moments: Vec<(&Milestone, Timestamp)> = timeline
        .iter()
        .filter_map(|e| Some((e, e.at.as_ref()?.0)))
        .collect();
    let mut spans = Vec::new();
    for pair in moments.windows(2) {
        let [(before, start), (entry, end)] = pair else {
            continue;
        };
        let (begun, ended) = (begun_by(&before.event), ended_by(&entry.event));
        // The open phase is not the one that ended: it had no result, or no process saw its end.
        if let Some(open) = begun.filter(|b| Some(*b) != ended) {
            spans.push(about.span(open, before.attempt, *start, *end, true));
        }
        if let Some(phase) = ended {
            spans.push(about.span(phase, entry.attempt, *start, *end, false));
        }
        if entry.event == UNFINISHED {
            spans.push(about.span(INSTALL, entry.attempt, *start, *end, true));
        }
    }
    spans
}

/// The phase that ran when the VM was given to another machine. The trace of that machine continues.
#[must_use]
pub fn handed_over(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    end: Timestamp,
) -> Option<PhaseSpan> {
    let last = timeline.last()?;
    let open = begun_by(&last.event)?;
    Some(about.span(open, last.attempt, last.at.as_ref()?.0, micro(end), true))
}

/// The installation, once the Agent shows that it is complete.
#[must_use]
pub fn installation(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    agent: &Agent,
) -> Option<PhaseSpan> {
    let bound = timeline.iter().rev().find(|e| e.event == BOUND)?;
    let done = agent.condition(INSTALLED).filter(|c| c.is_true())?;
    let end = done.last_transition_time.as_ref()?.0;
    Some(about.span(INSTALL, bound.attempt, bound.at.as_ref()?.0, end, false))
}

/// The rest of the way to a ready Node, once the Agent is installed and the AgentMachine is `ready`.
#[must_use]
pub fn readiness(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    agent: &Agent,
    ready: Timestamp,
) -> Option<PhaseSpan> {
    let bound = timeline.iter().rev().find(|e| e.event == BOUND)?;
    let installed = installation(about, timeline, agent)?.end;
    Some(about.span(NODE, bound.attempt, installed, ready, false))
}

/// The destruction, once it is over, if its end could not be recorded.
#[must_use]
pub fn destruction(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    end: Timestamp,
) -> Option<PhaseSpan> {
    let last = timeline.last().filter(|e| e.event == DELETING)?;
    Some(about.span(
        DESTROY,
        last.attempt,
        last.at.as_ref()?.0,
        micro(end),
        false,
    ))
}

/// The waits that are over: the rows of `old` that `new` lacks, up to `end`.
#[must_use]
pub fn waits_over(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    old: &[WaitingOn],
    new: &[WaitingOn],
    end: Timestamp,
) -> Vec<PhaseSpan> {
    let goes_on = |row: &WaitingOn| {
        let same = |w: &WaitingOn| w.subject == row.subject && w.reason == row.reason;
        new.iter().any(|w| same(w) && w.since == row.since)
    };
    let over = old.iter().filter(|row| !goes_on(row));
    over.flat_map(|row| wait_of(about, timeline, row, Until::Over(end)))
        .collect()
}

/// The waits that last at `now`, as far as their pieces are over.
#[must_use]
pub fn waits_lasting(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    rows: &[WaitingOn],
    now: Timestamp,
) -> Vec<PhaseSpan> {
    rows.iter()
        .flat_map(|row| wait_of(about, timeline, row, Until::Lasts(now)))
        .collect()
}

fn wait_of(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    row: &WaitingOn,
    until: Until,
) -> Vec<PhaseSpan> {
    let what = (row.subject.as_str(), row.reason.as_str());
    let since = row.since.as_ref().map(|t| t.0);
    since.map_or_else(Vec::new, |since| wait(about, timeline, what, since, until))
}

/// The state of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It still lasts at that time.
    Lasts(Timestamp),
    /// It ended at that time.
    Over(Timestamp),
}

/// Whole pieces of a wait since `since` that are over at `now`.
#[must_use]
pub fn pieces(since: Timestamp, now: Timestamp) -> i64 {
    let lasted = now.duration_since(seconds::whole(since)).as_secs();
    (lasted / PIECE.as_secs()).max(0)
}

/// A wait for `what` (subject and reason) since `since`: its last pieces that are over. A piece belongs to the phase that
/// ran when the piece began. Its id follows from pool, reason, first moment and number. So every process sends the same
/// whole piece.
#[must_use]
pub fn wait(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    what: (&str, &str),
    since: Timestamp,
    until: Until,
) -> Vec<PhaseSpan> {
    let since = seconds::whole(since);
    let (Until::Lasts(now) | Until::Over(now)) = until;
    let begin = |n: i64| {
        let after = SignedDuration::from_secs(PIECE.as_secs().saturating_mul(n));
        since.checked_add(after).unwrap_or(now)
    };
    let whole = pieces(since, now);
    let mut all: Vec<PhaseSpan> = (whole.saturating_sub(PIECES).max(0)..whole)
        .map(|n| piece(about, timeline, what, (since, n), begin(n), begin(n + 1)))
        .collect();
    if let Until::Over(end) = until
        && (whole == 0 || begin(whole) < end)
    {
        let last = (since, whole);
        all.push(piece(about, timeline, what, last, begin(whole), micro(end)));
    }
    all
}

/// One piece, the `n`-th of the wait since `since`.
fn piece(
    about: &SpanSubject<'_>,
    timeline: &[Milestone],
    (subject, reason): (&str, &str),
    (since, n): (Timestamp, i64),
    start: Timestamp,
    end: Timestamp,
) -> PhaseSpan {
    let timeline = known_at(timeline, start);
    let which = format!(
        "{WAIT} {} {subject} {reason} {} {n}",
        about.pool,
        since.as_second()
    );
    let mut span = about.span(WAIT, attempt_of(timeline), start, end, false);
    span.id = about.trace.phase(&which, 1);
    span.parent = Some(under(about.trace, timeline).span);
    span.attributes.extend([
        ("agent_forge.waiting_on", reason.to_owned()),
        ("agent_forge.waiting_for", subject.to_owned()),
        ("agent_forge.waiting_since", since.to_string()),
    ]);
    span
}

/// What had happened at `then`. Waits begin at whole seconds, moments do not.
fn known_at(timeline: &[Milestone], then: Timestamp) -> &[Milestone] {
    let happened = |e: &&Milestone| {
        let at = e.at.as_ref();
        at.is_none_or(|at| at.0.as_second() <= then.as_second())
    };
    let known = timeline.iter().take_while(happened).count();
    timeline.get(..known).unwrap_or(timeline)
}

/// The demand of an AgentMachine that never had a VsphereAgent. `served`: it got a host from elsewhere; else its demand
/// ended without one.
#[must_use]
pub fn unanswered(
    about: &SpanSubject<'_>,
    demanded: Timestamp,
    end: Timestamp,
    served: bool,
) -> PhaseSpan {
    about.span(ROOT, 1, demanded, micro(end), !served)
}
