use std::collections::BTreeMap;

use agent_forge_crds::external::{
    ForeignCondition,
    byoh::{BYO_HOST_READY, ByoMachineStatus, HostInfo, INSTALLATION_SECRET_NOT_AVAILABLE},
    find,
};
use agent_forge_crds::installer::{Bundle, SECRET_TYPE, ScriptsFrom};
use agent_forge_crds::pool::ObjectNameRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::testing::{NAMESPACE, at, delete, labels, with};

const UID: &str = "0c7a5a1e-0000-4000-8000-000000000001";

fn metadata(uid: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some("host-a".to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(uid.to_owned()),
        resource_version: Some("7".to_owned()),
        ..ObjectMeta::default()
    }
}

/// A config as BYOH makes it.
pub fn config() -> AgentForgeInstallerConfig {
    with(AgentForgeInstallerConfig::default(), |c| {
        c.metadata = ObjectMeta {
            generation: Some(1),
            labels: Some(labels(&[(CLUSTER_NAME_LABEL, "one")])),
            annotations: Some(labels(&[(K8S_VERSION_ANNOTATION, "v1.30.2")])),
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{GROUP}/v1beta1"),
                kind: "ByoMachine".to_owned(),
                name: "host-a".to_owned(),
                uid: "machine".to_owned(),
                ..OwnerReference::default()
            }]),
            ..metadata(UID)
        };
        c.spec.bundle = Some(Bundle {
            repository: "registry.example.com/byoh/bundle".to_owned(),
            digest: format!("sha256:{}", "a".repeat(64)),
        });
    })
}

pub fn machine() -> ByoMachine {
    ByoMachine {
        metadata: metadata("machine"),
        status: Some(ByoMachineStatus {
            host_info: Some(HostInfo {
                os_name: "linux".to_owned(),
                os_image: "Ubuntu 22.04.4 LTS".to_owned(),
                architecture: "amd64".to_owned(),
            }),
            conditions: vec![ForeignCondition {
                type_: BYO_HOST_READY.to_owned(),
                status: "False".to_owned(),
                reason: Some(INSTALLATION_SECRET_NOT_AVAILABLE.to_owned()),
                ..ForeignCondition::default()
            }],
        }),
        ..ByoMachine::default()
    }
}

pub fn cluster(paused: bool) -> Pausable {
    Pausable {
        key: ObjectKey::new(NAMESPACE, "one"),
        cluster: None,
        annotated: false,
        paused,
        paused_until: None,
    }
}

/// What is known when all gates are open. `change` says what differs.
fn facts(change: impl FnOnce(&mut Facts)) -> Facts {
    with(
        Facts {
            config: Arc::new(config()),
            cluster: Some(cluster(false)),
            machine: Some(Arc::new(machine())),
            hosts: Vec::new(),
            live: Some(Live::default()),
            now: Time(at(60)),
        },
        change,
    )
}

fn held(facts: &mut Facts) {
    let finalizers = vec![INSTALLER_FINALIZER.to_owned()];
    Arc::make_mut(&mut facts.config).metadata.finalizers = Some(finalizers);
}

/// The Secret that the config of [`facts`] gets.
fn its_secret() -> ScriptsSecret {
    match decide(&facts(held)) {
        Next::Create(secret) => ScriptsSecret::of(&secret),
        other => panic!("{other:?}"),
    }
}

fn status_of(next: Next) -> AgentForgeInstallerConfigStatus {
    match next {
        Next::Status(status, _) => *status,
        other => panic!("{other:?}"),
    }
}

