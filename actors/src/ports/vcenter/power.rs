//! Whether a VM runs.

/// Power state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// `poweredOn`
    On,
    /// `poweredOff`
    Off,
    /// `suspended`
    Suspended,
}

impl PowerState {
    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "poweredOn",
            Self::Off => "poweredOff",
            Self::Suspended => "suspended",
        }
    }
}
