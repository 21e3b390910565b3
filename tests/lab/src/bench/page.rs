//! What the data of the web page costs: one request for everything that it shows.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{parts::Operator, patience::ANSWER};

/// Requests. The longest one counts.
const TIMES: usize = 5;

/// The figures.
pub(super) struct Page {
    /// The longest request.
    pub(super) took: Duration,
    /// Size of the data.
    pub(super) bytes: usize,
    /// Size on its way to the browser.
    pub(super) packed_bytes: usize,
}

/// Asks for the data of the page, and checks that it has that many machines.
///
/// # Errors
/// The operator does not answer, or another number of machines is shown.
pub(super) async fn measure(operator: &Operator, machines: usize) -> Result<Page> {
    let url = format!("{}/topology.json", operator.web_url());
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER);
    let http = http.build().context("make an HTTP client")?;
    let get = async |encoding: &str| -> Result<Vec<u8>> {
        let asked = http.get(&url).header("accept-encoding", encoding);
        let answer = asked.send().await?.error_for_status()?;
        Ok(answer.bytes().await?.to_vec())
    };
    let mut took = Duration::ZERO;
    let mut data = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        data = get("identity").await?;
        took = took.max(begun.elapsed());
    }
    let topology: Value = serde_json::from_slice(&data).context("the data of the page")?;
    let pool = &topology["clusters"][0]["nodePools"][0]["pools"][0];
    let shown = pool["machines"].as_array().map(Vec::len);
    ensure!(shown == Some(machines), "the page has {shown:?} machines");
    Ok(Page {
        took,
        bytes: data.len(),
        packed_bytes: get("gzip").await?.len(),
    })
}
