//! The ownership marker. The VM is created with it in its `extraConfig`, and it names the owner. So a repeated create finds
//! the VM, and foreign VMs are safe.

use std::fmt;

/// `extraConfig` key of the marker. Not below `guestinfo.`, which the guest's root could rewrite.
pub const MARKER_KEY: &str = "agent-forge.owner";

/// `extraConfig` key of a VM that says whether its guest may serve a Machine ([`MayServe`]). Its own key: an older release
/// reads [`MARKER_KEY`] as before.
pub const MAY_SERVE_KEY: &str = "agent-forge.may-serve";

/// Longest text that is read as a marker.
const LONGEST: usize = 1024;

/// Whose VM this is. A VM without an equal marker is never touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Identity of the management cluster.
    pub cluster_id: String,
    /// Namespace of the VsphereAgent.
    pub namespace: String,
    /// Name of the VsphereAgent.
    pub name: String,
    /// uid of the VsphereAgent.
    pub uid: String,
    /// Which attempt of that VsphereAgent.
    pub attempt: u32,
}

impl Marker {
    /// Reads the text form back; `None` for anything else. Each user who can edit a VM can write any text there. So names
    /// that are not valid in Kubernetes are no marker.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parts = text.split('/');
        if parts.next()? != "v1" {
            return None;
        }
        let mut next = || parts.next().filter(|s| !s.is_empty()).map(str::to_owned);
        let marker = Self {
            cluster_id: next()?,
            namespace: next()?,
            name: next()?,
            uid: next()?,
            attempt: next()?.parse().ok()?,
        };
        (parts.next().is_none() && marker.is_plausible()).then_some(marker)
    }

    fn is_plausible(&self) -> bool {
        let label = |text: &str, longest: usize| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let ends = !text.starts_with('-') && !text.ends_with('-');
            !text.is_empty() && text.len() <= longest && ends && text.chars().all(inner)
        };
        let name = self.name.len() <= 253 && self.name.split('.').all(|part| label(part, 253));
        let id = |c: char| c.is_ascii_graphic();
        name && label(&self.namespace, 63)
            && self.uid.len() <= 64
            && self
                .uid
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-')
            && self.cluster_id.len() <= 253
            && self.cluster_id.chars().all(id)
    }

    /// Whether both name the same VsphereAgent of the same cluster, at any attempt.
    #[must_use]
    pub fn same_owner(&self, other: &Self) -> bool {
        self.cluster_id == other.cluster_id && self.uid == other.uid
    }
}

/// Whether the guest of a VM may serve a Machine, as vCenter keeps it: no API server that is restored can hide it.
///
/// It is written before an AgentMachine can choose the host. The text is `<life>/<uid of the AgentMachine>`, or `<life>/no`.
/// A VM without it, or with that of another life, is unknown: an older release made the VM, or made it ready for that life.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MayServe {
    /// Number of the life of the VM that it is about.
    pub life: u32,
    /// uid of the AgentMachine that may have the host. `None`: the host was offered to nobody.
    pub machine: Option<String>,
}

impl MayServe {
    /// The text for a host that was offered to nobody.
    const NO: &str = "no";
    /// In the place of the uid: the Agent was bound, and the AgentMachine is not on record.
    pub const BOUND: &str = "bound";

    /// The host was offered to nobody in that life.
    #[must_use]
    pub const fn no(life: u32) -> Self {
        Self {
            life,
            machine: None,
        }
    }

    /// Reads the text form back; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (life, machine) = text.split_once('/')?;
        let plausible = |c: char| c.is_ascii_graphic() && !['/', ','].contains(&c);
        if machine.is_empty() || machine.len() > 253 || !machine.chars().all(plausible) {
            return None;
        }
        Some(Self {
            life: life.parse().ok()?,
            machine: (machine != Self::NO).then(|| machine.to_owned()),
        })
    }
}

impl fmt::Display for MayServe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine.as_deref().unwrap_or(Self::NO);
        write!(f, "{}/{machine}", self.life)
    }
}

