use std::sync::Arc;

use super::*;
use crate::{
    domain::names::MoRef,
    placement::request::place_request,
    ports::vcenter::ComputeTopology,
    testing::{self, POOL},
};

fn host(id: &str, networks: &[&str]) -> Host {
    Host {
        moref: MoRef::new("HostSystem", id),
        name: id.to_owned(),
        connected: true,
        in_maintenance: false,
        networks: networks.iter().map(|n| MoRef::new("Network", *n)).collect(),
    }
}

fn store(id: &str, free: u64, hosts: &[&str]) -> Datastore {
    Datastore {
        moref: MoRef::new("Datastore", id),
        name: id.to_owned(),
        free,
        accessible: true,
        in_maintenance: false,
        hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        storage_drs: true,
    }
}

/// A cluster without DRS; the network is `n`.
fn candidates(
    hosts: Vec<Host>,
    datastores: Vec<Datastore>,
    isos: Vec<Datastore>,
) -> PlaceCandidates {
    let compute = ComputeTopology {
        resource_pool: MoRef::new("ResourcePool", "p"),
        chooses_host: false,
        hosts,
    };
    PlaceCandidates {
        datacenter: MoRef::new("Datacenter", "dc"),
        compute: Arc::new(compute),
        network: MoRef::new("Network", "n"),
        store: MoRef::new("StoragePod", "pod"),
        datastores: Arc::new(datastores),
        iso_datastores: Arc::new(isos),
    }
}

fn on_one_host(datastores: Vec<Datastore>) -> PlaceCandidates {
    candidates(
        vec![host("h1", &["n"])],
        datastores,
        vec![store("i", 0, &["h1"])],
    )
}

fn away(store: Datastore) -> Datastore {
    Datastore {
        accessible: false,
        ..store
    }
}

fn in_maintenance(store: Datastore) -> Datastore {
    Datastore {
        in_maintenance: true,
        ..store
    }
}

#[test]
fn the_field_to_blame_is_named() {
    let hosts = || vec![host("h1", &["n"]), host("h2", &[])];
    let on = |id: &str| vec![store("d", 1, &[id])];
    let cut_off = |h: Host| Host {
        connected: false,
        ..h
    };
    let resting = |h: Host| Host {
        in_maintenance: true,
        ..h
    };
    let table = [
        (hosts(), on("h1"), on("h1"), None),
        (hosts(), on("h1"), on("h9"), Some("isoDatastore")),
        (hosts(), on("h9"), on("h1"), Some("datastoreCluster")),
        (
            hosts(),
            on("h1").into_iter().map(away).collect(),
            on("h1"),
            Some("datastoreCluster"),
        ),
        (
            hosts(),
            on("h1").into_iter().map(in_maintenance).collect(),
            on("h1"),
            Some("datastoreCluster"),
        ),
        (
            vec![host("h1", &["x"])],
            on("h1"),
            on("h1"),
            Some("network"),
        ),
        // Each exists somewhere, but never together.
        (hosts(), on("h1"), on("h2"), Some("isoDatastore")),
        (
            hosts().into_iter().map(cut_off).collect(),
            on("h1"),
            on("h1"),
            Some("resourcePool"),
        ),
        (
            hosts().into_iter().map(resting).collect(),
            on("h1"),
            on("h1"),
            Some("resourcePool"),
        ),
    ];
    let request = place_request(&testing::pool(POOL)).expect("valid");
    for (hosts, datastores, isos, blamed) in table {
        let candidates = candidates(hosts, datastores, isos);
        match (Fitting::of(&candidates), blamed) {
            (Ok(fitting), None) => assert_eq!(fitting.hosts.len(), 1),
            (Err(why), Some(wanted)) => {
                let e = why.error(&request);
                assert!(
                    matches!(e.kind, VcErrorKind::Unresolved { field, .. } if field == wanted),
                    "{e}"
                );
            }
            (got, wanted) => panic!("{got:?} instead of {wanted:?}"),
        }
    }
}

