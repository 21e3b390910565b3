//! The vSphere client with the REST interfaces of the simulated vCenter.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod files;
mod golden;
mod life;
mod news;
mod places;
mod renew;
mod seen;
mod sessions;
mod silence;
mod support;
mod tags;
mod traced;
mod trouble;
