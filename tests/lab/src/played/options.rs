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

/// Each delay with its milliseconds for a demo of a minute that people can follow, and for tests.
macro_rules! delays {
    ($($(#[$doc:meta])* $name:ident: $demo:literal, $fast:literal;)*) => {
        /// How long each played step takes.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Delays {
            $($(#[$doc])* pub $name: Duration,)*
        }

        impl Default for Delays {
            /// Times for a demo.
            fn default() -> Self {
                Self { $($name: Duration::from_millis($demo),)* }
            }
        }

        impl Delays {
            /// Times for tests: every step still takes place, but is as short as possible.
            #[must_use]
            pub fn fast() -> Self {
                Self { $($name: Duration::from_millis($fast),)* }
            }

            fn named(&mut self) -> Vec<(String, &mut Duration)> {
                vec![$((stringify!($name).replace('_', "-"), &mut self.$name),)*]
            }
        }
    };
}

delays! {
    /// CAPI: from the Machine's creation until it owns the AgentMachine. It is also CAPI's usual reaction time.
    owner_swap: 1000, 100;
    /// CAPI: drain of a Machine that has a Node.
    drain: 1000, 50;
    /// CAPI: from a ready AgentMachine to a ready Node.
    node_ready: 1000, 50;
    /// Provider: between the writes of one claim.
    claim_step: 10, 5;
    /// Provider: poll interval while it waits for the host of a deleted Machine.
    hook_poll: 5000, 500;
    /// Guest: from power-on to the end of the boot.
    boot: 4000, 300;
    /// Agent process: from the registration after a boot until it has replaced itself by the service's version and registered
    /// again.
    upgrade: 500, 50;
    /// Agent process: from registration to its first inventory.
    inventory: 1000, 100;
    /// Agent process: poll interval for its next steps. A bind or unbind takes this long. So does the check of what only a host
    /// in a cluster needs.
    agent_poll: 2000, 150;
    /// Service: interval of its monitor, which moves hosts between states.
    monitor: 1000, 100;
    /// Service: time without an answer after which a host counts as disconnected.
    disconnect: 10_000, 1500;
    /// Service: pause before a refused bind or unbind is repeated.
    backend_retry: 2000, 300;
    /// Service: from `known` to `installing`.
    install_start: 1000, 50;
    /// Service: one install stage. There are four before the reboot and three after it.
    install_stage: 1000, 50;
    /// Service: download of the boot artifacts for a reclaim.
    reclaim: 2000, 150;
    /// Service: from the end of that download to the registration of the rebooted host.
    reclaim_reboot: 2000, 150;
    /// Service: time limit of a reclaim.
    reclaim_limit: 60_000, 10_000;
    /// Service: removal of a deleted Agent's host.
    deregister: 300, 50;
    /// Service: from a new InfraEnv to its image URL.
    image: 500, 50;
}

impl Delays {
    /// Sets the delay with this field name, written with hyphens, for command lines. `install-stage=3s` is
    /// `set("install-stage", 3 s)`.
    ///
    /// # Errors
    /// There is no such delay. The text lists the existing ones.
    pub fn set(&mut self, name: &str, value: Duration) -> Result<(), String> {
        let mut all = self.named();
        if let Some((_, place)) = all.iter_mut().find(|(known, _)| known == name) {
            **place = value;
            return Ok(());
        }
        let names: Vec<String> = all.into_iter().map(|(known, _)| known).collect();
        let names = names.join(", ");
        Err(format!("no delay is called {name:?}; there are {names}"))
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
    /// The discovery image.
    pub image: ImageOptions,
}
