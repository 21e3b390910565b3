//! The request bodies that are sent equal the committed ones: `tests/fixtures/vsphere/golden/*.json`.
//!
//! A change there changes what is sent to vCenter. Compare it with the vendor's documentation, then run this test with
//! `UPDATE_GOLDEN=1`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use agent_forge::vsphere::{Options, Transport, TransportFailure};
use agent_forge_actors::{
    domain::{
        hardware::{DiskController, Firmware, NetworkAdapter},
        marker::MayServe,
    },
    migration::notes::Notes,
    ports::{
        effect::EffectKind,
        vcenter::{FolderSight, NewLife, RenewedDisk, TaskEnd, VCenter, VmChange},
    },
};
use agent_forge_lab::parts::vcenter::VCenterOptions;
use async_trait::async_trait;
use serde_json::Value;

use super::support::*;

/// Records the requests of the client.
struct Tap {
    http: reqwest::Client,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    step: &'static str,
    bodies: BTreeMap<String, String>,
}

#[async_trait]
impl Transport for Tap {
    async fn send(
        &self,
        mut request: reqwest::Request,
    ) -> Result<reqwest::Response, TransportFailure> {
        if let Some(body) = request.body().and_then(reqwest::Body::as_bytes) {
            let url = request.url();
            self.note(url.path(), url.query().unwrap_or_default(), body);
        }
        if self.seen.lock().unwrap().step == PAGES {
            shorten(&mut request);
        }
        sent(&self.http, request).await
    }
}

impl Tap {
    fn note(&self, path: &str, query: &str, raw: &[u8]) {
        let Ok(mut body) =
            serde_json::from_slice::<serde_json::Map<String, Value>>(raw).map(Value::Object)
        else {
            return;
        };
        if path.starts_with("/sdk/") {
            named_objects(&body, raw);
        }
        mask(&mut body);
        let last = path.rsplit('/').next().unwrap();
        let method = query.strip_prefix("action=").unwrap_or(last);
        let name = match method {
            "RetrievePropertiesEx" => format!("{method}.{}", types(&body)),
            _ => method.to_owned(),
        };
        let mut seen = self.seen.lock().unwrap();
        // These differ in names and in the waiting tasks, but not in form.
        let once = ["FindByInventoryPath", "ModifyListView", "CreateFolder"].contains(&method);
        if once && seen.bodies.contains_key(method) {
            return;
        }
        let text = serde_json::to_string_pretty(&body).unwrap() + "\n";
        let step = seen.step;
        let names = [name.clone(), format!("{name}.{step}")];
        let numbered = (2..10).map(|n| format!("{name}.{step}-{n}"));
        let same = |(known, body): (&String, &String)| known.starts_with(&name) && *body == text;
        if seen.bodies.iter().any(same) {
            return;
        }
        let free = names
            .into_iter()
            .chain(numbered)
            .find(|n| !seen.bodies.contains_key(n));
        seen.bodies
            .insert(free.expect("a step sends few bodies per method"), text);
    }

    fn step(&self, name: &'static str) {
        self.seen.lock().unwrap().step = name;
    }
}

const PAGES: &str = "pages";

/// Checks that every data object except the arguments has its type as the first field.
fn named_objects(body: &Value, raw: &[u8]) {
    fn objects(value: &Value) -> usize {
        match value {
            Value::Array(all) => all.iter().map(objects).sum(),
            Value::Object(object) => 1 + object.values().map(objects).sum::<usize>(),
            _ => 0,
        }
    }
    let raw = std::str::from_utf8(raw).unwrap();
    let first = raw.matches("{\"_typeName\":").count();
    assert_eq!(first, objects(body) - 1, "{raw}");
}

/// The types in a question.
fn types(body: &Value) -> String {
    let sets = body["specSet"][0]["propSet"].as_array().unwrap();
    let types: Vec<_> = sets
        .iter()
        .map(|set| set["type"].as_str().unwrap())
        .collect();
    types.join("+")
}

