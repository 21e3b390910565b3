//! `agent-forge explain`: one machine or pool, the proof that its objects belong together, what it waits for, and its history.

pub mod subject;
#[cfg(test)]
mod tests;
mod text;

use agent_forge_actors::{
    domain::{
        managed_vm::ManagedVm,
        names::{MoRef, ObjectKey},
    },
    ports::cluster::View as _,
    sessions::secret_ref,
};
use clap::Args as ClapArgs;
use jiff::Timestamp;

use self::subject::Subject;
use super::{
    AskVcenter, Asked,
    report::{self, Report, Verdict},
    sight::{self, Sight},
    vcenters::Vcenters,
};
use crate::{
    args::Args,
    machines::{
        chain::Live,
        explain::{Explanation, explain, plan},
        found::Found,
    },
};

/// What `agent-forge explain` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct ExplainArgs {
    /// AgentMachine, Machine, VsphereAgent (va), VM, Agent, Node or VsphereAgentPool (vap), and its name: `VM/demo-worker-abc`. A
    /// VM may also be named by its reference (`vm-42`) or its BIOS UUID.
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

/// Explains.
///
/// # Errors
/// The cluster cannot be read, or there is no such object.
pub async fn run(args: &Args, asked: &ExplainArgs) -> anyhow::Result<Verdict> {
    let client = sight::connect(args).await?;
    let sight = Sight::permitted(args, &client, &asked.asked.place).await?;
    sight.tell_unseen();
    let namespace = asked.asked.place.namespace.as_deref();
    let found = subject::find(&sight.caches, &asked.subject, namespace)?;
    let live = if asked.vcenter.offline {
        Live::NotAsked
    } else {
        look(args, &sight, &found).await
    };
    let words = (asked.subject.to_string(), asked.trace_url.as_deref());
    let (caches, now) = (&sight.caches, Timestamp::now());
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
