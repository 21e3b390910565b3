//! The operator as a process: started, killed, terminated and started again, as a kubelet does it.
//!
//! A kill does not end the runtime, because the simulated upstream runs on the same clock. The process is cut off from
//! the world first: no request arrives and no answer comes back. Then all its tasks are dropped.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use agent_forge::{
    args::Args,
    cluster::client::Clients,
    run::{self, Borders},
    telemetry::metrics::Metrics,
    vsphere,
};
use agent_forge_actors::{ports::clock::Clock, runtime::lease::Lost, supervisor::SupervisorMsg};
use agent_forge_lab::played::assisted::image_server::ImageServer;
use clap::Parser as _;
use jiff::Timestamp;
use ractor::ActorRef;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    around,
    director::{Director, Life, Order, SimGate, hub, life},
    hosted::{Hosted, Reader},
    iso::{Hold, Images},
    kube::ApiServer,
    plan::Fault,
    promise::Oracle,
    vcenter::{VCenter, service::Wire},
    world::wall,
};

/// Time from the end of a process to the start of the next one.
const RESTART: Duration = Duration::from_secs(1);

/// The workload that switches the installer for BYOH on.
const BYOH_WORKLOAD: &str = "host_of_byoh";

/// Namespace of the Lease.
pub const LEASE_NAMESPACE: &str = "agent-forge-system";

/// Time from an effect to a kill that is not aimed at its request.
const MOMENT: Duration = Duration::from_millis(7);

/// What a process needs from the world.
#[derive(Clone)]
pub struct Surroundings {
    /// Faults and time.
    pub director: Director,
    /// API server.
    pub api: ApiServer,
    /// vCenter.
    pub vcenter: VCenter,
    /// The image server.
    pub images: ImageServer,
    /// Whether downloads send anything.
    pub hold: Hold,
    /// The hosted cluster.
    pub hosted: Hosted,
    /// The supervisors of the current processes, once they have started.
    pub heads: Heads,
    /// Number of instances. With two, a Lease decides which one acts.
    pub instances: usize,
    /// Number of processes that were started.
    pub lives: Arc<AtomicU32>,
}

