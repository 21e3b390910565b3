//! The service behind a client: it takes a request, applies the planned fault, and sends the reply.

use std::{
    collections::BTreeSet,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use agent_forge_actors::ports::effect::{Effect, EffectKind};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Value, json};

use super::{
    ApiServer,
    path::{self, Target, What},
    store::{self, Refusal, Via},
    watch,
};
use crate::{
    between,
    call::Read,
    director::{Life, alive},
    oracles,
    plan::{Fault, FaultClass},
    promise::{Failure as Broken, Oracle},
    traffic::Asked as Counted,
};

/// Body of a reply.
pub type ReplyBody = UnsyncBoxBody<Bytes, std::io::Error>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long a request takes.
const LATENCY: Duration = Duration::from_millis(2);
/// How long after the client's timeout a late request arrives.
const LATE: Duration = Duration::from_secs(45);

/// How much later a slow answer to a read arrives. Its client still waits then.
pub(crate) const SLOW: Duration = Duration::from_secs(15);

/// How long upstream's controllers wait for an answer while they are stopped.
const STILL: Duration = Duration::from_secs(1);

/// The service for one client.
#[derive(Clone)]
pub struct Door {
    /// The server.
    pub server: ApiServer,
    /// The process that the client belongs to. `None` for every client except the operator's.
    pub life: Option<Arc<Life>>,
}

impl tower::Service<Request<Body>> for Door {
    type Response = Response<ReplyBody>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Self::Response, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let door = self.clone();
        Box::pin(async move { door.serve(request).await })
    }
}

/// A request that was read.
#[derive(Clone)]
pub(super) struct Asked {
    method: Method,
    pub(super) target: Target,
    query: Vec<(String, String)>,
    body: Value,
    /// The body as it was sent.
    bytes: Bytes,
    pub(super) metadata_only: bool,
    path: String,
}

impl Asked {
    /// The object in the form that the request wants.
    fn shown<'a>(&self, object: &'a Value) -> Shown<'a> {
        let Target { kind, version, .. } = &self.target;
        Shown::new(object, version, &kind.0, self.metadata_only)
    }

    pub(super) fn query(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(k, _)| k == key);
        found.map(|(_, v)| v.as_str())
    }

    fn is_watch(&self) -> bool {
        self.query("watch")
            .is_some_and(|v| v != "false" && v != "0")
    }

    /// What the request reads live, with the key of its points.
    fn live_read(&self) -> Option<(Read, String)> {
        if self.method != Method::GET || self.is_watch() {
            return None;
        }
        let (namespace, name) = match &self.target.what {
            What::Object((namespace, name), _) => (namespace, Some(name)),
            What::Collection(namespace) => (namespace, None),
            What::Discovery => return None,
        };
        let read = match (self.target.kind.1.as_str(), name) {
            ("vsphereagents", Some(_)) => Read::ReadVsphereAgent,
            ("agents", Some(_)) => Read::ReadAgent,
            ("agentmachines", Some(_)) => Read::ReadAgentMachine,
            ("secrets", Some(_)) => Read::ReadSecret,
            ("vsphereagents", None) => Read::ListVsphereAgents,
            ("agents", None) => Read::ListAgents,
            ("agentmachines", None) => Read::ListAgentMachines,
            ("machines", None) => Read::ListMachines,
            _ => return None,
        };
        let key = match name {
            Some(name) => format!("{namespace}/{name}"),
            None if namespace.is_empty() => "all".to_owned(),
            None => namespace.clone(),
        };
        Some((read, key))
    }

    /// The broken promise if the operator may not send this request because the object is somebody else's.
    fn trespasses(&self, server: &ApiServer) -> Option<Broken> {
        let What::Object(name, status) = &self.target.what else {
            return None;
        };
        let (kind, reads) = (&self.target.kind, self.method == Method::GET);
        (!reads && server.read(|s| oracles::is_foreign(s, kind, name, *status))).then(|| {
            Oracle::ForeignAndServingUntouched.broken(format!(
                "foreign: {} of {} {}/{}",
                self.method, kind.1, name.0, name.1
            ))
        })
    }

    /// What the request is counted as. Writes of Leases are not counted.
    fn counts_as(&self) -> Option<Counted> {
        if self.target.kind.1 == "leases" {
            return None;
        }
        Some(match (&self.method, self.is_watch()) {
            (&Method::GET, true) => Counted::Watch,
            (&Method::GET, false) => Counted::Read,
            _ => Counted::Write,
        })
    }
}

