//! The property collector: what a filter spec selects, and what changed since the last call.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::model::{Fault, Inventory, Ref, Session, is_a};

/// Objects with the paths to read. `None` instead of paths for an object that is missing.
type Selected = Vec<(Ref, Option<Vec<String>>)>;

const DEPTH: usize = 32;

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

struct Walk<'a> {
    inventory: &'a Inventory,
    session: &'a Session,
    spec: &'a Value,
    seen: BTreeSet<Ref>,
    named: BTreeMap<String, &'a Value>,
    out: Selected,
}

impl<'a> Walk<'a> {
    fn add(&mut self, object: &Ref) {
        if !self.seen.insert(object.clone()) {
            return;
        }
        let mut paths = Vec::new();
        let mut fits = false;
        for set in list(self.spec, "propSet") {
            if is_a(&object.kind, text(set, "type")) {
                fits = true;
                paths.extend(
                    list(set, "pathSet")
                        .iter()
                        .filter_map(|p| p.as_str().map(str::to_owned)),
                );
            }
        }
        if fits {
            self.out.push((object.clone(), Some(paths)));
        }
    }

    fn follow(&mut self, from: &Ref, set: &'a [Value], depth: usize) -> Result<(), Fault> {
        for step in set {
            if text(step, "_typeName") == "TraversalSpec" {
                self.named.insert(text(step, "name").to_owned(), step);
            }
        }
        if depth > DEPTH {
            return Ok(());
        }
        for step in set {
            let step = if text(step, "_typeName") == "SelectionSpec" {
                let found = self.named.get(text(step, "name")).copied();
                found.ok_or_else(|| Fault::argument("selectSet.name"))?
            } else {
                step
            };
            if !is_a(&from.kind, text(step, "type")) {
                continue;
            }
            for next in self
                .inventory
                .follow(self.session, from, text(step, "path"))
            {
                if !self.inventory.exists(self.session, &next) {
                    continue;
                }
                if !flag(step, "skip") {
                    self.add(&next);
                }
                self.follow(&next, list(step, "selectSet"), depth + 1)?;
            }
        }
        Ok(())
    }
}

fn select(inventory: &Inventory, session: &Session, spec: &Value) -> Result<Selected, Fault> {
    let mut walk = Walk {
        inventory,
        session,
        spec,
        seen: BTreeSet::new(),
        named: BTreeMap::new(),
        out: Vec::new(),
    };
    for entry in list(spec, "objectSet") {
        let object = entry.get("obj").and_then(Ref::read);
        let object = object.ok_or_else(|| Fault::argument("objectSet"))?;
        if !inventory.exists(session, &object) {
            if flag(spec, "reportMissingObjectsInResults") {
                walk.out.push((object, None));
                continue;
            }
            return Err(Fault::not_found(&object));
        }
        if !flag(entry, "skip") {
            walk.add(&object);
        }
        walk.follow(&object, list(entry, "selectSet"), 0)?;
    }
    Ok(walk.out)
}

/// The objects of a `RetrievePropertiesEx` call, in their JSON form.
///
/// # Errors
/// The fault of the call.
pub fn retrieve(
    inventory: &Inventory,
    session: &Session,
    specs: &[Value],
) -> Result<Vec<Value>, Fault> {
    let mut out = Vec::new();
    for spec in specs {
        for (object, paths) in select(inventory, session, spec)? {
            let Some(paths) = paths else { continue };
            let mut set = Vec::new();
            for path in paths {
                if let Some(value) = inventory.property(&object, &path)? {
                    set.push(json!({"_typeName": "DynamicProperty", "name": path, "val": value}));
                }
            }
            out.push(json!({"_typeName": "ObjectContent", "obj": object.json(), "propSet": set}));
        }
    }
    Ok(out)
}

/// What changed for a filter since `told`, which is updated.
///
/// # Errors
/// The fault of the call.
pub fn changes(
    inventory: &Inventory,
    session: &Session,
    spec: &Value,
    told: &mut BTreeMap<Ref, BTreeMap<String, Value>>,
) -> Result<Vec<Value>, Fault> {
    let selected = select(inventory, session, spec).unwrap_or_default();
    let mut out = Vec::new();
    let mut current = BTreeSet::new();
    for (object, paths) in selected {
        let Some(paths) = paths else { continue };
        current.insert(object.clone());
        let enters = !told.contains_key(&object);
        let known = told.entry(object.clone()).or_default();
        let mut set = Vec::new();
        for path in paths {
            let now = inventory.property(&object, &path)?.unwrap_or(Value::Null);
            if known.get(&path).unwrap_or(&Value::Null) == &now {
                continue;
            }
            let mut change = json!({"_typeName": "PropertyChange", "name": path, "op": "assign"});
            if !now.is_null() {
                change["val"] = now.clone();
            }
            set.push(change);
            known.insert(path, now);
        }
        if enters || !set.is_empty() {
            let kind = if enters { "enter" } else { "modify" };
            out.push(json!({"_typeName": "ObjectUpdate", "kind": kind, "obj": object.json(), "changeSet": set}));
        }
    }
    told.retain(|object, _| {
        let stays = current.contains(object);
        if !stays {
            out.push(json!({"_typeName": "ObjectUpdate", "kind": "leave", "obj": object.json()}));
        }
        stays
    });
    Ok(out)
}
