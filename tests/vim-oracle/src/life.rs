//! Runs the simulated vCenter through the life of a VM with `vim_rs`, with our own bodies if we have them.

use std::{sync::Arc, time::Duration};

use agent_forge_lab::parts::VCenterProcess;
use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use vim_rs::{
    core::{
        Client, ErrorKind,
        client::{Error, VimClientHandle},
        tasks::TaskTracker,
    },
    mo,
    types::{
        enums::VirtualMachinePowerStateEnum,
        structs::{ManagedObjectReference, MethodFault, VirtualMachineConfigSpec},
    },
};

use crate::{
    Findings,
    bodies::{read, recorded},
    connect,
    ear::Ear,
};

/// Longer than any task of the lab.
const PATIENCE: Duration = Duration::from_secs(60);

fn reference(r: &ManagedObjectReference) -> Value {
    json!({"_typeName": "ManagedObjectReference", "type": r.r#type.as_str(), "value": r.value})
}

/// Name of a fault's type.
fn fault_name(fault: &MethodFault) -> String {
    fault
        .type_
        .as_ref()
        .map_or_else(String::new, |kind| kind.as_str().to_owned())
}

struct Play<'a> {
    ear: Arc<Ear>,
    tasks: TaskTracker,
    findings: &'a mut Findings,
}

impl Play<'_> {
    fn handle(&self) -> VimClientHandle {
        self.ear.clone()
    }

    /// Records the answers since the last call.
    fn heard(&mut self) {
        for (what, differences) in self.ear.take_heard() {
            self.findings.note(&format!("answer {what}"), &differences);
        }
    }

    async fn find(&self, path: &str) -> Result<ManagedObjectReference> {
        let index = self.ear_content("searchIndex").context("a search index")?;
        let found = mo::SearchIndex::new(self.handle(), &index)
            .find_by_inventory_path(path)
            .await?;
        found.with_context(|| format!("nothing at {path}"))
    }

    fn ear_content(&self, name: &str) -> Option<String> {
        use vim_rs::core::client::VimClient as _;
        let content = self.ear.service_content();
        let found = match name {
            "searchIndex" => content.search_index.as_ref(),
            "fileManager" => content.file_manager.as_ref(),
            "sessionManager" => content.session_manager.as_ref(),
            "storageResourceManager" => content.storage_resource_manager.as_ref(),
            _ => Some(&content.property_collector),
        };
        found.map(|r| r.value.clone())
    }

    async fn wait(
        &self,
        task: &ManagedObjectReference,
    ) -> Result<Option<ManagedObjectReference>, vim_rs::core::Error> {
        let waited = tokio::time::timeout(PATIENCE, self.tasks.wait_any(task.clone())).await;
        let Ok(ended) = waited else {
            panic!("task {} does not end", task.value)
        };
        Ok(ended?.and_then(|any| any.into_any().downcast().ok().map(|r| *r)))
    }

    /// The name of the fault that a task ends with.
    async fn fault_of(&self, task: &ManagedObjectReference) -> String {
        match self.wait(task).await {
            Err(e) if e.kind() == ErrorKind::TaskFailed => {
                e.task_fault().map(fault_name).unwrap_or_default()
            }
            Err(e) => e.to_string(),
            Ok(_) => "no fault".to_owned(),
        }
    }
}

/// The name of the fault that a call returns.
fn call_fault<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::MethodFault(fault)) => fault_name(&fault),
        Err(other) => other.to_string(),
        Ok(_) => "no fault".to_owned(),
    }
}

/// Our body of the create, for this inventory.
fn creation(
    body: &Value,
    name: &str,
    network: &ManagedObjectReference,
) -> Result<VirtualMachineConfigSpec> {
    let mut config = body["config"].clone();
    config["name"] = json!(name);
    config["files"]["vmPathName"] = json!(format!("[ds-0] {name}-1/{name}.vmx"));
    for change in config["deviceChange"].as_array_mut().into_iter().flatten() {
        let Some(backing) = change.pointer_mut("/device/backing") else {
            continue;
        };
        if backing["_typeName"] == "VirtualEthernetCardNetworkBackingInfo" {
            backing["network"] = reference(network);
        }
    }
    read("config", &config)
}

/// Device keys of the disks, found by the vendor's type name.
fn disk_keys(config: &Value) -> Vec<Value> {
    let devices = config["hardware"]["device"].as_array();
    devices
        .into_iter()
        .flatten()
        .filter(|d| d["_typeName"] == "VirtualDisk")
        .map(|d| d["key"].clone())
        .collect()
}

