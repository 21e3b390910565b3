//! All options of the played parts, in one place.

use std::time::Duration;

/// The version of the CAPI types that a control plane's CAPI writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MachineApi {
    /// Deprecated; older payloads still write it.
    V1Beta1,
    /// Written by CAPI 1.11 and later.
    #[default]
    V1Beta2,
}

impl MachineApi {
    /// The version part of `apiVersion`.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }
}

/// The generation of the agent CAPI provider.
///
/// Which AgentMachine CRD is installed is a separate option. In mismatched pairs the API server refuses what this
/// generation writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Generation {
    /// Since June 2026: `metav1.Condition` items, `Ready` with reason `IssuesReported`.
    #[default]
    Current,
    /// Before June 2026: CAPI v1beta1 conditions with a severity, `Ready` with the first issue's reason, v1beta1 owners
    /// only.
    Legacy,
}

/// How the assisted service takes an installed host back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unbind {
    /// A pod in the hosted cluster boots the host into discovery.
    #[default]
    Reclaim,
    /// Not automatically: the host waits for a user action (`unbinding-pending-user-action`).
    Plain,
}

/// One played hosted cluster: its names, and the versions that its own controllers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostedCluster {
    /// Namespace of the HostedCluster and its NodePools.
    pub namespace: String,
    /// Name of the HostedCluster.
    pub name: String,
    /// Namespace of the Machines and AgentMachines.
    pub control_plane_namespace: String,
    /// Namespace of the Agents and InfraEnvs, `spec.platform.agent.agentNamespace`.
    pub agent_namespace: String,
    /// Generation of the cluster's agent provider.
    pub generation: Generation,
    /// API version of the cluster's CAPI.
    pub machine_api: MachineApi,
}

impl HostedCluster {
    /// A hosted cluster with HyperShift's names: control plane in `<namespace>-<name>`, Agents in the namespace of the
    /// NodePools.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            control_plane_namespace: format!("{namespace}-{}", name.replace('.', "-")),
            agent_namespace: namespace.to_owned(),
            generation: Generation::default(),
            machine_api: MachineApi::default(),
        }
    }
}

/// How long each played step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays {
    /// CAPI: from the Machine's creation until it owns the AgentMachine. It is also CAPI's usual reaction time.
    pub owner_swap: Duration,
    /// CAPI: drain of a Machine that has a Node.
    pub drain: Duration,
    /// CAPI: from a ready AgentMachine to a ready Node.
    pub node_ready: Duration,
    /// Provider: between the writes of one claim.
    pub claim_step: Duration,
    /// Provider: poll interval while it waits for the host of a deleted Machine.
    pub hook_poll: Duration,
    /// Guest: from power-on to the end of the boot.
    pub boot: Duration,
    /// Agent process: from the registration after a boot until it has replaced itself by the service's version and registered
    /// again.
    pub upgrade: Duration,
    /// Agent process: from registration to its first inventory.
    pub inventory: Duration,
    /// Agent process: poll interval for its next steps. A bind or unbind takes this long. So does the check of what only a host
    /// in a cluster needs.
    pub agent_poll: Duration,
    /// Service: interval of its monitor, which moves hosts between states.
    pub monitor: Duration,
    /// Service: time without an answer after which a host counts as disconnected.
    pub disconnect: Duration,
    /// Service: pause before a refused bind or unbind is repeated.
    pub backend_retry: Duration,
    /// Service: from `known` to `installing`.
    pub install_start: Duration,
    /// Service: one install stage. There are four before the reboot and three after it.
    pub install_stage: Duration,
    /// Service: download of the boot artifacts for a reclaim.
    pub reclaim: Duration,
    /// Service: from the end of that download to the registration of the rebooted host.
    pub reclaim_reboot: Duration,
    /// Service: time limit of a reclaim.
    pub reclaim_limit: Duration,
    /// Service: removal of a deleted Agent's host.
    pub deregister: Duration,
    /// Service: from a new InfraEnv to its image URL.
    pub image: Duration,
}

impl Default for Delays {
    /// Times for a demo of a minute that people can follow.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            owner_swap: ms(1000),
            drain: ms(1000),
            node_ready: ms(1000),
            claim_step: ms(10),
            hook_poll: ms(5000),
            boot: ms(4000),
            upgrade: ms(500),
            inventory: ms(1000),
            agent_poll: ms(2000),
            monitor: ms(1000),
            disconnect: ms(10_000),
            backend_retry: ms(2000),
            install_start: ms(1000),
            install_stage: ms(1000),
            reclaim: ms(2000),
            reclaim_reboot: ms(2000),
            reclaim_limit: ms(60_000),
            deregister: ms(300),
            image: ms(500),
        }
    }
}

impl Delays {
    /// Times for tests: every step still takes place, but is as short as possible.
    #[must_use]
    pub fn fast() -> Self {
        let ms = Duration::from_millis;
        Self {
            owner_swap: ms(100),
            drain: ms(50),
            node_ready: ms(50),
            claim_step: ms(5),
            hook_poll: ms(500),
            boot: ms(300),
            upgrade: ms(50),
            inventory: ms(100),
            agent_poll: ms(150),
            monitor: ms(100),
            disconnect: ms(1500),
            backend_retry: ms(300),
            install_start: ms(50),
            install_stage: ms(50),
            reclaim: ms(150),
            reclaim_reboot: ms(150),
            reclaim_limit: ms(10_000),
            deregister: ms(50),
            image: ms(50),
        }
    }

    /// Sets the delay with this field name, written with hyphens, for command lines. `install-stage=3s` is
    /// `set("install-stage", 3 s)`.
    ///
    /// # Errors
    /// There is no such delay. The text lists the existing ones.
    pub fn set(&mut self, name: &str, value: Duration) -> Result<(), String> {
        let mut all = self.named();
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, place)) => **place = value,
            None => {
                let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
                return Err(format!(
                    "no delay is called {name:?}; there are {}",
                    names.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn named(&mut self) -> [(&'static str, &mut Duration); 19] {
        [
            ("owner-swap", &mut self.owner_swap),
            ("drain", &mut self.drain),
            ("node-ready", &mut self.node_ready),
            ("claim-step", &mut self.claim_step),
            ("hook-poll", &mut self.hook_poll),
            ("boot", &mut self.boot),
            ("upgrade", &mut self.upgrade),
            ("inventory", &mut self.inventory),
            ("agent-poll", &mut self.agent_poll),
            ("monitor", &mut self.monitor),
            ("disconnect", &mut self.disconnect),
            ("backend-retry", &mut self.backend_retry),
            ("install-start", &mut self.install_start),
            ("install-stage", &mut self.install_stage),
            ("reclaim", &mut self.reclaim),
            ("reclaim-reboot", &mut self.reclaim_reboot),
            ("reclaim-limit", &mut self.reclaim_limit),
            ("deregister", &mut self.deregister),
            ("image", &mut self.image),
        ]
    }
}

/// The discovery image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageOptions {
    /// Its size in bytes, rounded up to whole sectors of 2048; at least 128 KiB.
    pub size: usize,
    /// Whether every download contains a new token, as with local authentication of the service.
    pub volatile: bool,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            size: 2 << 20,
            volatile: true,
        }
    }
}

/// All options of [`super::Upstream::start`].
#[derive(Debug, Clone, Default)]
pub struct PlayedOptions {
    /// The hosted clusters that this upstream plays. It changes nothing in other namespaces.
    pub clusters: Vec<HostedCluster>,
    /// Step times.
    pub delays: Delays,
    /// How an installed host is taken back.
    pub unbind: Unbind,
    /// The discovery image.
    pub image: ImageOptions,
}
