//! The ISO transfer in a small world: two pools that share one ISO, one datastore, one ISO cache, and a VM that boots
//! from the ISO.
//!
//! The decisions and actions are the product's. A pool's turn uses its real demand, retention and status (`pool::iso`).
//! The cache is its real table. A transfer is the real one. For each of its calls it runs again from its beginning,
//! with the answers that it has had so far ([`crate::flight_ports`]). Between any two calls, other parts of the world
//! may act.
//!
//! So that the number of states is finite:
//! - Time does not pass, except in [`Label::Passes`]. That is longer than anything waits, and happens only without a
//!   transfer. No state contains a clock.
//! - Numbers only distinguish current transfers. They are given again when a transfer ends, and so are the names of
//!   files that dead transfers left.
//! - A pool may ask at any moment, instead of when the cache wakes it.
//!
//! Not included: stalls and deadlines of a transfer, sources that fail or change their bytes, pools that are deleted,
//! datastores that change, people who change files, other clusters.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    domain::names::{DatastorePath, ObjectKey},
    iso::{
        flight::FlightTable,
        msg::{FlightNews, IsoPlace, Lane, Start},
        of_pool::{self, iso_path, kept},
    },
};
use agent_forge_crds::{
    external::infra_env::{InfraEnv, IsoDownloadUrl},
    pool::{IsoSpec, VsphereAgentPool},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use stateright::{Model, Property};

use crate::{
    explore::{self, Spare},
    flight_ports::{self, At, Event, Failure, Op, Reply, Told},
    objects,
    shared::Shared,
    world::{Budget, Fault},
};

/// Monotonic time of every event.
pub const NOW: Duration = Duration::from_secs(1_000_000);
/// How far back events lie that happened before time passed.
const LONG: Duration = Duration::from_secs(100_000);

/// A VM's drive contains only whole ISOs, and so does a file with a final name.
pub const WHOLE: &str = "nothing but whole bytes under a final name";
/// At most one upload runs at a time, so there are never two to one name.
pub const ONE_UPLOAD: &str = "one upload at a time";
/// No file is deleted that a pool needs or a VM has in its drive.
pub const NOT_IN_USE: &str = "nothing in use is deleted";
/// Once faults are over, every pool has its ISO, and no other file is left.
pub const ENDS: &str = "every pool gets its ISO, and nothing is left behind";
/// All promises.
pub const PROMISES: [&str; 4] = [WHOLE, ONE_UPLOAD, NOT_IN_USE, ENDS];

/// A file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// `<sha256>.iso` of that image in the directory of that pool.
    Final {
        /// The pool that owns the directory.
        dir: usize,
        /// The image.
        image: u8,
    },
    /// The file that a transfer writes to.
    Partial {
        /// The pool that owns the directory.
        dir: usize,
        /// The image.
        image: u8,
        /// Whether the current life of the cache writes it.
        alive: bool,
        /// Number of the transfer.
        flight: u64,
    },
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bytes {
    /// All of that image.
    Whole(u8),
    /// A part of that image.
    Part(u8),
}

/// A broken promise, noted when it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Harm {
    /// Two uploads run at a time, or two to one name.
    TwoUploads,
    /// A file was deleted that a pool needs or a VM has in its drive.
    DeletedInUse,
    /// A VM got an ISO that is not whole.
    BootedFromPart,
}

/// The VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vm {
    /// It does not exist.
    None,
    /// It is being created with that file in its drive.
    Making(Name),
    /// It has that file in its drive.
    Has(Name),
}

/// A current transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Airborne {
    /// The transfer.
    pub flight: Shared<Start>,
    /// Whether it belongs to the current life of the cache.
    pub alive: bool,
    /// All answers and events that it has got so far.
    pub log: Vec<Event>,
    /// How many messages it has sent.
    pub told: usize,
    /// What it does next.
    pub at: At,
    /// It has to be computed again.
    fresh: bool,
}

impl Airborne {
    fn id(&self) -> u64 {
        self.flight.id
    }

