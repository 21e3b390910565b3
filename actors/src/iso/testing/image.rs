//! An image server in memory: it serves generated ISO 9660 bytes. The test can set faults: wrong data, cuts and stalls.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use sha2::{Digest, Sha256};

use crate::{
    domain::failure::Class,
    ports::iso_source::{Freshness, IsoDownload, IsoError, IsoRequest, IsoSource, Validators},
};

/// What goes wrong in one download.
#[derive(Clone, Debug)]
pub(crate) enum SourceFault {
    /// The URL cannot be opened. The message holds the URL, as a careless adapter's would.
    Refuse,
    /// The connection breaks after that many bytes. The text of the error holds the URL.
    Break(u64),
    /// The body ends early without an error.
    EndAt(u64),
    /// More bytes than declared.
    Longer(u64),
    /// Declares that many bytes (and sends them).
    Declare(u64),
    /// Not an ISO 9660 image.
    WrongMagic,
    /// Sends nothing more after that many bytes.
    Stall(u64),
    /// Sends nothing for that long after that many bytes, then the rest.
    Pause(u64, Duration),
    /// Panics when opened.
    Panic,
}

/// The server.
pub(crate) struct ImageServer {
    /// Size of the image.
    pub(crate) length: AtomicU64,
    /// Differs between versions of the image.
    pub(crate) version: AtomicU64,
    /// Virtual time that one chunk takes.
    pub(crate) pace: Mutex<Duration>,
    /// One per download, in order. Without one the download is sound.
    pub(crate) faults: Mutex<VecDeque<SourceFault>>,
    /// What the server reports of its bytes. By default it reports nothing.
    pub(crate) validators: Mutex<Validators>,
    /// It reports something else each time.
    pub(crate) validators_move: AtomicBool,
    /// How long it may be silent by its own limit.
    pub(crate) patience: Mutex<Duration>,
    /// Downloads opened.
    pub(crate) opened: AtomicUsize,
    /// How often it was asked whether something changed.
    pub(crate) questions: AtomicUsize,
    /// Bytes of chunks that live now, and the most that ever lived.
    pub(crate) alive: Arc<Alive>,
    /// Bodies that live now.
    pub(crate) bodies: Arc<AtomicUsize>,
    /// The most bodies that lived at a time.
    pub(crate) most_bodies: AtomicUsize,
}

/// Size of a chunk, such that the magic bytes are spread over two.
pub(crate) const CHUNK: u64 = 10_924;

#[derive(Default)]
pub(crate) struct Alive {
    now: AtomicU64,
    most: AtomicU64,
}

impl Alive {
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }
}

/// Bytes that know when they are dropped.
struct Tracked(Vec<u8>, Arc<Alive>);

impl Tracked {
    fn bytes(data: Vec<u8>, alive: &Arc<Alive>) -> Bytes {
        let now = alive.now.fetch_add(data.len() as u64, Ordering::SeqCst) + data.len() as u64;
        alive.most.fetch_max(now, Ordering::SeqCst);
        Bytes::from_owner(Self(data, alive.clone()))
    }
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.1.now.fetch_sub(self.0.len() as u64, Ordering::SeqCst);
    }
}

struct Body(Arc<AtomicUsize>);

impl Drop for Body {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ImageServer {
    pub(crate) fn new(length: u64) -> Self {
        Self {
            length: AtomicU64::new(length),
            version: AtomicU64::new(1),
            pace: Mutex::new(Duration::ZERO),
            faults: Mutex::default(),
            validators: Mutex::default(),
            validators_move: AtomicBool::new(false),
            patience: Mutex::new(Duration::from_secs(30)),
            questions: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            alive: Arc::default(),
            bodies: Arc::default(),
            most_bodies: AtomicUsize::new(0),
        }
    }

    /// Adds a fault for the next download without one.
    pub(crate) fn fail(&self, fault: SourceFault) {
        self.faults.lock().expect("lock").push_back(fault);
    }

    fn said(&self) -> Validators {
        if self.validators_move.load(Ordering::SeqCst) {
            let mut count = self.validators.lock().expect("lock");
            let next = format!("{}x", count.etag.clone().unwrap_or_default());
            count.etag = Some(next);
        }
        self.validators.lock().expect("lock").clone()
    }

