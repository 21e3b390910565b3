//! The small world: the content of the API server and vCenter, the memory of the leading operator, and the faults that
//! are left.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::{
        identity::BiosUuid,
        names::{MoRef, ObjectKey},
        upstream::MachineFacts,
    },
    ports::vcenter::{
        BootDevice, CreateVm, Fault as VcFault, PowerState, Renewal, RenewedDisk, Stamp, TaskRef,
        VcError, VcErrorKind, VcResult, VmObservation,
    },
    vm::{
        memory::{Memory, Topic},
        ownership::Ownership,
    },
};
use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentStatus},
    conditions::{Phase, Reason},
    external::{agent::Agent, agent_machine::AgentMachine},
};
use kube::ResourceExt;
use litemap::LiteMap;

use crate::{
    explore::digest,
    objects::{self, CLUSTER_ID, POOL},
    shared::{Held, Shared},
};

/// Objects of one kind.
pub type List<T> = Held<Vec<Shared<T>>>;

/// Monotonic time of everything in memory. The pass that reads the memory decides how old it is. The state does not, so
/// it does not grow with time.
pub const THEN: Duration = Duration::from_secs(10_000);

/// What may go wrong, each at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The operator dies. The other one takes over without memory.
    Crash,
    /// A watch shows an old state until it catches up.
    Lag,
    /// A request is lost without a sign.
    Loss,
    /// A request arrives twice, and the second answer comes back.
    Duplicate,
    /// A request is carried out, at once or later, and its answer is lost.
    Unknown,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Crash,
        Self::Lag,
        Self::Loss,
        Self::Duplicate,
        Self::Unknown,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which faults may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget(u8);

impl Budget {
    /// These faults, each once.
    pub fn of(faults: &[Fault]) -> Self {
        Self(faults.iter().fold(0, |all, f| all | f.bit()))
    }

    /// A bit for each fault that is left.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether it may still happen.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    /// Notes that it has happened.
    pub fn spend(&mut self, fault: Fault) {
        self.0 &= !fault.bit();
    }
}

/// A broken promise, noted when it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Harm {
    /// Something that is not ours was changed.
    ForeignTouched,
    /// The VM or the Agent of a serving host was removed.
    ServingDestroyed,
    /// A second VsphereAgent was created for an AgentMachine that has one.
    Doubled,
    /// An Agent was approved although its VM was given up or has no VsphereAgent.
    LateApproved,
    /// An Agent was bound although its guest does not run in the present life of its VM.
    StaleBound,
    /// A VsphereAgent changed a VM with another one's mark, or promised the Agent of such a VM.
    OthersTouched,
}

/// The watch that lags, with what it still shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// VsphereAgents.
    Children(List<VsphereAgent>),
    /// Agents.
    Agents(List<Agent>),
    /// AgentMachines and Machines.
    Demand(List<AgentMachine>, List<MachineFacts>),
}

/// An order to vCenter.
#[derive(Clone, Debug)]
pub enum Order {
    /// Create a VM.
    Create(Box<CreateVm>),
    /// Set the boot order.
    Boot(MoRef, Vec<i32>),
    /// Switch it on.
    On(MoRef),
    /// Switch it off.
    Off(MoRef),
    /// Destroy it.
    Destroy(MoRef),
    /// Make it ready for another life.
    Renew(MoRef, Renewal),
    /// Write its mark.
    Stamp(MoRef, Stamp),
}

impl Order {
    /// The VM. `None` for one that is to be made.
    pub const fn vm(&self) -> Option<&MoRef> {
        match self {
            Self::Create(_) => None,
            Self::Boot(vm, _)
            | Self::On(vm)
            | Self::Off(vm)
            | Self::Destroy(vm)
            | Self::Renew(vm, _)
            | Self::Stamp(vm, _) => Some(vm),
        }
    }

    /// The version of the VM that it was decided from.
    const fn version(&mut self) -> Option<&mut String> {
        match self {
            Self::Renew(_, Renewal { change_version, .. })
            | Self::Stamp(_, Stamp { change_version, .. }) => change_version.as_mut(),
            _ => None,
        }
    }
}

