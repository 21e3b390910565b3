//! The product's ports as one transfer sees them. A call to vCenter waits until the world has answered it.
//!
//! For each of its calls, a transfer runs again from its beginning. It gets the answers that it had before and stops
//! where it was. The answers and messages so far therefore describe a transfer completely, and can be compared.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use agent_forge_actors::{
    domain::{
        failure::ReconcileError,
        hardware::Hardware,
        identity::BiosUuid,
        names::{DatastorePath, MoRef, ObjectKey},
    },
    iso::{
        Ports as Outside, fly,
        msg::{FlightNews, IsoKey, IsoPlace, Lane, Start},
        partial::Origin,
    },
    ports::{
        clock::Clock,
        effect::Effect,
        instruments::NoInstruments,
        iso_source::{Freshness, IsoDownload, IsoError, IsoRequest, IsoSource, Validators},
        sessions::Sessions,
        slots::{Slots, turns::Limits},
        vcenter::{
            ByteStream, CreateVm, Datastores, Drives, Fault, FileInfo, FolderSight, Inventory,
            Listener, Machines, MountedIso, News, PlaceCandidates, PlaceRequest, Recommendation,
            Renewal, Stamp, Survey, TaskEnd, TaskRef, Tasks, VCenter, VcError, VcErrorKind,
            VcResult, VmObservation,
        },
    },
};
use agent_forge_crds::pool::RefusedCredentials;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::{runtime::Runtime, sync::watch};

use crate::{
    flight::{self, Airborne, NOW, Name},
    objects,
    shared::Shared,
};

/// A call that the world answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Lists the files in the directory of that pool.
    List(usize),
    /// Reads the size of a file.
    Stat(Name),
    /// Reads what is in the drives of VMs.
    Drives,
    /// The first bytes of an upload arrive there.
    UploadBegins(Name),
    /// The last bytes of an upload have arrived, and it is answered.
    UploadEnds(Name),
    /// Gives a file another name, without overwriting.
    Move(Name, Name),
    /// Deletes a file. A missing file is no error.
    Delete(Name),
}

impl Op {
    /// Whether the call changes something, and so may go wrong.
    pub fn changes(&self) -> bool {
        matches!(self, Self::UploadEnds(_) | Self::Move(..) | Self::Delete(_))
    }

    /// Gives the names in the call to `each`.
    pub fn names(&mut self, each: &mut dyn FnMut(&mut Name)) {
        match self {
            Self::List(_) | Self::Drives => {}
            Self::Stat(name)
            | Self::UploadBegins(name)
            | Self::UploadEnds(name)
            | Self::Delete(name) => each(name),
            Self::Move(from, to) => {
                each(from);
                each(to);
            }
        }
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It is unknown whether it was carried out.
    NoAnswer,
    /// The name is taken.
    AlreadyExists,
    /// There is no such file.
    FileNotFound,
}

/// The answer of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It is done.
    Done,
    /// Size of the file, if it exists.
    Size(Option<u64>),
    /// Names of files.
    Files(Vec<Name>),
    /// The file in the VM's drive.
    Drives(Option<Name>),
    /// It failed.
    Failed(Failure),
}

/// What a transfer has met so far, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its call was answered. The number is the transfer that could write at that moment.
    Reply(Reply, Option<u64>),
    /// It heard that.
    Lane(Lane),
}

/// What a flight reports to its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Number of bytes so far.
    Progress(u64, Option<u64>),
    /// It is about to publish.
    Publishing(IsoPlace),
}

/// Where a flight is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It waits for the answer to a call.
    Call(Op),
    /// It waits for the permit to publish.
    Waits,
    /// It has ended.
    Ended,
}

/// The course of a transfer so far.
#[derive(Clone)]
pub struct Run {
    /// All its messages.
    pub told: Vec<Told>,
    /// Where it is.
    pub at: At,
    /// How it ended.
    pub ended: Option<FlightNews>,
}

/// All that a flight's way depends on.
type Way = (Shared<Start>, bool, Vec<Event>);

thread_local! {
    /// Courses that were computed before. Many states contain the same transfers.
    static RUNS: RefCell<HashMap<Way, Run>> = RefCell::default();
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads");
}

/// The URL of the ISO of that image.
pub fn url(image: u8) -> String {
    format!("https://images.example/byapikey/TOKEN/4.{image}/x86_64/full.iso")
}

