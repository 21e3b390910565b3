//! What is read live for one operation, and the permit that follows from it.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{agent::VsphereAgent, conditions::Reason, external::agent::Agent};
use kube::ResourceExt;

use super::{
    case::Case,
    live::{Live, LiveView},
    pausing::Pausing,
};
use crate::{
    context::Context,
    domain::{
        failure::{self, ErrorSource, ReconcileError},
        managed_vm::ManagedVm,
        names::{MoRef, ObjectKey},
    },
    ports::{
        cluster::Precondition,
        effect::{Effect, EffectKind, Subject},
        permit::Permit,
        vcenter::{VCenter, VmAt, VmObservation},
    },
    runtime::holds,
};

/// How old a look at the VM may be when it is switched on, or gets its boot order. These follow a create within seconds.
const FRESH: Duration = Duration::from_secs(10);

/// What an operation may do to a host, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Begins,
    Interrupts,
    Removes,
    Ends,
}

/// The class of an operation. `None`: it can harm no host, and needs no permit.
const fn class(kind: EffectKind) -> Option<Class> {
    use EffectKind as E;
    match kind {
        E::PowerOn
        | E::Reconfigure
        | E::EjectIso
        | E::DeleteChild
        | E::ReassignChild
        | E::PrepareAgent
        | E::RemoveChildFinalizer => Some(Class::Begins),
        E::Reset => Some(Class::Interrupts),
        E::DeleteAgent => Some(Class::Removes),
        E::PowerOff | E::Renew | E::Destroy => Some(Class::Ends),
        _ => None,
    }
}

impl Case<'_> {
    /// Reads live what an operation of that kind needs. `None`: the VsphereAgent is gone, or is another one by now.
    ///
    /// # Errors
    /// A read failed, or what was read forbids the operation. The reason says which Agent serves, or can be chosen.
    pub async fn read(&self, kind: EffectKind) -> Result<Option<Proof>, ReconcileError> {
        let class = class(kind).ok_or_else(|| no_class(kind))?;
        let key = &self.child.key;
        let child = self.context.cluster.live_child(key).await?;
        let same = |c: &VsphereAgent| c.uid().as_ref() == Some(&self.child.uid);
        let Some(child) = child.filter(same) else {
            return Ok(None);
        };
        let child = ManagedVm::read(Arc::new(child));
        let waived = child.forced && class > Class::Interrupts;
        let live = if class == Class::Begins || waived {
            Live::default()
        } else {
            Live::read(self).await?
        };
        if !waived && class >= Class::Removes {
            self.serves_nobody(&live)?;
        }
        if !waived && class == Class::Ends {
            self.is_chosen_by_nobody(&live)?;
        }
        let view = LiveView {
            cached: self.context.view.clone(),
            pausing: self.pausing(&child).await?,
            live,
            child: Some(child.object.clone()),
        };
        Ok(Some(Proof {
            kind,
            child,
            context: Context {
                view: Arc::new(view),
                ..self.context.clone()
            },
        }))
    }

    /// As [`Self::read`], where a VsphereAgent that is gone is a failure.
    ///
    /// # Errors
    /// As [`Self::read`], or it is gone.
    pub async fn read_or_fail(&self, kind: EffectKind) -> Result<Proof, ReconcileError> {
        self.read(kind).await?.ok_or_else(|| {
            ReconcileError::transient(
                ErrorSource::Kubernetes,
                Reason::Conflict,
                format!(
                    "VsphereAgent {} is gone, or is another one by now",
                    self.child.key
                ),
            )
        })
    }

    /// The permit for a VM that was looked at a moment ago, without another look: it is being made, and the next call of an
    /// operation that begins something follows at once. `age`: of the look. `None`: that is not enough.
    #[must_use]
    pub fn at_once(
        &self,
        kind: EffectKind,
        shown: &VmObservation,
        age: Option<Duration>,
    ) -> Option<Permit<VmAt>> {
        let fresh = age.is_some_and(|age| age <= FRESH);
        let begins = class(kind) == Some(Class::Begins);
        (fresh && begins).then(|| Permit::issue(self.effect(kind), VmAt::of(shown)))
    }

    /// What can pause the VM above its VsphereAgent. A forced deletion asks the pool alone.
    async fn pausing(&self, child: &ManagedVm) -> Result<Pausing, ReconcileError> {
        let key = &child.pool;
        let (view, cluster) = (self.context.view.as_ref(), self.context.cluster.as_ref());
        if child.forced {
            return Ok(Pausing::read_pool(cluster, key).await?);
        }
        let read = Pausing::read(view, cluster, key, self.control_plane).await?;
        Ok(read.with_maker(cluster, child).await?)
    }

    fn effect(&self, kind: EffectKind) -> Effect {
        Effect::new(kind, Subject::vm(&self.child.object))
    }
}

