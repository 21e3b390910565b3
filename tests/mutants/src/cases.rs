//! Which rows each mutant covers, and what finds it. Also the rows that no mutant can cover.
//!
//! A case without rows leaves out a check that is not in the lists.
//!
//! Rows: `P1`-`P23` are faults of the predecessor, `H1`-`H23` are problems from its history, and `A`-`R` are traps of
//! the upstream contract.

use agent_forge_sim::promise::Oracle;

use crate::Mutant;

/// A mutant and what finds it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The mutant.
    pub mutant: Mutant,
    /// The rows that it covers.
    pub rows: &'static [&'static str],
    /// The workload that finds it, by name.
    pub workload: &'static str,
    /// The fault that it needs, as `CALL=FAULT`. It hits the first occurrence of the effect, or of the live read among
    /// those that guard an effect. Many mutants need none.
    pub fault: Option<&'static str>,
    /// The oracle that has to fail, among others.
    pub oracle: Oracle,
}

macro_rules! cases {
    ($($mutant:ident [$($row:literal)*] $workload:literal $(+ $fault:literal)? => $oracle:ident;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            mutant: Mutant::$mutant,
            rows: &[$($row),*],
            workload: $workload,
            fault: fault!($($fault)?),
            oracle: Oracle::$oracle,
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
    ForeignAgents ["P1" "H5"] "bare_metal_agent_with_pool_labels" => ConvergesInTime;
    AnySerial ["P2"] "bare_metal_serial_equals_bios_uuid" => ConvergesInTime;
    GoneMustBeSeen ["P3" "H12"] "machine_deleted_while_api_server_down" => ConvergesInTime;
    NoReplacement ["P4"] "first_guest_never_registers" => ConvergesInTime;
    UnseenIsUnmade ["P5"] "machine_deleted_during_create" + "create=reply_lost" => NothingLeaks;
    NameIsProof ["P6" "H15"] "vm_name_taken" => ForeignAndServingUntouched;
    PoolGoneForgets ["P7"] "pool_removed_by_force" => NothingLeaks;
    AdoptedIsOurs ["P8"] "foreign_vm_named_as_adopted" => ForeignAndServingUntouched;
    DeleteMeansDelete ["P9"] "vsphere_agent_deleted_while_serving" => ForeignAndServingUntouched;
    AgentFirst ["P10" "H13" "I"] "agent_deleted_after_vm" => ForeignAndServingUntouched;
    HostnameIsProof ["P11" "H4"] "foreign_agent_with_wanted_hostname" => ConvergesInTime;
    ReadyOnly ["P12" "A"] "one_machine" => ConvergesInTime;
    NoSizeCheck ["P13"] "iso_upload_truncated" => SameFinalState;
    VolatileRefetched ["P14" "H17"] "two_pools" => SilentAtRest;
    SlotsInOrder [] "burst_of_machines" => ConvergesInTime;
    DecidedBeforeTheWait [] "machines_deleted_while_queued" => ConvergesInTime;
    OneAtATime ["P15"] "create_hangs_in_another_pool" + "create=task_hangs_10m" => ConvergesInTime;
    TagsOrDie ["P16"] "one_machine" + "attach_tags=refused" => ForeignAndServingUntouched;
    AnyNamespace ["P17"] "pool_of_unadmitted_tenant" => ConvergesInTime;
    AnyLabel ["P17"] "reserved_agent_labels" => ForeignAndServingUntouched;
    MarkBelieved [] "marker_names_another_namespace" => ForeignAndServingUntouched;
    AnySecret ["P17"] "credentials_of_another_namespace" => ForeignAndServingUntouched;
    ErrorIsAbsence ["P19"] "one_machine" + "power_off=vcenter_down_5m" => NothingLeaks;
    TokenShown ["P20"] "iso_url_token_hidden" => NoSecretInObjects;
    BareIsAbsent [] "vm_hidden_by_vcenter" => NothingLeaks;
    CloneIsOurs ["P21"] "vm_copied_by_admin" => ForeignAndServingUntouched;
    NotResumed ["P22" "H16"] "one_machine" + "record_task=crash_after_effect" => ConvergesInTime;
    NothingHeld ["P23"] "credentials_secret_deleted" => ConvergesInTime;
    AnyUnapproved ["H1"] "bare_metal_agent_with_pool_labels" => ForeignAndServingUntouched;
    LabelsFirst ["H2"] "one_machine" => ConvergesInTime;
    NoPin ["H7"] "hosts_match_their_machines" + "create=task_hangs_10m" => OneVmPerAgentMachine;
    EveryPoolAnswers ["H8"] "two_pools_one_node_pool" => OneVmPerAgentMachine;
    RandomNames ["H9" "H10"] "stale_watch_and_killed_actor" => SameNumberOfVms;
    WaitingIsSurplus ["H11"] "second_machine_while_first_serves" => SameNumberOfVms;
    AlwaysWrites ["H18"] "one_machine" => ConvergesInTime;
    ClosedAnswers ["H22"] "pool_deleted_while_scaling_up" => SameNumberOfVms;
    NoFence ["C" "D"] "freed_agent_matches_foreign_selector" => ConvergesInTime;
    OrderIsProof ["F"] "agent_without_inventory" => ConvergesInTime;
    HookWaits ["G"] "guest_dead_while_binding" => ConvergesInTime;
    OldLook [] "vm_reference_reused_while_queued" => ForeignAndServingUntouched;
    GoneIsFree [] "cluster_moved_to_another_hub" => ForeignAndServingUntouched;
    ForceAlone [] "cluster_moved_to_another_hub" => ForeignAndServingUntouched;
    UnknownIsGone [] "machines_restored_new_uids" => ForeignAndServingUntouched;
    ElsewhereIsServed [] "agent_claimed_elsewhere" => ConvergesInTime;
    LostIsAwaited [] "agent_deleted_before_serving" => ConvergesInTime;
    AnyWish [] "replacement_requested" => ConvergesInTime;
    OldCardOnly [] "network_card_replaced" => ConvergesInTime;
    LabelDecides [] "agent_machine_label_removed" => OneVmPerAgentMachine;
    MovedStays [] "node_pool_moved" => ConvergesInTime;
    KeptKeepsMark [] "vm_retained" => NothingLeaks;
    TagsOnce [] "tags_changed" => ConvergesInTime;
    SuspendedForEver [] "vm_suspended" => ConvergesInTime;
    CdromFirst ["O"] "one_machine" => ConvergesInTime;
    AnyName [] "lookalike_agents" => ForeignAndServingUntouched;
    AnyMac [] "lookalike_agents" => ForeignAndServingUntouched;
    AnyInfraEnv [] "lookalike_agents" => ForeignAndServingUntouched;
    AnyAge [] "lookalike_agents" => ForeignAndServingUntouched;
    BareMetalToo [] "lookalike_agents" => ForeignAndServingUntouched;
    RivalsIgnored [] "rival_agent" => ForeignAndServingUntouched;
    NoGuards [] "infra_env_with_cluster_ref" => ForeignAndServingUntouched;
    OffIsGone [] "one_machine" => NothingLeaks;
    OldMacForgotten [] "network_card_replaced" => RecordsAreKept;
    Wordless [] "invalid_network_corrected" => ProblemsAreExplained;
    NoBackoff [] "one_machine" + "record_identity=api_server_down_5m" => FewExtraCalls;
    FirstDeathEnds [] "one_machine" + "upload=actor_killed" => ProcessKeepsRunning;
    ActorsStay [] "one_machine" => NoExtraActorsOrTasks;
    ServingIsReplaced [] "template_changed" => ForeignAndServingUntouched;
    PauseIgnored [] "one_machine" + "pin_selector=paused_5m" => PausesHold;
    CreatesWhilePaused [] "guest_never_registers" + "destroy=paused_5m" => PausesHold;
    VetoIgnored [] "one_machine" + "fence_agent=deletion_vetoed_5m" => VetoesHold;
    HoldsFromCache [] "one_machine" + "fence_agent=hold_unseen_5m" => PausesHold;
    AnyVersion [] "one_machine" + "delete_agent=object_touched" => ForeignAndServingUntouched;
    DryRunActs [] "dry_run_ends" => ConvergesInTime;
    NoLimits [] "limits_of_a_pool" => ConvergesInTime;
    BufferIsSurplus [] "host_of_the_buffer_claimed" => ConvergesInTime;
    BufferIsAsked [] "host_of_the_buffer_claimed" => ConvergesInTime;
    StrayStays [] "boot_order_broken" => ConvergesInTime;
    ReleasedGoes [] "host_recycled" => ConvergesInTime;
    KeptIsRenewed [] "host_kept_by_people" => ConvergesInTime;
    LifeUnread [] "host_recycled" => ConvergesInTime;
    StaleIsBack [] "recycled_guest_never_returns" => ConvergesInTime;
    UnknownIsFree [] "agent_state_unknown" => ConvergesInTime;
    ForgottenIsFree [] "hub_restored_after_claim" => ConvergesInTime;
    LentStays [] "host_lent" => ConvergesInTime;
    UnmarkedIsTaken [] "host_lent" => NothingLeaks;
    DiskGoesAlong [] "kept_disk_stays_with_its_cluster" => ConvergesInTime;
    LentNameUsedAgain [] "lender_grows_after_lending" => ConvergesInTime;
}

/// The rows without a mutant, and why.
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
        "a missed event costs at most a minute: the supervisor compares actors with objects, and the faults `watches_lag_20s` and `watches_expire` drop events",
    ),
    (
        "H23",
        "rights are not played; tests/it/privileges.rs and tests/lab/tests/all/deployment.rs hold them",
    ),
    (
        "B",
        "as row H20: a binding is read in one place, whose tests know all shapes",
    ),
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
        "an AgentMachine has one VsphereAgent, whose release waits for the Machine's absence; the workload `node_pool_and_pool_deletion` deletes a NodePool",
    ),
    (
        "L",
        "the world has one namespace for Agents and pools; tests/it/lifecycle.rs has Agents in another one",
    ),
    (
        "M",
        "the selector is read from the AgentMachine in each pass; `domain/selector.rs` tests",
    ),
    (
        "N",
        "the world has one hosted cluster; `demand/prepare/tests.rs` has two of one name",
    ),
    (
        "P",
        "the played service validates hosts as the real one; a template that is too small is refused by the schema",
    ),
    (
        "Q",
        "Machine names are drawn and never repeat in a world; namesakes are in `domain/machine_state/tests.rs`",
    ),
    (
        "R",
        "Machines are watched as metadata in whatever version is served",
    ),
];

/// All rows: 23 faults of the predecessor, 23 problems from its history, 18 traps of the upstream contract.
#[must_use]
pub fn rows() -> Vec<String> {
    let numbered = |letter: char| (1..=23).map(move |n| format!("{letter}{n}"));
    let review = ('A'..='R').map(String::from);
    numbered('P').chain(numbered('H')).chain(review).collect()
}
