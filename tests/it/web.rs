//! The web page of a real operator: who sees what, by the tokens of a real API server.

use agent_forge_lab::{
    OperatorAccess,
    lab::{
        apply::apply,
        manifest::{namespace, rendered},
    },
};
use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use kube::{ResourceExt as _, config::Kubeconfig};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::world::{LIMIT, POOL, Setup, World};

const OVERLAY: &str = "overlays/web";
const OTHER: &str = "other";
/// An address that is not a loopback address to the operator, although only this host can reach it. The system chooses
/// the port.
const ADDRESS: &str = "--web-bind-address=[::ffff:127.0.0.1]:0";

/// The page behind tokens.
struct Page {
    url: String,
    http: Client,
}

impl Page {
    fn of(world: &World) -> Result<Self> {
        let operator = world.operator()?;
        let log = operator.log()?;
        let said = log.lines().find(|l| l.contains("web page over HTTPS"));
        let bound = said.and_then(|l| l.split("[::ffff:127.0.0.1]:").nth(1));
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect();
        let port: String = bound.map(digits).context(log)?;
        // Its certificate signs itself.
        let http = Client::builder().no_proxy();
        let http = http.danger_accept_invalid_certs(true).build()?;
        let url = format!("https://127.0.0.1:{port}");
        Ok(Self { url, http })
    }

    async fn get(&self, path: &str, token: Option<&str>) -> Result<Response> {
        let mut asked = self.http.get(format!("{}{path}", self.url));
        if let Some(token) = token {
            asked = asked.bearer_auth(token);
        }
        Ok(asked.send().await?)
    }

    async fn status(&self, path: &str, token: Option<&str>) -> Result<StatusCode> {
        Ok(self.get(path, token).await?.status())
    }

    async fn topology(&self, token: &str) -> Result<Value> {
        let answer = self.get("/topology.json", Some(token)).await?;
        Ok(answer.error_for_status()?.json().await?)
    }
}

/// The pools of all clusters.
fn all_pools(topology: &Value) -> impl Iterator<Item = &Value> {
    let node_pools = children(topology, "clusters").into_iter();
    let node_pools = node_pools.flat_map(|c| children(c, "nodePools"));
    node_pools.flat_map(|n| children(n, "pools"))
}

/// Names of the pools.
fn pools(topology: &Value) -> Vec<&str> {
    all_pools(topology)
        .filter_map(|p| p["name"].as_str())
        .collect()
}

fn children<'v>(node: &'v Value, key: &str) -> Vec<&'v Value> {
    node[key].as_array().into_iter().flatten().collect()
}

/// The state of the machine with that name.
fn state<'v>(topology: &'v Value, name: &str) -> Option<&'v str> {
    let mut machines = all_pools(topology).flat_map(|p| children(p, "machines"));
    machines.find(|m| m["name"] == name)?["state"].as_str()
}

/// The token in a kubeconfig.
pub fn token(access: &OperatorAccess) -> Result<String> {
    let text = std::fs::read_to_string(&access.kubeconfig)?;
    let config: Value = serde_saphyr::from_str(&text)?;
    // It is read the way kube reads it, so that a change of the file's form is noticed.
    ensure!(!Kubeconfig::from_yaml(&text)?.auth_infos.is_empty());
    let token = config["users"][0]["user"]["token"].as_str();
    Ok(token.context("a token")?.to_owned())
}

/// Reads events until one has another number than `known`. Returns its number.
async fn changed(events: &mut Response, known: &str) -> Result<String> {
    let mut text = String::new();
    loop {
        let chunk = timeout(LIMIT, events.chunk()).await.context("no event")??;
        text += std::str::from_utf8(&chunk.context("the stream has ended")?)?;
        let mut data = text.lines().filter_map(|l| l.strip_prefix("data: "));
        if let Some(new) = data.next_back().filter(|d| *d != known) {
            return Ok(new.to_owned());
        }
    }
}