/// Replaces numbers and sessions, which differ between runs, by values of the same form.
fn mask(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(mask),
        Value::Object(object) => {
            let is_reference = object
                .get("_typeName")
                .is_some_and(|t| t == "ManagedObjectReference");
            let is_backing = object.contains_key("diskMode");
            for (key, value) in object.iter_mut() {
                match value {
                    Value::String(text) if is_reference && key == "value" => {
                        *text = masked_id(text)
                    }
                    Value::String(text) if key == "version" && !text.is_empty() => {
                        *text = "1".to_owned();
                    }
                    Value::String(text) if key == "token" || key == "switchUuid" => {
                        *text = "masked".to_owned();
                    }
                    Value::String(text) if key == "changeVersion" => {
                        *text = "2026-01-01T00:00:00Z".to_owned();
                    }
                    // The disk's. The BIOS uuid of a VM follows from its name.
                    Value::String(text) if key == "uuid" && is_backing => {
                        *text = "00000000-0000-0000-0000-000000000000".to_owned();
                    }
                    Value::String(text) if key == "portgroupKey" => *text = masked_id(text),
                    Value::Number(_) if key == "deviceKey" => *value = 2000.into(),
                    // Temporary keys are ours and below 0. These keys come from vCenter.
                    Value::Number(given) if key == "key" && given.as_i64() > Some(0) => {
                        *value = 16_000.into();
                    }
                    Value::Number(given) if key == "controllerKey" && given.as_i64() > Some(0) => {
                        *value = 15_000.into();
                    }
                    other => mask(other),
                }
            }
        }
        _ => {}
    }
}

fn masked_id(id: &str) -> String {
    if id.starts_with("session[") {
        return "session[52000000-0000-0000-0000-000000000000]52000000-0000-0000-0000-000000000001"
            .to_owned();
    }
    let kept = id.trim_end_matches(|c: char| c.is_ascii_digit());
    if kept.len() == id.len() {
        id.to_owned()
    } else {
        format!("{kept}1")
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vsphere/golden")
}

#[tokio::test(flavor = "multi_thread")]
async fn request_bodies_are_the_committed_ones() {
    let tap = Arc::new(Tap {
        http: plain_http(),
        seen: Mutex::default(),
    });
    let options = VCenterOptions {
        tls: false,
        username: "operator@vsphere.local".into(),
        password: "password".into(),
        api_release: Some("8.0.1.0".into()),
        ..quick()
    };
    let client = Options {
        allow_http: true,
        transport: Some(tap.clone()),
        ..Options::default()
    };
    let world = world_with(options, client).await;
    tap.step("connect");
    let vc = world.connect().await;
    everything(&tap, &*vc, &world).await;

    let bodies = std::mem::take(&mut tap.seen.lock().unwrap().bodies);
    let directory = directory();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in &bodies {
            std::fs::write(directory.join(format!("{name}.json")), text).unwrap();
        }
    }
    let mut committed = BTreeMap::new();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        committed.insert(name, std::fs::read_to_string(path).unwrap());
    }
    let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&bodies),
        names(&committed),
        "run with UPDATE_GOLDEN=1 after looking at it"
    );
    for (name, text) in &bodies {
        assert_eq!(*text, committed[name], "{name}");
    }
}