/// A request whose sender has given up, but that may still arrive.
#[derive(Clone, Debug)]
pub struct Late {
    /// The order in it.
    pub order: Order,
    /// Name of the VsphereAgent that sent it.
    pub by: String,
    /// How often the operator has since looked for its VM without success.
    pub looks: u8,
}

/// That many looks, two seconds apart, take longer than any request (`PROOF_PAUSE` and `Timing::call_bound` in the
/// product). By then the request has arrived, or it never does.
pub const LATEST: u8 = 14;

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// AgentMachines.
    pub agent_machines: List<AgentMachine>,
    /// Machines.
    pub machines: List<MachineFacts>,
    /// VsphereAgents.
    pub children: List<VsphereAgent>,
    /// Agents.
    pub agents: List<Agent>,
    /// All VMs, ours and foreign ones.
    pub vms: List<VmObservation>,
    /// The watch that lags.
    pub stale: Option<Stale>,
    /// Number of events that it has not shown yet.
    pub missed: u8,
    /// The request that may still arrive.
    pub late: Option<Shared<Late>>,
    /// The memory of the leading operator's VM actors.
    pub memory: Held<LiteMap<String, Shared<Memory>>>,
    /// How many VsphereAgents and VMs were ever created for that name.
    pub born: Held<LiteMap<String, (u8, u8)>>,
    /// Number of hours that have passed. An hour is longer than any deadline and any pause.
    pub hours: u8,
    /// The faults that are left.
    pub left: Budget,
    /// Machines that a person may still create.
    pub to_come: Held<Vec<String>>,
    /// They may come as soon as the one before is gone, and not only when a VM is made ready for its next life.
    pub hurries: bool,
    /// The service may reclaim a host that is unbound, so that its guest returns by itself.
    pub reclaims: bool,
    /// The servers check neither versions nor names. No real one is like that: it shows that an oracle can fail.
    pub lenient: bool,
    /// VMs have versions and lives, and Agents the states of these. See [`crate::binding`].
    pub lives: bool,
    /// The first broken promise.
    pub harm: Option<Harm>,
}

/// A failed call to vCenter.
pub fn vc_error(kind: VcErrorKind) -> VcError {
    VcError {
        kind,
        operation: "call",
        subject: "it".to_owned(),
        message: "as told".to_owned(),
    }
}

fn fault(fault: VcFault) -> VcError {
    vc_error(VcErrorKind::Fault(fault))
}

/// Counts a write: the version grows.
pub fn bump<K: kube::Resource>(object: &mut K) -> String {
    let meta = object.meta_mut();
    let version = number(meta.resource_version.as_deref()) + 1;
    let version = version.to_string();
    meta.resource_version = Some(version.clone());
    version
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// No version is recorded: the watch shows what was written.
const SHOWN: u64 = 0;

fn renumber<K: ResourceExt + std::fmt::Debug + Clone + Send + Sync + 'static>(
    live: &mut List<K>,
    shown: Option<&mut List<K>>,
    written: bool,
    mut remembered: impl FnMut(&str, u64, Option<u64>, &dyn Fn(u64) -> u64),
) {
    let mut shown = shown;
    let first = |o: &Shared<K>| o.meta().resource_version.as_deref() == Some("1");
    if shown.is_none() && !written && live.iter().all(first) {
        return;
    }
    let both = live.iter().chain(shown.iter().flat_map(|s| s.iter()));
    let mut uids: Vec<String> = both.filter_map(|o| o.uid()).collect();
    uids.sort_unstable();
    uids.dedup();
    for uid in uids {
        let is_it = |o: &Shared<K>| o.meta().uid.as_deref() == Some(uid.as_str());
        let version = |o: &Shared<K>| number(o.meta().resource_version.as_deref());
        let lives = live.iter().find(|o| is_it(o)).map(version);
        let shows = shown.as_ref();
        let shows = shows.and_then(|s| s.iter().find(|o| is_it(o)).map(version));
        // The watch shows the same version or an earlier one. Of the versions between them, memory contains at most our
        // own write.
        let oldest = shows.or(lives).unwrap_or(1).min(lives.unwrap_or(u64::MAX));
        let rank = |v: u64| -> u64 {
            if v <= oldest {
                1
            } else if Some(v) == lives {
                3
            } else {
                2
            }
        };
        remembered(&uid, oldest, lives, &rank);
        for all in std::iter::once(&mut *live).chain(shown.as_deref_mut()) {
            let Some(at) = all.iter().position(is_it) else {
                continue;
            };
            let was = version(&all[at]);
            let want = rank(was);
            if was != want {
                let set = |o: &mut K| o.meta_mut().resource_version = Some(want.to_string());
                all[at].change_so(want, set);
            }
        }
    }
}

