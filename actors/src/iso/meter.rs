//! Measures a transfer while its bytes pass: their number, their digest, whether they are an ISO 9660 image, and when
//! anything last moved.
//!
//! Guarantees
//! - The meter keeps at most two chunks.
//! - The stream ends with an error unless exactly the declared length passed. It also ends with an error if the bytes
//!   are no ISO 9660 image, or fewer than its descriptor declares. The reason is kept here as a [`ReconcileError`],
//!   because an uploader may report it in other words.
//! - Texts of the source's transport errors are not repeated: they may contain the URL, which is a credential.
//!
//! Facts: an ISO 9660 image has its first volume descriptor in sector 16 (2048 bytes each): one type byte, then `CD001`
//! (ECMA-119, 8.1). Type 1 is the primary one. It gives the number and the length of the logical blocks (8.4.8,
//! 8.4.12). Data after the volume is usual. Less data than the volume means that the image was cut off.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_crds::conditions::Reason;
use bytes::Bytes;
use futures::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    domain::failure::{ErrorSource, ReconcileError},
    ports::{iso_source::IsoError, vcenter::ByteStream},
};

/// A flight in which nothing moves for that long is ended. If its source may be silent for longer
/// (`--iso-stall-timeout`), the flight waits longer. The source then fails by its own limit first, and the download may
/// continue where it stopped.
pub(super) const STALL: Duration = Duration::from_secs(60);
/// After the last byte a datastore may be busy for longer: it flushes, is searched, moves a file. This is half of the
/// time in which all must work again after a lost reply, so that a second try fits in.
pub(super) const FLUSH: Duration = Duration::from_secs(300);
/// Least time between two reports of progress.
pub(super) const REPORT: Duration = Duration::from_millis(250);

const MAGIC: &[u8; 5] = b"CD001";
const DESCRIPTOR: u64 = 16 * 2048;
const MAGIC_AT: u64 = DESCRIPTOR + 1;
/// The shortest image whose magic bytes can be checked.
pub(super) const SHORTEST: u64 = MAGIC_AT + MAGIC.len() as u64;
/// Type of the primary volume descriptor.
const PRIMARY: u8 = 1;
/// Offsets of the number of logical blocks and of their length. Little-endian first.
const BLOCKS: usize = 80;
const BLOCK_SIZE: usize = 128;
/// How many bytes of the descriptor are checked.
const SEEN: usize = BLOCK_SIZE + 2;
const SEEN_TO: u64 = DESCRIPTOR + SEEN as u64;

/// Reports bytes so far and in total.
pub(super) type Tell = Box<dyn Fn(u64, u64) + Send + Sync>;

/// The shared notes of one transfer.
pub(super) struct Meter {
    tell: Tell,
    stall: Duration,
    notes: Mutex<Notes>,
}

/// A body that passes, and the chunk that was not passed on yet.
type Passing = (Arc<Meter>, ByteStream, Option<Bytes>);

struct Notes {
    moved: Instant,
    reported: Option<Instant>,
    waits_for_source: bool,
    length: u64,
    done: u64,
    hash: Sha256,
    /// The start of the first volume descriptor.
    window: [u8; SEEN],
    verdict: Option<Result<String, ReconcileError>>,
}

