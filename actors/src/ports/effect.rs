//! The effect gate: every mutating call, to Kubernetes or to vCenter, is one [`Effect`] with the key of the object it is
//! for.
//!
//! Guarantees: an adapter sends a mutating request only after [`Gate::admit`] allowed it. It reports the result through
//! [`Gate::settled`]. The fault injector, the lease fence and the trace recorder all use this one interface. Reads are not
//! effects.

use std::fmt;

use async_trait::async_trait;

/// The object that an effect is for: `namespace/name` of a pool or a VsphereAgent, or the vCenter's name for effects on
/// sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectKey(pub String);

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! effects {
    ($($kind:ident $code:literal $name:literal;)*) => {
        /// Every kind of mutating call there is. The codes (K01..., V01...) are stable: hashes of traces contain them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum EffectKind {
            $($kind,)*
        }

        impl EffectKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Stable code of the effect (`docs/explanation/actors.md` lists them).
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$kind => $code,)*
                }
            }

            /// Operation name, used as a metric label and in spans.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

effects! {
    CreateChild "K01" "create_child";
    PinSelector "K02" "pin_selector";
    AddFinalizer "K03" "add_finalizer";
    RecordIdentity "K04" "record_identity";
    RecordTask "K05" "record_task";
    RecordObservation "K06" "record_observation";
    PrepareAgent "K07" "prepare_agent";
    FenceAgent "K08" "fence_agent";
    DeleteAgent "K09" "delete_agent";
    DeleteChild "K10" "delete_child";
    RemoveChildFinalizer "K11" "remove_child_finalizer";
    RemovePoolFinalizer "K12" "remove_pool_finalizer";
    PoolStatus "K13" "pool_status";
    IsoStatus "K14" "iso_status";
    Event "K15" "event";
    Lease "K16" "lease";
    ReassignChild "K17" "reassign_child";
    HoldSecret "K18" "hold_secret";
    ReleaseSecret "K19" "release_secret";
    Login "V01" "login";
    CreateVm "V02" "create";
    AttachTags "V03" "attach_tags";
    PowerOn "V04" "power_on";
    PowerOff "V05" "power_off";
    Destroy "V06" "destroy";
    MakeDirectory "V07" "make_directory";
    Upload "V08" "upload";
    Publish "V09" "publish";
    DeleteFile "V10" "delete_file";
    Reconfigure "V11" "reconfigure";
    Logout "V12" "logout";
    SessionView "V13" "session_view";
    CreateFolder "V14" "create_folder";
    EjectIso "V15" "eject_iso";
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
        write!(f, "{} ({})", self.kind.name(), self.key)
    }
}

/// How an admitted effect ended, as far as the caller knows.
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
    /// Which part refused it and why, in a sentence.
    pub reason: String,
}

/// The one interface that all mutating calls pass.
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