impl World {
    /// Digest of everything except what says only how much may still happen.
    pub fn print(&self) -> u64 {
        let Self {
            agent_machines,
            machines,
            children,
            agents,
            vms,
            stale,
            missed: _,
            late,
            memory,
            born,
            hours,
            left: _,
            to_come,
            hurries: _,
            reclaims: _,
            lenient: _,
            lives: _,
            harm,
        } = self;
        let objects = (agent_machines, machines, children, agents, vms);
        digest(&(objects, stale, late, memory, born, hours, to_come, harm))
    }

    /// A world in which these machines wait and a foreign Agent exists. With `foreign`, a foreign VM has the name of
    /// the first machine.
    pub fn new(names: &[&str], foreign: bool, faults: &[Fault]) -> Self {
        let foreign = foreign.then(|| names.first()).flatten();
        Self {
            agent_machines: names
                .iter()
                .map(|n| objects::agent_machine(n, POOL))
                .collect(),
            machines: names.iter().map(|n| objects::machine(n)).collect(),
            children: List::default(),
            agents: [objects::stranger()].into_iter().collect(),
            vms: foreign.map(|name| foreign_vm(name)).into_iter().collect(),
            stale: None,
            missed: 0,
            late: None,
            memory: Held::default(),
            born: Held::default(),
            hours: 0,
            left: Budget::of(faults),
            to_come: Held::default(),
            hurries: false,
            reclaims: false,
            lenient: false,
            lives: false,
            harm: None,
        }
    }

    /// VsphereAgents as the watch shows them.
    pub fn shown_children(&self) -> &[Shared<VsphereAgent>] {
        match &self.stale {
            Some(Stale::Children(old)) => old,
            _ => &self.children,
        }
    }

    /// Agents as the watch shows them.
    pub fn shown_agents(&self) -> &[Shared<Agent>] {
        match &self.stale {
            Some(Stale::Agents(old)) => old,
            _ => &self.agents,
        }
    }

    /// AgentMachines as the watch shows them.
    pub fn shown_agent_machines(&self) -> &[Shared<AgentMachine>] {
        match &self.stale {
            Some(Stale::Demand(old, _)) => old,
            _ => &self.agent_machines,
        }
    }

    /// Machines as the watch shows them.
    pub fn shown_machines(&self) -> &[Shared<MachineFacts>] {
        match &self.stale {
            Some(Stale::Demand(_, old)) => old,
            _ => &self.machines,
        }
    }

    /// Limits how far the watch lags after `before`. When it would be behind by more events, it shows everything again.
    pub fn lag_at_most(&mut self, most: u8, before: &Self) {
        let news = match &self.stale {
            None => false,
            Some(Stale::Children(_)) => self.children != before.children,
            Some(Stale::Agents(_)) => self.agents != before.agents,
            Some(Stale::Demand(..)) => {
                self.agent_machines != before.agent_machines || self.machines != before.machines
            }
        };
        self.missed += u8::from(news);
        if self.missed > most {
            self.stale = None;
            self.settle();
        }
    }

    /// Notes a broken promise. Only the first one counts.
    pub fn harmed(&mut self, harm: Harm) {
        self.harm.get_or_insert(harm);
    }

