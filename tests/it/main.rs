//! The operator as a real process with a real API server, a simulated vCenter and the played upstream controllers.
//!
//! Each scenario has a lab of its own. So it can choose generations, kill any part, and count everything.
//! These scenarios run with every change. Those of `nightly.rs` run in the nightly lane (CONTRIBUTING.md).
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

mod buffer;
mod commands;
mod crash;
mod custody;
mod demo;
mod doctor;
mod dry_run;
mod guards;
mod hardware;
mod holds;
mod lifecycle;
mod limits;
mod logs;
mod metrics;
mod news;
mod orphans;
mod recycle;
mod rules;
mod scale;
mod share;
mod signed;
mod status;
#[allow(dead_code, reason = "each lane uses a part of it")]
mod support;
mod tenants;
mod trust;
mod web;

use support::*;
