//! Kills actors as a user would: through the debug endpoint, one after the other.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval};

use super::Voice;
use crate::played::task::Task;

#[derive(Deserialize)]
struct Actor {
    name: String,
    life: Life,
}

#[derive(Deserialize)]
struct Life {
    is: String,
}

/// Kills an actor periodically, until the task is dropped. It walks over all actors with a stride that shares no factor
/// with common counts, so that every kind has its turn.
pub(super) fn start(voice: Voice, debug_url: String, every: Duration) -> Task {
    Task::spawn(async move {
        let http = reqwest::Client::new();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = 0_usize;
        loop {
            ticks.tick().await;
            turn += 7;
            if let Ok(Some(name)) = kill(&http, &debug_url, turn).await {
                voice.say(&format!("chaos: {name} killed"));
            }
        }
    })
}

async fn kill(http: &reqwest::Client, url: &str, turn: usize) -> reqwest::Result<Option<String>> {
    let mut actors: Vec<Actor> = http
        .get(format!("{url}/actors"))
        .send()
        .await?
        .error_for_status()?
        .json()
        .await?;
    // A dead actor is already being restarted.
    actors.retain(|actor| actor.life.is == "alive");
    let Some(actor) = actors.get(turn % actors.len().max(1)) else {
        return Ok(None);
    };
    let panic = if turn.is_multiple_of(2) {
        "true"
    } else {
        "false"
    };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("which", actor.name.as_str()), ("panic", panic)])
        .finish();
    http.post(format!("{url}/actors/kill?{query}"))
        .header("x-agent-forge-kill", "true")
        .send()
        .await?
        .error_for_status()?;
    Ok(Some(actor.name.clone()))
}