/// Makes each kind of call once.
async fn everything(tap: &Tap, vc: &dyn VCenter, world: &World) {
    tap.step("datacenter");
    vc.datacenter("dc1").await.unwrap();
    vc.datacenter("elsewhere").await.unwrap_err();
    tap.step("files");
    upload_iso(vc).await;
    let dc = vc.datacenter("dc1").await.unwrap();
    let moved = iso().parent().unwrap().join("b.iso").unwrap();
    vc.move_file(&effect(EffectKind::Publish), &dc, &iso(), &moved)
        .await
        .unwrap();
    vc.stat(&dc, &moved).await.unwrap();
    vc.list(&dc, &iso().parent().unwrap()).await.unwrap();
    vc.delete_file(&effect(EffectKind::DeleteFile), &dc, &moved)
        .await
        .unwrap();
    put(vc, &dc, &iso(), b"an iso").await.unwrap();

    tap.step("standard");
    let place = super::support::place(vc).await.unwrap();
    let standard = made(vc, &create_vm("standard", &place)).await.unwrap();
    let TaskEnd::Success(Some(vm)) = standard else {
        panic!("no VM")
    };
    tap.step("distributed");
    let mut request = place_request();
    request.network = "dvpg-0".into();
    let distributed = place_as(vc, &request).await.unwrap();
    let mut other = create_vm("distributed", &distributed);
    other.hardware.disk_controller = DiskController::Sata;
    other.hardware.network_adapter = NetworkAdapter::E1000e;
    other.hardware.firmware = Firmware::Bios;
    other.hardware.eagerly_scrub = true;
    let host = world.inventory().await["vms"][0]["host"]
        .as_str()
        .unwrap()
        .to_owned();
    other.place.host = Some((
        host,
        agent_forge_actors::domain::names::MoRef::new("HostSystem", "host-1"),
    ));
    // The host does not exist. Only the body matters.
    let _ = made(vc, &other).await;
    tap.step("nvme");
    let mut other = create_vm("nvme", &place);
    other.hardware.disk_controller = DiskController::Nvme;
    made(vc, &other).await.unwrap();

    tap.step("look");
    vc.find_by_uuid(uuid_of("standard")).await.unwrap();
    let seen = now(vc, &vm).await;
    let folder = seen.folder.clone().unwrap();
    let (one, two) = tokio::join!(vc.observe(&vm), vc.folder_sight(&folder, &dc));
    one.unwrap();
    assert_eq!(two.unwrap(), FolderSight::Visible);
    tap.step("survey");
    assert!(!vc.survey().await.unwrap().marked.is_empty());
    tap.step("look");
    let mut whole = vc.drives().await.unwrap().isos;
    tap.step(PAGES);
    let mut paged = vc.drives().await.unwrap().isos;
    assert!(paged.len() > 1, "one page would do");
    whole.sort();
    paged.sort();
    assert_eq!(paged, whole, "page by page it is the same");
    tap.step("bootOrder");
    let order = VmChange {
        boot_order: Some(seen.disk_keys.clone()),
        ..VmChange::default()
    };
    let reconfigure = async |change: VmChange| {
        let seen = now(vc, &vm).await;
        let done = configure_as(vc, EffectKind::Reconfigure, &seen, &change);
        done.await.unwrap();
    };
    reconfigure(order).await;
    tap.step("stamp");
    let stamp = VmChange {
        mark: owned("standard").mark,
        annotation: Some(Notes::text(&marker("standard").uid)),
        ..VmChange::default()
    };
    reconfigure(stamp).await;
    let serves = VmChange {
        may_serve: Some(MayServe {
            life: 1,
            machine: Some("0b6c".to_owned()),
        }),
        ..VmChange::default()
    };
    reconfigure(serves).await;
    tap.step("power");
    power_on(vc, &vm).await.unwrap();
    tap.step("eject");
    let lock = format!("vms/{}/lock-tray", vm.id);
    world.post(&lock, serde_json::json!({})).await;
    eject(vc, &vm, &[iso().to_string()]).await.unwrap();
    tap.step("power");
    let reset = vc.reset(&permit(EffectKind::Reset, &vm)).await;
    ended(vc, reset).await.unwrap();
    power_off(vc, &vm).await.unwrap();
    tap.step("renew");
    for disk in [
        RenewedDisk::Replaced {
            gib: 80,
            eagerly_scrub: false,
        },
        RenewedDisk::Kept,
    ] {
        let seen = now(vc, &vm).await;
        let life = NewLife {
            generation: seen.generation.unwrap_or(1) + 1,
            iso: iso(),
            disk,
            system_disk: seen.system_disk(),
        };
        let change = VmChange {
            life: Some(life),
            ..VmChange::default()
        };
        let renewed = configure_as(vc, EffectKind::Renew, &seen, &change);
        renewed.await.unwrap();
    }
    tap.step("tags");
    let ids = ["one", "two"].map(|t| format!("urn:vmomi:InventoryServiceTag:{t}:GLOBAL"));
    vc.attach_tags(&effect(EffectKind::AttachTags), &vm, &ids)
        .await
        .unwrap_err();
    tap.step("destroy");
    destroy(vc, &vm).await.unwrap();
    vc.logout(&effect(EffectKind::Logout)).await;
}
