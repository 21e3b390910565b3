//! The operator as a real process with a real API server, a simulated vCenter and the played upstream controllers.
//!
//! Each scenario has a lab of its own. So it can choose generations, kill any part, and count everything.
#![expect(
    clippy::disallowed_methods,
    reason = "tests play people and upstream controllers: they write as those do"
)]

mod arrival;
mod away;
mod collector;
mod crash;
mod credentials;
mod custody;
mod demo;
mod events;
mod generations;
mod guards;
mod hardware;
mod hostile;
mod iso;
mod leader;
mod lifecycle;
mod logs;
mod look;
mod metrics;
mod occupied;
mod orphans;
mod predecessor;
mod privileges;
mod refusals;
mod rogues;
mod rules;
mod scale;
mod signed;
mod silence;
mod site;
mod status;
mod storm;
mod strangers;
mod stuck;
mod tenants;
mod tls_door;
mod tokens;
mod traces;
mod trouble;
mod trust;
mod witness;
mod world;
