//! Decodes faults into one enum, by `_typeName` alone. On the JSON wire a fault is the object itself, without the
//! wrapper of other bindings.

use agent_forge_actors::{
    domain::{names::MoRef, text::plain},
    ports::vcenter::{Fault, VcErrorKind},
};
use serde_json::Value;

use super::wire::{reference_in, unboxed};

/// Most characters of a text in a fault. Names, paths and sentences are shorter.
const MAX_TEXT: usize = 400;
/// Most characters of a fault's type name; the longest in the API has about 50.
const MAX_TYPE_NAME: usize = 64;

/// A decoded fault and the server's sentence about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// The fault.
    pub(crate) fault: Fault,
    /// The sentence for people.
    pub(crate) message: String,
}

/// Reads a fault object; `None` when this is no fault.
pub(crate) fn decode(value: &Value) -> Option<Decoded> {
    let type_name = value.get("_typeName")?.as_str()?;
    let text = |key: &str| {
        value
            .get(key)
            .map(unboxed)
            .and_then(Value::as_str)
            .map(|text| plain(&text.chars().take(MAX_TEXT).collect::<String>()))
            .unwrap_or_default()
    };
    let reference = |key: &str| value.get(key).and_then(reference_in);
    let said = message(value);
    let fault = match type_name {
        "NotAuthenticated" => Fault::NotAuthenticated,
        "InvalidLogin" | "PasswordExpired" => Fault::InvalidLogin,
        "NoPermission" => Fault::NoPermission {
            object: reference("object"),
            privilege: text("privilegeId"),
        },
        "ManagedObjectNotFound" => Fault::ManagedObjectNotFound(reference("obj")),
        "DuplicateName" => Fault::DuplicateName {
            name: text("name"),
            holder: reference("object"),
        },
        "AlreadyExists" => Fault::AlreadyExists(text("name")),
        "FileAlreadyExists" => Fault::AlreadyExists(text("file")),
        "FileNotFound" => Fault::FileNotFound(text("file")),
        "FileLocked" | "CannotDeleteFile" | "CannotAccessFile" => Fault::FileLocked(text("file")),
        "NoDiskSpace" => Fault::NoDiskSpace(text("datastore")),
        "InsufficientStorageSpace" => Fault::NoDiskSpace(String::new()),
        "InsufficientResourcesFault"
        | "InsufficientCpuResourcesFault"
        | "InsufficientMemoryResourcesFault"
        | "InsufficientFailoverResourcesFault"
        | "InsufficientHostCapacityFault"
        | "InsufficientHostCpuCapacityFault"
        | "InsufficientHostMemoryCapacityFault"
        | "InsufficientPerCpuCapacity"
        | "InsufficientStandbyResource"
        | "InsufficientStandbyCpuResource"
        | "InsufficientStandbyMemoryResource" => Fault::InsufficientResources(said.clone()),
        "InvalidPowerState" => Fault::InvalidPowerState {
            existing: text("existingState"),
        },
        "TaskInProgress" => Fault::TaskInProgress,
        "ConcurrentAccess" => Fault::ConcurrentAccess,
        "RequestCanceled" => Fault::RequestCanceled,
        "InvalidArgument" => Fault::InvalidArgument {
            property: text("invalidProperty"),
        },
        "InvalidName" => Fault::InvalidArgument {
            property: "name".to_owned(),
        },
        "InvalidDatastore" | "InvalidDatastorePath" => Fault::InvalidArgument {
            property: "datastore".to_owned(),
        },
        "UnsupportedGuest" => Fault::InvalidArgument {
            property: "guestId".to_owned(),
        },
        "NumVirtualCpusNotSupported" | "NotEnoughCpus" | "NotEnoughLogicalCpus" => {
            Fault::InvalidArgument {
                property: "numCPUs".to_owned(),
            }
        }
        "MemorySizeNotSupported" => Fault::InvalidArgument {
            property: "memoryMB".to_owned(),
        },
        "InvalidVmConfig"
        | "VmConfigFault"
        | "InvalidDeviceSpec"
        | "InvalidDeviceBacking"
        | "InvalidDeviceOperation"
        | "InvalidController"
        | "MissingController"
        | "DeviceNotSupported"
        | "DeviceBackingNotSupported"
        | "DeviceControllerNotSupported"
        | "ControllerRequiredAnotherType" => Fault::InvalidArgument {
            property: text("property"),
        },
        other => Fault::Other {
            type_name: type_named(other).to_owned(),
            message: said.clone(),
        },
    };
    // The server's sentence says little ("permission was denied"). The content of the fault says what to do.
    let message = match (describe(&fault), said) {
        (ours, said) if said.is_empty() => ours,
        (ours, said) if ours == fault.name() => said,
        (ours, said) => format!("{ours} ({said})"),
    };
    Some(Decoded { fault, message })
}

