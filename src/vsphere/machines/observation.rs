//! A VM as vCenter shows it, in one request for any number of VMs.

use agent_forge_actors::{
    domain::{
        hardware::{
            DiskController, Link, NetworkAdapter, ShownCard, ShownHardware, ShownNow, disk_uuid,
            hardware_version,
        },
        holds::{ADOPT_KEY, PAUSE_KEY, SKIP_DELETE_KEY, VmMarks},
        identity::{BiosUuid, MacAddress},
        marker::{DISK_KEY, DiskMark, MARKER_KEY, MAY_SERVE_KEY, Marker, MayServe},
        text::plain,
    },
    ports::vcenter::{
        BareVm, BootDevice, Cdrom, GENERATION_KEY, MarkedVm, PowerState, VcResult, VmObservation,
    },
};
use serde_json::Value;

use crate::vsphere::rpc::{properties::Properties, wire::unboxed};

/// The ESXi host of a VM.
pub(crate) const HOST: &str = "runtime.host";
/// The name of that host. It is no property of vCenter: a look puts it there.
pub(crate) const HOST_NAME: &str = "runtime.host.name";
/// The snapshots from which all others come.
const SNAPSHOTS: &str = "rootSnapshot";

/// Everything that [`observation`] reads.
pub(crate) const PATHS: &[&str] = &[
    "name",
    "parent",
    "config.uuid",
    "config.instanceUuid",
    "config.annotation",
    "config.changeVersion",
    "config.extraConfig",
    "config.hardware.device",
    "config.hardware.numCPU",
    "config.hardware.memoryMB",
    "config.firmware",
    "config.version",
    "config.bootOptions",
    "config.files.vmPathName",
    "runtime.powerState",
    "runtime.connectionState",
    HOST,
    "summary.storage.committed",
    SNAPSHOTS,
    "guest.toolsRunningStatus",
    "guest.ipAddress",
    "guest.hostName",
];

/// Longest name that vCenter gives to an object. References are shorter.
const LONGEST_NAME: usize = 80;
/// Longest name of a host in DNS.
const LONGEST_HOST: usize = 255;
/// Longer than any path of a configuration file.
const LONGEST_PATH: usize = 512;

/// Everything that [`marked`] and [`bare`] read.
pub(crate) const SURVEY_PATHS: &[&str] = &[
    "name",
    "config.uuid",
    "config.extraConfig",
    "config.bootOptions",
    "config.hardware.numCPU",
    "config.hardware.memoryMB",
    "summary.config.vmPathName",
    "runtime.powerState",
    "runtime.connectionState",
];

/// What [`marked`] must be able to read.
const MARKED_PATHS: &[&str] = &[
    "name",
    "config.extraConfig",
    "config.bootOptions",
    "runtime.powerState",
];

/// Without these, a VM could seem to have another owner.
const IDENTITY: &[&str] = &[
    "config.uuid",
    "config.annotation",
    "config.extraConfig",
    "runtime.powerState",
];

/// The VM, if it has an ownership marker. A VM with properties that the user may not read does not count: an unset
/// value would look like a fact.
pub(crate) fn marked(vm: &Properties) -> Option<MarkedVm> {
    vm.require_readable(MARKED_PATHS).ok()?;
    vm.text("runtime.powerState")?;
    // vCenter's own values are far shorter. Longer ones must not get into memory and messages.
    if vm.object.id.len() > LONGEST_NAME || vm.object.kind.len() > LONGEST_NAME {
        return None;
    }
    let name = vm.text("name").unwrap_or_default();
    Some(MarkedVm {
        moref: vm.object.clone(),
        name: plain(&name.chars().take(LONGEST_NAME).collect::<String>()),
        marker: marker(vm.list("config.extraConfig"))?,
        power: power(vm),
        has_boot_order: boot_order(vm).is_some_and(|order| !order.is_empty()),
        marks: marks(vm.list("config.extraConfig")),
        num_cpus: number(vm, "config.hardware.numCPU"),
        memory_mib: number(vm, "config.hardware.memoryMB"),
    })
}

