//! A VM's notes in vCenter. They name the VM's owner in the format that the predecessor writes and reads from 1.1.0 on.
//!
//! They are not our ownership marker: users can edit them, and a clone has them too. They prove a record of the predecessor.
//! The operator also writes them to its own VMs, so that the predecessor finds these VMs after a rollback to it.

/// What the notes begin with; the uid of the VsphereAgent follows, and nothing else.
const PREFIX: &str = "agent-forge.containeroo.ch/vsphere-agent-uid=";
/// Longest uid that is read.
const LONGEST: usize = 64;

/// What a VM's notes say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Notes {
    /// Nothing.
    #[default]
    Empty,
    /// It belongs to the VsphereAgent with this uid.
    OfAgent(String),
    /// A text of a user or of another program.
    Other,
}

impl Notes {
    /// Reads them.
    #[must_use]
    pub fn read(text: &str) -> Self {
        if text.is_empty() {
            return Self::Empty;
        }
        let uid = text.strip_prefix(PREFIX);
        let is_uid = |uid: &&str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !uid.is_empty() && uid.len() <= LONGEST && uid.chars().all(fits)
        };
        uid.filter(is_uid)
            .map_or(Self::Other, |uid| Self::OfAgent(uid.to_owned()))
    }

    /// The text for a VM of the VsphereAgent with this uid.
    #[must_use]
    pub fn text(uid: &str) -> String {
        format!("{PREFIX}{uid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exactly_that_text_names_an_owner() {
        let uid = "0c1dbb4e-0f2b-4f0c-9d6e-3f5a5e1f7b10";
        let of = Notes::read;
        assert_eq!(of(&Notes::text(uid)), Notes::OfAgent(uid.to_owned()));
        assert_eq!(of(""), Notes::Empty);
        for other in [
            "ask Ann before you touch it".to_owned(),
            Notes::text(""),
            Notes::text("a b"),
            format!(" {}", Notes::text(uid)),
            format!("{}\n", Notes::text(uid)),
            Notes::text(&"a".repeat(65)),
        ] {
            assert_eq!(of(&other), Notes::Other, "{other:?}");
        }
    }
}