/// Bytes of an image. The first image is the smallest that is accepted as ISO 9660, and the second one is a byte
/// longer.
fn image(n: u8) -> &'static Bytes {
    static IMAGES: OnceLock<[Bytes; 2]> = OnceLock::new();
    let made = |n: u8| {
        let mut bytes = vec![n; 32_774 + usize::from(n)];
        bytes[32_769..32_774].copy_from_slice(b"CD001");
        Bytes::from(bytes)
    };
    &IMAGES.get_or_init(|| [made(0), made(1)])[usize::from(n)]
}

/// Size of an image.
pub fn size(n: u8) -> u64 {
    image(n).len() as u64
}

fn digest(n: u8) -> &'static str {
    static DIGESTS: OnceLock<[String; 2]> = OnceLock::new();
    &DIGESTS.get_or_init(|| [0, 1].map(|n| hex::encode(Sha256::digest(image(n)))))[usize::from(n)]
}

fn source_key(n: u8) -> &'static str {
    static KEYS: OnceLock<[String; 2]> = OnceLock::new();
    &KEYS.get_or_init(|| [0, 1].map(flight::source_key))[usize::from(n)]
}

/// Directory of that pool.
pub fn directory(n: usize) -> &'static DatastorePath {
    static DIRECTORIES: OnceLock<[DatastorePath; 2]> = OnceLock::new();
    &DIRECTORIES.get_or_init(|| [0, 1].map(flight::directory))[n]
}

fn cache_key() -> IsoKey {
    IsoKey {
        server: objects::SERVER.to_owned(),
        datacenter: "dc1".to_owned(),
        datastore: "isos".to_owned(),
    }
}

fn born(alive: bool) -> Timestamp {
    objects::at(i64::from(alive))
}

/// The path of a file with that name.
///
/// # Panics
/// Never: the names are valid.
pub fn path(name: &Name) -> DatastorePath {
    let (dir, file) = match name {
        Name::Final { dir, image } => (dir, format!("{}.iso", digest(*image))),
        Name::Partial {
            dir,
            image,
            alive,
            flight,
        } => {
            let key = source_key(*image);
            let origin = Origin::new(objects::CLUSTER_ID, &cache_key(), born(*alive));
            let name = origin.name(key, *flight);
            (dir, name)
        }
    };
    directory(*dir).join(&file).expect("a file's path")
}

/// The final name of that path.
pub fn name(path: &DatastorePath) -> Option<Name> {
    let mut all = [0, 1]
        .into_iter()
        .flat_map(|dir| [0, 1].map(|image| Name::Final { dir, image }));
    all.find(|name| self::path(name) == *path)
}

struct Script {
    log: Vec<Event>,
    names: Vec<Name>,
    progress: Mutex<Progress>,
    lane: watch::Sender<Lane>,
}

#[derive(Default)]
struct Progress {
    /// Number of events that it has met.
    met: usize,
    /// The call that waits.
    call: Option<Op>,
    told: Vec<Told>,
}

#[derive(Clone)]
struct Ports(Arc<Script>);

impl Ports {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0
            .progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to that call.
    async fn call(&self, op: Op) -> VcResult<Reply> {
        let reply = poll_fn(|_| {
            let mut progress = self.progress();
            let Some(Event::Reply(reply, writer)) = self.0.log.get(progress.met) else {
                progress.call = Some(op.clone());
                return Poll::Pending;
            };
            progress.met += 1;
            self.0.lane.send_modify(|lane| lane.transfer = *writer);
            Poll::Ready(reply.clone())
        });
        match reply.await {
            Reply::Failed(failure) => Err(error(failure)),
            reply => Ok(reply),
        }
    }

    fn name(&self, path: &DatastorePath) -> Name {
        let known = self.0.names.iter().find(|name| self::path(name) == *path);
        let name = known.copied().or_else(|| name(path));
        name.unwrap_or_else(|| panic!("{path} is nothing that a flight here knows"))
    }

    fn tells(&self, news: FlightNews) {
        let told = match news {
            FlightNews::Progress(done, total) => Told::Progress(done, total),
            FlightNews::Publishing(place) => Told::Publishing(place),
            _ => return,
        };
        self.progress().told.push(told);
    }
}

fn directory_of(path: &DatastorePath) -> usize {
    usize::from(path != directory(0))
}

fn error(failure: Failure) -> VcError {
    let kind = match failure {
        Failure::NoAnswer => VcErrorKind::NoAnswer,
        Failure::AlreadyExists => VcErrorKind::Fault(Fault::AlreadyExists(String::new())),
        Failure::FileNotFound => VcErrorKind::Fault(Fault::FileNotFound(String::new())),
    };
    VcError {
        kind,
        operation: "call",
        subject: "it".to_owned(),
        message: "as told".to_owned(),
        concealed: false,
    }
}

