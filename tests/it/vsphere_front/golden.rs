//! The request bodies that are sent equal the committed ones: `tests/fixtures/vsphere/golden/*.json`.
//!
//! A change there changes what is sent to vCenter. Compare it with the vendor's documentation, then run this test with
//! `UPDATE_GOLDEN=1`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use agent_forge::vsphere::{Options, VsphereConnector};
use agent_forge_actors::{
    domain::{
        hardware::{DiskController, Firmware, NetworkAdapter},
        marker::MayServe,
    },
    migration::notes::Notes,
    ports::{
        effect::EffectKind,
        vcenter::{
            Connector as _, Credentials, FolderSight, NewLife, RenewedDisk, TaskEnd, Trust,
            VCenter, VmChange,
        },
    },
};
use agent_forge_lab::parts::vcenter::VCenterOptions;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::support::*;

/// A proxy between client and vCenter that records the requests.
#[derive(Clone)]
struct Tap {
    upstream: String,
    http: reqwest::Client,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    step: &'static str,
    bodies: BTreeMap<String, String>,
}

impl Tap {
    async fn start(upstream: &str) -> (Self, String) {
        let tap = Self {
            upstream: upstream.to_owned(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            seen: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tap.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let tap = serving.clone();
                let service = service_fn(move |request| {
                    let tap = tap.clone();
                    async move { Ok::<_, std::convert::Infallible>(tap.pass(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        (tap, format!("http://{address}"))
    }

    async fn pass(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        self.note(head.uri.path(), head.uri.query().unwrap_or_default(), &body);
        let body = self.shortened(body);
        let mut headers = head.headers;
        headers.remove(http::header::HOST);
        headers.remove(http::header::CONTENT_LENGTH);
        let url = format!("{}{}", self.upstream, head.uri);
        let reply = self
            .http
            .request(head.method, url)
            .headers(headers)
            .body(body)
            .send()
            .await
            .unwrap();
        let mut response = Response::builder().status(reply.status());
        for (name, value) in reply.headers() {
            if name != http::header::TRANSFER_ENCODING && name != http::header::CONTENT_LENGTH {
                response = response.header(name, value);
            }
        }
        response
            .body(Full::new(reply.bytes().await.unwrap()))
            .unwrap()
    }

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

    /// Limits a page to one object, in the step about pages. Creating more objects than a real page has would take
    /// minutes.
    fn shortened(&self, body: Bytes) -> Bytes {
        if self.seen.lock().unwrap().step != PAGES {
            return body;
        }
        let text = String::from_utf8(body.to_vec()).unwrap();
        Bytes::from(text.replace("\"maxObjects\":100", "\"maxObjects\":1"))
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
    let world = world(VCenterOptions {
        tls: false,
        username: "operator@vsphere.local".into(),
        password: "password".into(),
        api_release: Some("8.0.1.0".into()),
        ..quick()
    })
    .await;
    let (tap, url) = Tap::start(world.vcenter.url()).await;
    let connector = VsphereConnector::new(
        world.gate.clone(),
        Options {
            allow_http: true,
            ..Options::default()
        },
    );
    let credentials = Credentials {
        server: url.parse().unwrap(),
        username: "operator@vsphere.local".into(),
        password: "password".to_owned().into(),
        trust: Trust::Insecure,
    };
    tap.step("connect");
    let vc = connector.connect(&credentials).await.unwrap();
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
    let create = effect(EffectKind::CreateVm);
    let task = vc
        .create_vm(&create, &create_vm("standard", &place))
        .await
        .unwrap();
    let TaskEnd::Success(Some(vm)) = vc.wait(&task).await.flatten().unwrap() else {
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
    if let Ok(task) = vc.create_vm(&create, &other).await {
        let _ = vc.wait(&task).await;
    }
    tap.step("nvme");
    let mut other = create_vm("nvme", &place);
    other.hardware.disk_controller = DiskController::Nvme;
    let task = vc.create_vm(&create, &other).await.unwrap();
    vc.wait(&task).await.flatten().unwrap();

    tap.step("look");
    vc.find_by_uuid(uuid_of("standard")).await.unwrap();
    let seen = vc.observe(&vm).await.unwrap().unwrap();
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
    let task = vc
        .power_on(&permit(EffectKind::PowerOn, &vm))
        .await
        .unwrap();
    vc.wait(&task).await.flatten().unwrap();
    tap.step("eject");
    let lock = format!("vms/{}/lock-tray", vm.id);
    world.post(&lock, serde_json::json!({})).await;
    eject(vc, &vm, &[iso().to_string()]).await.unwrap();
    tap.step("power");
    let task = vc.reset(&permit(EffectKind::Reset, &vm)).await.unwrap();
    vc.wait(&task).await.flatten().unwrap();
    let task = vc
        .power_off(&permit(EffectKind::PowerOff, &vm))
        .await
        .unwrap();
    vc.wait(&task).await.flatten().unwrap();
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
    let task = vc.destroy(&permit(EffectKind::Destroy, &vm)).await.unwrap();
    vc.wait(&task).await.flatten().unwrap();
    vc.logout(&effect(EffectKind::Logout)).await;
}
