//! The transport: it takes a request, applies the planned fault, and returns the reply.

use std::{sync::Arc, time::Duration};

use agent_forge::vsphere::{Transport, TransportFailure};
use agent_forge_actors::ports::{
    effect::{Effect, EffectKind},
    vcenter::VcErrorKind,
};
use async_trait::async_trait;
use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{
    Course, VCenter,
    calls::{Invocation, Reply, content},
    model::{Fault as VcFault, Inventory, Ref},
};
use crate::{
    between,
    call::Read,
    director::{Life, alive},
    kube::{
        service::SLOW,
        store::{list, text},
    },
    oracles::marker,
    plan::{Fault, FaultClass},
    traffic::Asked as Counted,
};

/// How long a request takes.
const LATENCY: Duration = Duration::from_millis(5);
/// How long after its arrival a late request is carried out. By then its client has given up and has looked.
const LATE: Duration = Duration::from_secs(50);
/// The same for an upload. Its client waits for 5 minutes after the last byte. Then it takes up to 30 s to delete a
/// file that may be left.
const LATE_UPLOAD: Duration = Duration::from_secs(350);
/// How old a stale answer is.
const STALE: Duration = Duration::from_secs(10);
const SESSION_HEADER: &str = "vmware-api-session-id";

/// The operator's transport to vCenter.
pub struct Wire {
    /// The vCenter.
    pub vcenter: VCenter,
    /// The process that sends the requests.
    pub life: Arc<Life>,
}

/// How a request for a file is authenticated: by the session as cookie, or by user and password.
#[derive(Clone, Debug)]
struct Key {
    session: String,
    basic: String,
}

/// A file, and the key to it.
#[derive(Clone, Debug)]
struct Place {
    key: Key,
    store: String,
    path: String,
}

/// A request that was read.
#[derive(Clone, Debug)]
enum Asked {
    Hello,
    Content,
    Property(String, Ref, String),
    Call(Invocation),
    AutomationLogin(String),
    AutomationLogout(String),
    Attach {
        token: String,
        vm: String,
        tags: Vec<String>,
    },
    Head(Place),
    /// The bytes come later.
    Put(Place, Bytes),
}

impl Asked {
    fn name(&self) -> String {
        match self {
            Self::Call(call) => call.method.clone(),
            Self::Property(_, object, property) => format!("GET {}.{property}", object.kind),
            Self::Head(file) => format!("HEAD [{}] {}", file.store, file.path),
            Self::Put(file, _) => format!("PUT [{}] {}", file.store, file.path),
            Self::Attach { vm, tags, .. } => format!("attach {tags:?} to {vm}"),
            Self::AutomationLogin(_) => "POST /api/session".to_owned(),
            Self::AutomationLogout(_) => "DELETE /api/session".to_owned(),
            Self::Hello => "hello".to_owned(),
            Self::Content => "content".to_owned(),
        }
    }

    /// Whether the reply comes only after a change, or much later.
    fn is_long_poll(&self) -> bool {
        matches!(self, Self::Call(call) if call.method == "WaitForUpdatesEx")
    }

    /// What the request reads live, with the keys of its points. A request may ask for several VMs.
    fn live_reads(&self, vcenter: &VCenter) -> Vec<(Read, String)> {
        let one = |read, key: String| vec![(read, key)];
        let plain = |path: &str| path.replace('[', "").replace("] ", "/");
        let Self::Call(call) = self else {
            return Vec::new();
        };
        match call.method.as_str() {
            "FindAllByUuid" => one(Read::FindVm, text(&call.arguments, "/uuid").to_owned()),
            "SearchDatastore_Task" => {
                let path = text(&call.arguments, "/datastorePath");
                one(Read::SearchFiles, plain(path))
            }
            "RetrievePropertiesEx" => vcenter.read(|i| {
                let objects = list(&call.arguments, "/specSet/0/objectSet").iter();
                let objects = objects.filter_map(|o| Ref::read(&o["obj"]));
                let read = objects.filter_map(|o| match o.kind.as_str() {
                    "VirtualMachine" => Some((Read::ReadVm, whose(i, &o))),
                    "ContainerView" => Some((Read::ListVms, "all".to_owned())),
                    _ => None,
                });
                read.collect()
            }),
            _ => Vec::new(),
        }
    }

