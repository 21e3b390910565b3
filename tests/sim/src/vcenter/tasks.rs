//! What tasks do when they end. Each checks again what may have changed since it was accepted.

use std::collections::BTreeMap;

use agent_forge_actors::{
    domain::marker::{MARKER_KEY, MAY_SERVE_KEY},
    ports::vcenter::GENERATION_KEY,
};
use serde_json::{Value, json};

use super::{
    files,
    model::{Fault, File, Inventory, Ref, Vm},
    reconfigure,
};
use crate::{
    kube::store::{list, text},
    oracles::{RELEASED, RELEASES, RESETTING, STAMPS},
};

/// The work of a task.
#[derive(Clone, Debug)]
pub enum Work {
    /// Create a VM from this `CreateVM_Task` call in this folder.
    Create(Ref, Value),
    /// Reconfigure the VM by this spec.
    Reconfigure(Ref, Value),
    /// Switch the VM on.
    PowerOn(Ref),
    /// Switch the VM off.
    PowerOff(Ref),
    /// Restart the VM.
    Reset(Ref),
    /// Destroy the VM.
    Destroy(Ref),
    /// Search this directory for these names.
    Search(String, Vec<Value>),
    /// Move a file.
    Move(String, String),
    /// Delete a file.
    Delete(String),
}

impl Work {
    /// The VM that the task reserves.
    #[must_use]
    pub fn vm(&self) -> Option<&Ref> {
        match self {
            Self::Reconfigure(vm, _)
            | Self::PowerOn(vm)
            | Self::PowerOff(vm)
            | Self::Reset(vm)
            | Self::Destroy(vm) => Some(vm),
            _ => None,
        }
    }

    /// What the task does to that VM, in a word.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Reconfigure(_, spec) if empties(spec) => "empties a drive of",
            Self::Reconfigure(_, spec) if mark(spec).is_some_and(|m| m.starts_with(RELEASED)) => {
                RELEASES
            }
            Self::Reconfigure(_, spec)
                if mark(spec).is_some() || only_option(spec, MAY_SERVE_KEY).is_some() =>
            {
                STAMPS
            }
            Self::Reconfigure(_, spec) if renews(spec) => "renews",
            Self::Reconfigure(..) => "reconfigures",
            Self::PowerOn(_) => "switches on",
            Self::PowerOff(_) => "switches off",
            Self::Reset(_) => RESETTING,
            Self::Destroy(_) => "destroys",
            _ => "",
        }
    }

    /// Whether the task changes nothing: it only sets the boot order or the mark that the VM has already, or the VM is not as
    /// its `changeVersion` says, and vCenter refuses it.
    #[must_use]
    pub fn changes_nothing(&self, inventory: &Inventory) -> bool {
        let Self::Reconfigure(vm, spec) = self else {
            return false;
        };
        let shown = inventory.vms.get(&vm.id);
        if shown.is_some_and(|vm| vm.is_refused(spec)) {
            return true;
        }
        if let Some(mark) = mark(spec) {
            let there = shown.and_then(|vm| vm.extra.get(MARKER_KEY));
            return there.map(String::as_str) == Some(mark);
        }
        let mut keys = spec.as_object().into_iter().flatten();
        let order = spec["bootOptions"]["bootOrder"].as_array();
        keys.all(|(key, _)| ALWAYS.contains(&key.as_str()) || key == "bootOptions")
            && shown.is_some_and(|vm| order == Some(&vm.boot_order))
    }

    /// How long the task takes, in milliseconds.
    #[must_use]
    pub fn takes(&self) -> u64 {
        match self {
            Self::Create(..) => 900,
            Self::PowerOn(_) => 400,
            Self::Destroy(_) | Self::PowerOff(_) | Self::Reset(_) => 300,
            Self::Reconfigure(..) => 200,
            Self::Search(..) => 20,
            Self::Move(..) | Self::Delete(_) => 50,
        }
    }
}

/// What each spec may have, whatever it changes.
const ALWAYS: [&str; 2] = ["_typeName", "changeVersion"];

/// The mark that a spec sets, if it sets nothing else except the matching notes, on whatever condition.
fn mark(spec: &Value) -> Option<&str> {
    only_option(spec, MARKER_KEY)
}

/// The value of the option `key`, if a spec sets nothing else except notes, on whatever condition.
fn only_option<'a>(spec: &'a Value, key: &str) -> Option<&'a str> {
    let parts = spec.as_object()?.keys();
    let alone = parts
        .filter(|key| !ALWAYS.contains(&key.as_str()) && *key != "annotation")
        .eq(["extraConfig"]);
    let [option] = spec["extraConfig"].as_array()?.as_slice() else {
        return None;
    };
    let set = alone && option["key"] == key;
    option["value"]["_value"].as_str().filter(|_| set)
}

