use super::*;
use crate::{
    domain::hardware::{DiskController, Firmware, NetworkAdapter},
    testing::{NAMESPACE, agent_on, at, buffered, with},
};

fn hardware() -> Hardware {
    Hardware {
        guest_id: "rhel9_64Guest".to_owned(),
        firmware: Firmware::Efi,
        num_cpus: 4,
        memory_mib: 16384,
        disk_gib: 100,
        eagerly_scrub: false,
        disk_controller: DiskController::ParaVirtual,
        network_adapter: NetworkAdapter::Vmxnet3,
    }
}

fn own(name: &str) -> Reservation {
    Reservation {
        pool: "taker".to_owned(),
        name: name.to_owned(),
    }
}

fn reserved(host: Offer, by: &Reservation) -> Offer {
    with(host, |h| {
        let agent = Arc::make_mut(h.agent.as_mut().expect("an Agent"));
        let key = RESERVED_FOR_ANNOTATION.to_owned();
        agent.annotations_mut().insert(key, by.to_string());
    })
}

/// A host that was made at that second.
fn host(name: &str, made: i64) -> Offer {
    let child = with(buffered(name), |c| {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(made));
        c.metadata.creation_timestamp = Some(time);
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a record").template = Some(template::record(&hardware()));
    });
    Offer {
        agent: Some(Arc::new(agent_on(&child))),
        child: ManagedVm::read(Arc::new(child)),
        refusal: None,
    }
}

fn lender(hosts: Vec<Offer>) -> Lender {
    Lender {
        key: ObjectKey::new(NAMESPACE, "lender"),
        refusal: None,
        hosts,
    }
}

#[test]
fn pools_lend_only_with_one_source_one_secret_and_a_grant() {
    let side = |namespace: &str| Side {
        namespace: namespace.to_owned(),
        infra_env: Some(ObjectKey::new("hw", "infra")),
        secret: Some(ObjectKey::new("hw", "vcenter")),
    };
    let (taker, other) = (side("a"), side("b"));
    assert_eq!(admits(&taker, &side("a"), None), None, "no grant is needed");
    assert_eq!(admits(&taker, &other, Some("x, a")), None);
    for grant in [None, Some(""), Some("b")] {
        let refusal = admits(&taker, &other, grant);
        assert!(
            matches!(&refusal, Some(Refusal::NotGranted(s)) if s.contains("namespace b")),
            "{refusal:?}"
        );
        assert!(refusal.is_some_and(|r| r.is_lasting()));
    }
    let moved = with(side("a"), |s| {
        s.infra_env = Some(ObjectKey::new("hw", "other"));
    });
    assert_eq!(admits(&taker, &moved, None), Some(Refusal::OtherInfraEnv));
    let gone = with(side("a"), |s| s.infra_env = None);
    assert_eq!(admits(&gone, &gone, None), Some(Refusal::OtherInfraEnv));
    let keyed = with(side("a"), |s| s.secret = Some(ObjectKey::new("hw", "two")));
    assert_eq!(
        admits(&taker, &keyed, None),
        Some(Refusal::OtherCredentials)
    );
    let refused = with(side("a"), |s| s.secret = None);
    assert_eq!(
        admits(&refused, &refused, None),
        Some(Refusal::OtherCredentials)
    );
}

#[test]
fn before_its_mark_is_changed_a_host_is_taken_awaited_or_let_go_of() {
    let host = host("a", 1);
    let source = Source {
        key: host.child.key.clone(),
        uid: host.child.uid.clone(),
        attempt: 1,
    };
    let (mine, other) = (own("w"), own("another"));
    let free = host.agent.clone().expect("an Agent");
    let changed = |f: fn(&mut Agent)| with(free.as_ref().clone(), f);
    let labelled = |key: &str| {
        with(free.as_ref().clone(), |a| {
            a.labels_mut().insert(key.to_owned(), "x".to_owned());
        })
    };
    let reserved = reserved(host.clone(), &other).agent.expect("an Agent");
    let claimed = labelled(agent_forge_crds::external::agent::AGENT_MACHINE_REF_LABEL);
    let pinned = labelled(AGENT_MACHINE_LABEL);
    let bound = changed(|a| {
        a.spec.cluster_deployment_name = Some(agent_forge_crds::external::NamespacedName {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
        });
    });
    let unknown = changed(|a| {
        let status = a.status.get_or_insert_default();
        let info = status.debug_info.get_or_insert_default();
        info.state = Some("a-state-of-tomorrow".to_owned());
    });
    let base = Taken {
        lender: Some(&host.child),
        source: &source,
        granted: true,
        held: None,
        marks: VmMarks::default(),
        disk: None,
        agent: Some(&free),
        own: &mine,
        is_own_claim: false,
    };
    let word = |f: Taken<'_>| match verdict(&f) {
        Verdict::Take => "take",
        Verdict::Wait(_) => "wait",
        Verdict::LetGo(_) => "let go",
    };
    let marks = |paused, skip_delete| VmMarks {
        paused,
        skip_delete,
    };
    assert_eq!(word(base.clone()), "take");
    for (f, expected) in [
        (
            Taken {
                lender: None,
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                granted: false,
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                marks: marks(false, true),
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                disk: Some("its disk is not new".to_owned()),
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                marks: marks(true, false),
                ..base.clone()
            },
            "wait",
        ),
        (
            Taken {
                held: Some("a veto".to_owned()),
                ..base.clone()
            },
            "wait",
        ),
        (
            Taken {
                agent: None,
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                agent: Some(&reserved),
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                agent: Some(&claimed),
                ..base.clone()
            },
            "let go",
        ),
        (
            Taken {
                agent: Some(&claimed),
                is_own_claim: true,
                ..base.clone()
            },
            "wait",
        ),
        (
            Taken {
                agent: Some(&pinned),
                ..base.clone()
            },
            "wait",
        ),
        (
            Taken {
                agent: Some(&bound),
                ..base.clone()
            },
            "wait",
        ),
        (
            Taken {
                agent: Some(&unknown),
                ..base.clone()
            },
            "wait",
        ),
    ] {
        assert_eq!(word(f.clone()), expected, "{f:?}");
    }
}