/// Runs a transfer until its answers are used up.
///
/// # Panics
/// The answers do not belong to its calls.
pub fn run(flight: &Airborne) -> Run {
    let way = (flight.flight.clone(), flight.alive, flight.log.clone());
    if let Some(run) = RUNS.with_borrow(|runs| runs.get(&way).cloned()) {
        return run;
    }
    let run = run_anew(flight);
    RUNS.with_borrow_mut(|runs| runs.insert(way, run.clone()));
    run
}

fn run_anew(flight: &Airborne) -> Run {
    let mut names = Vec::new();
    for event in &flight.log {
        if let Event::Reply(Reply::Files(files), _) = event {
            names.extend(files);
        }
    }
    let image = u8::from(flight.flight.want.source_key != source_key(0));
    let (alive, id) = (flight.alive, flight.flight.id);
    names.extend([0, 1].map(|dir| Name::Partial {
        dir,
        image,
        alive,
        flight: id,
    }));
    let (lane, heard) = watch::channel(Lane {
        wanted: true,
        ..Lane::default()
    });
    let ports = Ports(Arc::new(Script {
        log: flight.log.clone(),
        names,
        progress: Mutex::default(),
        lane,
    }));
    let told = ports.clone();
    let key = cache_key();
    let outside = Outside {
        origin: Origin::new(objects::CLUSTER_ID, &key, born(alive)),
        key,
        sessions: Arc::new(ports.clone()),
        source: Arc::new(ports.clone()),
        clock: Arc::new(ports.clone()),
        instruments: Arc::new(NoInstruments),
        // The world ends before the look that comes later.
        later: Arc::new(drop),
        tell: Arc::new(move |_, news| told.tells(news)),
        lane: heard,
    };
    let work = fly(&outside, flight.flight.as_ref_clone());
    RUNTIME.with(|runtime| {
        let _inside = runtime.enter();
        follow(&ports, work)
    })
}

fn follow(ports: &Ports, work: impl Future<Output = FlightNews>) -> Run {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        ports.progress().call = None;
        let polled = work.as_mut().poll(&mut context);
        let mut progress = ports.progress();
        let (at, ended) = match polled {
            Poll::Ready(news) => (At::Ended, Some(news)),
            Poll::Pending => match ports.0.log.get(progress.met) {
                None => (progress.call.take().map_or(At::Waits, At::Call), None),
                Some(Event::Lane(lane)) => {
                    progress.met += 1;
                    ports.0.lane.send_replace(*lane);
                    continue;
                }
                Some(reply) => panic!("no call waits for {reply:?}"),
            },
        };
        return Run {
            told: std::mem::take(&mut progress.told),
            at,
            ended,
        };
    }
}

fn datacenter() -> MoRef {
    MoRef::new("Datacenter", "datacenter-1")
}

impl Clock for Ports {
    fn wall(&self) -> Timestamp {
        objects::at(1_000_000)
    }
    fn monotonic(&self) -> Duration {
        NOW
    }
}

#[async_trait]
impl Sessions for Ports {
    async fn session(&self, _: &ObjectKey, _: &str) -> Result<Arc<dyn VCenter>, ReconcileError> {
        Ok(Arc::new(self.clone()))
    }
    async fn refusal(&self, _: &ObjectKey) -> Option<RefusedCredentials> {
        None
    }
}

#[async_trait]
impl IsoSource for Ports {
    async fn open(&self, request: &IsoRequest) -> Result<IsoDownload, IsoError> {
        let n = u8::from(request.url.expose().as_str() != url(0));
        Ok(IsoDownload {
            length: size(n),
            validators: Validators::default(),
            body: stream::iter([Ok(image(n).clone())]).boxed(),
        })
    }
    async fn freshness(&self, _: &IsoRequest, _: &Validators) -> Result<Freshness, IsoError> {
        Ok(Freshness::Unknown)
    }
}

#[async_trait]
impl VCenter for Ports {
    fn server(&self) -> &str {
        objects::SERVER
    }
    fn insecure(&self) -> bool {
        false
    }
    fn login_refused(&self) -> bool {
        false
    }
    async fn reachable(&self) -> VcResult<()> {
        Ok(())
    }
    async fn logout(&self, _: &Effect) {}
}

