//! The scenarios of the nightly lane (CONTRIBUTING.md). Those of `main.rs` run with every change.
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

#[allow(dead_code, reason = "both lanes share it")]
mod collector;
mod leader;
#[allow(dead_code, reason = "both lanes share it")]
mod look;
#[allow(dead_code, reason = "both lanes share it")]
mod shared;
#[allow(dead_code, reason = "both lanes share it")]
mod site;
#[allow(dead_code, reason = "both lanes share it")]
mod tls_door;
#[allow(dead_code, reason = "both lanes share it")]
mod tokens;
#[allow(dead_code, reason = "both lanes share it")]
mod witness;
#[allow(dead_code, reason = "both lanes share it")]
mod world;
