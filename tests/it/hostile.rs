//! vCenters that accept the login and then send endless answers. Only the pools that use them may be affected.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent_forge_crds::{
    VsphereAgentPool,
    conditions::{Phase, find_condition},
};
use agent_forge_lab::{
    bench::proc,
    lab::{
        apply::apply,
        manifest::{namespace, secret},
    },
    parts::audit::{WriteCounts, count_writes},
    played::HostedClusterPlay,
};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::Api;
use serde_json::{Value, json};

use crate::{
    server::answering,
    tls_door::TlsDoor,
    world::{LIMIT, Setup, World},
};

/// Namespace of the pools whose vCenters are hostile.
const THEIRS: &str = "hostile";
/// Limit for the peak memory of the operator's process, in bytes.
const MOST: u64 = 128 << 20;

/// What a hostile vCenter answers to everything except the login, and what the pool's condition says about it.
#[derive(Clone, Copy)]
struct Nature {
    name: &'static str,
    answer: fn(&str) -> Reply,
    reason: &'static str,
    said: &'static str,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Reply = Response<Body>;

const NATURES: [Nature; 7] = [
    Nature {
        name: "pages",
        answer: |method| page(method, "x"),
        reason: "VCenterReplyUnusable",
        said: "more than 1000 pages",
    },
    Nature {
        name: "strings",
        answer: |method| page(method, &"x".repeat(4 << 20)),
        reason: "VCenterReplyUnusable",
        said: "more than 16777216 bytes",
    },
    Nature {
        name: "values",
        answer: |_| whole(&json!(vec![0; 2 << 20])),
        reason: "VCenterReplyUnusable",
        said: "more than 300000 values",
    },
    Nature {
        name: "objects",
        answer: |_| whole(&json!(vec![json!({"a": 0}); 100_000])),
        reason: "VCenterReplyUnusable",
        said: "more than 300000 values",
    },
    Nature {
        name: "faults",
        answer: |_| {
            static MADE: AtomicUsize = AtomicUsize::new(0);
            let one = MADE.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}{one}", "X".repeat(1 << 20));
            let mut fault = whole(&json!({"_typeName": name, "reason": "so it is"}));
            *fault.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            fault
        },
        reason: "UnknownFault",
        said: "so it is",
    },
    Nature {
        name: "body",
        answer: |_| {
            let chunk = Bytes::from_static(&[b' '; 1 << 16]);
            endless(stream::repeat(chunk).boxed())
        },
        reason: "VCenterReplyUnusable",
        said: "the reply is larger than",
    },
    Nature {
        name: "drip",
        answer: |_| {
            let drops = stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Some((Bytes::from_static(b" "), ()))
            });
            endless(drops.boxed())
        },
        reason: "VCenterNoAnswer",
        said: "no answer within 30 s",
    },
];

fn whole(value: &Value) -> Reply {
    let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
    let mut reply = Response::new(body);
    let key = http::HeaderValue::from_static("key");
    reply.headers_mut().insert("vmware-api-session-id", key);
    reply
}