/// In the contract's order: a gate that is closed hides the ones after it.
#[test]
fn while_a_gate_is_closed_nothing_is_read_live_or_written() {
    type Close = fn(&mut Facts);
    fn on_machine(f: &mut Facts, change: impl FnOnce(&mut ByoMachine)) {
        change(Arc::make_mut(f.machine.as_mut().expect("a machine")));
    }
    fn on_config(f: &mut Facts, change: impl FnOnce(&mut AgentForgeInstallerConfig)) {
        change(Arc::make_mut(&mut f.config));
    }
    fn on_status(f: &mut Facts, change: impl FnOnce(&mut ByoMachineStatus)) {
        on_machine(f, |m| change(m.status.as_mut().expect("a status")));
    }
    let gates: [(Close, Reason, &str); 15] = [
        (
            |f| f.cluster = Some(cluster(true)),
            Reason::Paused,
            "spec.paused of Cluster demo/one",
        ),
        (
            |f| {
                on_config(f, |c| {
                    c.annotations_mut()
                        .insert(PAUSED_ANNOTATION.to_owned(), String::new());
                });
            },
            Reason::Paused,
            "annotation cluster.x-k8s.io/paused",
        ),
        (
            |f| on_config(f, |c| c.labels_mut().clear()),
            Reason::ScriptsNotAwaited,
            "no label",
        ),
        (
            |f| f.cluster = None,
            Reason::ScriptsNotAwaited,
            "no Cluster one",
        ),
        (
            |f| on_config(f, |c| c.owner_references_mut().clear()),
            Reason::ScriptsNotAwaited,
            "no ByoMachine as owner",
        ),
        (
            |f| {
                on_config(f, |c| {
                    c.owner_references_mut()[0].kind = "Machine".to_owned()
                })
            },
            Reason::ScriptsNotAwaited,
            "no ByoMachine as owner",
        ),
        (
            |f| {
                on_config(f, |c| {
                    c.owner_references_mut()[0].api_version = "x/v1beta1".to_owned()
                })
            },
            Reason::ScriptsNotAwaited,
            "no ByoMachine as owner",
        ),
        (
            |f| f.machine = None,
            Reason::ScriptsNotAwaited,
            "is not there",
        ),
        (
            |f| on_machine(f, |m| m.metadata.uid = Some("a later one".to_owned())),
            Reason::ScriptsNotAwaited,
            "is not there",
        ),
        (
            |f| on_machine(f, |m| m.status = None),
            Reason::ScriptsNotAwaited,
            "no host yet",
        ),
        (
            |f| on_status(f, |s| s.conditions[0].status = "True".to_owned()),
            Reason::ScriptsNotAwaited,
            "no host yet",
        ),
        (
            |f| {
                on_status(f, |s| {
                    s.conditions[0].reason = Some("BYOHostsUnavailable".to_owned())
                })
            },
            Reason::ScriptsNotAwaited,
            "no host yet",
        ),
        (
            |f| on_status(f, |s| s.host_info = None),
            Reason::ScriptsNotAwaited,
            "status.hostinfo",
        ),
        (
            |f| {
                on_status(f, |s| {
                    let info = s.host_info.as_mut().expect("info");
                    info.architecture.clear();
                });
            },
            Reason::ScriptsNotAwaited,
            "status.hostinfo",
        ),
        (
            |f| on_config(f, |c| c.annotations_mut().clear()),
            Reason::ScriptsNotAwaited,
            "no annotation",
        ),
    ];
    for (close, reason, word) in gates {
        for live in [None, Some(Live::default())] {
            let closed = facts(|f| {
                f.live = live.clone();
                close(f);
            });
            let Next::Wait(found, why) = decide(&closed) else {
                panic!("{word}: {:?}", decide(&closed));
            };
            assert_eq!(found, reason, "{why}");
            assert!(why.contains(word), "{word}: {why}");
        }
    }
}

#[test]
fn open_gates_lead_from_a_live_look_over_finalizer_and_secret_to_the_status() {
    assert_eq!(decide(&facts(|f| f.live = None)), Next::Look);
    let hold = Next::Hold(vec!["other".to_owned(), INSTALLER_FINALIZER.to_owned()]);
    let other = |f: &mut Facts| {
        Arc::make_mut(&mut f.config).metadata.finalizers = Some(vec!["other".to_owned()]);
    };
    assert_eq!(decide(&facts(other)), hold);
    let Next::Create(secret) = decide(&facts(held)) else {
        panic!("{:?}", decide(&facts(held)));
    };
    let owner = &secret.owner_references()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), (UID, Some(true)));
    assert_eq!(secret.labels()[CLUSTER_NAME_LABEL], "one");
    assert_eq!(secret.type_.as_deref(), Some(SECRET_TYPE));
    assert_eq!(secret.immutable, Some(true));
    let data = secret.data.as_ref().expect("data");
    assert_eq!(data.keys().collect::<Vec<_>>(), ["install", "uninstall"]);
    assert!(data.values().all(|text| !text.0.is_empty()));
    let made = facts(|f| {
        held(f);
        f.live.as_mut().expect("live").secret = Some(its_secret());
    });
    let status = status_of(decide(&made));
    assert!(status.ready);
    let named = status.installation_secret.clone().expect("a reference");
    assert_eq!(
        (named.name, named.namespace),
        (secret.metadata.name, secret.metadata.namespace)
    );
    assert_eq!(named.kind.as_deref(), Some("Secret"));
    let ready = find(&status.conditions, READY).expect("a condition");
    assert!(ready.is_true() && ready.severity.is_none() && ready.reason.is_none());
    assert_eq!(ready.last_transition_time, Some(Time(at(60))));
    assert_eq!(
        (status.observed_generation, &status.failure_reason),
        (Some(1), &None)
    );
    let done = facts(|f| {
        held(f);
        f.live = None;
        Arc::make_mut(&mut f.config).status = Some(status);
    });
    assert_eq!(decide(&done), Next::Rest);
}

