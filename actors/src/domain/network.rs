//! The network cards that a new VM gets.

/// Where the MAC address of a card comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacSource {
    /// vCenter picks a free address. The operator records it after the first power-on.
    Generated,
}

/// The plan of one network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicPlan {
    /// Its network, as in the spec.
    pub network: String,
    /// Its MAC address.
    pub mac: MacSource,
}

/// The cards of a VM whose place is on `network`, in the order of creation.
#[must_use]
pub fn nics(network: &str) -> Vec<NicPlan> {
    vec![NicPlan {
        network: network.to_owned(),
        mac: MacSource::Generated,
    }]
}
