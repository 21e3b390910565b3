//! Converts the recorded placement to and from its wire form. It is recorded before the first vCenter write. It is
//! computed again only after a create that was refused, or when the pool names another place before the VM exists.

use agent_forge_crds::agent::{Placement, VmStatus};

use std::time::Duration;

use super::{refused::Refused, step::PlacementCheck};
use crate::{
    domain::names::MoRef,
    ports::vcenter::{Place, PlaceRequest},
};

/// The place as it is recorded. Names are kept beside references, for people.
#[must_use]
pub fn record(place: &Place, request: &PlaceRequest) -> Placement {
    Placement {
        datacenter: Some(request.datacenter.clone()),
        datacenter_ref: Some(place.datacenter.id.clone()),
        folder: Some(request.folder.clone()),
        folder_ref: Some(place.folder.id.clone()),
        resource_pool: Some(request.resource_pool.clone()),
        resource_pool_ref: Some(place.resource_pool.id.clone()),
        datastore: Some(place.datastore.0.clone()),
        datastore_ref: Some(place.datastore.1.id.clone()),
        host: place.host.as_ref().map(|h| h.0.clone()),
        host_ref: place.host.as_ref().map(|h| h.1.id.clone()),
        network: Some(place.network.clone()),
    }
}

/// Whether the pool asks for another place than the recorded one. Only names are compared, not what they resolve to: a
/// VM is not moved because somebody renamed a folder.
#[must_use]
pub fn asked_elsewhere(recorded: &Placement, request: &PlaceRequest) -> bool {
    [
        (&recorded.datacenter, &request.datacenter),
        (&recorded.folder, &request.folder),
        (&recorded.resource_pool, &request.resource_pool),
        (&recorded.network, &request.network),
    ]
    .into_iter()
    .any(|(then, now)| then.as_ref().is_some_and(|then| then != now))
}

/// Whether the recorded place is still right while the VM does not exist. This follows from the names in the spec, and
/// from the result of a create there.
#[must_use]
pub fn site(
    vm: &VmStatus,
    request: Option<&PlaceRequest>,
    refused: Option<&Refused>,
    generation: Option<i64>,
    now: Duration,
) -> PlacementCheck {
    let moved = |(recorded, request)| asked_elsewhere(recorded, request);
    if vm.placement.as_ref().zip(request).is_some_and(moved) {
        return PlacementCheck::Elsewhere;
    }
    match refused {
        None => PlacementCheck::Fits,
        Some(r) if r.rests(generation, now) => PlacementCheck::Fits,
        Some(r) => match &r.placed_again {
            None => PlacementCheck::Doubtful,
            Some(place) if read(vm).as_ref() == Some(place) => PlacementCheck::Fits,
            Some(_) => PlacementCheck::Elsewhere,
        },
    }
}

/// The recorded place. `None` if the record is incomplete: before the first attempt, or written by the predecessor.
#[must_use]
pub fn read(vm: &VmStatus) -> Option<Place> {
    let p = vm.placement.as_ref()?;
    Some(Place {
        datacenter: MoRef::new("Datacenter", p.datacenter_ref.clone()?),
        folder: MoRef::new("Folder", p.folder_ref.clone()?),
        resource_pool: MoRef::new("ResourcePool", p.resource_pool_ref.clone()?),
        datastore: (
            p.datastore.clone()?,
            MoRef::new("Datastore", p.datastore_ref.clone()?),
        ),
        host: match (&p.host, &p.host_ref) {
            (Some(name), Some(id)) => Some((name.clone(), MoRef::new("HostSystem", id))),
            _ => None,
        },
        network: p.network.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{conditions::Reason, pool::CleanupPolicy};

    use super::*;
    use crate::{
        domain::failure::{Class, ErrorSource, ReconcileError},
        placement::request,
        testing::{child, intent, pool, with},
    };

    fn request() -> PlaceRequest {
        let pool = with(pool("workers"), |p| {
            p.spec.vsphere.resource_pool = "cluster/Resources".to_owned();
            p.spec.vsphere.network = "VM Network".to_owned();
            // A change of the spec that does not concern the place moves nothing.
            p.spec.cleanup_policy = Some(CleanupPolicy::Retain);
        });
        request::place_request(&pool).expect("valid")
    }

    #[test]
    fn a_place_is_read_as_it_was_recorded() {
        let here = read(&intent(&child("a"), 1)).expect("complete");
        let host = ("esx-1".to_owned(), MoRef::new("HostSystem", "host-1"));
        for place in [here.clone(), with(here, |p| p.host = Some(host))] {
            let vm = VmStatus {
                placement: Some(record(&place, &request())),
                ..VmStatus::default()
            };
            assert_eq!(read(&vm), Some(place));
        }
    }

    #[test]
    fn a_name_that_was_mended_asks_for_another_place() {
        let vm = intent(&child("a"), 1);
        let asked = |change: fn(&mut PlaceRequest)| {
            let request = with(request(), change);
            site(&vm, Some(&request), None, Some(1), Duration::ZERO)
        };
        assert_eq!(asked(|_| {}), PlacementCheck::Fits);
        assert_eq!(asked(|r| r.bytes *= 2), PlacementCheck::Fits);
        let changes: [fn(&mut PlaceRequest); 4] = [
            |r| r.datacenter = "dc2".to_owned(),
            |r| r.folder = "other".to_owned(),
            |r| r.resource_pool = "other/Resources".to_owned(),
            |r| r.network = "other".to_owned(),
        ];
        for change in changes {
            assert_eq!(asked(change), PlacementCheck::Elsewhere);
        }
        // Without a record there is nothing to compare. An invalid request is not compared either.
        let bare = VmStatus::default();
        let (of, asked) = (
            |vm, request| site(vm, request, None, None, Duration::ZERO),
            request(),
        );
        assert_eq!(of(&bare, Some(&asked)), PlacementCheck::Fits);
        assert_eq!(of(&vm, None), PlacementCheck::Fits);
    }

    #[test]
    fn a_refused_place_rests_is_asked_for_again_and_compared() {
        let vm = intent(&child("a"), 1);
        let here = read(&vm).expect("complete");
        let refused = |class, placed_again| Refused {
            at: Duration::from_secs(100),
            generation: Some(1),
            trouble: ReconcileError {
                side: ErrorSource::Vsphere,
                reason: Reason::NoDiskSpace,
                message: "full".to_owned(),
                class,
            },
            placed_again,
        };
        let at = |refused: Refused, generation, now| {
            let now = Duration::from_secs(now);
            site(&vm, Some(&request()), Some(&refused), Some(generation), now)
        };
        let blocked = || refused(Class::Blocked, None);
        assert_eq!(at(blocked(), 1, 119), PlacementCheck::Fits, "it rests");
        assert_eq!(at(blocked(), 1, 120), PlacementCheck::Doubtful);
        assert_eq!(
            at(blocked(), 2, 101),
            PlacementCheck::Doubtful,
            "the spec changed"
        );
        assert_eq!(
            at(refused(Class::Transient, None), 1, 101),
            PlacementCheck::Doubtful
        );
        let elsewhere = with(here.clone(), |p| p.datastore.0 = "ds2".to_owned());
        for (place, then) in [
            (here, PlacementCheck::Fits),
            (elsewhere, PlacementCheck::Elsewhere),
        ] {
            assert_eq!(at(refused(Class::Blocked, Some(place)), 1, 130), then);
        }
    }
}
