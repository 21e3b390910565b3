//! The simulated vCenter as a part of the lab: it starts, shows its content, and fails on demand.

use std::{process::Command, time::Duration};

use agent_forge_lab::{
    parts::{
        VCenterAdmin, VCenterOptions, VCenterProcess,
        vcenter_trouble::{DatastoreState, ForeignVm, Outage, Rule, VmAction},
    },
    patience::HANG,
    tools,
};
use anyhow::{Context as _, Result, ensure};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tempfile::TempDir;

const RELEASE: &str = "8.0.1.0";

struct Started {
    vcenter: VCenterProcess,
    admin: VCenterAdmin,
    http: Client,
    _dir: TempDir,
}

async fn start(options: VCenterOptions) -> Result<Started> {
    let dir = tempfile::tempdir()?;
    let vcenter = VCenterProcess::start(dir.path(), options).await?;
    let mut http = Client::builder().no_proxy().timeout(HANG);
    if !vcenter.ca_pem().is_empty() {
        http = http.tls_certs_only([reqwest::Certificate::from_pem(vcenter.ca_pem().as_bytes())?]);
    }
    Ok(Started {
        admin: vcenter.admin()?,
        vcenter,
        http: http.build()?,
        _dir: dir,
    })
}

impl Started {
    /// Logs in to VI/JSON. Returns the answer's status.
    async fn login(&self, password: &str) -> Result<StatusCode> {
        let url = format!(
            "{}/sdk/vim25/{RELEASE}/SessionManager/SessionManager/Login",
            self.vcenter.url()
        );
        let body = json!({"userName": self.vcenter.options().username, "password": password});
        Ok(self.http.post(url).json(&body).send().await?.status())
    }
}