    /// The VM that an Agent runs on.
    pub fn vm_of(&self, agent: &Agent) -> Option<&Shared<VmObservation>> {
        let uuid = BiosUuid::parse(&agent.name_any())?;
        let runs = |vm: &&Shared<VmObservation>| vm.bios_uuid.is_some_and(|u| u.same_machine(uuid));
        self.vms.iter().find(runs)
    }

    /// The Agent that runs on a VM.
    pub fn agent_on(&self, vm: &VmObservation) -> Option<&Shared<Agent>> {
        let uuid = vm.bios_uuid?;
        let runs = |a: &&Shared<Agent>| {
            BiosUuid::parse(&a.name_any()).is_some_and(|u| u.same_machine(uuid))
        };
        self.agents.iter().find(runs)
    }

    fn change_vm(
        &mut self,
        moref: &MoRef,
        (takes_away, by): (bool, &str),
        change: impl FnOnce(&mut VmObservation) -> Result<(), VcFault>,
    ) -> VcResult<TaskRef> {
        let Some(at) = self.vms.iter().position(|v| v.moref == *moref) else {
            return Err(fault(VcFault::ManagedObjectNotFound(Some(moref.clone()))));
        };
        let mut vm = self.vms[at].as_ref_clone();
        change(&mut vm).map_err(fault)?;
        match &self.vms[at].marker {
            None => self.harmed(Harm::ForeignTouched),
            Some(marker) if takes_away && marker.name != by => self.harmed(Harm::OthersTouched),
            Some(_) => {}
        }
        let serves = self
            .agent_on(&self.vms[at])
            .is_some_and(|a| a.is_claimed_or_bound());
        if takes_away && serves {
            self.harmed(Harm::ServingDestroyed);
        }
        self.vms[at] = Shared::new(vm);
        Ok(TaskRef("done".to_owned()))
    }

    /// vCenter carries an order of the VsphereAgent `by` out.
    ///
    /// # Errors
    /// The fault that vCenter answers with.
    #[allow(clippy::result_large_err, reason = "the port's own error type")]
    pub fn obey(&mut self, order: &Order, by: &str) -> VcResult<TaskRef> {
        let power = |vm: &VmObservation, want: PowerState| {
            if vm.power == want {
                let existing = vm.power.as_str().to_owned();
                return Err(VcFault::InvalidPowerState { existing });
            }
            Ok(())
        };
        match order {
            Order::Create(spec) => self.create(spec),
            Order::Boot(vm, keys) => self.change_vm(vm, (false, by), |vm| {
                let disks = keys.iter().map(|k| BootDevice::Disk(*k));
                vm.boot_order = disks.chain([BootDevice::Cdrom]).collect();
                change_version(vm);
                Ok(())
            }),
            Order::On(vm) => self.change_vm(vm, (false, by), |vm| {
                power(vm, PowerState::On)?;
                vm.power = PowerState::On;
                Ok(())
            }),
            Order::Off(vm) => self.change_vm(vm, (true, by), |vm| {
                power(vm, PowerState::Off)?;
                vm.power = PowerState::Off;
                Ok(())
            }),
            Order::Destroy(vm) => {
                let done = self.change_vm(vm, (true, by), |vm| power(vm, PowerState::On))?;
                self.vms.retain(|v| v.moref != *vm);
                Ok(done)
            }
            Order::Renew(vm, renewal) => {
                let lenient = self.lenient;
                self.change_vm(vm, (true, by), |vm| {
                    power(vm, PowerState::On)?;
                    is_as_seen(vm, renewal.change_version.as_ref(), lenient)?;
                    vm.generation = Some(renewal.generation);
                    if renewal.disk == RenewedDisk::Kept {
                        vm.boot_order.rotate_right(1);
                    } else {
                        // A new disk has another key.
                        vm.disk_keys = vm.disk_keys.iter().map(|key| key + 1).collect();
                    }
                    change_version(vm);
                    Ok(())
                })
            }
            Order::Stamp(vm, stamp) => {
                let lenient = self.lenient;
                self.change_vm(vm, (false, by), |vm| {
                    is_as_seen(vm, stamp.change_version.as_ref(), lenient)?;
                    vm.marker = stamp.mark.read().cloned();
                    change_version(vm);
                    Ok(())
                })
            }
        }
    }

