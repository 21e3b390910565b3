//! etcd, from a crate that contains the program.

use std::path::PathBuf;

use anyhow::{Result, anyhow};

/// Path of the etcd program.
///
/// # Errors
/// The crate has no etcd for this operating system and processor.
pub fn etcd() -> Result<PathBuf> {
    if let Some(path) = super::kubernetes::asset("etcd")? {
        return Ok(path);
    }
    etcd_bin_vendored::etcd_bin_path().map(PathBuf::from).map_err(|error| {
        anyhow!("{error}; set KUBEBUILDER_ASSETS to a directory that holds etcd, kube-apiserver and kubectl")
    })
}
