//! What a pool observes of its vCenter, and what its ISO is made from.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    conditions::{self, Reason, find_condition},
    external::infra_env::InfraEnv,
    pool::{RefusedCredentials, VsphereAgentPool},
};

use super::observed::Observed;
use crate::{
    context::Context,
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
    },
    iso::{
        content,
        msg::IsoWant,
        of_pool::{self, NoSource, kept},
    },
    placement::request,
    sessions::{secret_ref, users},
};

/// How long a pass waits for a login, and for a sign that vCenter answers. The login itself continues.
pub(super) const SESSION_PATIENCE: Duration = Duration::from_secs(5);

/// vCenter as a pass finds it.
#[derive(Clone, Debug, Default)]
pub struct VcenterObserved {
    /// What is wrong with vCenter or its credentials.
    pub failure: Option<ReconcileError>,
    /// `status.refusedCredentials` as it should be.
    pub refused: Option<RefusedCredentials>,
    /// The certificate is not checked.
    pub insecure: bool,
    /// The server, if the credentials give access to it.
    pub server: Option<String>,
    /// The VMs of the pool that wait for a task slot, in words.
    pub queued: Option<String>,
    /// What the ISO is made from. `None`: the spec names no usable Secret or hardware.
    pub iso: Option<IsoFacts>,
}

/// The facts for the plan of the ISO.
#[derive(Clone, Debug)]
pub struct IsoFacts {
    /// What to ask the cache for, or why there is nothing to ask.
    pub want: Result<IsoWant, NoSource>,
    /// The InfraEnv that it is made from.
    pub infra_env: Option<Arc<InfraEnv>>,
    /// What has been put into it.
    pub image: Option<content::ImageContent>,
    /// Old versions that retention removes.
    pub old: Vec<DatastorePath>,
    /// The VsphereAgent whose VM may be about to get an ISO into its drive, while vCenter does not show that yet.
    pub making: Option<ObjectKey>,
    /// All that may use a file of the cache. Filled only if there are old versions.
    pub users: Vec<users::User>,
}

/// What a pool actor remembers of the facts for its ISO.
#[derive(Default)]
pub struct IsoMemory {
    /// The image service's certificates, as they were read last.
    pub ca: Option<of_pool::ca::CaRead>,
    /// The InfraEnv, if the API server has a newer one than the watch shows.
    pub infra_env: of_pool::fresh::LiveInfraEnv,
    /// What its present ISO has in it, as it was first seen with that ISO.
    pub image: Option<content::ImageContent>,
}

/// Observes vCenter: whether the credentials open it, and whether it answers.
pub async fn observe_vcenter(
    context: &Context,
    s: &Observed,
    memory: &mut IsoMemory,
) -> VcenterObserved {
    let status = s.pool.status.as_ref();
    let mut seen = VcenterObserved {
        refused: status.and_then(|st| st.refused_credentials.clone()),
        ..VcenterObserved::default()
    };
    let found =
        request::hardware(&s.pool).and_then(|_| secret_ref::secret(&s.pool, &s.secret_namespaces));
    let secret = match found {
        Ok(secret) => secret,
        Err(failure) => {
            seen.failure = Some(failure);
            return seen;
        }
    };
    seen.iso = Some(iso_facts(context, s, &secret, memory).await);
    let asked = context.sessions.session(&secret, &s.key.namespace);
    let asked = tokio::time::timeout(SESSION_PATIENCE, asked).await;
    let session = match asked.unwrap_or_else(|_| Err(no_answer_yet(s))) {
        Ok(session) => session,
        Err(failure) => {
            if failure.reason == Reason::InvalidCredentials {
                let refused = context.sessions.refusal(&secret).await;
                seen.refused = refused.or(seen.refused);
            }
            seen.failure = Some(failure);
            return seen;
        }
    };
    seen.refused = None;
    seen.insecure = session.insecure();
    let server = session.server();
    seen.server = Some(server.to_owned());
    let line = session.slots().line(&s.key);
    seen.queued = line.map(|(count, cap)| {
        format!(
            "VMs that wait to be created: {count}; vCenter {server} {cap}, and others are ahead"
        )
    });
    // Even if no VM needs vCenter now, the status shows an outage.
    let answered = tokio::time::timeout(SESSION_PATIENCE, session.reachable()).await;
    seen.failure = match answered {
        Ok(answered) => answered.err().map(ReconcileError::from),
        Err(_) => Some(no_answer_yet(s)),
    };
    seen
}

/// Retention uses the pool as the cache shows it, because VM actors take their ISO from there. The VsphereAgents are
/// read before the pool: a later one takes its ISO from a pool that is at least as new.
async fn iso_facts(
    context: &Context,
    s: &Observed,
    secret: &ObjectKey,
    memory: &mut IsoMemory,
) -> IsoFacts {
    let view = context.view.as_ref();
    let others: Vec<Arc<VsphereAgentPool>> = view
        .pools()
        .into_iter()
        .filter(|p| ObjectKey::of(p.as_ref()) != s.key && s.grants.lacking_home(p).is_none())
        .collect();
    let (cluster, now) = (context.cluster.as_ref(), context.clock.monotonic());
    let (shown, known) = (s.infra_env.as_ref(), &mut memory.infra_env);
    let infra_env = of_pool::fresh::infra_env(cluster, now, view.history(), shown, known).await;
    memory.image = match infra_env.as_deref() {
        Some(infra_env) => content::read(cluster, infra_env, memory.image.take()).await,
        None => None,
    };
    let mut facts = IsoFacts {
        image: memory.image.clone(),
        want: of_pool::want(&s.pool, &others, infra_env.as_deref(), secret),
        infra_env,
        old: Vec::new(),
        making: None,
        users: Vec::new(),
    };
    let Ok(want) = &mut facts.want else {
        return facts;
    };
    let children = view.all_children();
    let making = children.iter().find(|c| of_pool::look::is_in_the_making(c));
    facts.making = making.map(|c| ObjectKey::of(c.as_ref()));
    let shown = view.pool(&s.key);
    facts.old = shown.map_or_else(Vec::new, |shown| kept::prunable(&shown, &others, s.wall));
    // A pool that is left out may use a file.
    if !view.all_over_bound().is_empty() {
        facts.old.clear();
    }
    if !facts.old.is_empty() {
        facts.users = users::all(view, &s.secret_namespaces);
    }
    want.ca_pem = of_pool::ca::bundle(cluster, now, &s.pool, &mut memory.ca).await;
    want.look_within = of_pool::look::within(&s.children);
    facts
}

/// The login continues. Until it ends, the condition keeps the earlier failure.
fn no_answer_yet(s: &Observed) -> ReconcileError {
    let conditions = s.pool.status.as_ref().map(|st| st.conditions.as_slice());
    let known = find_condition(conditions.unwrap_or_default(), conditions::VSPHERE_READY)
        .filter(|c| c.status == "False");
    match known {
        Some(c) => ReconcileError::transient(
            ErrorSource::Vsphere,
            c.reason.as_str().into(),
            c.message.clone(),
        ),
        None => ReconcileError::transient(
            ErrorSource::Vsphere,
            Reason::VcenterNoAnswer,
            "vCenter has not answered yet",
        ),
    }
}