    /// How late a late request is carried out.
    fn lateness(&self) -> Duration {
        match self {
            Self::Put(..) => LATE_UPLOAD,
            _ => LATE,
        }
    }

    /// The effects that such a request can carry. Empty for a request that changes nothing.
    fn effects(&self) -> &'static [EffectKind] {
        use EffectKind as E;
        match self {
            Self::Call(call) => match call.method.as_str() {
                "Login" => &[E::Login],
                "Logout" => &[E::Logout],
                "CreateVM_Task" => &[E::CreateVm],
                "ReconfigVM_Task" => &[E::Reconfigure, E::EjectIso, E::Renew],
                "AnswerVM" => &[E::EjectIso],
                "PowerOnVM_Task" => &[E::PowerOn],
                "PowerOffVM_Task" => &[E::PowerOff],
                "ResetVM_Task" => &[E::Reset],
                "Destroy_Task" => &[E::Destroy],
                "MakeDirectory" => &[E::MakeDirectory],
                "MoveDatastoreFile_Task" => &[E::Publish],
                "DeleteDatastoreFile_Task" => &[E::DeleteFile],
                "CreateFolder" => &[E::CreateFolder],
                "CreateListView"
                | "ModifyListView"
                | "CreateContainerView"
                | "DestroyView"
                | "CreateFilter"
                | "CreatePropertyCollector"
                | "DestroyPropertyCollector" => &[E::SessionView],
                _ => &[],
            },
            Self::AutomationLogin(_) => &[E::Login],
            Self::AutomationLogout(_) => &[E::Logout],
            Self::Attach { .. } => &[E::AttachTags],
            Self::Put(..) => &[E::Upload],
            _ => &[],
        }
    }
}

/// The VsphereAgent in the mark of that VM, which has the same name in each run. Else its reference.
fn whose(inventory: &Inventory, vm: &Ref) -> String {
    let marker = inventory.vms.get(&vm.id).and_then(marker);
    marker.map_or_else(|| vm.id.clone(), |m| format!("{}/{}", m.namespace, m.name))
}

fn no_answer(message: &str) -> TransportFailure {
    TransportFailure {
        kind: VcErrorKind::NoAnswer,
        message: message.to_owned(),
    }
}

/// The bytes of a body, and the reason if it ended early.
async fn received(mut body: reqwest::Body) -> (Bytes, Option<String>) {
    let mut came = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => came.extend_from_slice(&data),
            Ok(Err(_trailers)) => {}
            Err(e) => return (came.freeze(), Some(e.to_string())),
        }
    }
    (came.freeze(), None)
}

