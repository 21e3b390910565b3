//! `lab bench-start`: how long a new process needs until it is ready beside many serving machines, and what that costs.
//!
//! One machine is created in the usual way. Then the played upstream stops, and the machine's objects and VM are copied
//! (`Mould`). Each copy has its own names, uids and addresses. One process reads the copies and becomes idle. Then
//! the Agents grow, and the start of the next process is measured (`bench::restart`). Assumption: [`Stamps`] replace
//! all that identifies a copy. If not, the first process would have work with the copies, and its writes are printed.

use agent_forge_crds::VsphereAgent;
use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Plan,
    binary::Source,
    mib, page, proc, restart,
    run::{LIMIT, quiet},
    say,
    world::World,
};
use crate::{
    parts::{
        vcenter_inventory::Vm,
        vcenter_trouble::{DatastoreState, ForeignVm},
    },
    played::{
        guests::identity,
        kinds,
        stamps::{self, Stamps},
    },
};

/// Copies that are made at the same time.
const AT_ONCE: usize = 16;
/// Free bytes on the datastore for each copy, more than its disks take.
const ROOM: i64 = 64 << 30;
/// The goals for a thousand machines with Agents of 60 kB: seconds until ready, and resident memory in MiB.
const READY_WITHIN: f64 = 10.0;
const RESIDENT: f64 = 64.0;
/// The goal for the data of the web page, in seconds.
const PAGE_WITHIN: f64 = 1.0;

/// Measure the start of a process beside serving machines.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Number of serving machines.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub serving: usize,
    /// Size by which each Agent's inventory grows.
    #[arg(long, value_name = "BYTES", default_value_t = 60_000)]
    pub agent_bytes: usize,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
    /// At the end, leave everything running until Ctrl-C, and print the address of the web page.
    #[arg(long)]
    pub keep: bool,
}

/// Measures and prints.
///
/// # Errors
/// A part does not start, the operator does not recognise the copies as serving machines, or a goal is missed.
pub async fn run(args: Args) -> Result<()> {
    ensure!(args.serving > 0, "--serving must be at least 1");
    let path = args.program.program().await?;
    let plan = Plan {
        restart: Some(args.agent_bytes),
        ..Plan::brisk(args.serving)
    };
    let mut world = World::start(&path, &plan).await?;
    world.nodes.scale(1);
    world.nodes.wait_running(1, LIMIT).await?;
    quiet(&world).await?;
    world.operator.stop().await?;
    world.nodes.retire();
    world.upstream.retire();
    eprintln!("one machine serves; {} more are copied", args.serving - 1);
    copy(&world, args.serving - 1).await?;
    world.start_anew().await?;
    quiet(&world).await?;
    let vms = world.vcenter.inventory().await?.vms.len();
    ensure!(
        vms == args.serving,
        "{vms} VMs after a process has read them"
    );
    eprintln!("a process has read them; their Agents now grow");
    let start = restart::measure(&mut world, args.agent_bytes).await?;
    let page = page::measure(&world.operator, args.serving).await?;

    let usage = &start.usage;
    let writes: usize = start.writes.values().sum();
    let text = format!(
        "serving     {} machines, their Agents {:.0} kB each\n\
         ready       after {:.1} s (goal: {READY_WITHIN} s)\n\
         until rest  {} reads, {writes} writes, {} vCenter calls, {:.1} s of processor time\n\
         memory      {:.1} MiB resident at rest, {:.1} MiB of it its own; {:.1} MiB at most (goal: {RESIDENT} MiB)\n\
         web page    {:.2} s for the data of all machines (goal: {PAGE_WITHIN} s), {:.0} kB, {:.0} kB compressed\n\
         machine     load average {:.1}\n",
        args.serving,
        start.agent_bytes as f64 / 1e3,
        start.ready_seconds,
        start.reads,
        start.calls,
        usage.cpu_seconds,
        mib(usage.resident_bytes),
        mib(usage.anonymous_bytes),
        mib(usage.peak_bytes),
        page.took.as_secs_f64(),
        page.bytes as f64 / 1e3,
        page.packed_bytes as f64 / 1e3,
        proc::load()?,
    );
    say(&text)?;
    for (write, count) in &start.writes {
        say(&format!("{count:>11} {write}\n"))?;
    }
    if args.keep {
        let url = world.operator.web_url();
        say(&format!(
            "\nOpen the page: {url}/\nCtrl-C stops everything\n"
        ))?;
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    }
    ensure!(
        start.ready_seconds <= READY_WITHIN
            && mib(usage.peak_bytes) <= RESIDENT
            && page.took.as_secs_f64() <= PAGE_WITHIN,
        "a goal is missed"
    );
    Ok(())
}

/// The objects of one machine, to be copied.
struct Mould {
    machine: Value,
    agent_machine: Value,
    child: Value,
    agent: Value,
    vm: Vm,
}

