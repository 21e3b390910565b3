//! Flags for chaos: the operator kills its own actors, to test the restarts.

use std::time::Duration;

use clap::{Parser, builder::BoolishValueParser};

use super::duration;

/// Kill actors at random.
#[derive(Clone, Debug, Parser)]
pub struct ChaosArgs {
    /// Kill one random actor this often (labs only). Nothing is lost, but everything takes longer.
    #[arg(long, env = "AGENT_FORGE_CHAOS_KILL_EVERY", value_parser = duration, value_name = "DURATION", requires = "i_understand_this_kills_actors")]
    pub chaos_kill_every: Option<Duration>,

    /// Seed of the random choices.
    #[arg(
        long,
        env = "AGENT_FORGE_CHAOS_SEED",
        default_value_t = 0,
        value_name = "NUMBER"
    )]
    pub chaos_seed: u64,

    /// Required for --chaos-kill-every.
    #[arg(long, env = "AGENT_FORGE_I_UNDERSTAND_THIS_KILLS_ACTORS", value_parser = BoolishValueParser::new())]
    pub i_understand_this_kills_actors: bool,
}

impl ChaosArgs {
    /// How often an actor is killed. `None` if chaos is off. `--i-understand-this-kills-actors` set to `false` turns it
    /// off too.
    #[must_use]
    pub fn kill_every(&self) -> Option<Duration> {
        self.chaos_kill_every
            .filter(|_| self.i_understand_this_kills_actors)
    }
}
