//! `agent-forge explain`: one machine, the proof that its objects belong together, what it waits for, and its history. Or a pool:
//! its conditions, what it waits for, and its machines.

mod pool;
pub mod subject;
#[cfg(test)]
mod tests;
mod text;

use std::path::{Path, PathBuf};

use agent_forge_actors::{
    domain::names::{MoRef, ObjectKey},
    ports::cluster::View as _,
};
use clap::Args as ClapArgs;
use jiff::Timestamp;

use self::subject::Subject;
use super::{
    AskVcenter, Asked, console,
    report::{self, Report, Verdict},
    sight::{self, Sight},
    vcenters::Vcenters,
};
use crate::{
    args::Args,
    machines::{
        chain::Live,
        explain::{Explanation, explain, plan},
        found::{Found, Kind},
    },
};

/// What `agent-forge explain` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct ExplainArgs {
    /// VsphereAgentPool (vap), AgentMachine, Machine, VsphereAgent (va), VM, Agent or Node, and its name:
    /// `VM/demo-worker-abc`. A VM may also be named by its reference (`vm-42`) or its BIOS UUID.
    #[arg(value_name = "KIND/NAME")]
    pub subject: Subject,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,

    /// Whether vCenter is asked.
    #[command(flatten)]
    pub vcenter: AskVcenter,

    /// Save a picture of the console of a VM whose Agent did not register, as a PNG. The vCenter user needs
    /// `VirtualMachine.Interact.ConsoleInteract`.
    #[arg(
        long,
        env = "AGENT_FORGE_CONSOLE",
        value_name = "FILE",
        conflicts_with = "offline"
    )]
    pub console: Option<PathBuf>,

    /// Address of a trace in your tracing backend. `{}` stands for the trace's id.
    #[arg(long, env = "AGENT_FORGE_TRACE_URL", value_name = "URL")]
    pub trace_url: Option<String>,
}

/// Explains.
///
/// # Errors
/// The cluster cannot be read, or there is no such object.
pub async fn run(args: &Args, asked: &ExplainArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let sight = Sight::permitted(args, client, &asked.asked.place).await?;
    sight.tell_unseen();
    let namespace = asked.asked.place.namespace.as_deref();
    let found = subject::find(&sight.caches, &asked.subject, namespace)?;
    let now = Timestamp::now();
    if let (Kind::VsphereAgentPool, Some(pool)) = (asked.subject.kind, &found.pool) {
        if asked.console.is_some() {
            eprintln!("no picture of the console: a pool has none; name one of its machines");
        }
        let key = ObjectKey::of(pool.as_ref());
        let explained = pool::explain(&sight.caches, &key, args.secret_bound(), now);
        return report::print(&explained, asked.asked.output);
    }
    let live = if asked.vcenter.offline {
        Live::NotAsked
    } else {
        look(args, &sight, &found).await
    };
    if let Some(path) = &asked.console {
        save_picture(args, &sight, &found, path).await;
    }
    let words = (asked.subject.to_string(), asked.trace_url.as_deref());
    let caches = &sight.caches;
    let plan = plan(caches, &found, args.secret_bound(), now);
    let explained = explain(caches, &found, (&live, plan.as_ref()), words, now);
    report::print(&explained, asked.asked.output)
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
        let secret = console::secret_of(args, child, found)?;
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

/// Saves a picture of the console. Standard error says what came of it.
async fn save_picture(args: &Args, sight: &Sight, found: &Found, path: &Path) {
    let saved = match console::subject(found) {
        Err(why) => Err(why),
        Ok(_) => {
            let vcenters = Vcenters::new(args, &sight.client, sight.caches.pools());
            let taken = console::picture(args, &vcenters, found).await;
            vcenters.close().await;
            let saved = taken.and_then(|bytes| console::save(path, &bytes));
            saved.map_err(|e| format!("{e:#}"))
        }
    };
    let said = match saved {
        Ok(()) => format!("picture of the console: {}", path.display()),
        Err(why) => format!("no picture of the console: {why}"),
    };
    eprintln!("{}", report::visible(&report::one_line(&said)));
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
