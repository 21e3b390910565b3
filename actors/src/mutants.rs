//! Known faults, put back in for tests: does the simulation find them? Docs: docs/adr/0009-mutants.md.
//!
//! Guarantee: in the product there is no switch. [`on`] is a constant `false` there, which `src/main.rs` has the compiler
//! prove; only the copy of this crate in `tests/mutants/copies` is compiled with `cfg(mutants)`.
//! Assumption: a mutant is asked for at the one place that decides; one at a time is on, for one thread.

macro_rules! mutants {
    ($($name:ident $text:literal;)*) => {
        /// A fault of the predecessor, or a trap of the upstream contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $text] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it does, in a phrase.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

mutants! {
    ForeignAgents "a bare-metal Agent counts as running on any VM of ours";
    AnySerial "a serial number of 32 hex digits is a BIOS uuid, whoever made the machine";
    GoneMustBeSeen "a Machine's end counts only where its deletion was seen";
    NoReplacement "a VM whose Agent never registers stays";
    UnseenIsUnmade "a VM whose creation was not recorded was never made";
    NameIsProof "a VM of the wanted name is ours";
    PoolGoneForgets "without its pool a VsphereAgent goes at once";
    AdoptedIsOurs "a VM that a user names as adopted is ours";
    DeleteMeansDelete "a VsphereAgent that is deleted goes, whomever its Agent serves";
    AgentFirst "the Agent is deleted before its VM is gone";
    HostnameIsProof "an Agent with the right hostname runs on our VM";
    ReadyOnly "only the condition Ready says that an AgentMachine waits";
    NoSizeCheck "an uploaded ISO is taken for whole unseen";
    VolatileRefetched "an ISO is downloaded anew at each look, and has other bytes each time";
    SlotsInOrder "whoever comes first gets the next task slot, whatever for";
    DecidedBeforeTheWait "what was decided before a wait for a task slot is done after it";
    OneAtATime "one task in vCenter at a time, however long it takes";
    TagsOrDie "a VM that cannot be tagged is destroyed and made anew";
    AnyNamespace "a pool uses whatever NodePool and InfraEnv it names";
    AnyLabel "spec.agent.labels may hold what another service goes by";
    MarkBelieved "the namespace in a VM's mark is believed";
    AnySecret "credentials are read from whatever namespace the pool names";
    ErrorIsAbsence "a lookup that fails says that the VM is not there";
    TokenShown "status shows the ISO's URL with its token";
    BareIsAbsent "a VM whose configuration vCenter does not show is not there";
    CloneIsOurs "a VM with our uuid and mark is ours, whatever its instance uuid";
    NotResumed "a create that a former life began is not gone on with";
    NothingHeld "the credentials Secret is not held";
    AnyUnapproved "an unapproved Agent on some VM is the one that this VsphereAgent waits for";
    LabelsFirst "an Agent without the pool's labels is not looked at";
    NoPin "AgentMachines are not pinned to the host made for them";
    EveryPoolAnswers "each of two pools that claim an AgentMachine makes a VM";
    RandomNames "a VsphereAgent's name is drawn, not derived";
    WaitingIsSurplus "a host in the making is surplus while another one serves";
    AlwaysWrites "a status is written whether or not it changed";
    ClosedAnswers "a pool that is being deleted makes new VMs";
    NoFence "an Agent whose Machine goes stays in selection";
    OrderIsProof "an Agent without inventory runs on the VM that was made last";
    HookWaits "a deletion hook that waits for a dead guest waits for ever";
    AnyName "an Agent whose name is another machine's uuid runs on our VM where its serial says so";
    AnyMac "an Agent runs on our VM without a MAC address of it";
    AnyInfraEnv "an Agent of whatever InfraEnv runs on our VM";
    AnyAge "an Agent that was there before our VM ran runs on it";
    BareMetalToo "an Agent that a BareMetalHost owns runs on our VM";
    RivalsIgnored "of two Agents that match our VM the first one is approved";
    NoGuards "VMs are made whatever the InfraEnv says";
    OldLook "what vCenter showed before a wait is switched off and destroyed, whatever is there by then";
    GoneIsFree "a Machine that is gone has set its Agent free, paused or not";
    UnknownIsGone "a VM that served goes although nobody knows of its Machine";
    ElsewhereIsServed "an AgentMachine whose VM's Agent another control plane claimed has its host";
    LostIsAwaited "an Agent that was deleted before it served is waited for";
    AnyWish "who asks for another VM than one attempt's gets another one for each attempt that follows";
    OldCardOnly "a network card that somebody replaced is not recorded";
    LabelDecides "the label alone says whom a VsphereAgent is for";
    MovedStays "a VM for a NodePool that its pool left stays";
    KeptKeepsMark "a VM that its pool keeps goes on carrying our mark when its record goes";
    TagsOnce "tags that are wanted since a VM was tagged are not attached";
    SuspendedForEver "switching a suspended VM off is tried for ever";
    CdromFirst "the boot order is left to the firmware";
}

/// Whether this mutant is on: never.
#[cfg(not(mutants))]
#[must_use]
pub const fn on(_: Mutant) -> bool {
    false
}

#[cfg(mutants)]
pub use switch::{on, set};

#[cfg(mutants)]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this mutant is on for this thread.
    #[must_use]
    pub fn on(mutant: Mutant) -> bool {
        ON.get() == Some(mutant)
    }

    /// Switches one on for this thread, or all off.
    pub fn set(mutant: Option<Mutant>) {
        ON.set(mutant);
    }
}