impl Meter {
    /// `patience`: how long the source may be silent before it fails by itself.
    pub(super) fn new(tell: Tell, patience: Duration) -> Arc<Self> {
        let notes = Notes {
            moved: Instant::now(),
            reported: None,
            waits_for_source: false,
            length: 0,
            done: 0,
            hash: Sha256::new(),
            window: [0; SEEN],
            verdict: None,
        };
        Arc::new(Self {
            tell,
            stall: STALL.max(3 * patience),
            notes: Mutex::new(notes),
        })
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        // A panic while noting leaves at most a wrong count, which the size checks find.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something moved: the stall deadline starts again.
    pub(super) fn moved(&self) {
        self.notes().moved = Instant::now();
    }

    /// SHA-256 of the whole image, or why there is none. `None` while bytes are still to come.
    pub(super) fn verdict(&self) -> Option<Result<String, ReconcileError>> {
        self.notes().verdict.clone()
    }

    /// Bytes that passed.
    pub(super) fn done(&self) -> u64 {
        self.notes().done
    }

    /// Returns once nothing moved for too long, with the failure to report.
    pub(super) async fn stalled(&self) -> ReconcileError {
        loop {
            let (bound, deadline) = {
                let notes = self.notes();
                let whole = matches!(notes.verdict, Some(Ok(_)));
                let bound = if whole { FLUSH } else { self.stall };
                (bound, notes.moved + bound)
            };
            if Instant::now() < deadline {
                tokio::time::sleep_until(deadline).await;
                continue;
            }
            let notes = self.notes();
            let (seconds, done, length) = (bound.as_secs(), notes.done, notes.length);
            return if notes.waits_for_source {
                ReconcileError::transient(
                    ErrorSource::Iso,
                    Reason::IsoDownloadStalled,
                    format!(
                        "the ISO's source sent nothing for {seconds} s after {done} of {length} bytes"
                    ),
                )
            } else {
                ReconcileError::transient(
                    ErrorSource::Vsphere,
                    Reason::IsoUploadStalled,
                    format!(
                        "vCenter took nothing of the ISO for {seconds} s after {done} of {length} bytes"
                    ),
                )
            };
        }
    }

    /// The body, measured by this meter. `length`: the size that the source declared.
    pub(super) fn watch(self: &Arc<Self>, body: ByteStream, length: u64) -> ByteStream {
        {
            let mut notes = self.notes();
            notes.length = length;
            notes.moved = Instant::now();
            notes.reported = Some(notes.moved);
        }
        (self.tell)(0, length);
        let state = Some((self.clone(), body, None));
        stream::unfold(state, async |state| {
            let (meter, body, last) = state?;
            Self::next(meter, body, last).await
        })
        .boxed()
    }

    /// The next chunk to pass on. It is one behind the source: the last chunk is passed on only when the source has no
    /// more.
    async fn next(
        meter: Arc<Self>,
        mut body: ByteStream,
        mut last: Option<Bytes>,
    ) -> Option<(io::Result<Bytes>, Option<Passing>)> {
        loop {
            meter.notes().waits_for_source = true;
            let next = body.next().await;
            meter.notes().waits_for_source = false;
            let failed = match next {
                Some(Ok(chunk)) => match meter.pass(&chunk) {
                    Ok(()) => match last.replace(chunk) {
                        Some(ready) => return Some((Ok(ready), Some((meter, body, last)))),
                        None => continue,
                    },
                    Err(trouble) => trouble,
                },
                Some(Err(e)) => broken(&e, meter.done()),
                None => match meter.end() {
                    Ok(()) => return last.map(|last| (Ok(last), None)),
                    Err(trouble) => trouble,
                },
            };
            return Some((Err(meter.fail(failed)), None));
        }
    }

    fn pass(&self, chunk: &Bytes) -> Result<(), ReconcileError> {
        let mut notes = self.notes();
        notes.take(chunk)?;
        let (now, done, length) = (Instant::now(), notes.done, notes.length);
        notes.moved = now;
        let report = notes.reported.is_none_or(|at| now - at >= REPORT);
        if report {
            notes.reported = Some(now);
        }
        drop(notes);
        if report {
            (self.tell)(done, length);
        }
        Ok(())
    }

    fn end(&self) -> Result<(), ReconcileError> {
        let mut notes = self.notes();
        if notes.done != notes.length {
            return Err(wrong_length(format!(
                "the ISO's source declared {} bytes and ended after {}",
                notes.length, notes.done
            )));
        }
        let digest = std::mem::take(&mut notes.hash).finalize();
        notes.verdict = Some(Ok(hex::encode(digest)));
        Ok(())
    }

    fn fail(&self, trouble: ReconcileError) -> io::Error {
        let text = trouble.message.clone();
        self.notes().verdict = Some(Err(trouble));
        io::Error::other(text)
    }
}

impl Notes {
    fn take(&mut self, chunk: &Bytes) -> Result<(), ReconcileError> {
        let from = self.done;
        let to = from + chunk.len() as u64;
        if to > self.length {
            return Err(wrong_length(format!(
                "the ISO's source declared {} bytes and sent more",
                self.length
            )));
        }
        let (first, last) = (from.max(DESCRIPTOR), to.min(SEEN_TO));
        for at in first..last {
            // Both differences are below the chunk's and the window's length.
            self.window[(at - DESCRIPTOR) as usize] = chunk[(at - from) as usize];
        }
        if from < SHORTEST && to >= SHORTEST && !self.window[1..].starts_with(MAGIC) {
            return Err(not_an_iso(
                "the bytes are not an ISO 9660 image (no `CD001` at offset 32769)",
            ));
        }
        if from < SEEN_TO && to >= SEEN_TO {
            self.whole()?;
        }
        self.hash.update(chunk);
        self.done = to;
        Ok(())
    }

