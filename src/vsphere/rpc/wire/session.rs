//! Login and release negotiation.

use serde::{Deserialize, Serialize};

use super::Ref;

/// `POST /api/vcenter/system?action=hello`
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Hello<'a> {
    /// In the client's order of preference.
    pub(crate) api_releases: &'a [&'a str],
}

/// Its answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HelloAnswer {
    /// First one of the list that the server knows; empty when there is none.
    pub(crate) api_release: String,
}

/// `SessionManager.Login`. No `Debug`: it holds the password.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Login<'a> {
    /// User.
    pub(crate) user_name: &'a str,
    /// Password.
    pub(crate) password: &'a str,
    /// Language of messages.
    pub(crate) locale: &'a str,
}

/// The part of `AboutInfo` that is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AboutInfo {
    /// Stays the same when the vCenter is renamed.
    #[serde(default)]
    pub(crate) instance_uuid: Option<String>,
}

/// The part of `ServiceContent` that is used: where the singletons are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceContent {
    /// The vCenter's description of itself.
    #[serde(default)]
    pub(crate) about: AboutInfo,
    /// Root of the inventory.
    pub(crate) root_folder: Ref,
    /// Default property collector.
    pub(crate) property_collector: Ref,
    /// Sessions.
    pub(crate) session_manager: Ref,
    /// Lookups.
    pub(crate) search_index: Ref,
    /// Views.
    pub(crate) view_manager: Ref,
    /// Datastore files.
    pub(crate) file_manager: Ref,
    /// Roles and privileges.
    #[serde(default)]
    pub(crate) authorization_manager: Option<Ref>,
    /// Storage DRS; some editions lack it.
    #[serde(default)]
    pub(crate) storage_resource_manager: Option<Ref>,
}
