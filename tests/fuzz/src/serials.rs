//! Short texts that identify something: serial numbers, uuids, MAC addresses, markers, durations.

use std::time::Duration;

use agent_forge_actors::domain::{
    identity::{BiosUuid, MacAddress},
    marker::Marker,
};
use agent_forge_crds::duration;

/// What is read prints as a text that is read as the same. The byte orders of a uuid are one machine.
pub(crate) fn check(data: &[u8]) {
    let text = crate::text(data);
    let serial = BiosUuid::from_vmware_serial(&text);
    assert!(
        serial.is_none() || text.trim().starts_with("VMware-"),
        "no serial number of VMware"
    );
    for uuid in serial.into_iter().chain(BiosUuid::parse(&text)) {
        uuid_holds(uuid);
    }
    if let Some(mac) = MacAddress::parse(&text) {
        let forms = [
            mac.to_string(),
            mac.hyphenated(),
            mac.to_string().to_uppercase(),
        ];
        for form in forms {
            assert_eq!(MacAddress::parse(&form), Some(mac), "{form}");
        }
    }
    if let Some(marker) = Marker::parse(&text) {
        assert_eq!(Marker::parse(&marker.to_string()), Some(marker));
    }
    if let Ok(time) = duration::parse(&text) {
        let nanos = Duration::from_nanos_u128(time.as_nanos());
        assert_eq!(
            duration::parse(&format!("{}ns", nanos.as_nanos())),
            Ok(time)
        );
    }
}

fn uuid_holds(uuid: BiosUuid) {
    assert_eq!(BiosUuid::parse(&uuid.to_string()), Some(uuid));
    let serial = format!("VMware-{}", uuid.to_string().replace('-', " "));
    assert_eq!(BiosUuid::from_vmware_serial(&serial), Some(uuid));
    let other = uuid.swapped();
    assert_eq!(other.swapped(), uuid);
    assert_eq!(other.in_one_order(), uuid.in_one_order());
    assert!(uuid.same_machine(other) && other.same_machine(uuid));
}

pub(crate) fn examples() -> Vec<Vec<u8>> {
    crate::of(&[
        "VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2",
        " VMware-423e36c8723d2b2485900eb1d9180aa2 ",
        "423e36c8-723d-2b24-8590-0eb1d9180aa2",
        "C8363E423D72242B85900EB1D9180AA2",
        "{423e36c8-723d-2b24-8590-0eb1d9180aa2}",
        "None",
        "00:50:56:aa:bb:01",
        "00-50-56-AA-BB-01",
        "v1/5d0f7b1c-6f0e/demo/demo-worker-1/9d1a4fd2-1c1e-4b64/3",
        "30m",
        "1h15m30.5s",
        "0",
        "+1.000000001h",
        "5124095h34m33.709551615s",
    ])
}