impl Door {
    async fn serve(self, request: Request<Body>) -> Result<Response<ReplyBody>, Failure> {
        let life = self.life.as_ref();
        alive(life).await;
        let director = self.server.director.clone();
        let asked = read(request).await?;
        if life.is_some()
            && let Some(what) = asked.counts_as()
        {
            director.traffic.count(what);
        }
        if let Some(life) = life
            && director.api_away_until().is_some()
        {
            tokio::time::sleep(LATENCY).await;
            alive(Some(life)).await;
            if asked.method != Method::GET {
                let what = format!("{} {}", asked.method, asked.path);
                director.arrived(life, &what, |e| carries(e, &asked));
            }
            return Err("connection refused".into());
        }
        if life.is_none() && asked.method != Method::GET && director.upstream_is_still() {
            tokio::time::sleep(STILL).await;
            return Err("upstream stands still".into());
        }
        if asked.is_watch() {
            return Ok(watch::open(&self, &asked));
        }
        if asked.method == Method::GET {
            let live = life.zip(asked.live_read());
            let fault = live.and_then(|(life, (read, key))| director.reads(life, read, key));
            tokio::time::sleep(director.latency(LATENCY)).await;
            alive(life).await;
            return Ok(self.answer_read(&asked, fault).await);
        }
        let Some(life) = life else {
            tokio::time::sleep(director.paced(LATENCY)).await;
            return Ok(self.perform(&asked));
        };
        let what = format!("{} {}", asked.method, asked.path);
        let noted = director.arrived(life, &what, |e| carries(e, &asked));
        tokio::time::sleep(director.latency(LATENCY)).await;
        alive(Some(life)).await;
        let reply = match noted.fault {
            Some(Fault::CrashBeforeRequest) => {
                director.crash(life);
                None
            }
            Some(Fault::CrashAfterEffect) => {
                self.perform(&asked);
                director.crash(life);
                None
            }
            Some(Fault::Refused) => {
                Some(answer(&Refusal::new(409, "Conflict", "refused on request")))
            }
            Some(Fault::ServerError) => Some(away()),
            Some(Fault::PermissionDenied) => Some(not_allowed()),
            Some(Fault::RequestLost) => None,
            Some(Fault::ReplyLost) => {
                self.perform(&asked);
                None
            }
            Some(Fault::RequestDuplicated) => {
                self.perform(&asked);
                Some(self.perform(&asked))
            }
            Some(Fault::EffectLate) => {
                let (door, asked) = (self.clone(), asked.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    door.server
                        .director
                        .line(|| format!("late: {} {}", asked.method, asked.path));
                    door.perform(&asked);
                });
                None
            }
            Some(fault) if fault.class() == FaultClass::Between => {
                Some(self.perform_after(fault, &asked))
            }
            _ => Some(self.perform(&asked)),
        };
        let Some(reply) = reply else {
            return std::future::pending().await;
        };
        tokio::time::sleep(director.latency(LATENCY)).await;
        alive(Some(life)).await;
        Ok(reply)
    }

    /// Answers a read, with that fault. A slow answer shows what was there when the request came.
    async fn answer_read(&self, asked: &Asked, fault: Option<Fault>) -> Response<ReplyBody> {
        match fault {
            Some(Fault::ServerError) => away(),
            Some(Fault::PermissionDenied) => not_allowed(),
            Some(Fault::RequestLost) => std::future::pending().await,
            Some(Fault::AnswerSlow15s) => {
                let reply = self.perform(asked);
                tokio::time::sleep(SLOW).await;
                alive(self.life.as_ref()).await;
                reply
            }
            _ => self.perform(asked),
        }
    }

    /// Changes the object of a write as `fault` says, then carries the write out. It was decided from the object as it was
    /// before, so it breaks a promise when it succeeds.
    fn perform_after(&self, fault: Fault, asked: &Asked) -> Response<ReplyBody> {
        let changed = match &asked.target.what {
            What::Object(name, _) => between::object(&self.server, fault, &asked.target.kind, name),
            _ => false,
        };
        let reply = self.perform(asked);
        if changed && reply.status().is_success() {
            let what = "was decided before its object changed, and was carried out";
            let what = format!("unchecked: {} {} {what}", asked.method, asked.path);
            let failure = Oracle::ForeignAndServingUntouched.broken(what);
            self.server.director.violated(failure);
        }
        reply
    }

    /// Carries the request out.
    fn perform(&self, asked: &Asked) -> Response<ReplyBody> {
        if self.life.is_some()
            && let Some(broken) = asked.trespasses(&self.server)
        {
            self.server.director.violated(broken);
        }
        let result = self.execute(asked);
        let server = &self.server;
        if asked.method != Method::GET {
            server.director.line(|| {
                let who = if self.life.is_some() {
                    "operator"
                } else {
                    "upstream"
                };
                let how = match &result {
                    Ok(_) => "ok".to_owned(),
                    Err(r) => format!("{} {}", r.code, r.reason),
                };
                // Event names contain the real time, so the path ends before them.
                let path = match asked.path.split_once("/events") {
                    Some((front, _)) => format!("{front}/events"),
                    None => asked.path.clone(),
                };
                format!("    {who} {} {path}: {how}", asked.method)
            });
            if !asked.path.contains("/events") {
                server.director.digest(&asked.bytes);
            }
        }
        match result {
            Ok(text) => json_reply(StatusCode::OK, text),
            Err(refusal) => answer(&refusal),
        }
    }

    /// The encoded answer.
    fn execute(&self, asked: &Asked) -> Result<Vec<u8>, Refusal> {
        let server = &self.server;
        let Target {
            kind,
            version,
            what,
        } = &asked.target;
        let group = kind.0.as_str();
        match (what, &asked.method) {
            (What::Discovery, &Method::GET) => discovery(server, group, version),
            (What::Collection(namespace), &Method::GET) => {
                // Without a version, a list shows everything up to now, also where the server answers from its cache.
                // With version 0 it may show an old state. The operator does not ask for that, so no fault plays it.
                let unknown = ["labelSelector", "continue", "resourceVersion"];
                let unknown = unknown.iter().find(|k| asked.query(k).is_some());
                assert!(
                    unknown.is_none(),
                    "{unknown:?} of lists is not played: {}",
                    asked.path
                );
                let named = named(asked);
                let (mut objects, revision, of) = server.read(|s| {
                    let of = s.served.get(kind).cloned();
                    (s.list(kind, namespace), s.revision(), of)
                });
                let served = of
                    .filter(|s| s.versions.contains(version))
                    .ok_or_else(not_served)?;
                objects.retain(|o| named.as_ref().is_none_or(|n| o["metadata"]["name"] == **n));
                let name = if asked.metadata_only {
                    "PartialObjectMetadataList".to_owned()
                } else {
                    format!("{}List", served.kind)
                };
                Ok(encoded(&List {
                    kind: name,
                    api_version: api_version(group, version),
                    metadata: json!({"resourceVersion": revision.to_string()}),
                    items: objects.iter().map(|o| asked.shown(o)).collect(),
                }))
            }
            (What::Collection(namespace), &Method::POST) => {
                let mut object = asked.body.clone();
                object["apiVersion"] = json!(api_version(group, version));
                let created = server.write(|s, now| {
                    let served = s.served.get(kind);
                    if served.is_none_or(|k| !k.versions.contains(version)) {
                        return Err(not_served());
                    }
                    s.create(kind, namespace, object, now)
                })?;
                Ok(encoded(&asked.shown(&created)))
            }
            (What::Object(name, _), &Method::GET) => {
                let (found, known) =
                    server.read(|s| (s.get(kind, name), s.served.contains_key(kind)));
                if !known {
                    return Err(not_served());
                }
                let missing = || Refusal::not_found(format!("{} {:?} not found", kind.1, name.1));
                let found = found.ok_or_else(missing)?;
                Ok(encoded(&asked.shown(&found)))
            }
            (What::Object(name, status), method @ (&Method::PUT | &Method::PATCH)) => {
                let is_patch = *method == Method::PATCH;
                let via = if is_patch { Via::Patch } else { Via::Put };
                let change = |mut object: Value| {
                    if !is_patch {
                        return asked.body.clone();
                    }
                    store::merge(&mut object, &asked.body);
                    object
                };
                let written =
                    server.write(|s, now| s.update(kind, name, (via, *status), now, change))?;
                Ok(encoded(&asked.shown(&written)))
            }
            (What::Object(name, false), &Method::DELETE) => {
                let none = json!({});
                let preconditions = asked.body.get("preconditions").unwrap_or(&none);
                let left = server.write(|s, now| s.delete(kind, name, preconditions, now))?;
                Ok(match left {
                    Some(object) => encoded(&asked.shown(&object)),
                    None => encoded(&json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                        "details": {"name": name.1, "group": kind.0, "kind": kind.1},
                    })),
                })
            }
            other => panic!("not played: {other:?}"),
        }
    }
}

