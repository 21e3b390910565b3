//! `agent-forge adopt`: VMs that the operator did not make and that serve Machines of a pool. It shows what proof is missing, and with
//! `--apply` asks the operator to adopt those that are proven. The proof is the operator's own ([`Candidate`]), and the operator
//! proves again before it writes its mark.

use std::sync::Arc;

use agent_forge_actors::{
    domain::{
        belonging,
        managed_vm::ManagedVm,
        names::{MoRef, ObjectKey},
    },
    guard::adoption::{Candidate, Place as VmPlace},
    placement::request,
    pool::act::adopted_object,
    ports::{
        cluster::View as _,
        effect::{Effect, EffectKind, Subject},
        vcenter::VCenter,
    },
    sessions::secret_ref,
    vm::observed::Observed,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::agent_machine::AgentMachine,
    names::{ADOPT_ANNOTATION, API_VERSION, CREATED_FOR_ADOPTED, CREATED_FOR_LABEL},
};
use anyhow::Context as _;
use clap::{Args as ClapArgs, builder::BoolishValueParser};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::Serialize;
use serde_json::json;

use super::{
    AskVcenter, Asked,
    report::{self, Report, Verdict},
    sight::{self, Sight},
    vcenters::Vcenters,
};
use crate::{args::Args, cluster::view::Caches};

/// What `agent-forge adopt` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct AdoptArgs {
    /// The pool that is to own the VMs.
    #[arg(value_name = "POOL")]
    pub pool: String,

    /// Only the VMs that serve these AgentMachines. Default: all of the pool.
    #[arg(value_name = "AGENTMACHINE")]
    pub agent_machines: Vec<String>,

    /// Write the VsphereAgents that ask the operator to adopt. Without it, nothing is changed.
    #[arg(long, env = "AGENT_FORGE_APPLY", value_parser = BoolishValueParser::new())]
    pub apply: bool,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,

    /// Whether vCenter is asked.
    #[command(flatten)]
    pub vcenter: AskVcenter,
}

/// The VMs that could be adopted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Adoptable {
    pool: String,
    applied: bool,
    hosts: Vec<Row>,
    /// Why vCenter was not asked, or could not be.
    unasked: Option<String>,
}

/// The host of one AgentMachine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    agent_machine: String,
    agent: String,
    /// Its VM in vCenter, where that is known.
    vm: Option<String>,
    state: State,
    /// The proof that is missing.
    missing: Option<String>,
    #[serde(skip)]
    object: Option<Box<VsphereAgent>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    /// All proofs are there.
    Proven,
    /// All that the cluster knows is proven. vCenter was not asked.
    Unasked,
    /// A proof is missing.
    Missing,
    /// The operator was asked to adopt it, and has not done it yet.
    Asked,
    /// The operator has it.
    Adopted,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Unasked => "vCenter not asked",
            Self::Missing => "proof missing",
            Self::Asked => "asked for",
            Self::Adopted => "adopted",
        }
    }
}

/// What vCenter is asked with.
struct Site {
    session: Arc<dyn VCenter>,
    folder: MoRef,
}

/// Shows what could be adopted, and asks for it with `--apply`.
///
/// # Errors
/// The cluster or a VM cannot be read, or there is no such pool or AgentMachine.
pub async fn run(args: &Args, asked: &AdoptArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let sight = Sight::permitted(args, client, &asked.asked.place).await?;
    sight.tell_unseen();
    let namespace = asked.asked.place.namespace.as_deref();
    let key = sight::pool(&sight.caches, namespace, &asked.pool)?;
    let caches = &sight.caches;
    let pool = caches.pool(&key).context("the pool is gone")?;
    let machines = agent_machines(caches, &pool, &asked.agent_machines)?;
    let vcenters = Vcenters::new(args, client, caches.pools());
    let site = match asked.vcenter.offline {
        true => Err("--offline: vCenter was not asked".to_owned()),
        false => site(&vcenters, &pool, args.secret_bound()).await,
    };
    let mut found = Adoptable {
        pool: key.to_string(),
        applied: asked.apply,
        hosts: Vec::new(),
        unasked: site.as_ref().err().cloned(),
    };
    for am in &machines {
        found
            .hosts
            .extend(row(caches, &pool, am, site.as_ref().ok()).await?);
    }
    drop(site);
    vcenters.close().await;
    // Who says --offline leaves what vCenter knows to the operator, which proves it in any case.
    let wanted = match asked.vcenter.offline {
        true => State::Unasked,
        false => State::Proven,
    };
    let chosen = found
        .hosts
        .iter_mut()
        .filter(|row| asked.apply && row.state == wanted);
    for row in chosen {
        let done = apply(client, row).await;
        row.missing = done.err().map(|e| format!("{e:#}"));
    }
    report::print(&found, asked.asked.output)
}

