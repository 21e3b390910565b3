//! Watches: passes each change to the supervisor. There is one watch per kind over all namespaces. With `--namespaces`
//! there is one per kind and namespace.
//!
//! Guarantees: if an object vanishes during an outage, the end of the next relist reports it. A change that no decision
//! reads (heartbeats, trimmed annotations) updates the cache and wakes no actor.

use std::{fmt::Debug, sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::{goal, names::ObjectKey, upstream::MachineFacts},
    supervisor::{
        SupervisorMsg,
        routing::{AgentNews, Change},
    },
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    external::{
        agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv, machine::MachineVersion,
    },
};
use futures::{Stream, StreamExt, future::join_all, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::DynamicObject,
    core::{NamespaceResourceScope, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use ractor::ActorRef;
use serde::de::DeserializeOwned;
use tokio::{sync::oneshot, time::Instant};

use super::{
    cache::{Cache, Feed},
    client::Clients,
    grants, installers, machines, pausables,
    scope::{self, Part},
    trim,
    view::{Caches, NamespaceGrant},
};

/// Pause before a kind that is not served (a CRD that is not installed yet) is looked for again.
pub(super) const NOT_SERVED: Duration = Duration::from_secs(5);

/// How long after all kinds were asked for because of a doubt they are asked for once more. A kind that cannot be followed for
/// longer than a moment must not keep the others from being followed.
const BETWEEN_DOUBTS: Duration = Duration::from_secs(30);

/// Objects in one page of a list. A page is held as text, and then untrimmed. Anybody may give an object 256 KiB of
/// annotations.
pub(super) const PAGE: u32 = 10;
/// The same for Agents, of which there may be ten thousand, and for the live lists of what no author of a pool writes. A large
/// Agent has 60 kB.
pub(super) const AGENTS_PAGE: u32 = 50;

/// Objects of that kind in one page of a list.
pub(super) fn page<K: Resource<DynamicType = ()>>() -> u32 {
    if K::kind(&()) == Agent::kind(&()) {
        AGENTS_PAGE
    } else {
        PAGE
    }
}

/// Runs all watches until the task is dropped. A message on `relist` makes all watches start again with a list. When the
/// answer to it is sent, the caches count as incomplete until the new lists are complete.
pub async fn run(
    clients: Clients,
    caches: Arc<Caches>,
    supervisor: ActorRef<SupervisorMsg>,
    relist: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let tell = move |change| {
        let _ = supervisor.send_message(SupervisorMsg::Changed(change));
    };
    follow_all(&clients, &caches, &tell, relist).await;
}

async fn follow_all(
    clients: &Clients,
    caches: &Caches,
    tell: &impl Fn(Change),
    relist: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let relist = async {
        match relist.await {
            Ok(begun) => begun,
            Err(_) => std::future::pending().await,
        }
    };
    pin_mut!(relist);
    let (mut asked, mut last) = (false, None);
    loop {
        tokio::select! {
            // In this order: the same events lead to the same requests.
            biased;
            // The earlier watches are gone, so their lists cannot be mistaken for new ones.
            begun = &mut relist, if !asked => {
                asked = true;
                caches.list_again();
                let _ = begun.send(());
            }
            () = is_doubted(caches, last) => {
                tracing::warn!(
                    "a watch has lost its place, as after a restore of the API server: all kinds are listed again, and nothing is \
                     ended before"
                );
                caches.mistrust();
                last = Some(Instant::now());
            }
            () = everything(clients, caches, tell) => return,
        }
    }
}

/// Ends when the caches are in doubt, but not within [`BETWEEN_DOUBTS`] after the time before.
async fn is_doubted(caches: &Caches, last: Option<Instant>) {
    caches.doubt.begins().await;
    if let Some(last) = last {
        tokio::time::sleep_until(last + BETWEEN_DOUBTS).await;
    }
}

async fn everything(clients: &Clients, caches: &Caches, tell: &impl Fn(Change)) {
    let (client, scope) = (&clients.watch, &caches.scope);
    let parts = scope.parts();
    let all = join_all(parts.iter().map(|p| watch(client, p, caches, tell)));
    let installers = async {
        if let Some(installers) = &caches.installers {
            installers::watch(client, installers, tell).await;
        }
    };
    let all = async { tokio::join!(all, installers, tell_bounds(caches, tell)) };
    let namespaces = caches.namespaces.clone();
    if scope.is_all() {
        tokio::join!(all, follow_namespaces(client, &namespaces, tell));
    } else {
        let told = |differences| report(differences, &namespace_change, tell);
        let request = clients.request.clone();
        tokio::join!(all, grants::poll(request, scope, namespaces, told));
    }
}

/// Tells of each namespace that comes over its bound, or below it.
async fn tell_bounds(caches: &Caches, tell: &impl Fn(Change)) {
    loop {
        for namespace in caches.meter.turned().await {
            tell(Change::Namespace(namespace));
        }
    }
}

/// The watches of one part, one for each kind.
async fn watch(client: &Client, part: &Part, caches: &Caches, tell: &impl Fn(Change)) {
    let of = (client, part);
    tokio::join!(
        follow(of, &caches.pools, trim::metadata, pool_change, tell),
        follow(of, &caches.children, trim::metadata, child_change, tell),
        follow(
            of,
            &caches.agent_machines,
            trim::metadata,
            agent_machine_change,
            tell
        ),
        follow(of, &caches.agents, trim::agent, agent_change, tell),
        follow(
            of,
            &caches.infra_envs,
            trim::metadata,
            infra_env_change,
            tell
        ),
        follow_machines(of, &caches.machines, tell),
        join_all((caches.pausables.iter()).map(|(kind, c)| pausables::follow(of, *kind, c, tell))),
    );
}

/// An object before or after a change; `None` if it does not exist.
pub type Shown<'a, K> = Option<&'a Arc<K>>;

/// Whether an object changed in anything that decisions read. The projection must contain all of that.
fn differs<'a, K, P: PartialEq>(
    old: Shown<'a, K>,
    new: Shown<'a, K>,
    project: impl Fn(&'a K) -> P,
) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => project(old) != project(new),
        (None, None) => false,
        _ => true,
    }
}