#[test]
fn more_of_everything_suits_and_less_or_another_kind_does_not() {
    type Case = (fn(&mut Hardware), Option<&'static str>);
    let edits: [Case; 8] = [
        (|_| {}, None),
        (|h| h.num_cpus = 8, None),
        (|h| h.memory_mib = 32768, None),
        (|h| h.disk_gib = 200, None),
        (|h| h.num_cpus = 2, Some("numCPUs: want 4, have 2")),
        (|h| h.memory_mib = 1, Some("memoryMiB: want 16384, have 1")),
        (|h| h.disk_gib = 50, Some("diskGiB: want 100, have 50")),
        (
            |h| h.firmware = Firmware::Bios,
            Some("firmware: want efi, have bios"),
        ),
    ];
    for (edit, words) in edits {
        let refusal = suits(&with(hardware(), edit), &hardware());
        let said = refusal.map(|r| r.to_string());
        assert_eq!(
            said.as_deref(),
            words.map(|w| format!("its hardware: {w}")).as_deref()
        );
    }
}

#[test]
fn the_oldest_host_that_nobody_else_gets_is_chosen() {
    let (old, young) = (host("old", 100), host("young", 200));
    let all = [lender(vec![young.clone(), old.clone()])];
    let chosen = |all: &[Lender], taken: &[&str]| {
        let taken = taken.iter().map(|uid| (*uid).to_owned()).collect();
        let host = choose(all, &own("w"), &hardware(), &taken);
        host.map(|h| h.child.key.name.clone())
    };
    assert_eq!(chosen(&all, &[]).as_deref(), Some("old"));
    assert_eq!(chosen(&all, &["va-old"]).as_deref(), Some("young"));
    assert_eq!(chosen(&all, &["va-old", "va-young"]), None);
    // What was reserved before a crash is taken up again.
    let mine = [lender(vec![
        old.clone(),
        reserved(young.clone(), &own("w")),
    ])];
    assert_eq!(chosen(&mine, &[]).as_deref(), Some("young"));
    let theirs = [lender(vec![reserved(old.clone(), &own("another")), young])];
    assert_eq!(chosen(&theirs, &[]).as_deref(), Some("young"));
    let refused = [with(lender(vec![old.clone()]), |l| {
        l.refusal = Some(Refusal::AsksItself);
    })];
    assert_eq!(chosen(&refused, &[]), None);
    let held = [lender(vec![with(old.clone(), |h| {
        h.refusal = Some(Refusal::Held);
    })])];
    assert_eq!(chosen(&held, &[]), None);
    let large = with(hardware(), |h| h.num_cpus = 5);
    let none = BTreeSet::new();
    let all = [lender(vec![old])];
    assert!(choose(&all, &own("w"), &large, &none).is_none());
}

/// Fifty pools want the one host. Each chooses from the same view; the API server takes the first reservation only.
#[test]
fn of_fifty_that_choose_one_host_one_gets_it() {
    let mut host = host("one", 100);
    let mut winners = Vec::new();
    let seen = host.clone();
    for n in 0..50 {
        let own = own(&format!("w-{n}"));
        let view = [lender(vec![seen.clone()])];
        let chosen = choose(&view, &own, &hardware(), &BTreeSet::new()).expect("it is free");
        let patch = crate::ports::cluster::AgentPatch::of(chosen.agent.as_deref().expect("seen"));
        let live = host.agent.clone().expect("an Agent");
        if patch.is_made_from(&live) {
            host = reserved(host, &own);
            let agent = Arc::make_mut(host.agent.as_mut().expect("an Agent"));
            agent.metadata.resource_version = Some(format!("after-{n}"));
            winners.push(own);
        }
    }
    assert_eq!(winners, [own("w-0")]);
    // All the others see it reserved from then on.
    let view = [lender(vec![host])];
    for n in 1..50 {
        let own = own(&format!("w-{n}"));
        assert!(choose(&view, &own, &hardware(), &BTreeSet::new()).is_none());
    }
}