/// The type name of an unknown fault. It becomes a reason, and a reason is one word. Anything else becomes a fixed
/// word.
fn type_named(name: &str) -> &str {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.len() <= MAX_TYPE_NAME
        && name.chars().all(|c| c.is_ascii_alphanumeric());
    if is_word { name } else { "UnknownFault" }
}

/// Short name of a failure for metrics and spans. It is from a closed list, whatever the server calls its faults.
pub(crate) fn kind_name(kind: &VcErrorKind) -> &str {
    match kind {
        VcErrorKind::Fault(Fault::Other { .. }) => "OtherFault",
        VcErrorKind::Fault(fault) => fault.name(),
        VcErrorKind::Unresolved { .. } => "Unresolved",
        VcErrorKind::Unreachable => "Unreachable",
        VcErrorKind::NoAnswer => "NoAnswer",
        VcErrorKind::Untrusted => "Untrusted",
        VcErrorKind::LoginLimited(_) => "LoginLimited",
        VcErrorKind::NotAllowed => "NotAllowed",
        VcErrorKind::Status(_) => "Status",
        VcErrorKind::Undecodable => "Undecodable",
        VcErrorKind::Held(_) => "Held",
    }
}

/// The server's sentence. Its place depends on the release.
fn message(value: &Value) -> String {
    let localized = value
        .get("faultMessage")
        .map(unboxed)
        .and_then(Value::as_array)
        .and_then(|all| {
            all.iter().find_map(|m| {
                m.get("message")
                    .and_then(Value::as_str)
                    .filter(|t| !t.is_empty())
            })
        });
    let bare = || {
        ["faultstring", "localizedMessage", "msg", "reason"]
            .iter()
            .find_map(|key| {
                value
                    .get(*key)
                    .and_then(Value::as_str)
                    .filter(|t| !t.is_empty())
            })
    };
    localized
        .or_else(bare)
        .unwrap_or_default()
        .chars()
        .take(MAX_TEXT)
        .collect()
}

