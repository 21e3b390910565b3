//! All pages of a list of Nodes. The server may say anything, and for ever.

use std::{fmt, marker::PhantomData};

use agent_forge_actors::{
    domain::{node::NodeFacts, text},
    ports::nodes::MAX_NODES,
};
use bytes::{Bytes, BytesMut};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, SeqAccess, Visitor},
};
use url::Url;

use super::Unlisted;
use crate::vsphere::network_failure;

/// Nodes in a page. A Node of OpenShift has up to 60 KiB, most of it names of images.
const PAGE: usize = 50;
/// Largest page, in bytes.
const MAX_REPLY: usize = 8 << 20;
/// Most pages: twice as many as the most Nodes need.
const MAX_PAGES: usize = 2 * MAX_NODES / PAGE;
/// Longest `continue` token, in bytes.
const MAX_TOKEN: usize = 4 << 10;

/// All Nodes, in name order.
pub(super) async fn all(
    client: &reqwest::Client,
    server: &Url,
) -> Result<Vec<NodeFacts>, Unlisted> {
    let mut nodes = Vec::new();
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let page = page(client, server, &token).await?;
        nodes.extend(page.items.0);
        if nodes.len() > MAX_NODES {
            return Err(too_many());
        }
        token = page.metadata.token.unwrap_or_default();
        if token.len() > MAX_TOKEN {
            return Err(unusable("its continue token is too long"));
        }
        if token.is_empty() {
            return in_order(nodes);
        }
    }
    Err(unusable(&format!(
        "it does not end after {MAX_PAGES} pages"
    )))
}

fn in_order(mut nodes: Vec<NodeFacts>) -> Result<Vec<NodeFacts>, Unlisted> {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    match nodes.windows(2).any(|pair| pair[0].name == pair[1].name) {
        true => Err(unusable("it has two Nodes of one name")),
        false => Ok(nodes),
    }
}

fn unusable(why: &str) -> Unlisted {
    Unlisted::Told(format!("the list of Nodes cannot be used: {why}"))
}

fn too_many() -> Unlisted {
    unusable(&format!("it has more than {MAX_NODES} Nodes"))
}

async fn page(client: &reqwest::Client, server: &Url, token: &str) -> Result<Page, Unlisted> {
    let mut url = server.clone();
    url.set_path("/api/v1/nodes");
    url.query_pairs_mut()
        .append_pair("limit", &PAGE.to_string());
    if !token.is_empty() {
        url.query_pairs_mut().append_pair("continue", token);
    }
    let failed = |e: reqwest::Error| Unlisted::Network(network_failure(&e));
    let request = client
        .get(url)
        .header(http::header::ACCEPT, "application/json");
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_REPLY {
            return Err(Unlisted::Network(format!(
                "a page is larger than {MAX_REPLY} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    read(status, &body.freeze())
}

/// What a server says that it sends.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

fn read(status: u16, body: &Bytes) -> Result<Page, Unlisted> {
    let kind = serde_json::from_slice::<Kind>(body).map(|k| k.kind);
    match (status, kind.as_deref().unwrap_or_default()) {
        (200, "NodeList") => serde_json::from_slice(body).map_err(|e| {
            if e.to_string().starts_with(TOO_MANY) {
                return too_many();
            }
            unusable(&text::plain(
                &e.to_string().chars().take(200).collect::<String>(),
            ))
        }),
        (401, "Status") => Err(Unlisted::Told(
            "the API server does not know this account (401); its token may have ended".to_owned(),
        )),
        (403, "Status") => Err(Unlisted::Told(
            "the account may not list Nodes (403); give it the ClusterRole".to_owned(),
        )),
        (_, "Status") => Err(Unlisted::Told(format!(
            "the API server answers with status {status}"
        ))),
        _ => Err(Unlisted::Network(format!(
            "status {status}, and no list of Nodes"
        ))),
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Nodes,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue")]
    token: Option<String>,
}

/// The Nodes of a page, each trimmed as soon as it is read.
struct Nodes(Vec<NodeFacts>);

const TOO_MANY: &str = "too many Nodes";

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Trim(PhantomData<()>);

        impl<'de> Visitor<'de> for Trim {
            type Value = Nodes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of Nodes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Nodes, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = items.next_element::<RawNode>()? {
                    if nodes.len() == MAX_NODES {
                        return Err(A::Error::custom(TOO_MANY));
                    }
                    nodes.push(node.trimmed().map_err(A::Error::custom)?);
                }
                Ok(Nodes(nodes))
            }

            // An empty list of Go is null.
            fn visit_unit<E>(self) -> Result<Nodes, E> {
                Ok(Nodes(Vec::new()))
            }
        }

        deserializer.deserialize_any(Trim(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawNode {
    metadata: RawMeta,
    spec: Option<RawSpec>,
    status: Option<RawStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    name: String,
    labels: Option<RawLabels>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct RawLabels {
    #[serde(rename = "node.openshift.io/platform-type")]
    platform_type: Option<String>,
    #[serde(rename = "node.kubernetes.io/instance-type")]
    instance_type: Option<String>,
}

#[derive(Deserialize)]
struct RawSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    node_info: Option<RawInfo>,
}

#[derive(Deserialize)]
struct RawInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: Option<String>,
}

impl RawNode {
    /// What is kept of it.
    fn trimmed(self) -> Result<NodeFacts, String> {
        let labels = self.metadata.labels.unwrap_or_default();
        let info = self.status.and_then(|status| status.node_info);
        let name = self.metadata.name;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if name.is_empty() || name.len() > 253 || !name.chars().all(fits) {
            return Err("a Node has a name that none can have".to_owned());
        }
        Ok(NodeFacts {
            provider_id: short(
                "spec.providerID",
                self.spec.and_then(|s| s.provider_id),
                512,
            )?,
            platform_type: short("platform-type", labels.platform_type, 63)?,
            instance_type: short("instance-type", labels.instance_type, 63)?,
            system_uuid: short("systemUUID", info.and_then(|i| i.system_uuid), 128)?,
            deleting: self.metadata.deletion_timestamp.is_some(),
            name,
        })
    }
}

/// A text of one line that is not longer than what it can be.
fn short(field: &str, text: Option<String>, most: usize) -> Result<Option<String>, String> {
    let text = text.filter(|t| !t.is_empty());
    let odd = |t: &String| t.len() > most || !t.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    match text.as_ref().is_some_and(odd) {
        true => Err(format!("a Node has a {field} that none can have")),
        false => Ok(text),
    }
}
