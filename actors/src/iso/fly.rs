//! Runs one flight.

use super::{
    flight::{Start, Task},
    msg::FlightNews,
    ports::Ports,
    transfer,
    upkeep::{self, Found},
};

/// Runs a flight. The result is how it ended.
pub async fn fly(ports: &Ports, start: Start) -> FlightNews {
    let Start { id, want, task } = start;
    let news = match task {
        Task::Check(file, compare) => {
            let compare = compare.then_some(&file.validators);
            upkeep::check(ports, &want, &file, compare)
                .await
                .map(|found| match found {
                    Found::Whole => FlightNews::Arrived(file, true),
                    Found::NotThere => FlightNews::Missing,
                    Found::Outdated => FlightNews::Outdated,
                })
        }
        Task::Transfer => {
            tracing::info!(directory = %want.directory, server = want.source.server(), "ISO transfer begins");
            transfer::transfer(ports, id, &want)
                .await
                .map(|brought| match brought {
                    Some((file, reused)) => {
                        tracing::info!(file = %file.path, size = file.size, reused, "ISO is on the datastore");
                        FlightNews::Arrived(file, reused)
                    }
                    None => {
                        tracing::info!("no pool wants the ISO any more: its transfer ended");
                        FlightNews::Recalled
                    }
                })
        }
        Task::Prune(paths) => upkeep::prune(ports, &want, &paths)
            .await
            .map(|(gone, kept)| FlightNews::Pruned(gone, kept)),
    };
    news.unwrap_or_else(FlightNews::Failed)
}