/// The Secret may stand without a finalizer, when a person took that off.
#[test]
fn a_secret_that_is_there_gets_its_finalizer_before_a_status_names_it() {
    let made = facts(|f| f.live.as_mut().expect("live").secret = Some(its_secret()));
    assert_eq!(
        decide(&made),
        Next::Hold(vec![INSTALLER_FINALIZER.to_owned()])
    );
}

#[test]
fn the_secret_of_somebody_else_and_one_that_is_not_whole_are_left_alone() {
    type Change = fn(&mut ScriptsSecret);
    fn other(s: &mut ScriptsSecret, key: &str) {
        let script = s.data.get_mut(key).expect("a script");
        script.0.extend(b"true\n");
    }
    let changes: [Change; 8] = [
        |s| s.controller = None,
        |s| s.controller = Some("another config".to_owned()),
        |s| s.type_ = "Opaque".to_owned(),
        |s| s.immutable = false,
        |s| drop(s.data.remove("uninstall")),
        |s| s.data.clear(),
        |s| other(s, "install"),
        |s| other(s, "uninstall"),
    ];
    for change in changes {
        let taken = facts(|f| {
            held(f);
            f.live.as_mut().expect("live").secret = Some(with(its_secret(), change));
        });
        says_once(taken, Reason::SecretTaken, &secret::name(&config()));
    }
}

/// The status says it as an error, on which a person has to act. The next decision writes nothing.
fn says_once(mut facts: Facts, reason: Reason, word: &str) {
    let status = status_of(decide(&facts));
    let ready = find(&status.conditions, READY).expect("a condition");
    assert!(ready.is_false_because(reason.as_str()), "{ready:?}");
    assert_eq!(ready.severity.as_deref(), Some("Error"), "{reason}");
    let message = ready.message.clone().unwrap_or_default();
    assert!(message.contains(word), "{message}");
    let fails = Some((reason.to_string(), message));
    assert_eq!(status.failure_reason.zip(status.failure_message), fails);
    assert!(!status.ready && status.installation_secret.is_none());
    let status = status_of(decide(&facts));
    Arc::make_mut(&mut facts.config).status = Some(status.clone());
    facts.now = Time(at(600));
    let Next::Wait(again, _) = decide(&facts) else {
        panic!("{:?}", decide(&facts));
    };
    assert_eq!(again, reason);
    // What ended the problem takes the failure off.
    let mut mended = self::facts(held);
    Arc::make_mut(&mut mended.config).status = Some(status);
    mended.now = facts.now;
    mended.live.as_mut().expect("live").secret = Some(its_secret());
    let status = status_of(decide(&mended));
    assert!(status.ready && status.failure_reason.is_none() && status.failure_message.is_none());
    let since = find(&status.conditions, READY).and_then(|c| c.last_transition_time.clone());
    assert_eq!(since, Some(Time(at(600))));
}

#[test]
fn a_host_that_nobody_has_scripts_for_gets_none() {
    let odd = facts(|f| {
        held(f);
        let machine = Arc::make_mut(f.machine.as_mut().expect("a machine"));
        let info = machine.status.as_mut().and_then(|s| s.host_info.as_mut());
        info.expect("info").os_image = "Windows Server 2022".to_owned();
    });
    says_once(odd, Reason::HostUnsupported, "Windows Server 2022");
}

#[test]
fn scripts_of_others_are_judged_and_taken_as_they_are() {
    let with_texts = |texts: Option<&[(&str, &str)]>| {
        facts(|f| {
            held(f);
            let config = Arc::make_mut(&mut f.config);
            config.spec.bundle = None;
            config.spec.scripts_from = Some(ScriptsFrom {
                config_map_ref: ObjectNameRef {
                    name: "mine".to_owned(),
                },
            });
            f.live.as_mut().expect("live").texts = texts.map(labels);
        })
    };
    let (good, bad) = ("cp {{.BundleDownloadPath}}/x /\n", "true\n{{ .Other }}\n");
    for (texts, reason, word) in [
        (None, Reason::ScriptsMissing, "ConfigMap mine"),
        (
            Some(&[("install", good)][..]),
            Reason::ScriptsMissing,
            "no uninstall",
        ),
        (
            Some(&[("uninstall", good), ("install", " \n")]),
            Reason::ScriptsMissing,
            "no install",
        ),
        (
            Some(&[("install", bad), ("uninstall", good)]),
            Reason::ScriptRefused,
            "install, line 2",
        ),
        (
            Some(&[("install", good), ("uninstall", bad)]),
            Reason::ScriptRefused,
            "uninstall, line 2",
        ),
    ] {
        says_once(with_texts(texts), reason, word);
    }
    let taken = with_texts(Some(&[
        ("install", good),
        ("uninstall", "true\n"),
        ("more", "x"),
    ]));
    let Next::Create(secret) = decide(&taken) else {
        panic!("{:?}", decide(&taken));
    };
    let data = secret.data.unwrap_or_default().into_iter();
    let data: BTreeMap<_, _> = data.map(|(key, text)| (key, text.0)).collect();
    let expected = [("install", good), ("uninstall", "true\n")];
    let expected = expected.map(|(k, v)| (k.to_owned(), v.as_bytes().to_vec()));
    assert_eq!(data, BTreeMap::from(expected));
}

