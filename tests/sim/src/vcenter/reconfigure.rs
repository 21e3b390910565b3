//! What a reconfiguration changes: everything that its spec says, or nothing.

use serde_json::{Value, json};

use super::{
    model::{Fault, Inventory, Ref, Vm},
    tasks::empties,
};

impl Inventory {
    /// Reconfigures a VM.
    ///
    /// # Errors
    /// The VM changed since the spec's `changeVersion`, or lacks a device that the spec names.
    pub(super) fn reconfigure(&mut self, object: &Ref, spec: &Value) -> Result<(), Fault> {
        let found = self.vms.get(&object.id);
        let mut vm = found.cloned().ok_or_else(|| Fault::not_found(object))?;
        if vm.is_refused(spec) {
            return Err(Fault::new("ConcurrentAccess", json!({})));
        }
        if vm.tray_locked && empties(spec) {
            let reason = json!({"reason": "the tray is locked"});
            return Err(Fault::new("GenericVmConfigFault", reason));
        }
        let changes = spec["deviceChange"].as_array().into_iter().flatten();
        let mut removed = Vec::new();
        for (index, change) in changes.enumerate() {
            let done = change_device(&mut vm, change, &mut removed);
            done.ok_or_else(|| Fault::new("InvalidDeviceSpec", json!({"deviceIndex": index})))?;
        }
        let order = spec.pointer("/bootOptions/bootOrder");
        if let Some(order) = order.and_then(Value::as_array) {
            let mut keys = order.iter().filter_map(|d| d.get("deviceKey"));
            if keys.any(|key| !vm.devices.iter().any(|d| d["key"] == *key)) {
                return Err(Fault::argument("bootOptions.bootOrder"));
            }
            vm.boot_order.clone_from(order);
        }
        if let Some(text) = spec["annotation"].as_str() {
            text.clone_into(&mut vm.annotation);
        }
        set_options(&mut vm, spec);
        self.vms.insert(object.id.clone(), vm);
        Ok(())
    }
}

/// Carries out one `VirtualDeviceConfigSpec`. `None` if it is not possible. Only disks come and go after the creation.
fn change_device(vm: &mut Vm, change: &Value, removed: &mut Vec<Value>) -> Option<()> {
    let device = &change["device"];
    let at = vm.devices.iter().position(|d| d["key"] == device["key"]);
    match change["operation"].as_str()? {
        "edit" => {
            let is_off = !vm.on;
            let edited = &mut vm.devices[at?];
            *edited = device.clone();
            if is_off && edited["_typeName"] == "VirtualCdrom" {
                edited["connectable"]["connected"] = json!(false);
            }
        }
        "remove" => {
            let old = vm.devices.remove(at?);
            if old["_typeName"] != "VirtualDisk" {
                return None;
            }
            removed.push(old);
        }
        "add" if device["_typeName"] == "VirtualDisk" => {
            let place = |d: &Value| (d["controllerKey"].clone(), d["unitNumber"].clone());
            let taken = |d: &&Value| d["_typeName"] == "VirtualDisk" && place(d) == place(device);
            if vm.devices.iter().any(|d| taken(&d)) {
                return None;
            }
            let mut new = device.clone();
            // The key of a disk follows from its place.
            let before = removed.iter().find(taken)?;
            new["key"].clone_from(&before["key"]);
            new["backing"]["uuid"] = json!(disk_uuid(vm, number_of(before) + 1));
            vm.devices.push(new);
        }
        _ => return None,
    }
    Some(())
}

/// Each disk of a VM has another uuid than all others before, so a new disk is told from an old one.
fn disk_uuid(vm: &Vm, number: u64) -> String {
    format!("{}-{number}", vm.instance_uuid)
}

fn number_of(disk: &Value) -> u64 {
    let uuid = disk["backing"]["uuid"].as_str();
    let number = uuid.and_then(|uuid| uuid.rsplit_once('-')?.1.parse().ok());
    number.unwrap_or_default()
}

/// Gives the disks of a new VM their uuids.
pub(super) fn identify_disks(vm: &mut Vm) {
    let first = disk_uuid(vm, 1);
    let disks = vm.devices.iter_mut();
    for disk in disks.filter(|d| d["_typeName"] == "VirtualDisk") {
        disk["backing"]["uuid"] = json!(first);
    }
}

/// Sets the `extraConfig` of a spec. An empty value removes the key.
pub(super) fn set_options(vm: &mut Vm, spec: &Value) {
    for option in spec["extraConfig"].as_array().into_iter().flatten() {
        let key = option["key"].as_str().unwrap_or_default().to_owned();
        let value = option["value"]["_value"].as_str().unwrap_or_default();
        if value.is_empty() {
            vm.extra.remove(&key);
        } else {
            vm.extra.insert(key, value.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(key: i64, unit: i64) -> Value {
        json!({
            "_typeName": "VirtualDisk", "key": key, "controllerKey": 1000, "unitNumber": unit, "backing": {},
        })
    }

    fn change(operation: &str, device: &Value) -> Value {
        json!({"operation": operation, "device": device})
    }

    fn with(devices: Vec<Value>) -> (Inventory, Ref) {
        let mut vm = Vm {
            devices,
            ..Vm::somebodys()
        };
        identify_disks(&mut vm);
        let mut inventory = Inventory::default();
        let object = vm.object.clone();
        inventory.vms.insert(object.id.clone(), vm);
        (inventory, object)
    }

    #[test]
    fn a_refused_reconfiguration_changes_nothing() {
        let (mut inventory, vm) = with(vec![disk(2000, 0)]);
        let before = inventory.vms[&vm.id].clone();
        let options = json!([{"key": "k", "value": {"_value": "v"}}]);
        for (spec, fault) in [
            (json!({"changeVersion": "old"}), "ConcurrentAccess"),
            (
                json!({"deviceChange": [change("remove", &disk(2001, 0))]}),
                "InvalidDeviceSpec",
            ),
            // The place is taken.
            (
                json!({"deviceChange": [change("add", &disk(-1, 0))]}),
                "InvalidDeviceSpec",
            ),
            (
                json!({"bootOptions": {"bootOrder": [{"deviceKey": 7}]}}),
                "InvalidArgument",
            ),
        ] {
            let mut spec = spec;
            spec["annotation"] = json!("changed");
            spec["extraConfig"].clone_from(&options);
            let refused = inventory.reconfigure(&vm, &spec).expect_err("refused");
            assert_eq!(refused.name(), fault);
            assert_eq!(inventory.vms[&vm.id], before);
        }
    }

    #[test]
    fn a_new_disk_in_the_place_of_an_old_one_has_its_key_and_another_uuid() {
        let (mut inventory, vm) = with(vec![disk(2000, 0)]);
        let mut seen = vec![inventory.vms[&vm.id].devices[0]["backing"]["uuid"].clone()];
        for _ in 0..2 {
            let now = inventory.vms[&vm.id].clone();
            let changes = [
                change("remove", &now.devices[0]),
                change("add", &disk(-102, 0)),
            ];
            let spec = json!({"changeVersion": now.version(), "deviceChange": changes});
            assert_eq!(inventory.reconfigure(&vm, &spec), Ok(()));
            let after = &inventory.vms[&vm.id];
            assert_ne!(after.version(), now.version());
            assert_eq!(after.devices.len(), 1);
            assert_eq!(after.devices[0]["key"], 2000);
            let uuid = after.devices[0]["backing"]["uuid"].clone();
            assert!(!seen.contains(&uuid), "{uuid} is one of {seen:?}");
            seen.push(uuid);
        }
    }
}
