//! Why a password rests, and for how long. [`super::refusals`] has the rule.

use std::time::Duration;

use jiff::Timestamp;

/// How long a refusal counts.
pub const LOCKOUT: Duration = Duration::from_secs(600);
/// How many refusals of one account may count at a time.
pub const MOST: usize = 2;

/// Where a password is sent to. vCenter may refuse it at one door while a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The login that opens a session.
    Session,
    /// The login of the Automation API.
    Automation,
    /// `/folder`, if it does not accept the session.
    Folder,
}

impl Door {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "the login",
            Self::Automation => "the Automation API",
            Self::Folder => "/folder",
        }
    }
}

/// Why a password is not sent now, and when the next try may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// These bytes were refused.
    Refused {
        /// When the same bytes may be tried again.
        again: Timestamp,
        /// When other bytes may be tried, if not at once.
        others: Option<Timestamp>,
    },
    /// [`MOST`] other passwords of the account were refused.
    Limited {
        /// When these bytes may be tried.
        again: Timestamp,
    },
}
