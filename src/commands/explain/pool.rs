//! A pool: its conditions, what it waits for, and its machines.

use std::collections::BTreeSet;

use agent_forge_actors::{domain::names::ObjectKey, runtime::holds};
use agent_forge_crds::conditions::READY;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::text;
use crate::{
    cluster::view::Caches,
    commands::report::{self, Report, Verdict, one_line},
    machines::{
        decide,
        row::{Machine, OfPool},
        state,
        waits::{self, Wait},
    },
};

/// One pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnePool {
    /// Namespace and name.
    pool: String,
    /// Its conditions, as the operator told them last.
    conditions: Vec<State>,
    /// What does not happen now.
    waits: Vec<Wait>,
    /// Vetoes that stand, and that nothing waits for now.
    standing: Vec<String>,
    /// The hosts of its InfraEnv that are not VMs of agent-forge. `null`: none, or not known.
    foreign_hosts: Option<String>,
    /// Its machines.
    machines: Vec<Row>,
    /// When this was seen.
    seen: Timestamp,
}

/// One condition.
#[derive(Debug, Serialize)]
struct State {
    condition: String,
    status: String,
    reason: String,
    message: String,
}

/// One machine.
#[derive(Debug, Serialize)]
struct Row {
    machine: String,
    phase: String,
    reason: String,
}

/// Explains the pool. What a person has to act on comes first.
pub(super) fn explain(
    caches: &Caches,
    key: &ObjectKey,
    secrets: &[String],
    now: Timestamp,
) -> OnePool {
    let machines = crate::machines::machines(caches, now).pools;
    let of_pool = machines.into_iter().find(|pool| pool.key == *key);
    let status = of_pool
        .as_ref()
        .and_then(|p| p.pool.as_ref()?.status.clone());
    let status = status.unwrap_or_default();
    let held = holds::of_pool(caches, key);
    // `Ready` repeats what another condition says.
    let failed = status
        .conditions
        .iter()
        .filter(|c| c.status == "False" && c.type_ != READY);
    let failed = failed.map(|c| Wait::told(format!("pool: {}", c.type_), c));
    let mut all: Vec<Wait> = failed.collect();
    all.extend(status.waiting_on.iter().map(Wait::recorded));
    let (mut standing, mut foreign_hosts) = (Vec::new(), None);
    if let Some((observed, plan)) = decide::decide(caches, key, secrets, now) {
        let next = waits::next_effects_of_pool(&observed, &plan);
        all.extend(waits::by_people(&held, &next, now));
        all.extend(
            plan.waiting
                .iter()
                .map(|w| Wait::of(&w.subject, &w.reason, &w.message, None)),
        );
        standing = waits::standing(&held, &next);
        let classes = observed.foreign.classes;
        let classes = classes.filter(|classes| classes.total().all > 0);
        foreign_hosts = classes.map(|classes| classes.to_string());
    }
    all.extend(waits::invalid_pause(&held));
    let mut seen = BTreeSet::new();
    all.retain(|wait| seen.insert((wait.reason.clone(), wait.subject.clone())));
    all.sort_by_key(|wait| state::held(&wait.reason));
    OnePool {
        pool: key.to_string(),
        conditions: status.conditions.into_iter().map(State::from).collect(),
        waits: all,
        standing,
        foreign_hosts,
        machines: of_pool
            .iter()
            .flat_map(|pool: &OfPool| &pool.machines)
            .map(Row::of)
            .collect(),
        seen: now,
    }
}

impl From<Condition> for State {
    fn from(c: Condition) -> Self {
        let (condition, status) = (c.type_, c.status);
        let (reason, message) = (c.reason, c.message);
        Self {
            condition,
            status,
            reason,
            message,
        }
    }
}

impl Row {
    fn of(machine: &Machine) -> Self {
        Self {
            machine: machine.key.name.clone(),
            phase: machine.phase.clone(),
            reason: machine.judged.reason.clone(),
        }
    }
}

impl Report for OnePool {
    fn text(&self) -> String {
        let mut text = format!("VsphereAgentPool {}\n\n", self.pool);
        let rows = self.conditions.iter().map(|c| {
            let message = one_line(&c.message);
            vec![
                c.condition.clone(),
                c.status.clone(),
                c.reason.clone(),
                message,
            ]
        });
        text += &report::table(&["CONDITION", "STATUS", "REASON", "MESSAGE"], rows);
        text += &text::waits(&self.waits, self.seen);
        if let Some(hosts) = &self.foreign_hosts {
            text += &format!("\nHosts of its InfraEnv that are not VMs of agent-forge: {hosts}\n");
        }
        for veto in &self.standing {
            text += &format!("\nNothing waits for it now: {}\n", one_line(veto));
        }
        if !self.machines.is_empty() {
            let rows = self
                .machines
                .iter()
                .map(|m| vec![m.machine.clone(), m.phase.clone(), m.reason.clone()]);
            text += &format!("\n{}", report::table(&["MACHINE", "PHASE", "REASON"], rows));
            text += "\n`agent-forge explain va/MACHINE` says more of one\n";
        }
        text
    }

    fn verdict(&self) -> Verdict {
        match self.waits.is_empty() {
            true => Verdict::Nothing,
            false => Verdict::Findings,
        }
    }
}
