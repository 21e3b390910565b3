//! The live table in a terminal.

use std::{pin::pin, time::Duration};

use ratatui::{
    Frame, Terminal,
    backend::Backend,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Row, Table},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};

use super::{MACHINES, POOLS, machine_cells, pool_cells, rows::Overview};

/// How long one wait for a key takes.
const KEY: Duration = Duration::from_millis(200);

/// What the screen shows.
pub(super) struct View {
    /// The last overview that could be read.
    pub shown: Overview,
    /// Why the last reading failed, if it did.
    pub trouble: Option<String>,
    /// First machine that is visible.
    pub first: usize,
}

/// Shows the table until the user or a signal ends it. The terminal is restored in each case.
///
/// # Errors
/// The terminal cannot be used.
pub(super) async fn live(
    first: Overview,
    every: Duration,
    read: impl AsyncFn() -> anyhow::Result<Overview>,
) -> anyhow::Result<()> {
    let view = View {
        shown: first,
        trouble: None,
        first: 0,
    };
    let stop = stop()?;
    let mut terminal = ratatui::try_init()?;
    let (tell, mut keys) = mpsc::channel(16);
    // Keys are read in a thread that may wait. It ends with the table.
    std::thread::spawn(move || listen(&tell));
    let ended = show(&mut terminal, view, every, (read, &mut keys, stop)).await;
    ratatui::restore();
    ended
}

/// The signals that end the table.
fn stop() -> std::io::Result<impl Future<Output = ()>> {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
    ];
    let signals = kinds.map(signal).into_iter();
    let mut signals = signals.collect::<std::io::Result<Vec<_>>>()?;
    Ok(async move {
        let all = signals.iter_mut().map(|s| Box::pin(s.recv()));
        futures::future::select_all(all).await;
    })
}

/// Shows the table, reads it again, and obeys keys and signals meanwhile.
///
/// # Errors
/// The terminal cannot be used.
pub(super) async fn show<B: Backend<Error: Send + Sync + 'static>>(
    terminal: &mut Terminal<B>,
    mut view: View,
    every: Duration,
    (read, keys, stop): (
        impl AsyncFn() -> anyhow::Result<Overview>,
        &mut mpsc::Receiver<std::io::Result<Key>>,
        impl Future<Output = ()>,
    ),
) -> anyhow::Result<()> {
    let mut stop = pin!(stop);
    loop {
        let mut next = pin!(async {
            sleep(every).await;
            read().await
        });
        let got = loop {
            terminal.draw(|frame| draw(frame, &view))?;
            tokio::select! {
                () = &mut stop => return Ok(()),
                key = keys.recv() => match key {
                    Some(Ok(key)) if press(&mut view, key) => {}
                    Some(Ok(_)) | None => return Ok(()),
                    Some(Err(e)) => return Err(e.into()),
                },
                got = &mut next => break got,
            }
        };
        match got {
            Ok(shown) => (view.shown, view.trouble) = (shown, None),
            Err(e) => view.trouble = Some(format!("{e:#}")),
        }
    }
}

/// Tells each key until nobody listens.
fn listen(tell: &mpsc::Sender<std::io::Result<Key>>) {
    while !tell.is_closed() {
        let told = match key() {
            Ok(None) => Ok(()),
            Ok(Some(key)) => tell.blocking_send(Ok(key)),
            Err(e) => tell.blocking_send(Err(e)),
        };
        if told.is_err() {
            return;
        }
    }
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    End,
    Up,
    Down,
    /// The terminal has another size: it is drawn again.
    Resize,
}

fn key() -> std::io::Result<Option<Key>> {
    if !event::poll(KEY)? {
        return Ok(None);
    }
    let key = match event::read()? {
        Event::Key(key) => key,
        Event::Resize(..) => return Ok(Some(Key::Resize)),
        _ => return Ok(None),
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(match key.code {
        _ if key.kind != KeyEventKind::Press => None,
        KeyCode::Char('c') if control => Some(Key::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::End),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        _ => None,
    })
}

/// Whether the table goes on after that key.
pub(super) fn press(view: &mut View, key: Key) -> bool {
    let last = view.shown.machines.len().saturating_sub(1);
    match key {
        Key::End => return false,
        Key::Up => view.first = view.first.saturating_sub(1),
        Key::Down => view.first = (view.first + 1).min(last),
        Key::Resize => {}
    }
    true
}

/// Draws pools above machines, and a line for help or trouble.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let pools = u16::try_from(view.shown.pools.len() + 3).unwrap_or(u16::MAX);
    let rows = [
        Constraint::Max(pools),
        Constraint::Min(4),
        Constraint::Length(1),
    ];
    let [above, middle, below] = Layout::vertical(rows).areas(frame.area());
    let table = Table::new(
        view.shown.pools.iter().map(|p| Row::new(pool_cells(p))),
        [24, 14, 40, 8, 6].map(Constraint::Min),
    );
    let table = table
        .header(Row::new(POOLS).style(bold))
        .block(Block::bordered().title("Pools"));
    frame.render_widget(table, above);
    let machines = view.shown.machines.iter().skip(view.first);
    let table = Table::new(
        machines.map(|m| Row::new(machine_cells(m))),
        [26, 20, 12, 6, 16, 10, 18, 14].map(Constraint::Min),
    );
    let title = format!("Machines ({})", view.shown.machines.len());
    let table = table
        .header(Row::new(MACHINES).style(bold))
        .block(Block::bordered().title(title));
    frame.render_widget(table, middle);
    let line = match &view.trouble {
        Some(trouble) => Line::from(format!("not up to date: {trouble}")).style(bold),
        None => Line::from("q: end   up, down: scroll"),
    };
    frame.render_widget(line, below);
}