    /// Whether the declared length holds the volume.
    fn whole(&self) -> Result<(), ReconcileError> {
        match volume(&self.window) {
            Some(volume) if volume > self.length => Err(wrong_length(format!(
                "the image is {} bytes, its volume descriptor says {volume}: cut off",
                self.length
            ))),
            _ => Ok(()),
        }
    }
}

/// Bytes of the volume by its descriptor. `None` if the descriptor does not give them.
fn volume(descriptor: &[u8; SEEN]) -> Option<u64> {
    let blocks = descriptor[BLOCKS..].first_chunk().copied();
    let size = descriptor[BLOCK_SIZE..].first_chunk().copied();
    let bytes = u64::from(u32::from_le_bytes(blocks?)) * u64::from(u16::from_le_bytes(size?));
    (descriptor[0] == PRIMARY && bytes > 0).then_some(bytes)
}

/// The source's bytes are no ISO image.
pub(super) fn not_an_iso(what: &str) -> ReconcileError {
    ReconcileError::blocked(
        ErrorSource::Iso,
        Reason::IsoWrongMagic,
        format!("{what}; check what the InfraEnv's ISO URL serves"),
    )
}

fn wrong_length(what: String) -> ReconcileError {
    ReconcileError::transient(ErrorSource::Iso, Reason::IsoLengthMismatch, what)
}

fn broken(e: &io::Error, done: u64) -> ReconcileError {
    match e
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<IsoError>())
    {
        Some(known) => known.clone().into(),
        None => ReconcileError::transient(
            ErrorSource::Iso,
            Reason::IsoDownloadFailed,
            format!(
                "the ISO's source broke off after {done} bytes ({:?})",
                e.kind()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = 1000;

    /// Passes `chunks` chunks of an image, one each `pace`. Returns what was reported.
    async fn told(chunks: u64, pace: Duration) -> Vec<(u64, u64)> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let to = told.clone();
        let tell = move |done, total| to.lock().expect("lock").push((done, total));
        let meter = Meter::new(Box::new(tell), Duration::ZERO);
        let body = stream::iter(0..chunks).then(move |i| async move {
            tokio::time::sleep(pace).await;
            let mut chunk = vec![0; CHUNK];
            if i == 32 {
                chunk[769..774].copy_from_slice(MAGIC);
            }
            Ok(Bytes::from(chunk))
        });
        let passed = meter
            .watch(body.boxed(), chunks * CHUNK as u64)
            .map(|c| c.expect("sound").len());
        let passed = passed.fold(0, |sum, n| async move { sum + n }).await;
        assert_eq!(passed as u64, chunks * CHUNK as u64);
        assert!(matches!(meter.verdict(), Some(Ok(digest)) if digest.len() == 64));
        told.lock().expect("lock").clone()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_told_four_times_a_second_at_most() {
        let told = told(1000, Duration::from_millis(10)).await;
        assert!(
            (30..=41).contains(&told.len()),
            "{} reports in 10 s",
            told.len()
        );
        assert_eq!(told[0], (0, 1_000_000));
        assert!(told.is_sorted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_source_is_told_of_once() {
        assert_eq!(told(1000, Duration::ZERO).await.len(), 1);
    }

    /// The verdict on an image of `length` bytes, in chunks of `chunk` bytes, whose descriptor gives these values for
    /// its volume.
    async fn verdict(
        length: u64,
        chunk: usize,
        (kind, blocks, block_size): (u8, u32, u16),
    ) -> Result<String, ReconcileError> {
        let mut image = vec![0; usize::try_from(length).expect("small")];
        let mut put = |at: usize, bytes: &[u8]| {
            let at = 32768 + at;
            image[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &[kind]);
        put(1, MAGIC);
        put(80, &blocks.to_le_bytes());
        put(84, &blocks.to_be_bytes());
        put(128, &block_size.to_le_bytes());
        put(130, &block_size.to_be_bytes());
        let meter = Meter::new(Box::new(|_, _| {}), Duration::ZERO);
        let chunks: Vec<_> = image.chunks(chunk).map(Bytes::copy_from_slice).collect();
        let body = stream::iter(chunks.into_iter().map(Ok)).boxed();
        let _passed: Vec<_> = meter.watch(body, length).collect().await;
        meter.verdict().expect("an end")
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_is_shorter_than_its_volume_is_cut_off() {
        let length = 20 * 2048;
        for (what, length, descriptor, whole) in [
            ("exactly", length, (1, 20, 2048), true),
            ("more behind it", length + 1, (1, 20, 2048), true),
            ("one byte less", length - 1, (1, 20, 2048), false),
            ("a block less", length, (1, 21, 2048), false),
            ("other blocks", length, (1, 80, 512), true),
            ("other blocks, one less", length, (1, 81, 512), false),
            (
                "as large as can be said",
                length,
                (1, u32::MAX, u16::MAX),
                false,
            ),
            ("no blocks", length, (1, 0, 2048), true),
            ("blocks of no length", length, (1, 21, 0), true),
            ("another descriptor", length, (0, 21, 2048), true),
        ] {
            for chunk in [7, 4096, 1 << 20] {
                let verdict = verdict(length, chunk, descriptor).await;
                assert_eq!(verdict.is_ok(), whole, "{what}, by {chunk}: {verdict:?}");
            }
        }
        let cut = verdict(length, 1000, (1, 21, 2048)).await.expect_err("cut");
        assert_eq!(cut.reason, Reason::IsoLengthMismatch);
        let said = "the image is 40960 bytes, its volume descriptor says 43008: cut off";
        assert_eq!(cut.message, said);
    }

    #[tokio::test(start_paused = true)]
    async fn a_typed_failure_of_the_source_keeps_its_reason() {
        let known = IsoError {
            reason: "ISOTooSlow".into(),
            message: "too slow".to_owned(),
            class: crate::domain::failure::Class::Transient,
        };
        let meter = Meter::new(Box::new(|_, _| {}), Duration::ZERO);
        let body = stream::iter([Err(io::Error::other(known.clone()))]).boxed();
        let passed: Vec<_> = meter.watch(body, SHORTEST).collect().await;
        assert!(matches!(passed.as_slice(), [Err(_)]));
        assert_eq!(meter.verdict(), Some(Err(known.into())));
    }
}
