//! Login and release negotiation.

use serde::{Deserialize, Serialize};

use super::Ref;

/// `POST /api/vcenter/system?action=hello`
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::vsphere) struct Hello<'a> {
    /// API releases in the client's order of preference.
    pub(in crate::vsphere) api_releases: &'a [&'a str],
}

/// The answer to [`Hello`].
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct HelloAnswer {
    /// The first release of the list that the server knows; empty if there is none.
    pub(in crate::vsphere) api_release: String,
}

/// `SessionManager.Login`. No `Debug`: it holds the password.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct Login<'a> {
    /// User.
    pub(in crate::vsphere) user_name: &'a str,
    /// Password.
    pub(in crate::vsphere) password: &'a str,
    /// Language of messages.
    pub(in crate::vsphere) locale: &'a str,
}

/// The part of `AboutInfo` that is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct About {
    /// Identifies the vCenter, even if its name changes.
    #[serde(default)]
    pub(in crate::vsphere) instance_uuid: Option<String>,
}

/// The part of `ServiceContent` that is used: references of the singletons.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct ServiceContent {
    /// About this vCenter.
    #[serde(default)]
    pub(in crate::vsphere) about: About,
    /// Root of the inventory.
    pub(in crate::vsphere) root_folder: Ref,
    /// Default property collector.
    pub(in crate::vsphere) property_collector: Ref,
    /// Sessions.
    pub(in crate::vsphere) session_manager: Ref,
    /// Lookups.
    pub(in crate::vsphere) search_index: Ref,
    /// Views.
    pub(in crate::vsphere) view_manager: Ref,
    /// Datastore files.
    pub(in crate::vsphere) file_manager: Ref,
    /// Storage DRS. Some editions do not have it.
    #[serde(default)]
    pub(in crate::vsphere) storage_resource_manager: Option<Ref>,
}
