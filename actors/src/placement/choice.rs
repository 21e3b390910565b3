//! Chooses datastore and host among the candidates. Pure.
//!
//! Network, datastore and ISO datastore must meet on at least one usable host of the compute resource. The check is here, so
//! that a pool reports which field is wrong before vCenter refuses a creation.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeMap};

use crate::ports::vcenter::{
    Datastore, Fault, Host, PlaceCandidates, PlaceRequest, Recommendation, VcError, VcErrorKind,
};

/// What earlier choices mean for the next one.
#[derive(Clone, Debug, Default)]
pub struct EarlierChoices {
    /// Bytes that VMs in the making will still take, per datastore id.
    pub reserved: BTreeMap<String, u64>,
    /// How many VMs of this resource pool got their host from placement.
    pub hosts_named: usize,
    /// Bytes that stay free on each datastore.
    pub floor: u64,
}

/// Why no candidate fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// No host is connected and out of maintenance.
    NoUsableHost,
    /// No usable host has the network.
    NetworkNowhere,
    /// No usable host has one of the datastores.
    DatastoreNowhere,
    /// No usable host has the ISO datastore.
    IsoDatastoreNowhere,
    /// Usable hosts have each of them, but no host has all.
    NeverTogether,
    /// No datastore has room.
    Full {
        /// Bytes that are free on the emptiest one.
        best: u64,
        /// Bytes that stay free on each.
        floor: u64,
    },
}

impl NoPlace {
    /// The error that names the field to correct.
    #[must_use]
    pub fn error(self, request: &PlaceRequest) -> VcError {
        let pool = &request.resource_pool;
        let (field, value, why) = match self {
            Self::NoUsableHost => (
                "resourcePool",
                pool,
                "none of its hosts is connected and out of maintenance".to_owned(),
            ),
            Self::NetworkNowhere => (
                "network",
                &request.network,
                format!("no usable host of {pool:?} has this network"),
            ),
            Self::DatastoreNowhere => (
                "datastoreCluster",
                &request.datastore_cluster,
                format!("no usable host of {pool:?} has an accessible datastore of it mounted"),
            ),
            Self::IsoDatastoreNowhere => (
                "isoDatastore",
                &request.iso_datastore,
                format!("it is not mounted on any usable host of {pool:?}, where the VMs run"),
            ),
            Self::NeverTogether => (
                "isoDatastore",
                &request.iso_datastore,
                format!(
                    "no usable host of {pool:?} has network, datastore and this ISO datastore together"
                ),
            ),
            Self::Full { best, floor } => return full(request, best, floor),
        };
        VcError::unresolved(field, value, why)
    }
}

fn full(request: &PlaceRequest, best: u64, floor: u64) -> VcError {
    let name = &request.datastore_cluster;
    let wanted = request.bytes.div_ceil(1 << 30);
    let floor = match floor >> 30 {
        0 => String::new(),
        gib => format!("; --min-free-datastore-gib keeps {gib} GiB free"),
    };
    VcError::new(
        VcErrorKind::Fault(Fault::NoDiskSpace(name.clone())),
        "Place",
        format!("datastoreCluster {name:?}"),
        format!(
            "no datastore has {wanted} GiB left beside the VMs that are being created (the emptiest one has {} GiB free){floor}",
            best >> 30
        ),
    )
}

/// The candidates that can take the VM.
#[derive(Debug)]
pub struct Fitting<'a> {
    candidates: &'a PlaceCandidates,
    /// Usable hosts that reach network, ISO datastore and some datastore.
    hosts: Vec<&'a Host>,
    /// Usable datastores that one of these hosts can write to.
    datastores: Vec<&'a Datastore>,
}

impl<'a> Fitting<'a> {
    /// Sorts out the candidates that cannot take a VM.
    ///
    /// # Errors
    /// What is missing, if none is left.
    pub fn of(candidates: &'a PlaceCandidates) -> Result<Self, NoPlace> {
        let has_network = |h: &Host| h.networks.contains(&candidates.network);
        let has_store = |h: &Host| has_one_of(h, &candidates.datastores);
        let has_iso = |h: &Host| has_one_of(h, &candidates.iso_datastores);
        let all = candidates.compute.hosts.iter();
        let usable: Vec<&Host> = all.filter(|h| h.connected && !h.in_maintenance).collect();
        let none = |has: &dyn Fn(&Host) -> bool| !usable.iter().any(|h| has(h));
        if usable.is_empty() {
            return Err(NoPlace::NoUsableHost);
        }
        if none(&has_network) {
            return Err(NoPlace::NetworkNowhere);
        }
        if none(&has_store) {
            return Err(NoPlace::DatastoreNowhere);
        }
        if none(&has_iso) {
            return Err(NoPlace::IsoDatastoreNowhere);
        }
        let mut hosts = usable;
        hosts.retain(|h| has_network(h) && has_store(h) && has_iso(h));
        if hosts.is_empty() {
            return Err(NoPlace::NeverTogether);
        }
        let mut datastores: Vec<&Datastore> = candidates.datastores.iter().collect();
        datastores.retain(|d| hosts.iter().any(|h| reaches(h, d)));
        Ok(Self {
            candidates,
            hosts,
            datastores,
        })
    }

    /// Whether Storage DRS has something to choose.
    #[must_use]
    pub fn wants_recommendation(&self) -> bool {
        self.candidates.store.kind == "StoragePod"
            && self.datastores.len() > 1
            && self.datastores.iter().any(|d| d.storage_drs)
    }

    /// The datastore with room for `bytes`, and the host if placement has to name one.
    ///
    /// The best rated datastore wins. Equal ones are chosen by the space that remains, so that VMs in the making spread.
    ///
    /// # Errors
    /// [`NoPlace::Full`].
    pub fn choose(
        &self,
        bytes: u64,
        recommended: &[Recommendation],
        earlier: &EarlierChoices,
    ) -> Result<(&'a Datastore, Option<&'a Host>), NoPlace> {
        let left = |d: &Datastore| {
            let reserved = earlier.reserved.get(&d.moref.id).copied();
            d.free.saturating_sub(reserved.unwrap_or(0))
        };
        let rating = |d: &Datastore| {
            let own = recommended.iter().filter(|r| r.datastore == d.moref);
            own.map(|r| r.rating).max()
        };
        let roomy = self.datastores.iter().copied();
        let needed = bytes.saturating_add(earlier.floor);
        let roomy = roomy.filter(|d| left(d) >= needed);
        let best = roomy.max_by_key(|d| (rating(d), left(d), Reverse(&d.moref.id)));
        let Some(datastore) = best else {
            let free = self.datastores.iter().map(|d| d.free);
            return Err(NoPlace::Full {
                best: free.max().unwrap_or(0),
                floor: earlier.floor,
            });
        };
        Ok((datastore, self.host_for(datastore, earlier.hosts_named)))
    }

    /// The host to name, in turns; `None` where vCenter chooses it.
    fn host_for(&self, datastore: &Datastore, turn: usize) -> Option<&'a Host> {
        if self.candidates.compute.chooses_host {
            return None;
        }
        let hosts = self.hosts.iter().copied();
        let able: Vec<&Host> = hosts.filter(|h| reaches(h, datastore)).collect();
        able.get(turn.checked_rem(able.len())?).copied()
    }
}

fn has_one_of(host: &Host, datastores: &[Datastore]) -> bool {
    datastores.iter().any(|d| reaches(host, d))
}

/// Whether a VM on that host can use the datastore.
fn reaches(host: &Host, datastore: &Datastore) -> bool {
    datastore.accessible && !datastore.in_maintenance && datastore.hosts.contains(&host.moref.id)
}
