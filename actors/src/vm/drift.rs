//! What follows when the pool wants other hardware than a VM was made with. Pure.
//!
//! Rules:
//! - A VM that does not exist yet is made with the new template, under another identity.
//! - A VM that exists and that no Machine can have is replaced: no Agent has registered, or its validations fail.
//! - Any other VM stays as it is. No VM is ever reconfigured, and hardware that somebody changed in vCenter is only reported.

/// How far the Agent of a VM is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// None has registered.
    Unregistered,
    /// Its validations have failed for so long that the status reports it: no Machine can claim it.
    Failing,
    /// A Machine can claim it, or soon can, or it is unclear which Agent is the VM's.
    Other,
}

/// What decides whether a VM is replaced because its template changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The pool wants other hardware than the VM was made with, and both are known.
    pub changed: bool,
    /// An Agent that runs there, or may, serves a Machine or is about to, or did.
    pub serves: bool,
    /// Its guest may be a node whose Agent is missing.
    pub may_be_node: bool,
    /// Its pool or a person leaves it to people.
    pub is_kept: bool,
    /// How far its Agent is.
    pub progress: Progress,
}

impl Outdated {
    /// Whether the VM is replaced.
    #[must_use]
    pub fn is_replaced(self) -> bool {
        let stays = self.serves || self.may_be_node || self.is_kept;
        self.changed && !stays && self.progress != Progress::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with;

    #[test]
    fn only_a_vm_that_no_machine_can_have_is_replaced() {
        let outdated = |progress| Outdated {
            changed: true,
            serves: false,
            may_be_node: false,
            is_kept: false,
            progress,
        };
        let keeps: [fn(&mut Outdated); 4] = [
            |o| o.changed = false,
            |o| o.serves = true,
            |o| o.may_be_node = true,
            |o| o.is_kept = true,
        ];
        for (progress, replaced) in [
            (Progress::Unregistered, true),
            (Progress::Failing, true),
            (Progress::Other, false),
        ] {
            assert_eq!(outdated(progress).is_replaced(), replaced, "{progress:?}");
            for keep in keeps {
                let kept = with(outdated(progress), keep);
                assert!(!kept.is_replaced(), "{kept:?}");
            }
        }
    }
}
