//! One search for a place: candidates from vCenter, then the choice.

use super::choice::{EarlierChoices, Fitting};
use crate::ports::{
    effect::Effect,
    vcenter::{Inventory, Place, PlaceRequest, VcResult},
};

/// Finds the place for one VM. Creates its folder when the folder is missing, as `effect`.
///
/// # Errors
/// Those of the calls; [`super::choice::NoPlace`] as the error that names the field.
pub async fn find(
    vcenter: &dyn Inventory,
    effect: &Effect,
    request: &PlaceRequest,
    earlier: &EarlierChoices,
) -> VcResult<Place> {
    let candidates = vcenter.place_candidates(request).await?;
    let fitting = Fitting::of(&candidates).map_err(|why| why.error(request))?;
    let datacenter = &candidates.datacenter;
    let folder = vcenter
        .ensure_folder(effect, datacenter, &request.folder)
        .await?;
    let recommended = if fitting.wants_recommendation() {
        vcenter
            .recommend_datastores(&candidates, &folder, &request.hardware)
            .await?
    } else {
        Vec::new()
    };
    let (datastore, host) = fitting
        .choose(request.bytes, &recommended, earlier)
        .map_err(|why| why.error(request))?;
    Ok(Place {
        datacenter: datacenter.clone(),
        folder,
        resource_pool: candidates.compute.resource_pool.clone(),
        datastore: (datastore.name.clone(), datastore.moref.clone()),
        host: host.map(|host| (host.name.clone(), host.moref.clone())),
        network: request.network.clone(),
    })
}
