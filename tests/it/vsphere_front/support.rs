//! One simulated vCenter per test, and helpers of the tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge::vsphere::{Options, TransportFailure, VsphereConnector};
use agent_forge_actors::{
    domain::{
        hardware::{DiskController, Firmware, Hardware, NetworkAdapter},
        identity::BiosUuid,
        marker::{Mark, Marker, MayServe},
        names::{DatastorePath, MoRef, ObjectKey},
        network::nics,
    },
    placement::{choice::EarlierChoices, search},
    ports::{
        effect::{Effect, EffectKind, Gate, Hold, Settled, Subject},
        permit::Permit,
        vcenter::{
            Connector as _, CreateVm, Credentials, Place, PlaceRequest, TaskEnd, TaskRef, Trust,
            VCenter, VcErrorKind, VcResult, VmAt, VmChange, VmObservation,
        },
    },
};
use agent_forge_lab::parts::{VCenterAdmin, VCenterOptions, VCenterProcess};
use async_trait::async_trait;
use serde_json::{Value, json};

/// A gate that admits everything and records it.
#[derive(Default)]
pub struct Recorder {
    pub settled: Mutex<Vec<(EffectKind, Settled)>>,
    pub admitted: Mutex<Vec<EffectKind>>,
    pub held: Mutex<Option<EffectKind>>,
}

impl Recorder {
    pub fn outcomes(&self, kind: EffectKind) -> Vec<Settled> {
        let all = self.settled.lock().unwrap();
        all.iter()
            .filter(|(k, _)| *k == kind)
            .map(|(_, s)| *s)
            .collect()
    }
}

#[async_trait]
impl Gate for Recorder {
    async fn admit(&self, effect: &Effect) -> Result<(), Hold> {
        if *self.held.lock().unwrap() == Some(effect.kind) {
            return Err(Hold::lease("the test says so"));
        }
        self.admitted.lock().unwrap().push(effect.kind);
        Ok(())
    }

    fn settled(&self, effect: &Effect, outcome: Settled) {
        self.settled.lock().unwrap().push((effect.kind, outcome));
    }
}

/// A simulated vCenter and a connector to it.
pub struct World {
    pub vcenter: VCenterProcess,
    pub gate: Arc<Recorder>,
    pub connector: VsphereConnector,
    admin: VCenterAdmin,
    _dir: tempfile::TempDir,
}

/// The same with this newest API release.
pub fn release(api: &str) -> VCenterOptions {
    VCenterOptions {
        api_release: Some(api.into()),
        ..quick()
    }
}