/// A world with a pool in each of two namespaces. The operator has the rights of the overlay.
async fn two_tenants() -> Result<World> {
    let world = World::start(Setup {
        rules: Some(OVERLAY),
        operator_args: vec![ADDRESS.to_owned()],
        ..Setup::default()
    })
    .await?;
    apply(&world.client, &namespace(OTHER)).await?;
    world.create_pool_in(OTHER, POOL, &json!({})).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sees_the_pools_that_it_may_list_and_who_has_no_token_sees_nothing() -> Result<()> {
    let world = two_tenants().await?;
    let nodes = world.up(1).await?;
    let name = world.all_children().await?[0].name_any();
    let lists = json!([{
        "apiGroups": ["agent-forge.containeroo.ch"], "resources": ["vsphereagentpools"], "verbs": ["list"],
    }]);
    let user = async |namespace: &str, rules: &Value| {
        token(
            &world
                .lab
                .kubeconfig_with(namespace, "viewer", rules)
                .await?,
        )
    };
    let (viewer, other) = (
        user(world.namespace(), &lists).await?,
        user(OTHER, &lists).await?,
    );
    let page = Page::of(&world)?;

    ensure!(page.status("/", None).await? == StatusCode::OK);
    let machine = format!("/machine/{}/{name}", world.namespace());
    for path in ["/topology.json", "/events", "/actors", &machine] {
        ensure!(
            page.status(path, None).await? == StatusCode::UNAUTHORIZED,
            "{path}"
        );
        let forged = page.status(path, Some("not-a-token")).await?;
        ensure!(forged == StatusCode::UNAUTHORIZED, "{path}");
    }
    // The pool of the other namespace may reach the caches after the first answer.
    world
        .until("what each user sees", async || {
            let seen = page.topology(&other).await?;
            Ok(pools(&seen) == [format!("{OTHER}/{POOL}")])
        })
        .await?;
    world
        .until("the machine that serves", async || {
            let seen = page.topology(&viewer).await?;
            ensure!(
                pools(&seen) == [format!("{}/{POOL}", world.namespace())],
                "{seen}"
            );
            Ok(state(&seen, &name) == Some("serving"))
        })
        .await?;
    ensure!(state(&page.topology(&other).await?, &name).is_none());
    ensure!(page.status(&machine, Some(&viewer)).await? == StatusCode::OK);
    ensure!(page.status(&machine, Some(&other)).await? == StatusCode::NOT_FOUND);

    let nothing = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let access = world
        .lab
        .kubeconfig_with("demo-demo", "nobody", &nothing)
        .await?;
    let refused = page.get("/topology.json", Some(&token(&access)?)).await?;
    ensure!(refused.status() == StatusCode::FORBIDDEN);
    let said = refused.text().await?;
    ensure!(
        said.contains("system:serviceaccount:demo-demo:nobody may list"),
        "{said}"
    );

    // Nobody takes the places of the others.
    let mut follows = Vec::new();
    let refused = loop {
        let answer = page.get("/events", Some(&other)).await?;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        follows.push(answer);
        ensure!(follows.len() <= 64, "no bound");
    };
    ensure!(refused.status() == StatusCode::TOO_MANY_REQUESTS);
    ensure!(refused.headers().contains_key("retry-after"));
    let said = refused.text().await?;
    ensure!(
        said.contains("close a page") && said.starts_with("user "),
        "{said}"
    );

    // A change arrives without another request.
    let mut events = page
        .get("/events", Some(&viewer))
        .await?
        .error_for_status()?;
    let first = changed(&mut events, "").await?;
    nodes.scale(0);
    changed(&mut events, &first).await?;
    world.settled(0).await?;
    let gone = async || Ok(state(&page.topology(&viewer).await?, &name).is_none());
    world.until("the machine gone from the page", gone).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overlay_serves_the_page_where_its_service_expects_it() -> Result<()> {
    let objects = rendered(OVERLAY).await?;
    let of = |kind: &str, name: &str| {
        let is = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
        objects
            .iter()
            .find(is)
            .with_context(|| format!("{kind} {name}"))
    };
    let container = &of("Deployment", "agent-forge")?["spec"]["template"]["spec"]["containers"][0];
    let args = children(container, "args");
    ensure!(
        args.iter()
            .any(|a| **a == json!("--web-bind-address=:8088")),
        "{args:?}"
    );
    let ports = children(container, "ports");
    let web = ports
        .iter()
        .find(|p| p["name"] == "web")
        .context("a port")?;
    ensure!(web["containerPort"] == 8088);
    ensure!(of("Service", "agent-forge-web")?["spec"]["ports"][0]["targetPort"] == "web");
    let policy = &of("NetworkPolicy", "agent-forge")?["spec"];
    let rules = children(policy, "ingress");
    let opens = |rule: &&&Value| rule["ports"][0]["port"] == 8088;
    let rule = rules.iter().find(opens).context("a rule for the page")?;
    ensure!(rule["from"].is_array(), "the port is open to everybody");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_loopback_the_page_needs_no_token_and_answers_by_its_own_name_only() -> Result<()> {
    let world = World::start(Setup::default()).await?;
    let operator = world.operator()?;
    let http = Client::builder().no_proxy().timeout(LIMIT).build()?;
    for url in [operator.web_url(), operator.debug_url()] {
        let topology = format!("{url}/topology.json");
        let seen = http.get(&topology).send().await?.error_for_status()?;
        ensure!(pools(&seen.json().await?) == [format!("{}/{POOL}", world.namespace())]);
        let rebound = http.get(&topology).header("host", "evil.example");
        ensure!(rebound.send().await?.status() == StatusCode::FORBIDDEN);
    }
    let kill = format!("{}/actors/kill?which=*", operator.web_url());
    let kill = http.post(kill).header("x-agent-forge-kill", "true");
    ensure!(kill.send().await?.status() == StatusCode::METHOD_NOT_ALLOWED);
    Ok(())
}