/// The answer to a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: String,
    metadata: Value,
    items: Vec<Shown<'a>>,
}

/// The name that a list asks for. No other field selector is played.
fn named(asked: &Asked) -> Option<String> {
    let selector = asked.query("fieldSelector")?;
    let name = selector.strip_prefix("metadata.name=");
    let name = name.filter(|n| !n.contains(','));
    let Some(name) = name else {
        panic!(
            "the field selector {selector} is not played: {}",
            asked.path
        );
    };
    Some(name.to_owned())
}

fn not_served() -> Refusal {
    Refusal::not_found("the server could not find the requested resource")
}

/// The versions of a group.
fn versions(server: &ApiServer, group: &str) -> Result<Vec<u8>, Refusal> {
    let versions: BTreeSet<String> = server.read(|s| {
        let kinds = s.served.iter().filter(|((g, _), _)| g == group);
        kinds.flat_map(|(_, k)| k.versions.clone()).collect()
    });
    if versions.is_empty() {
        return Err(not_served());
    }
    let version = |v: &String| json!({"groupVersion": api_version(group, v), "version": v});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    Ok(encoded(&json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions,
    })))
}

fn discovery(server: &ApiServer, group: &str, version: &str) -> Result<Vec<u8>, Refusal> {
    if version.is_empty() {
        return versions(server, group);
    }
    let resources: Vec<Value> = server.read(|s| {
        s.served
            .iter()
            .filter(|((g, _), k)| g == group && k.versions.iter().any(|v| v == version))
            .map(|((_, plural), k)| {
                json!({"name": plural, "singularName": "", "namespaced": k.namespaced, "kind": k.kind, "verbs": ["get", "list", "watch"]})
            })
            .collect()
    });
    if resources.is_empty() {
        return Err(not_served());
    }
    Ok(encoded(&json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version), "resources": resources,
    })))
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// An object in the form that the request wants, without a copy of it.
pub(super) struct Shown<'a> {
    object: &'a Value,
    api_version: String,
    metadata_only: bool,
}