#[async_trait]
impl Machines for Ports {
    async fn find_by_uuid(&self, _: BiosUuid) -> VcResult<Vec<VmObservation>> {
        unreachable!("no VMs here")
    }
    async fn observe(&self, _: &MoRef) -> VcResult<Option<VmObservation>> {
        unreachable!("no VMs here")
    }
    async fn create_vm(&self, _: &Effect, _: &CreateVm) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn renew(&self, _: &Effect, _: &MoRef, _: &Renewal) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn reset(&self, _: &Effect, _: &MoRef) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn set_boot_order(&self, _: &Effect, _: &MoRef, _: &[i32]) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn stamp_marker(&self, _: &Effect, _: &MoRef, _: &Stamp) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn power_on(&self, _: &Effect, _: &MoRef) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn power_off(&self, _: &Effect, _: &MoRef) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn destroy(&self, _: &Effect, _: &MoRef) -> VcResult<TaskRef> {
        unreachable!("no VMs here")
    }
    async fn eject_isos(&self, _: &Effect, _: &MoRef, _: &[String]) -> VcResult<()> {
        unreachable!("no VMs here")
    }
    async fn attach_tags(&self, _: &Effect, _: &MoRef, _: &[String]) -> VcResult<()> {
        unreachable!("no VMs here")
    }
}

#[async_trait]
impl Inventory for Ports {
    async fn place_candidates(&self, _: &PlaceRequest) -> VcResult<PlaceCandidates> {
        unreachable!("no VMs here")
    }
    async fn ensure_folder(&self, _: &Effect, _: &MoRef, _: &str) -> VcResult<MoRef> {
        unreachable!("no VMs here")
    }
    async fn recommend_datastores(
        &self,
        _: &PlaceCandidates,
        _: &MoRef,
        _: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        unreachable!("no VMs here")
    }
    async fn survey(&self) -> VcResult<Arc<Survey>> {
        unreachable!("no VMs here")
    }
    async fn folder_sight(&self, _: &MoRef, _: &MoRef) -> VcResult<FolderSight> {
        unreachable!("no VMs here")
    }
}

#[async_trait]
impl Datastores for Ports {
    async fn datacenter(&self, _: &str) -> VcResult<MoRef> {
        Ok(datacenter())
    }
    async fn stat(&self, _: &MoRef, path: &DatastorePath) -> VcResult<Option<u64>> {
        match self.call(Op::Stat(self.name(path))).await? {
            Reply::Size(size) => Ok(size),
            other => panic!("{other:?} is no size"),
        }
    }
    async fn list(&self, _: &MoRef, directory: &DatastorePath) -> VcResult<Option<Vec<FileInfo>>> {
        match self.call(Op::List(directory_of(directory))).await? {
            Reply::Files(files) => {
                let info = |name: &Name| FileInfo {
                    path: path(name),
                    size: 1,
                    modified: None,
                };
                Ok(Some(files.iter().map(info).collect()))
            }
            other => panic!("{other:?} are no files"),
        }
    }
    async fn make_directory(&self, _: &Effect, _: &MoRef, _: &DatastorePath) -> VcResult<()> {
        Ok(())
    }
    async fn upload(
        &self,
        _: &Effect,
        _: &MoRef,
        path: &DatastorePath,
        _: u64,
        mut body: ByteStream,
    ) -> VcResult<()> {
        let name = self.name(path);
        self.call(Op::UploadBegins(name)).await?;
        self.call(Op::UploadEnds(name)).await?;
        while let Some(chunk) = body.next().await {
            chunk.unwrap_or_else(|e| panic!("the image is whole: {e}"));
        }
        Ok(())
    }
    async fn move_file(
        &self,
        _: &Effect,
        _: &MoRef,
        from: &DatastorePath,
        to: &DatastorePath,
    ) -> VcResult<()> {
        let op = Op::Move(self.name(from), self.name(to));
        self.call(op).await.map(drop)
    }
    async fn delete_file(&self, _: &Effect, _: &MoRef, path: &DatastorePath) -> VcResult<()> {
        let op = Op::Delete(self.name(path));
        self.call(op).await.map(drop)
    }
    async fn drives(&self) -> VcResult<Drives> {
        match self.call(Op::Drives).await? {
            Reply::Drives(held) => {
                let mount = |name: Name| MountedIso {
                    iso: path(&name).to_string(),
                    vm: "vm".to_owned(),
                };
                Ok(Drives {
                    isos: held.map(mount).into_iter().collect(),
                    ..Drives::default()
                })
            }
            other => panic!("{other:?} are no drives"),
        }
    }
}

impl News for Ports {
    /// It tells nothing.
    fn follow(&self, _vms: BTreeSet<String>, _listener: Listener) {}
}

#[async_trait]
impl Tasks for Ports {
    fn slots(&self) -> Slots {
        Slots::new(Limits::tasks(8))
    }
    async fn wait(&self, _: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        unreachable!("no VMs here")
    }
}
