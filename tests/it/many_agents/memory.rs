//! The peak memory of the watches beside a thousand machines, whose VsphereAgents are small or have annotations of 256 KiB.
//!
//! Each size has a process of its own: the test starts itself once more. That process follows a played API server, from the first
//! list on, until all kinds are listed. The played server makes a page as it is read, so that the page is in memory once, on the
//! side of the operator. The kernel reports the peak (`VmHWM` of proc(5)).

use std::{convert::Infallible, env, sync::Arc, time::Duration};

use agent_forge::cluster::{client::Clients, scope::Scope, view::Caches, watches};
use agent_forge_actors::{
    ports::cluster::View as _,
    supervisor::{SupervisorMsg, routing::Change},
};
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;
use tokio::sync::{Notify, oneshot};

use super::{
    hub::{VMS, agent, agent_machine, child, uuid_of},
    say,
};
use crate::alone::run_alone;

/// Machines, each with its VsphereAgent, AgentMachine and Agent.
const MACHINES: usize = 1_000;
/// What the API server allows an object as annotations.
const LARGE: usize = 256 << 10;
/// At most so many times the memory.
const TIMES: f64 = 1.5;
/// Names the size of the annotation to the second process.
const SIZE: &str = "AGENT_FORGE_TEST_ANNOTATION_BYTES";
const TEST: &str = "many_agents::memory::large_vsphere_agents_cost_no_more_than_half_as_much_again";

/// The kinds that have objects, by the last part of their path.
#[derive(Clone, Copy)]
enum Kind {
    Children,
    AgentMachines,
    Machines,
    Agents,
}

impl Kind {
    fn of(path: &str) -> Option<Self> {
        match path.rsplit('/').next()? {
            "vsphereagents" => Some(Self::Children),
            "agentmachines" => Some(Self::AgentMachines),
            "machines" => Some(Self::Machines),
            "agents" => Some(Self::Agents),
            _ => None,
        }
    }

    /// The object of machine `n`, as text.
    fn object(self, n: usize, bytes: usize) -> String {
        let (pool, name) = (n / VMS, format!("w{n}"));
        let host = uuid_of(&name).swapped().to_string();
        let object = match self {
            Self::Children => {
                let mut child = child(pool, &name);
                let notes = json!({"example.com/notes": "x".repeat(bytes)});
                child["metadata"]["annotations"] = notes;
                child
            }
            Self::AgentMachines => agent_machine(pool, &name, Some(&host)),
            Self::Machines => json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {
                    "namespace": format!("cp{pool}"), "name": name, "uid": format!("m-{name}"), "resourceVersion": "1",
                },
            }),
            Self::Agents => {
                let claim = (format!("cp{pool}"), name);
                let labels = json!({"pool": format!("p{pool}")});
                agent(&host, labels, Some((&claim.0, &claim.1)))
            }
        };
        object.to_string()
    }
}

fn number(query: &str, field: &str) -> Option<usize> {
    let mut fields = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = fields.find(|(name, _)| *name == field)?;
    value.parse().ok()
}