impl Surroundings {
    fn next_life(&self) -> u32 {
        self.lives.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The supervisor of each instance.
pub type Heads = Arc<Mutex<BTreeMap<usize, ActorRef<SupervisorMsg>>>>;

/// One process of the operator.
pub struct Process {
    /// Its life.
    pub life: Arc<Life>,
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    head: Option<oneshot::Receiver<ActorRef<SupervisorMsg>>>,
    supervisor: Option<ActorRef<SupervisorMsg>>,
}

/// The clock of a process.
struct SimClock {
    director: Director,
    /// How far its wall clock was ahead when the process began.
    ahead: Duration,
}

impl SimClock {
    fn new(director: &Director) -> Self {
        Self {
            director: director.clone(),
            ahead: director.clock_jump(),
        }
    }

    fn ahead_by(&self, jump: Duration) -> Timestamp {
        let jump = jiff::SignedDuration::try_from(jump).unwrap_or_default();
        let now = wall(&self.director);
        now.checked_add(jump).unwrap_or(now)
    }
}

impl Clock for SimClock {
    fn wall(&self) -> Timestamp {
        self.ahead_by(self.director.clock_jump())
    }

    fn steady(&self) -> Timestamp {
        self.ahead_by(self.ahead)
    }

    fn monotonic(&self) -> Duration {
        self.director.now()
    }
}

fn forward(
    head: oneshot::Receiver<ActorRef<SupervisorMsg>>,
    (instance, heads): (usize, Heads),
) -> oneshot::Receiver<ActorRef<SupervisorMsg>> {
    let (told, next) = oneshot::channel();
    tokio::spawn(async move {
        if let Ok(actor) = head.await {
            let mut heads = heads.lock().unwrap_or_else(PoisonError::into_inner);
            heads.insert(instance, actor.clone());
            drop(heads);
            // The process may have ended already.
            let _ = told.send(actor);
        }
    });
    next
}

impl Process {
    /// Starts the operator in that instance.
    #[must_use]
    pub fn start(around: &Surroundings, instance: usize) -> Self {
        let number = around.next_life();
        let life = life(number);
        let mut args = vec![
            "agent-forge".to_owned(),
            "--metrics-bind-address=0".to_owned(),
            "--health-probe-bind-address=0".to_owned(),
            "--debug-bind-address=0".to_owned(),
        ];
        if around.director.plan().workload == BYOH_WORKLOAD {
            args.push("--byoh-installer".to_owned());
        }
        if around.instances > 1 {
            args.push("--leader-elect".to_owned());
            args.push(format!("--leader-election-namespace={LEASE_NAMESPACE}"));
            args.push(format!("--pod-uid=instance-{instance}"));
            // Three times the default, so that fewer renewals have to be played.
            args.push("--leader-elect-retry-period=3s".to_owned());
        }
        let args = Args::parse_from(args);
        let metrics = Arc::new(Metrics::new().unwrap_or_else(|e| panic!("{e}")));
        let (started, head) = oneshot::channel();
        let head = forward(head, (instance, around.heads.clone()));
        let borders = Borders {
            clients: Clients {
                watch: around.api.client_of(&life),
                request: around.api.client_of(&life),
                server: "https://simulated.example".to_owned(),
            },
            gate: Arc::new(SimGate {
                director: around.director.clone(),
                life: life.clone(),
            }),
            vsphere: vsphere::Options {
                transport: Some(Arc::new(Wire {
                    vcenter: around.vcenter.clone(),
                    life: life.clone(),
                })),
                ..vsphere::Options::default()
            },
            iso_source: Arc::new(Images {
                server: around.images.clone(),
                hold: around.hold.clone(),
                life: life.clone(),
            }),
            hosted_nodes: Arc::new(Reader {
                hosted: around.hosted.clone(),
                life: life.clone(),
            }),
            clock: Arc::new(SimClock::new(&around.director)),
            metrics,
            started: Some(started),
        };
        let (stop, stopped) = oneshot::channel();
        let director = around.director.clone();
        director.line(|| format!("[{number}] process starts"));
        let mine = life.clone();
        let task = tokio::spawn(async move {
            let ended = run::between(args, borders, async {
                let _ = stopped.await;
            })
            .await;
            if let Err(e) = ended {
                if e.is::<Lost>() {
                    director.line(|| format!("[{number}] {e:#}"));
                } else {
                    let gave_up = format!("the process gave up: {e:#}");
                    director.violated(Oracle::ProcessKeepsRunning.broken(gave_up));
                }
                director.crash(&mine);
            }
        });
        Self {
            life,
            task,
            stop: Some(stop),
            head: Some(head),
            supervisor: None,
        }
    }

    /// The supervisor of the process.
    pub async fn supervisor(&mut self) -> Option<&ActorRef<SupervisorMsg>> {
        if let Some(head) = self.head.take() {
            self.supervisor = head.await.ok();
        }
        self.supervisor.as_ref()
    }

    /// Ends the process at once.
    pub async fn kill(self) {
        self.life.kill();
        self.task.abort();
        let _ = self.task.await;
    }

    /// Ends the process in order, as SIGTERM does.
    pub async fn terminate(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = self.task.await;
        self.life.kill();
    }
}

/// Keeps one process of that instance running and carries out the director's orders, until this is dropped.
pub async fn kubelet(
    around: Surroundings,
    instance: usize,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut process = Process::start(&around, instance);
    while let Some(order) = orders.recv().await {
        let life = process.life.clone();
        match order {
            Order::Around(.., life) if hub(life) != hub(process.life.number) => continue,
            // With one instance, the next process meets the fault that the last one caused. With two, the other
            // instance ignores it.
            Order::Around(.., life) if around.instances > 1 && life != process.life.number => {
                continue;
            }
            Order::Crash => {
                // The order may be for a former process, or was carried out already.
                if !process.life.is_dead() {
                    continue;
                }
                process.kill().await;
            }
            Order::Around(Fault::ProcessTerminated, ..) => process.terminate().await,
            Order::Around(fault @ (Fault::ProcessKilled | Fault::ProcessKilledWatchesLag), ..) => {
                // By then the request of the effect has left, or its answer has come.
                tokio::time::sleep(MOMENT).await;
                around.director.crash(&process.life);
                process.kill().await;
                if fault == Fault::ProcessKilledWatchesLag {
                    around.director.lag(fault.lasts());
                }
            }
            Order::Around(fault, key, _) => {
                around::happen(&around, &mut process, fault, &key).await;
                continue;
            }
        }
        around.director.forget_notes(&life);
        tokio::time::sleep(RESTART).await;
        process = Process::start(&around, instance);
    }
}