#[test]
fn recommendations_count_only_where_the_promised_space_leaves_room() {
    let all = ["a", "b", "c"].into_iter().zip([100, 90, 80]);
    let all = all.map(|(id, free)| store(id, free, &["h1"])).collect();
    let candidates = on_one_host(all);
    let fitting = Fitting::of(&candidates).expect("fits");
    let rated = |id: &str, rating: i32| Recommendation {
        datastore: MoRef::new("Datastore", id),
        rating,
    };
    let recommended = [rated("c", 2), rated("b", 5)];
    let earlier = |reserved: &[(&str, u64)]| EarlierChoices {
        reserved: reserved
            .iter()
            .map(|(id, b)| ((*id).to_owned(), *b))
            .collect(),
        ..EarlierChoices::default()
    };
    let none = earlier(&[]);
    let pick = |rec: &[Recommendation], earlier: &EarlierChoices, bytes| {
        let chosen = fitting.choose(bytes, rec, earlier);
        chosen.map(|(d, _)| d.moref.id.as_str())
    };
    assert_eq!(pick(&recommended, &none, 50), Ok("b"));
    assert_eq!(pick(&[], &none, 50), Ok("a"));
    let equal = [rated("c", 3), rated("b", 3)];
    assert_eq!(pick(&equal, &none, 50), Ok("b"));
    let promised = earlier(&[("a", 30), ("b", 60)]);
    assert_eq!(pick(&equal, &promised, 50), Ok("c"));
    assert_eq!(pick(&recommended, &promised, 50), Ok("c"));
    assert_eq!(pick(&[], &promised, 50), Ok("c"));
    assert_eq!(pick(&recommended, &none, 95), Ok("a"));
    let full = |floor| Err(NoPlace::Full { best: 100, floor });
    assert_eq!(pick(&recommended, &none, 101), full(0));
    // The best rated one would get too full.
    let floor = |floor| EarlierChoices {
        floor,
        ..earlier(&[])
    };
    assert_eq!(pick(&recommended, &floor(40), 50), Ok("b"));
    assert_eq!(pick(&recommended, &floor(41), 50), Ok("a"));
    assert_eq!(pick(&recommended, &floor(51), 50), full(51));
    assert_eq!(pick(&recommended, &floor(u64::MAX), 50), full(u64::MAX));
}

#[test]
fn a_full_cluster_says_how_much_is_missing() {
    let request = place_request(&testing::pool(POOL)).expect("valid");
    let full = |floor| NoPlace::Full {
        best: 5 << 30,
        floor,
    };
    let e = full(0).error(&request);
    assert!(!e.message.contains("--min-free"), "{e}");
    let kept = full(7 << 30).error(&request);
    let words = "; --min-free-datastore-gib keeps 7 GiB free";
    assert!(kept.message.ends_with(words), "{kept}");
    assert!(matches!(e.fault(), Some(Fault::NoDiskSpace(_))), "{e}");
    let wanted = format!("{} GiB left", request.bytes.div_ceil(1 << 30));
    assert!(e.message.contains(&wanted), "{e}");
    assert!(
        e.message.contains("(the emptiest one has 5 GiB free)"),
        "{e}"
    );
}

#[test]
fn storage_drs_is_asked_only_where_it_has_something_to_choose() {
    let two = || vec![store("a", 1, &["h1"]), store("b", 1, &["h1"])];
    let asked = |candidates: &PlaceCandidates| {
        Fitting::of(candidates)
            .expect("fits")
            .wants_recommendation()
    };
    assert!(asked(&on_one_host(two())));
    let mut one_left = two();
    one_left[0] = away(one_left[0].clone());
    assert!(!asked(&on_one_host(one_left)));
    let mut off = two();
    off.iter_mut().for_each(|d| d.storage_drs = false);
    assert!(!asked(&on_one_host(off)));
    let mut single = on_one_host(two());
    single.store = MoRef::new("Datastore", "a");
    assert!(!asked(&single));
}

#[test]
fn hosts_take_turns_only_where_no_drs_chooses() {
    let hosts = ["h1", "h2", "h3"].map(|id| host(id, &["n"])).to_vec();
    let isos = vec![store("i", 0, &["h1", "h2", "h3"])];
    let mut all = candidates(hosts, vec![store("d", 1, &["h1", "h2"])], isos);
    let named = |all: &PlaceCandidates, hosts_named: usize| {
        let earlier = EarlierChoices {
            hosts_named,
            ..EarlierChoices::default()
        };
        let fitting = Fitting::of(all).expect("fits");
        let (_, host) = fitting.choose(1, &[], &earlier).expect("room");
        host.map(|h| h.name.clone())
    };
    let picks = [0, 1, 2, 3].map(|turn| named(&all, turn).expect("a host"));
    assert_eq!(picks, ["h1", "h2", "h1", "h2"]);
    // For example, the other hosts of that cluster are in maintenance.
    let single = on_one_host(vec![store("d", 1, &["h1"])]);
    assert_eq!(named(&single, 7).as_deref(), Some("h1"));
    let mut compute = (*all.compute).clone();
    compute.chooses_host = true;
    all.compute = Arc::new(compute);
    assert_eq!(named(&all, 0), None);
}