/// Whether a spec begins another life of the VM.
fn renews(spec: &Value) -> bool {
    let options = spec["extraConfig"].as_array().into_iter().flatten();
    options.into_iter().any(|o| o["key"] == GENERATION_KEY)
}

/// Whether an edit only takes media out of drives.
pub(super) fn empties(spec: &Value) -> bool {
    const EMPTY: &str = "VirtualCdromRemotePassthroughBackingInfo";
    let edits = |c: &Value| {
        c["operation"] == "edit"
            && c["device"]["_typeName"] == "VirtualCdrom"
            && c["device"]["backing"]["_typeName"] == EMPTY
    };
    let parts = spec.as_object().into_iter().flatten();
    let mut parts =
        parts.filter(|(key, _)| !ALWAYS.contains(&key.as_str()) && *key != "deviceChange");
    let changes = spec["deviceChange"].as_array();
    parts.next().is_none() && changes.is_some_and(|c| !c.is_empty() && c.iter().all(edits))
}

impl Inventory {
    /// Whether vCenter asks before this work continues, because the guest has locked the tray.
    #[must_use]
    pub fn is_locked(&self, work: &Work) -> bool {
        let Work::Reconfigure(vm, spec) = work else {
            return false;
        };
        let vm = self.vms.get(&vm.id);
        vm.is_some_and(|vm| vm.on && vm.tray_locked && empties(spec))
    }

    /// The VM asks whether to open its tray anyway.
    pub fn ask(&mut self, vm: &Ref) {
        let number = self.number();
        let Some(vm) = self.vms.get_mut(&vm.id) else {
            return;
        };
        vm.question = Some(json!({
            "_typeName": "VirtualMachineQuestionInfo",
            "id": number.to_string(),
            "text": "The guest has locked the door. Disconnect anyway?",
            "message": [{"_typeName": "VirtualMachineMessage", "id": "msg.cdromdisconnect.locked", "text": "Disconnect?"}],
            "choice": {
                "_typeName": "ChoiceOption", "defaultIndex": 1,
                "choiceInfo": [
                    {"_typeName": "ElementDescription", "key": "0", "label": "button.yes", "summary": "Yes"},
                    {"_typeName": "ElementDescription", "key": "1", "label": "button.no", "summary": "No"},
                ],
            },
        }));
    }

    /// Answers the question of a VM.
    ///
    /// # Errors
    /// The VM does not ask that.
    pub fn answer(&mut self, vm: &Ref, arguments: &Value) -> Result<(), Fault> {
        let found = self.vms.get_mut(&vm.id);
        let found = found.ok_or_else(|| Fault::not_found(vm))?;
        let is_it = |q: &mut Value| q["id"] == arguments["questionId"];
        let asked = found.question.take_if(is_it);
        if asked.is_none() {
            return Err(Fault::argument("questionId"));
        }
        found.tray_locked = arguments["answerChoice"] != "0";
        Ok(())
    }

    /// Carries the work of a task out. Returns the wrapped result.
    ///
    /// # Errors
    /// The fault of the task.
    pub fn work(&mut self, work: &Work, created: &mut Option<Ref>) -> Result<Option<Value>, Fault> {
        match work {
            Work::Create(folder, arguments) => {
                let vm = self.create_vm(folder, arguments)?;
                *created = Some(vm.clone());
                Ok(Some(vm.json()))
            }
            Work::Reconfigure(vm, spec) => self.reconfigure(vm, spec).map(|()| None),
            Work::PowerOn(vm) => self.power(vm, true).map(|()| None),
            Work::PowerOff(vm) => self.power(vm, false).map(|()| None),
            Work::Reset(vm) => self.reset(vm).map(|()| None),
            Work::Destroy(vm) => self.destroy(vm).map(|()| None),
            Work::Search(directory, patterns) => self
                .browse(directory, patterns)
                .map(|found| Some(Self::boxed_search(found))),
            Work::Move(from, to) => self.move_file(from, to).map(|()| None),
            Work::Delete(name) => self.delete_file(name).map(|()| None),
        }
    }

    fn create_vm(&mut self, folder: &Ref, arguments: &Value) -> Result<Ref, Fault> {
        let config = &arguments["config"];
        let text = |pointer: &str| text(config, pointer);
        if !self.nodes.contains_key(folder) {
            return Err(Fault::not_found(folder));
        }
        let name = text("/name");
        if let Some(holder) = self.child(folder, name) {
            return Err(Fault::duplicate(name, &holder));
        }
        let path = text("/files/vmPathName");
        let file = files::split(path)?;
        if !path.ends_with(".vmx") {
            let property = json!({"property": "configSpec.files.vmPathName"});
            return Err(Fault::new("InvalidVmConfig", property));
        }
        if self.files.contains_key(&file) {
            return Err(Fault::new("FileAlreadyExists", json!({"file": path})));
        }
        let number = self.number();
        let object = Ref::new("VirtualMachine", format!("vm-{number}"));
        let devices = self.devices(list(config, "/deviceChange"))?;
        self.parents(&file.0, &file.1);
        self.files.insert(file, File::default());
        let mut vm = Vm {
            object: object.clone(),
            name: name.to_owned(),
            folder: folder.clone(),
            uuid: text("/uuid").to_owned(),
            instance_uuid: format!("50{number:06x}-0000-4000-8000-000000000000"),
            devices,
            path: path.to_owned(),
            annotation: text("/annotation").to_owned(),
            cpus: config["numCPUs"].as_u64().unwrap_or(1),
            memory: config["memoryMB"].as_u64().unwrap_or(1),
            firmware: config["firmware"].as_str().unwrap_or("bios").to_owned(),
            ..Vm::default()
        };
        reconfigure::identify_disks(&mut vm);
        reconfigure::set_options(&mut vm, config);
        self.vms.insert(object.id.clone(), vm);
        Ok(object)
    }