/// An HTTP client for a transport of a test.
pub fn plain_http() -> reqwest::Client {
    agent_forge_lab::install_tls_provider();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Sends a request, for a transport of a test.
pub async fn sent(
    http: &reqwest::Client,
    request: reqwest::Request,
) -> Result<reqwest::Response, TransportFailure> {
    http.execute(request).await.map_err(|e| TransportFailure {
        kind: VcErrorKind::NoAnswer,
        message: e.to_string(),
    })
}

/// Asks for pages of one object. Creating more objects than a real page has would take minutes.
pub fn shorten(request: &mut reqwest::Request) {
    let text = request.body().and_then(reqwest::Body::as_bytes);
    if let Some(text) = text.and_then(|bytes| std::str::from_utf8(bytes).ok()) {
        let short = text.replace("\"maxObjects\":100", "\"maxObjects\":1");
        *request.body_mut() = Some(short.into());
        request.headers_mut().remove(http::header::CONTENT_LENGTH);
    }
}

/// No delays: the tests check the order of calls.
pub fn quick() -> VCenterOptions {
    VCenterOptions {
        create_delay: Duration::ZERO,
        power_on_delay: Duration::ZERO,
        power_off_delay: Duration::ZERO,
        reconfigure_delay: Duration::ZERO,
        destroy_delay: Duration::ZERO,
        ..VCenterOptions::default()
    }
}

pub async fn world(options: VCenterOptions) -> World {
    world_with(
        options,
        Options {
            call_timeout: Duration::from_secs(20),
            ..Options::default()
        },
    )
    .await
}

/// The same, with a session.
pub async fn connected(options: VCenterOptions) -> (World, Arc<dyn VCenter>) {
    let world = world(options).await;
    let vc = world.connect().await;
    (world, vc)
}

/// The same, with the ISO that [`create_vm`] expects.
pub async fn ready(options: VCenterOptions) -> (World, Arc<dyn VCenter>) {
    let (world, vc) = connected(options).await;
    upload_iso(&*vc).await;
    (world, vc)
}

/// The same, with a place for VMs.
pub async fn placed(options: VCenterOptions) -> (World, Arc<dyn VCenter>, Place) {
    let (world, vc) = ready(options).await;
    let place = place(&*vc).await.unwrap();
    (world, vc, place)
}

pub async fn world_with(options: VCenterOptions, client: Options) -> World {
    let dir = tempfile::tempdir().unwrap();
    let vcenter = VCenterProcess::start(dir.path(), options).await.unwrap();
    let gate = Arc::new(Recorder::default());
    let connector = VsphereConnector::new(gate.clone(), client);
    World {
        admin: vcenter.admin().unwrap(),
        vcenter,
        gate,
        connector,
        _dir: dir,
    }
}

impl World {
    pub fn credentials(&self) -> Credentials {
        Credentials {
            server: self.vcenter.url().parse().unwrap(),
            username: self.vcenter.options().username.clone(),
            password: self.vcenter.options().password.clone().into(),
            trust: match self.vcenter.ca_pem() {
                "" => Trust::Insecure,
                pem => Trust::CaBundle(pem.to_owned()),
            },
        }
    }

    pub async fn connect(&self) -> Arc<dyn VCenter> {
        self.connector.connect(&self.credentials()).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.admin.post(path, &body).await.unwrap()
    }

    pub async fn inventory(&self) -> Value {
        self.admin.get("inventory").await.unwrap()
    }

    pub async fn vms(&self) -> Vec<Value> {
        self.inventory().await["vms"].as_array().unwrap().clone()
    }

    pub async fn fault(&self, rule: Value) {
        self.post("faults", rule).await;
    }

    pub async fn forget_faults(&self) {
        self.admin.delete("faults").await.unwrap();
    }

    pub async fn forget_calls(&self) {
        self.admin.delete("calls").await.unwrap();
    }

    pub async fn calls(&self) -> BTreeMap<String, u64> {
        self.admin.calls().await.unwrap().by_method
    }

    /// Calls of one method.
    pub async fn called(&self, method: &str) -> u64 {
        self.admin.calls().await.unwrap().of(method)
    }

    pub async fn logins(&self, kind: &str) -> u64 {
        self.admin.calls().await.unwrap().logins(kind)
    }
}

pub fn effect(kind: EffectKind) -> Effect {
    Effect::new(kind, Subject::Object(ObjectKey::new("ns", "vm")))
}

pub fn hardware() -> Hardware {
    Hardware {
        guest_id: "rhel9_64Guest".into(),
        firmware: Firmware::Efi,
        num_cpus: 4,
        memory_mib: 16384,
        disk_gib: 100,
        eagerly_scrub: false,
        disk_controller: DiskController::ParaVirtual,
        network_adapter: NetworkAdapter::Vmxnet3,
    }
}

pub fn place_request() -> PlaceRequest {
    PlaceRequest {
        datacenter: "dc1".into(),
        folder: "demo/workers".into(),
        resource_pool: "cluster/Resources".into(),
        datastore_cluster: "workload-datastore-cluster".into(),
        iso_datastore: "iso-datastore".into(),
        network: "VM Network".into(),
        bytes: 116 << 30,
        hardware: hardware(),
    }
}

pub fn marker(name: &str) -> Marker {
    Marker {
        cluster_id: "cluster-id".into(),
        namespace: "ns".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        attempt: 1,
    }
}

pub fn uuid_of(name: &str) -> BiosUuid {
    BiosUuid::derive("cluster-id", &format!("uid-{name}"), 1)
}

pub fn iso() -> DatastorePath {
    DatastorePath::new("iso-datastore", "iso/a.iso").unwrap()
}

pub fn create_vm(name: &str, place: &Place) -> CreateVm {
    CreateVm {
        name: name.into(),
        uuid: uuid_of(name),
        marker: marker(name),
        may_serve: MayServe::no(1),
        hardware: hardware(),
        nics: nics(&place.network),
        place: place.clone(),
        vm_path: DatastorePath::new(&place.datastore.0, &format!("{name}-12345678-1/{name}.vmx"))
            .unwrap(),
        iso: iso(),
        annotation: "made by a test".into(),
    }
}

pub async fn place(vc: &dyn VCenter) -> VcResult<Place> {
    place_as(vc, &place_request()).await
}

/// The place of such a VM where no other one is in the making.
pub async fn place_as(vc: &dyn VCenter, request: &PlaceRequest) -> VcResult<Place> {
    place_beside(vc, request, &EarlierChoices::default()).await
}

pub async fn place_beside(
    vc: &dyn VCenter,
    request: &PlaceRequest,
    earlier: &EarlierChoices,
) -> VcResult<Place> {
    search::find(vc, &effect(EffectKind::CreateFolder), request, earlier).await
}

/// Uploads a small ISO where [`create_vm`] expects it.
pub async fn upload_iso(vc: &dyn VCenter) {
    let datacenter = vc.datacenter("dc1").await.unwrap();
    let directory = iso().parent().unwrap();
    vc.make_directory(&effect(EffectKind::MakeDirectory), &datacenter, &directory)
        .await
        .unwrap();
    put(vc, &datacenter, &iso(), b"an iso").await.unwrap();
}

pub async fn put(
    vc: &dyn VCenter,
    datacenter: &MoRef,
    path: &DatastorePath,
    bytes: &'static [u8],
) -> VcResult<()> {
    let body = futures::stream::iter([Ok(bytes::Bytes::from_static(bytes))]);
    let length = bytes.len() as u64;
    vc.upload(
        &effect(EffectKind::Upload),
        datacenter,
        path,
        length,
        Box::pin(body),
    )
    .await
}

/// A permit for a call on the VM, in whatever version it is.
pub fn permit(kind: EffectKind, vm: &MoRef) -> Permit<VmAt> {
    let at = VmAt {
        moref: vm.clone(),
        change_version: None,
    };
    Permit::issue(effect(kind), at)
}

/// Changes the VM, in whatever version it is, and waits for the end.
pub async fn configure(
    vc: &dyn VCenter,
    kind: EffectKind,
    vm: &MoRef,
    change: &VmChange,
) -> VcResult<TaskEnd> {
    vc.configure(&permit(kind, vm), change).await?.await
}

/// Changes the VM if it is as `seen`, and waits for the end.
pub async fn configure_as(
    vc: &dyn VCenter,
    kind: EffectKind,
    seen: &VmObservation,
    change: &VmChange,
) -> VcResult<TaskEnd> {
    let permit = Permit::issue(effect(kind), VmAt::of(seen));
    vc.configure(&permit, change).await?.await
}

/// The VM as it is.
pub async fn now(vc: &dyn VCenter, vm: &MoRef) -> VmObservation {
    let shown = vc.observe(vm).await;
    shown.expect("an answer").expect("the VM is there")
}

/// Takes these ISOs out of the VM's drives.
pub async fn eject(vc: &dyn VCenter, vm: &MoRef, isos: &[String]) -> VcResult<TaskEnd> {
    let change = VmChange {
        eject: isos.to_vec(),
        ..VmChange::default()
    };
    configure_as(vc, EffectKind::EjectIso, &now(vc, vm).await, &change).await
}

/// Writes the marker of that name.
pub fn owned(name: &str) -> VmChange {
    VmChange {
        mark: Some(Mark::Owned(marker(name))),
        ..VmChange::default()
    }
}

/// Creates a VM and powers it on, with the calls of the VM actor.
pub async fn life(vc: &dyn VCenter, name: &str) -> VcResult<MoRef> {
    let place = place(vc).await?;
    let TaskEnd::Success(Some(vm)) = made(vc, &create_vm(name, &place)).await? else {
        panic!("no VM from the create task")
    };
    let seen = vc.observe(&vm).await?.expect("the VM is there");
    assert_eq!(seen.marker, Some(marker(name)));
    let order = VmChange {
        boot_order: Some(seen.disk_keys.clone()),
        ..VmChange::default()
    };
    configure(vc, EffectKind::Reconfigure, &vm, &order).await?;
    power_on(vc, &vm).await?;
    Ok(vm)
}

/// Asks for this VM.
pub async fn create(vc: &dyn VCenter, vm: &CreateVm) -> VcResult<TaskRef> {
    vc.create_vm(&effect(EffectKind::CreateVm), vm).await
}

/// Waits for the end of what was asked for.
pub async fn ended(vc: &dyn VCenter, task: VcResult<TaskRef>) -> VcResult<TaskEnd> {
    vc.wait(&task?).await.flatten()
}

/// Asks for this VM, and waits for the end.
pub async fn made(vc: &dyn VCenter, vm: &CreateVm) -> VcResult<TaskEnd> {
    ended(vc, create(vc, vm).await).await
}

pub async fn power_on(vc: &dyn VCenter, vm: &MoRef) -> VcResult<TaskEnd> {
    ended(vc, vc.power_on(&permit(EffectKind::PowerOn, vm)).await).await
}

pub async fn power_off(vc: &dyn VCenter, vm: &MoRef) -> VcResult<TaskEnd> {
    ended(vc, vc.power_off(&permit(EffectKind::PowerOff, vm)).await).await
}

pub async fn destroy(vc: &dyn VCenter, vm: &MoRef) -> VcResult<TaskEnd> {
    ended(vc, vc.destroy(&permit(EffectKind::Destroy, vm)).await).await
}

pub fn find<'a>(vms: &'a [Value], name: &str) -> &'a Value {
    vms.iter()
        .find(|vm| vm["name"] == name)
        .unwrap_or_else(|| panic!("no VM {name} in {vms:?}"))
}

/// A rule of the simulated vCenter: this method fails with that fault.
pub fn fault(method: &str, at: &str, type_name: &str, count: u32) -> Value {
    json!({"method": method, "at": at, "count": count, "fault": {"_typeName": type_name}})
}
