//! Reads updates: what do they say of the VMs that are followed? Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::plumbing::{CONNECTION, POWER, VERSION, VM};
use crate::vsphere::rpc::wire::{
    collector::{ObjectUpdate, UpdateSet},
    unboxed,
};
use agent_forge_actors::ports::vcenter::{PowerState, VmNews, VmSight};

/// Longest value that is kept. Real ones are far shorter.
const LONGEST: usize = 128;

/// What is known of one VM. Its parts may come in different updates.
#[derive(Debug, Default)]
struct Parts {
    power: Option<PowerState>,
    connection: Option<String>,
    version: String,
}

impl Parts {
    fn apply(&mut self, update: ObjectUpdate) {
        for change in update.change_set {
            let text = unboxed(&change.val).as_str();
            let text = text.filter(|t| t.len() <= LONGEST).map(str::to_owned);
            match change.name.as_str() {
                POWER => self.power = text.as_deref().and_then(power),
                CONNECTION => self.connection = text,
                VERSION => self.version = text.unwrap_or_default(),
                _ => {}
            }
        }
    }

    /// `None` until vCenter has shown its power state and its connection.
    fn sight(&self) -> Option<VmSight> {
        Some(VmSight {
            power: self.power?,
            connected: self.connection.as_deref()? == "connected",
            version: self.version.clone(),
        })
    }
}

fn power(text: &str) -> Option<PowerState> {
    let all = [PowerState::On, PowerState::Off, PowerState::Suspended];
    all.into_iter().find(|state| state.as_str() == text)
}

/// What is known of all VMs in the view.
#[derive(Debug, Default)]
pub(super) struct Sights(BTreeMap<String, Parts>);

impl Sights {
    /// Takes the VMs out of an update, and returns the news of those that are `followed`, the newest last.
    pub(super) fn take(
        &mut self,
        update: &mut UpdateSet,
        followed: &BTreeSet<String>,
    ) -> Vec<(String, VmNews)> {
        let mut news = Vec::new();
        for filter in &mut update.filter_set {
            let objects = std::mem::take(&mut filter.object_set);
            let (vms, others) = objects.into_iter().partition(|o| o.obj.kind == VM);
            filter.object_set = others;
            let vms: Vec<ObjectUpdate> = vms;
            for object in vms {
                let vm = object.obj.value.clone();
                if !followed.contains(&vm) {
                    self.0.remove(&vm);
                } else if object.kind == "leave" {
                    self.0.remove(&vm);
                    news.push((vm, VmNews::Gone));
                } else {
                    let parts = self.0.entry(vm.clone()).or_default();
                    parts.apply(object);
                    let sight = parts.sight();
                    news.extend(sight.map(|s| (vm, VmNews::There(s))));
                }
            }
            filter.missing_set.retain(|missing| {
                let vm = &missing.obj.value;
                let is_followed = missing.obj.kind == VM && followed.contains(vm);
                if is_followed {
                    self.0.remove(vm);
                    news.push((vm.clone(), VmNews::Gone));
                }
                missing.obj.kind != VM
            });
        }
        news
    }

    /// Forgets all: a new filter reports everything from the start.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn update(objects: &Value) -> UpdateSet {
        serde_json::from_value(json!({"version": "2", "filterSet": [{"objectSet": objects}]}))
            .expect("update")
    }

    fn vm(kind: &str, id: &str, changes: &[(&str, &str)]) -> Value {
        let boxed = |text: &str| json!({"_typeName": "string", "_value": text});
        let set = changes
            .iter()
            .map(|(name, text)| json!({"name": name, "op": "assign", "val": boxed(text)}));
        json!({"kind": kind, "obj": {"type": VM, "value": id}, "changeSet": set.collect::<Vec<_>>()})
    }

    fn followed() -> BTreeSet<String> {
        ["vm-1".to_owned()].into()
    }

    #[test]
    fn parts_of_a_vm_may_come_in_different_updates() {
        let mut sights = Sights::default();
        let mut first = update(&json!([vm("enter", "vm-1", &[(POWER, "poweredOn")])]));
        assert_eq!(sights.take(&mut first, &followed()), [], "not all is known");
        let rest = [(CONNECTION, "connected"), (VERSION, "7")];
        let mut second = update(&json!([vm("modify", "vm-1", &rest)]));
        let on = VmSight {
            power: PowerState::On,
            connected: true,
            version: "7".to_owned(),
        };
        let told = sights.take(&mut second, &followed());
        assert_eq!(told, [("vm-1".to_owned(), VmNews::There(on.clone()))]);
        let mut off = update(&json!([vm("modify", "vm-1", &[(POWER, "poweredOff")])]));
        let power = PowerState::Off;
        let told = sights.take(&mut off, &followed());
        let sight = VmSight { power, ..on };
        assert_eq!(told, [("vm-1".to_owned(), VmNews::There(sight))]);
    }

    #[test]
    fn who_leaves_is_gone_and_who_is_not_followed_is_no_news() {
        let mut sights = Sights::default();
        let all = [(POWER, "poweredOn"), (CONNECTION, "connected")];
        let mut both = update(&json!([
            vm("leave", "vm-1", &[]),
            vm("enter", "vm-2", &all)
        ]));
        let told = sights.take(&mut both, &followed());
        assert_eq!(told, [("vm-1".to_owned(), VmNews::Gone)]);
        assert!(both.filter_set[0].object_set.is_empty());
    }

    #[test]
    fn tasks_are_left_in_the_update() {
        let mut sights = Sights::default();
        let task = json!({"kind": "leave", "obj": {"type": "Task", "value": "task-1"}});
        let mut mixed = update(&json!([task, vm("leave", "vm-1", &[])]));
        assert_eq!(sights.take(&mut mixed, &followed()).len(), 1);
        assert_eq!(mixed.filter_set[0].object_set.len(), 1);
    }
}