/// Runs the life of a VM. Differences are added to the findings.
///
/// # Errors
/// A call fails that must not fail.
pub async fn play(
    vcenter: &VCenterProcess,
    client: Arc<Client>,
    findings: &mut Findings,
) -> Result<()> {
    let bodies = recorded()?;
    let body = |name: &str| bodies.get(name).with_context(|| format!("body {name}"));
    let ear = Ear::between(&client);
    let mut play = Play {
        tasks: TaskTracker::new(ear.clone()),
        ear,
        findings,
    };
    let handle = play.handle();

    let instance = mo::ServiceInstance::new(handle.clone(), "ServiceInstance");
    instance.content().await?;
    let manager = play.ear_content("sessionManager").context("sessions")?;
    let session = mo::SessionManager::new(handle.clone(), &manager)
        .current_session()
        .await?;
    let user = session.map(|s| s.user_name).unwrap_or_default();
    play.findings
        .check("the session's user", user == vcenter.options().username);

    let datacenter = play.find("dc1").await?;
    let folder = play.find("dc1/vm").await?;
    let pool = play.find("dc1/host/cluster/Resources").await?;
    let network = play.find("dc1/network/VM Network").await?;
    let folder = mo::Folder::new(handle.clone(), &folder.value)
        .create_folder("oracle")
        .await?;
    let files = play.ear_content("fileManager").context("files")?;
    mo::FileManager::new(handle.clone(), &files)
        .make_directory("[iso-datastore] iso", Some(&datacenter), Some(true))
        .await?;
    upload(vcenter, "iso/a.iso").await?;

    // Create, with exactly the body that we send.
    let home = mo::Folder::new(handle.clone(), &folder.value);
    let config = creation(body("CreateVM_Task")?, "oracle-1", &network)?;
    let task = home.create_vm_task(&config, &pool, None).await?;
    let info = mo::Task::new(handle.clone(), &task.value).info().await?;
    play.findings.check(
        &format!(
            "a create's task is Folder.createVm ({})",
            info.description_id
        ),
        info.description_id == "Folder.createVm",
    );
    let vm = play.wait(&task).await?.context("the created VM")?;
    play.findings.check(
        "the result of a create is its VM",
        vm.r#type.as_str() == "VirtualMachine",
    );
    let machine = mo::VirtualMachine::new(handle.clone(), &vm.value);
    let shown = machine.config().await?.context("a configuration")?;
    let shown: Value = serde_json::from_str(&miniserde::json::to_string(&shown))?;
    play.findings.check(
        "the uuid is the one that was asked for",
        shown["uuid"] == body("CreateVM_Task")?["config"]["uuid"],
    );
    let again = home.create_vm_task(&config, &pool, None).await;
    let fault = match again {
        Ok(task) => play.fault_of(&task).await,
        other => call_fault(other),
    };
    play.findings.check(
        &format!("a taken name is DuplicateName ({fault})"),
        fault == "DuplicateName",
    );

    // Boot order, power, and what vCenter shows of both.
    let keys = disk_keys(&shown);
    ensure!(keys.len() == 1, "one disk, not {keys:?}");
    let mut order = body("ReconfigVM_Task")?["spec"].clone();
    order["bootOptions"]["bootOrder"][0]["deviceKey"] = keys[0].clone();
    let task = machine.reconfig_vm_task(&read("spec", &order)?).await?;
    play.wait(&task).await?;
    let shown = machine.config().await?.context("a configuration")?;
    let shown: Value = serde_json::from_str(&miniserde::json::to_string(&shown))?;
    play.findings.check(
        "the boot order is the one that was asked for",
        shown["bootOptions"]["bootOrder"] == order["bootOptions"]["bootOrder"],
    );
    let task = machine.power_on_vm_task(None).await?;
    play.wait(&task).await?;
    let on = machine.runtime().await?.power_state;
    play.findings
        .check("it is on", on == VirtualMachinePowerStateEnum::PoweredOn);

    // Property reads with our bodies.
    let collector = play
        .ear_content("propertyCollector")
        .context("a collector")?;
    let collector = mo::PropertyCollector::new(handle.clone(), &collector);
    for (name, target) in [
        ("RetrievePropertiesEx.VirtualMachine", &vm),
        ("RetrievePropertiesEx.Datacenter", &datacenter),
    ] {
        let mut asked = body(name)?.clone();
        let set = &mut asked["specSet"][0]["objectSet"];
        let first = set[0].clone();
        *set = json!([first]);
        asked["specSet"][0]["objectSet"][0]["obj"] = reference(target);
        let specs: Vec<_> = read("specSet", &asked["specSet"])?;
        let options = read("options", &asked["options"])?;
        let found = collector.retrieve_properties_ex(&specs, &options).await?;
        let found = found.map_or(0, |r| r.objects.len());
        play.findings.check(&format!("{name} finds it"), found == 1);
    }
    let index = play.ear_content("searchIndex").context("an index")?;
    let index = mo::SearchIndex::new(handle.clone(), &index);
    let uuid = shown["uuid"].as_str().context("a uuid")?;
    let found = index
        .find_all_by_uuid(Some(&datacenter), uuid, true, None)
        .await?;
    play.findings.check(
        "it is found by its uuid",
        found.iter().map(|r| &r.value).eq([&vm.value]),
    );

    recommend(&mut play, body("RecommendDatastores")?, &folder, &pool).await?;

    // Faults, by name.
    let task = machine.destroy_task().await;
    let fault = match task {
        Ok(task) => play.fault_of(&task).await,
        other => call_fault(other),
    };
    play.findings.check(
        &format!("a running VM is not destroyed: InvalidPowerState ({fault})"),
        fault == "InvalidPowerState",
    );
    let nobody = mo::VirtualMachine::new(handle.clone(), "vm-99999");
    let fault = call_fault(nobody.power_off_vm_task().await);
    play.findings.check(
        &format!("an unknown VM is ManagedObjectNotFound ({fault})"),
        fault == "ManagedObjectNotFound",
    );
    let fault = call_fault(connect(vcenter, "not the password").await);
    play.findings.check(
        &format!("a wrong password is InvalidLogin ({fault})"),
        fault == "InvalidLogin",
    );

    // The end of the VM.
    let task = machine.power_off_vm_task().await?;
    play.wait(&task).await?;
    let task = machine.destroy_task().await?;
    play.wait(&task).await?;
    let found = index
        .find_all_by_uuid(Some(&datacenter), uuid, true, None)
        .await?;
    play.findings.check("it is gone", found.is_empty());
    let fault = call_fault(machine.runtime().await);
    play.findings.check(
        &format!("its reference leads nowhere: ManagedObjectNotFound ({fault})"),
        fault == "ManagedObjectNotFound",
    );
    play.tasks.shutdown().await;
    play.heard();
    client.close().await.map_err(|e| anyhow!("logout: {e}"))?;
    let fault = call_fault(home.create_folder("late").await);
    play.findings.check(
        &format!("after the logout nothing goes: NotAuthenticated ({fault})"),
        fault == "NotAuthenticated",
    );
    Ok(())
}

