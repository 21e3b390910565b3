//! The conditions of a pool as a table: the facts, and the conditions that do not hold, with reason and words.

use std::collections::BTreeMap;

use agent_forge_crds::{
    VsphereAgent, WaitingOn,
    conditions::{
        AGENT_MACHINE_DEMAND_FOUND, CAPACITY_SATISFIED, ConditionStatus, ConditionUpdate,
        INFRA_ENV_AVAILABLE, ISO_READY, READY, Reason, VSPHERE_READY, set_condition,
    },
    pool::IsoStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    domain::{
        failure::ReconcileError,
        names::{DatastorePath, ObjectKey},
    },
    iso::msg::IsoFile,
    pool::{plan::plan, status::render},
    ports::iso_source::Validators,
    testing::{World, agent_machine, at, child, delete, machine, pool, selector, with},
};

/// Condition, reason, and what its message has to name.
type No = (&'static str, Reason, &'static [&'static str]);

struct Case {
    so: &'static str,
    world: World,
    outcome: Outcome,
    not: &'static [No],
}

fn stored() -> IsoState {
    IsoState::Ready {
        file: IsoFile {
            sha256: "ab".repeat(32),
            path: DatastorePath::new("ds", "isos/ab.iso").expect("a path"),
            size: 7,
            uploaded_at: at(0),
            validators: Validators::default(),
            volatile: false,
        },
        reused: false,
        pruned: vec![],
        prune_failures: vec![],
    }
}

fn well() -> Outcome {
    Outcome {
        iso: Some(stored()),
        ..Outcome::default()
    }
}

fn fetching() -> IsoState {
    IsoState::Fetching {
        done: 7,
        total: Some(9),
        rate: None,
    }
}

fn no_source(why: NoSource) -> Outcome {
    Outcome {
        no_source: Some(why),
        ..Outcome::default()
    }
}

/// A VsphereAgent that waits for vCenter.
fn refused(name: &str, reason: Reason) -> VsphereAgent {
    with(child(name), |c| {
        c.status.get_or_insert_default().waiting_on = vec![WaitingOn {
            subject: "vSphere".to_owned(),
            reason,
            message: "these are the words".to_owned(),
            since: None,
        }];
    })
}

fn changed(mut world: World, change: impl FnOnce(&mut World)) -> World {
    change(&mut world);
    world
}

fn cases() -> Vec<Case> {
    let case = |so, world, outcome, not| Case {
        so,
        world,
        outcome,
        not,
    };
    let waiting = || World::waiting(&["a"]);
    let blocked = |side, reason| ReconcileError::blocked(side, reason, "these are the words");
    let full = |side| IsoState::Failed(blocked(side, Reason::NoDiskSpace));
    vec![
        case("nobody asks for anything", World::default(), well(), &[]),
        case(
            "a machine waits: the pool's work, no trouble of its",
            waiting(),
            well(),
            &[(CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"])],
        ),
        case(
            "vCenter refuses the password",
            World::default(),
            Outcome {
                vsphere: Some(blocked(ErrorSource::Vsphere, Reason::InvalidCredentials)),
                ..Outcome::default()
            },
            &[
                (
                    VSPHERE_READY,
                    Reason::InvalidCredentials,
                    &["these are the words"],
                ),
                (ISO_READY, Reason::WaitingForVsphere, &["VsphereReady"]),
                (READY, Reason::InvalidCredentials, &["these are the words"]),
            ],
        ),
        case(
            "a VM cannot be made for want of something in vCenter",
            changed(World::default(), |w| {
                let mut child = child("a");
                child.status.get_or_insert_default().waiting_on = vec![WaitingOn {
                    subject: "vSphere".to_owned(),
                    reason: Reason::VsphereObjectNotFound,
                    message: "network nowhere".to_owned(),
                    since: None,
                }];
                w.children.push(child);
            }),
            well(),
            &[
                (
                    VSPHERE_READY,
                    Reason::VsphereObjectNotFound,
                    &["a: ", "network nowhere"],
                ),
                (READY, Reason::VsphereObjectNotFound, &["network nowhere"]),
            ],
        ),
        case(
            "a privilege is lost, and a tag of another VM cannot be attached",
            changed(World::default(), |w| {
                w.children = vec![
                    refused("a", Reason::TaggingFailed),
                    refused("b", Reason::NoPermission),
                    refused("c", Reason::InvalidCredentials),
                ];
            }),
            well(),
            &[
                (VSPHERE_READY, Reason::NoPermission, &["b: "]),
                (READY, Reason::NoPermission, &["b: "]),
            ],
        ),
        case(
            "tags of two VMs cannot be attached",
            changed(World::default(), |w| {
                w.children = vec![
                    refused("a", Reason::TaggingFailed),
                    refused("b", Reason::EjectFailed),
                ];
            }),
            well(),
            &[
                (VSPHERE_READY, Reason::TaggingFailed, &["a: "]),
                (READY, Reason::TaggingFailed, &["a: "]),
            ],
        ),
        case(
            "a privilege is lost, and the datastore is full",
            changed(World::default(), |w| {
                w.children = vec![refused("a", Reason::NoPermission)];
            }),
            Outcome {
                iso: Some(full(ErrorSource::Vsphere)),
                ..Outcome::default()
            },
            &[
                (ISO_READY, Reason::NoDiskSpace, &["these are the words"]),
                (VSPHERE_READY, Reason::NoPermission, &["a: "]),
                (READY, Reason::NoPermission, &["a: "]),
            ],
        ),
        case(
            "no InfraEnv",
            World::default(),
            no_source(NoSource::InfraEnvNotFound),
            &[
                (
                    INFRA_ENV_AVAILABLE,
                    Reason::InfraEnvNotFound,
                    &["demo/infra", "spec.infraEnvRef"],
                ),
                (ISO_READY, Reason::IsoUrlPending, &["no ISO URL"]),
                (READY, Reason::InfraEnvNotFound, &["demo/infra"]),
            ],
        ),
        case(
            "an InfraEnv without URL",
            World::default(),
            no_source(NoSource::UrlPending),
            &[
                (
                    INFRA_ENV_AVAILABLE,
                    Reason::IsoUrlPending,
                    &["demo/infra", "isoDownloadURL"],
                ),
                (ISO_READY, Reason::IsoUrlPending, &["no ISO URL"]),
                (READY, Reason::IsoUrlPending, &["demo/infra"]),
            ],
        ),
        case(
            "an InfraEnv with a URL that is none",
            World::default(),
            no_source(NoSource::Invalid(blocked(
                ErrorSource::Iso,
                Reason::InvalidIsoUrl,
            ))),
            &[
                (
                    INFRA_ENV_AVAILABLE,
                    Reason::InvalidIsoUrl,
                    &["these are the words"],
                ),
                (ISO_READY, Reason::InvalidIsoUrl, &["these are the words"]),
                (READY, Reason::InvalidIsoUrl, &["these are the words"]),
            ],
        ),
        case(
            "a field of spec.iso that cannot be used is not the InfraEnv's fault",
            World::default(),
            no_source(NoSource::Invalid(blocked(
                ErrorSource::Iso,
                Reason::InvalidSpec,
            ))),
            &[
                (ISO_READY, Reason::InvalidSpec, &["these are the words"]),
                (READY, Reason::InvalidSpec, &["these are the words"]),
            ],
        ),
        case(
            "the ISO is on its way",
            World::default(),
            Outcome {
                iso: Some(fetching()),
                ..Outcome::default()
            },
            &[
                (ISO_READY, Reason::IsoUploading, &["on its way"]),
                (READY, Reason::IsoUploading, &["on its way"]),
            ],
        ),
        case(
            "the image service fails: vCenter is none the worse",
            World::default(),
            Outcome {
                iso: Some(full(ErrorSource::Iso)),
                ..Outcome::default()
            },
            &[
                (ISO_READY, Reason::NoDiskSpace, &["these are the words"]),
                (READY, Reason::NoDiskSpace, &["these are the words"]),
            ],
        ),
        case(
            "the datastore fails: the field is named",
            World::default(),
            Outcome {
                iso: Some(full(ErrorSource::Vsphere)),
                ..Outcome::default()
            },
            &[
                (ISO_READY, Reason::NoDiskSpace, &["these are the words"]),
                (
                    VSPHERE_READY,
                    Reason::NoDiskSpace,
                    &["spec.vsphere.isoDatastore", "these are the words"],
                ),
                (READY, Reason::NoDiskSpace, &["these are the words"]),
            ],
        ),
        case(
            "two pools claim one AgentMachine",
            changed(waiting(), |w| {
                let mut other = pool("other");
                other.spec.node_pool_ref = w.pool.spec.node_pool_ref.clone();
                w.other_pools.push(other);
            }),
            well(),
            &[
                (
                    AGENT_MACHINE_DEMAND_FOUND,
                    Reason::PoolConflict,
                    &["AgentMachine a", "demo/other"],
                ),
                (CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"]),
                (READY, Reason::PoolConflict, &["demo/other"]),
            ],
        ),
        case(
            "an AgentMachine asks for labels that no Agent of the pool has",
            changed(waiting(), |w| {
                w.agent_machines[0].spec.agent_label_selector = Some(selector(
                    &[],
                    &[("zone", "DoesNotExist", &[]), ("zone", "Exists", &[])],
                ));
            }),
            well(),
            &[
                (
                    AGENT_MACHINE_DEMAND_FOUND,
                    Reason::SelectorUnsatisfiable,
                    &["AgentMachine a", "zone"],
                ),
                (CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"]),
                (READY, Reason::SelectorUnsatisfiable, &["zone"]),
            ],
        ),
        case(
            "the provider does not accept an AgentMachine",
            changed(waiting(), |w| {
                w.agent_machines[0].metadata.finalizers = None
            }),
            well(),
            &[
                (
                    AGENT_MACHINE_DEMAND_FOUND,
                    Reason::ProviderNotAccepting,
                    &["AgentMachine a", "CAPI"],
                ),
                (CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"]),
                (READY, Reason::ProviderNotAccepting, &["AgentMachine a"]),
            ],
        ),
        case(
            "the provider says nothing of an AgentMachine",
            changed(waiting(), |w| w.agent_machines[0].status = None),
            well(),
            &[
                (
                    AGENT_MACHINE_DEMAND_FOUND,
                    Reason::ConditionsMissing,
                    &["AgentMachine a"],
                ),
                (CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"]),
                (READY, Reason::ConditionsMissing, &["AgentMachine a"]),
            ],
        ),
        case(
            "something failed while acting: that comes first",
            World::default(),
            Outcome {
                failed: Some(blocked(ErrorSource::Kubernetes, Reason::NameConflict)),
                vsphere: Some(blocked(ErrorSource::Vsphere, Reason::InvalidCredentials)),
                ..well()
            },
            &[
                (
                    VSPHERE_READY,
                    Reason::InvalidCredentials,
                    &["these are the words"],
                ),
                (READY, Reason::NameConflict, &["these are the words"]),
            ],
        ),
        case(
            "the pool is being deleted, and something failed: that is told",
            changed(World::discovered("a"), |w| delete(&mut w.pool)),
            Outcome {
                failed: Some(blocked(ErrorSource::Kubernetes, Reason::Forbidden)),
                ..Outcome::default()
            },
            &[
                (CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"]),
                (
                    READY,
                    Reason::Forbidden,
                    &["left: 1", "these are the words"],
                ),
            ],
        ),
        case(
            "the pool is being deleted",
            changed(World::discovered("a"), |w| {
                delete(&mut w.pool);
                w.agent_machines = vec![agent_machine("b")];
                w.machines = vec![machine("b")];
            }),
            Outcome::default(),
            &[
                (CAPACITY_SATISFIED, Reason::DemandDeficit, &["waiting=1"]),
                (
                    READY,
                    Reason::ChildrenRemain,
                    &["left: 1", "status.waitingOn"],
                ),
            ],
        ),
    ]
}

fn conditions_of(world: &World, outcome: &Outcome) -> BTreeMap<String, Condition> {
    let observed = world.observed();
    let status = render(
        &VsphereAgentPoolStatus::default(),
        &observed,
        &plan(&observed),
        outcome,
    );
    let all = status.conditions.into_iter();
    all.map(|c| (c.type_.clone(), c)).collect()
}

#[test]
fn each_trouble_is_said_where_it_belongs_and_nowhere_else() {
    for case in cases() {
        let so = case.so;
        let said = conditions_of(&case.world, &case.outcome);
        for (type_, reason, words) in case.not {
            let c = said
                .get(*type_)
                .unwrap_or_else(|| panic!("{so}: no {type_}"));
            assert_eq!(
                (c.status.as_str(), c.reason.as_str()),
                ("False", reason.as_str()),
                "{so}: {type_}"
            );
            for word in *words {
                assert!(
                    c.message.contains(word),
                    "{so}: {type_}: {:?} lacks {word:?}",
                    c.message
                );
            }
        }
        for (type_, c) in &said {
            let expected = case.not.iter().any(|(t, ..)| t == type_);
            assert!(expected || c.status == "True", "{so}: {type_} is {c:?}");
            assert!(!c.reason.is_empty() && !c.message.is_empty(), "{so}: {c:?}");
            assert_eq!(
                c.observed_generation, case.world.pool.metadata.generation,
                "{so}: {type_}"
            );
        }
    }
}

#[test]
fn what_a_person_should_know_stands_in_a_condition_that_holds() {
    let insecure = Outcome {
        insecure: true,
        ..well()
    };
    let said = conditions_of(&World::default(), &insecure);
    assert!(said[VSPHERE_READY].message.contains("WARNING"), "{said:?}");
    for (prefix, told) in [(None, false), (Some(""), false), (Some("demo"), true)] {
        let mut world = World::default();
        world.pool.spec.template.name_prefix = prefix.map(str::to_owned);
        let said = conditions_of(&world, &well());
        let message = &said[VSPHERE_READY].message;
        let names_it = message.contains("spec.template.namePrefix \"demo\" has no effect");
        assert_eq!(names_it, told, "{message}");
    }
    for (scheme, told) in [("https", false), ("http", true)] {
        let mut observed = World::default().observed();
        let url = format!("{scheme}://images.example/byapikey/S3CRET/x.iso");
        let object = with(crate::testing::infra_env(), |infra_env| {
            let status = infra_env.status.get_or_insert_default();
            status.iso_download_url = serde_json::from_value(url.into()).expect("a URL");
        });
        observed.infra_env = Some(std::sync::Arc::new(object));
        let (_, holds, _, message) = infra_env(&observed, &well());
        assert!(holds, "it is usable");
        assert_eq!(
            message.contains("WARNING: over plain http"),
            told,
            "{message}"
        );
        assert!(!message.contains("S3CRET"), "{message}");
    }
    let volatile = Outcome {
        iso_status: Some(IsoStatus {
            volatile: Some(true),
            ..IsoStatus::default()
        }),
        ..well()
    };
    let older = Outcome {
        iso: Some(IsoState::Failed(ReconcileError::transient(
            ErrorSource::Iso,
            Reason::IsoDownloadFailed,
            "503",
        ))),
        iso_status: Some(IsoStatus {
            path: Some("isos/ab.iso".to_owned()),
            ..IsoStatus::default()
        }),
        ..Outcome::default()
    };
    let said = conditions_of(&World::default(), &older);
    assert!(
        said[ISO_READY].message.contains("made from the ISO that"),
        "{said:?}"
    );
    let said = conditions_of(&World::default(), &volatile);
    assert!(
        said[ISO_READY]
            .message
            .contains("other bytes at every download"),
        "{said:?}"
    );
}

#[test]
fn a_condition_keeps_its_time_while_its_status_stays() {
    let world = World::waiting(&["a"]);
    let mut observed = world.observed();
    let first = render(
        &VsphereAgentPoolStatus::default(),
        &observed,
        &plan(&observed),
        &well(),
    );
    observed.wall = at(10_000);
    let second = render(&first, &observed, &plan(&observed), &well());
    assert_eq!(
        first, second,
        "nothing happened, so there is nothing to write"
    );
    observed.agent_machines.clear();
    let third = render(&second, &observed, &plan(&observed), &well());
    let since = |s: &VsphereAgentPoolStatus, t| {
        find_condition(&s.conditions, t).map(|c| c.last_transition_time.0)
    };
    assert_eq!(since(&third, CAPACITY_SATISFIED), Some(at(10_000)));
    assert_eq!(since(&third, READY), since(&first, READY));
}

fn said(row: &Row) -> Condition {
    let mut list = Vec::new();
    let update = ConditionUpdate {
        type_: row.0,
        status: ConditionStatus::from(row.1),
        reason: &row.2,
        message: &row.3,
        observed_generation: None,
    };
    set_condition(&mut list, &update, &Time(jiff::Timestamp::UNIX_EPOCH));
    list.remove(0)
}

#[test]
fn why_the_iso_failed_is_said_until_it_is_there() {
    let outcome = |iso: IsoState| Outcome {
        iso: Some(iso),
        ..Outcome::default()
    };
    let fetching = outcome(fetching());
    let mut looking = outcome(IsoState::Fetching {
        done: 0,
        total: None,
        rate: None,
    });
    let first = iso(&fetching, None);
    assert_eq!(first.2, Reason::IsoUploading);
    let again = iso(&fetching, Some(&said(&first)));
    assert_eq!(again.2, Reason::IsoUploading);
    let queued = outcome(IsoState::Queued(ObjectKey::new("demo", "other")));
    let waits = iso(&queued, Some(&said(&first)));
    assert_eq!(waits.2, Reason::IsoUploading);
    assert!(waits.3.contains("that of pool demo/other"), "{}", waits.3);
    let lies = iso(&well(), None);
    let another = iso(&looking, Some(&said(&lies)));
    assert!(!another.1, "what lies there is not what is wanted");
    looking.iso_known = true;
    assert_eq!(
        iso(&looking, Some(&said(&lies))),
        lies,
        "a look unsays nothing"
    );
    let comes = iso(&fetching, Some(&said(&lies)));
    assert_eq!((comes.1, &comes.2), (false, &Reason::IsoUploading));
    let place = DatastorePath::new("ds", "isos/ab.iso").expect("a path");
    let lost = iso(
        &outcome(IsoState::Lost(place)),
        Some(&said(&iso(&well(), None))),
    );
    assert_eq!((lost.1, &lost.2), (false, &Reason::IsoUploading));
    assert!(lost.3.contains("[ds] isos/ab.iso"), "{}", lost.3);
    let trouble =
        ReconcileError::transient(ErrorSource::Iso, Reason::IsoDownloadStalled, "nothing came");
    let failed = iso(&outcome(IsoState::Failed(trouble)), Some(&said(&again)));
    assert_eq!(failed.2, Reason::IsoDownloadStalled);
    let retried = iso(&fetching, Some(&said(&failed)));
    assert_eq!(retried, failed, "the next try hides nothing");
    let again = iso(&queued, Some(&said(&failed)));
    assert_eq!(again, failed, "nor does the wait for it");
    for mended in [Reason::InvalidIsoUrl, Reason::InvalidSpec] {
        let trouble =
            ReconcileError::blocked(ErrorSource::Iso, mended.clone(), "these are the words");
        let invalid = iso(&no_source(NoSource::Invalid(trouble)), None);
        assert_eq!(invalid.2, mended);
        let asked = iso(&fetching, Some(&said(&invalid)));
        assert_eq!(asked.2, Reason::IsoUploading, "{mended} is over");
    }
}