    fn is_uploading(&self) -> bool {
        matches!(self.at, At::Call(Op::UploadEnds(_)))
    }
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The image that the InfraEnv offers.
    image: u8,
    /// The pools in the API server.
    pools: [Shared<VsphereAgentPool>; 2],
    /// The pool whose watch lags, as that watch shows it.
    shown: Option<(usize, Shared<VsphereAgentPool>)>,
    table: Shared<FlightTable>,
    flights: Vec<Airborne>,
    /// The files on the datastore.
    pub files: BTreeMap<Name, Bytes>,
    vm: Vm,
    /// A request that may still arrive although its sender has given up.
    late: Option<Op>,
    left: Budget,
    may_change: bool,
    harm: Option<Harm>,
}

/// What happens in a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// A pool takes its turn. Its write may go wrong.
    Asks(usize, Option<Fault>),
    /// A transfer makes its next call. The call may go wrong; an unknown outcome may come at once or later.
    Calls(&'static str, Op, Option<(Fault, bool)>),
    /// The cache dies with all its transfers. A call that was sent may still arrive.
    Dies(Option<Op>),
    /// The late request arrives.
    Late,
    /// The late request is lost.
    LateLost,
    /// A watch catches up.
    CatchesUp,
    /// A long time passes.
    Passes,
    /// The InfraEnv offers another image.
    Changes,
    /// The VM takes its next step: it is wanted, it is created, it gives the ISO back.
    Vm(&'static str),
}

/// A transition with the state that it leads to.
#[derive(Clone)]
pub struct Action {
    label: Label,
    next: World,
}

impl PartialEq for Action {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label && self.next == other.next
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.label)
    }
}

/// A planted defect, to check that the oracles find its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The datastore stores a part of the bytes and reports success.
    Truncates,
    /// The cache permits a publish before any status lists the name.
    LeaveAtOnce,
    /// The operator does not search for files of dead transfers.
    NoSweep,
    /// The operator does not check drives before it deletes a file.
    BlindToDrives,
    /// Transfers continue after their cache has died.
    FlightsLiveOn,
}

/// The result of a call of the table.
#[derive(Clone)]
struct Answered {
    table: Shared<FlightTable>,
    /// What the transfer under way heard before.
    before: Lane,
    begin: Vec<Shared<Start>>,
}

/// Everything that a pool's turn depends on.
type Asking = (
    usize,
    u8,
    bool,
    Shared<FlightTable>,
    [Shared<VsphereAgentPool>; 2],
    Option<(usize, Shared<VsphereAgentPool>)>,
);

/// A table, and new numbers for its transfers.
type Renaming = (Shared<FlightTable>, Vec<(u64, u64)>);

thread_local! {
    /// Turns that were computed before. In many states a pool asks the same.
    static ASKED: RefCell<HashMap<Asking, (Answered, Shared<VsphereAgentPool>)>> = RefCell::default();
    /// Tables with other numbers for their transfers.
    static RENAMED: RefCell<HashMap<Renaming, Shared<FlightTable>>> = RefCell::default();
}

/// The model.
pub struct Flights {
    faults: Vec<Fault>,
    /// Whether the InfraEnv may offer another image.
    pub changes: bool,
    /// Whether there is a VM.
    pub vm: bool,
    /// Whether the world begins with an ISO for both pools.
    pub from_rest: bool,
    /// A planted defect. `None` to check the product.
    pub defect: Option<Defect>,
    good: Mutex<HashSet<u64>>,
}

fn now_wall() -> Timestamp {
    objects::at(1_000_000)
}

fn secret() -> ObjectKey {
    ObjectKey::new(objects::NAMESPACE, "vcenter")
}

fn pool(n: usize) -> VsphereAgentPool {
    let mut pool = objects::pool(objects::POOL);
    let name = if n == 0 { "x" } else { "y" };
    pool.metadata.name = Some(name.to_owned());
    pool.metadata.uid = Some(format!("pool-{name}"));
    pool.spec.iso = Some(IsoSpec {
        retain_versions: Some(1),
        ..IsoSpec::default()
    });
    pool.status.get_or_insert_default().iso = None;
    pool
}

