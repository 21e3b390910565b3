//! Reads properties of many objects in one request.

use std::{collections::HashMap, time::Duration};

use agent_forge_actors::{
    domain::names::MoRef,
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

use crate::deadline;

/// Objects per page. vCenter itself limits pages to about this.
const PAGE: u32 = 100;
/// Pages of one answer: more objects than any vCenter holds.
const MAX_PAGES: usize = 1000;
/// Time limit of an answer, all pages together.
const ALL_PAGES_WITHIN: Duration = Duration::from_secs(300);
/// Most bytes of one answer that the client keeps.
pub(crate) const MAX_KEPT: usize = 16 << 20;

/// Properties of one object that are set and readable.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    /// Object.
    pub(crate) object: MoRef,
    values: HashMap<String, Value>,
    unreadable: HashMap<String, Value>,
}

impl Properties {
    /// Adds a value that is no property of the object itself.
    pub(crate) fn add(&mut self, path: &str, value: Value) {
        self.values.insert(path.to_owned(), value);
    }

    /// The value, without its box.
    pub(crate) fn value(&self, path: &str) -> Option<&Value> {
        self.values.get(path).map(unboxed)
    }

    /// A text or an enum.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.value(path)?.as_str()
    }

    /// A flag.
    pub(crate) fn flag(&self, path: &str) -> Option<bool> {
        self.value(path)?.as_bool()
    }

    /// A reference.
    pub(crate) fn reference(&self, path: &str) -> Option<MoRef> {
        reference_in(self.values.get(path)?)
    }

    /// References.
    pub(crate) fn references(&self, path: &str) -> Vec<MoRef> {
        self.list(path).iter().filter_map(reference_in).collect()
    }

    /// Elements of an array; none when unset.
    pub(crate) fn list(&self, path: &str) -> &[Value] {
        self.value(path)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// Roughly the bytes that they take in memory.
    pub(crate) fn weight(&self) -> usize {
        let all = self.values.iter().chain(&self.unreadable);
        all.map(|(path, v)| path.len() + weight(v)).sum()
    }

    /// Fails when the user may not read one of these properties. Without that check an unset value would look like a
    /// fact.
    pub(crate) fn require_readable(&self, paths: &[&str]) -> VcResult<()> {
        for path in paths {
            let Some(decoded) = self.unreadable.get(*path).and_then(fault::decode) else {
                continue;
            };
            if let Fault::NoPermission { .. } = decoded.fault {
                return Err(VcError::new(
                    VcErrorKind::Fault(decoded.fault),
                    "RetrievePropertiesEx",
                    format!("{} {path}", self.object),
                    decoded.message,
                ));
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

/// What to read, and where to begin.
pub(crate) struct Question {
    properties: Vec<PropertySpec>,
    objects: Vec<ObjectSpec>,
    missing_ok: bool,
    subject: String,
}

impl Question {
    /// Reads nothing yet. An unknown object fails the call with `ManagedObjectNotFound`.
    pub(crate) fn about(subject: impl Into<String>) -> Self {
        Self {
            properties: Vec::new(),
            objects: Vec::new(),
            missing_ok: false,
            subject: subject.into(),
        }
    }

    /// Reads these properties of objects of that type and its subtypes.
    pub(crate) fn read(mut self, kind: &'static str, paths: &[&'static str]) -> Self {
        self.properties.push(PropertySpec {
            kind,
            path_set: paths.to_vec(),
        });
        self
    }

    /// Reads this object.
    pub(crate) fn of(self, object: &MoRef) -> Self {
        self.from(object, Vec::new())
    }

    /// Reads this object and what the selections find from there.
    pub(crate) fn from(mut self, object: &MoRef, select_set: Vec<Selection>) -> Self {
        self.objects.push(ObjectSpec {
            obj: object.into(),
            skip: false,
            select_set,
        });
        self
    }

    /// Reads only what the selections find from this object.
    pub(crate) fn found_from(mut self, object: &MoRef, select_set: Vec<Selection>) -> Self {
        self.objects.push(ObjectSpec {
            obj: object.into(),
            skip: true,
            select_set,
        });
        self
    }

    /// Leaves out unknown objects.
    pub(crate) fn missing_ok(mut self) -> Self {
        self.missing_ok = true;
        self
    }

    /// The filter for updates.
    pub(crate) fn into_filter(self) -> PropertyFilterSpec {
        PropertyFilterSpec {
            prop_set: self.properties,
            object_set: self.objects,
            report_missing_objects_in_results: self.missing_ok,
        }
    }
}

impl Client {
    /// Asks, and joins the pages.
    pub(crate) async fn retrieve(&self, question: Question) -> VcResult<Vec<Properties>> {
        let subject = question.subject.clone();
        let (mut found, mut kept) = (Vec::new(), 0);
        self.retrieve_each(question, |p| {
            kept += p.weight();
            if kept > MAX_KEPT {
                return Err(self.endless(&subject, &format!("more than {MAX_KEPT} bytes")));
            }
            found.push(p);
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// The failure of an answer that is larger or longer than a real one.
    pub(crate) fn endless(&self, subject: &str, what: &str) -> VcError {
        VcError::new(
            VcErrorKind::Undecodable,
            "RetrievePropertiesEx",
            subject,
            format!("{} does not end its answer: {what}", self.server()),
        )
    }

    /// Asks, and gives each object to `each`. Only one page is in memory; `each` must limit what it keeps.
    pub(crate) async fn retrieve_each(
        &self,
        question: Question,
        each: impl FnMut(Properties) -> VcResult<()>,
    ) -> VcResult<()> {
        let subject = question.subject.clone();
        let asked = self.retrieve_pages(question, each);
        match deadline::within(ALL_PAGES_WITHIN, asked).await {
            Ok(end) => end,
            Err(_) => {
                let within = ALL_PAGES_WITHIN.as_secs();
                Err(self.endless(&subject, &format!("it took more than {within} s")))
            }
        }
    }

    async fn retrieve_pages(
        &self,
        question: Question,
        mut each: impl FnMut(Properties) -> VcResult<()>,
    ) -> VcResult<()> {
        let mut pages = self.pages(question).await?;
        while let Some(page) = pages.next(self).await? {
            page.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// Begins an answer that the caller reads page by page. Each page has the time limit of a call. All pages together
    /// have none.
    pub(crate) async fn pages(&self, question: Question) -> VcResult<Pages> {
        let collector = self
            .session(super::session::Asked::ByCall)
            .await?
            .property_collector();
        Ok(Pages {
            collector,
            subject: question.subject.clone(),
            asks: Asks::First(question.into_filter()),
            read: 0,
        })
    }
}

/// The call for the next page.
enum Asks {
    First(PropertyFilterSpec),
    Next(String),
    Nothing,
}

/// An answer in pages.
pub(crate) struct Pages {
    collector: MoRef,
    subject: String,
    asks: Asks,
    read: usize,
}

impl Pages {
    /// The next page; `None` after the last one.
    pub(crate) async fn next(&mut self, client: &Client) -> VcResult<Option<Vec<Properties>>> {
        let call = match std::mem::replace(&mut self.asks, Asks::Nothing) {
            Asks::First(filter) => {
                let arguments = RetrievePropertiesEx {
                    spec_set: vec![filter],
                    options: RetrieveOptions { max_objects: PAGE },
                };
                Call::new(&self.collector, "RetrievePropertiesEx", &arguments)
            }
            Asks::Next(_) if self.read >= MAX_PAGES => {
                let what = format!("more than {MAX_PAGES} pages");
                return Err(client.endless(&self.subject, &what));
            }
            Asks::Next(token) => Call::new(
                &self.collector,
                "ContinueRetrievePropertiesEx",
                &ContinueRetrievePropertiesEx { token },
            ),
            Asks::Nothing => return Ok(None),
        };
        let page: RetrieveResult = client
            .read(call.about(self.subject.as_str()))
            .await?
            .unwrap_or_default();
        self.read += 1;
        if let Some(token) = page.token {
            self.asks = Asks::Next(token);
        }
        Ok(Some(
            page.objects.into_iter().map(Properties::from).collect(),
        ))
    }
}

/// Roughly the bytes that a value takes in memory.
pub(crate) fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(weight).sum(),
        Value::Object(all) => all.iter().map(|(key, v)| key.len() + 48 + weight(v)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner + size_of::<Value>()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::vsphere::rpc::played;

    fn page(text: &str) -> Value {
        let object = json!({
            "obj": {"type": "VirtualMachine", "value": "vm-1"},
            "propSet": [{"name": "name", "val": {"_typeName": "string", "_value": text}}],
        });
        json!({"objects": [object], "token": "and on"})
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_ends_is_an_error_that_names_the_server() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let client = played::client(|_, _| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            (200, page("x"))
        });
        let question = || Question::about("all VMs").read("VirtualMachine", &["name"]);
        let e = client.retrieve_each(question(), |_| Ok(())).await;
        let e = e.expect_err("endless");
        assert!(e.message.contains("vc.example"), "{e}");
        let asked = ASKED.load(Ordering::Relaxed);
        assert!(asked <= MAX_PAGES + 1, "{asked} requests");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_of_an_answer_is_bounded() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let client = played::client(|_, _| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            (200, page(&"x".repeat(1 << 20)))
        });
        let question = Question::about("all VMs").read("VirtualMachine", &["name"]);
        let e = client.retrieve(question).await.expect_err("too much");
        assert!(e.message.contains("vc.example"), "{e}");
        let asked = ASKED.load(Ordering::Relaxed);
        assert!(asked <= 20, "{asked} MiB");
    }

    #[tokio::test]
    async fn a_reply_of_many_small_values_is_not_read() {
        let client = played::client(|_, _| (200, json!(vec![0; 400_000])));
        let question = Question::about("all VMs").read("VirtualMachine", &["name"]);
        let e = client.retrieve(question).await.expect_err("too many");
        assert!(e.message.contains("values"), "{e}");
    }
}
