//! A digest of several parts. Pure.

use sha2::{Digest as _, Sha256};

/// SHA-256 of these parts. Their lengths count too, so that `ab, c` differs from `a, bc`.
#[must_use]
pub fn of(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