/// The VM, if vCenter shows no configuration: `config` is unset while its files cannot be read.
pub(crate) fn bare(vm: &Properties) -> Option<BareVm> {
    if vm.value("config.uuid").is_some() || vm.object.id.len() > LONGEST_NAME {
        return None;
    }
    let text = |path: &str, longest| {
        let text = vm.text(path)?;
        Some(plain(&text.chars().take(longest).collect::<String>()))
    };
    Some(BareVm {
        moref: vm.object.clone(),
        // vCenter may show the path of its file as the name.
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

/// The devices in the order in which the VM boots them.
pub(super) fn boot_order(vm: &Properties) -> Option<&Vec<Value>> {
    vm.value("config.bootOptions")
        .and_then(|o| o.get("bootOrder"))
        .map(unboxed)
        .and_then(Value::as_array)
}

pub(super) fn observation(vm: &Properties) -> VcResult<VmObservation> {
    vm.require_readable(IDENTITY)?;
    let devices = vm.list("config.hardware.device");
    Ok(VmObservation {
        moref: vm.object.clone(),
        name: vm.text("name").map(plain).unwrap_or_default(),
        bios_uuid: vm.text("config.uuid").and_then(BiosUuid::parse),
        instance_uuid: vm
            .text("config.instanceUuid")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        folder: vm.reference("parent"),
        marker: marker(vm.list("config.extraConfig")),
        may_serve: extra(vm.list("config.extraConfig"), MAY_SERVE_KEY).and_then(MayServe::parse),
        disk: extra(vm.list("config.extraConfig"), DISK_KEY).and_then(DiskMark::parse),
        generation: extra(vm.list("config.extraConfig"), GENERATION_KEY)
            .and_then(|number| number.parse().ok()),
        change_version: vm
            .text("config.changeVersion")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        marks: marks(vm.list("config.extraConfig")),
        adopt: extra(vm.list("config.extraConfig"), ADOPT_KEY).map(plain),
        annotation: vm.text("config.annotation").unwrap_or_default().to_owned(),
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
        hardware: hardware(vm),
        vm_path: vm
            .text("config.files.vmPathName")
            .unwrap_or_default()
            .to_owned(),
        tools: vm.text("guest.toolsRunningStatus").map(str::to_owned),
        guest_address: vm
            .text("guest.ipAddress")
            .filter(|t| !t.is_empty())
            .map(plain),
        guest_host: vm
            .text("guest.hostName")
            .filter(|t| !t.is_empty())
            .map(plain),
    })
}

/// A number that vCenter shows.
fn number<T: TryFrom<u64>>(vm: &Properties, path: &str) -> Option<T> {
    unboxed(vm.value(path)?).as_u64()?.try_into().ok()
}

fn hardware(vm: &Properties) -> ShownHardware {
    let devices = vm.list("config.hardware.device");
    // Without any device the configuration is not there yet.
    let known = !devices.is_empty();
    let first = |is: fn(&Value) -> bool| devices.iter().filter(|d| is(d)).min_by_key(|d| key(d));
    let disk = first(|d| type_name(d) == "VirtualDisk");
    let card = first(|d| d.get("macAddress").is_some());
    let controller = disk.and_then(|disk| {
        let of = number_of(disk, "controllerKey")?;
        devices.iter().find(|d| key(d) == Some(of))
    });
    let none = || known.then(|| "none".to_owned());
    let word = |device: &Value, word: Option<&'static str>| {
        Some(word.unwrap_or_else(|| type_name(device)).to_owned())
    };
    ShownHardware {
        num_cpus: number(vm, "config.hardware.numCPU"),
        memory_mib: number(vm, "config.hardware.memoryMB"),
        disk_gib: match disk {
            Some(disk) => disk
                .get("capacityInKB")
                .and_then(Value::as_u64)
                .map(|kib| kib >> 20),
            None => known.then_some(0),
        },
        disk_uuid: disk
            .and_then(|disk| disk.pointer("/backing/uuid")?.as_str())
            .and_then(disk_uuid),
        firmware: vm.text("config.firmware").map(str::to_owned),
        disk_controller: match (disk, controller) {
            (None, _) => none(),
            (Some(_), None) => None,
            (Some(_), Some(of)) => {
                let kind = DiskController::of_device(type_name(of));
                word(of, kind.map(DiskController::as_str))
            }
        },
        network_adapter: card.map_or_else(none, |card| {
            let kind = NetworkAdapter::of_device(type_name(card));
            word(card, kind.map(NetworkAdapter::as_str))
        }),
        version: vm.text("config.version").and_then(hardware_version),
        cards: known.then(|| cards(devices, power(vm) == PowerState::On)),
        now: now(vm),
    }
}

/// Where it runs and what it uses.
fn now(vm: &Properties) -> ShownNow {
    let name = vm.text(HOST_NAME).filter(|name| !name.is_empty());
    let host = name.map(str::to_owned);
    let host = host.or_else(|| Some(vm.reference(HOST)?.id));
    // No snapshot is no value, and so is one that is not shown.
    let tells = vm.value("config.uuid").is_some() && vm.require_readable(&[SNAPSHOTS]).is_ok();
    ShownNow {
        host: host.map(|text| plain(&text.chars().take(LONGEST_HOST).collect::<String>())),
        used_bytes: number(vm, "summary.storage.committed"),
        has_snapshot: tells.then(|| !vm.list(SNAPSHOTS).is_empty()),
    }
}

/// The network cards among the devices. `runs`: the VM is on. A card of any other VM is connected to nothing.
fn cards(devices: &[Value], runs: bool) -> Vec<ShownCard> {
    let mut cards: Vec<&Value> = devices
        .iter()
        .filter(|d| d.get("macAddress").is_some())
        .collect();
    cards.sort_by_key(|d| key(d));
    let text = |card: &Value, path: &str| {
        let text = card.pointer(path)?.as_str()?;
        Some(text.chars().take(LONGEST_NAME).collect::<String>())
    };
    let flag = |card: &Value, name: &str| {
        card.pointer(&format!("/connectable/{name}"))
            .and_then(Value::as_bool)
    };
    let link = |card: &Value| match (flag(card, "connected")?, flag(card, "startConnected")?) {
        (false, _) => Some(Link::Disconnected),
        (true, false) => Some(Link::OnlyNow),
        (true, true) => Some(Link::Connected),
    };
    let card = |card: &Value| ShownCard {
        network_ref: text(card, "/backing/network/value")
            .or_else(|| text(card, "/backing/port/portgroupKey"))
            .or_else(|| text(card, "/backing/opaqueNetworkId")),
        network: text(card, "/backing/deviceName").filter(|name| !name.is_empty()),
        link: runs.then(|| link(card)).flatten(),
    };
    cards.into_iter().map(card).collect()
}

/// The `_typeName` of an object. Empty if it has none.
pub(super) fn type_name(value: &Value) -> &str {
    value
        .get("_typeName")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The key of a device.
pub(super) fn key(device: &Value) -> Option<i32> {
    number_of(device, "key")
}

/// A number of a device.
pub(super) fn number_of(device: &Value, field: &str) -> Option<i32> {
    device.get(field)?.as_i64()?.try_into().ok()
}

/// The value of an `extraConfig` key.
fn extra<'a>(extra_config: &'a [Value], key: &str) -> Option<&'a str> {
    let option = extra_config
        .iter()
        .find(|o| o.get("key").and_then(Value::as_str) == Some(key))?;
    option.get("value").map(unboxed)?.as_str()
}

fn marker(extra_config: &[Value]) -> Option<Marker> {
    Marker::parse(extra(extra_config, MARKER_KEY)?)
}

fn marks(extra_config: &[Value]) -> VmMarks {
    let value = |key| extra(extra_config, key);
    VmMarks::read(value(PAUSE_KEY), value(SKIP_DELETE_KEY))
}

/// The ISO behind a CD-ROM drive.
pub(crate) fn iso_of(device: &Value) -> Option<&str> {
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

    use super::*;
    use crate::vsphere::rpc::wire::collector::ObjectContent;

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
            "config.annotation": {"_typeName": "string", "_value": "ask Ann"},
            "config.changeVersion": {"_typeName": "string", "_value": "2026-03-01T00:00:00.000001Z"},
            "runtime.powerState": {"_typeName": "VirtualMachinePowerState", "_value": "poweredOn"},
            "config.extraConfig": {"_typeName": "ArrayOfOptionValue", "_value": [
                {"_typeName": "OptionValue", "key": "x", "value": {"_typeName": "string", "_value": "y"}},
                {"_typeName": "OptionValue", "key": GENERATION_KEY, "value": {"_typeName": "string", "_value": "2"}},
                {"_typeName": "OptionValue", "key": MAY_SERVE_KEY, "value": {"_typeName": "string", "_value": "2/no"}},
                {"_typeName": "OptionValue", "key": DISK_KEY, "value": {"_typeName": "string", "_value": "2/kept"}},
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
        assert_eq!(seen.annotation, "ask Ann");
        assert_eq!(seen.generation, Some(2));
        assert_eq!(seen.may_serve_now(), Some(&MayServe::no(2)));
        assert!(seen.is_fresh_in(2) && !seen.is_fresh_in(3));
        assert!(seen.disk_now().is_some_and(|disk| disk.kept));
        assert_eq!(
            seen.change_version.as_deref(),
            Some("2026-03-01T00:00:00.000001Z")
        );
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

    /// The cards of a VM with these devices, in that power state.
    fn cards_of(devices: &Value, power: &str) -> Option<Vec<ShownCard>> {
        let seen = observation(&vm(json!({
            "runtime.powerState": {"_typeName": "VirtualMachinePowerState", "_value": power},
            "config.hardware.device": {"_typeName": "ArrayOfVirtualDevice", "_value": devices},
        })));
        seen.expect("observation").hardware.cards
    }

    #[test]
    fn each_card_shows_its_network_and_how_it_is_connected() {
        let link = |connected: bool, starts: bool| json!({"connected": connected, "startConnected": starts});
        let card = |key: i32, link: Value, backing: Value| {
            json!({"key": key, "_typeName": "VirtualVmxnet3", "macAddress": "00:50:56:aa:00:01",
            "connectable": link, "backing": backing})
        };
        let devices = json!([
            card(4002, link(false, true), json!({"opaqueNetworkId": "nsx-1"})),
            card(
                4001,
                link(true, false),
                json!({"port": {"portgroupKey": "dvportgroup-31", "switchUuid": "50 1c"}})
            ),
            card(
                4000,
                link(true, true),
                json!({"deviceName": "VM Network", "network": {"type": "Network", "value": "network-7"}})
            ),
            json!({"key": 202, "_typeName": "VirtualDisk"}),
            card(4003, json!({}), json!({"deviceName": ""})),
        ]);
        let shown = |id: Option<&str>, name: Option<&str>, link| ShownCard {
            network_ref: id.map(str::to_owned),
            network: name.map(str::to_owned),
            link,
        };
        let expected = [
            shown(Some("network-7"), Some("VM Network"), Some(Link::Connected)),
            shown(Some("dvportgroup-31"), None, Some(Link::OnlyNow)),
            shown(Some("nsx-1"), None, Some(Link::Disconnected)),
            shown(None, None, None),
        ];
        assert_eq!(
            cards_of(&devices, "poweredOn").as_deref(),
            Some(&expected[..])
        );
        let off = cards_of(&devices, "poweredOff").expect("cards");
        assert!(off.iter().all(|card| card.link.is_none()), "{off:?}");
        assert_eq!(off[2].network_ref.as_deref(), Some("nsx-1"));
        assert_eq!(
            cards_of(&json!([]), "poweredOn"),
            None,
            "no configuration yet"
        );
    }

    #[test]
    fn only_a_hardware_version_of_vsphere_is_one() {
        for (text, version) in [
            ("vmx-13", Some(13)),
            ("vmx-21", Some(21)),
            ("vmx-0", None),
            ("vmx-99999", None),
            ("13", None),
            ("", None),
        ] {
            let shown = json!({"config.version": {"_typeName": "string", "_value": text}});
            let seen = observation(&vm(shown)).expect("observation");
            assert_eq!(seen.hardware.version, version, "{text:?}");
        }
    }

    #[test]
    fn host_storage_and_snapshot_are_what_vcenter_shows() {
        let one = |kind: &str, id: &str| json!({"_typeName": "ManagedObjectReference", "type": kind, "value": id});
        let uuid = json!({"_typeName": "string", "_value": "423e36c8-723d-2b24-8590-0eb1d9180aa2"});
        let read = |props: Value| observation(&vm(props)).expect("observation").hardware.now;
        assert_eq!(read(json!({})), ShownNow::default());
        let bare = read(json!({"config.uuid": uuid, "runtime.host": one("HostSystem", "host-12")}));
        assert_eq!(bare.host.as_deref(), Some("host-12"), "its id");
        assert_eq!((bare.used_bytes, bare.has_snapshot), (None, Some(false)));
        let full = read(json!({
            "config.uuid": uuid,
            "runtime.host": one("HostSystem", "host-12"),
            "runtime.host.name": {"_typeName": "string", "_value": "esx-1.example"},
            "summary.storage.committed": {"_typeName": "long", "_value": 5_368_709_121_u64},
            "rootSnapshot": {"_typeName": "ArrayOfManagedObjectReference",
                "_value": [one("VirtualMachineSnapshot", "snapshot-3")]},
        }));
        assert_eq!(full.host.as_deref(), Some("esx-1.example"));
        assert_eq!(
            (full.used_bytes, full.has_snapshot),
            (Some(5_368_709_121), Some(true))
        );
    }

    #[test]
    fn what_is_no_number_is_no_life() {
        for text in ["", "second", "-1", "4294967296", "2 "] {
            let seen = observation(&vm(json!({
                "config.extraConfig": {"_typeName": "ArrayOfOptionValue", "_value": [
                    {"_typeName": "OptionValue", "key": GENERATION_KEY, "value": {"_typeName": "string", "_value": text}}
                ]},
            })));
            assert_eq!(seen.expect("observation").generation, None, "{text:?}");
        }
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