/// Runs the simulator's own tests, which check how strict it is.
#[test]
fn its_own_tests_pass() -> Result<()> {
    let module = tools::repository().join("tests/lab/vcenter");
    for arguments in [["vet", "./..."], ["test", "./..."]] {
        let done = Command::new("go")
            .args(arguments)
            .current_dir(&module)
            .output()
            .context("run go: install Go (https://go.dev/dl)")?;
        ensure!(
            done.status.success(),
            "go {arguments:?}:\n{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}

#[tokio::test]
async fn it_serves_tls_with_the_certificate_it_names() -> Result<()> {
    let started = start(VCenterOptions::default()).await?;
    ensure!(
        started.vcenter.url().starts_with("https://127.0.0.1:"),
        "{}",
        started.vcenter.url()
    );
    assert_eq!(
        started.vcenter.thumbprint().len(),
        64,
        "SHA-256 in hex: {}",
        started.vcenter.thumbprint()
    );
    let password = started.vcenter.options().password.clone();
    assert_eq!(started.login(&password).await?, StatusCode::OK);
    assert!(!started.login("wrong").await?.is_success());
    let calls = started.admin.calls().await?;
    assert_eq!(
        (calls.logins("vim"), calls.logins("refused")),
        (1, 1),
        "{calls:?}"
    );
    let inventory = started.admin.inventory().await?;
    assert_eq!(
        inventory
            .sessions
            .iter()
            .map(|session| session.kind.as_str())
            .collect::<Vec<_>>(),
        ["vim"]
    );
    assert_eq!(started.admin.kill_sessions().await?, 1);
    started.admin.reset_calls().await?;
    assert_eq!(started.admin.calls().await?.total, 0);
    Ok(())
}

#[tokio::test]
async fn a_foreign_vm_appears_runs_and_goes() -> Result<()> {
    let started = start(VCenterOptions {
        tls: false,
        ..VCenterOptions::default()
    })
    .await?;
    let admin = &started.admin;
    let before = admin.inventory().await?;
    let wait = admin.until("the foreign VM running", HANG, |inventory| {
        inventory.vm("stranger").filter(|vm| vm.is_on()).cloned()
    });
    let make = async {
        let vm = ForeignVm {
            name: "stranger".into(),
            folder: "others".into(),
            extra_config: [("owner".to_owned(), "somebody".to_owned())].into(),
            power_on: true,
            ..ForeignVm::default()
        };
        admin.create_vm(&vm).await
    };
    let (vm, moref) = tokio::try_join!(wait, make)?;
    assert_eq!(
        (vm.moref.as_str(), vm.extra_config["owner"].as_str()),
        (moref.as_str(), "somebody")
    );
    ensure!(vm.path.ends_with("/others/stranger"), "{}", vm.path);
    ensure!(
        vm.nics.len() == 1 && vm.nics[0].mac.len() == 17 && vm.disks.len() == 1,
        "{vm:?}"
    );
    let copy = admin.act(&moref, VmAction::Clone("copy")).await?;
    let inventory = admin.inventory().await?;
    let copied = inventory.vm("copy").context("the clone")?;
    assert_eq!((&copied.moref, &copied.uuid), (&copy, &vm.uuid));
    assert_ne!(copied.instance_uuid, vm.instance_uuid);
    ensure!(
        inventory.version > before.version,
        "a change raises the version"
    );
    admin.act(&moref, VmAction::PowerOff).await?;
    admin.act(&moref, VmAction::Destroy).await?;
    admin
        .until("the foreign VM gone", HANG, |inventory| {
            inventory.vm("stranger").is_none().then_some(())
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn trouble_comes_and_goes_on_demand() -> Result<()> {
    let started = start(VCenterOptions::default()).await?;
    let (admin, password) = (&started.admin, started.vcenter.options().password.clone());

    let rule = admin
        .add_rule(&Rule::answers("Login", 503).times(1))
        .await?;
    assert_eq!(
        started.login(&password).await?,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(started.login(&password).await?, StatusCode::OK);
    assert_eq!(admin.rule_hits(&rule).await?, Some(1));
    admin.remove_rule(&rule).await?;
    assert_eq!(admin.rule_hits(&rule).await?, None);

    let rule = admin
        .add_rule(&Rule::call_fails(
            "Login",
            json!({"_typeName": "InvalidLogin"}),
        ))
        .await?;
    assert!(!started.login(&password).await?.is_success());
    admin.remove_rule(&rule).await?;

    // A hanging call continues when its rule is removed.
    let rule = admin.add_rule(&Rule::hangs("Login")).await?;
    let release = async {
        while admin.rule_hits(&rule).await?.unwrap_or_default() == 0 {
            tokio::task::yield_now().await;
        }
        admin.remove_rule(&rule).await
    };
    let (status, ()) = tokio::try_join!(started.login(&password), release)?;
    ensure!(status.is_success() || status.is_server_error(), "{status}");

    admin.outage(Outage::Refuse, HANG).await?;
    ensure!(
        started.login(&password).await.is_err(),
        "the connection breaks"
    );
    admin.outage(Outage::Unavailable, HANG).await?;
    assert_eq!(
        started.login(&password).await?,
        StatusCode::SERVICE_UNAVAILABLE
    );
    admin.end_outage().await?;

    admin.set_password("new").await?;
    assert!(!started.login(&password).await?.is_success());
    assert_eq!(started.login("new").await?, StatusCode::OK);

    admin
        .set_delays(&[
            ("create", Duration::from_millis(1)),
            ("powerOn", Duration::ZERO),
        ])
        .await?;
    ensure!(
        admin
            .set_delays(&[("nonsense", Duration::ZERO)])
            .await
            .is_err(),
        "an unknown delay is refused"
    );
    admin
        .deny(&[("VirtualMachine.Inventory.Create", "")])
        .await?;
    admin.deny(&[]).await?;
    admin.expire_tasks().await?;
    let full = DatastoreState {
        free_bytes: Some(0),
        ..DatastoreState::default()
    };
    admin.set_datastore("iso-datastore", &full).await?;
    ensure!(
        admin.set_datastore("nowhere", &full).await.is_err(),
        "an unknown datastore is refused"
    );
    Ok(())
}

#[tokio::test]
async fn bad_flags_are_an_error_with_the_programs_own_words() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let options = VCenterOptions {
        api_release: Some("1.0".into()),
        ..VCenterOptions::default()
    };
    let error = VCenterProcess::start(dir.path(), options)
        .await
        .expect_err("no such release");
    ensure!(
        format!("{error:#}").contains("unknown --api-release"),
        "{error:#}"
    );
    Ok(())
}

#[tokio::test]
async fn it_ends_in_good_order() -> Result<()> {
    let started = start(VCenterOptions::default()).await?;
    let status = started.vcenter.process.stop(HANG).await?;
    ensure!(status.success(), "{status}");
    let left: Vec<_> = std::fs::read_dir(started._dir.path())?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    ensure!(
        left.iter()
            .all(|path| path.extension().is_some_and(|extension| extension == "log")),
        "left behind: {left:?}"
    );
    ensure!(tools::vcenter()?.is_file(), "the program is kept");
    Ok(())
}
