//! The systems that the built-in payload is for.

/// A system, with all its minor releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// How `PRETTY_NAME` of `/etc/os-release` begins.
    pub name: &'static str,
    /// How it ends, or empty.
    pub end: &'static str,
    /// Whether a real host of this system has joined a cluster with the payload. Others are expected to work.
    pub tried: bool,
}

/// All of them, each for amd64 and arm64. The page `docs/how-to/byoh-installer.md` repeats the table.
pub const SYSTEMS: &[System] = &[
    untried("Ubuntu 20.04", " LTS"),
    untried("Ubuntu 22.04", " LTS"),
    untried("Ubuntu 24.04", " LTS"),
    untried("Red Hat Enterprise Linux 9", ""),
    untried("Rocky Linux 9", ""),
    untried("AlmaLinux 9", ""),
];

const fn untried(name: &'static str, end: &'static str) -> System {
    System {
        name,
        end,
        tried: false,
    }
}

/// Whether the table has that system. `name` is Go's name of it.
pub(super) fn is_known(name: &str, image: &str) -> bool {
    name == "linux"
        && SYSTEMS.iter().any(|system| {
            // `Ubuntu 22.04.1 LTS`, `Rocky Linux 9.4 (Blue Onyx)`: another release would go on with a digit.
            let minor = image.strip_prefix(system.name);
            minor.is_some_and(|rest| {
                (rest.is_empty() || rest.starts_with(['.', ' '])) && rest.ends_with(system.end)
            })
        })
}
