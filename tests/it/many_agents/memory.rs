//! The memory of the watches beside a thousand machines: the peak where their VsphereAgents are small or have annotations of
//! 256 KiB, and what is held for each Agent of somebody else's host.
//!
//! Each world has a process of its own: the test starts itself once more. That process follows a played API server, from the first
//! list on, until all kinds are listed. The played server makes a page as it is read, so that the page is in memory once, on the
//! side of the operator. The kernel reports the peak (`VmHWM` of proc(5)).

use std::{convert::Infallible, env, sync::Arc, time::Duration};

use agent_forge::cluster::{client::Clients, scope::Scope, view::Caches, watches};
use agent_forge_actors::{
    ports::cluster::View as _,
    supervisor::{SupervisorMsg, routing::Change},
};
use agent_forge_crds::external::agent::{INFRA_ENV_LABEL, INVENTORY_ANNOTATION};
use agent_forge_lab::bench::proc::{self, Usage};
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::{
    hub::{HOME, VMS, agent, agent_machine, child, uuid_of},
    say,
};
use crate::alone::run_alone;

/// Machines, each with its VsphereAgent, AgentMachine and Agent.
const MACHINES: usize = 1_000;
/// What the API server allows an object as annotations.
const LARGE: usize = 256 << 10;
/// At most so many times the memory.
const TIMES: f64 = 1.5;
/// Agents of other hosts, in two worlds.
const FOREIGN: [usize; 2] = [1_000, 10_000];
/// What the API server has of each of them, at least: a host with many disks.
const WHOLE: usize = 60_000;
/// The most that the operator may hold of each of them.
const HELD: usize = 8 << 10;
/// Name the size of the annotation, and the number of Agents of other hosts, to the second process.
const SIZE: &str = "AGENT_FORGE_TEST_ANNOTATION_BYTES";
const OTHERS: &str = "AGENT_FORGE_TEST_FOREIGN_AGENTS";

/// What there is beside the machines.
#[derive(Clone, Copy)]
struct Beside {
    /// Size of an annotation of each VsphereAgent.
    annotation: usize,
    /// Agents of other hosts.
    foreign: usize,
}

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

    /// How many there are.
    fn count(self, beside: Beside) -> usize {
        match self {
            Self::Agents => MACHINES + beside.foreign,
            _ => MACHINES,
        }
    }

    /// The object of machine `n`, as text. There are Agents that no machine has.
    fn object(self, n: usize, bytes: usize) -> String {
        if n >= MACHINES {
            return metal(n).to_string();
        }
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

/// The Agent of a free bare-metal host, as the API server has it.
fn metal(n: usize) -> Value {
    let inventory = "inventory.agent-install.openshift.io";
    let mut labels = json!({"site": format!("s{}", n % 7), "agent-install.openshift.io/clusterdeployment-namespace": ""});
    for (key, value) in [
        ("cpu-architecture", "x86_64"),
        ("cpu-virtenabled", "true"),
        ("host-isvirtual", "false"),
        ("host-manufacturer", "HPE"),
        ("host-productname", "ProLiantDL360Gen10"),
        ("storage-hasnonrotationaldisk", "true"),
    ] {
        labels[format!("{inventory}/{key}")] = value.into();
    }
    let mut agent = agent(&uuid_of(&format!("metal-{n}")).to_string(), labels, None);
    let said = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "ValidationsPassing", "lastTransitionTime": "2026-11-01T00:00:00Z",
            "message": format!("{type_}: the validations of the agent are passing, as far as the service knows it"),
        })
    };
    let more = [
        "SpecSynced",
        "RequirementsMet",
        "Installed",
        "Cleanup",
        "BMHReady",
    ];
    let conditions = agent["status"]["conditions"].as_array_mut();
    conditions.expect("a list").extend(more.map(said));
    let card = |n: usize| {
        json!({
            "name": format!("eno{n}"), "macAddress": format!("94:40:c9:00:00:{n:02x}"), "hasCarrier": true,
            "flags": ["up", "broadcast", "multicast"], "ipV4Addresses": ["192.0.2.7/24"], "ipV6Addresses": [],
        })
    };
    let disk = json!({"id": "/dev/sda", "driveType": "SSD", "smart": "0123456789abcdef".repeat(WHOLE / 32)});
    let shown = &mut agent["status"]["inventory"];
    shown["interfaces"] = (0..4).map(card).collect();
    shown["systemVendor"]["serialNumber"] = format!("CZ3{n:07}").into();
    shown["systemVendor"]["manufacturer"] = "HPE".into();
    shown["disks"] = json!([disk]);
    shown["timestamp"] = 1_795_745_032.into();
    let text = shown.to_string();
    agent["metadata"]["annotations"] = json!({INVENTORY_ANNOTATION: text});
    agent
}