/// Directory of that pool.
///
/// # Panics
/// Never: the objects are valid.
pub fn directory(n: usize) -> DatastorePath {
    of_pool::directory(&pool(n)).expect("a directory")
}

fn infra_env(image: u8) -> InfraEnv {
    let mut env = InfraEnv {
        metadata: objects::meta(objects::NAMESPACE, "infra", "infra".to_owned()),
        ..InfraEnv::default()
    };
    let status = env.status.get_or_insert_default();
    status.iso_download_url = Some(IsoDownloadUrl::new(flight_ports::url(image)));
    status.created_time = Some(Time(objects::at(i64::from(image))));
    env
}

/// Source key of that image.
///
/// # Panics
/// Never: the objects are valid.
pub fn source_key(image: u8) -> String {
    let env = infra_env(image);
    let (env, url) = of_pool::source(Some(&env)).unwrap_or_else(|e| panic!("a source: {e:?}"));
    of_pool::source_key(env, &url)
}

impl Flights {
    /// A world with these faults, each at most once.
    pub fn new(faults: &[Fault]) -> Self {
        Self {
            faults: faults.to_vec(),
            changes: true,
            vm: true,
            from_rest: false,
            defect: None,
            good: Mutex::default(),
        }
    }

    fn planted(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Calls a copy of the table.
    fn consult<T>(
        table: &Shared<FlightTable>,
        work: impl FnOnce(&mut FlightTable) -> (T, Vec<Start>),
    ) -> (T, Answered) {
        let mut table = table.as_ref_clone();
        let before = table.lane();
        let (result, begin) = work(&mut table);
        let answered = Answered {
            table: Shared::apart(table),
            before,
            begin: begin.into_iter().map(Shared::apart).collect(),
        };
        (result, answered)
    }

    /// Applies the result of a call: the table changes, transfers get messages, and new ones begin.
    fn take_in(w: &mut World, answered: &Answered) {
        w.table = answered.table.clone();
        let lane = w.table.lane();
        if lane != answered.before {
            Self::say(w, lane);
        }
        for flight in &answered.begin {
            w.flights.push(Airborne {
                flight: flight.clone(),
                alive: true,
                log: Vec::new(),
                told: 0,
                at: At::Waits,
                fresh: true,
            });
        }
    }

    /// The transfer under way hears that.
    fn say(w: &mut World, lane: Lane) {
        let hears = |f: &&mut Airborne| f.alive && Some(f.id()) == lane.transfer;
        if let Some(flight) = w.flights.iter_mut().find(hears) {
            flight.log.push(Event::Lane(lane));
            flight.fresh = true;
        }
    }

    fn news(w: &mut World, id: u64, news: FlightNews) {
        let work = |table: &mut FlightTable| {
            let turn = table.news(id, news, NOW);
            ((), turn.start)
        };
        let ((), answered) = Self::consult(&w.table, work);
        Self::take_in(w, &answered);
    }

    /// Carries out everything that follows at once: messages of transfers, and transfers that they start.
    fn pump(&self, w: &mut World) {
        while let Some(n) = w.flights.iter().position(|f| f.fresh) {
            let run = flight_ports::run(&w.flights[n]);
            let flight = &mut w.flights[n];
            flight.fresh = false;
            let (alive, id) = (flight.alive, flight.id());
            let news: Vec<Told> = run.told.into_iter().skip(flight.told).collect();
            flight.told += news.len();
            flight.at = run.at;
            if flight.at == At::Ended {
                w.flights.remove(n);
            }
            for told in news {
                if alive {
                    self.hears(w, id, told);
                }
            }
            if let (Some(news), true) = (run.ended, alive) {
                Self::news(w, id, news);
            }
        }
        self.settle(w);
    }

    fn hears(&self, w: &mut World, id: u64, told: Told) {
        match told {
            Told::Progress(done, total) => {
                Self::news(w, id, FlightNews::Progress(done, total));
            }
            Told::Publishing(place) => self.announce(w, id, place),
        }
    }

    fn announce(&self, w: &mut World, id: u64, place: IsoPlace) {
        Self::news(w, id, FlightNews::Publishing(place));
        if self.planted(Defect::LeaveAtOnce) {
            let lane = Lane {
                listed: true,
                ..w.table.lane()
            };
            Self::say(w, lane);
        }
    }

    /// Brings equal states into one form.
    fn settle(&self, w: &mut World) {
        if let Some((n, old)) = &w.shown
            && *old == w.pools[*n]
        {
            w.shown = None;
        }
        w.flights.sort_by_key(|f| (!f.alive, f.id()));
        let mut ids = BTreeMap::new();
        for flight in w.flights.iter().filter(|f| f.alive) {
            let next = ids.len() as u64 + 1;
            ids.entry(flight.id()).or_insert(next);
        }
        let mut dead = BTreeSet::new();
        let is_dead = |name: &Name| match name {
            Name::Partial { alive, flight, .. } => !alive || !ids.contains_key(flight),
            Name::Final { .. } => false,
        };
        names(w, &mut |name| {
            if is_dead(name) {
                dead.insert(*name);
            }
        });
        let dead: BTreeMap<Name, u64> = dead.into_iter().zip(1001..).collect();
        let of_dead: BTreeMap<u64, u64> = dead
            .iter()
            .filter_map(|(name, n)| match name {
                Name::Partial {
                    alive: false,
                    flight,
                    ..
                } => Some((*flight, *n)),
                _ => None,
            })
            .collect();
        names(w, &mut |name| {
            let rank = dead.get(name).copied();
            if let Name::Partial { flight, .. } = name {
                *flight = rank.or_else(|| ids.get(flight).copied()).unwrap_or(*flight);
            }
        });
        let files = std::mem::take(&mut w.files);
        w.files = files
            .into_iter()
            .map(|(mut name, bytes)| {
                let rank = dead.get(&name).copied();
                if let Name::Partial { flight, .. } = &mut name {
                    *flight = rank.or_else(|| ids.get(flight).copied()).unwrap_or(*flight);
                }
                (name, bytes)
            })
            .collect();
        let id = |n: u64| ids.get(&n).copied().unwrap_or(n);
        for flight in &mut w.flights {
            let alive = flight.alive;
            let shared = &mut flight.flight;
            let own = if alive {
                id(shared.id)
            } else {
                of_dead.get(&shared.id).copied().unwrap_or(shared.id)
            };
            if own != shared.id {
                shared.change_apart(|f| f.id = own);
            }
            for event in &mut flight.log {
                let (Event::Reply(_, writer)
                | Event::Lane(Lane {
                    transfer: writer, ..
                })) = event;
                *writer = writer.map(id);
            }
        }
        let renamed = ids.iter().any(|(was, is)| was != is);
        if renamed || w.table.newest() != ids.len() as u64 {
            let names = ids.iter().map(|(was, is)| (*was, *is)).collect();
            let key = (w.table.clone(), names);
            let known = RENAMED.with_borrow(|all| all.get(&key).cloned());
            w.table = known.unwrap_or_else(|| {
                let table = Shared::apart(w.table.with(|at| at, id));
                RENAMED.with_borrow_mut(|all| all.insert(key, table.clone()));
                table
            });
        }
    }

    fn shows(&self, w: &World, n: usize) -> Arc<VsphereAgentPool> {
        match &w.shown {
            Some((lags, old)) if *lags == n => old.arc(),
            _ => w.pools[n].arc(),
        }
    }

    /// A pool's question and the answer, and the pool's object with that answer in its status.
    fn asked(w: &World, n: usize) -> (Answered, Shared<VsphereAgentPool>) {
        let making = matches!(w.vm, Vm::Making(_));
        let key = (
            n,
            w.image,
            making,
            w.table.clone(),
            w.pools.clone(),
            w.shown.clone(),
        );
        if let Some(known) = ASKED.with_borrow(|all| all.get(&key).cloned()) {
            return known;
        }
        let own = w.pools[n].arc();
        let shows = |n: usize| match &w.shown {
            Some((lags, old)) if *lags == n => old.arc(),
            _ => w.pools[n].arc(),
        };
        let others = [shows(1 - n)];
        let want = of_pool::want(&own, &others, Some(&infra_env(w.image)), &secret());
        let mut want = want.unwrap_or_else(|e| panic!("a want: {e:?}"));
        if !making {
            want.prunable = kept::prunable(&shows(n), &others, now_wall());
        }
        let work = |table: &mut FlightTable| table.ask(want.clone(), NOW);
        let (state, answered) = Self::consult(&w.table, work);
        let record = own.status.as_ref().and_then(|s| s.iso.as_ref());
        let next = of_pool::status(record, &want, &state, now_wall());
        let mut pool = w.pools[n].clone();
        if next.as_ref() != record {
            pool.change(|pool| pool.status.get_or_insert_default().iso = next);
        }
        let asked = (answered, pool);
        ASKED.with_borrow_mut(|all| all.insert(key, asked.clone()));
        asked
    }

    /// A pool's turn: it asks, and writes the answer to its status. With `Lag`, its watch does not show that write for
    /// now.
    fn asks(&self, w: &World, n: usize, blow: Option<Fault>) -> World {
        let mut w = w.clone();
        let (answered, pool) = Self::asked(&w, n);
        Self::take_in(&mut w, &answered);
        if pool != w.pools[n] && blow != Some(Fault::Loss) {
            if blow == Some(Fault::Lag) {
                w.shown = Some((n, w.pools[n].clone()));
            }
            w.pools[n] = pool;
        }
        if let Some(fault) = blow {
            w.left.spend(fault);
        }
        self.pump(&mut w);
        w
    }

    /// vCenter carries a call out.
    fn perform(&self, w: &mut World, op: &Op) -> Reply {
        match op {
            Op::List(_) if self.planted(Defect::NoSweep) => Reply::Files(Vec::new()),
            Op::List(dir) => {
                let here = |name: &&Name| match name {
                    Name::Final { dir: at, .. } | Name::Partial { dir: at, .. } => at == dir,
                };
                Reply::Files(w.files.keys().filter(here).copied().collect())
            }
            Op::Stat(name) => {
                let bytes = w.files.get(name);
                Reply::Size(bytes.map(|bytes| match bytes {
                    Bytes::Part(image) if self.planted(Defect::Truncates) => {
                        flight_ports::size(*image)
                    }
                    Bytes::Part(_) => 1,
                    Bytes::Whole(image) => flight_ports::size(*image),
                }))
            }
            Op::Drives if self.planted(Defect::BlindToDrives) => Reply::Drives(None),
            Op::Drives => Reply::Drives(match w.vm {
                Vm::Has(name) => Some(name),
                _ => None,
            }),
            Op::UploadBegins(name) => {
                let uploads = w.flights.iter().filter(|f| f.is_uploading()).count();
                if uploads > 0 || w.files.contains_key(name) {
                    w.harm.get_or_insert(Harm::TwoUploads);
                }
                if let Name::Partial { image, .. } = name {
                    w.files.insert(*name, Bytes::Part(*image));
                }
                Reply::Done
            }
            Op::UploadEnds(name) => {
                if let Name::Partial { image, .. } = name {
                    let whole = if self.planted(Defect::Truncates) {
                        Bytes::Part(*image)
                    } else {
                        Bytes::Whole(*image)
                    };
                    w.files.insert(*name, whole);
                }
                Reply::Done
            }
            Op::Move(_, to) if w.files.contains_key(to) => Reply::Failed(Failure::AlreadyExists),
            Op::Move(from, to) => match w.files.remove(from) {
                Some(bytes) => {
                    w.files.insert(*to, bytes);
                    Reply::Done
                }
                None => Reply::Failed(Failure::FileNotFound),
            },
            Op::Delete(name) => {
                if w.files.remove(name).is_some() && self.is_used(w, name) {
                    w.harm.get_or_insert(Harm::DeletedInUse);
                }
                Reply::Done
            }
        }
    }

    fn is_used(&self, w: &World, name: &Name) -> bool {
        let path = flight_ports::path(name);
        let relies = |pool: &Shared<VsphereAgentPool>| kept::retained(pool).contains(&path);
        w.vm == Vm::Has(*name) || w.vm == Vm::Making(*name) || w.pools.iter().any(relies)
    }

    /// The next call of a transfer, as it should be or with this fault. `true`: the outcome comes later.
    fn calls(&self, w: &World, n: usize, blow: Option<(Fault, bool)>) -> Option<World> {
        let mut w = w.clone();
        let At::Call(op) = w.flights[n].at.clone() else {
            return None;
        };
        let lost = Reply::Failed(Failure::NoAnswer);
        let reply = match blow {
            None => self.perform(&mut w, &op),
            Some((fault, later)) => {
                w.left.spend(fault);
                match (fault, later) {
                    (Fault::Loss, _) => lost,
                    (Fault::Unknown, true) => {
                        w.late = Some(op.clone());
                        lost
                    }
                    (Fault::Unknown, false) => {
                        self.perform(&mut w, &op);
                        lost
                    }
                    _ => {
                        self.perform(&mut w, &op);
                        self.perform(&mut w, &op)
                    }
                }
            }
        };
        let writer = w.table.lane().transfer;
        let flight = &mut w.flights[n];
        flight.log.push(Event::Reply(reply, writer));
        flight.fresh = true;
        self.pump(&mut w);
        Some(w)
    }

    /// The cache and its transfers end. A new life begins without memory.
    fn dies(&self, w: &World, late: Option<Op>) -> World {
        let mut w = w.clone();
        w.left.spend(Fault::Crash);
        w.table = Shared::apart(FlightTable::default());
        if self.planted(Defect::FlightsLiveOn) {
            for flight in &mut w.flights {
                flight.alive = false;
            }
        } else {
            w.flights.clear();
        }
        w.late = w.late.take().or(late);
        let files = std::mem::take(&mut w.files);
        let mut gone = |name: &mut Name| {
            if let Name::Partial { alive, .. } = name {
                *alive = false;
            }
        };
        for (mut name, bytes) in files {
            gone(&mut name);
            w.files.insert(name, bytes);
        }
        names(&mut w, &mut gone);
        self.settle(&mut w);
        w
    }

    fn passes(&self, w: &World) -> Option<World> {
        if !w.flights.is_empty() || w.late.is_some() || w.shown.is_some() {
            return None;
        }
        let mut w = w.clone();
        let past = |at: Duration| if at >= NOW { NOW - LONG } else { at };
        w.table = Shared::apart(w.table.with(past, |id| id));
        let before = Time(objects::at(0));
        for pool in &mut w.pools {
            let checked = |p: &VsphereAgentPool| {
                let iso = p.status.as_ref().and_then(|s| s.iso.as_ref());
                iso.and_then(|i| i.checked_at.clone())
            };
            if checked(pool).is_some_and(|at| at != before) {
                pool.change(|p| {
                    if let Some(iso) = p.status.as_mut().and_then(|s| s.iso.as_mut()) {
                        iso.checked_at = Some(before.clone());
                    }
                });
            }
        }
        Some(w)
    }

    fn vm_step(&self, w: &World) -> Option<(&'static str, World)> {
        let mut next = w.clone();
        let what = match w.vm {
            Vm::None => {
                let path = iso_path(&self.shows(w, 0))?;
                next.vm = Vm::Making(flight_ports::name(&path)?);
                "is to be made"
            }
            Vm::Making(name) => match w.files.get(&name) {
                None => {
                    next.vm = Vm::None;
                    "is not made: its ISO is not there"
                }
                Some(bytes) => {
                    if matches!(bytes, Bytes::Part(_)) {
                        next.harm.get_or_insert(Harm::BootedFromPart);
                    }
                    next.vm = Vm::Has(name);
                    "boots"
                }
            },
            Vm::Has(_) => {
                next.vm = Vm::None;
                "gives its ISO back"
            }
        };
        Some((what, next))
    }

    /// All transitions that change something.
    pub fn successors(&self, w: &World) -> Vec<Action> {
        let mut all = Vec::new();
        let mut add = |label: Label, next: World| {
            if next != *w {
                all.push(Action { label, next });
            }
        };
        for n in 0..w.pools.len() {
            let plain = self.asks(w, n, None);
            if plain.pools[n] != w.pools[n] {
                for fault in [Fault::Loss, Fault::Lag] {
                    if w.left.has(fault) && (fault == Fault::Loss || w.shown.is_none()) {
                        add(Label::Asks(n, Some(fault)), self.asks(w, n, Some(fault)));
                    }
                }
            }
            add(Label::Asks(n, None), plain);
        }
        for n in 0..w.flights.len() {
            let At::Call(op) = w.flights[n].at.clone() else {
                continue;
            };
            let name = w.flights[n].flight.task.name();
            let mut blows = vec![None];
            if op.changes() {
                blows.extend([Some((Fault::Loss, false)), Some((Fault::Unknown, false))]);
                blows.extend(w.late.is_none().then_some(Some((Fault::Unknown, true))));
                blows.push(Some((Fault::Duplicate, false)));
            }
            for blow in blows {
                if blow.is_some_and(|(fault, _)| !w.left.has(fault)) {
                    continue;
                }
                if let Some(next) = self.calls(w, n, blow) {
                    add(Label::Calls(name, op.clone(), blow), next);
                }
            }
            if op.changes() && w.left.has(Fault::Crash) && w.late.is_none() {
                let late = Some(op);
                add(Label::Dies(late.clone()), self.dies(w, late));
            }
        }
        if w.left.has(Fault::Crash) {
            add(Label::Dies(None), self.dies(w, None));
        }
        if let Some(op) = &w.late {
            let mut next = w.clone();
            next.late = None;
            add(Label::LateLost, next.clone());
            self.perform(&mut next, op);
            self.settle(&mut next);
            add(Label::Late, next);
        }
        if w.shown.is_some() {
            let mut next = w.clone();
            next.shown = None;
            add(Label::CatchesUp, next);
        }
        if let Some(next) = self.passes(w) {
            add(Label::Passes, next);
        }
        if w.may_change {
            let mut next = w.clone();
            (next.image, next.may_change) = (1, false);
            add(Label::Changes, next);
        }
        if let Some((what, next)) = self.vm_step(w).filter(|_| self.vm) {
            add(Label::Vm(what), next);
        }
        all
    }

    /// After the faults: each part does what it has to do. If that changes nothing, a long time passes.
    fn round(&self, w: &World) -> World {
        let mut next = w.clone();
        next.left = Budget::default();
        next.may_change = false;
        next.shown = None;
        if let Some(op) = next.late.take() {
            self.perform(&mut next, &op);
            self.settle(&mut next);
        }
        for n in 0..next.pools.len() {
            next = self.asks(&next, n, None);
        }
        let calls = |w: &World| w.flights.iter().position(|f| matches!(f.at, At::Call(_)));
        while let Some(then) = calls(&next).and_then(|n| self.calls(&next, n, None)) {
            next = then;
        }
        while !matches!(next.vm, Vm::None) {
            match self.vm_step(&next) {
                Some((_, then)) => next = then,
                None => break,
            }
        }
        if next != *w {
            return next;
        }
        self.passes(&next).unwrap_or(next)
    }

    /// What is wrong with a world at rest.
    fn unrest(&self, w: &World) -> Option<String> {
        if !w.flights.is_empty() {
            return Some("something still flies".to_owned());
        }
        for pool in &w.pools {
            let name = iso_path(pool).as_ref().and_then(flight_ports::name);
            let has = name.and_then(|name| w.files.get(&name));
            if has != Some(&Bytes::Whole(w.image)) {
                return Some(format!("{} has not got its ISO", pool.name_any()));
            }
        }
        for name in w.files.keys() {
            let path = flight_ports::path(name);
            let listed = |pool: &Shared<VsphereAgentPool>| kept::retained(pool).contains(&path);
            if !w.pools.iter().any(listed) {
                return Some(format!("{name:?} is left"));
            }
        }
        None
    }

    /// How the world ends once faults are over. `None` if it ends well.
    pub fn ending(&self, w: &World) -> Option<String> {
        let (mut now, mut way) = (w.clone(), Vec::new());
        // More rounds than any good ending takes.
        for _ in 0..100 {
            let seen = explore::digest(&now);
            let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
            let known = good.contains(&seen);
            drop(good);
            let rests = way.contains(&seen);
            if rests && let Some(wrong) = self.unrest(&now) {
                return Some(format!("{wrong}; {now:#?}"));
            }
            if known || rests {
                let good = self.good.lock();
                good.unwrap_or_else(PoisonError::into_inner).extend(way);
                return None;
            }
            way.push(seen);
            now = self.round(&now);
        }
        Some(format!("it never comes to rest; {now:#?}"))
    }

    fn is_whole(w: &World) -> bool {
        let whole = |(name, bytes): (&Name, &Bytes)| match name {
            Name::Final { image, .. } => *bytes == Bytes::Whole(*image),
            Name::Partial { .. } => true,
        };
        w.harm != Some(Harm::BootedFromPart) && w.files.iter().all(whole)
    }
}

/// Gives each name in current transfers and requests to `each`, which may change it. Files are left out where names are
/// only read.
fn names(w: &mut World, each: &mut dyn FnMut(&mut Name)) {
    for mut name in w.files.keys().copied().collect::<Vec<_>>() {
        each(&mut name);
    }
    if let Some(op) = &mut w.late {
        op.names(each);
    }
    for flight in &mut w.flights {
        if let At::Call(op) = &mut flight.at {
            op.names(each);
        }
        for event in &mut flight.log {
            if let Event::Reply(Reply::Files(files), _) = event {
                files.iter_mut().for_each(&mut *each);
            }
        }
    }
}

impl Spare for Flights {
    fn spare(&self, w: &World) -> u8 {
        w.left.bits()
    }

