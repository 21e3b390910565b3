//! An inventory that the test controls fully, behind the same admin endpoint as that of the simulated vCenter. It
//! allows boots in an order that no real client would produce.

use std::{collections::BTreeMap, convert::Infallible, net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};

#[derive(Clone, Debug, Default)]
struct State {
    version: u64,
    vms: BTreeMap<String, Value>,
    files: BTreeMap<String, Bytes>,
}

/// The inventory. Ends when dropped.
pub struct Inventory {
    pub url: String,
    state: Arc<watch::Sender<State>>,
    server: AbortHandle,
}

impl Drop for Inventory {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Inventory {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(watch::channel(State::default()).0);
        let server = tokio::spawn(serve(listener, state.clone())).abort_handle();
        Ok(Self { url, state, server })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(|state| {
            change(state);
            state.version += 1;
        });
    }

    /// Puts a file on datastore `iso`.
    pub fn put_file(&self, path: &str, bytes: Bytes) {
        self.change(|state| drop(state.files.insert(path.to_owned(), bytes)));
    }

    /// Adds a powered-off VM with the ISO `file` in its drive. Returns its managed object id.
    pub fn add_vm(
        &self,
        name: &str,
        uuid: &str,
        mac: &str,
        file: &str,
        boot_order: &[&str],
    ) -> String {
        let moref = format!("vm-{name}");
        let vm = json!({
            "moref": moref, "name": name, "path": format!("/dc1/vm/{name}"), "uuid": uuid, "power": "poweredOff",
            "cdroms": [{"key": 16000, "path": format!("[iso] {file}"), "connected": true, "startConnected": true}],
            "nics": [{"key": 4000, "type": "VirtualVmxnet3", "mac": mac, "network": "VM Network"}],
            "disks": [{"key": 2000, "gb": 120}],
            "extraConfig": {"disk.EnableUUID": "TRUE"},
            "bootOrder": boot_order, "numCPU": 4, "memoryMB": 16384,
        });
        self.change(|state| drop(state.vms.insert(moref.clone(), vm)));
        moref
    }

    /// Powers a VM on, or resets it.
    pub fn boot(&self, moref: &str) {
        self.change(|state| {
            let now = format!("boot {}", state.version);
            if let Some(vm) = state.vms.get_mut(moref) {
                vm["power"] = json!("poweredOn");
                vm["poweredOnAt"] = json!(now);
            }
        });
    }

    /// Puts a new, empty disk in the place of the VM's disk.
    pub fn replace_disk(&self, moref: &str, uuid: &str) {
        self.change(|state| {
            if let Some(vm) = state.vms.get_mut(moref) {
                vm["disks"][0]["uuid"] = json!(uuid);
            }
        });
    }

    /// Takes the medium out of the VM's drive.
    pub fn eject(&self, moref: &str) {
        self.change(|state| {
            if let Some(vm) = state.vms.get_mut(moref) {
                vm["cdroms"][0]["path"] = json!("");
            }
        });
    }

    /// Powers a VM off.
    pub fn power_off(&self, moref: &str) {
        self.change(|state| {
            if let Some(vm) = state.vms.get_mut(moref) {
                vm["power"] = json!("poweredOff");
                vm["poweredOnAt"] = Value::Null;
            }
        });
    }
}

async fn serve(listener: TcpListener, state: Arc<watch::Sender<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| answer(request, state.subscribe()));
            // A client that disconnects is no failure.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    mut state: watch::Receiver<State>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    if let Some(file) = request
        .uri()
        .path()
        .strip_prefix("/_admin/datastores/iso/files/")
    {
        match state.borrow().files.get(file) {
            Some(bytes) => *response.body_mut() = Full::new(bytes.clone()),
            None => *response.status_mut() = StatusCode::NOT_FOUND,
        }
        return Ok(response);
    }
    let seen = request.uri().query().and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("waitVersion=")?.parse::<u64>().ok())
    });
    if let Some(seen) = seen {
        let newer = state.wait_for(|state| state.version > seen);
        // Without a change it answers with the present state, like the real one.
        let _ = tokio::time::timeout(Duration::from_secs(5), newer).await;
    }
    let now = state.borrow().clone();
    let vms: Vec<Value> = now.vms.into_values().collect();
    *response.body_mut() = Full::new(Bytes::from(
        json!({"version": now.version, "vms": vms}).to_string(),
    ));
    Ok(response)
}