    /// The devices of a new VM, with the keys that vCenter gives.
    fn devices(&mut self, changes: &[Value]) -> Result<Vec<Value>, Fault> {
        let mut keys: BTreeMap<i64, i64> = BTreeMap::new();
        let mut used: BTreeMap<i64, i64> = BTreeMap::new();
        let mut out = Vec::new();
        for change in changes {
            let mut device = change["device"].clone();
            let kind = device["_typeName"].as_str().unwrap_or_default().to_owned();
            let base = match kind.as_str() {
                "VirtualDisk" => 2000,
                "VirtualCdrom" => 16000,
                "VirtualAHCIController" => 15000,
                "VirtualNVMEController" => 31000,
                k if k.ends_with("Controller") => 1000,
                _ => 4000,
            };
            let offset = used.entry(base).or_default();
            let key = base + *offset;
            *offset += 1;
            keys.insert(device["key"].as_i64().unwrap_or_default(), key);
            device["key"] = json!(key);
            if let Some(controller) = device.get("controllerKey").and_then(Value::as_i64) {
                let real = keys.get(&controller).copied().unwrap_or(controller);
                device["controllerKey"] = json!(real);
            }
            if kind == "VirtualCdrom" {
                let name = text(&device, "/backing/fileName");
                if !self.files.contains_key(&files::split(name)?) {
                    return Err(Fault::new("FileNotFound", json!({"file": name})));
                }
                device["connectable"]["connected"] = json!(false);
            }
            if base == 4000 {
                let number = self.number();
                device["macAddress"] = json!(format!(
                    "00:50:56:{:02x}:{:02x}:{:02x}",
                    0x80 + (number >> 16),
                    (number >> 8) & 255,
                    number & 255
                ));
            }
            out.push(device);
        }
        Ok(out)
    }

    fn power(&mut self, object: &Ref, on: bool) -> Result<(), Fault> {
        let files = &self.files;
        let vm = self.vms.get_mut(&object.id);
        let vm = vm.ok_or_else(|| Fault::not_found(object))?;
        let state = if on { "poweredOn" } else { "poweredOff" };
        if vm.power() == state || vm.suspended && vm.stiff && !on {
            return Err(Fault::power(vm, state));
        }
        vm.remember_power();
        vm.on = on;
        // A VM that is resumed continues where it was.
        vm.boots += u64::from(on && !vm.suspended);
        vm.suspended = false;
        let drives = vm.devices.iter_mut();
        for drive in drives.filter(|d| d["_typeName"] == "VirtualCdrom") {
            let name = drive["backing"]["fileName"].as_str().unwrap_or_default();
            // A drive whose image is gone is empty after the start. Without power, no drive is connected.
            let is_gone = files::split(name).is_ok_and(|file| !files.contains_key(&file));
            let plugged = drive["connectable"]["startConnected"] == true;
            drive["connectable"]["connected"] = json!(on && plugged && !is_gone);
        }
        Ok(())
    }

    /// The guest starts anew, with the drives as they are.
    fn reset(&mut self, object: &Ref) -> Result<(), Fault> {
        let vm = self.vms.get_mut(&object.id);
        let vm = vm.ok_or_else(|| Fault::not_found(object))?;
        if !vm.on {
            return Err(Fault::power(vm, "poweredOn"));
        }
        vm.boots += 1;
        vm.resets += 1;
        Ok(())
    }

    fn destroy(&mut self, object: &Ref) -> Result<(), Fault> {
        let vm = self.vms.get(&object.id);
        let vm = vm.ok_or_else(|| Fault::not_found(object))?;
        if vm.on || vm.suspended {
            return Err(Fault::power(vm, "poweredOff"));
        }
        let (store, path) = files::split(&vm.path)?;
        self.remove_vm(&object.id);
        self.files.remove(&(store.clone(), path.clone()));
        if let Some((directory, _)) = path.rsplit_once('/') {
            self.directories.remove(&(store, directory.to_owned()));
        }
        Ok(())
    }
}