#[async_trait]
impl Transport for Wire {
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        let life = &self.life;
        alive(Some(life)).await;
        let director = &self.vcenter.director;
        let (mut asked, body) = self.read(request);
        let kinds = asked.effects();
        let noted = (!kinds.is_empty())
            .then(|| director.arrived(life, &asked.name(), |e: &Effect| kinds.contains(&e.kind)));
        director.traffic.count(Counted::Call);
        let _waiting = asked.is_long_poll().then(|| director.traffic.wait());
        if director.vcenter_is_away() {
            director.traffic.count(Counted::Refused);
            tokio::time::sleep(LATENCY).await;
            alive(Some(life)).await;
            return Err(TransportFailure {
                kind: VcErrorKind::Unreachable,
                message: "no connection: connection refused".to_owned(),
            });
        }
        let live = asked.live_reads(&self.vcenter).into_iter();
        let mut live = live.map(|(read, key)| director.reads(life, read, key));
        // Each VM of a request has a point of its own. The first fault hits the whole request.
        let of_read = live.by_ref().flatten().next();
        live.for_each(drop);
        let fault = noted.and_then(|n| n.fault).filter(|f| f.at_request());
        let fault = fault.or(of_read);
        if fault == Some(Fault::CrashBeforeRequest) {
            director.crash(life);
            alive(Some(life)).await;
        }
        if let (Asked::Put(_, bytes), Some(body)) = (&mut asked, body) {
            let (came, broken) = received(body).await;
            *bytes = came;
            if let Some(why) = broken {
                // Bytes that arrived are stored, as on a real datastore.
                if fault.is_none() {
                    self.perform(&asked, Course::Usual).await;
                }
                return Err(no_answer(&format!("the upload broke off: {why}")));
            }
        }
        tokio::time::sleep(self.vcenter.latency(LATENCY)).await;
        alive(Some(life)).await;
        let reply = match fault {
            Some(Fault::CrashAfterEffect) => {
                self.perform(&asked, Course::Usual).await;
                director.crash(life);
                None
            }
            Some(Fault::Refused) => Some(refused(&asked)),
            Some(Fault::ServerError) => Some(Reply::status(503)),
            Some(Fault::PermissionDenied) => Some(not_allowed(&asked)),
            Some(Fault::RequestLost) => None,
            Some(Fault::ReplyLost) => {
                self.perform(&asked, Course::Usual).await;
                None
            }
            Some(Fault::RequestDuplicated) => {
                self.perform(&asked, Course::Usual).await;
                Some(self.perform(&asked, Course::Usual).await)
            }
            Some(Fault::EffectLate) => {
                let late = Self {
                    vcenter: self.vcenter.clone(),
                    life: life.clone(),
                };
                let asked = asked.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(asked.lateness()).await;
                    late.vcenter
                        .director
                        .line(|| format!("late: {}", asked.name()));
                    late.perform(&asked, Course::Usual).await;
                });
                None
            }
            Some(Fault::AnswerSlow15s) => {
                let reply = self.perform(&asked, Course::Usual).await;
                tokio::time::sleep(SLOW).await;
                Some(reply)
            }
            Some(Fault::AnswerStale10s) => Some(self.perform_as_of(STALE, &asked).await),
            Some(fault) if fault.class() == FaultClass::Between => {
                if let Asked::Call(call) = &asked {
                    between::vm(&self.vcenter, fault, &call.target);
                }
                Some(self.perform(&asked, Course::Usual).await)
            }
            Some(Fault::TaskFails) => Some(self.perform(&asked, Course::Fails).await),
            Some(Fault::TaskHangs10m) => Some(self.perform(&asked, Course::Hangs).await),
            _ => Some(self.perform(&asked, Course::Usual).await),
        };
        let Some(reply) = reply else {
            return std::future::pending().await;
        };
        tokio::time::sleep(self.vcenter.latency(LATENCY)).await;
        alive(Some(life)).await;
        if director.vcenter_is_away() {
            return Err(no_answer("the connection ended before the answer: reset"));
        }
        Ok(response(&asked, &reply))
    }
}

/// A temporary refusal, in the form of this call.
fn refused(asked: &Asked) -> Reply {
    let reason = json!({"reason": "refused on request"});
    let fault = VcFault::new("SystemError", reason);
    refusal(
        asked,
        500,
        "INTERNAL_SERVER_ERROR",
        "refused on request",
        fault,
    )
}

/// A refusal for lack of a right. Nothing was done, and the client knows that.
fn not_allowed(asked: &Asked) -> Reply {
    let object =
        json!({"_typeName": "ManagedObjectReference", "type": "Folder", "value": "group-v1"});
    let privilege = json!({"object": object, "privilegeId": "System.View"});
    let fault = VcFault::new("NoPermission", privilege);
    refusal(asked, 403, "UNAUTHORIZED", "not allowed on request", fault)
}

/// A refusal by the interface that serves this call.
fn refusal(asked: &Asked, status: u16, kind: &str, message: &str, fault: VcFault) -> Reply {
    match asked {
        Asked::Attach { .. } | Asked::AutomationLogin(_) | Asked::AutomationLogout(_) => {
            automation_error(status, kind, &[json!({"default_message": message})])
        }
        Asked::Put(..) => Reply::status(status),
        _ => fault.into(),
    }
}

fn response(asked: &Asked, reply: &Reply) -> reqwest::Response {
    let mut response = http::Response::builder().status(reply.status);
    if let Some(token) = &reply.session {
        response = response.header(SESSION_HEADER, token);
    }
    let body = match (asked, &reply.body) {
        (Asked::Head(_), _) | (_, Value::Null) => String::new(),
        (_, body) => body.to_string(),
    };
    let response = response.body(body).unwrap_or_else(|_| unreachable!());
    reqwest::Response::from(response)
}