impl<'a> Shown<'a> {
    /// The object in that version, or only its metadata if the request asks for that.
    pub(super) fn new(object: &'a Value, version: &str, group: &str, metadata_only: bool) -> Self {
        Self {
            object,
            api_version: api_version(group, version),
            metadata_only,
        }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.metadata_only {
            map.serialize_entry("kind", "PartialObjectMetadata")?;
            map.serialize_entry("apiVersion", "meta.k8s.io/v1")?;
            map.serialize_entry("metadata", &self.object["metadata"])?;
            return map.end();
        }
        map.serialize_entry("apiVersion", &self.api_version)?;
        let fields = self.object.as_object().into_iter().flatten();
        for (key, value) in fields.filter(|(k, _)| *k != "apiVersion") {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The value as bytes.
pub(super) fn encoded(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|e| panic!("{e}"))
}

fn answer(refusal: &Refusal) -> Response<ReplyBody> {
    json_reply(
        StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        encoded(&refusal.body()),
    )
}

fn away() -> Response<ReplyBody> {
    answer(&Refusal::new(503, "ServiceUnavailable", "away on request"))
}

fn not_allowed() -> Response<ReplyBody> {
    answer(&Refusal::new(403, "Forbidden", "not allowed on request"))
}

fn json_reply(status: StatusCode, text: Vec<u8>) -> Response<ReplyBody> {
    let body = Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, json);
    reply
}

async fn read(request: Request<Body>) -> Result<Asked, Failure> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let Some(target) = path::parse(&path) else {
        panic!("not played: {} {path}", parts.method);
    };
    let header = |name: http::HeaderName| {
        let value = parts.headers.get(name).and_then(|v| v.to_str().ok());
        value.unwrap_or_default()
    };
    let metadata_only = header(http::header::ACCEPT).contains("as=PartialObjectMetadata");
    let content = header(http::header::CONTENT_TYPE);
    assert!(
        parts.method != Method::PATCH || content == "application/merge-patch+json",
        "only merge patches are played, not {content}: {path}"
    );
    let bytes = body.collect().await?.to_bytes();
    let body = if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes)?
    };
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
        .map(|(k, v)| (k.into_owned(), v.into_owned()))
        .collect();
    Ok(Asked {
        method: parts.method,
        target,
        query,
        body,
        bytes,
        metadata_only,
        path,
    })
}

