//! What the users of a vCenter see: who is asked, and which VMs carry a mark.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::conditions::Reason;

use crate::{
    context::Context,
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{MoRef, ObjectKey},
    },
    ports::vcenter::{MarkedVm, VCenter},
    runtime::shell::Verdict,
    sessions::users,
};

/// The most marked VMs of one vCenter that the scan lists and judges, over all its Secrets together. All clusters of a
/// vCenter together have fewer.
pub const MOST_MARKED: usize = 20_000;

/// The users of one vCenter, and the namespaces whose pools or records name them. Each user may see other folders.
#[derive(Default)]
pub(super) struct Users {
    pub(super) sessions: Vec<Arc<dyn VCenter>>,
    pub(super) namespaces: BTreeSet<String>,
}

/// Sessions of all credentials that pools or records name, by vCenter. Notes in `missing` which Secrets do not exist.
pub(super) async fn sessions(
    context: &Context,
    within: Duration,
    missing: &mut Vec<(ObjectKey, String)>,
    verdict: &mut Verdict,
) -> BTreeMap<String, Users> {
    let named = users::all(context.view.as_ref(), &context.settings.secret_namespaces).into_iter();
    let asked = named.map(|user| async move {
        let (secret, namespace) = (user.secret, user.namespace);
        let asked = context.sessions.session(&secret, &namespace);
        let session = tokio::time::timeout(within, asked).await;
        let session = session.unwrap_or_else(|_| Err(unending(&secret.to_string(), within)));
        (secret, namespace, session)
    });
    let mut found: BTreeMap<String, Users> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (secret, namespace, session) in futures::future::join_all(asked).await {
        match session {
            Ok(session) => {
                let users = found.entry(session.server().to_owned()).or_default();
                users.namespaces.insert(namespace);
                if seen.insert(secret) {
                    users.sessions.push(session);
                }
            }
            Err(trouble) => {
                if is_of_missing(&trouble) {
                    missing.push((secret, namespace));
                }
                verdict.waiting_on.push((trouble.reason, trouble.message));
            }
        }
    }
    found
}

/// All VMs with a marker, with the users that see them.
pub(super) struct Marked {
    pub(super) vms: Vec<MarkedVm>,
    seen_by: BTreeMap<MoRef, Vec<Arc<dyn VCenter>>>,
}

impl Marked {
    pub(super) async fn list(users: &[Arc<dyn VCenter>]) -> Result<Self, ReconcileError> {
        let mut all = Self {
            vms: Vec::new(),
            seen_by: BTreeMap::new(),
        };
        for user in users {
            let survey = user.survey().await?;
            let listed = &survey.marked;
            if all.vms.len() + listed.len() > MOST_MARKED {
                let server = user.server();
                let message = format!(
                    "{server} shows more than {MOST_MARKED} VMs with our mark to the Secrets that lead there; no orphan is \
                     looked for on it"
                );
                let reason = Reason::VcenterReplyUnusable;
                return Err(ReconcileError::blocked(
                    ErrorSource::Vsphere,
                    reason,
                    message,
                ));
            }
            for vm in listed {
                let seen_by = all.seen_by.entry(vm.moref.clone()).or_default();
                if seen_by.is_empty() {
                    all.vms.push(vm.clone());
                }
                seen_by.push(user.clone());
            }
        }
        Ok(all)
    }

    pub(super) fn users(&self, vm: &MoRef) -> &[Arc<dyn VCenter>] {
        self.seen_by.get(vm).map_or(&[], Vec::as_slice)
    }
}

/// The Secret is missing. One of another namespace that is missing admits nobody.
pub(super) fn is_of_missing(trouble: &ReconcileError) -> bool {
    matches!(
        trouble.reason,
        Reason::SecretNotFound | Reason::SecretNamespaceRefused
    )
}

pub(super) fn unending(server: &str, within: Duration) -> ReconcileError {
    let message = format!(
        "{server}: the scan for VMs that are nobody's did not end within {} s",
        within.as_secs()
    );
    ReconcileError::transient(ErrorSource::Vsphere, Reason::VcenterUnreachable, message)
}
