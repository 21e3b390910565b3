//! The operator as a real process with a real API server, a simulated vCenter and the played upstream controllers.
//!
//! Each scenario has a lab of its own. So it can choose generations, kill any part, and count everything.
//! These scenarios run with every change. Those of `nightly.rs` run in the nightly lane (CONTRIBUTING.md).
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

#[allow(dead_code, reason = "both lanes share it")]
mod collector;
mod crash;
mod custody;
mod demo;
mod guards;
mod hardware;
mod holds;
mod lifecycle;
mod logs;
#[allow(dead_code, reason = "both lanes share it")]
mod look;
mod metrics;
mod orphans;
mod rules;
mod scale;
#[allow(dead_code, reason = "both lanes share it")]
mod shared;
mod signed;
#[allow(dead_code, reason = "both lanes share it")]
mod site;
mod status;
mod tenants;
#[allow(dead_code, reason = "both lanes share it")]
mod tls_door;
#[allow(dead_code, reason = "both lanes share it")]
mod tokens;
mod trust;
#[allow(dead_code, reason = "both lanes share it")]
mod witness;
#[allow(dead_code, reason = "both lanes share it")]
mod world;
