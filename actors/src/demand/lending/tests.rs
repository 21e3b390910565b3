use std::sync::Arc;

use super::*;
use crate::{
    domain::hardware::{DiskController, Firmware, NetworkAdapter},
    testing::{NAMESPACE, at, buffered, with},
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

/// A host that was made at that second.
fn host(name: &str, made: i64) -> Offer {
    let child = with(buffered(name), |c| {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(made));
        c.metadata.creation_timestamp = Some(time);
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a record").template = Some(template::record(&hardware()));
    });
    Offer {
        agents: BTreeSet::new(),
        child: ManagedVm::read(Arc::new(child)),
        left: None,
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
    let none = |_: &str| None;
    assert_eq!(admits(&taker, &side("a"), none), None, "no grant is needed");
    let grants = |of: &str| match of {
        "a" => Some("b".to_owned()),
        _ => Some("x, a".to_owned()),
    };
    assert_eq!(admits(&taker, &other, grants), None);
    for (here, there, refusing) in [
        (Some("b"), None, "namespace b"),
        (Some("b"), Some("b"), "namespace b"),
        (Some(""), Some("a"), "namespace a"),
        (None, Some("*"), "namespace a"),
    ] {
        let grant = |of: &str| if of == "a" { here } else { there }.map(str::to_owned);
        let refusal = admits(&taker, &other, grant);
        assert!(
            matches!(&refusal, Some(Refusal::NotGranted(s)) if s.starts_with(refusing)),
            "{refusal:?}"
        );
        assert!(refusal.is_some_and(|r| r.is_lasting()));
    }
    let moved = with(side("a"), |s| {
        s.infra_env = Some(ObjectKey::new("hw", "other"));
    });
    assert_eq!(admits(&taker, &moved, none), Some(Refusal::OtherInfraEnv));
    let gone = with(side("a"), |s| s.infra_env = None);
    assert_eq!(admits(&gone, &gone, none), Some(Refusal::OtherInfraEnv));
    let keyed = with(side("a"), |s| s.secret = Some(ObjectKey::new("hw", "two")));
    assert_eq!(
        admits(&taker, &keyed, none),
        Some(Refusal::OtherCredentials)
    );
    let refused = with(side("a"), |s| s.secret = None);
    assert_eq!(
        admits(&refused, &refused, none),
        Some(Refusal::OtherCredentials)
    );
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
fn the_oldest_host_that_suits_comes_first() {
    let (old, young) = (host("old", 100), host("young", 200));
    let all = [lender(vec![young.clone(), old.clone()])];
    let chosen = |all: &[Lender], wanted: &Hardware| -> Vec<String> {
        let hosts = for_pool(all).into_iter().rev();
        let hosts = hosts.filter(|h| refuses(h, wanted).is_none());
        hosts.map(|h| h.child.key.name.clone()).collect()
    };
    assert_eq!(chosen(&all, &hardware()), ["old", "young"]);
    let large = with(hardware(), |h| h.num_cpus = 5);
    assert_eq!(chosen(&all, &large), [""; 0]);
    let held = with(old.clone(), |h| h.refusal = Some(Refusal::Held));
    assert_eq!(chosen(&[lender(vec![held, young])], &hardware()), ["young"]);
    let refused = with(lender(vec![old]), |l| {
        l.refusal = Some(Refusal::AsksItself);
    });
    assert_eq!(chosen(&[refused], &hardware()), [""; 0]);
}
