//! The scenarios of the nightly lane (CONTRIBUTING.md). Those of `main.rs` run with every change.
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

mod arrival;
mod away;
#[allow(dead_code, reason = "both lanes share it")]
mod collector;
mod credentials;
mod events;
mod generations;
mod hostile;
mod iso;
mod leader;
#[allow(dead_code, reason = "both lanes share it")]
mod look;
mod occupied;
mod predecessor;
mod privileges;
mod refusals;
mod rogues;
#[allow(dead_code, reason = "both lanes share it")]
mod shared;
mod silence;
#[allow(dead_code, reason = "both lanes share it")]
mod site;
mod storm;
mod strangers;
mod stuck;
#[allow(dead_code, reason = "both lanes share it")]
mod tls_door;
#[allow(dead_code, reason = "both lanes share it")]
mod tokens;
mod traces;
mod trouble;
#[allow(dead_code, reason = "both lanes share it")]
mod witness;
#[allow(dead_code, reason = "both lanes share it")]
mod world;