fn pool_change(
    key: ObjectKey,
    old: Shown<'_, VsphereAgentPool>,
    new: Shown<'_, VsphereAgentPool>,
) -> Option<Change> {
    let deep = differs(old, new, |p| {
        let iso = p.status.as_ref().and_then(|s| s.iso.as_ref());
        (
            &p.spec,
            p.metadata.deletion_timestamp.is_some(),
            p.annotations(),
            iso.map(|i| (&i.stored_path, &i.path)),
            p.status.as_ref().map(|s| &s.held_secrets),
        )
    });
    let shallow = differs(old, new, |p| {
        (p.finalizers(), p.status.as_ref().and_then(|s| s.closed))
    });
    (deep || shallow).then_some(Change::Pool { key, deep })
}

fn child_change(
    key: ObjectKey,
    old: Shown<'_, VsphereAgent>,
    new: Shown<'_, VsphereAgent>,
) -> Option<Change> {
    let states = old.into_iter().chain(new);
    let pools = states
        .flat_map(|c| [goal::user(c), goal::maker(c)])
        .collect();
    let deep = differs(old, new, |c| {
        (
            &c.spec,
            c.metadata.deletion_timestamp.is_some(),
            c.labels(),
            c.annotations(),
            c.finalizers(),
        )
    });
    let status = differs(old, new, |c| &c.status);
    (deep || status).then_some(Change::ManagedVm { key, pools, deep })
}

fn agent_machine_change(
    key: ObjectKey,
    old: Shown<'_, AgentMachine>,
    new: Shown<'_, AgentMachine>,
) -> Option<Change> {
    differs(old, new, |am| {
        (
            &am.spec,
            &am.status,
            am.finalizers(),
            am.is_deleting(),
            am.owner_references(),
            am.annotations(),
        )
    })
    .then_some(Change::Machine(key))
}

fn infra_env_change(
    key: ObjectKey,
    old: Shown<'_, InfraEnv>,
    new: Shown<'_, InfraEnv>,
) -> Option<Change> {
    differs(old, new, |i| {
        (&i.spec, &i.status, i.metadata.deletion_timestamp.is_some())
    })
    .then_some(Change::InfraEnv(key))
}

/// What a change of an Agent means for the actors.
pub fn agent_change(
    key: ObjectKey,
    old: Shown<'_, Agent>,
    new: Shown<'_, Agent>,
) -> Option<Change> {
    let conditions = |a: &Agent| -> Vec<(String, String, Option<String>)> {
        // Heartbeat times do not count.
        a.conditions()
            .iter()
            .map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone()))
            .collect()
    };
    differs(old, new, |a| {
        (
            &a.spec,
            a.labels(),
            a.metadata.deletion_timestamp.is_some(),
            a.state(),
            a.inventory(),
            a.claimed_by_namespace(),
            conditions(a),
        )
    })
    .then(|| {
        let [old, new] = [old, new].map(|seen| seen.map(AsRef::as_ref));
        Change::Agent(AgentNews::between(key, old, new))
    })
}

