//! The scenarios of the nightly lane (CONTRIBUTING.md). Those of `main.rs` run with every change.
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

mod arrival;
mod away;
mod boot_order;
mod credentials;
mod events;
mod freed;
mod generations;
mod hostile;
mod iso;
mod leader;
mod occupied;
mod power;
mod predecessor;
mod privileges;
mod real_capi;
mod record;
mod recycled_often;
mod refusals;
mod rogues;
mod silence;
mod storm;
mod strangers;
mod stuck;
#[allow(dead_code, reason = "each lane uses a part of it")]
mod support;
mod traces;
mod trouble;

use support::*;