/// Our sentence about the fault, or its name if it carries nothing else.
fn describe(fault: &Fault) -> String {
    let on = |object: &Option<MoRef>| {
        object
            .as_ref()
            .map_or_else(String::new, |o| format!(" on {o}"))
    };
    match fault {
        Fault::NotAuthenticated => "the session is gone".to_owned(),
        Fault::InvalidLogin => "user name or password is wrong".to_owned(),
        Fault::NoPermission { object, privilege } => {
            format!("privilege {privilege} is missing{}", on(object))
        }
        Fault::ManagedObjectNotFound(object) => format!("the object does not exist{}", on(object)),
        Fault::DuplicateName { name, holder } => {
            let by = holder
                .as_ref()
                .map_or_else(String::new, |vm| format!(" by {vm}"));
            format!("the name {name:?} is taken{by}")
        }
        Fault::AlreadyExists(what) => format!("{what:?} exists already"),
        Fault::FileNotFound(what) => format!("{what:?} does not exist"),
        Fault::FileLocked(what) => format!("{what:?} is in use"),
        Fault::NoDiskSpace(what) => format!("datastore {what:?} is full"),
        Fault::InvalidPowerState { existing } => format!("not possible in power state {existing}"),
        Fault::InvalidArgument { property } => format!("vCenter does not accept {property:?}"),
        other => other.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_decode_by_type_name_wherever_it_stands() {
        let vm = json!({"value": "vm-7", "type": "VirtualMachine", "_typeName": "ManagedObjectReference"});
        let moref = MoRef::new("VirtualMachine", "vm-7");
        let table = [
            (
                json!({"faultstring": "x", "_typeName": "InvalidLogin"}),
                Fault::InvalidLogin,
            ),
            (
                json!({"_typeName": "NotAuthenticated", "privilegeId": "System.View"}),
                Fault::NotAuthenticated,
            ),
            (
                json!({"_typeName": "NoPermission", "object": vm, "privilegeId": "VirtualMachine.Inventory.Create"}),
                Fault::NoPermission {
                    object: Some(moref.clone()),
                    privilege: "VirtualMachine.Inventory.Create".into(),
                },
            ),
            (
                json!({"_typeName": "ManagedObjectNotFound", "obj": vm}),
                Fault::ManagedObjectNotFound(Some(moref.clone())),
            ),
            (
                json!({"_typeName": "DuplicateName", "name": "a", "object": vm}),
                Fault::DuplicateName {
                    name: "a".into(),
                    holder: Some(moref),
                },
            ),
            (
                json!({"_typeName": "FileAlreadyExists", "file": "[ds] a"}),
                Fault::AlreadyExists("[ds] a".into()),
            ),
            (
                json!({"_typeName": "InvalidPowerState", "existingState": "poweredOn"}),
                Fault::InvalidPowerState {
                    existing: "poweredOn".into(),
                },
            ),
            (
                json!({"_typeName": "InvalidDeviceSpec", "property": "virtualDeviceSpec.device.backing", "deviceIndex": 2}),
                Fault::InvalidArgument {
                    property: "virtualDeviceSpec.device.backing".into(),
                },
            ),
            (
                json!({"_typeName": "UnsupportedGuest", "property": "", "unsupportedGuestOS": "rhel99_64Guest"}),
                Fault::InvalidArgument {
                    property: "guestId".into(),
                },
            ),
            (
                json!({"_typeName": "NotEnoughLogicalCpus", "numCpuDest": 8, "numCpuVm": 16}),
                Fault::InvalidArgument {
                    property: "numCPUs".into(),
                },
            ),
            (
                json!({"_typeName": "NumVirtualCpusNotSupported", "maxSupportedVcpusDest": 8, "numCpuVm": 16}),
                Fault::InvalidArgument {
                    property: "numCPUs".into(),
                },
            ),
            (
                json!({"_typeName": "MemorySizeNotSupported", "memorySizeMB": 99, "minMemorySizeMB": 4, "maxMemorySizeMB": 64}),
                Fault::InvalidArgument {
                    property: "memoryMB".into(),
                },
            ),
            (
                json!({"_typeName": "HostNotConnected", "faultMessage": [{"key": "k", "message": "host is away"}]}),
                Fault::Other {
                    type_name: "HostNotConnected".into(),
                    message: "host is away".into(),
                },
            ),
        ];
        for (wire, wanted) in table {
            assert_eq!(decode(&wire).expect("a fault").fault, wanted, "{wire}");
        }
    }

    #[test]
    fn what_a_fault_carries_is_said_beside_the_servers_sentence() {
        let denied = json!({
            "_typeName": "NoPermission", "privilegeId": "Network.Assign",
            "object": {"_typeName": "ManagedObjectReference", "type": "Network", "value": "network-6"},
            "faultMessage": [{"key": "k", "message": "Permission to perform this operation was denied."}],
        });
        let said = decode(&denied).expect("a fault").message;
        assert!(
            said.contains("Network.Assign")
                && said.contains("network-6")
                && said.contains("was denied"),
            "{said}"
        );
        let broken = json!({"_typeName": "SystemError", "reason": "disk on fire"});
        assert_eq!(decode(&broken).expect("a fault").message, "disk on fire");
        let scarce = json!({"_typeName": "InsufficientCpuResourcesFault", "localizedMessage": "no CPU left"});
        assert_eq!(decode(&scarce).expect("a fault").message, "no CPU left");
    }

    #[test]
    fn a_servers_words_are_bounded_and_no_label_of_a_metric() {
        let long = "x".repeat(1 << 20);
        for name in [long.as_str(), "Not a word", "7up", "Schl\u{fc}ssel", ""] {
            let decoded = decode(&json!({"_typeName": name, "reason": long})).expect("a fault");
            assert_eq!(decoded.fault.name(), "UnknownFault");
            assert_eq!(decoded.message.len(), MAX_TEXT);
        }
        let denied = json!({"_typeName": "NoPermission", "privilegeId": long});
        assert!(decode(&denied).expect("a fault").message.len() < 2 * MAX_TEXT);
        let other = decode(&json!({"_typeName": "HostNotConnected"})).expect("a fault");
        assert_eq!(other.fault.name(), "HostNotConnected");
        assert_eq!(kind_name(&VcErrorKind::Fault(other.fault)), "OtherFault");
    }

    #[test]
    fn text_never_decides() {
        let wire =
            json!({"_typeName": "SystemError", "reason": "FileNotFound: DuplicateName not found"});
        let decoded = decode(&wire).expect("a fault");
        assert!(
            matches!(decoded.fault, Fault::Other { ref type_name, .. } if type_name == "SystemError")
        );
        assert_eq!(decode(&json!({"error": "NotAuthenticated"})), None);
    }
}
