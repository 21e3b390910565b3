//! Where user and password are sent although a session lives: the login of the Automation API, `/folder` where it does not
//! take the session. vCenter may refuse them there, as after a change of the password, while the session serves on.
//!
//! Guarantee: bytes that were refused at such a door are not sent there again for [`LOCKOUT`], whoever asks and whatever
//! becomes of the session: wrong passwords lock accounts.

use std::sync::{Mutex, PoisonError};

use agent_forge_actors::{
    ports::vcenter::{Credentials, Fault, VcError, VcErrorKind, VcResult},
    vcenter::refusals::LOCKOUT,
};
use tokio::time::Instant;

use super::http::server_name;

/// One such door, for one user.
#[derive(Debug)]
pub(super) struct PasswordDoor {
    /// What people are told of a refusal: server, user, door.
    refusal: String,
    refused: Mutex<Option<(Instant, VcError)>>,
    flight: tokio::sync::Mutex<()>,
}

impl PasswordDoor {
    /// The door called `name`, for these credentials.
    pub(super) fn new(credentials: &Credentials, name: &str) -> Self {
        let refusal = format!(
            "{} refuses user {:?} with the password in the credentials Secret at {name}; these bytes are tried there again \
             in {} minutes",
            server_name(&credentials.server),
            credentials.username,
            LOCKOUT.as_secs() / 60
        );
        Self {
            refusal,
            refused: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
        }
    }

    /// Makes `attempt`, which sends the password: one at a time, and not while a refusal rests.
    ///
    /// # Errors
    /// Those of `attempt`; `InvalidLogin` when the password is refused, or was lately and nothing was sent.
    pub(super) async fn try_at<T>(
        &self,
        attempt: impl Future<Output = VcResult<T>>,
    ) -> VcResult<T> {
        let _flight = self.flight.lock().await;
        if let Some(error) = self.resting() {
            return Err(error);
        }
        self.judged(attempt.await)
    }

    /// How something ended that the password was sent with: a refusal is named as one, and remembered.
    pub(super) fn judged<T>(&self, end: VcResult<T>) -> VcResult<T> {
        match end {
            Err(e) if matches!(e.fault(), Some(Fault::NotAuthenticated)) => {
                let refused = VcError {
                    kind: VcErrorKind::Fault(Fault::InvalidLogin),
                    message: self.refusal.clone(),
                    ..e
                };
                *self.memory() = Some((Instant::now(), refused.clone()));
                Err(refused)
            }
            other => other,
        }
    }

    /// The refusal that is not older than [`LOCKOUT`].
    fn resting(&self) -> Option<VcError> {
        let refused = self.memory();
        let (at, error) = refused.as_ref()?;
        (at.elapsed() < LOCKOUT).then(|| error.clone())
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Option<(Instant, VcError)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use agent_forge_actors::ports::vcenter::Trust;
    use agent_forge_crds::conditions::reason;

    use super::*;

    fn door() -> PasswordDoor {
        let credentials = Credentials {
            server: url::Url::parse("https://vc.example:8443/").expect("url"),
            username: "user".to_owned(),
            password: "canary".to_owned().into(),
            trust: Trust::System,
        };
        PasswordDoor::new(&credentials, "the back")
    }

    fn failed(kind: VcErrorKind) -> VcError {
        VcError {
            kind,
            operation: "CreateSession",
            subject: "it".to_owned(),
            message: "no".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_names_server_and_user_and_rests_ten_minutes() {
        let (door, knocks) = (door(), Cell::new(0));
        let knock = async || {
            let attempt = async {
                knocks.set(knocks.get() + 1);
                Err::<(), _>(failed(VcErrorKind::Fault(Fault::NotAuthenticated)))
            };
            door.try_at(attempt).await.expect_err("refused")
        };
        let told = knock().await;
        assert_eq!(told.fault(), Some(&Fault::InvalidLogin));
        assert_eq!(told.reason(), reason::INVALID_CREDENTIALS);
        for part in ["vc.example:8443", "\"user\"", "the back", "10 minutes"] {
            assert!(told.message.contains(part), "{part}: {told}");
        }
        assert!(!told.to_string().contains("canary"));
        tokio::time::advance(LOCKOUT - Duration::from_secs(1)).await;
        assert_eq!(knock().await, told);
        assert_eq!(knocks.get(), 1, "nothing was sent");
        tokio::time::advance(Duration::from_secs(1)).await;
        knock().await;
        assert_eq!(knocks.get(), 2);
        knock().await;
        assert_eq!(knocks.get(), 2, "refused anew, it rests anew");
    }

    #[tokio::test]
    async fn many_who_come_at_once_are_one_refusal() {
        let (door, knocks) = (&door(), &Cell::new(0));
        let knock = |_| {
            door.try_at(async move {
                knocks.set(knocks.get() + 1);
                tokio::task::yield_now().await;
                Err::<(), _>(failed(VcErrorKind::Fault(Fault::NotAuthenticated)))
            })
        };
        let ends = futures::future::join_all((0..5).map(knock)).await;
        assert!(ends.iter().all(Result::is_err));
        assert_eq!(knocks.get(), 1);
    }

    #[tokio::test]
    async fn what_is_no_refusal_is_passed_on_and_forgotten() {
        let door = door();
        for kind in [VcErrorKind::NoAnswer, VcErrorKind::Status(503)] {
            let failure = failed(kind);
            let end = door.try_at(async { Err::<(), _>(failure.clone()) }).await;
            assert_eq!(end, Err(failure));
        }
        assert_eq!(door.try_at(async { Ok(7) }).await, Ok(7));
    }
}