fn endless(chunks: stream::BoxStream<'static, Bytes>) -> Reply {
    let frames = chunks.map(|chunk| Ok(Frame::data(chunk)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// A page of objects that always has a next page. No object is at any path.
fn page(method: &str, text: &str) -> Reply {
    if !method.ends_with("RetrievePropertiesEx") {
        return whole(&Value::Null);
    }
    let object = json!({
        "obj": {"type": "Datacenter", "value": "datacenter-1"},
        "propSet": [{"name": "name", "val": {"_typeName": "string", "_value": text}}],
    });
    whole(&json!({"objects": [object], "token": "and on"}))
}

/// The answer to a request for the method at the end of this path.
fn answer(nature: Nature, path: &str, struck: &AtomicUsize) -> Reply {
    let one =
        |kind: &str| json!({"_typeName": "ManagedObjectReference", "type": kind, "value": kind});
    match path.rsplit('/').next().unwrap_or_default() {
        "system" => {
            let mut unknown = whole(&json!({}));
            *unknown.status_mut() = StatusCode::NOT_FOUND;
            unknown
        }
        "content" => whole(&json!({
            "rootFolder": one("Folder"),
            "propertyCollector": one("PropertyCollector"),
            "sessionManager": one("SessionManager"),
            "searchIndex": one("SearchIndex"),
            "viewManager": one("ViewManager"),
            "fileManager": one("FileManager"),
        })),
        "Login" | "Logout" | "DestroyView" => whole(&json!({})),
        "CreateContainerView" => whole(&one("ContainerView")),
        method => {
            struck.fetch_add(1, Ordering::Relaxed);
            (nature.answer)(method)
        }
    }
}

/// One hostile vCenter. It ends with the test.
struct Hostile {
    nature: Nature,
    door: TlsDoor,
    struck: Arc<AtomicUsize>,
}

impl Hostile {
    async fn start(nature: Nature) -> Result<Self> {
        let struck: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&struck);
        let behind = answering(move |request| {
            let reply = answer(nature, request.uri().path(), &count);
            async move { reply }
        });
        Ok(Self {
            nature,
            door: TlsDoor::before(behind.await, "http/1.1").await?,
            struck,
        })
    }

    fn server(&self) -> String {
        self.door.address.to_string()
    }

    /// Creates the Secret and the pool that use it, in their own namespace.
    async fn open(&self, world: &World) -> Result<()> {
        let keys = json!({
            "server": format!("https://{}", self.server()),
            "username": "operator@vsphere.local",
            "password": "anything",
            "caBundle": self.door.ca,
        });
        let name = self.nature.name;
        apply(&world.client, &secret(THEIRS, name, &keys)).await?;
        let patch = json!({
            "infraEnvRef": {"namespace": world.namespace()},
            "vsphere": {"credentialsSecretRef": {"name": name}},
        });
        world.create_pool_in(THEIRS, name, &patch).await
    }

    /// Waits until a condition of its pool says what is wrong, and in which vCenter.
    async fn until_told(&self, world: &World) -> Result<()> {
        let (name, server, mut last) = (self.nature.name, self.server(), String::new());
        // A fault is about an object, and names the object instead of the server.
        let is_fault = self.nature.reason == "UnknownFault";
        let told = async || {
            let status = pools(world).get(name).await?.status.unwrap_or_default();
            last = serde_json::to_string_pretty(&status.conditions)?;
            let said = ["VsphereReady", "ISOReady"]
                .iter()
                .filter_map(|type_| find_condition(&status.conditions, type_));
            Ok(said.into_iter().any(|c| {
                c.status == "False"
                    && c.reason == self.nature.reason
                    && c.message.contains(self.nature.said)
                    && (c.message.contains(&server) || is_fault)
            }))
        };
        let told = world
            .until(&format!("word of {name} at {server}"), told)
            .await;
        told.with_context(|| last)
    }
}

fn pools(world: &World) -> Api<VsphereAgentPool> {
    Api::namespaced(world.client.clone(), THEIRS)
}

/// What one more machine of the good pool costs.
#[derive(Debug)]
struct Cost {
    /// Calls that change something in its vCenter.
    calls: Vec<u64>,
    /// Writes to Kubernetes without statuses, Events and Leases.
    writes: WriteCounts,
    /// Writes of statuses. Changes at about the same time share a write, so their number depends on timing.
    statuses: usize,
}

const CHANGES: [&str; 6] = [
    "Login",
    "PUT /folder",
    "MakeDirectory",
    "CreateVM_Task",
    "ReconfigVM_Task",
    "PowerOnVM_Task",
];

async fn cost_so_far(world: &World) -> Result<(Vec<u64>, usize)> {
    let calls = world.vcenter.calls().await?;
    let changes = CHANGES.iter().map(|method| calls.of(method)).collect();
    Ok((changes, world.audited().await?.len()))
}

async fn one_more(world: &World, nodes: &HostedClusterPlay, count: usize) -> Result<Cost> {
    let (calls, mark) = cost_so_far(world).await?;
    nodes.scale(count);
    nodes.wait_running(count, LIMIT).await?;
    world
        .until("all hosts bound", async || {
            let phases = world.phases().await?;
            let bound = |(phase, _): &(Option<_>, String)| *phase == Some(Phase::Bound);
            Ok(phases.len() == count && phases.values().all(bound))
        })
        .await?;
    let (after, _) = cost_so_far(world).await?;
    let calls = after.iter().zip(calls).map(|(a, b)| a - b).collect();
    let mut entries = world.audited().await?.split_off(mark);
    entries.retain(|e| e.object_ref.as_ref().is_some_and(|o| o.namespace != THEIRS));
    let all = count_writes(&entries, &world.access.user)
        .without("leases")
        .without("events");
    let mut writes = all.clone();
    writes.0.retain(|write, _| write.subresource.is_empty());
    Ok(Cost {
        calls,
        statuses: all.total() - writes.total(),
        writes,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_vcenters_cost_other_pools_nothing_and_the_operator_little() -> Result<()> {
    let world = World::start(Setup {
        operator_args: vec!["--orphan-scan-interval=10s".to_owned()],
        ..Setup::own_lab()
    })
    .await?;
    let pid = world.operator()?.process.pid();
    let nodes = world.node_pool().await?;
    // The first machine also creates ISO, folder and session. The second one shows the cost of a machine alone.
    one_more(&world, &nodes, 1).await?;
    let alone = one_more(&world, &nodes, 2).await?;
    let before = proc::usage(pid)?.peak_bytes;

    apply(&world.client, &namespace(THEIRS)).await?;
    world.admit(world.namespace(), json!(THEIRS)).await?;
    let mut hostile = Vec::new();
    for nature in NATURES {
        hostile.push(Hostile::start(nature).await?);
    }
    for one in &hostile {
        one.open(&world).await?;
    }
    for one in &hostile {
        one.until_told(&world).await?;
    }
    let beside = one_more(&world, &nodes, 3).await?;
    let same = beside.calls == alone.calls && beside.writes == alone.writes;
    ensure!(
        same && beside.statuses <= 2 * alone.statuses,
        "alone {alone:?}, beside them {beside:?}"
    );

    // They continue, and so do the scans of the good vCenter.
    let scans = world.vcenter.calls().await?.of("CreateContainerView");
    let struck: Vec<usize> = hostile
        .iter()
        .map(|h| h.struck.load(Ordering::Relaxed))
        .collect();
    world
        .until("more of all of them", async || {
            let more = hostile.iter().zip(&struck);
            let more = more.map(|(h, before)| h.struck.load(Ordering::Relaxed) > *before);
            let scanned = world.vcenter.calls().await?.of("CreateContainerView");
            Ok(more.into_iter().all(|m| m) && scanned >= scans + 2)
        })
        .await?;
    let most = proc::usage(pid)?.peak_bytes;
    println!("VmHWM {} MiB, {} MiB before", most >> 20, before >> 20);
    ensure!(most < MOST, "VmHWM {most} bytes, {before} before");
    Ok(())
}