impl Wire {
    /// Reads a request. The body of an upload is returned separately.
    fn read(&self, mut request: reqwest::Request) -> (Asked, Option<reqwest::Body>) {
        let header = |name: &str| {
            let value = request.headers().get(name).and_then(|v| v.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let token = header(SESSION_HEADER);
        let authorization = header("authorization");
        let url = request.url().clone();
        let query = |key: &str| {
            let found = url.query_pairs().find(|(k, _)| k == key);
            found.map(|(_, v)| v.into_owned()).unwrap_or_default()
        };
        let decode = |text: &str| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8_lossy()
                .into_owned()
        };
        let segments: Vec<String> = url
            .path()
            .trim_start_matches('/')
            .split('/')
            .map(decode)
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let method = request.method().clone();
        let arguments = || -> Value {
            let bytes = request
                .body()
                .and_then(reqwest::Body::as_bytes)
                .unwrap_or_default();
            serde_json::from_slice(bytes).unwrap_or_default()
        };
        let asked = match (segments.as_slice(), &method) {
            (["api", "vcenter", "system"], &Method::POST) => Asked::Hello,
            (["api", "session"], &Method::POST) => Asked::AutomationLogin(authorization),
            (["api", "session"], &Method::DELETE) => Asked::AutomationLogout(token),
            (["api", "cis", "tagging", "tag-association", rest @ ..], &Method::POST) => {
                let body = arguments();
                let tags = match rest {
                    [tag] => vec![(*tag).to_owned()],
                    _ => list(&body, "/tag_ids")
                        .iter()
                        .filter_map(|t| t.as_str().map(str::to_owned))
                        .collect(),
                };
                let vm = text(&body, "/object_id/id").to_owned();
                Asked::Attach { token, vm, tags }
            }
            (
                [
                    "sdk",
                    "vim25",
                    _,
                    "ServiceInstance",
                    "ServiceInstance",
                    "content",
                ],
                &Method::GET,
            ) => Asked::Content,
            (["sdk", "vim25", _, kind, id, property], &Method::GET) => {
                Asked::Property(token, Ref::new(kind, *id), (*property).to_owned())
            }
            (["sdk", "vim25", _, kind, id, method], &Method::POST) => Asked::Call(Invocation {
                token,
                target: Ref::new(kind, *id),
                method: (*method).to_owned(),
                arguments: arguments(),
                life: self.life.number,
            }),
            (["folder", path @ ..], method) => {
                let (store, path) = (query("dsName"), path.join("/"));
                let session = header("cookie").replace("vmware_soap_session=", "");
                let basic = authorization;
                let key = Key { session, basic };
                let file = Place { key, store, path };
                if *method == Method::HEAD {
                    Asked::Head(file)
                } else {
                    Asked::Put(file, Bytes::new())
                }
            }
            other => panic!("not played: {other:?}"),
        };
        let body = matches!(asked, Asked::Put(..))
            .then(|| request.body_mut().take())
            .flatten();
        (asked, body)
    }

    /// Answers with the power of VMs as it was so long ago. vCenter learns it from the hosts, and may be late.
    async fn perform_as_of(&self, ago: Duration, asked: &Asked) -> Reply {
        let then = tokio::time::Instant::now().checked_sub(ago);
        self.vcenter.write_quietly(|i| i.shows = then);
        // A read awaits nothing, so nobody else sees the inventory of that moment.
        let reply = self.perform(asked, Course::Usual).await;
        self.vcenter.write_quietly(|i| i.shows = None);
        reply
    }

    async fn perform(&self, asked: &Asked, course: Course) -> Reply {
        let reply = self.carry_out(asked, course).await;
        let vcenter = &self.vcenter;
        if !asked.effects().is_empty() {
            vcenter.director.line(|| {
                let how = match reply.status {
                    200..=299 => reply.body["value"].as_str().unwrap_or("ok").to_owned(),
                    status => format!("{status} {}", text(&reply.body, "/_typeName")),
                };
                format!("    vcenter {}: {how}", asked.name())
            });
            if let Asked::Call(call) = asked {
                vcenter
                    .director
                    .digest(call.arguments.to_string().as_bytes());
            }
        }
        reply
    }

    async fn carry_out(&self, asked: &Asked, course: Course) -> Reply {
        let vcenter = &self.vcenter;
        match asked {
            Asked::Hello => Reply::ok(json!({"api_release": "8.0.2.0"})),
            Asked::Content => Reply::ok(content()),
            Asked::Property(token, object, property) => vcenter.read(|i| {
                if property == "currentSession" {
                    let session = i.sessions.get(token);
                    return Reply::ok(session.map_or(Value::Null, |s| json!({"userName": s.user})));
                }
                if !i.sessions.contains_key(token) {
                    return VcFault::new("NotAuthenticated", json!({})).into();
                }
                let node = i.nodes.get(object);
                match node.and_then(|n| n.properties.get(property.as_str())) {
                    Some(value) => Reply::ok(value.clone()),
                    None => VcFault::new("InvalidProperty", json!({"name": property})).into(),
                }
            }),
            Asked::Call(invocation) => vcenter.invoke(invocation, course).await,
            Asked::AutomationLogin(authorization) => vcenter.write(|i| {
                if *authorization != basic(i) {
                    return automation_error(401, "UNAUTHENTICATED", &[]);
                }
                let user = i.login.0.clone();
                let token = i.open_session(&user, self.life.number, true);
                Reply {
                    status: 201,
                    session: None,
                    body: json!(token),
                }
            }),
            Asked::AutomationLogout(token) => vcenter.write(|i| {
                i.sessions.remove(token);
                Reply::status(204)
            }),
            Asked::Attach { token, vm, tags } => vcenter.write(|i| {
                // This release keeps the sessions of its two APIs apart.
                if !i.sessions.get(token).is_some_and(|s| s.automation) {
                    return automation_error(401, "UNAUTHENTICATED", &[]);
                }
                if !i.vms.contains_key(vm) {
                    return automation_error(404, "NOT_FOUND", &[]);
                }
                let of_vm = i.tags.entry(vm.clone()).or_default();
                of_vm.extend(tags.iter().cloned());
                if tags.len() == 1 {
                    return Reply::status(204);
                }
                Reply::ok(json!({"success": true, "error_messages": []}))
            }),
            Asked::Head(file) => vcenter.read(|i| {
                if !lets_in(i, &file.key) {
                    return Reply::status(401);
                }
                let key = (file.store.clone(), file.path.clone());
                Reply::status(if i.files.contains_key(&key) { 200 } else { 404 })
            }),
            Asked::Put(file, bytes) => {
                if !vcenter.read(|i| lets_in(i, &file.key)) {
                    return Reply::status(401);
                }
                if vcenter.director.disks_are_full() {
                    return Reply::status(507);
                }
                let modified = crate::world::wall(&vcenter.director).to_string();
                let (store, path) = (&file.store, &file.path);
                let stored = vcenter.write(|i| i.upload(store, path, bytes.clone(), modified));
                Reply::status(stored.unwrap_or_else(|status| status))
            }
        }
    }
}

fn basic(inventory: &Inventory) -> String {
    let pair = format!("{}:{}", inventory.login.0, inventory.login.1);
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(pair)
    )
}

