//! The vSphere client against the simulated vCenter's REST interfaces.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod files;
mod golden;
mod life;
mod places;
mod sessions;
mod silence;
mod support;
mod tags;
mod traced;
mod trouble;
