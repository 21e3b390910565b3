//! Reading properties of many objects in one request.

use std::collections::HashMap;

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
};
use serde_json::Value;

use super::{
    call::Call,
    client::Client,
    fault,
    wire::{
        collector::{
            ContinueRetrievePropertiesEx, ObjectContent, ObjectSpec, PropertyFilterSpec,
            PropertySpec, RetrieveOptions, RetrievePropertiesEx, RetrieveResult, Selection,
        },
        reference_in, unboxed,
    },
};

/// Objects per page; vCenter itself caps pages near this.
const PAGE: u32 = 100;

/// Properties of one object, as far as they are set and readable.
#[derive(Clone, Debug)]
pub(super) struct Properties {
    /// Object.
    pub(super) object: MoRef,
    values: HashMap<String, Value>,
    unreadable: HashMap<String, Value>,
}

impl Properties {
    /// The value, out of its box.
    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        self.values.get(path).map(unboxed)
    }

    /// A text or an enum.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.value(path)?.as_str()
    }

    /// A flag.
    pub(super) fn flag(&self, path: &str) -> Option<bool> {
        self.value(path)?.as_bool()
    }

    /// A reference.
    pub(super) fn reference(&self, path: &str) -> Option<MoRef> {
        reference_in(self.values.get(path)?)
    }

    /// References.
    pub(super) fn references(&self, path: &str) -> Vec<MoRef> {
        self.list(path).iter().filter_map(reference_in).collect()
    }

    /// Elements of an array; none when unset.
    pub(super) fn list(&self, path: &str) -> &[Value] {
        self.value(path)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// Fails when vCenter withheld one of these properties for lack of a privilege: an unset value would look like a
    /// fact.
    pub(super) fn require_readable(&self, paths: &[&str]) -> VcResult<()> {
        for path in paths {
            let Some(decoded) = self.unreadable.get(*path).and_then(fault::decode) else {
                continue;
            };
            if let Fault::NoPermission { .. } = decoded.fault {
                return Err(VcError {
                    kind: VcErrorKind::Fault(decoded.fault),
                    operation: "RetrievePropertiesEx",
                    subject: format!("{} {path}", self.object),
                    message: decoded.message,
                });
            }
        }
        Ok(())
    }
}

impl From<ObjectContent> for Properties {
    fn from(content: ObjectContent) -> Self {
        Self {
            object: content.obj.into(),
            values: content
                .prop_set
                .into_iter()
                .map(|p| (p.name, p.val))
                .collect(),
            unreadable: content
                .missing_set
                .into_iter()
                .map(|m| (m.path, m.fault))
                .collect(),
        }
    }
}

/// What to read and where to begin.
pub(super) struct Question {
    properties: Vec<PropertySpec>,
    objects: Vec<ObjectSpec>,
    missing_ok: bool,
    subject: String,
}

impl Question {
    /// Nothing yet; an unknown object fails the call with `ManagedObjectNotFound`.
    pub(super) fn about(subject: impl Into<String>) -> Self {
        Self {
            properties: Vec::new(),
            objects: Vec::new(),
            missing_ok: false,
            subject: subject.into(),
        }
    }

    /// Of objects of that type (and its subtypes) these properties.
    pub(super) fn read(mut self, kind: &'static str, paths: &[&'static str]) -> Self {
        self.properties.push(PropertySpec {
            kind,
            path_set: paths.to_vec(),
        });
        self
    }

    /// Of this object.
    pub(super) fn of(self, object: &MoRef) -> Self {
        self.from(object, Vec::new())
    }

    /// Of this object and what is found from there.
    pub(super) fn from(mut self, object: &MoRef, select_set: Vec<Selection>) -> Self {
        self.objects.push(ObjectSpec {
            obj: object.into(),
            skip: false,
            select_set,
        });
        self
    }

    /// Only of what is found from there.
    pub(super) fn found_from(mut self, object: &MoRef, select_set: Vec<Selection>) -> Self {
        self.objects.push(ObjectSpec {
            obj: object.into(),
            skip: true,
            select_set,
        });
        self
    }

    /// Unknown objects are left out.
    pub(super) fn missing_ok(mut self) -> Self {
        self.missing_ok = true;
        self
    }

    /// As filter for updates.
    pub(super) fn into_filter(self) -> PropertyFilterSpec {
        PropertyFilterSpec {
            prop_set: self.properties,
            object_set: self.objects,
            report_missing_objects_in_results: self.missing_ok,
        }
    }
}

impl Client {
    /// Asks; pages are put together.
    pub(super) async fn retrieve(&self, question: Question) -> VcResult<Vec<Properties>> {
        let mut found = Vec::new();
        self.retrieve_each(question, |p| found.push(p)).await?;
        Ok(found)
    }

    /// Asks and hands out object by object, so that only one page is in memory.
    pub(super) async fn retrieve_each(
        &self,
        question: Question,
        mut each: impl FnMut(Properties),
    ) -> VcResult<()> {
        let subject = question.subject.clone();
        let collector = self
            .session(super::session::Asked::ByCall)
            .await?
            .property_collector();
        let arguments = RetrievePropertiesEx {
            spec_set: vec![question.into_filter()],
            options: RetrieveOptions { max_objects: PAGE },
        };
        let call =
            Call::new(&collector, "RetrievePropertiesEx", &arguments).about(subject.as_str());
        let mut page: RetrieveResult = self.read(call).await?.unwrap_or_default();
        loop {
            page.objects
                .into_iter()
                .map(Properties::from)
                .for_each(&mut each);
            let Some(token) = page.token else {
                return Ok(());
            };
            let call = Call::new(
                &collector,
                "ContinueRetrievePropertiesEx",
                &ContinueRetrievePropertiesEx { token },
            )
            .about(subject.as_str());
            page = self.read(call).await?.unwrap_or_default();
        }
    }
}
