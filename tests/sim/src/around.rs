//! Faults around a point: they change the world, or an actor, at the moment of an effect.

mod holds;

use std::time::Duration;

use agent_forge_actors::supervisor::SupervisorMsg;
use base64::Engine as _;
use serde_json::{Value, json};

use crate::{
    kube::{kind, store::name_of},
    plan::Fault,
    process::{LEASE_NAMESPACE, Process, Surroundings},
    world::SECRET,
};

/// Carries the fault out. `key` is the object that the effect at that point is for.
pub async fn happen(around: &Surroundings, process: &mut Process, fault: Fault, key: &str) {
    let director = &around.director;
    match fault {
        Fault::ActorKilled | Fault::ActorPanics => {
            let which = if key.contains('/') {
                vec![
                    format!("vm/{key}"),
                    format!("pool/{key}"),
                    "iso_cache/".to_owned(),
                    "byoh".to_owned(),
                ]
            } else {
                vec!["sessions".to_owned()]
            };
            let Some(supervisor) = process.supervisor().await else {
                return;
            };
            for which in which {
                let kill = |reply| SupervisorMsg::Kill {
                    which,
                    panic: fault == Fault::ActorPanics,
                    reply,
                };
                let hit = supervisor.call(kill, Some(Duration::from_secs(5))).await;
                if let Ok(ractor::rpc::CallResult::Success(names)) = hit {
                    director.line(|| format!("hit {names:?}"));
                }
            }
        }
        Fault::LeaseTaken => {
            let name = (LEASE_NAMESPACE.to_owned(), "agent-forge".to_owned());
            let taken = json!({"spec": {"holderIdentity": "somebody-else"}});
            // When the Lease does not exist yet, there is no leader to replace.
            let _ = around.api.merge(&kind("leases"), &name, &taken);
        }
        Fault::WatchesLag20s => director.lag(fault.lasts()),
        Fault::WatchesExpire => around.api.compact(),
        Fault::SessionsLost => around.vcenter.forget_sessions(),
        Fault::VcenterDown5s | Fault::VcenterDown5m | Fault::VcenterDown2h => {
            director.take_vcenter(fault.lasts());
        }
        Fault::VcenterRestored => around.vcenter.come_back(&around.api),
        Fault::ApiServerDown5s | Fault::ApiServerDown5m => {
            director.take_api(fault.lasts());
            around.api.poke();
        }
        Fault::SecretWrong2m => {
            director.outage(true, fault.lasts());
            secret(around, Some("wrong"), fault.lasts());
        }
        Fault::SecretMissing2m => {
            director.outage(true, fault.lasts());
            secret(around, None, fault.lasts());
        }
        Fault::DatastoreFull2m => {
            director.outage(true, fault.lasts());
            director.fill_disks(fault.lasts());
        }
        Fault::ClockJumps10m => director.jump(fault.lasts()),
        Fault::AnswersSlow1m => director.slow_down(fault.lasts()),
        Fault::Paused5m
        | Fault::CapiPaused5m
        | Fault::DeletionVetoed5m
        | Fault::PowerOnVetoed5m
        | Fault::HoldUnseen5m => holds::hold(around, fault, key),
        Fault::DiskEdited5m => edit_disk(around, fault.lasts()),
        Fault::ForeignEdit | Fault::FinalizersRemoved => {
            edit(around, fault, key);
        }
        _ => {}
    }
}

/// Lets somebody else write to the VsphereAgent or the pool that the effect is for.
fn edit(around: &Surroundings, fault: Fault, key: &str) {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let name = (namespace.to_owned(), name.to_owned());
    for plural in ["vsphereagents", "vsphereagentpools"] {
        let kind = kind(plural);
        // At most one of the two kinds has an object of that name.
        let Some(object) = around.api.get(&kind, &name) else {
            continue;
        };
        let patch = match fault {
            // Without finalizers, an object that is being deleted would disappear at once and leave its VM without an
            // owner. A person who does that wants it, so the fault spares such objects.
            Fault::FinalizersRemoved if object["metadata"]["deletionTimestamp"].is_string() => {
                continue;
            }
            Fault::FinalizersRemoved => {
                around
                    .api
                    .write(|s, _| s.unheld.insert((kind.clone(), name.clone())));
                json!({"metadata": {"finalizers": null}})
            }
            _ => json!({"metadata": {
                "labels": {"somebody": "was-here"}, "annotations": {"somebody": "was-here"}, "ownerReferences": null,
            }}),
        };
        let _ = around.api.merge(&kind, &name, &patch);
    }
}

/// Changes for a while whether recycled hosts keep their disk. An edit that came meanwhile stays.
fn edit_disk(around: &Surroundings, lasting: Duration) {
    let pools = kind("vsphereagentpools");
    for pool in around.api.list(&pools, "") {
        let release = &pool["spec"]["release"];
        if release["policy"] != "Recycle" {
            continue;
        }
        let before = release["disk"].clone();
        let other = if before == "Keep" { "Replace" } else { "Keep" };
        let name = name_of(&pool);
        let disk = |value: Value| json!({"spec": {"release": {"disk": value}}});
        let _ = around.api.merge(&pools, &name, &disk(json!(other)));
        let (api, pools) = (around.api.clone(), pools.clone());
        tokio::spawn(async move {
            tokio::time::sleep(lasting).await;
            let now = api.get(&pools, &name);
            let release = now.map(|pool| pool["spec"]["release"].clone());
            if release.is_some_and(|r| r["disk"] == other && r["policy"] == "Recycle") {
                let _ = api.merge(&pools, &name, &disk(before));
            }
        });
    }
}

/// Changes or removes the credentials for a while.
fn secret(around: &Surroundings, password: Option<&str>, lasting: Duration) {
    let secrets = kind("secrets");
    let name = (SECRET.0.to_owned(), SECRET.1.to_owned());
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let before = around.api.get(&secrets, &name);
    match password {
        Some(password) => {
            let patch = json!({"data": {"password": encoded(password)}});
            let _ = around.api.merge(&secrets, &name, &patch);
        }
        None => around.api.write(|s, now| s.evict(&secrets, &name, now)),
    }
    let (api, vcenter) = (around.api.clone(), around.vcenter.clone());
    tokio::spawn(async move {
        tokio::time::sleep(lasting).await;
        let Some(before) = before else { return };
        let mut before = (*before).clone();
        // The person who corrects the Secret writes the password that vCenter accepts now.
        let password = json!(encoded(&vcenter.read(|i| i.login.1.clone())));
        if api.get(&secrets, &name).is_some() {
            let patch = json!({"data": {"password": password}});
            let _ = api.merge(&secrets, &name, &patch);
        } else {
            before["data"]["password"] = password;
            let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name.1}, "data": before["data"]});
            // The namespace may be in deletion, and then refuses the Secret.
            let _ = api.create(&secrets, &name.0, object);
        }
    });
}
