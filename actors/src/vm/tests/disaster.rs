//! Disaster recovery: a hub restored without status, with new uids, or from an older snapshot, and two hubs on one
//! vCenter. No VM that may serve is touched, and no second one is made beside it. The status says what a person must
//! decide.

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent},
    conditions::Reason,
    names::RESTORED_FROM_ANNOTATION,
};
use kube::ResourceExt;

use crate::{
    domain::{identity::BiosUuid, marker::Marker},
    ports::{
        effect::EffectKind as E,
        vcenter::{PowerState, VmObservation},
    },
    testing::{self, CLUSTER_ID, child, child_with_vm, intent, marker, running, shown, with},
    vm::testing::Bench,
};

/// A node that serves, as vCenter shows it.
fn node(of: &VsphereAgent, marker: Marker) -> VmObservation {
    with(shown(of, PowerState::On), |v| {
        v.tools = Some("guestToolsRunning".to_owned());
        v.guest_address = Some("192.0.2.7".to_owned());
        v.guest_host = Some("a".to_owned());
        v.marker = Some(marker);
    })
}

/// Effects that change a VM or make one.
const TOUCHES: [E; 6] = [
    E::CreateVm,
    E::Reconfigure,
    E::PowerOn,
    E::PowerOff,
    E::Destroy,
    E::AttachTags,
];

struct Case {
    name: &'static str,
    /// The VsphereAgent as it was restored.
    child: VsphereAgent,
    /// What runs in vCenter.
    vms: Vec<VmObservation>,
    /// What the VsphereAgent waits on in the end. `None`: nothing.
    says: Option<Reason>,
    /// At most a create is tried that finds the name taken.
    creates: bool,
}

/// As `agent-forge orphans` tells a person to do.
fn linked(child: &mut VsphereAgent) {
    let before = marker(&testing::child("a"), 1);
    let value = format!("{}/{}", before.uid, before.attempt);
    child
        .annotations_mut()
        .insert(RESTORED_FROM_ANNOTATION.to_owned(), value);
}

fn cases() -> Vec<Case> {
    let ours = child_with_vm("a");
    let serving = || node(&ours, marker(&ours, 1));
    let reborn = |object: VsphereAgent| {
        with(object, |c| c.metadata.uid = Some("restored".to_owned()));
        with(child("a"), |c| c.metadata.uid = Some("restored".to_owned()))
    };
    let recorded = |change: fn(&mut VmStatus)| {
        with(ours.clone(), |c| {
            let status = c.status.get_or_insert_default();
            change(status.vm.get_or_insert_default());
        })
    };
    let second = with(ours.clone(), |c| {
        let vm = with(running(c), |v| {
            v.attempt = Some(2);
            v.bios_uuid = intent(c, 2).bios_uuid;
        });
        c.status.get_or_insert_default().vm = Some(vm);
    });
    let of_second = with(node(&second, marker(&second, 2)), |v| {
        v.bios_uuid = second
            .status
            .as_ref()
            .and_then(|s| s.vm.as_ref()?.bios_uuid.as_deref())
            .and_then(BiosUuid::parse);
    });
    vec![
        Case {
            name: "all restored as it was",
            child: ours.clone(),
            vms: vec![serving()],
            says: None,
            creates: false,
        },
        Case {
            name: "without status, same uid: the uuid follows from it, the name leads to the VM",
            child: child("a"),
            vms: vec![serving()],
            says: Some(Reason::AgentDiscoveryExpired),
            creates: true,
        },
        Case {
            name: "without status, at a later attempt than the first",
            child: child("a"),
            vms: vec![of_second.clone()],
            says: Some(Reason::NameConflict),
            creates: true,
        },
        Case {
            name: "without status, new uid",
            child: reborn(ours.clone()),
            vms: vec![serving()],
            says: Some(Reason::NameConflict),
            creates: true,
        },
        Case {
            name: "with status, new uid",
            child: with(ours.clone(), |c| {
                c.metadata.uid = Some("restored".to_owned());
            }),
            vms: vec![serving()],
            says: None,
            creates: false,
        },
        Case {
            name: "with status, new uid, and a person says which one it had",
            child: with(ours.clone(), |c| {
                c.metadata.uid = Some("restored".to_owned());
                linked(c);
            }),
            vms: vec![serving()],
            says: None,
            creates: false,
        },
        Case {
            name: "without status, new uid, and a person says which one it had",
            child: with(reborn(ours.clone()), linked),
            vms: vec![serving()],
            says: Some(Reason::AgentDiscoveryExpired),
            creates: true,
        },
        Case {
            name: "from before its Agent registered",
            child: recorded(|v| {
                v.discovery_deadline = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                    testing::at(0),
                ));
            }),
            vms: vec![serving()],
            says: Some(Reason::AgentDiscoveryExpired),
            creates: false,
        },
        Case {
            name: "from before the VM was there",
            child: recorded(|v| {
                v.moref = None;
                v.instance_uuid = None;
                v.power_state = None;
                v.mac_addresses.clear();
            }),
            vms: vec![serving()],
            says: Some(Reason::AgentDiscoveryExpired),
            creates: false,
        },
        Case {
            name: "of another hub with the same names",
            child: child("a"),
            vms: vec![with(serving(), |v| {
                v.marker = Some(Marker {
                    cluster_id: "another".to_owned(),
                    ..marker(&child("a"), 1)
                });
                v.bios_uuid = Some(BiosUuid::derive("another", "a", 1));
            })],
            says: Some(Reason::NameConflict),
            creates: true,
        },
        Case {
            name: "recorded under another cluster id",
            child: with(ours.clone(), |c| {
                c.status.get_or_insert_default().cluster_id = Some("another".to_owned());
            }),
            vms: vec![serving()],
            says: Some(Reason::ClusterIdChanged),
            creates: false,
        },
    ]
}

#[tokio::test]
async fn no_disaster_touches_a_vm_that_may_serve() {
    for case in cases() {
        let mut bench = Bench::new();
        bench.hub.with(|o| o.child = Some(case.child.clone()));
        bench.site.with(|i| {
            i.vms = case.vms.clone();
            i.names_are_unique = true;
        });
        // A day, with a restart of the operator in the middle.
        for minute in (0..1440).step_by(5) {
            if minute == 700 {
                bench.restart();
            }
            bench.pass().await;
            bench.turn(std::time::Duration::from_secs(300));
        }
        let told = bench.site.with(|i| i.effects.clone());
        let touched: Vec<E> = told.into_iter().filter(|e| TOUCHES.contains(e)).collect();
        let allowed = |e: &E| case.creates && *e == E::CreateVm;
        assert!(touched.iter().all(allowed), "{}: {touched:?}", case.name);
        let left = bench.site.with(|i| i.vms.clone());
        assert_eq!(left, case.vms, "{}", case.name);
        let says = bench.waits_on();
        assert_eq!(says, case.says, "{}", case.name);
        assert_eq!(bench.child().name_any(), "a");
        let cluster = bench.status().cluster_id;
        assert!(cluster.is_none_or(|c| c == CLUSTER_ID || c == "another"));
    }
}
