//! BIOS uuids and MAC addresses.

use std::fmt;

use uuid::Uuid;

/// BIOS uuid in vSphere's byte order (`config.uuid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BiosUuid(Uuid);

/// Name space of the version 5 uuids that agent-forge gives its VMs.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0d_5b34_1c5e_4f0a_9e0b_7d1e_a9c4_2f17);

impl BiosUuid {
    /// The uuid that the VM of one VsphereAgent gets on its n-th attempt: UUIDv5 over (cluster id, uid, attempt). Every
    /// process computes the same uuid, so that a repeated create is recognised.
    #[must_use]
    pub fn derive(cluster_id: &str, uid: &str, attempt: u32) -> Self {
        Self(Uuid::new_v5(
            &NAMESPACE,
            format!("{cluster_id}/{uid}/{attempt}").as_bytes(),
        ))
    }

    /// Parses the usual hyphenated (or bare 32 digit) notation.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::parse_str(text.trim()).ok().map(Self)
    }

    /// Parses a VMware serial number: `VMware-` followed by 32 hex digits with blanks and hyphens. Any other text is no
    /// VMware identity, even one of 32 characters.
    #[must_use]
    pub fn from_vmware_serial(serial: &str) -> Option<Self> {
        let rest = serial.trim().strip_prefix("VMware-")?;
        // Every VM is compared with every Agent, so this allocates nothing.
        let (mut number, mut digits) = (0_u128, 0_u32);
        for c in rest.chars().filter(|c| *c != ' ' && *c != '-') {
            number = number << 4 | u128::from(c.to_digit(16)?);
            digits += 1;
            if digits > 32 {
                return None;
            }
        }
        (digits == 32).then(|| Self(Uuid::from_u128(number)))
    }

    /// The same uuid as a guest with newer virtual hardware sees it: first three groups byte-swapped.
    #[must_use]
    pub fn swapped(self) -> Self {
        Self(Uuid::from_bytes(self.0.to_bytes_le()))
    }

    /// One of the two byte orders, always the same one: two uuids of one machine become equal.
    #[must_use]
    pub fn in_one_order(self) -> Self {
        self.min(self.swapped())
    }

    /// Equal in either byte order.
    #[must_use]
    pub fn same_machine(self, other: Self) -> bool {
        self == other || self.swapped() == other
    }
}

impl fmt::Display for BiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// MAC address, normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// Parses six hex pairs separated by `:` or `-`, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0_u8; 6];
        let mut parts = text.trim().split([':', '-']);
        for byte in &mut out {
            let part = parts.next()?;
            if part.len() != 2 {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(out))
    }

    /// The notation of the predecessor in `status.vm.macAddress`: with hyphens.
    #[must_use]
    pub fn hyphenated(&self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vmware_serial_and_product_uuid_of_one_machine_agree() {
        // A uuid and a serial number of the same real VM.
        let config = BiosUuid::parse("423e36c8-723d-2b24-8590-0eb1d9180aa2").expect("uuid");
        let serial =
            BiosUuid::from_vmware_serial("VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2");
        assert_eq!(serial, Some(config));
        let product = BiosUuid::parse("C8363E42-3D72-242B-8590-0EB1D9180AA2").expect("uuid");
        assert!(config.same_machine(product) && product.same_machine(config));
        assert_eq!(config.swapped().swapped(), config);
        assert_eq!(config.in_one_order(), product.in_one_order());
    }

    #[test]
    fn only_vmware_serials_are_identities() {
        for bad in [
            "",
            "VMware-",
            "423e36c8723d2b2485900eb1d9180aa2",
            "VMware-42 3e",
            "VMware-zz 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2",
        ] {
            assert_eq!(BiosUuid::from_vmware_serial(bad), None, "{bad}");
        }
    }

    #[test]
    fn macs_normalise() {
        let a = MacAddress::parse("00-50-56-AA-bb-01").expect("mac");
        assert_eq!(a.to_string(), "00:50:56:aa:bb:01");
        assert_eq!(a.hyphenated(), "00-50-56-aa-bb-01");
        for bad in [
            "",
            "00:50:56",
            "00:50:56:aa:bb:0g",
            "00:50:56:aa:bb:01:02",
            "0050:56:aa:bb:01:2",
        ] {
            assert_eq!(MacAddress::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_attempt_has_its_own_uuid() {
        let one = BiosUuid::derive("c", "u", 1);
        assert_eq!(one, BiosUuid::derive("c", "u", 1));
        assert_ne!(one, BiosUuid::derive("c", "u", 2));
        assert_ne!(one, BiosUuid::derive("d", "u", 1));
    }
}
