//! Attributes of a request to the API server, put on its span: method, server, status. The path is left out, because it
//! names objects.
//!
//! Assumption: a span that should get the attributes declares these fields. Other spans ignore them.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::{Layer, Service};
use tracing::Span;

use crate::telemetry::server::Server;

/// Puts the attributes on the current span.
#[derive(Clone, Debug)]
pub struct Called {
    server: Option<Server>,
}

impl Called {
    /// For requests to the API server at `url`.
    #[must_use]
    pub fn at(url: &http::Uri) -> Self {
        let url = url.to_string().parse().ok();
        Self {
            server: url.as_ref().map(Server::of),
        }
    }

    fn begins(&self, span: &Span, method: &Method) {
        span.record("http.request.method", method.as_str());
        let Some(server) = &self.server else { return };
        span.record("server.address", server.address.as_str());
        span.record("server.port", server.port);
        span.record("url.scheme", server.scheme.as_str());
    }
}

impl<S> Layer<S> for Called {
    type Service = Calls<S>;

    fn layer(&self, service: S) -> Calls<S> {
        Calls {
            service,
            called: self.clone(),
        }
    }
}

/// A Kubernetes client service that puts the attributes of its requests on their spans.
#[derive(Clone, Debug)]
pub struct Calls<S> {
    service: S,
    called: Called,
}

impl<S, B, R> Service<Request<B>> for Calls<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let span = Span::current();
        self.called.begins(&span, request.method());
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(response) = &answer {
                let status = response.status().as_u16();
                span.record("http.response.status_code", status);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Ready, time::Duration};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Client, client::Body};
    use tokio::time::Instant;

    use super::*;
    use crate::{cluster::writer::bounded, telemetry::told::Told};

    /// An API server with one fixed answer.
    struct Answers(u16, &'static str);

    impl Service<Request<Body>> for Answers {
        type Response = Response<Body>;
        type Error = std::convert::Infallible;
        type Future = Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let mut response = Response::new(Body::from(self.1.as_bytes().to_vec()));
            *response.status_mut() = http::StatusCode::from_u16(self.0).expect("a status");
            std::future::ready(Ok(response))
        }
    }

    /// The attributes of the span of one read.
    async fn read(answers: Answers) -> Vec<(String, String)> {
        let told = Told::default();
        let _here = told.here();
        let uri = "https://user:secret@[fd00::1]:6443/prefix".parse();
        let called = Called::at(&uri.expect("a URI"));
        let client = Client::new(called.layer(answers), "default");
        let api: Api<ConfigMap> = Api::namespaced(client, "demo");
        let end = Instant::now() + Duration::from_secs(5);
        let subject = "ConfigMap demo/secretive".to_owned();
        let _ = bounded(end, "get", subject, api.get("secretive")).await;
        told.attributes("get")
    }

    fn said(told: &[(String, String)], key: &str) -> Option<String> {
        let found = told.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.clone())
    }

    #[tokio::test]
    async fn a_call_says_method_server_and_status_and_no_address() {
        let found = read(Answers(200, r#"{"metadata":{"name":"secretive"}}"#)).await;
        for (key, value) in [
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("server.address", "fd00::1"),
            ("server.port", "6443"),
            ("url.scheme", "https"),
        ] {
            assert_eq!(
                said(&found, key).as_deref(),
                Some(value),
                "{key}: {found:?}"
            );
        }
        assert_eq!(said(&found, "error.type"), None);
        for (key, value) in &found {
            let tells = ["://", "prefix", "/api/", "user:"]
                .iter()
                .any(|t| value.contains(t));
            assert!(!tells, "{key} says {value}");
        }
        let refusal = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}"#;
        let refused = read(Answers(403, refusal)).await;
        let status = said(&refused, "http.response.status_code");
        let error = said(&refused, "error.type");
        assert_eq!(
            (status.as_deref(), error.as_deref()),
            (Some("403"), Some("Forbidden"))
        );
    }
}