impl Mould {
    async fn of(world: &World, vm: Vm) -> Result<Self> {
        let name = vm.name.clone();
        let agent = identity::swapped(&vm.uuid);
        let get = async |kind: ApiResource, name: &str| -> Result<Value> {
            let found = api(world, &kind).get(name).await;
            let found = found.with_context(|| format!("get {} {name}", kind.kind))?;
            serde_json::to_value(found).context("an object as JSON")
        };
        Ok(Self {
            machine: get(kinds::machine(world.cluster.machine_api), &name).await?,
            agent_machine: get(kinds::agent_machine(), &name).await?,
            child: get(ApiResource::erase::<VsphereAgent>(&()), &name).await?,
            agent: get(kinds::agent(), &agent).await?,
            vm,
        })
    }

    /// The datastore of its files.
    fn datastore(&self) -> Result<&str> {
        let path = self.vm.vm_path_name.strip_prefix('[');
        let (name, _) = path.and_then(|p| p.split_once(']')).context("a path")?;
        Ok(name)
    }
}

fn api(world: &World, kind: &ApiResource) -> Api<DynamicObject> {
    let namespace = match kind.kind.as_str() {
        "Machine" | "AgentMachine" => &world.cluster.control_plane_namespace,
        "Agent" => &world.cluster.agent_namespace,
        _ => &world.cluster.namespace,
    };
    Api::namespaced_with(world.lab.admin(), namespace, kind)
}

fn uid(object: &Value) -> Result<String> {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    uid.map(str::to_owned).context("an object without uid")
}

/// Creates an object like `value`, without status. Returns its uid.
async fn create(world: &World, kind: &ApiResource, value: Value) -> Result<String> {
    let object: DynamicObject =
        serde_json::from_value(stamps::unborn(value)).context("a copy as an object")?;
    let created = api(world, kind)
        .create(&PostParams::default(), &object)
        .await;
    let created = created.with_context(|| format!("create a {}", kind.kind))?;
    created.metadata.uid.context("an object without uid")
}

async fn set_status(world: &World, kind: &ApiResource, value: &Value) -> Result<()> {
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    let patch = Patch::Merge(json!({"status": value["status"]}));
    api(world, kind)
        .patch_status(name.context("a name")?, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("set the status of {} {name:?}", kind.kind))?;
    Ok(())
}

/// Copies the only machine.
async fn copy(world: &World, copies: usize) -> Result<()> {
    let vms = world.vcenter.inventory().await?.vms;
    let [vm] = vms.try_into().ok().context("one VM")?;
    let mould = Mould::of(world, vm).await?;
    let (world, mould) = (world, &mould);
    let room = DatastoreState {
        free_bytes: Some(i64::try_from(copies + 1)? * ROOM),
        ..DatastoreState::default()
    };
    world
        .vcenter
        .set_datastore(mould.datastore()?, &room)
        .await?;
    let begun: Vec<Stamps> = stream::iter((0..copies).map(|n| begin(world, mould, n)))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let inventory = world.vcenter.inventory().await?;
    stream::iter(begun.into_iter().map(Ok))
        .try_for_each_concurrent(AT_ONCE, async |mut stamps: Stamps| {
            let vm = inventory.vm(stamps.name()).context("its VM")?;
            stamps.replace(&mould.vm.instance_uuid, &vm.instance_uuid);
            stamps.reference(&mould.vm.moref, &vm.moref);
            finish(world, mould, &stamps).await
        })
        .await
}

/// Creates the objects of copy `n` except the Agent, without status, and its VM.
async fn begin(world: &World, mould: &Mould, n: usize) -> Result<Stamps> {
    let (vm, bios) = (&mould.vm, Uuid::new_v4().to_string());
    let macs = vm.nics.iter().map(|nic| nic.mac.as_str());
    let mut stamps = Stamps::new((&vm.name, &vm.uuid), macs, n, &bios);
    let machine = kinds::machine(world.cluster.machine_api);
    let of_child = ApiResource::erase::<VsphereAgent>(&());
    for (kind, object) in [
        (machine, &mould.machine),
        (kinds::agent_machine(), &mould.agent_machine),
        (of_child, &mould.child),
    ] {
        let new = create(world, &kind, stamps.press(object)?).await?;
        stamps.uid(&uid(object)?, &new);
    }
    let extra_config = stamps.press(&json!(vm.extra_config))?;
    let vm = ForeignVm {
        name: stamps.name().to_owned(),
        folder: world.cluster.name.clone(),
        datastore: mould.datastore()?.to_owned(),
        uuid: bios,
        extra_config: serde_json::from_value(extra_config).context("extra configuration")?,
        power_on: true,
        ..ForeignVm::default()
    };
    world.vcenter.create_vm(&vm).await?;
    Ok(stamps)
}

async fn finish(world: &World, mould: &Mould, stamps: &Stamps) -> Result<()> {
    let agent = stamps.press(&mould.agent)?;
    create(world, &kinds::agent(), agent).await?;
    let machine = kinds::machine(world.cluster.machine_api);
    for (kind, object) in [
        (kinds::agent(), &mould.agent),
        (machine, &mould.machine),
        (kinds::agent_machine(), &mould.agent_machine),
        (ApiResource::erase::<VsphereAgent>(&()), &mould.child),
    ] {
        set_status(world, &kind, &stamps.press(object)?).await?;
    }
    Ok(())
}
