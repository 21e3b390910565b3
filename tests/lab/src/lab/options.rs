//! The options of a lab.

use crate::parts::VCenterOptions;

/// What to start. The default is an API server with the current provider's CRDs and garbage collection, and no vCenter.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Which agent provider is played with which AgentMachine CRD.
    pub generation: ProviderGeneration,
    /// Which versions of the Cluster API kinds are served. `None` chooses those that fit the generation.
    pub machine_versions: Option<MachineVersions>,
    /// Whether the foreign CRDs are the lab's own minimal ones, also where the real ones are available.
    pub minimal_crds: bool,
    /// Whether a kube-controller-manager runs (garbage collection, namespace deletion, aggregated roles).
    pub controller_manager: bool,
    /// The simulated vCenters, in the order of [`crate::Lab::vcenters`].
    pub vcenters: Vec<VCenterOptions>,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            generation: ProviderGeneration::Current,
            machine_versions: None,
            minimal_crds: false,
            controller_manager: true,
            vcenters: Vec::new(),
        }
    }
}

impl LabOptions {
    /// Adds one more simulated vCenter.
    #[must_use]
    pub fn vcenter(mut self, options: VCenterOptions) -> Self {
        self.vcenters.push(options);
        self
    }

    /// Sets another pair of provider and CRD.
    #[must_use]
    pub fn generation(mut self, generation: ProviderGeneration) -> Self {
        self.generation = generation;
        self
    }

    /// The versions that are served.
    pub fn served_machine_versions(&self) -> MachineVersions {
        self.machine_versions.unwrap_or(match self.generation {
            ProviderGeneration::Current | ProviderGeneration::CurrentOnBundledCrd => {
                MachineVersions::Both
            }
            ProviderGeneration::Legacy | ProviderGeneration::LegacyOnUpstreamCrd => {
                MachineVersions::V1Beta1
            }
        })
    }
}

/// Pairs of agent provider and AgentMachine CRD that occur in the field.
///
/// The current provider writes conditions in the Kubernetes form, the legacy one in the form of Cluster API v1beta1.
/// The CRD of the other generation rejects them. So the two mixed pairs do not work, and the operator has to recognise
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderGeneration {
    /// Current provider with its own CRD.
    Current,
    /// Legacy provider with the CRD that HyperShift installs.
    Legacy,
    /// Current provider with the CRD that HyperShift installs: no condition is ever written.
    CurrentOnBundledCrd,
    /// Legacy provider with the current CRD: no status is ever written.
    LegacyOnUpstreamCrd,
}

impl ProviderGeneration {
    /// All pairs.
    pub const ALL: [Self; 4] = [
        Self::Current,
        Self::Legacy,
        Self::CurrentOnBundledCrd,
        Self::LegacyOnUpstreamCrd,
    ];

    /// Whether the AgentMachine CRD is the one that HyperShift bundles.
    pub fn bundled_crd(self) -> bool {
        matches!(self, Self::Legacy | Self::CurrentOnBundledCrd)
    }

    /// Whether the provider is the legacy one.
    pub fn legacy_provider(self) -> bool {
        matches!(self, Self::Legacy | Self::LegacyOnUpstreamCrd)
    }
}

/// Served versions of the Cluster API kinds.
///
/// Caveat of `Both`: without a conversion webhook the API server rewrites only the version's name. Fields of the other
/// version are then lost. Write and read in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MachineVersions {
    /// Only v1beta1, as older HyperShift installs them.
    V1Beta1,
    /// Both, stored as v1beta2.
    Both,
}
