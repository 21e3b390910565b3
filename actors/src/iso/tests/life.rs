//! The actor's own life: it answers while it works, reports at a limited rate, and ends its flights with itself.

use std::{sync::atomic::Ordering, time::Duration};

use agent_forge_crds::conditions::Reason;
use ractor::rpc::CallResult;

use crate::{
    domain::{failure::Class, names::DatastorePath},
    iso::{
        ensure,
        msg::{IsoMsg, IsoState, IsoWant},
        testing::{
            bench::{Bench, TOKEN, pool, want},
            image::{CHUNK, SourceFault},
        },
    },
    testing::told::{Fields, Told},
};

#[tokio::test(start_paused = true)]
async fn killed_mid_flight_it_takes_the_transfer_with_it() {
    let mut bench = Bench::new().await;
    bench.image.fail(SourceFault::Stall(3 * CHUNK));
    bench.ask(&want("a")).await;
    while bench.image.bodies.load(Ordering::SeqCst) == 0 {
        bench.woken(&pool("a")).await;
    }
    bench.kill().await;
    // Aborted tasks are dropped by the runtime at their next turn.
    bench
        .until("the download ends with its actor", |b| {
            b.image.bodies.load(Ordering::SeqCst) == 0
        })
        .await;
    assert_eq!(bench.image.alive.now(), 0);
    let trouble = ensure(&bench.cache(), want("a"))
        .await
        .expect_err("nobody is there");
    assert_eq!(
        (trouble.reason, trouble.class),
        (Reason::IsoCacheUnavailable, Class::Transient)
    );
    bench.restart().await;
    assert!(!bench.arrived(&want("a")).await.1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_ends_the_actor_and_its_flight() {
    let mut bench = Bench::new().await;
    bench.image.fail(SourceFault::Stall(CHUNK));
    bench.ask(&want("a")).await;
    bench.woken(&pool("a")).await;
    bench.actor.send_message(IsoMsg::Panic).expect("sent");
    bench
        .until("the download ends with its actor", |b| {
            b.image.bodies.load(Ordering::SeqCst) == 0
        })
        .await;
    assert!(ensure(&bench.cache(), want("a")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_but_not_all_the_time() {
    let mut bench = Bench::new().await;
    bench.image.length.store(256 * CHUNK, Ordering::SeqCst);
    *bench.image.pace.lock().expect("lock") = Duration::from_millis(20);
    let begin = tokio::time::Instant::now();
    bench.ask(&want("a")).await;
    let (mut wakes, mut last, mut seen) = (Vec::new(), 0, 0);
    loop {
        wakes.push(bench.woken(&pool("a")).await);
        match bench.ask(&want("a")).await {
            IsoState::Fetching { done, total, .. } => {
                assert!(
                    done >= last && total == Some(256 * CHUNK),
                    "{done} after {last} of {total:?}"
                );
                seen += u32::from(done > last);
                last = done;
            }
            IsoState::Ready { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    let took = begin.elapsed();
    assert!(seen >= 3, "{seen} steps in {took:?}");
    assert!(
        wakes.len() as u64 <= took.as_secs() + 2,
        "{} wakes in {took:?}",
        wakes.len()
    );
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_a_transfer_from_its_beginning_to_its_end() {
    let mut bench = Bench::new().await;
    *bench.image.pace.lock().expect("lock") = Duration::from_secs(2);
    let told = Told::default();
    let here = told.here();
    let (file, _) = bench.arrived(&want("a")).await;
    bench.image.fail(SourceFault::Refuse);
    let again = IsoWant {
        force_token: Some("1".to_owned()),
        ..want("a")
    };
    assert!(matches!(bench.settled(&again).await, IsoState::Failed(_)));
    drop(here);
    let lines = told.lines();
    let words: Vec<_> = lines.iter().filter_map(|l| l.get("message")).collect();
    let of_iso = words.iter().filter(|w| w.starts_with("ISO ")).copied();
    let mut order: Vec<_> = of_iso.collect();
    let progress: Vec<_> = lines
        .iter()
        .filter(|l| l.get("message") == Some("ISO transfer"))
        .collect();
    // 21 chunks, each after two seconds, and a line every ten.
    assert!((4..=5).contains(&progress.len()), "{words:?}");
    order.dedup();
    let wanted = [
        "ISO transfer begins",
        "ISO transfer",
        "ISO is on the datastore",
        "ISO transfer begins",
        "ISO flight failed",
    ];
    assert_eq!(order, wanted, "{words:?}");
    for flight in told.spans("iso.flight") {
        assert_eq!(flight.fields.get("uid"), Some("uid-of-a"));
        // A failed flight shows its reason in its trace.
        let failed = flight.said().contains(&"ISO flight failed");
        let status = flight.fields.get("otel.status_code");
        assert_eq!(status, failed.then_some("ERROR"));
        let why = flight.fields.get("error.type");
        assert_eq!(why, failed.then_some("ISONotFound"));
        assert_eq!(flight.said().contains(&"fault"), failed);
    }
    let begins = lines.iter().find(|l| l.get("message") == Some(wanted[0]));
    let begins = begins.expect("it begins");
    assert_eq!(begins.get("directory"), Some("[ds1] isos"));
    assert_eq!(begins.get("server"), Some("img:443"));
    for line in &progress {
        assert_eq!(line.get("object"), Some("ns/a"));
        assert_eq!(line.get("uid"), Some("uid-of-a"));
    }
    let number = |line: &Fields, field| {
        let text = line.get(field).unwrap_or_else(|| panic!("no {field}"));
        text.parse::<u64>().expect("a number")
    };
    let done: Vec<u64> = progress.iter().map(|l| number(l, "done")).collect();
    assert!(done.is_sorted_by(|a, b| a < b), "{done:?}");
    let last = progress.last().expect("progress");
    assert_eq!(number(last, "total"), file.size);
    let rate = number(last, "bytes_per_second");
    assert!((CHUNK / 3..=CHUNK).contains(&rate), "{rate} a second");
    let left = (file.size - number(last, "done")).div_ceil(rate);
    assert_eq!(number(last, "eta_seconds"), left);
    let end = lines.iter().find(|l| l.get("message") == Some(wanted[2]));
    assert_eq!(
        end.expect("it ends").get("file"),
        Some(file.path.to_string().as_str())
    );
    assert!(!format!("{lines:?}").contains(TOKEN));
}

#[tokio::test(start_paused = true)]
async fn it_describes_itself_while_it_works_without_the_url() {
    let mut bench = Bench::new().await;
    bench.image.fail(SourceFault::Stall(CHUNK));
    bench.ask(&want("a")).await;
    bench.woken(&pool("a")).await;
    let describe = async |bench: &Bench| match bench.actor.call(IsoMsg::Describe, None).await {
        Ok(CallResult::Success(about)) => about,
        _ => panic!("no description"),
    };
    let about = describe(&bench).await;
    assert_eq!(
        (about.kind.as_str(), about.key.as_str(), about.running),
        ("iso-cache", "vc/dc1/ds1", true)
    );
    assert_eq!(about.waiting_on[0].0, Reason::IsoFetching);
    assert!(!format!("{about:?}").contains(TOKEN));
    assert!(matches!(
        bench.settled(&want("a")).await,
        IsoState::Failed(_)
    ));
    let about = describe(&bench).await;
    assert_eq!(
        (about.failures, &about.waiting_on[0].0),
        (1, &Reason::IsoDownloadStalled)
    );
}

#[tokio::test(start_paused = true)]
async fn a_directory_of_another_datastore_is_refused() {
    let bench = Bench::new().await;
    let wrong = IsoWant {
        directory: DatastorePath::new("ds2", "isos").expect("path"),
        ..want("a")
    };
    let IsoState::Failed(trouble) = bench.ask(&wrong).await else {
        panic!("accepted")
    };
    assert_eq!(
        (trouble.reason, trouble.class),
        (Reason::InternalError, Class::Defect)
    );
    assert_eq!(bench.opened(), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_life_that_ended_amid_a_transfer_are_not_shown_for_ever() {
    let mut bench = Bench::new().await;
    let shown = |b: &Bench| *b.instruments.1.lock().expect("lock");
    bench.image.fail(SourceFault::Stall(3 * CHUNK));
    bench.ask(&want("a")).await;
    bench.until("bytes are shown", |b| shown(b).is_some()).await;
    bench.kill().await;
    bench.restart().await;
    assert_eq!(shown(&bench), None);
    bench.arrived(&want("a")).await;
    assert_eq!(shown(&bench), None);
}