    #[allow(clippy::result_large_err, reason = "the port's own error type")]
    fn create(&mut self, spec: &CreateVm) -> VcResult<TaskRef> {
        let mut others = self.vms.iter().filter(|_| !self.lenient);
        if let Some(holder) = others.find(|v| v.name == spec.name) {
            return Err(fault(VcFault::DuplicateName {
                name: spec.name.clone(),
                holder: Some(holder.moref.clone()),
            }));
        }
        let path = spec.vm_path.to_string();
        if !self.lenient && self.vms.iter().any(|v| v.vm_path == path) {
            return Err(fault(VcFault::AlreadyExists(path)));
        }
        let n = self.count_born(&spec.name, |(_, vms)| vms);
        let id = format!("vm-{}-{n}", spec.name);
        self.vms.push(Shared::new(VmObservation {
            moref: MoRef::new("VirtualMachine", &id),
            name: spec.name.clone(),
            bios_uuid: Some(spec.uuid),
            instance_uuid: Some(format!("instance-{id}")),
            folder: Some(spec.place.folder.clone()),
            marker: Some(spec.marker.clone()),
            generation: None,
            change_version: self.lives.then(|| FIRST.to_owned()),
            marks: agent_forge_actors::domain::holds::VmMarks::default(),
            annotation: spec.annotation.clone(),
            power: PowerState::Off,
            connection_state: "connected".to_owned(),
            macs: objects::mac(&spec.name, n).into_iter().collect(),
            disk_keys: vec![2000],
            cdroms: Vec::new(),
            boot_order: Vec::new(),
            vm_path: path,
            tools: None,
            guest_address: None,
            hardware: agent_forge_actors::domain::hardware::ShownHardware::default(),
            guest_host: None,
        }));
        self.vms.sort_by(|a, b| a.moref.cmp(&b.moref));
        Ok(TaskRef(id))
    }

    /// Counts one more VsphereAgent or VM of that name. Returns how many there were in all.
    pub fn count_born(&mut self, name: &str, which: impl FnOnce(&mut (u8, u8)) -> &mut u8) -> u8 {
        let mut born = self.born.get(name).copied().unwrap_or_default();
        let count = which(&mut born);
        *count += 1;
        let count = *count;
        self.born.insert(name.to_owned(), born);
        count
    }

    /// Looks for VMs with that uuid.
    pub fn look(&mut self, uuid: BiosUuid) -> Vec<VmObservation> {
        let has_it = |v: &&Shared<VmObservation>| v.bios_uuid == Some(uuid);
        let found: Vec<_> = self
            .vms
            .iter()
            .filter(has_it)
            .map(|v| v.as_ref_clone())
            .collect();
        let awaited = |l: &Late| matches!(&l.order, Order::Create(spec) if spec.uuid == uuid);
        if found.is_empty() && self.late.as_ref().is_some_and(|l| awaited(l)) {
            let over = self.late.as_mut().is_some_and(|l| {
                l.change(|l| {
                    l.looks += 1;
                    l.looks >= LATEST
                })
            });
            if over {
                self.late = None;
            }
        }
        found
    }

    /// Removes each VsphereAgent in deletion whose last finalizer is gone.
    pub fn reap(&mut self) {
        let stays = |c: &Shared<VsphereAgent>| {
            c.metadata.deletion_timestamp.is_none() || !c.finalizers().is_empty()
        };
        if !self.children.iter().all(stays) {
            self.children.retain(stays);
        }
    }

