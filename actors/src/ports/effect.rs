//! The effect gate: every mutating call, to Kubernetes or to vCenter, is one [`Effect`] with the [`Subject`] it is for.
//!
//! Guarantees: an adapter sends a mutating request only after [`Gate::admit`] allowed it. It reports the result through
//! [`Gate::settled`]. The fault injector, the holds and the trace recorder all use this one interface. Reads are not
//! effects.

use std::fmt;

use agent_forge_crds::{agent::VsphereAgent, conditions::Reason};
use async_trait::async_trait;
use jiff::Timestamp;

use crate::domain::{goal, names::ObjectKey};

/// What an effect is for. It prints as `namespace/name`, or as the name of the vCenter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A pool. Its ISO, its Secrets, and its writes to AgentMachines and Agents are part of it.
    Pool(ObjectKey),
    /// A VsphereAgent with its VM.
    Vm {
        /// The VsphereAgent.
        key: ObjectKey,
        /// Its pool; `None` for an orphan.
        pool: Option<ObjectKey>,
    },
    /// The vCenter of a session.
    Server(String),
    /// A Lease, or the object that an Event is about.
    Object(ObjectKey),
}

impl Subject {
    /// That VsphereAgent, of the pool that it names.
    #[must_use]
    pub fn vm(object: &VsphereAgent) -> Self {
        let key = ObjectKey::of(object);
        Self::Vm {
            key,
            pool: Some(goal::user(object)),
        }
    }

    /// Its name, without a namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pool(key) | Self::Vm { key, .. } | Self::Object(key) => &key.name,
            Self::Server(name) => name,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(key) | Self::Vm { key, .. } | Self::Object(key) => key.fmt(f),
            Self::Server(name) => f.write_str(name),
        }
    }
}

/// What an effect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// The status of a pool or VsphereAgent.
    Status,
    /// An Event.
    Event,
    /// A Lease.
    Lease,
    /// A vCenter session.
    Session,
    /// Any other object in Kubernetes.
    Cluster,
    /// A VM, a file or a folder in vCenter.
    Vcenter,
}

macro_rules! effects {
    ($($kind:ident $code:literal $name:literal $nature:ident;)*) => {
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

            /// What it changes.
            #[must_use]
            pub const fn nature(self) -> Nature {
                match self {
                    $(Self::$kind => Nature::$nature,)*
                }
            }
        }
    };
}

effects! {
    CreateChild "K01" "create_child" Cluster;
    PinSelector "K02" "pin_selector" Cluster;
    AddFinalizer "K03" "add_finalizer" Cluster;
    RecordIdentity "K04" "record_identity" Status;
    RecordTask "K05" "record_task" Status;
    RecordObservation "K06" "record_observation" Status;
    PrepareAgent "K07" "prepare_agent" Cluster;
    FenceAgent "K08" "fence_agent" Cluster;
    DeleteAgent "K09" "delete_agent" Cluster;
    DeleteChild "K10" "delete_child" Cluster;
    RemoveChildFinalizer "K11" "remove_child_finalizer" Cluster;
    RemovePoolFinalizer "K12" "remove_pool_finalizer" Cluster;
    PoolStatus "K13" "pool_status" Status;
    IsoStatus "K14" "iso_status" Status;
    Event "K15" "event" Event;
    Lease "K16" "lease" Lease;
    ReassignChild "K17" "reassign_child" Cluster;
    HoldSecret "K18" "hold_secret" Cluster;
    ReleaseSecret "K19" "release_secret" Cluster;
    SkipCleanup "K20" "skip_cleanup" Cluster;
    HoldInstaller "K21" "hold_installer" Cluster;
    CreateScripts "K22" "create_scripts" Cluster;
    InstallerStatus "K23" "installer_status" Status;
    ReleaseInstaller "K24" "release_installer" Cluster;
    Login "V01" "login" Session;
    CreateVm "V02" "create" Vcenter;
    AttachTags "V03" "attach_tags" Vcenter;
    PowerOn "V04" "power_on" Vcenter;
    PowerOff "V05" "power_off" Vcenter;
    Destroy "V06" "destroy" Vcenter;
    MakeDirectory "V07" "make_directory" Vcenter;
    Upload "V08" "upload" Vcenter;
    Publish "V09" "publish" Vcenter;
    DeleteFile "V10" "delete_file" Vcenter;
    Reconfigure "V11" "reconfigure" Vcenter;
    Logout "V12" "logout" Session;
    SessionView "V13" "session_view" Session;
    CreateFolder "V14" "create_folder" Vcenter;
    EjectIso "V15" "eject_iso" Vcenter;
    Renew "V16" "renew" Vcenter;
    Reset "V17" "reset" Vcenter;
}

/// One mutating call: what it is and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Effect {
    /// What is done.
    pub kind: EffectKind,
    /// For what.
    pub subject: Subject,
}

impl Effect {
    /// An effect of `kind` for `subject`.
    #[must_use]
    pub const fn new(kind: EffectKind, subject: Subject) -> Self {
        Self { kind, subject }
    }

    /// What people read when the gate holds it back. Nothing was sent.
    #[must_use]
    pub fn held_back(&self, hold: &Hold) -> String {
        format!("{self} was held back: {hold}")
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.name(), self.subject)
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

/// Who holds an effect back, why, and how long. It prints both in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Hold {
    /// Why, as one word: `EffectHeld` by the Lease, `DryRun`, `Paused`, `HistoryUnclear`,
    /// `NamespaceTooLarge`, or `Vetoed`.
    pub reason: Reason,
    /// What holds it: the Lease, or where people have written it.
    pub holder: String,
    /// Sentence that names the holder.
    pub why: String,
    /// When it ends by itself, if that is known.
    pub until: Option<Timestamp>,
}

impl Hold {
    /// This process does not lead, or its Lease has too little time left for the call.
    #[must_use]
    pub fn lease(why: impl Into<String>) -> Self {
        Self {
            reason: Reason::EffectHeld,
            holder: "Lease".to_owned(),
            why: why.into(),
            until: None,
        }
    }

    /// What was read for the call is too old: it is read again, and the call decided again.
    #[must_use]
    pub fn outdated() -> Self {
        Self {
            holder: "its permit".to_owned(),
            ..Self::lease("what was read for it is too old by now; it is read again")
        }
    }
}

/// The one interface that all mutating calls pass.
#[async_trait]
pub trait Gate: Send + Sync {
    /// May this effect run now?
    ///
    /// # Errors
    /// [`Hold`] says why not; the caller must not send the request.
    async fn admit(&self, effect: &Effect) -> Result<(), Hold>;

    /// Reports the end of an admitted effect.
    fn settled(&self, effect: &Effect, outcome: Settled);
}