/// The AgentMachines of the pool that have an Agent.
fn agent_machines(
    caches: &Caches,
    pool: &VsphereAgentPool,
    named: &[String],
) -> anyhow::Result<Vec<Arc<AgentMachine>>> {
    let mut all = caches.agent_machines(pool.control_plane());
    all.retain(|am| belonging::belongs(pool, am));
    for name in named {
        let known = all.iter().any(|am| am.name_any() == *name);
        anyhow::ensure!(known, "the pool has no AgentMachine {name}");
    }
    all.retain(|am| am.agent_ref().is_some());
    all.retain(|am| named.is_empty() || named.contains(&am.name_any()));
    all.sort_by_key(|am| am.name_any());
    Ok(all)
}

/// A session, and the folder of the pool. `Err`: why vCenter cannot be asked.
async fn site(
    vcenters: &Vcenters,
    pool: &VsphereAgentPool,
    secret_namespaces: &[String],
) -> Result<Site, String> {
    let home = pool.namespace().unwrap_or_default();
    let looked = async {
        let secret = secret_ref::secret(pool, secret_namespaces)?;
        let session = vcenters.session(&secret, &home).await?;
        let datacenter = session.datacenter(pool.spec.vsphere.datacenter()).await?;
        // The gate refuses to create a folder, so this only looks.
        let server = Subject::Server(session.server().to_owned());
        let effect = Effect::new(EffectKind::CreateFolder, server);
        let path = request::folder(pool);
        let folder = session.ensure_folder(&effect, &datacenter, &path).await;
        let folder = folder.with_context(|| format!("VM folder {path}"))?;
        anyhow::Ok(Site { session, folder })
    };
    let failed = |e| format!("vCenter could not be asked: {e:#}");
    looked.await.map_err(failed)
}

