//! The debug endpoint: the web page, and the death of actors. Loopback only.

use std::time::Duration;

use agent_forge_actors::supervisor::SupervisorMsg;
use http::{Method, StatusCode};
use ractor::rpc::CallResult;

use crate::{
    telemetry::http::{Answer, Asked, answer, text},
    web::Web,
};

const WITHIN: Option<Duration> = Some(Duration::from_secs(5));

/// The header that a request to kill must carry. A browser does not send such a header to another site without a
/// preflight request.
pub const KILL_HEADER: &str = "x-agent-forge-kill";

/// Answers `POST /actors/kill?which=<start of name or *>[&panic=true]`, and everything that the web page answers.
///
/// The POST needs the header [`KILL_HEADER`]. All requests must use a loopback name as host.
pub async fn handle(web: Web, asked: Asked) -> Answer {
    match (&asked.method, asked.path.as_str()) {
        (&Method::POST, "/actors/kill") if asked.of_loopback() => kill(&web, &asked).await,
        _ => web.handle(asked).await,
    }
}

async fn kill(web: &Web, asked: &Asked) -> Answer {
    if !asked.headers.contains_key(KILL_HEADER) {
        return text(
            StatusCode::FORBIDDEN,
            "killing needs the header X-Agent-Forge-Kill (any value)\n",
        );
    }
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
    let killed = web
        .supervisor
        .call(
            |reply| SupervisorMsg::Kill {
                which,
                panic,
                reply,
            },
            WITHIN,
        )
        .await;
    match killed {
        Ok(CallResult::Success(hit)) => match serde_json::to_vec_pretty(&hit) {
            Ok(body) => answer(StatusCode::OK, "application/json", body),
            Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        },
        _ => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the supervisor does not answer\n",
        ),
    }
}
