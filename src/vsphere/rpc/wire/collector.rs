//! PropertyCollector and views.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Ref;

/// Which properties of which type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct PropertySpec {
    /// Managed object type; subtypes match too.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// Property paths.
    pub(crate) path_set: Vec<&'static str>,
}

/// A step from objects to more objects.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(crate) enum Selection {
    /// Follow a property.
    #[serde(rename_all = "camelCase")]
    TraversalSpec {
        /// Name, for repetition by a [`Selection::SelectionSpec`].
        name: &'static str,
        /// On objects of this type.
        #[serde(rename = "type")]
        kind: &'static str,
        /// This property.
        path: &'static str,
        /// Leave the objects found out of the answer.
        skip: bool,
        /// And from there.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        select_set: Vec<Selection>,
    },
    /// Repeat the step of that name.
    SelectionSpec {
        /// Name.
        name: &'static str,
    },
}

impl Selection {
    /// Follow `path` of objects of type `kind`, then `then`.
    pub(crate) fn follow(
        name: &'static str,
        kind: &'static str,
        path: &'static str,
        then: Vec<Self>,
    ) -> Self {
        Self::TraversalSpec {
            name,
            kind,
            path,
            skip: false,
            select_set: then,
        }
    }
}

/// Where to start.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct ObjectSpec {
    /// Object.
    pub(crate) obj: Ref,
    /// Leave the object itself out of the answer.
    pub(crate) skip: bool,
    /// Where to go from there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) select_set: Vec<Selection>,
}

/// What to report.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct PropertyFilterSpec {
    /// Properties.
    pub(crate) prop_set: Vec<PropertySpec>,
    /// Objects.
    pub(crate) object_set: Vec<ObjectSpec>,
    /// Unknown objects are left out instead of failing the call.
    pub(crate) report_missing_objects_in_results: bool,
}

/// Page size.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct RetrieveOptions {
    /// Objects per page.
    pub(crate) max_objects: u32,
}

/// `RetrievePropertiesEx`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetrievePropertiesEx {
    /// Filters.
    pub(crate) spec_set: Vec<PropertyFilterSpec>,
    /// Required by the schema.
    pub(crate) options: RetrieveOptions,
}

/// `ContinueRetrievePropertiesEx`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ContinueRetrievePropertiesEx {
    /// From the page before.
    pub(crate) token: String,
}

/// One page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetrieveResult {
    /// Objects.
    #[serde(default)]
    pub(crate) objects: Vec<ObjectContent>,
    /// More to come.
    #[serde(default)]
    pub(crate) token: Option<String>,
}

/// One object of a page.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectContent {
    /// Object.
    pub(crate) obj: Ref,
    /// Properties that are set and readable.
    #[serde(default)]
    pub(crate) prop_set: Vec<DynamicProperty>,
    /// Properties that could not be read.
    #[serde(default)]
    pub(crate) missing_set: Vec<MissingProperty>,
}

/// A property.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DynamicProperty {
    /// Path.
    pub(crate) name: String,
    /// Any-typed.
    pub(crate) val: Value,
}

/// A property that could not be read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MissingProperty {
    /// Path.
    pub(crate) path: String,
    /// Why.
    #[serde(default)]
    pub(crate) fault: Value,
}

/// `ViewManager.CreateContainerView`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CreateContainerView {
    /// Below this object.
    pub(crate) container: Ref,
    /// Objects of these types.
    #[serde(rename = "type")]
    pub(crate) kinds: Vec<&'static str>,
    /// At any depth.
    pub(crate) recursive: bool,
}

/// `ViewManager.CreateListView`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CreateListView {
    /// Members to begin with.
    pub(crate) obj: Vec<Ref>,
}

/// `ListView.ModifyListView`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModifyListView {
    /// New members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) add: Vec<Ref>,
    /// Members no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) remove: Vec<Ref>,
}

/// `PropertyCollector.CreateFilter`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateFilter {
    /// What to report.
    pub(crate) spec: PropertyFilterSpec,
    /// Report parts of properties.
    pub(crate) partial_updates: bool,
}

/// How long to wait.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct WaitOptions {
    /// Answer "nothing" after that many seconds.
    pub(crate) max_wait_seconds: u32,
}

/// `PropertyCollector.WaitForUpdatesEx`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WaitForUpdatesEx {
    /// Version of the last update seen; empty for the current state.
    pub(crate) version: String,
    /// How long.
    pub(crate) options: WaitOptions,
}

/// What changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdateSet {
    /// Version to continue from.
    #[serde(default)]
    pub(crate) version: String,
    /// Per filter.
    #[serde(default)]
    pub(crate) filter_set: Vec<FilterUpdate>,
}

/// Changes that one filter saw.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FilterUpdate {
    /// Objects that changed.
    #[serde(default)]
    pub(crate) object_set: Vec<ObjectUpdate>,
    /// Objects that are no more.
    #[serde(default)]
    pub(crate) missing_set: Vec<MissingObject>,
}

/// Changes of one object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectUpdate {
    /// `enter`, `modify`, `leave`.
    pub(crate) kind: String,
    /// Object.
    pub(crate) obj: Ref,
    /// Properties.
    #[serde(default)]
    pub(crate) change_set: Vec<PropertyChange>,
}

/// A changed property.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PropertyChange {
    /// Path.
    pub(crate) name: String,
    /// Any-typed; absent when the property became unset.
    #[serde(default)]
    pub(crate) val: Value,
}

/// An object that a filter cannot report.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MissingObject {
    /// Object.
    pub(crate) obj: Ref,
}
