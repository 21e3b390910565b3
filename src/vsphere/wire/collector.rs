//! PropertyCollector and views.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Ref;

/// Which properties of which type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct PropertySpec {
    /// Managed object type; subtypes match too.
    #[serde(rename = "type")]
    pub(in crate::vsphere) kind: &'static str,
    /// Property paths.
    pub(in crate::vsphere) path_set: Vec<&'static str>,
}

/// A step from objects to more objects.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName")]
pub(in crate::vsphere) enum Selection {
    /// Follow a property.
    #[serde(rename_all = "camelCase")]
    TraversalSpec {
        /// Name, so that a [`Selection::SelectionSpec`] can repeat the step.
        name: &'static str,
        /// On objects of this type.
        #[serde(rename = "type")]
        kind: &'static str,
        /// This property.
        path: &'static str,
        /// Leave the objects found out of the answer.
        skip: bool,
        /// The next steps from there.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        select_set: Vec<Selection>,
    },
    /// Repeat the step with that name.
    SelectionSpec {
        /// Name.
        name: &'static str,
    },
}

impl Selection {
    /// Follows `path` of objects of type `kind`, then the steps in `then`.
    pub(in crate::vsphere) fn follow(
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
pub(in crate::vsphere) struct ObjectSpec {
    /// Object.
    pub(in crate::vsphere) obj: Ref,
    /// Leave the object itself out of the answer.
    pub(in crate::vsphere) skip: bool,
    /// Where to go from there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::vsphere) select_set: Vec<Selection>,
}

/// What to report.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct PropertyFilterSpec {
    /// Properties.
    pub(in crate::vsphere) prop_set: Vec<PropertySpec>,
    /// Objects.
    pub(in crate::vsphere) object_set: Vec<ObjectSpec>,
    /// Leave unknown objects out instead of failing the call.
    pub(in crate::vsphere) report_missing_objects_in_results: bool,
}

/// Page size.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct RetrieveOptions {
    /// Objects per page.
    pub(in crate::vsphere) max_objects: u32,
}

/// `RetrievePropertiesEx`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct RetrievePropertiesEx {
    /// Filters.
    pub(in crate::vsphere) spec_set: Vec<PropertyFilterSpec>,
    /// Required by the schema.
    pub(in crate::vsphere) options: RetrieveOptions,
}

/// `ContinueRetrievePropertiesEx`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct ContinueRetrievePropertiesEx {
    /// Token from the page before.
    pub(in crate::vsphere) token: String,
}

/// One page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct RetrieveResult {
    /// Objects.
    #[serde(default)]
    pub(in crate::vsphere) objects: Vec<ObjectContent>,
    /// Token of the next page, if there is one.
    #[serde(default)]
    pub(in crate::vsphere) token: Option<String>,
}

/// One object of a page.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct ObjectContent {
    /// Object.
    pub(in crate::vsphere) obj: Ref,
    /// Properties that are set and readable.
    #[serde(default)]
    pub(in crate::vsphere) prop_set: Vec<DynamicProperty>,
    /// Properties that could not be read.
    #[serde(default)]
    pub(in crate::vsphere) missing_set: Vec<MissingProperty>,
}

/// A property.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct DynamicProperty {
    /// Path.
    pub(in crate::vsphere) name: String,
    /// Any-typed.
    pub(in crate::vsphere) val: Value,
}

/// A property that could not be read.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct MissingProperty {
    /// Path.
    pub(in crate::vsphere) path: String,
    /// The reason.
    #[serde(default)]
    pub(in crate::vsphere) fault: Value,
}

/// `ViewManager.CreateContainerView`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct CreateContainerView {
    /// The view covers the objects below this one.
    pub(in crate::vsphere) container: Ref,
    /// Objects of these types.
    #[serde(rename = "type")]
    pub(in crate::vsphere) kinds: Vec<&'static str>,
    /// Include objects at any depth.
    pub(in crate::vsphere) recursive: bool,
}

/// `ViewManager.CreateListView`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct CreateListView {
    /// The first members.
    pub(in crate::vsphere) obj: Vec<Ref>,
}

/// `ListView.ModifyListView`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct ModifyListView {
    /// New members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::vsphere) add: Vec<Ref>,
    /// Members to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::vsphere) remove: Vec<Ref>,
}

/// `PropertyCollector.CreateFilter`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct CreateFilter {
    /// What to report.
    pub(in crate::vsphere) spec: PropertyFilterSpec,
    /// Report parts of properties.
    pub(in crate::vsphere) partial_updates: bool,
}

/// How long to wait.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct WaitOptions {
    /// Answer without updates after this many seconds.
    pub(in crate::vsphere) max_wait_seconds: u32,
}

/// `PropertyCollector.WaitForUpdatesEx`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct WaitForUpdatesEx {
    /// Version of the last update seen; empty for the current state.
    pub(in crate::vsphere) version: String,
    /// How long to wait.
    pub(in crate::vsphere) options: WaitOptions,
}

/// What changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct UpdateSet {
    /// Version for the next call.
    #[serde(default)]
    pub(in crate::vsphere) version: String,
    /// The changes of each filter.
    #[serde(default)]
    pub(in crate::vsphere) filter_set: Vec<FilterUpdate>,
}

/// Changes that one filter saw.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct FilterUpdate {
    /// Objects that changed.
    #[serde(default)]
    pub(in crate::vsphere) object_set: Vec<ObjectUpdate>,
    /// Objects that no longer exist.
    #[serde(default)]
    pub(in crate::vsphere) missing_set: Vec<MissingObject>,
}

/// Changes of one object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct ObjectUpdate {
    /// `enter`, `modify`, `leave`.
    pub(in crate::vsphere) kind: String,
    /// Object.
    pub(in crate::vsphere) obj: Ref,
    /// Properties.
    #[serde(default)]
    pub(in crate::vsphere) change_set: Vec<PropertyChange>,
}

/// A changed property.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct PropertyChange {
    /// Path.
    pub(in crate::vsphere) name: String,
    /// Any-typed; absent when the property became unset.
    #[serde(default)]
    pub(in crate::vsphere) val: Value,
}

/// An object that a filter cannot report.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct MissingObject {
    /// Object.
    pub(in crate::vsphere) obj: Ref,
}
