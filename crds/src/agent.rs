//! Kind `VsphereAgent`: one VM that becomes one Agent.

mod goal;
mod hardware;
mod life;
mod status;
mod timeline;

pub use goal::{Goal, MAX_BEFORE, NamedUid, NextLife, PoolKey};
pub use hardware::{HardwareDifference, NetworkCard, VmTemplate};
pub use life::{DiskStatus, MAX_LIVES, PastLife, RecycleStatus};
pub use status::{
    BootRepair, Failure, IsoEjection, Placement, TakenFrom, VmStatus, VsphereAgentStatus,
};
pub use timeline::{MAX_TIMELINE_ROWS, Milestone};

use crate::lenient::absent_is_default;
use crate::pool::ObjectNameRef;
use crate::schema;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which pool the VM belongs to, and what that pool asks of it. Everything else is taken from the pool when the VM is made.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[schemars(!default, !remote, transform = schema::no_nulls)]
#[kube(
    group = "agent-forge.containeroo.ch",
    version = "v1alpha1",
    kind = "VsphereAgent",
    plural = "vsphereagents",
    singular = "vsphereagent",
    shortname = "va",
    namespaced,
    status = "VsphereAgentStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "One VM on vSphere that is meant to become one Agent.",
    category = "agentforge",
    selectable = ".spec.poolRef.name",
    selectable = ".status.vm.phase",
    printcolumn = r#"{"name":"Pool","type":"string","jsonPath":".spec.poolRef.name"}"#,
    printcolumn = r#"{"name":"VM","type":"string","jsonPath":".status.vm.name"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.vm.phase"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.vm.reason"}"#,
    printcolumn = r#"{"name":"Agent","type":"string","jsonPath":".status.vm.agentRef.name","priority":1}"#,
    printcolumn = r#"{"name":"Machine","type":"string","jsonPath":".status.vm.machineRef.name","priority":1}"#,
    printcolumn = r#"{"name":"Power","type":"string","jsonPath":".status.vm.powerState","priority":1}"#,
    printcolumn = r#"{"name":"Waiting","type":"string","jsonPath":".status.waitingOn[0].reason","priority":1}"#,
    printcolumn = r#"{"name":"Synced","type":"string","jsonPath":".status.conditions[?(@.type=='ConfigSynced')].status","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct VsphereAgentSpec {
    /// Pool that the VM belongs to, in the same namespace.
    pub pool_ref: ObjectNameRef,
    /// What the pool asks of the VM. The operator writes it. Absent on a record of the predecessor, or of a release without goals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Class of the pool that uses the host (`spec.classes`), whose size it was made with. Absent: that of `spec.template`. The
    /// operator writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub class: Option<String>,
}

absent_is_default!(VsphereAgentSpec);

impl JsonSchema for VsphereAgent {
    fn schema_name() -> Cow<'static, str> {
        "VsphereAgent".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::root(
            "One VM on vSphere that is meant to become one Agent.",
            &generator.subschema_for::<VsphereAgentSpec>(),
            &generator.subschema_for::<VsphereAgentStatus>(),
        )
    }
}