/// A page of a list, which is made while it is read.
fn page(kind: Option<Kind>, query: &str, bytes: usize) -> reqwest::Body {
    let from = number(query, "continue").unwrap_or(0);
    let most = number(query, "limit").expect("every list is read in pages");
    let all = kind.map_or(0, |_| MACHINES);
    let to = all.min(from + most);
    let next = if to < all {
        to.to_string()
    } else {
        String::new()
    };
    let meta = json!({"resourceVersion": "1", "continue": next});
    let head = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{meta},"items":["#);
    let item = move |n: usize| {
        let object = kind.expect("there are objects").object(n, bytes);
        let before = if n == from { "" } else { "," };
        format!("{before}{object}")
    };
    let parts = std::iter::once(head)
        .chain((from..to).map(item))
        .chain(["]}".to_owned()]);
    // Without the spare capacity of the text.
    let parts =
        parts.map(|part| Ok::<_, Infallible>(Bytes::from(part.into_bytes().into_boxed_slice())));
    reqwest::Body::wrap_stream(stream::iter(parts))
}

fn answer(status: StatusCode, body: impl Into<reqwest::Body>) -> Response<reqwest::Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

/// An API server with these objects. Its watches send nothing.
async fn serve(
    request: Request<Body>,
    bytes: usize,
) -> Result<Response<reqwest::Body>, Infallible> {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    if query.contains("watch=true") {
        return std::future::pending().await;
    }
    if path == "/apis/cluster.x-k8s.io/v1beta2" {
        let machines = json!({
            "name": "machines", "singularName": "machine", "namespaced": true, "kind": "Machine",
            "verbs": ["get", "list", "watch"],
        });
        let body = json!({
            "kind": "APIResourceList", "groupVersion": "cluster.x-k8s.io/v1beta2", "resources": [machines],
        });
        return Ok(answer(StatusCode::OK, body.to_string()));
    }
    // Discovery of a group that is not served.
    if path.starts_with("/apis/") && path.matches('/').count() <= 3 {
        let body =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        return Ok(answer(StatusCode::NOT_FOUND, body.to_string()));
    }
    Ok(answer(StatusCode::OK, page(Kind::of(path), query, bytes)))
}

/// Is told of all changes, and tells that there was one.
struct Told;

impl Actor for Told {
    type Msg = SupervisorMsg;
    type State = Arc<Notify>;
    type Arguments = Arc<Notify>;

    async fn pre_start(
        &self,
        _: ActorRef<SupervisorMsg>,
        told: Arc<Notify>,
    ) -> Result<Arc<Notify>, ActorProcessingErr> {
        Ok(told)
    }

    async fn handle(
        &self,
        _: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        told: &mut Arc<Notify>,
    ) -> Result<(), ActorProcessingErr> {
        let listed = |change: &Change| {
            matches!(
                change,
                Change::ManagedVm { .. } | Change::Machine(_) | Change::Agent(_)
            )
        };
        if let SupervisorMsg::Changed(change) = message
            && listed(&change)
        {
            told.notify_one();
        }
        Ok(())
    }
}

/// Follows everything until it is listed.
async fn follow(bytes: usize) {
    let client = Client::new(
        tower::service_fn(move |request| serve(request, bytes)),
        "default",
    );
    let clients = Clients {
        watch: client.clone(),
        request: client,
        server: String::new(),
    };
    let caches = Arc::new(Caches::of(&Scope::of(&[])));
    *caches.cluster_id.write().expect("nobody panics with it") = "id".to_owned();
    let told = Arc::new(Notify::new());
    let (supervisor, _running) = Actor::spawn(None, Told, told.clone())
        .await
        .expect("an actor");
    let (_anew, asked) = oneshot::channel();
    let watching = tokio::spawn(watches::run(
        clients,
        caches.clone(),
        supervisor.clone(),
        asked,
    ));
    let all_listed = async {
        while !caches.listed() {
            told.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all_listed)
        .await
        .expect("all kinds are listed");
    assert_eq!(caches.all_children().len(), MACHINES);
    assert!(caches.all_over_bound().is_empty());
    watching.abort();
    supervisor.stop(None);
}

/// The peak of a process beside VsphereAgents with annotations of that size, in KiB.
fn peak(bytes: usize) -> u32 {
    let said = run_alone(TEST, &[(SIZE, bytes.to_string())]);
    let mut words = said.split_whitespace();
    let peak = words.find_map(|word| word.strip_prefix("peak="));
    let peak = peak.and_then(|kib| kib.parse().ok());
    peak.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn large_vsphere_agents_cost_no_more_than_half_as_much_again() {
    if let Ok(bytes) = env::var(SIZE) {
        let bytes = bytes.parse().expect("a number");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(follow(bytes));
        let usage = agent_forge_lab::bench::proc::usage(std::process::id());
        let peak = usage.expect("the kernel tells").peak_bytes;
        say(&format!("\npeak={}", peak >> 10));
        return;
    }
    let (small, large) = (peak(0), peak(LARGE));
    let times = f64::from(large) / f64::from(small);
    say(&format!(
        "peak memory beside {MACHINES} VsphereAgents: {} MiB if they are small, {} MiB if each has {} KiB of annotations: \
         {times:.2} times",
        small >> 10,
        large >> 10,
        LARGE >> 10,
    ));
    assert!(times <= TIMES, "{times:.2}");
}
