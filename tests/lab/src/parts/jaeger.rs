//! Jaeger in one process with spans in memory: accepts OTLP and answers queries.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{ports, process::Process};
use crate::{patience::ANSWER, tools};

/// A running Jaeger.
#[derive(Debug)]
pub struct Jaeger {
    /// The program.
    pub process: Process,
    otlp: String,
    query: String,
    http: reqwest::Client,
}

impl Jaeger {
    /// Starts it with its log in `dir`.
    ///
    /// # Errors
    /// It cannot be built or does not start; the error has the end of its log.
    pub async fn start(dir: &Path) -> Result<Self> {
        let program = tokio::task::spawn_blocking(tools::jaeger)
            .await
            .context("find Jaeger")??;
        ports::with_fresh_ports(|| Self::start_once(&program, dir)).await
    }

    async fn start_once(program: &Path, dir: &Path) -> Result<Self> {
        let [
            otlp,
            otlp_grpc,
            query,
            query_grpc,
            admin,
            collector,
            collector_grpc,
            sampling,
            a,
            b,
            c,
        ] = ports::free()?;
        let mut command = Command::new(program);
        command.env("SPAN_STORAGE_TYPE", "memory");
        for (flag, port) in [
            ("collector.otlp.http.host-port", otlp),
            ("collector.otlp.grpc.host-port", otlp_grpc),
            ("collector.http-server.host-port", collector),
            ("collector.grpc-server.host-port", collector_grpc),
            ("query.http-server.host-port", query),
            ("query.grpc-server.host-port", query_grpc),
            ("admin.http.host-port", admin),
            // Not used here. By default they listen on all interfaces.
            ("http-server.host-port", sampling),
            ("processor.jaeger-binary.server-host-port", a),
            ("processor.jaeger-compact.server-host-port", b),
            ("processor.zipkin-compact.server-host-port", c),
        ] {
            command.arg(format!("--{flag}=127.0.0.1:{port}"));
        }
        command.args(["--collector.otlp.enabled=true", "--log-level=warn"]);
        let (process, _) = Process::spawn("Jaeger", command, &dir.join("jaeger.log"), false)?;
        let jaeger = Self {
            process,
            otlp: format!("http://127.0.0.1:{otlp}"),
            query: format!("http://127.0.0.1:{query}"),
            http: reqwest::Client::builder()
                .no_proxy()
                .timeout(ANSWER)
                .build()
                .context("make an HTTP client")?,
        };
        let services = format!("{}/api/services", jaeger.query);
        let answers = jaeger.process.until_answers(&jaeger.http, &services);
        answers.await?;
        Ok(jaeger)
    }

    /// The environment variables that make an operator send its spans here.
    pub fn environment(&self) -> [(String, String); 2] {
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.otlp.clone()),
            ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// The URL of its query API.
    pub fn query_url(&self) -> &str {
        &self.query
    }

    /// The trace with that id; `None` if Jaeger has none yet.
    ///
    /// # Errors
    /// It does not answer, or its answer has more than one trace.
    pub async fn trace(&self, id: &str) -> Result<Option<Trace>> {
        let url = format!("{}/api/traces/{id}", self.query);
        let answer = self.http.get(&url).send().await?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let found: Value = answer.error_for_status()?.json().await?;
        match found["data"].as_array().map(Vec::as_slice) {
            Some([one]) => Ok(Some(Trace::read(one)?)),
            Some([]) | None => Ok(None),
            Some(many) => bail!("{} traces of id {id}", many.len()),
        }
    }
}

/// A span from the query API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Id of its parent, if the parent is in the same trace.
    pub parent: Option<String>,
    /// Start and duration, in microseconds.
    pub time: (u64, u64),
    /// Attributes, in order.
    pub attributes: BTreeSet<String>,
    /// Its resource: service and attributes, in order.
    pub resource: BTreeSet<String>,
}

/// A trace from the query API.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Its spans. A span that was sent twice with the same content is here once.
    pub spans: BTreeSet<Span>,
    /// Number of spans in the answer, with repetitions.
    pub raw: usize,
}

/// Keys with their values as text.
fn tags(of: &Value) -> BTreeSet<String> {
    let all = of.as_array().into_iter().flatten();
    all.map(|t| format!("{}={}", t["key"].as_str().unwrap_or_default(), t["value"]))
        .collect()
}

impl Trace {
    fn read(trace: &Value) -> Result<Self> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let number = |v: &Value| v.as_u64().unwrap_or_default();
        let spans = trace["spans"].as_array().context("a trace has spans")?;
        let id = &trace["traceID"];
        let parent = |span: &Value| {
            let references = span["references"].as_array()?;
            // Links are references as well. A parent is a reference within the trace.
            let found = references
                .iter()
                .find(|r| r["refType"] == "CHILD_OF" && r["traceID"] == *id);
            found.map(|r| text(&r["spanID"]))
        };
        let resource = |span: &Value| {
            let process = &trace["processes"][span["processID"].as_str().unwrap_or_default()];
            let mut all = tags(&process["tags"]);
            all.insert(format!("service.name={}", process["serviceName"]));
            all
        };
        Ok(Self {
            raw: spans.len(),
            spans: spans
                .iter()
                .map(|s| Span {
                    id: text(&s["spanID"]),
                    name: text(&s["operationName"]),
                    parent: parent(s),
                    time: (number(&s["startTime"]), number(&s["duration"])),
                    attributes: tags(&s["tags"]),
                    resource: resource(s),
                })
                .collect(),
        })
    }

    /// How many spans have that name.
    pub fn named(&self, name: &str) -> usize {
        self.spans.iter().filter(|s| s.name == name).count()
    }

    /// Names of spans whose id occurs with different contents.
    pub fn differing(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let told = self.spans.iter();
        told.filter_map(|s| (!seen.insert(&s.id)).then_some(s.name.as_str()))
            .collect()
    }

    /// Names of the spans whose parent is missing, and of those without a parent.
    pub fn orphans_and_roots(&self) -> (Vec<&str>, Vec<&str>) {
        let known = |id: &String| self.spans.iter().any(|s| s.id == *id);
        let (mut orphans, mut roots) = (Vec::new(), Vec::new());
        for span in &self.spans {
            match &span.parent {
                None => roots.push(span.name.as_str()),
                Some(id) if !known(id) => orphans.push(span.name.as_str()),
                Some(_) => {}
            }
        }
        (orphans, roots)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn span(process: &str, attempt: &str) -> Value {
        json!({
            "traceID": "t", "spanID": "s", "operationName": "vm.create", "processID": process,
            "references": [], "startTime": 1, "duration": 2,
            "tags": [{ "key": "agent_forge.attempt", "type": "string", "value": attempt }],
        })
    }

    fn read(spans: &[Value]) -> Trace {
        let pod = |name: &str| {
            let pod = json!({ "key": "k8s.pod.name", "type": "string", "value": name });
            json!({ "serviceName": "agent-forge", "tags": [pod] })
        };
        let processes = json!({ "p1": pod("a"), "p2": pod("b"), "p3": pod("a") });
        Trace::read(&json!({ "traceID": "t", "spans": spans, "processes": processes }))
            .expect("a trace")
    }

    #[test]
    fn a_span_told_twice_is_the_same_in_all_that_it_says_or_differs() {
        let same = read(&[span("p1", "1"), span("p3", "1")]);
        assert_eq!((same.raw, same.spans.len()), (2, 1));
        assert!(same.differing().is_empty());
        for other in [span("p2", "1"), span("p1", "2")] {
            let two = read(&[span("p1", "1"), other]);
            assert_eq!(two.differing(), ["vm.create"]);
        }
    }
}