/// Whether this request carries that effect.
fn carries(effect: &Effect, asked: &Asked) -> bool {
    use EffectKind as E;
    let (name, status) = match &asked.target.what {
        What::Collection(_) => (None, false),
        What::Object(name, status) => (Some(name), *status),
        What::Discovery => return false,
    };
    let keyed = || {
        name.is_some_and(|(namespace, name)| {
            effect.subject.to_string() == format!("{namespace}/{name}")
        })
    };
    let (plural, method) = (asked.target.kind.1.as_str(), &asked.method);
    match effect.kind {
        E::CreateChild => plural == "vsphereagents" && method == Method::POST,
        E::PinSelector => plural == "agentmachines" && method == Method::PATCH,
        E::AddFinalizer | E::RemoveChildFinalizer | E::RemovePoolFinalizer | E::ReassignChild => {
            matches!(plural, "vsphereagents" | "vsphereagentpools") && method == Method::PATCH
        }
        E::RecordIdentity | E::RecordTask | E::RecordObservation => {
            plural == "vsphereagents" && status && method == Method::PUT && keyed()
        }
        E::PrepareAgent | E::FenceAgent | E::SkipCleanup => {
            plural == "agents" && method == Method::PATCH
        }
        E::DeleteAgent => plural == "agents" && method == Method::DELETE,
        E::DeleteChild => plural == "vsphereagents" && method == Method::DELETE,
        E::PoolStatus | E::IsoStatus => {
            plural == "vsphereagentpools" && status && method == Method::PUT
        }
        E::Event => plural == "events",
        E::HoldSecret | E::ReleaseSecret => plural == "secrets" && method == Method::PATCH,
        E::HoldInstaller | E::ReleaseInstaller => {
            plural == "agentforgeinstallerconfigs" && method == Method::PATCH && keyed()
        }
        E::InstallerStatus => {
            plural == "agentforgeinstallerconfigs" && status && method == Method::PUT && keyed()
        }
        E::CreateScripts => plural == "secrets" && method == Method::POST,
        E::Lease => plural == "leases",
        _ => false,
    }
}