pub(super) async fn follow<K>(
    (client, part): (&Client, &Part),
    cache: &Arc<Cache<K>>,
    trim: impl Fn(&mut K),
    change: impl Fn(ObjectKey, Shown<'_, K>, Shown<'_, K>) -> Option<Change>,
    tell: &impl Fn(Change),
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    loop {
        let paged = watcher::Config::default().page_size(page::<K>());
        let stream = watcher(scope::api::<K>(client, part), paged).default_backoff();
        let mut feed = Feed::new(cache.clone(), part.clone());
        let stream = until_refilled(stream, cache, part);
        pin_mut!(stream);
        while let Some(event) = next(&mut stream, &K::kind(&()), || cache.is_ahead()).await {
            let event = map(event, |mut object| {
                trim(&mut object);
                object
            });
            report(feed.take(event, ObjectKey::of), &change, tell);
        }
    }
}

/// The stream, until a new list would bring objects that are left out. A watch has no other end.
pub(super) fn until_refilled<'a, K: 'a>(
    stream: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + 'a,
    cache: &'a Cache<impl Debug>,
    part: &'a Part,
) -> impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + 'a {
    stream.take_until(cache.is_to_be_refilled(part))
}

pub(super) fn report<K>(
    differences: Vec<super::cache::Difference<K>>,
    change: &impl Fn(ObjectKey, Shown<'_, K>, Shown<'_, K>) -> Option<Change>,
    tell: &impl Fn(Change),
) {
    for (key, old, new) in differences {
        if let Some(change) = change(key, old.as_ref(), new.as_ref()) {
            tell(change);
        }
    }
}

/// Follows the metadata of Machines, in the newest served version. When that version is no longer served, for example
/// after an upgrade of Cluster API, it looks for the newest version again.
async fn follow_machines(
    (client, part): (&Client, &Part),
    cache: &Arc<Cache<MachineFacts>>,
    tell: &impl Fn(Change),
) {
    loop {
        let version = match machines::served_version(client).await {
            Ok(version) => version,
            Err(e) => {
                tracing::warn!("{e}; is Cluster API installed?");
                tokio::time::sleep(NOT_SERVED).await;
                continue;
            }
        };
        follow_machine_version((client, part), version, cache, tell).await;
        tokio::time::sleep(NOT_SERVED).await;
    }
}

/// Ends when that version is no longer served, or is to be listed again. Its objects stay in the cache until the next list.
async fn follow_machine_version(
    (client, part): (&Client, &Part),
    version: MachineVersion,
    cache: &Arc<Cache<MachineFacts>>,
    tell: &impl Fn(Change),
) {
    let (client, resource) = (client.clone(), version.api_resource());
    let api = match part {
        Some(namespace) => {
            Api::<PartialObjectMeta<DynamicObject>>::namespaced_with(client, namespace, &resource)
        }
        None => Api::all_with(client, &resource),
    };
    let paged = watcher::Config::default().page_size(PAGE);
    let stream = watcher(api, paged).default_backoff();
    let mut feed = Feed::new(cache.clone(), part.clone());
    let stream = until_refilled(stream, cache, part);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => map(event, |object| machines::facts(&object, version)),
            Err(e) => {
                tracing::warn!(kind = "Machine", "watch: {e}");
                if is_not_served(&e) {
                    return;
                }
                continue;
            }
        };
        let changed = |key, old: Shown<'_, MachineFacts>, new: Shown<'_, MachineFacts>| {
            (old != new).then_some(Change::Machine(key))
        };
        report(feed.take(event, |m| m.key.clone()), &changed, tell);
    }
}

/// Follows the metadata of Namespaces. Only name and grant are kept.
async fn follow_namespaces(
    client: &Client,
    cache: &Arc<Cache<NamespaceGrant>>,
    tell: &impl Fn(Change),
) {
    loop {
        let api = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
        let paged = watcher::Config::default().page_size(PAGE);
        let stream = watcher(api, paged).default_backoff();
        let mut feed = Feed::new(cache.clone(), None);
        let stream = until_refilled(stream, cache, &None);
        pin_mut!(stream);
        while let Some(event) = next(&mut stream, "Namespace", || cache.is_ahead()).await {
            let event = map(event, |namespace| NamespaceGrant::of(&namespace));
            let key = |n: &NamespaceGrant| NamespaceGrant::key(&n.name);
            report(feed.take(event, key), &namespace_change, tell);
        }
    }
}

