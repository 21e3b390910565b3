//! The debug endpoint: shows the actor tree and kills actors. Loopback only.

use std::time::Duration;

use agent_forge_actors::supervisor::SupervisorMsg;
use http::{Method, StatusCode};
use ractor::{ActorRef, rpc::CallResult};

use crate::debug_page;
use crate::telemetry::http::{Answer, Asked, answer, text};

const WITHIN: Option<Duration> = Some(Duration::from_secs(5));

/// The header that a request to kill must carry. A browser does not send such a header to another site without a
/// preflight request.
pub const KILL_HEADER: &str = "x-agent-forge-kill";

/// Answers `GET /` (a page), `GET /actors` (JSON) and `POST /actors/kill?which=<start of name or *>[&panic=true]`.
///
/// The POST needs the header [`KILL_HEADER`]. All requests must use a loopback name as host.
pub async fn handle(supervisor: ActorRef<SupervisorMsg>, asked: Asked) -> Answer {
    if !asked.of_loopback() {
        return text(
            StatusCode::FORBIDDEN,
            "ask by localhost or a loopback address (header Host)\n",
        );
    }
    match (&asked.method, asked.path.as_str()) {
        (&Method::GET, path @ ("/" | "/actors")) => {
            match supervisor.call(SupervisorMsg::Describe, WITHIN).await {
                Ok(CallResult::Success(all)) if path == "/" => answer(
                    StatusCode::OK,
                    "text/html; charset=utf-8",
                    debug_page::page(&all),
                ),
                Ok(CallResult::Success(all)) => json(&all),
                _ => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the supervisor does not answer\n",
                ),
            }
        }
        (&Method::POST, "/actors/kill") if !asked.headers.contains_key(KILL_HEADER) => text(
            StatusCode::FORBIDDEN,
            "killing needs the header X-Agent-Forge-Kill (any value)\n",
        ),
        (&Method::POST, "/actors/kill") => {
            let query: Vec<(String, String)> = url::form_urlencoded::parse(asked.query.as_bytes())
                .into_owned()
                .collect();
            let value = |key: &str| query.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
            let Some(which) = value("which").filter(|w| !w.is_empty()) else {
                return text(
                    StatusCode::BAD_REQUEST,
                    "say which: ?which=vm/, ?which=pool/ns/name or ?which=*\n",
                );
            };
            let panic = value("panic").as_deref() == Some("true");
            match supervisor
                .call(
                    |reply| SupervisorMsg::Kill {
                        which,
                        panic,
                        reply,
                    },
                    WITHIN,
                )
                .await
            {
                Ok(CallResult::Success(hit)) => json(&hit),
                _ => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the supervisor does not answer\n",
                ),
            }
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "GET /, GET /actors, POST /actors/kill?which=...\n",
        ),
    }
}

fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec_pretty(value) {
        Ok(body) => answer(StatusCode::OK, "application/json", body),
        Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::HOST};

    use super::*;

    fn asked(host: Option<&'static str>) -> Asked {
        let host = host.map(|h| (HOST, HeaderValue::from_static(h)));
        Asked {
            method: Method::POST,
            path: "/actors/kill".to_owned(),
            query: "which=*".to_owned(),
            headers: HeaderMap::from_iter(host),
        }
    }

    #[test]
    fn only_names_of_this_host_are_answered() {
        for host in [
            "localhost:6060",
            "127.0.0.1:6060",
            "[::1]:6060",
            "localhost",
        ] {
            assert!(asked(Some(host)).of_loopback(), "{host}");
        }
        for host in [
            "evil.example:6060",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
        ] {
            assert!(!asked(Some(host)).of_loopback(), "{host}");
        }
        assert!(!asked(None).of_loopback());
    }
}