fn number(query: &str, field: &str) -> Option<usize> {
    let mut fields = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = fields.find(|(name, _)| *name == field)?;
    value.parse().ok()
}

/// A page of a list, which is made while it is read.
fn page(kind: Option<Kind>, query: &str, beside: Beside) -> reqwest::Body {
    let from = number(query, "continue").unwrap_or(0);
    let most = number(query, "limit").expect("every list is read in pages");
    let all = kind.map_or(0, |kind| kind.count(beside));
    let to = all.min(from + most);
    let next = if to < all {
        to.to_string()
    } else {
        String::new()
    };
    let meta = json!({"resourceVersion": "1", "continue": next});
    let head = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{meta},"items":["#);
    let item = move |n: usize| {
        let object = kind
            .expect("there are objects")
            .object(n, beside.annotation);
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
    beside: Beside,
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
    Ok(answer(StatusCode::OK, page(Kind::of(path), query, beside)))
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

/// Follows everything until it is listed, and returns what the operator holds.
async fn follow(beside: Beside) -> Arc<Caches> {
    let client = Client::new(
        tower::service_fn(move |request| serve(request, beside)),
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
    let labels = [(INFRA_ENV_LABEL.to_owned(), "infra".to_owned())].into();
    let agents = caches.count_agents(HOME, &labels).classes.total().all;
    assert_eq!(agents, MACHINES + beside.foreign);
    assert!(caches.all_over_bound().is_empty());
    watching.abort();
    supervisor.stop(None);
    caches
}

fn usage() -> Usage {
    proc::usage(std::process::id()).expect("the kernel tells")
}

/// Measures that world. The second time, what a list needs for a moment is free already, so what is resident grows by what is
/// held.
async fn measure(beside: Beside) {
    let first = follow(beside).await;
    let before = usage();
    let mut held = 0;
    if beside.foreign > 0 {
        let second = follow(beside).await;
        held = usage().resident_bytes.saturating_sub(before.resident_bytes);
        drop(second);
    }
    drop(first);
    say(&format!("\npeak={} held={held}", before.peak_bytes));
}

/// Follows the world that the other process names, if this is the second process.
fn is_second() -> bool {
    let number = |name| {
        env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let Some((annotation, foreign)) = number(SIZE).zip(number(OTHERS)) else {
        return false;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let beside = Beside {
        annotation,
        foreign,
    };
    runtime.expect("a runtime").block_on(measure(beside));
    true
}

/// What a process of its own says under that word, in bytes.
fn measured(test: &str, word: &str, beside: Beside) -> u32 {
    let test = format!("many_agents::memory::{test}");
    let set = [
        (SIZE, beside.annotation.to_string()),
        (OTHERS, beside.foreign.to_string()),
    ];
    let said = run_alone(&test, &set);
    let mut words = said.split_whitespace().filter_map(|w| w.split_once('='));
    let value = words.find_map(|(name, value)| (name == word).then(|| value.parse().ok())?);
    value.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn large_vsphere_agents_cost_no_more_than_half_as_much_again() {
    if is_second() {
        return;
    }
    let [small, large] = [0, LARGE].map(|annotation| {
        let beside = Beside {
            annotation,
            foreign: 0,
        };
        let test = "large_vsphere_agents_cost_no_more_than_half_as_much_again";
        measured(test, "peak", beside)
    });
    let times = f64::from(large) / f64::from(small);
    say(&format!(
        "peak memory beside {MACHINES} VsphereAgents: {} MiB if they are small, {} MiB if each has {} KiB of annotations: \
         {times:.2} times",
        small >> 20,
        large >> 20,
        LARGE >> 10,
    ));
    assert!(times <= TIMES, "{times:.2}");
}

#[test]
fn of_an_agent_of_another_host_the_operator_holds_at_most_eight_kib() {
    if is_second() {
        return;
    }
    assert!(metal(MACHINES).to_string().len() > WHOLE);
    let [few, many] = FOREIGN.map(|foreign| {
        let beside = Beside {
            annotation: 0,
            foreign,
        };
        let test = "of_an_agent_of_another_host_the_operator_holds_at_most_eight_kib";
        measured(test, "held", beside)
    });
    let more = usize::try_from(many.saturating_sub(few)).expect("bytes");
    let each = more / (FOREIGN[1] - FOREIGN[0]);
    say(&format!(
        "held beside {} Agents of other hosts: {} MiB, beside {}: {} MiB: {each} bytes for each",
        FOREIGN[0],
        few >> 20,
        FOREIGN[1],
        many >> 20,
    ));
    assert!(each > 0 && each <= HELD, "{each}");
}
