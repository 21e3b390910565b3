//! Copies of a machine. One machine was created in the usual way, and its objects are the template of others. Names,
//! uids and addresses in their text are replaced; everything else stays.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::guests::identity;

/// The replacements for one copy.
#[derive(Clone, Debug)]
pub struct Stamps {
    name: String,
    pairs: Vec<(String, String)>,
}

impl Stamps {
    /// The replacements for copy `number` of the machine with that name, BIOS uuid and MAC addresses. `uuid` is the
    /// copy's BIOS uuid.
    #[must_use]
    pub fn new<'a>(
        machine: (&str, &str),
        macs: impl IntoIterator<Item = &'a str>,
        number: usize,
        uuid: &str,
    ) -> Self {
        let (of, old) = machine;
        let name = format!("{of}-{number:04}");
        let mut pairs = vec![(of.to_owned(), name.clone())];
        for (card, mac) in macs.into_iter().enumerate() {
            let (high, low) = (number >> 8 & 0xff, number & 0xff);
            let new = format!("00:50:56:{card:02x}:{high:02x}:{low:02x}");
            pairs.push((mac.replace(':', "-"), new.replace(':', "-")));
            pairs.push((mac.to_owned(), new));
        }
        let mut stamps = Self { name, pairs };
        for form in [str::to_owned, identity::swapped, identity::serial] {
            stamps.replace(form(old), form(uuid));
        }
        stamps
    }

    /// The copy's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a replacement.
    pub fn replace(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.pairs.push((old.into(), new.into()));
    }

    /// Replaces the uid of an object. Its first group is also in the path of the VM's files.
    pub fn uid(&mut self, old: &str, new: &str) {
        let first = |uid: &str| uid.split('-').next().unwrap_or_default().to_owned();
        self.replace(old, new);
        self.replace(first(old), first(new));
    }

    /// Replaces a managed object reference, only as a whole string: `vm-5` is also a part of `vm-57`.
    pub fn reference(&mut self, old: &str, new: &str) {
        self.replace(format!("\"{old}\""), format!("\"{new}\""));
    }

    /// The copy of an object.
    ///
    /// # Errors
    /// A replacement is no JSON text.
    pub fn press(&self, mould: &Value) -> Result<Value> {
        let text = self
            .pairs
            .iter()
            .fold(mould.to_string(), |text, (old, new)| text.replace(old, new));
        serde_json::from_str(&text).context("a copy as JSON")
    }
}

/// `object` without its status and without the fields that the API server set.
#[must_use]
pub fn unborn(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "generation",
        ] {
            metadata.remove(key);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}