    /// Digest of the image as it would be served soundly now.
    pub(crate) fn sha256(&self) -> String {
        let (length, version) = (
            self.length.load(Ordering::SeqCst),
            self.version.load(Ordering::SeqCst),
        );
        let mut hash = Sha256::new();
        for at in (0..length).step_by(CHUNK as usize) {
            let len = CHUNK.min(length - at);
            hash.update(piece((length, version), at, len, b"CD001"));
        }
        hex::encode(hash.finalize())
    }
}

/// Bytes `at..at + len` of the image of that length and version. Its volume ends with its last whole block.
fn piece((length, version): (u64, u64), at: u64, len: u64, magic: &[u8; 5]) -> Vec<u8> {
    let blocks = u32::try_from(length / 2048)
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    let byte = |i: u64| match i.checked_sub(32768) {
        Some(0) => 1,
        Some(m @ 1..6) => magic[m as usize - 1],
        Some(m @ 80..84) => blocks[m as usize - 80],
        Some(m @ 128..130) => 2048_u16.to_le_bytes()[m as usize - 128],
        _ => (i.wrapping_mul(31).wrapping_add(version) >> 3) as u8,
    };
    (at..at + len).map(byte).collect()
}

#[async_trait]
impl IsoSource for ImageServer {
    async fn open(&self, request: &IsoRequest) -> Result<IsoDownload, IsoError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let fault = self.faults.lock().expect("lock").pop_front();
        let (length, version) = (
            self.length.load(Ordering::SeqCst),
            self.version.load(Ordering::SeqCst),
        );
        let image = (length, version);
        let text = format!("cannot read {}", request.url.expose());
        let (mut declared, mut sent, mut magic, mut broken, mut stalls) =
            (length, length, b"CD001", false, false);
        let mut pauses = None;
        match fault {
            None => {}
            Some(SourceFault::Refuse) => {
                return Err(IsoError {
                    reason: "ISONotFound".into(),
                    message: text,
                    class: Class::Transient,
                });
            }
            Some(SourceFault::Break(at)) => (sent, broken) = (at, true),
            Some(SourceFault::EndAt(at)) => sent = at,
            Some(SourceFault::Longer(by)) => sent += by,
            Some(SourceFault::Declare(n)) => (declared, sent) = (n, n),
            Some(SourceFault::WrongMagic) => magic = b"HTML!",
            Some(SourceFault::Stall(at)) => (sent, stalls) = (at, true),
            Some(SourceFault::Pause(at, time)) => pauses = Some((at, time)),
            Some(SourceFault::Panic) => panic!("as told"),
        }
        let bodies = self.bodies.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_bodies.fetch_max(bodies, Ordering::SeqCst);
        let (guard, pace, alive) = (
            Body(self.bodies.clone()),
            *self.pace.lock().expect("lock"),
            self.alive.clone(),
        );
        let chunks = stream::unfold((guard, 0_u64, pauses), move |(guard, at, pauses)| {
            let (alive, text) = (alive.clone(), text.clone());
            async move {
                if let Some((_, time)) = pauses.filter(|(from, _)| at >= *from) {
                    tokio::time::sleep(time).await;
                    let len = CHUNK.min(sent - at);
                    let piece = Tracked::bytes(piece(image, at, len, magic), &alive);
                    return Some((Ok(piece), (guard, at + len, None)));
                }
                if at >= sent {
                    if stalls {
                        futures::future::pending::<()>().await;
                    }
                    return (broken && at != u64::MAX).then(|| {
                        (
                            Err(io::Error::new(io::ErrorKind::ConnectionReset, text)),
                            (guard, u64::MAX, None),
                        )
                    });
                }
                tokio::time::sleep(pace).await;
                let len = CHUNK.min(sent - at);
                Some((
                    Ok(Tracked::bytes(piece(image, at, len, magic), &alive)),
                    (guard, at + len, pauses),
                ))
            }
        });
        Ok(IsoDownload {
            length: declared,
            validators: self.said(),
            body: chunks.boxed(),
        })
    }
    fn patience(&self) -> Duration {
        *self.patience.lock().expect("lock")
    }
    async fn freshness(&self, _: &IsoRequest, had: &Validators) -> Result<Freshness, IsoError> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let now = self.said();
        Ok(if had.is_empty() || now.is_empty() {
            Freshness::Unknown
        } else if now == *had {
            Freshness::Same
        } else {
            Freshness::Changed
        })
    }
}