#[test]
fn the_finalizer_stays_while_a_host_names_the_secret_that_nobody_gave_up() {
    let ending = |hosts: &[&str], lost: Option<&str>, live: bool| {
        facts(|f| {
            held(f);
            let config = Arc::make_mut(&mut f.config);
            delete(config);
            config.finalizers_mut().push("other".to_owned());
            let lost = lost.map(|lost| (LOST_HOST_ANNOTATION.to_owned(), lost.to_owned()));
            config.annotations_mut().extend(lost);
            // The machine is gone, and perhaps its Cluster.
            (f.machine, f.cluster) = (None, None);
            f.hosts = hosts
                .iter()
                .map(|name| ObjectKey::new("hosts", *name))
                .collect();
            f.live = live.then(Live::default);
        })
    };
    let release = Next::Release(vec!["other".to_owned()]);
    assert_eq!(decide(&ending(&[], None, false)), Next::Look);
    assert_eq!(decide(&ending(&[], None, true)), release);
    assert_eq!(decide(&ending(&["a"], Some("hosts/a"), true)), release);
    let all = Some("hosts/b, hosts/a,hosts/c");
    assert_eq!(decide(&ending(&["a", "b"], all, true)), release);
    for (hosts, lost, named) in [
        (&["a"][..], None, "hosts/a"),
        (&["a"], Some("hosts/b"), "hosts/a"),
        (&["a"], Some("true"), "hosts/a"),
        (&["a", "b"], Some("hosts/a"), "hosts/b"),
        (&["a", "b", "c"], Some("hosts/a,hosts/c"), "hosts/b"),
    ] {
        assert_eq!(decide(&ending(hosts, lost, false)), Next::Look);
        let mut held = ending(hosts, lost, true);
        let status = status_of(decide(&held));
        let said = find(&status.conditions, HOST_RELEASED).expect("a condition");
        assert!(said.is_false_because("HostNamesSecret"), "{said:?}");
        let message = said.message.clone().unwrap_or_default();
        assert!(message.contains(&format!("ByoHost {named} ")), "{message}");
        assert_eq!(status.failure_reason, None);
        Arc::make_mut(&mut held.config).status = Some(status);
        assert!(matches!(
            decide(&held),
            Next::Wait(Reason::HostNamesSecret, _)
        ));
    }
    // A pause holds the end too.
    let paused = with(ending(&[], None, true), |f| f.cluster = Some(cluster(true)));
    assert!(matches!(decide(&paused), Next::Wait(Reason::Paused, _)));
    // What was never held, or is released, is left to others.
    let released = with(ending(&["a"], None, true), |f| {
        Arc::make_mut(&mut f.config)
            .finalizers_mut()
            .retain(|name| name == "other");
    });
    assert_eq!(decide(&released), Next::Rest);
}

#[test]
fn no_two_configs_have_one_name_of_a_secret() {
    let named = |name: &str, uid: &str| {
        secret::name(&with(config(), |c| {
            c.metadata.name = Some(name.to_owned());
            c.metadata.uid = Some(uid.to_owned());
        }))
    };
    let first = named("a", "1");
    assert!(first.starts_with("a-") && first.len() == 10, "{first}");
    assert_eq!(first, named("a", "1"));
    // The same name later, and another name.
    assert_ne!(first, named("a", "2"));
    assert_ne!(first, named("b", "1"));
    // The longest name, cut where a dot is.
    let long = format!("{}.{}", "a".repeat(243), "b".repeat(9));
    let cut = named(&long, "1");
    assert!(
        cut.len() <= 253 && cut.contains("a-") && !cut.contains(".-"),
        "{cut}"
    );
}
