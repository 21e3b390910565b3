//! The tests of the operator's crate beside its units: one binary.
//!
//! Most scenarios run the operator as a real process with a real API server, a simulated vCenter and the played upstream
//! controllers. `vsphere_front`, `iso_source`, `log_lines` and `many_agents` test a part alone. `sources` compares sources
//! and documents. `byoh_scripts` runs scripts in a host of plain files.
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

mod adopt;
mod away;
mod before_clusters;
mod byoh;
mod byoh_scripts;
mod commands;
mod crash;
mod credentials;
mod custody;
mod demo;
mod doctor;
mod events;
mod freed;
mod generations;
mod hardware;
mod holds;
mod hostile;
mod https;
mod installed;
mod iso;
mod iso_source;
mod leader;
mod lifecycle;
mod log_lines;
mod logs;
mod many_agents;
mod metrics;
mod news;
mod nodes;
mod orphans;
mod page;
mod predecessor;
mod privileges;
mod real_capi;
mod record;
mod recycled_often;
mod refusals;
mod restored;
mod rogues;
mod rules;
mod runbooks;
mod scale;
mod share;
mod signed;
mod silence;
mod sources;
mod status;
mod storm;
mod strangers;
mod stuck;
mod support;
mod swapped;
mod tenants;
mod traces;
mod trouble;
mod trust;
mod vsphere_front;
mod web;

use support::*;