    fn print(&self, w: &World) -> u64 {
        let bare = World {
            left: Budget::default(),
            ..w.clone()
        };
        explore::digest(&bare)
    }
}

impl Model for Flights {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let start = World {
            image: 0,
            pools: [0, 1].map(|n| Shared::new(pool(n))),
            shown: None,
            table: Shared::apart(FlightTable::default()),
            flights: Vec::new(),
            files: BTreeMap::new(),
            vm: Vm::None,
            late: None,
            left: Budget::of(&self.faults),
            may_change: self.changes,
            harm: None,
        };
        let mut w = start.clone();
        while self.from_rest && self.unrest(&w).is_some() {
            w = self.round(&w);
        }
        (w.left, w.may_change) = (start.left, start.may_change);
        vec![w]
    }

    fn actions(&self, w: &World, actions: &mut Vec<Action>) {
        // States after a broken promise show nothing new.
        if w.harm.is_none() {
            actions.extend(self.successors(w));
        }
    }

    fn next_state(&self, _: &World, action: Action) -> Option<World> {
        Some(action.next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WHOLE, |_, w| Self::is_whole(w)),
            Property::always(ONE_UPLOAD, |_, w: &World| w.harm != Some(Harm::TwoUploads)),
            Property::always(NOT_IN_USE, |_, w: &World| {
                w.harm != Some(Harm::DeletedInUse)
            }),
            Property::always(ENDS, |m: &Self, w| m.ending(w).is_none()),
            Property::sometimes("a VM boots from it", |_, w: &World| {
                matches!(w.vm, Vm::Has(_))
            }),
        ]
    }
}