    /// Versions of VMs without history: only whether the VM changed since the late request was decided.
    fn settle_versions(&mut self) {
        if !self.lives {
            return;
        }
        let mut late = self.late.as_ref().map(Shared::as_ref_clone);
        let decided = late.as_mut().and_then(|late| {
            let vm = late.order.vm()?.clone();
            Some((vm, late.order.version()?))
        });
        let (about, mut decided) = decided.unzip();
        for vm in self.vms.iter_mut() {
            let seen = decided
                .as_mut()
                .filter(|_| about.as_ref() == Some(&vm.moref));
            let same = seen
                .as_ref()
                .is_none_or(|seen| vm.change_version.as_ref() == Some(**seen));
            if let Some(seen) = seen {
                FIRST.clone_into(seen);
            }
            let want = if same { FIRST } else { SECOND };
            if vm.change_version.as_deref().is_some_and(|v| v != want) {
                let set = |vm: &mut VmObservation| vm.change_version = Some(want.to_owned());
                vm.change_so(number(Some(want)), set);
            }
        }
        self.late = late.map(Shared::new);
    }

    /// Brings equal states into one form: memory without ages, versions without history.
    pub fn settle(&mut self) {
        if let Some(stale) = &self.stale {
            let caught_up = match stale {
                Stale::Children(old) => *old == self.children,
                Stale::Agents(old) => *old == self.agents,
                Stale::Demand(am, m) => *am == self.agent_machines && *m == self.machines,
            };
            if caught_up {
                self.stale = None;
            }
        }
        if self.stale.is_none() {
            self.missed = 0;
        }
        self.settle_versions();
        // An actor ends with its object.
        let mut memory = std::mem::take(&mut self.memory);
        let shown = self.shown_children();
        let lives = |name: &String| shown.iter().any(|c| c.metadata.name.as_ref() == Some(name));
        if !memory.keys().all(lives) {
            memory.retain(|name, _| lives(name));
        }
        self.memory = memory;
        let memory = &mut self.memory;
        let mut stale = self.stale.take();
        let old_children = match &mut stale {
            Some(Stale::Children(old)) => Some(old),
            _ => None,
        };
        let written = memory.values().any(|m| m.status.pending().is_some());
        let named = |c: &Shared<VsphereAgent>| (c.uid().unwrap_or_default(), c.name_any());
        let uid_of: BTreeMap<String, String> = if written {
            let old = old_children.iter().flat_map(|old| old.iter());
            self.children.iter().chain(old).map(named).collect()
        } else {
            BTreeMap::new()
        };
        renumber(
            &mut self.children,
            old_children,
            written,
            |uid, shown, _, rank| {
                let Some(known) = uid_of.get(uid).and_then(|name| memory.get_mut(name)) else {
                    return;
                };
                let Some(written) = known.status.pending() else {
                    return;
                };
                let version = number(Some(written));
                let want = rank(version);
                if version <= shown {
                    known.change_so(SHOWN, |m| m.status.renumber(None));
                } else if version != want {
                    known.change_so(want, |m| m.status.renumber(Some(want.to_string())));
                }
            },
        );
        let old_agents = match &mut stale {
            Some(Stale::Agents(old)) => Some(old),
            _ => None,
        };
        renumber(&mut self.agents, old_agents, false, |_, _, _, _| {});
        let old_demand = match &mut stale {
            Some(Stale::Demand(old, _)) => Some(old),
            _ => None,
        };
        renumber(&mut self.agent_machines, old_demand, false, |_, _, _, _| {});
        self.stale = stale;
    }
}

/// The version of a VM that no request on its way was decided from, and of one that a request was.
const FIRST: &str = "1";
/// The version of a VM that changed since a request on its way was decided.
const SECOND: &str = "2";

/// Counts a change of the VM's configuration.
fn change_version(vm: &mut VmObservation) {
    if let Some(version) = &mut vm.change_version {
        *version = (number(Some(version)) + 1).to_string();
    }
}

/// vCenter refuses a request that was decided from another version of the VM.
fn is_as_seen(vm: &VmObservation, seen: Option<&String>, lenient: bool) -> Result<(), VcFault> {
    if lenient || seen.is_none() || vm.change_version.as_ref() == seen {
        return Ok(());
    }
    Err(VcFault::ConcurrentAccess)
}