/// The answer of Storage DRS to our question.
async fn recommend(
    play: &mut Play<'_>,
    body: &Value,
    folder: &ManagedObjectReference,
    pool: &ManagedObjectReference,
) -> Result<()> {
    let pod = play
        .find("dc1/datastore/workload-datastore-cluster")
        .await?;
    let mut asked = body["storageSpec"].clone();
    asked["folder"] = reference(folder);
    asked["resourcePool"] = reference(pool);
    asked["podSelectionSpec"]["storagePod"] = reference(&pod);
    asked["podSelectionSpec"]["initialVmConfig"][0]["storagePod"] = reference(&pod);
    let manager = play
        .ear_content("storageResourceManager")
        .context("Storage DRS")?;
    let answer = mo::StorageResourceManager::new(play.handle(), &manager)
        .recommend_datastores(&read("storageSpec", &asked)?)
        .await?;
    let any = answer.recommendations.is_some_and(|all| !all.is_empty());
    play.findings
        .check("Storage DRS recommends a datastore", any);
    Ok(())
}

/// `vim_rs` has no file transfer.
async fn upload(vcenter: &VCenterProcess, path: &str) -> Result<()> {
    let trusted = reqwest::Certificate::from_pem(vcenter.ca_pem().as_bytes())?;
    let http = reqwest::Client::builder()
        .tls_certs_only([trusted])
        .no_proxy()
        .build()?;
    let options = vcenter.options();
    let url = format!(
        "{}/folder/{path}?dcPath=dc1&dsName=iso-datastore",
        vcenter.url()
    );
    let sent = http
        .put(url)
        .basic_auth(&options.username, Some(&options.password))
        .body("an image")
        .send()
        .await?;
    sent.error_for_status().context("upload")?;
    Ok(())
}
