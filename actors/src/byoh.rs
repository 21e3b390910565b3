//! The installer for hosts that others bring (BYOH): what such a host runs.

pub mod scripts;
