//! `agent-forge explain`: one machine, the proof that its objects belong together, what it waits for, and its history.

pub mod chain;
pub mod join;
mod lives;
mod progress;
pub mod subject;
#[cfg(test)]
mod tests;
mod text;
pub mod waits;

use agent_forge_actors::{
    domain::{
        holds::Holds,
        managed_vm::ManagedVm,
        names::{MoRef, ObjectKey},
        trace::TraceId,
    },
    ports::cluster::View as _,
    runtime::holds,
    sessions::secret_ref,
};
use clap::Args as ClapArgs;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use self::{
    chain::{Live, Member, Proof},
    lives::Life,
    subject::{Found, Kind, Subject},
    waits::Wait,
};
use super::{
    AskVcenter, Asked, decide,
    report::{self, Report, Verdict},
    sight::Sight,
    vcenters::Vcenters,
};
use crate::{args::Args, cluster::view::Caches};

/// What `agent-forge explain` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct ExplainArgs {
    /// AgentMachine, Machine, VsphereAgent (va), VM, Agent or Node, and its name: `VM/demo-worker-abc`. A VM may also be
    /// named by its reference (`vm-42`) or its BIOS UUID.
    #[arg(value_name = "KIND/NAME")]
    pub subject: Subject,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,

    /// Whether vCenter is asked.
    #[command(flatten)]
    pub vcenter: AskVcenter,

    /// Address of a trace in your tracing backend. `{}` stands for the trace's id.
    #[arg(long, env = "AGENT_FORGE_TRACE_URL", value_name = "URL")]
    pub trace_url: Option<String>,
}

/// One machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was asked.
    subject: String,
    /// Its pool.
    pub pool: Option<String>,
    /// The objects.
    chain: Vec<Member>,
    /// How we know that they belong together.
    proofs: Vec<Proof>,
    /// What does not happen now.
    waits: Vec<Wait>,
    /// What else people should know.
    notes: Vec<String>,
    /// Vetoes that stand, and that nothing waits for now.
    standing: Vec<String>,
    /// The lives of its VM, the present one last. Empty if it is in its first.
    lives: Vec<Life>,
    /// What happened in the present life, and when.
    timeline: Vec<Moment>,
    /// The trace.
    trace: Option<Trace>,
    /// When this was seen.
    seen: Timestamp,
}

/// One entry of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Moment {
    event: String,
    attempt: i32,
    at: Option<Timestamp>,
    /// Seconds since the entry before.
    after_seconds: Option<i64>,
}

/// Where the trace is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Trace {
    id: String,
    url: Option<String>,
}

/// Explains.
///
/// # Errors
/// The cluster cannot be read, or there is no such object.
pub async fn run(args: &Args, asked: &ExplainArgs) -> anyhow::Result<Verdict> {
    let sight = Sight::read(args).await?;
    let namespace = asked.asked.namespace.as_deref();
    let found = subject::find(&sight.caches, &asked.subject, namespace)?;
    let live = if asked.vcenter.offline {
        Live::NotAsked
    } else {
        look(args, &sight, &found).await
    };
    let bound = args.secret_bound();
    let words = (asked.subject.to_string(), asked.trace_url.as_deref());
    let caches = &sight.caches;
    let explained = explain(caches, &found, &live, (words, bound), Timestamp::now());
    report::print(&explained, asked.asked.output)
}

/// Explains the machine of an object, without vCenter.
///
/// # Errors
/// There is no such object.
pub fn of_object(
    caches: &Caches,
    kind: Kind,
    key: &ObjectKey,
    secret_namespaces: &[String],
    now: Timestamp,
) -> anyhow::Result<Explanation> {
    let subject = Subject {
        kind,
        name: key.name.clone(),
    };
    let found = subject::find(caches, &subject, Some(&key.namespace))?;
    let words = (subject.to_string(), None);
    Ok(explain(
        caches,
        &found,
        &Live::NotAsked,
        (words, secret_namespaces),
        now,
    ))
}

