//! One trace per machine. The ids follow from the machine's identity, so that every process computes the same ones.
//!
//! Guarantee: equal inputs give equal ids, in every process and release (the tests pin values). The ids are hashes of the
//! uid: samplers expect random bits in an id, and the bits of a UUID are not random.

use std::fmt;

use super::digest;

/// Trace of one machine, from its AgentMachine's uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub [u8; 16]);

/// One span of known identity within a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub [u8; 8]);

/// The beginning of a digest.
fn begin<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let all = digest::of(parts);
    std::array::from_fn(|i| all.get(i).copied().unwrap_or_default())
}

impl TraceId {
    /// The trace of the machine whose AgentMachine has that uid.
    #[must_use]
    pub fn of_machine(uid: &str) -> Self {
        Self(begin(&[b"agent-forge machine", uid.as_bytes()]))
    }

    /// Reads an id as it is printed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text).ok()?.try_into().ok().map(Self)
    }

    /// The span of that phase of the machine, in its `attempt`-th VM.
    #[must_use]
    pub fn phase(&self, phase: &str, attempt: u32) -> SpanId {
        SpanId(begin(&[&self.0, phase.as_bytes(), &attempt.to_be_bytes()]))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_in_every_release() {
        let trace = TraceId::of_machine("7c2f8f5e-6c0f-4f0a-9a53-0f9d4ad7f0a1");
        assert_eq!(trace.to_string(), "98744f92c8a4463eb1500dd1e087aa09");
        assert_eq!(trace.phase("vm.create", 1).to_string(), "186e9acbeaf8f2a6");
    }

    #[test]
    fn machine_phase_and_attempt_all_count() {
        let a = TraceId::of_machine("a");
        assert_ne!(a, TraceId::of_machine("b"));
        assert_ne!(a.phase("vm.create", 1), a.phase("vm.create", 2));
        assert_ne!(a.phase("vm.create", 1), a.phase("vm.destroy", 1));
    }
}
