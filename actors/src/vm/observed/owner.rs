//! The Machine that a VM is for, and what may be made for it, from the cached view.

use std::sync::Arc;

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};

use crate::{
    domain::{
        belonging,
        machine_state::{MachineState, machine_state, unserved},
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{self, MachineFacts},
    },
    iso::infra_env_guards::{self, Guard},
    ports::cluster::View,
    world::{agents_home, boundary::Grants},
};

/// Namespace of the AgentMachine and the Machine of `child`, even if its pool is gone.
pub(super) fn control_plane<'a>(
    child: &'a ManagedVm,
    pool: Option<&'a VsphereAgentPool>,
) -> Option<&'a str> {
    match pool {
        Some(pool) => Some(child.home(pool)),
        None => child.control_plane.as_deref(),
    }
}

/// Machine and AgentMachine of a VM.
pub(super) struct Owner {
    /// Whether they exist.
    pub state: MachineState,
    /// The Machine.
    pub machine: Option<MachineFacts>,
    /// The AgentMachine.
    pub agent_machine: Option<Arc<AgentMachine>>,
    machines: Vec<Arc<MachineFacts>>,
    agent_machines: Vec<Arc<AgentMachine>>,
    /// Their namespace is known, and the operator watches it.
    in_view: bool,
}

impl Owner {
    /// Reads it.
    pub fn read(view: &dyn View, child: &ManagedVm, pool: Option<&VsphereAgentPool>) -> Self {
        let Some(namespace) = control_plane(child, pool) else {
            return Self::out_of_view(MachineState::Unknown("its pool does not exist".to_owned()));
        };
        if !view.serves(namespace) {
            return Self::out_of_view(unserved(namespace));
        }
        let machines = view.machines(namespace);
        let agent_machines = view.agent_machines(namespace);
        let state = machine_state(child, namespace, &machines, &agent_machines);
        let recorded = child.machine.as_ref();
        let mut all = machines.iter();
        let machine = all.find(|m| recorded.is_some_and(|r| r.is(&m.key.name, &m.uid)));
        let recorded = child.agent_machine.as_ref();
        let mut all = agent_machines.iter();
        let agent_machine = all.find(|am| recorded.is_some_and(|r| r.is_object(&am.metadata)));
        Self {
            state,
            machine: machine.map(|m| m.as_ref().clone()),
            agent_machine: agent_machine.cloned(),
            machines,
            agent_machines,
            in_view: true,
        }
    }

    fn out_of_view(state: MachineState) -> Self {
        Self {
            state,
            machine: None,
            agent_machine: None,
            machines: Vec::new(),
            agent_machines: Vec::new(),
            in_view: false,
        }
    }

    /// An AgentMachine has chosen that Agent, and is about to claim it.
    pub fn has_chosen(&self, agent: &Agent) -> bool {
        upstream::is_reserved(agent, &self.agent_machines, &self.machines)
    }

    /// The AgentMachine has another host than this VM.
    pub fn has_another_host(&self, child: &ManagedVm, pool: Option<&VsphereAgentPool>) -> bool {
        let chosen = self.agent_machine.as_ref().and_then(|am| am.agent_ref());
        let Some(chosen) = chosen.map(|r| ObjectKey::new(&r.namespace, &r.name)) else {
            return false;
        };
        let own = agents_home::names(pool, child);
        !own.contains(&chosen) && child.agent.as_ref() != Some(&chosen)
    }
}

/// What may be made for a VM.
#[derive(Default)]
pub(super) struct Provision {
    /// What forbids a VM that does not exist yet.
    pub guard: Option<Guard>,
    /// Why nothing more is made: a namespace does not admit the pool.
    pub refused: Option<String>,
}

impl Provision {
    /// Reads it. It is empty without a pool, and where the Machine is not in view.
    pub fn read(
        view: &dyn View,
        child: &ManagedVm,
        pool: Option<&VsphereAgentPool>,
        owner: &Owner,
    ) -> Self {
        let Some(pool) = pool.filter(|_| owner.in_view) else {
            return Self::default();
        };
        let agent_machine = owner.agent_machine.as_deref();
        let grants = Grants::read(view, [pool], agent_machine);
        let lacking = match agent_machine {
            Some(am) => grants.lacking(pool, am),
            None => grants.lacking_home(pool),
        };
        let (_, infra_env) = agents_home::find(view, &grants, pool);
        // The recorded ISO may be that of an InfraEnv which the pool may not use any more.
        let refused_home = || {
            let refused = grants.refused_homes(pool).into_iter().next();
            refused.filter(|_| infra_env.is_none())
        };
        let refused = lacking.or_else(refused_home);
        let own = &child.key.namespace;
        Self {
            guard: guard(view, child, pool, infra_env.as_deref(), &grants),
            refused: refused.map(|namespace| grants.sentence(&[namespace], own)),
        }
    }
}

fn guard(
    view: &dyn View,
    child: &ManagedVm,
    pool: &VsphereAgentPool,
    infra_env: Option<&InfraEnv>,
    grants: &Grants,
) -> Option<Guard> {
    if child.vm().is_some_and(|vm| vm.moref.is_some()) {
        return None;
    }
    let Some(infra_env) = infra_env else {
        return Some(infra_env_guards::gone(&belonging::infra_envs(pool)[0]));
    };
    let choosers = view.all_agent_machines();
    let shown = |am: &AgentMachine| grants.shows(pool, am);
    infra_env_guards::guard(pool, infra_env, &choosers, &shown)
}