/// `extraConfig` key of a VM with [`DiskMark`]. Its own key: an older release reads the others as before.
pub const DISK_KEY: &str = "agent-forge.disk";

/// What became of the disks of a VM when it was made ready for a life. It is written in the same change, so it is proof
/// whatever its pool says since. The text is `<life>/new` or `<life>/kept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskMark {
    /// Number of that life.
    pub life: u32,
    /// They stayed. Otherwise a new, empty disk took their place.
    pub kept: bool,
}

impl DiskMark {
    /// Reads the text form back; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (life, word) = text.split_once('/')?;
        let kept = match word {
            "new" => false,
            "kept" => true,
            _ => return None,
        };
        let life = life.parse().ok()?;
        Some(Self { life, kept })
    }
}

impl fmt::Display for DiskMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.kept { "kept" } else { "new" };
        write!(f, "{}/{word}", self.life)
    }
}

/// What a VM has under [`MARKER_KEY`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is this VsphereAgent's.
    Owned(Marker),
    /// It was this VsphereAgent's, and the operator left it to users. It no longer counts as a marker.
    Released(Marker),
}

impl Mark {
    /// The marker, if it still counts.
    #[must_use]
    pub fn read(&self) -> Option<&Marker> {
        match self {
            Self::Owned(marker) => Some(marker),
            Self::Released(_) => None,
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned(marker) => marker.fmt(f),
            Self::Released(marker) => write!(f, "released/{marker}"),
        }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "v1/{}/{}/{}/{}/{}",
            self.cluster_id, self.namespace, self.name, self.uid, self.attempt
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_serve_is_read_as_it_is_written() {
        let machine = Some("0b6-u".to_owned());
        for mark in [MayServe::no(1), MayServe { life: 4, machine }] {
            assert_eq!(MayServe::parse(&mark.to_string()), Some(mark));
        }
        for bad in ["", "1", "1/", "x/no", "/no", "-1/no", "1/a/b", "1/a b"] {
            assert_eq!(MayServe::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_became_of_the_disks_is_read_as_it_is_written() {
        for (life, kept) in [(2, true), (3, false)] {
            let mark = DiskMark { life, kept };
            assert_eq!(DiskMark::parse(&mark.to_string()), Some(mark));
        }
        for bad in ["", "2", "2/", "x/new", "/kept", "2/kept/1", "-1/new"] {
            assert_eq!(DiskMark::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn markers_round_trip_and_nothing_else_parses() {
        let m = Marker {
            cluster_id: "c".into(),
            namespace: "ns".into(),
            name: "vm-a".into(),
            uid: "u".into(),
            attempt: 3,
        };
        assert_eq!(Marker::parse(&m.to_string()), Some(m.clone()));
        for mark in [Mark::Owned(m.clone()), Mark::Released(m)] {
            let text = mark.to_string();
            assert_eq!(Marker::parse(&text).as_ref(), mark.read(), "{text}");
            assert!(text.ends_with("v1/c/ns/vm-a/u/3"), "{text}");
        }
        for bad in [
            "",
            "v1/c/ns/n/u",
            "v1/c/ns/n/u/x",
            "v2/c/ns/n/u/1",
            "v1/c/ns/n//1",
            "v1/c/ns/n/u/1/z",
            "v1/c/kube system/n/u/1",
            "v1/c/NS/n/u/1",
            "v1/c/-ns/n/u/1",
            "v1/c/ns/n;reboot/u/1",
            "v1/c/ns/n/$(u)/1",
            "v1/c\n/ns/n/u/1",
            &format!("v1/c/{}/n/u/1", "n".repeat(64)),
            &format!("v1/c/ns/{}/u/1", "n".repeat(254)),
            &format!("v1/{}/ns/n/u/1", "c".repeat(2000)),
        ] {
            assert_eq!(Marker::parse(bad), None, "{bad}");
        }
    }
}
