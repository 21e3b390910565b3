//! The number of machines rises and falls, and the operator is killed at regular intervals.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Args;
use crate::bench::world::World;

/// Lowest number of changes of the replicas, whether they completed or not.
const AT_LEAST: u32 = 6;

/// One change of the replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tide {
    /// Replicas wanted.
    pub(super) wanted: usize,
    /// Whether all of them ran and no other Machine was left.
    pub(super) whole: bool,
    /// How long it lasted.
    pub(super) took: Duration,
}

/// See the module.
pub(super) struct Tides {
    lasting: Duration,
    kill_every: Duration,
    machines: usize,
    /// The changes, in order.
    pub(super) tides: Vec<Tide>,
    /// From the start of each new process to its first success of `/readyz`.
    pub(super) starts: Vec<Duration>,
}

impl Tides {
    pub(super) fn new(args: &Args) -> Self {
        Self {
            lasting: Duration::from_secs_f64(args.minutes * 60.0),
            kill_every: args.kill_every,
            machines: args.machines,
            tides: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// All machines, a tenth of them, all, half of them, and so on, until the time is over.
    pub(super) async fn play(&mut self, world: &mut World) -> Result<()> {
        let end = Instant::now() + self.lasting;
        let mut kills = interval_at(Instant::now() + self.kill_every, self.kill_every);
        // On a busy machine a start takes long. Kills then follow each other as closely as possible.
        kills.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let lows = [self.machines / 10, self.machines / 2];
        for turn in 0.. {
            let wanted = match turn % 2 {
                0 => self.machines,
                _ => lows[turn / 2 % 2],
            };
            world.nodes.scale(wanted);
            let began = Instant::now();
            let turns = (began + self.lasting / AT_LEAST).min(end);
            let mut whole = false;
            while !whole && Instant::now() < turns {
                kills.tick().await;
                world.operator.kill().await?;
                self.starts.push(world.start_anew().await?);
                whole =
                    world.nodes.machines().len() == wanted && world.nodes.running().len() == wanted;
            }
            self.tides.push(Tide {
                wanted,
                whole,
                took: began.elapsed(),
            });
            eprintln!(
                "tide {}: {wanted} wanted, {} run after {:.0} s; {} kills so far",
                self.tides.len(),
                world.nodes.running().len(),
                began.elapsed().as_secs_f64(),
                self.starts.len()
            );
            if Instant::now() >= end {
                break;
            }
        }
        Ok(())
    }
}