/// Brings memory into one form: every moment is [`THEN`], and what only informs people is left out.
pub fn ageless(memory: &mut Memory) {
    memory.timeline = None;
    memory.traced = None;
    // It is used for traces and Events only.
    memory.failed_step = None;
    memory.installing = None;
    memory.announcer.keep(|topic| *topic == Topic::Host);
    // Nothing clears a record.
    memory.recorded = None;
    // Each pass begins without a failed write, or finds it again.
    memory.status.reduce(bare);
    memory.known_since = None;
    // Both clocks run alike here.
    memory.discovery = None;
    memory.lost_since = None;
    // No hosted cluster of these worlds hangs.
    memory.cluster_seen = None;
    // Every pass comes later than the pause between two proofs.
    memory.proof_at = None;
    memory.seen_since = (memory.seen != Ownership::NotAsked).then_some(THEN);
    memory.stuck_since = memory.stuck_since.map(|_| THEN);
    // No pool of these worlds switches a VM on again, and no optional step fails for good.
    memory.off_seen = None;
    memory.failed_steps.clear();
    memory.tried.clear();
    match &mut memory.seen {
        Ownership::Foreign { at, what, .. } => {
            *at = THEN;
            what.clear();
        }
        // A request carries the version that was seen directly before it.
        Ownership::Ours(vm) | Ownership::Lenders(vm) => vm.change_version = None,
        _ => {}
    }
    if let Some(refused) = &mut memory.create_refused {
        refused.at = THEN;
    }
}

/// Removes the parts of a VsphereAgent's status that only inform people.
pub fn bare(status: &mut VsphereAgentStatus) {
    status.timeline.clear();
    status.conditions.clear();
    status.waiting_on.retain_mut(|w| {
        w.message.clear();
        LASTING.contains(&w.reason)
    });
    if let Some(vm) = &mut status.vm {
        vm.last_transition_time = None;
        vm.lives.clear();
        // Decisions depend on the phase of an orphan only.
        if vm.phase != Some(Phase::Orphaned) {
            vm.phase = None;
        }
    }
}

/// The reasons that the pool's decisions depend on.
const LASTING: [Reason; 6] = [
    Reason::NameConflict,
    Reason::OwnershipUnproven,
    Reason::AmbiguousVm,
    Reason::ClusterIdChanged,
    Reason::RecordUnreadable,
    Reason::VmMissing,
];

/// A foreign VM.
pub fn foreign_vm(name: &str) -> VmObservation {
    VmObservation {
        moref: MoRef::new("VirtualMachine", "vm-0-foreign"),
        name: name.to_owned(),
        bios_uuid: Some(BiosUuid::derive("elsewhere", "foreign", 1)),
        instance_uuid: Some("instance-foreign".to_owned()),
        folder: Some(MoRef::new("Folder", "group-v1")),
        marker: None,
        generation: None,
        change_version: None,
        marks: agent_forge_actors::domain::holds::VmMarks::default(),
        annotation: String::new(),
        power: PowerState::On,
        connection_state: "connected".to_owned(),
        macs: objects::mac("z", 99).into_iter().collect(),
        disk_keys: vec![2000],
        cdroms: Vec::new(),
        boot_order: Vec::new(),
        vm_path: format!("[ds1] {name}/{name}.vmx"),
        tools: None,
        guest_address: None,
        hardware: agent_forge_actors::domain::hardware::ShownHardware::default(),
        guest_host: None,
    }
}

/// Whether the marker belongs to this cluster.
pub fn is_ours(vm: &VmObservation) -> bool {
    vm.marker
        .as_ref()
        .is_some_and(|m| m.cluster_id == CLUSTER_ID)
}

/// Key of an object.
pub fn key<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey::of(object)
}

impl<T: Clone> Shared<T> {
    /// A copy that may be changed.
    pub fn as_ref_clone(&self) -> T {
        T::clone(self)
    }
}

/// All values, shared as the ports return them.
pub fn arcs<T: std::fmt::Debug>(all: &[Shared<T>]) -> Vec<Arc<T>> {
    all.iter().map(Shared::arc).collect()
}
