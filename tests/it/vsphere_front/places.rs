//! Placement: names in the spec become a place, or an error that names the field.

use std::collections::BTreeSet;

use agent_forge_actors::{
    placement::choice::EarlierChoices,
    ports::vcenter::{Fault, PlaceRequest},
};
use agent_forge_lab::{parts::vcenter::VCenterOptions, patience::HANG};
use serde_json::json;

use super::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn names_are_understood_as_people_write_them() {
    let (world, vc) = connected(quick()).await;
    let base = place(&*vc).await.unwrap();
    assert_eq!(base.datacenter.kind, "Datacenter");
    assert_eq!(base.folder.kind, "Folder");
    assert_eq!(base.resource_pool.kind, "ResourcePool");
    assert!(base.datastore.0.starts_with("ds-"), "{base:?}");
    assert_eq!(base.host, None, "DRS chooses");
    let folders = world.inventory().await["folders"].clone();
    assert!(
        folders
            .as_array()
            .unwrap()
            .contains(&json!("/dc1/vm/demo/workers")),
        "{folders}"
    );

    let change = |change: &dyn Fn(&mut PlaceRequest)| {
        let mut request = place_request();
        change(&mut request);
        request
    };
    for request in [
        change(&|r| r.datacenter = "/dc1".into()),
        change(&|r| r.folder = "/dc1/vm/demo/workers/".into()),
        change(&|r| r.resource_pool = "cluster".into()),
        change(&|r| r.resource_pool = "/dc1/host/cluster/Resources".into()),
        change(&|r| r.datastore_cluster = "/dc1/datastore/workload-datastore-cluster".into()),
        change(&|r| r.network = "/dc1/network/VM Network".into()),
    ] {
        let place = place_as(&*vc, &request)
            .await
            .unwrap_or_else(|e| panic!("{request:?}: {e}"));
        assert_eq!(
            (&place.folder, &place.resource_pool),
            (&base.folder, &base.resource_pool)
        );
    }
    // A datastore by its name alone, although it is part of a cluster; and the datacenter's own VM folder.
    let request = change(&|r| {
        r.datastore_cluster = "ds-1".into();
        r.folder = String::new();
    });
    let place = place_as(&*vc, &request).await.unwrap();
    assert_eq!(place.datastore.0, "ds-1");
    assert_ne!(place.folder, base.folder);
    assert_eq!(
        world.calls().await["CreateFolder"],
        2,
        "demo and workers, once each"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn promised_space_spreads_machines_and_fullness_is_told() {
    let (world, vc) = connected(quick()).await;
    let gib = 1_u64 << 30;
    for (name, free) in [("ds-0", 300), ("ds-1", 250), ("ds-2", 200)] {
        world
            .post(
                &format!("datastores/{name}"),
                json!({"freeBytes": free * gib}),
            )
            .await;
    }
    let mut request = place_request();
    request.bytes = 120 * gib;
    let mut chosen = BTreeSet::new();
    let mut earlier = EarlierChoices::default();
    for _ in 0..5 {
        let place = place_beside(&*vc, &request, &earlier).await.unwrap();
        *earlier
            .reserved
            .entry(place.datastore.1.id.clone())
            .or_default() += request.bytes;
        chosen.insert(place.datastore.0);
    }
    // Two, two and one disks fit, and not one more.
    assert_eq!(chosen.len(), 3, "{chosen:?}");
    let e = place_beside(&*vc, &request, &earlier).await.unwrap_err();
    assert!(matches!(e.fault(), Some(Fault::NoDiskSpace(_))), "{e}");
    assert!(e.message.contains("120 GiB"), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn datastores_that_are_away_are_not_chosen() {
    let (world, vc) = connected(quick()).await;
    world
        .post("datastores/ds-0", json!({"maintenance": true}))
        .await;
    world
        .post("datastores/ds-2", json!({"accessible": false}))
        .await;
    for _ in 0..3 {
        let place = place(&*vc).await.unwrap();
        assert_eq!(place.datastore.0, "ds-1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_drs_hosts_take_turns() {
    let world = world(VCenterOptions {
        drs: false,
        ..quick()
    })
    .await;
    let vc = world.connect().await;
    upload_iso(&*vc).await;
    let mut hosts = BTreeSet::new();
    let mut earlier = EarlierChoices::default();
    for n in 0..3 {
        earlier.hosts_named = n;
        let place = place_beside(&*vc, &place_request(), &earlier)
            .await
            .unwrap();
        let (host, _) = place.host.clone().expect("somebody has to choose");
        let vm = create_vm(&format!("node-{n}"), &place);
        made(&*vc, &vm).await.unwrap();
        let vms = world.vms().await;
        assert_eq!(find(&vms, &format!("node-{n}"))["host"], host.as_str());
        hosts.insert(host);
    }
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    // A datastore that only one host has decides the host.
    let mut request = place_request();
    request.datastore_cluster = "local-only".into();
    for _ in 0..3 {
        let place = place_as(&*vc, &request).await.unwrap();
        assert_eq!(place.host.unwrap().0, "host-0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_placements_at_once_share_their_look_ups() {
    let (world, vc) = connected(quick()).await;
    world.forget_calls().await;
    let all = (0..30).map(|_| {
        let vc = vc.clone();
        tokio::spawn(async move { place(&*vc).await })
    });
    let mut folders = BTreeSet::new();
    for place in futures::future::join_all(all).await {
        folders.insert(place.unwrap().unwrap().folder.id);
    }
    assert_eq!(folders.len(), 1);
    let mut calls = world.calls().await;
    let recommendations = calls.remove("RecommendDatastores").unwrap_or(0);
    let created = calls.remove("CreateFolder").unwrap_or(0);
    let rest: u64 = calls.values().sum();
    println!(
        "30 placements: {recommendations} recommendations, {created} CreateFolder, {rest} others"
    );
    assert_eq!(recommendations, 1, "one burst, one answer");
    assert_eq!(created, 2, "each missing folder is created once");
    assert!(rest <= 20, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moved_is_looked_up_anew() {
    let (world, vc, place) = placed(quick()).await;
    let mut gone = create_vm("node-1", &place);
    gone.place.folder.id = "group-v999999".into();
    let e = create(&*vc, &gone).await.unwrap_err();
    assert!(
        matches!(e.fault(), Some(Fault::ManagedObjectNotFound(_))),
        "{e}"
    );
    world.forget_calls().await;
    tokio::time::timeout(HANG, super::support::place(&*vc))
        .await
        .unwrap()
        .unwrap();
    assert!(
        world.calls().await.contains_key("FindByInventoryPath"),
        "the cache was dropped"
    );
}
