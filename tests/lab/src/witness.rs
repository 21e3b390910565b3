//! A witness: it observes Kubernetes and vCenter during a test, and remembers what must never happen.
//!
//! It reports these faults (see the oracles in tests/sim/README.md):
//! - two VMs of one VsphereAgent, or two VsphereAgents for one AgentMachine;
//! - a VM with our mark and without its VsphereAgent;
//! - an Agent that is deleted before the VM it runs on;
//! - a recorded VM that is destroyed or powered off while its Machine still exists.
//!
//! Each rule reads in an order in which a correct sequence cannot look like the fault: "gone" is read before "still
//! there".

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent_forge_crds::{
    VsphereAgent,
    external::agent::Agent,
    names::{AGENT_MACHINE_UID_ANNOTATION, MACHINE_UID_ANNOTATION},
};
use anyhow::{Result, ensure};
use kube::{Api, ResourceExt, api::ListParams, core::DynamicObject};
use tokio::task::JoinHandle;

use crate::{
    parts::{VCenterAdmin, vcenter_inventory::Vm},
    played::guests::identity,
};

/// Pause between two observations if nothing changes in vCenter.
const PACE: Duration = Duration::from_millis(150);
/// Key of the mark in a VM's `extraConfig`. It is repeated here, because the VMs in existing vCenters have this key and
/// it must not change.
const MARKER: &str = "agent-forge.owner";

/// What a witness observes.
pub struct Sight {
    /// The vCenter's admin endpoint.
    pub vcenter: VCenterAdmin,
    /// VsphereAgents.
    pub children: Api<VsphereAgent>,
    /// Agents.
    pub agents: Api<Agent>,
    /// Machines, in a served version.
    pub machines: Api<DynamicObject>,
}

/// See the module.
pub struct Witness {
    task: JoinHandle<()>,
    wrong: Arc<Mutex<BTreeSet<String>>>,
    looks: Arc<AtomicUsize>,
}

impl Witness {
    /// Starts to observe.
    #[must_use]
    pub fn start(sight: Sight) -> Self {
        let wrong: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let looks: Arc<AtomicUsize> = Arc::default();
        let eyes = Eyes {
            sight,
            wrong: Arc::clone(&wrong),
            known_agents: BTreeSet::new(),
            suspects: BTreeSet::new(),
        };
        let count = Arc::clone(&looks);
        let task = tokio::spawn(async move {
            let mut eyes = eyes;
            loop {
                // The lab may be busy starting or stopping something. Then the next observation counts.
                match eyes.look().await {
                    Ok(()) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => tokio::time::sleep(PACE).await,
                }
            }
        });
        Self { task, wrong, looks }
    }

    /// How many observations it has made.
    #[must_use]
    pub fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// The faults that it saw, or that it could not observe at all.
    pub fn verdict(self) -> Result<()> {
        self.task.abort();
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(wrong.is_empty(), "seen meanwhile: {wrong:#?}");
        let looks = self.looks();
        ensure!(looks >= 10, "the witness made only {looks} observations");
        Ok(())
    }
}

struct Eyes {
    sight: Sight,
    wrong: Arc<Mutex<BTreeSet<String>>>,
    known_agents: BTreeSet<String>,
    /// VMs that had no VsphereAgent when it was read after them.
    suspects: BTreeSet<String>,
}

/// uid of the VsphereAgent in a VM's mark.
pub(crate) fn owner(vm: &Vm) -> Option<String> {
    vm.extra_config
        .get(MARKER)?
        .split('/')
        .nth(4)
        .map(str::to_owned)
}

impl Eyes {
    fn wrong(&self, what: String) {
        let wrong = self.wrong.lock();
        wrong.unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    async fn look(&mut self) -> Result<()> {
        let every = ListParams::default();
        let agents = self.sight.agents.list(&every).await?;
        let agents: BTreeSet<String> = agents.iter().map(ResourceExt::name_any).collect();
        let before = self.sight.children.list(&every).await?.items;
        let vcenter = &self.sight.vcenter;
        let inventory = vcenter.changed_since(0, Duration::from_secs(1)).await?;
        let (vms, version) = (inventory.vms, inventory.version);
        let machines = self.sight.machines.list(&every).await?;
        let machines: BTreeSet<String> = machines.iter().filter_map(ResourceExt::uid).collect();
        let after = self.sight.children.list(&every).await?.items;

        self.agent_outlives(&agents, &vms);
        self.one_vm_each(&vms);
        self.one_child_each(&before);
        self.serving_stays(&before, &vms, &machines);
        self.none_without_record(&vms, &after);
        self.known_agents.extend(agents);
        let news = self.sight.vcenter.changed_since(version, PACE);
        news.await.map(drop)
    }

    /// Reports an Agent that existed and is missing in the first list, while its VM is in the later list.
    fn agent_outlives(&self, agents: &BTreeSet<String>, vms: &[Vm]) {
        for vm in vms {
            let name = identity::swapped(&vm.uuid);
            if self.known_agents.contains(&name) && !agents.contains(&name) {
                self.wrong(format!(
                    "Agent {name} was deleted before its VM {}",
                    vm.name
                ));
            }
        }
    }

    fn one_vm_each(&self, vms: &[Vm]) {
        let mut owners: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for vm in vms {
            if let Some(owner) = owner(vm) {
                owners.entry(owner).or_default().push(&vm.moref);
            }
        }
        for (owner, vms) in owners.iter().filter(|(_, vms)| vms.len() > 1) {
            self.wrong(format!("VsphereAgent {owner} has the VMs {vms:?}"));
        }
    }

    fn one_child_each(&self, children: &[VsphereAgent]) {
        let mut made_for: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for child in children {
            if let Some(uid) = child.annotations().get(AGENT_MACHINE_UID_ANNOTATION) {
                made_for.entry(uid).or_default().push(child.name_any());
            }
        }
        for (uid, children) in made_for.iter().filter(|(_, all)| all.len() > 1) {
            self.wrong(format!(
                "AgentMachine {uid} has the VsphereAgents {children:?}"
            ));
        }
    }

    /// Reports a VM that was recorded as running and is then missing or off, if its Machine is still there afterwards.
    fn serving_stays(&self, children: &[VsphereAgent], vms: &[Vm], machines: &BTreeSet<String>) {
        for child in children {
            let Some(vm) = child.status.as_ref().and_then(|s| s.vm.as_ref()) else {
                continue;
            };
            let machine = child.annotations().get(MACHINE_UID_ANNOTATION);
            let recorded = vm.power_state.as_deref() == Some("poweredOn");
            let runs = |shown: &Vm| vm.moref.as_ref() == Some(&shown.moref) && shown.is_on();
            if recorded
                && machine.is_some_and(|uid| machines.contains(uid))
                && !vms.iter().any(runs)
            {
                self.wrong(format!(
                    "the VM of {} is off or gone although its Machine exists",
                    child.name_any()
                ));
            }
        }
    }

    /// Reports a VM that is seen, has no VsphereAgent afterwards, and is seen again.
    fn none_without_record(&mut self, vms: &[Vm], children: &[VsphereAgent]) {
        for vm in vms.iter().filter(|vm| self.suspects.contains(&vm.moref)) {
            self.wrong(format!("VM {} has our mark and no VsphereAgent", vm.name));
        }
        let known: BTreeSet<String> = children.iter().filter_map(ResourceExt::uid).collect();
        let lost = |vm: &&Vm| owner(vm).is_some_and(|uid| !known.contains(&uid));
        self.suspects = vms.iter().filter(lost).map(|vm| vm.moref.clone()).collect();
    }
}
