//! Which mutant stands for which rows, and what finds it; and the rows that no mutant can stand for.
//!
//! A case without rows is a check of our own, left out.
//!
//! Rows: `P1`-`P23` are the faults of the predecessor, `H1`-`H23` the traps of its history, `A`-`R` those of the upstream
//! contract's review.

use crate::Mutant;

/// A mutant and what finds it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The mutant.
    pub mutant: Mutant,
    /// Rows that it stands for.
    pub rows: &'static [&'static str],
    /// The workload that finds it.
    pub workload: &'static str,
    /// The fault that it takes, as `EFFECT=FAULT` at the first occurrence; many take none.
    pub fault: Option<&'static str>,
    /// The oracle that must be among those that say so.
    pub oracle: &'static str,
}

macro_rules! cases {
    ($($mutant:ident [$($row:literal)*] $workload:literal $(+ $fault:literal)? => $oracle:literal;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            mutant: Mutant::$mutant,
            rows: &[$($row),*],
            workload: $workload,
            fault: fault!($($fault)?),
            oracle: $oracle,
        },)*];
    };
}

macro_rules! fault {
    () => {
        None
    };
    ($fault:literal) => {
        Some($fault)
    };
}

cases! {
    ForeignAgents ["P1" "H5"] "stranger" => "O3";
    AnySerial ["P2"] "serial" => "O9";
    GoneMustBeSeen ["P3" "H12"] "unseen" => "O9";
    NoReplacement ["P4"] "dead" => "O9";
    UnseenIsUnmade ["P5"] "S11" + "V02=m5" => "O1";
    NameIsProof ["P6" "H15"] "taken" => "O3";
    PoolGoneForgets ["P7"] "poolless" => "O1";
    AdoptedIsOurs ["P8"] "adopted" => "O3";
    DeleteMeansDelete ["P9"] "deleted" => "O3";
    AgentFirst ["P10" "H13" "I"] "order" => "O3";
    HostnameIsProof ["P11" "H4"] "imposter" => "O9";
    ReadyOnly ["P12" "A"] "S1" => "O9";
    NoSizeCheck ["P13"] "cut" => "O4";
    VolatileRefetched ["P14" "H17"] "S2" => "O6";
    SlotsInOrder [] "burst" => "O9";
    DecidedBeforeTheWait [] "queued" => "O9";
    OneAtATime ["P15"] "hanging" + "V02=m8h" => "O9";
    TagsOrDie ["P16"] "S1" + "V03=m3" => "O3";
    AnyNamespace ["P17"] "S19" => "O9";
    AnyLabel ["P17"] "labelled" => "O3";
    MarkBelieved [] "forged" => "O3";
    AnySecret ["P17"] "tenant" => "O3";
    ErrorIsAbsence ["P19"] "S1" + "K10=g10m" => "O1";
    TokenShown ["P20"] "token" => "O10";
    BareIsAbsent [] "S22" => "O1";
    CloneIsOurs ["P21"] "copied" => "O3";
    NotResumed ["P22" "H16"] "S1" + "K05=m2" => "O9";
    NothingHeld ["P23"] "secretless" => "O9";
    AnyUnapproved ["H1"] "stranger" => "O3";
    LabelsFirst ["H2"] "S1" => "O9";
    NoPin ["H7"] "pairs" + "V02=m8h" => "O2";
    EveryPoolAnswers ["H8"] "rivals" => "O2";
    RandomNames ["H9" "H10"] "lagging" => "O5";
    WaitingIsSurplus ["H11"] "spare" => "O5";
    AlwaysWrites ["H18"] "S1" => "O9";
    ClosedAnswers ["H22"] "closing" => "O5";
    NoFence ["C" "D"] "freed" => "O9";
    OrderIsProof ["F"] "bare" => "O3";
    HookWaits ["G"] "dark" => "O9";
    OldLook [] "swapped" => "O3";
    GoneIsFree [] "S15p" => "O3";
    UnknownIsGone [] "S15f" => "O3";
    ElsewhereIsServed [] "S25" => "O9";
    LostIsAwaited [] "S26" => "O9";
    AnyWish [] "S26a" => "O9";
    OldCardOnly [] "S27" => "O9";
    LabelDecides [] "S28" => "O2";
    MovedStays [] "S29" => "O9";
    KeptKeepsMark [] "S30" => "O1";
    TagsOnce [] "S31" => "O9";
    SuspendedForEver [] "S32" => "O9";
    CdromFirst ["O"] "S1" => "O9";
    AnyName [] "S21" => "O3";
    AnyMac [] "S21" => "O3";
    AnyInfraEnv [] "S21" => "O3";
    AnyAge [] "S21" => "O3";
    BareMetalToo [] "S21" => "O3";
    RivalsIgnored [] "S20" => "O3";
    NoGuards [] "guarded" => "O3";
}

/// Rows without a mutant, and why.
pub const WITHOUT: &[(&str, &str)] = &[
    (
        "P18",
        "no process is started, so there are no arguments to inject; the path constructor has properties of its own",
    ),
    (
        "H3",
        "an Agent belongs to a VM by uuid and MAC, and a uuid to one VsphereAgent: there is no second claim to miss",
    ),
    (
        "H6",
        "the uuid comes from the VsphereAgent's uid and the marker names it: two records never share a VM; `vm/ownership.rs` tests",
    ),
    (
        "H14",
        "each VM has its own object with a finalizer; the pool's rows are never read back",
    ),
    (
        "H19",
        "finalizers go on by a patch of metadata; there is no full update of an object with a spec",
    ),
    (
        "H20",
        "a binding is read in one place, `crds/src/external/agent.rs`; its tests know all shapes",
    ),
    (
        "H21",
        "a missed event costs at most a minute: the supervisor compares actors with objects, and g6 and g8 drop events",
    ),
    (
        "H23",
        "rights are not played; tests/it/privileges.rs and tests/lab/tests/deployment.rs hold them",
    ),
    ("B", "as H20"),
    (
        "E",
        "an Agent is prepared for the AgentMachine that waits, from its selector: without one there is nothing to write",
    ),
    ("H", "a policy: it is said in a condition, a person decides"),
    (
        "J",
        "the Machine is the owner of the AgentMachine; the label is only compared with the AgentMachine's name",
    ),
    (
        "K",
        "an AgentMachine has one VsphereAgent, whose release waits for the Machine's absence; S5 deletes a NodePool",
    ),
    (
        "L",
        "the world has one namespace for Agents and pools; tests/it/lifecycle.rs has Agents in another one",
    ),
    (
        "M",
        "the selector is read from the AgentMachine in each pass; `model/selector.rs` tests",
    ),
    (
        "N",
        "the world has one hosted cluster; `pool/prepare/tests.rs` has two of one name",
    ),
    (
        "P",
        "the played service validates hosts as the real one; a template that is too small is refused by the schema",
    ),
    (
        "Q",
        "Machine names are drawn and never repeat in a world; namesakes are in `model/machine_state/tests.rs`",
    ),
    (
        "R",
        "Machines are watched as metadata in whatever version is served",
    ),
];

/// All rows: 23 faults of the predecessor, 23 traps of its history, 18 of the review.
#[must_use]
pub fn rows() -> Vec<String> {
    let numbered = |letter: char| (1..=23).map(move |n| format!("{letter}{n}"));
    let review = ('A'..='R').map(String::from);
    numbered('P').chain(numbered('H')).chain(review).collect()
}
