//! Reads VMs as vCenter shows them, any number of VMs in one request.

use agent_forge_actors::{
    model::{
        identity::{BiosUuid, MacAddress},
        marker::{MARKER_KEY, Marker},
        names::MoRef,
        notes::Notes,
    },
    ports::vcenter::{
        BareVm, BootDevice, Cdrom, Fault, FolderSight, MarkedVm, PowerState, VcResult,
        VmObservation,
    },
};
use serde::Serialize;
use serde_json::Value;

use super::{
    call::Call,
    client::Client,
    properties::Properties,
    session::Asked,
    wire::{Ref, unboxed},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindAllByUuid {
    uuid: String,
    vm_search: bool,
}

/// All properties that [`observation`] reads.
pub(super) const PATHS: &[&str] = &[
    "name",
    "parent",
    "config.uuid",
    "config.instanceUuid",
    "config.annotation",
    "config.extraConfig",
    "config.hardware.device",
    "config.bootOptions",
    "config.files.vmPathName",
    "runtime.powerState",
    "runtime.connectionState",
    "guest.toolsRunningStatus",
    "guest.ipAddress",
    "guest.hostName",
];

/// Longest name that is accepted, in bytes. vCenter's own names and references are not longer.
const LONGEST_NAME: usize = 80;
/// Longest path of a configuration file that is accepted, in bytes.
const LONGEST_PATH: usize = 512;

/// All properties that [`marked`] and [`bare`] read.
pub(super) const SURVEY_PATHS: &[&str] = &[
    "name",
    "config.uuid",
    "config.extraConfig",
    "config.bootOptions",
    "summary.config.vmPathName",
    "runtime.powerState",
    "runtime.connectionState",
];

/// The properties that [`marked`] must be able to read.
const MARKED_PATHS: &[&str] = &[
    "name",
    "config.extraConfig",
    "config.bootOptions",
    "runtime.powerState",
];

/// Without these, the operator could take one of its own VMs for another owner's.
const IDENTITY: &[&str] = &[
    "config.uuid",
    "config.annotation",
    "config.extraConfig",
    "runtime.powerState",
];

impl Client {
    /// All VMs with that BIOS uuid.
    pub(super) async fn vms_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>> {
        let index: MoRef = self
            .session(Asked::ByCall)
            .await?
            .endpoint
            .content
            .search_index
            .clone()
            .into();
        let arguments = FindAllByUuid {
            uuid: uuid.to_string(),
            vm_search: true,
        };
        let call = Call::new(&index, "FindAllByUuid", &arguments).about(format!("VM {uuid}"));
        let found: Vec<Ref> = self.read(call).await?.unwrap_or_default();
        let found: Vec<MoRef> = found.into_iter().map(MoRef::from).collect();
        let seen = futures::future::try_join_all(found.iter().map(|vm| self.vm(vm))).await?;
        Ok(seen.into_iter().flatten().collect())
    }

    /// One VM; `None` if vCenter reports that the object does not exist.
    pub(super) async fn vm(&self, vm: &MoRef) -> VcResult<Option<VmObservation>> {
        self.look(vm)
            .await?
            .map(|seen| observation(&seen))
            .transpose()
    }

    /// Whether the user can see this folder. That the folder does not exist is only believed if its datacenter is
    /// visible.
    pub(super) async fn sight_of(
        &self,
        folder: &MoRef,
        datacenter: &MoRef,
    ) -> VcResult<FolderSight> {
        Ok(match self.is_named(folder).await? {
            Some(true) => FolderSight::Visible,
            None if self.is_named(datacenter).await? == Some(true) => FolderSight::Deleted,
            Some(false) | None => FolderSight::Hidden,
        })
    }

    /// Whether the user can read the object's name. `None` if vCenter reports that the object does not exist.
    async fn is_named(&self, object: &MoRef) -> VcResult<Option<bool>> {
        match self.look(object).await {
            Ok(seen) => Ok(seen.map(|seen| seen.text("name").is_some())),
            Err(e) if matches!(e.fault(), Some(Fault::NoPermission { .. })) => Ok(Some(false)),
            Err(e) => Err(e),
        }
    }
}

/// The VM, if it carries a mark. If the user may not read all of its properties, the result is `None`: an unset value
/// would look like a fact.
pub(super) fn marked(vm: &Properties) -> Option<MarkedVm> {
    vm.require_readable(MARKED_PATHS).ok()?;
    vm.text("runtime.powerState")?;
    // vCenter's own names are far shorter. Longer ones are kept out of memory and messages.
    if vm.object.id.len() > LONGEST_NAME || vm.object.kind.len() > LONGEST_NAME {
        return None;
    }
    let name = vm.text("name").unwrap_or_default();
    Some(MarkedVm {
        moref: vm.object.clone(),
        name: name.chars().take(LONGEST_NAME).collect(),
        marker: marker(vm.list("config.extraConfig"))?,
        power: power(vm),
        has_boot_order: boot_order(vm).is_some_and(|order| !order.is_empty()),
    })
}

/// The VM, if vCenter shows no configuration of it. `config` is unset while the VM's files cannot be read.
pub(super) fn bare(vm: &Properties) -> Option<BareVm> {
    if vm.value("config.uuid").is_some() || vm.object.id.len() > LONGEST_NAME {
        return None;
    }
    let text = |path: &str, longest| {
        let text = vm.text(path)?;
        Some(text.chars().take(longest).collect::<String>())
    };
    Some(BareVm {
        moref: vm.object.clone(),
        // The name may be the path of its file.
        name: text("name", LONGEST_PATH).unwrap_or_default(),
        vm_path: text("summary.config.vmPathName", LONGEST_PATH),
        connection_state: text("runtime.connectionState", LONGEST_NAME).unwrap_or_default(),
    })
}

fn power(vm: &Properties) -> PowerState {
    match vm.text("runtime.powerState") {
        Some("poweredOn") => PowerState::On,
        Some("suspended") => PowerState::Suspended,
        _ => PowerState::Off,
    }
}

fn boot_order(vm: &Properties) -> Option<&Vec<Value>> {
    vm.value("config.bootOptions")
        .and_then(|o| o.get("bootOrder"))
        .map(unboxed)
        .and_then(Value::as_array)
}

fn observation(vm: &Properties) -> VcResult<VmObservation> {
    vm.require_readable(IDENTITY)?;
    let devices = vm.list("config.hardware.device");
    Ok(VmObservation {
        moref: vm.object.clone(),
        name: vm.text("name").unwrap_or_default().to_owned(),
        bios_uuid: vm.text("config.uuid").and_then(BiosUuid::parse),
        instance_uuid: vm
            .text("config.instanceUuid")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        folder: vm.reference("parent"),
        marker: marker(vm.list("config.extraConfig")),
        notes: Notes::read(vm.text("config.annotation")),
        power: power(vm),
        connection_state: vm
            .text("runtime.connectionState")
            .unwrap_or_default()
            .to_owned(),
        macs: devices
            .iter()
            .filter_map(|d| d.get("macAddress")?.as_str().and_then(MacAddress::parse))
            .collect(),
        disk_keys: devices
            .iter()
            .filter(|d| type_name(d) == "VirtualDisk")
            .filter_map(key)
            .collect(),
        cdroms: devices
            .iter()
            .filter(|d| type_name(d) == "VirtualCdrom")
            .filter_map(cdrom)
            .collect(),
        boot_order: boot_order(vm)
            .map(|all| all.iter().map(boot_device).collect())
            .unwrap_or_default(),
        vm_path: vm
            .text("config.files.vmPathName")
            .unwrap_or_default()
            .to_owned(),
        tools: vm.text("guest.toolsRunningStatus").map(str::to_owned),
        guest_address: vm
            .text("guest.ipAddress")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        guest_host: vm
            .text("guest.hostName")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
    })
}

fn type_name(value: &Value) -> &str {
    value
        .get("_typeName")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn key(device: &Value) -> Option<i32> {
    device.get("key")?.as_i64()?.try_into().ok()
}

fn marker(extra_config: &[Value]) -> Option<Marker> {
    let owner = extra_config
        .iter()
        .find(|o| o.get("key").and_then(Value::as_str) == Some(MARKER_KEY))?;
    Marker::parse(owner.get("value").map(unboxed)?.as_str()?)
}

/// The ISO in a CD-ROM drive.
pub(super) fn iso_of(device: &Value) -> Option<&str> {
    let backing = device.get("backing")?;
    (type_name(backing) == "VirtualCdromIsoBackingInfo")
        .then(|| backing.get("fileName")?.as_str())?
}

fn cdrom(device: &Value) -> Option<Cdrom> {
    let flag = |name: &str| {
        device
            .pointer(&format!("/connectable/{name}"))
            .and_then(Value::as_bool)
            .unwrap_or(false)
    };
    Some(Cdrom {
        key: key(device)?,
        iso: iso_of(device).map(str::to_owned),
        connected: flag("connected"),
        start_connected: flag("startConnected"),
    })
}

fn boot_device(device: &Value) -> BootDevice {
    match type_name(device) {
        "VirtualMachineBootOptionsBootableCdromDevice" => BootDevice::Cdrom,
        "VirtualMachineBootOptionsBootableDiskDevice" => device
            .get("deviceKey")
            .and_then(Value::as_i64)
            .and_then(|k| k.try_into().ok())
            .map_or_else(
                || BootDevice::Other("disk without key".to_owned()),
                BootDevice::Disk,
            ),
        other => BootDevice::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::wire::collector::ObjectContent, *};

    fn vm(props: Value) -> Properties {
        let set: Vec<Value> = props
            .as_object()
            .expect("object")
            .iter()
            .map(|(n, v)| json!({"name": n, "val": v}))
            .collect();
        let content: ObjectContent = serde_json::from_value(json!({
            "obj": {"type": "VirtualMachine", "value": "vm-1", "_typeName": "ManagedObjectReference"}, "propSet": set
        }))
        .expect("content");
        content.into()
    }

    #[test]
    fn a_vm_is_read_out_of_its_boxes() {
        let owner = Marker {
            cluster_id: "c".into(),
            namespace: "ns".into(),
            name: "vm".into(),
            uid: "u".into(),
            attempt: 2,
        };
        let seen = observation(&vm(json!({
            "name": {"_typeName": "string", "_value": "node-1"},
            "parent": {"_typeName": "ManagedObjectReference", "type": "Folder", "value": "group-v3"},
            "config.uuid": {"_typeName": "string", "_value": "423e36c8-723d-2b24-8590-0eb1d9180aa2"},
            "config.annotation": {"_typeName": "string", "_value": Notes::text("u")},
            "runtime.powerState": {"_typeName": "VirtualMachinePowerState", "_value": "poweredOn"},
            "config.extraConfig": {"_typeName": "ArrayOfOptionValue", "_value": [
                {"_typeName": "OptionValue", "key": "x", "value": {"_typeName": "string", "_value": "y"}},
                {"value": {"_value": owner.to_string(), "_typeName": "string"}, "key": MARKER_KEY}]},
            "config.hardware.device": {"_value": [
                {"key": 202, "_typeName": "VirtualDisk"},
                {"key": 4000, "_typeName": "VirtualVmxnet3", "macAddress": "00:50:56:AA:00:01"},
                {"key": 16000, "_typeName": "VirtualCdrom", "connectable": {"connected": true, "startConnected": true},
                 "backing": {"fileName": "[iso] a.iso", "_typeName": "VirtualCdromIsoBackingInfo"}}],
                "_typeName": "ArrayOfVirtualDevice"},
            "config.bootOptions": {"_typeName": "VirtualMachineBootOptions", "bootOrder": [
                {"_typeName": "VirtualMachineBootOptionsBootableDiskDevice", "deviceKey": 202},
                {"_typeName": "VirtualMachineBootOptionsBootableCdromDevice"},
                {"_typeName": "VirtualMachineBootOptionsBootableEthernetDevice", "deviceKey": 4000}]},
        })))
        .expect("observation");
        assert_eq!(seen.power, PowerState::On);
        assert_eq!(seen.marker, Some(owner));
        assert_eq!(seen.notes, Notes::OfAgent("u".into()));
        assert_eq!(seen.disk_keys, [202]);
        assert_eq!(
            seen.macs,
            [MacAddress::parse("00:50:56:aa:00:01").expect("mac")]
        );
        assert_eq!(seen.cdroms[0].iso.as_deref(), Some("[iso] a.iso"));
        assert_eq!(
            seen.boot_order,
            [
                BootDevice::Disk(202),
                BootDevice::Cdrom,
                BootDevice::Other("VirtualMachineBootOptionsBootableEthernetDevice".into())
            ]
        );
    }

    #[test]
    fn a_scan_sees_marked_vms_and_believes_only_what_it_may_read() {
        let read = |mark: Value, power: Value, boot: Value| {
            marked(&vm(json!({
                "name": {"_typeName": "string", "_value": "x"},
                "config.extraConfig": {"_typeName": "ArrayOfOptionValue", "_value": [
                    {"_typeName": "OptionValue", "key": MARKER_KEY, "value": mark}
                ]},
                "runtime.powerState": power,
                "config.bootOptions": boot,
            })))
        };
        let text = |t: &str| json!({"_typeName": "string", "_value": t});
        let mark = || text("v1/c/ns/a/u/2");
        let bare = json!({"_typeName": "VirtualMachineBootOptions"});
        let made = read(mark(), text("poweredOff"), bare.clone()).expect("marked");
        assert_eq!((made.marker.attempt, made.has_boot_order), (2, false));
        let ordered = json!({"_typeName": "VirtualMachineBootOptions", "bootOrder": [
            {"_typeName": "VirtualMachineBootOptionsBootableCdromDevice"}
        ]});
        let ran = read(mark(), text("poweredOn"), ordered).expect("marked");
        assert!(ran.has_boot_order && ran.power == PowerState::On);
        assert_eq!(
            read(text("somebody's"), text("poweredOff"), bare.clone()),
            None
        );
        assert_eq!(read(mark(), Value::Null, bare), None, "no power state");
    }

    #[test]
    fn a_vm_without_configuration_is_listed_as_such_and_no_other_is() {
        let text = |t: &str| json!({"_typeName": "string", "_value": t});
        let state = text("inaccessible");
        let away = vm(json!({
            "name": text("x"), "summary.config.vmPathName": text("[ds] x/x.vmx"), "runtime.connectionState": state,
        }));
        let found = bare(&away).expect("bare");
        assert_eq!(
            (
                found.name.as_str(),
                found.vm_path.as_deref(),
                found.connection_state.as_str()
            ),
            ("x", Some("[ds] x/x.vmx"), "inaccessible")
        );
        assert_eq!(marked(&away), None);
        let there = vm(
            json!({"name": text("x"), "config.uuid": text("423e36c8-723d-2b24-8590-0eb1d9180aa2")}),
        );
        assert_eq!(bare(&there), None);
    }

    #[test]
    fn a_bare_vm_is_read_without_inventing_anything() {
        let seen = observation(&vm(json!({"name": {"_typeName": "string", "_value": "x"}})))
            .expect("observation");
        assert!(!seen.shows_config());
        assert_eq!(
            (seen.bios_uuid, seen.marker, seen.folder),
            (None, None, None)
        );
        assert!(seen.macs.is_empty() && seen.disk_keys.is_empty() && seen.boot_order.is_empty());
    }
}