fn namespace_change(
    key: ObjectKey,
    old: Shown<'_, NamespaceGrant>,
    new: Shown<'_, NamespaceGrant>,
) -> Option<Change> {
    let grant = |n: Shown<'_, NamespaceGrant>| n.and_then(|n| n.grant.clone());
    (grant(old) != grant(new)).then_some(Change::Namespace(key.name))
}

/// Whether the API server does not know the watched kind.
pub(super) fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) =
        error
    else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The next event. Errors are logged; then the stream backs off and continues.
async fn next<K>(
    stream: &mut (impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Unpin),
    kind: &str,
    ahead: impl Fn(),
) -> Option<watcher::Event<K>> {
    loop {
        match stream.next().await? {
            Ok(event) => return Some(event),
            Err(e) => {
                tracing::warn!(kind, "watch: {e}");
                if is_ahead(&e) {
                    ahead();
                }
            }
        }
    }
}

/// Whether the API server does not know the version yet that the watch has seen: it was set back to an earlier one. Such a
/// watch would wait until the version exists, and go on in another history without a new list.
fn is_ahead(error: &watcher::Error) -> bool {
    let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error else {
        return false;
    };
    status.message.contains("Too large resource version")
}

pub(super) fn map<A, B>(event: watcher::Event<A>, f: impl FnOnce(A) -> B) -> watcher::Event<B> {
    match event {
        watcher::Event::Apply(o) => watcher::Event::Apply(f(o)),
        watcher::Event::Delete(o) => watcher::Event::Delete(f(o)),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(o) => watcher::Event::InitApply(f(o)),
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use futures::future::BoxFuture;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::{
        sync::{mpsc, watch},
        time::timeout,
    };
    use tower::Service;

    use super::*;

    /// An API server that serves Machines in one version, and after a signal only in the next one.
    struct Upgraded(watch::Receiver<bool>);

    fn answer(status: StatusCode, body: &Value) -> Response<Body> {
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = status;
        response
    }

    fn not_found() -> Response<Body> {
        let body =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        answer(StatusCode::NOT_FOUND, &body)
    }

    impl Service<Request<Body>> for Upgraded {
        type Response = Response<Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let mut upgraded = self.0.clone();
            Box::pin(async move {
                let version = if *upgraded.borrow() {
                    "v1beta2"
                } else {
                    "v1beta1"
                };
                let group = format!("/apis/cluster.x-k8s.io/{version}");
                let resource = json!({
                    "name": "machines", "singularName": "machine", "namespaced": true, "kind": "Machine",
                    "verbs": ["get", "list", "watch"],
                });
                let machine = json!({
                    "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Machine",
                    "metadata": {"name": "a", "namespace": "demo", "uid": "uid-a", "resourceVersion": "1"},
                });
                let path = request.uri().path();
                let watches = request
                    .uri()
                    .query()
                    .is_some_and(|q| q.contains("watch=true"));
                Ok(if path == group {
                    let body = json!({
                        "kind": "APIResourceList", "groupVersion": group.trim_start_matches("/apis/"),
                        "resources": [resource],
                    });
                    answer(StatusCode::OK, &body)
                } else if path != format!("{group}/machines") {
                    not_found()
                } else if watches {
                    // Nothing changes until that version is removed.
                    if *upgraded.borrow() {
                        std::future::pending::<()>().await;
                    }
                    let _ = upgraded.wait_for(|done| *done).await;
                    not_found()
                } else {
                    let body = json!({
                        "kind": "MachineList", "apiVersion": machine["apiVersion"],
                        "metadata": {"resourceVersion": "1"}, "items": [machine],
                    });
                    answer(StatusCode::OK, &body)
                })
            })
        }
    }

    #[test]
    fn a_namespace_wakes_somebody_where_its_grant_changes_only() {
        let named = |grant: Option<&str>| {
            let grant = grant.map(str::to_owned);
            Arc::new(NamespaceGrant {
                name: "victim".to_owned(),
                grant,
            })
        };
        let (silent, one, all) = (named(None), named(Some("a")), named(Some("*")));
        for (old, new, wakes) in [
            (None, Some(&silent), false),
            (Some(&silent), None, false),
            (None, Some(&one), true),
            (Some(&silent), Some(&one), true),
            (Some(&one), Some(&one), false),
            (Some(&one), Some(&all), true),
            (Some(&all), Some(&silent), true),
            (Some(&all), None, true),
        ] {
            let change = namespace_change(NamespaceGrant::key("victim"), old, new);
            let wanted = wakes.then(|| Change::Namespace("victim".to_owned()));
            assert_eq!(change, wanted, "{old:?} -> {new:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn machines_are_followed_into_another_version_when_theirs_is_served_no_more() {
        let (upgrade, upgraded) = watch::channel(false);
        let client = Client::new(Upgraded(upgraded), "default");
        let cache = Arc::new(Cache::<MachineFacts>::of(&[None]));
        let (told, mut heard) = mpsc::unbounded_channel();
        let following = cache.clone();
        let _watching = tokio::spawn(async move {
            let tell = move |change| {
                let _ = told.send(change);
            };
            follow_machines((&client, &None), &following, &tell).await;
        });
        for version in ["v1beta1", "v1beta2"] {
            let change = timeout(Duration::from_secs(60), heard.recv()).await;
            assert!(
                matches!(change, Ok(Some(Change::Machine(_)))),
                "nothing is seen in {version}"
            );
            let all = cache.all();
            let [machine] = all.as_slice() else {
                panic!("{all:?}")
            };
            let wanted = format!("cluster.x-k8s.io/{version}");
            assert_eq!(machine.api_version, wanted);
            let _ = upgrade.send(true);
        }
    }

    /// An API server whose watches send nothing. It has one Namespace, with the grant from the channel.
    #[derive(Clone)]
    struct Mute(watch::Receiver<&'static str>);

    impl Service<Request<Body>> for Mute {
        type Response = Response<Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let grant = *self.0.borrow();
            Box::pin(async move {
                let query = request.uri().query().unwrap_or_default();
                if query.contains("watch=true") {
                    return std::future::pending().await;
                }
                let path = request.uri().path();
                if path == "/apis/cluster.x-k8s.io/v1beta2" {
                    let machines = json!({
                        "name": "machines", "singularName": "machine", "namespaced": true, "kind": "Machine",
                        "verbs": ["get", "list", "watch"],
                    });
                    let body = json!({
                        "kind": "APIResourceList", "groupVersion": "cluster.x-k8s.io/v1beta2", "resources": [machines],
                    });
                    return Ok(answer(StatusCode::OK, &body));
                }
                // Discovery of a group that is not served.
                if path.starts_with("/apis/") && path.matches('/').count() <= 3 {
                    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404});
                    return Ok(answer(StatusCode::NOT_FOUND, &body));
                }
                let namespace = json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
                        "name": "a", "uid": "u", "resourceVersion": "1",
                        "annotations": {agent_forge_crds::names::ALLOW_POOLS_FROM_ANNOTATION: grant},
                    },
                });
                let items = if path.ends_with("/namespaces") {
                    vec![namespace]
                } else {
                    vec![]
                };
                let body = json!({
                    "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items,
                });
                Ok(answer(StatusCode::OK, &body))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_lists_anew_sees_what_a_watch_kept_back() {
        let (grants, served) = watch::channel("before");
        let client = Client::new(Mute(served), "default");
        let clients = Clients {
            watch: client.clone(),
            request: client,
            server: String::new(),
        };
        let caches = Arc::new(Caches::of(&super::scope::Scope::of(&[])));
        *caches.cluster_id.write().expect("nobody panics with it") = "id".to_owned();
        let (relist, asked) = oneshot::channel();
        let following = caches.clone();
        let _watching = tokio::spawn(async move {
            follow_all(&clients, &following, &|_| {}, asked).await;
        });
        let listed = async || {
            let all = async {
                while !caches.listed() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(Duration::from_secs(60), all)
                .await
                .expect("all lists");
            let key = NamespaceGrant::key("a");
            caches.namespaces.get(&key).and_then(|n| n.grant.clone())
        };
        assert_eq!(listed().await.as_deref(), Some("before"));
        let _ = grants.send("after");
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(
            listed().await.as_deref(),
            Some("before"),
            "the watch says nothing"
        );
        let (begin, begun) = oneshot::channel();
        relist.send(begin).expect("somebody lists");
        begun.await.expect("it begins");
        assert_eq!(listed().await.as_deref(), Some("after"));
    }
}