/// What is known of the host of `am`. `None`: the operator made it.
async fn row(
    caches: &Caches,
    pool: &VsphereAgentPool,
    am: &AgentMachine,
    site: Option<&Site>,
) -> anyhow::Result<Option<Row>> {
    let children = caches.children(&ObjectKey::of(pool)).into_iter();
    let mut own = children.map(ManagedVm::read).filter(|c| c.is_for(am));
    let own = own.next();
    let agent = am
        .agent_ref()
        .map(|a| ObjectKey::new(&a.namespace, &a.name));
    let agent = agent.unwrap_or_else(|| ObjectKey::new("", ""));
    let mut row = Row {
        agent_machine: am.name_any(),
        agent: agent.to_string(),
        vm: None,
        state: State::Adopted,
        missing: None,
        object: None,
    };
    if let Some(own) = own.as_ref().filter(|own| !own.adopted) {
        row.vm = own.vm().map(|vm| vm.name.clone());
        return Ok(own.is_adoption().then_some(row));
    }
    let object = match &own {
        Some(own) => VsphereAgent::clone(&own.object),
        None => {
            let owner = am.owner_machine().map(|o| o.uid.clone());
            let machines = caches.machines(pool.control_plane());
            let machine = machines.iter().find(|m| Some(&m.uid) == owner.as_ref());
            let Some(machine) = machine else {
                row.state = State::Missing;
                row.missing = Some("its Machine is not there".to_owned());
                return Ok(Some(row));
            };
            adopted_object(pool, am, machine)
        }
    };
    let asks = own.as_ref().is_some_and(|own| own.adopting);
    let observed = Observed::gather(caches, Arc::new(object.clone()));
    let agents = caches.agents(&agent.namespace);
    let agent = agents.iter().find(|a| ObjectKey::of(a.as_ref()) == agent);
    let candidate = Candidate::of(&observed.adoption(pool, agent.map(AsRef::as_ref)));
    let proven = match (candidate, site) {
        (Ok(candidate), Some(site)) => {
            let found = site.session.find_by_uuid(candidate.uuid).await;
            let found = found.with_context(|| format!("looking for VM {}", candidate.uuid))?;
            row.vm = found.first().map(|vm| vm.name.clone());
            let place = VmPlace {
                pool: &ObjectKey::of(pool),
                folder: &site.folder,
                marker: &observed.child.marker(caches.cluster_id()),
            };
            candidate.prove(found, &place).map(|_| ())
        }
        (candidate, _) => candidate.map(|_| ()),
    };
    row.state = match &proven {
        Err(_) => State::Missing,
        Ok(()) if asks => State::Asked,
        Ok(()) if site.is_none() => State::Unasked,
        Ok(()) => State::Proven,
    };
    row.missing = proven.err();
    row.object = (!asks).then(|| Box::new(object));
    Ok(Some(row))
}

/// Asks the operator to adopt the VM of that row, if it is proven.
#[expect(
    clippy::disallowed_methods,
    reason = "a person writes, with that person's rights: the gate is for effects of the operator"
)]
async fn apply(client: &Client, row: &mut Row) -> anyhow::Result<()> {
    let Some(object) = row.object.take() else {
        return Ok(());
    };
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let api: Api<VsphereAgent> = Api::namespaced(client.clone(), &namespace);
    if object.uid().is_some() {
        // The label stays when a status is lost.
        let patch = json!({"apiVersion": API_VERSION, "kind": "VsphereAgent", "metadata": {
            "annotations": {ADOPT_ANNOTATION: "true"},
            "labels": {CREATED_FOR_LABEL: CREATED_FOR_ADOPTED},
        }});
        let patched = api
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.with_context(|| format!("annotating VsphereAgent {namespace}/{name}"))?;
    } else {
        let made = api.create(&PostParams::default(), &object).await;
        made.with_context(|| format!("creating VsphereAgent {namespace}/{name}"))?;
    }
    row.state = State::Asked;
    Ok(())
}

impl Report for Adoptable {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.hosts.is_empty() {
            text += &format!(
                "no VM of others serves an AgentMachine of pool {}\n",
                self.pool
            );
        } else {
            let rows = self.hosts.iter().map(|row| {
                vec![
                    row.agent_machine.clone(),
                    row.agent.clone(),
                    row.vm.clone().unwrap_or_else(|| "-".to_owned()),
                    row.state.word().to_owned(),
                ]
            });
            text += &report::table(&["AGENTMACHINE", "AGENT", "VM", "STATE"], rows);
        }
        for row in &self.hosts {
            if let Some(missing) = &row.missing {
                let missing = report::one_line(missing);
                text += &format!("{}: {missing}\n", row.agent_machine);
            }
        }
        if let Some(why) = &self.unasked {
            text += &format!("{}\n", report::one_line(why));
        }
        if !self.applied && self.hosts.iter().any(|row| row.state == State::Proven) {
            text += "nothing was changed; --apply asks the operator to adopt what is proven (docs/how-to/adopt-a-vm.md)\n";
        }
        text
    }

    fn verdict(&self) -> Verdict {
        if self
            .unasked
            .as_ref()
            .is_some_and(|why| !why.starts_with("--offline"))
        {
            Verdict::Unknown
        } else if self.hosts.iter().any(|row| row.missing.is_some()) {
            Verdict::Findings
        } else {
            Verdict::Nothing
        }
    }
}