/// What was read live for one operation. Only the guard makes one.
pub struct Proof {
    kind: EffectKind,
    child: ManagedVm,
    context: Context,
}

impl Proof {
    /// The VsphereAgent as it was read.
    #[must_use]
    pub const fn child(&self) -> &Arc<VsphereAgent> {
        &self.child.object
    }

    /// The ports, with what was read instead of what the caches show.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// That Agent, read now.
    ///
    /// # Errors
    /// The read failed.
    pub async fn agent(&self, key: &ObjectKey) -> Result<Option<Agent>, ReconcileError> {
        Ok(self.context.cluster.live_agent(key).await?)
    }

    /// The permit for a call on an object, as it was when the decision was made.
    ///
    /// # Errors
    /// People hold it back.
    pub fn permit_at<K: ResourceExt>(
        &self,
        object: &K,
    ) -> Result<Permit<Precondition>, ReconcileError> {
        self.permit(Precondition::of(object))
    }

    /// Looks at the VM. `None`: vCenter does not know that reference.
    ///
    /// # Errors
    /// vCenter does not answer.
    pub async fn look(
        &self,
        session: &dyn VCenter,
        vm: &MoRef,
    ) -> Result<Option<Sight<'_>>, ReconcileError> {
        let shown = session.observe(vm).await?;
        Ok(shown.map(|shown| Sight { proof: self, shown }))
    }

    fn permit<Of>(&self, of: Of) -> Result<Permit<Of>, ReconcileError> {
        let (kind, now) = (self.kind, self.context.clock.wall());
        let holds = holds::of_vm(self.context.view.as_ref(), &self.child);
        match holds::who_holds(kind, &holds, now) {
            Some(hold) => Err(ReconcileError::transient(
                ErrorSource::Upstream,
                hold.reason,
                format!("{} waits: {}", kind.name(), hold.why),
            )),
            None => Ok(Permit::issue(
                Effect::new(kind, Subject::vm(&self.child.object)),
                of,
            )),
        }
    }
}

/// A VM as it was just seen, after all else was read. Nothing may be awaited between this and the call.
pub struct Sight<'a> {
    proof: &'a Proof,
    /// What vCenter showed.
    pub shown: VmObservation,
}

impl Sight<'_> {
    /// The permit for a call on that VM.
    ///
    /// # Errors
    /// People hold it back.
    pub fn permit(&self) -> Result<Permit<VmAt>, ReconcileError> {
        self.proof.permit(VmAt::of(&self.shown))
    }
}

/// The permit for a call that can harm no host.
///
/// # Errors
/// It can: what decides about it is to be read first.
pub fn harmless<Of>(effect: Effect, of: Of) -> Result<Permit<Of>, ReconcileError> {
    match class(effect.kind) {
        None => Ok(Permit::issue(effect, of)),
        Some(_) => Err(defect(format!("{} needs a proof", effect.kind.name()))),
    }
}

fn no_class(kind: EffectKind) -> ReconcileError {
    defect(format!("{} needs no proof", kind.name()))
}

fn defect(message: String) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Kubernetes,
        reason: Reason::InternalError,
        message,
        class: failure::Class::Defect,
    }
}
