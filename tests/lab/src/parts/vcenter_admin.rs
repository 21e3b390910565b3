//! Client of the simulated vCenter's admin endpoint: shows everything in it, and causes faults.
//!
//! The endpoint needs no password and answers during an outage. Its requests are not counted as calls.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    vcenter_inventory::{Calls, Inventory},
    vcenter_trouble::{DatastoreState, ForeignVm, Outage, Rule, VmAction},
};
use crate::patience::ANSWER;

/// Client of the admin endpoint of one simulated vCenter. Each of its calls fails if the endpoint does not answer.
#[derive(Clone, Debug)]
pub struct VCenterAdmin {
    root: String,
    http: reqwest::Client,
}

impl VCenterAdmin {
    /// A client for the simulated vCenter at `url` that trusts `ca_pem` (empty without TLS).
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn new(url: &str, ca_pem: &str) -> Result<Self> {
        crate::install_tls_provider();
        let mut builder = reqwest::Client::builder().no_proxy();
        if !ca_pem.is_empty() {
            let trusted = reqwest::Certificate::from_pem(ca_pem.as_bytes())
                .context("read the simulated vCenter's certificate")?;
            builder = builder.tls_certs_only([trusted]);
        }
        Ok(Self {
            root: format!("{}/_admin", url.trim_end_matches('/')),
            http: builder.build().context("make an HTTP client")?,
        })
    }

    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        within: Duration,
    ) -> Result<T> {
        let url = format!("{}/{path}", self.root);
        let mut request = self.http.request(method.clone(), &url).timeout(within);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("{method} {url}"))?;
        let status = answer.status();
        let text = answer
            .text()
            .await
            .with_context(|| format!("{method} {url}"))?;
        ensure!(
            status.is_success(),
            "{method} {url} answers {status}: {text}"
        );
        let text = if text.is_empty() { "null" } else { &text };
        serde_json::from_str(text).with_context(|| format!("{method} {url} answers: {text}"))
    }

    /// What an admin path shows.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, None, ANSWER).await
    }

    async fn send<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T> {
        self.call(Method::POST, path, Some(body), ANSWER).await
    }

    /// Deletes what is at an admin path.
    pub async fn delete(&self, path: &str) -> Result<()> {
        self.call::<Value>(Method::DELETE, path, None, ANSWER)
            .await
            .map(drop)
    }

    /// Posts `body` to an admin path. Returns the JSON of the answer; null for an empty one.
    ///
    /// # Errors
    /// The endpoint refuses, or does not answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(path, body.clone()).await
    }

    /// A VM with everything that the endpoint shows of it; `None` if it is gone.
    pub async fn shown(&self, moref: &str) -> Result<Option<Value>> {
        let all: Value = self.get("inventory?files=false").await?;
        let mut vms = all["vms"].as_array().into_iter().flatten();
        Ok(vms.find(|vm| vm["moref"] == moref).cloned())
    }

    /// The first `length` bytes of a datastore file; `None` if there is no such file.
    ///
    /// # Errors
    /// The path is no datastore path.
    pub async fn read(&self, path: &str, length: usize) -> Result<Option<Vec<u8>>> {
        let (datastore, file) = path
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .with_context(|| format!("{path:?} is not of the form \"[datastore] file\""))?;
        let mut url = url::Url::parse(&self.root)?;
        url.path_segments_mut()
            .map_err(|()| anyhow::anyhow!("{} cannot have a path", self.root))?
            .extend(["datastores", datastore, "files"])
            .extend(file.trim_start().split('/'));
        let range = format!("bytes=0-{}", length.saturating_sub(1));
        let request = self.http.get(url).header("Range", range).timeout(ANSWER);
        let answer = request.send().await?;
        let missing = [StatusCode::NOT_FOUND, StatusCode::RANGE_NOT_SATISFIABLE];
        if missing.contains(&answer.status()) {
            return Ok(None);
        }
        Ok(Some(answer.error_for_status()?.bytes().await?.to_vec()))
    }

    /// The whole content of the simulated vCenter.
    pub async fn inventory(&self) -> Result<Inventory> {
        self.get("inventory").await
    }

    /// Everything except the files, as soon as it is newer than `version`, or after `within` (at most 5 min).
    pub async fn changed_since(&self, version: u64, within: Duration) -> Result<Inventory> {
        let path = format!(
            "inventory?files=false&waitVersion={version}&timeoutMs={}",
            within.as_millis()
        );
        self.call(Method::GET, &path, None, within + ANSWER).await
    }

    /// Waits for at most `within` until `wanted` finds something in the inventory (files included).
    ///
    /// # Errors
    /// It was not found in time.
    pub async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&Inventory) -> Option<T>,
    ) -> Result<T> {
        let search = async {
            loop {
                let inventory = self.inventory().await?;
                if let Some(found) = wanted(&inventory) {
                    return anyhow::Ok(found);
                }
                self.changed_since(inventory.version, Duration::from_secs(60))
                    .await?;
            }
        };
        match tokio::time::timeout(within, search).await {
            Ok(outcome) => outcome.with_context(|| format!("wait in vCenter for {what}")),
            Err(_) => {
                let inventory = self
                    .inventory()
                    .await
                    .with_context(|| format!("wait in vCenter for {what}"))?;
                anyhow::bail!(
                    "in {} s vCenter did not show {what}; it shows {inventory:#?}",
                    within.as_secs()
                )
            }
        }
    }

    /// How often clients called.
    pub async fn calls(&self) -> Result<Calls> {
        self.get("calls").await
    }

    /// Adds a rule and returns its id.
    ///
    /// # Errors
    /// The rule is not valid.
    pub async fn add_rule(&self, rule: &Rule) -> Result<String> {
        let answer: Value = self.send("faults", serde_json::to_value(rule)?).await?;
        answer["id"]
            .as_str()
            .map(str::to_owned)
            .context("a rule without an id")
    }

    /// How many calls the rule `id` has affected; `None` if there is no such rule.
    pub async fn rule_hits(&self, id: &str) -> Result<Option<u64>> {
        let rules: Vec<Value> = self.get("faults").await?;
        Ok(rules
            .iter()
            .find(|rule| rule["id"] == id)
            .and_then(|rule| rule["hits"].as_u64()))
    }

    /// Removes a rule. Calls that hang because of it continue.
    ///
    /// # Errors
    /// There is no such rule.
    pub async fn remove_rule(&self, id: &str) -> Result<()> {
        self.delete(&format!("faults/{id}")).await
    }

    /// Ends all sessions and returns their number.
    pub async fn kill_sessions(&self) -> Result<u64> {
        let answer: Value = self.send("sessions/kill", json!({})).await?;
        answer["killed"]
            .as_u64()
            .context("no number of killed sessions")
    }

    /// Starts an outage of this duration.
    pub async fn outage(&self, outage: Outage, duration: Duration) -> Result<()> {
        let mode = match outage {
            Outage::Refuse => "refuse",
            Outage::Unavailable => "unavailable",
            Outage::Hang => "hang",
        };
        self.send(
            "outage",
            json!({ "mode": mode, "seconds": duration.as_secs_f64() }),
        )
        .await
    }

    /// Ends an outage early.
    pub async fn end_outage(&self) -> Result<()> {
        self.send("outage", json!({ "seconds": 0 })).await
    }

    /// Removes privileges from the user, given as (privilege id, object name). The privilege is missing on that object
    /// and below; with an empty name it is missing everywhere. The list replaces an earlier one.
    pub async fn deny(&self, denials: &[(&str, &str)]) -> Result<()> {
        let deny: Vec<Value> = denials
            .iter()
            .map(|(privilege, object)| json!({ "privilege": privilege, "objectName": object }))
            .collect();
        self.send("permissions", json!({ "deny": deny })).await
    }

    /// Changes the state that a datastore shows.
    ///
    /// # Errors
    /// There is no such datastore.
    pub async fn set_datastore(&self, name: &str, state: &DatastoreState) -> Result<()> {
        self.send(&format!("datastores/{name}"), serde_json::to_value(state)?)
            .await
    }

    /// Creates a VM at once and returns its managed object id.
    ///
    /// # Errors
    /// It cannot be created.
    pub async fn create_vm(&self, vm: &ForeignVm) -> Result<String> {
        moref(&self.send("vms", serde_json::to_value(vm)?).await?)
    }

    /// Does something to the VM `moref`. Returns the managed object id of the resulting VM.
    ///
    /// # Errors
    /// There is no such VM, it is not possible now.
    pub async fn act(&self, vm: &str, action: VmAction<'_>) -> Result<String> {
        let (verb, body) = match action {
            VmAction::PowerOn => ("power-on", json!({})),
            VmAction::PowerOff => ("power-off", json!({})),
            VmAction::Suspend => ("suspend", json!({})),
            VmAction::Destroy => ("destroy", json!({})),
            VmAction::LockTray => ("lock-tray", json!({})),
            VmAction::BootFromDisk => ("boot-from-disk", json!({})),
            VmAction::BootFromCd => ("boot-from-cd", json!({})),
            VmAction::SetOption(key, value) => {
                ("set-option", json!({ "key": key, "value": value }))
            }
            VmAction::SetNotes(notes) => ("set-notes", json!({ "value": notes })),
            VmAction::SetCpus(cpus) => ("set-cpus", json!({ "cpus": cpus })),
            VmAction::SetHardwareVersion(version) => {
                ("set-hardware-version", json!({ "version": version }))
            }
            VmAction::TakeSnapshot => ("take-snapshot", json!({})),
            VmAction::DropSnapshots => ("drop-snapshots", json!({})),
            VmAction::SetNetwork(name) => ("set-network", json!({ "network": name })),
            VmAction::UnplugNic => ("unplug-nic", json!({})),
            VmAction::PlugNic => ("plug-nic", json!({})),
        };
        moref(&self.send(&format!("vms/{vm}/{verb}"), body).await?)
    }
}

fn moref(answer: &Value) -> Result<String> {
    answer["moref"]
        .as_str()
        .map(str::to_owned)
        .context("no managed object id")
}
