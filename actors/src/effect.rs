//! The effect gate: every mutating call, to Kubernetes or to vCenter, is one [`Effect`] with the key of the object it
//! acts for.
//!
//! Guarantees: an adapter performs a mutating request only after [`Gate::admit`] said yes, and reports what came of it
//! through [`Gate::settled`]. A later fault injector, the lease fence and the trace recorder all live behind this one
//! seam. Reads are not effects.

use std::fmt;

use async_trait::async_trait;

/// Which object of ours an effect is for: `namespace/name` of a pool or a VsphereAgent, or the vCenter's name for
/// session effects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectKey(pub String);

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Every kind of mutating call there is. The codes (K01..., V01...) are stable: plans and docs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum EffectKind {
    CreateChild,
    PinSelector,
    AddFinalizer,
    RecordIdentity,
    RecordTask,
    RecordObservation,
    PrepareAgent,
    FenceAgent,
    DeleteAgent,
    DeleteChild,
    RemoveChildFinalizer,
    RemovePoolFinalizer,
    PoolStatus,
    IsoStatus,
    Event,
    Lease,
    ReassignChild,
    HoldSecret,
    ReleaseSecret,
    Login,
    CreateVm,
    AttachTags,
    PowerOn,
    PowerOff,
    Destroy,
    MakeDirectory,
    Upload,
    Publish,
    DeleteFile,
    Reconfigure,
    Logout,
    SessionView,
    CreateFolder,
    EjectIso,
}

impl EffectKind {
    /// All of them.
    pub const ALL: [Self; 34] = [
        Self::CreateChild,
        Self::PinSelector,
        Self::AddFinalizer,
        Self::RecordIdentity,
        Self::RecordTask,
        Self::RecordObservation,
        Self::PrepareAgent,
        Self::FenceAgent,
        Self::DeleteAgent,
        Self::DeleteChild,
        Self::RemoveChildFinalizer,
        Self::RemovePoolFinalizer,
        Self::PoolStatus,
        Self::IsoStatus,
        Self::Event,
        Self::Lease,
        Self::ReassignChild,
        Self::HoldSecret,
        Self::ReleaseSecret,
        Self::Login,
        Self::CreateVm,
        Self::AttachTags,
        Self::PowerOn,
        Self::PowerOff,
        Self::Destroy,
        Self::MakeDirectory,
        Self::Upload,
        Self::Publish,
        Self::DeleteFile,
        Self::Reconfigure,
        Self::Logout,
        Self::SessionView,
        Self::CreateFolder,
        Self::EjectIso,
    ];

    /// Stable code of the effect (`docs/actors.md` lists them).
    #[must_use]
    pub const fn code(self) -> &'static str {
        use EffectKind as E;
        match self {
            E::CreateChild => "K01",
            E::PinSelector => "K02",
            E::AddFinalizer => "K03",
            E::RecordIdentity => "K04",
            E::RecordTask => "K05",
            E::RecordObservation => "K06",
            E::PrepareAgent => "K07",
            E::FenceAgent => "K08",
            E::DeleteAgent => "K09",
            E::DeleteChild => "K10",
            E::RemoveChildFinalizer => "K11",
            E::RemovePoolFinalizer => "K12",
            E::PoolStatus => "K13",
            E::IsoStatus => "K14",
            E::Event => "K15",
            E::Lease => "K16",
            E::ReassignChild => "K17",
            E::HoldSecret => "K18",
            E::ReleaseSecret => "K19",
            E::Login => "V01",
            E::CreateVm => "V02",
            E::AttachTags => "V03",
            E::PowerOn => "V04",
            E::PowerOff => "V05",
            E::Destroy => "V06",
            E::MakeDirectory => "V07",
            E::Upload => "V08",
            E::Publish => "V09",
            E::DeleteFile => "V10",
            E::Reconfigure => "V11",
            E::Logout => "V12",
            E::SessionView => "V13",
            E::CreateFolder => "V14",
            E::EjectIso => "V15",
        }
    }

    /// Operation name, used as a metric label and in spans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        use EffectKind as E;
        match self {
            E::CreateChild => "create_child",
            E::PinSelector => "pin_selector",
            E::AddFinalizer => "add_finalizer",
            E::RecordIdentity => "record_identity",
            E::RecordTask => "record_task",
            E::RecordObservation => "record_observation",
            E::PrepareAgent => "prepare_agent",
            E::FenceAgent => "fence_agent",
            E::DeleteAgent => "delete_agent",
            E::DeleteChild => "delete_child",
            E::RemoveChildFinalizer => "remove_child_finalizer",
            E::RemovePoolFinalizer => "remove_pool_finalizer",
            E::PoolStatus => "pool_status",
            E::IsoStatus => "iso_status",
            E::Event => "event",
            E::Lease => "lease",
            E::ReassignChild => "reassign_child",
            E::HoldSecret => "hold_secret",
            E::ReleaseSecret => "release_secret",
            E::Login => "login",
            E::CreateVm => "create",
            E::AttachTags => "attach_tags",
            E::PowerOn => "power_on",
            E::PowerOff => "power_off",
            E::Destroy => "destroy",
            E::MakeDirectory => "make_directory",
            E::Upload => "upload",
            E::Publish => "publish",
            E::DeleteFile => "delete_file",
            E::Reconfigure => "reconfigure",
            E::Logout => "logout",
            E::SessionView => "session_view",
            E::CreateFolder => "create_folder",
            E::EjectIso => "eject_iso",
        }
    }
}

/// One mutating call: what it is and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Effect {
    /// What is done.
    pub kind: EffectKind,
    /// For which object.
    pub key: EffectKey,
}

impl Effect {
    /// An effect of `kind` for `key`.
    pub fn new(kind: EffectKind, key: impl fmt::Display) -> Self {
        Self {
            kind,
            key: EffectKey(key.to_string()),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} ({})",
            self.kind.code(),
            self.kind.name(),
            self.key
        )
    }
}

/// How an admitted effect ended, as far as the caller can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was carried out, or had already been.
    Done,
    /// It was refused: it did not happen.
    Refused,
    /// The reply was lost or never came: it may or may not have happened.
    Unknown,
}

/// Why the gate did not let an effect through. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{effect} was held back: {reason}")]
pub struct Held {
    /// The effect in question.
    pub effect: Effect,
    /// Who says so and why, in a sentence.
    pub reason: String,
}

/// The one seam that all mutating calls pass.
#[async_trait]
pub trait Gate: Send + Sync {
    /// May this effect run now?
    ///
    /// # Errors
    /// [`Held`] says why not; the caller must not send the request.
    async fn admit(&self, effect: &Effect) -> Result<(), Held>;

    /// Reports the end of an admitted effect.
    fn settled(&self, effect: &Effect, outcome: Settled);
}