/// What vCenter shows of the VM on record.
async fn look(args: &Args, sight: &Sight, found: &Found) -> Live {
    let Some((child, moref)) = found
        .child
        .as_ref()
        .and_then(|c| Some((c, c.vm()?.moref.clone()?)))
    else {
        return Live::NotAsked;
    };
    let vcenters = Vcenters::new(args, &sight.client, sight.caches.pools());
    let seen = async {
        let secret = secret_of(args, child, found)?;
        let session = vcenters.session(&secret, &child.key.namespace).await?;
        anyhow::Ok(
            session
                .observe(&MoRef::new("VirtualMachine", moref))
                .await?,
        )
    };
    let live = match seen.await {
        Ok(Some(shown)) => Live::Shown(Box::new(shown)),
        Ok(None) => Live::Absent,
        Err(e) => Live::Failed(format!("{e:#}")),
    };
    vcenters.close().await;
    live
}

/// The Secret on record, else the pool's.
fn secret_of(args: &Args, child: &ManagedVm, found: &Found) -> anyhow::Result<ObjectKey> {
    let own = &child.key.namespace;
    let recorded = child.vm().and_then(|vm| vm.credentials_ref.as_ref());
    let secret = match (recorded, &found.pool) {
        (Some(reference), _) => secret_ref::secret_at(reference, own, args.secret_bound()),
        (None, Some(pool)) => secret_ref::secret(pool, args.secret_bound()),
        (None, None) => anyhow::bail!("neither a Secret nor a pool is on record"),
    };
    secret.map_err(|e| anyhow::anyhow!(e.message))
}

fn explain(
    caches: &Caches,
    found: &Found,
    live: &Live,
    ((subject, trace_url), bound): ((String, Option<&str>), &[String]),
    now: Timestamp,
) -> Explanation {
    let pool = found.pool.as_ref().map(|p| ObjectKey::of(p.as_ref()));
    let decided = pool
        .as_ref()
        .and_then(|p| decide::decide(caches, p, bound, now));
    let held = match (&found.child, &pool) {
        (Some(child), _) => holds::of_vm(caches, child),
        (None, Some(pool)) => holds::of_pool(caches, pool),
        (None, None) => Holds::default(),
    };
    let plan = decided.as_ref().map(|(_, plan)| plan);
    Explanation {
        subject,
        pool: pool.map(|p| p.to_string()),
        chain: chain::members(found, live),
        proofs: chain::proofs(found, live),
        waits: waits::waits(found, plan, &held, now),
        notes: waits::notes(found, &held, now),
        standing: waits::standing(&held, &waits::next_effects(found)),
        lives: lives::lives(found, trace_url),
        timeline: timeline(found),
        trace: trace(found, trace_url),
        seen: now,
    }
}

fn timeline(found: &Found) -> Vec<Moment> {
    let mut before: Option<Timestamp> = None;
    let moment = |entry: &agent_forge_crds::agent::Milestone| {
        let at = entry.at.as_ref().map(|t| t.0);
        let after = at
            .zip(before)
            .map(|(at, before)| at.duration_since(before).as_secs());
        before = at.or(before);
        Moment {
            event: entry.event.clone(),
            attempt: entry.attempt,
            at,
            after_seconds: after,
        }
    };
    found.timeline().iter().map(moment).collect()
}

/// The trace on record, else the one that the operator gives to the machine.
fn trace(found: &Found, url: Option<&str>) -> Option<Trace> {
    let recorded = found
        .child
        .as_ref()
        .and_then(|c| c.object.status.as_ref()?.trace_id.clone());
    let of_child = || found.child.as_ref().map(|c| c.trace().to_string());
    let of_machine = || {
        let uid = found.agent_machine.as_ref()?.uid()?;
        Some(TraceId::of_machine(&uid).to_string())
    };
    let id = recorded.or_else(of_child).or_else(of_machine)?;
    let url = url.map(|url| url.replace("{}", &id));
    Some(Trace { id, url })
}

impl Report for Explanation {
    fn text(&self) -> String {
        text::text(self)
    }

    fn verdict(&self) -> Verdict {
        let broken = self.proofs.iter().any(|p| p.holds == Some(false));
        if broken || !self.waits.is_empty() || !self.notes.is_empty() {
            Verdict::Findings
        } else {
            Verdict::Nothing
        }
    }
}
