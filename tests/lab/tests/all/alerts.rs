//! Tests the alerts with Prometheus' own tool: they parse, and fire exactly when they should.

use std::process::Command;

use agent_forge_lab::tools::{promtool, repository};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

fn run(arguments: &[&str]) -> Result<String> {
    let output = Command::new(promtool()?)
        .current_dir(repository().join("config/prometheus"))
        .args(arguments)
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(output.status.success(), "promtool {arguments:?}:\n{text}");
    Ok(text)
}

#[test]
fn prometheus_accepts_each_alert_rule() -> Result<()> {
    let told = run(&[
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        "agent-forge.rules.yaml",
    ])?;
    ensure!(told.contains("rules found"), "{told}");
    Ok(())
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() -> Result<()> {
    run(&["test", "rules", "tests/alerts.yaml"]).map(drop)
}

/// The queries of a dashboard, at any depth.
fn queries(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name == "expr") {
                    Some(query) => found.push(query.to_owned()),
                    None => queries(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// The query as Grafana sends it: variables are replaced by chosen values.
fn asked(query: &str) -> Result<String> {
    let asked = query
        .replace("$__rate_interval", "5m")
        .replace("$namespace", "demo")
        .replace("$pool", "workers")
        .replace("$server", "vc");
    ensure!(!asked.contains('$'), "an unknown variable: {query}");
    Ok(asked)
}

/// A recording rule for each panel's query. JSON is YAML.
fn as_rules() -> Result<(usize, String)> {
    let mut rules = Vec::new();
    for entry in std::fs::read_dir(repository().join("config/grafana"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let board: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        let mut found = Vec::new();
        queries(&board["panels"], &mut found);
        ensure!(!found.is_empty(), "{} asks nothing", path.display());
        for query in found {
            let record = format!("dashboard:query:{}", rules.len());
            rules.push(json!({ "record": record, "expr": asked(&query)? }));
        }
    }
    let count = rules.len();
    let file = json!({ "groups": [{ "name": "dashboards", "rules": rules }] });
    Ok((count, file.to_string()))
}

#[test]
fn each_query_of_a_dashboard_is_one_for_prometheus() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let check = |rules: &str| {
        let file = dir.path().join("dashboards.yaml");
        std::fs::write(&file, rules)?;
        run(&["check", "rules", file.to_str().context("a path")?])
    };
    let (count, rules) = as_rules()?;
    ensure!(count >= 30, "{count} queries");
    let told = check(&rules)?;
    ensure!(told.contains(&format!("{count} rules found")), "{told}");
    // The check must fail for a broken query. It only checks the grammar.
    let broken = rules.replacen("sum(", "sum((", 1);
    ensure!(broken != rules && check(&broken).is_err());
    Ok(())
}