fn lets_in(inventory: &Inventory, key: &Key) -> bool {
    let session = inventory.sessions.get(&key.session);
    session.is_some_and(|s| !s.automation) || key.basic == basic(inventory)
}

fn automation_error(status: u16, kind: &str, messages: &[Value]) -> Reply {
    Reply {
        status,
        session: None,
        body: json!({"error_type": kind, "messages": messages}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    #[tokio::test]
    async fn what_came_of_a_broken_body_is_kept() {
        let chunks = [
            Ok(Bytes::from_static(b"be")),
            Ok(Bytes::from_static(b"gun")),
            Err(std::io::Error::other("cut")),
        ];
        let body = reqwest::Body::wrap_stream(futures::stream::iter(chunks));
        let (came, broken) = received(body).await;
        assert_eq!((came.as_ref(), broken.is_some()), (&b"begun"[..], true));
        let (came, broken) = received("all of it".into()).await;
        assert_eq!((came.as_ref(), broken), (&b"all of it"[..], None));
    }

    #[test]
    fn the_operator_gets_the_time_that_a_late_request_takes() {
        let late = |effect: EffectKind| Fault::EffectLate.lasts_at(Call::Effect(effect));
        assert!(late(EffectKind::Upload) > LATE_UPLOAD);
        assert!(late(EffectKind::CreateVm) > LATE);
    }
}
