//! The URL with which a pool asks after a download that failed.

use agent_forge_crds::{conditions::Reason, external::infra_env::IsoDownloadUrl};

use super::*;
use crate::{testing::infra_env, vm::testing::hub::Hub};

const OLD: &str = "https://images.example/byid/1/x.iso";
const NEW: &str = "https://images.example/byid/2/x.iso";

fn failed(reason: Reason) -> IsoState {
    IsoState::Failed(ReconcileError::blocked(ErrorSource::Iso, reason, "as told"))
}

/// The API server has another URL than the cache shows.
fn rotate(hub: &Hub) {
    let mut env = infra_env();
    env.metadata.resource_version = Some("77".to_owned());
    let status = env.status.as_mut().expect("a status");
    status.iso_download_url = Some(IsoDownloadUrl::new(NEW));
    hub.with(|o| o.unseen_infra_env = Some(env));
}

/// Runs a pass a second after the one before. Returns the URL that it asked with.
async fn asked(bench: &Bench, isos: &Arc<Told>, memory: &mut Memory) -> String {
    bench.turn(Duration::from_secs(1));
    let key = ObjectKey::new(NAMESPACE, POOL);
    let before = std::mem::take(memory);
    (*memory, _) = run(bench.context.clone(), isos.clone(), key, before).await;
    let urls = isos.urls.lock().expect("lock");
    urls.last().expect("it asked").clone()
}

#[tokio::test]
async fn a_url_that_the_watch_does_not_show_is_found_after_a_download_that_failed() {
    let bench = Bench::new();
    let isos = Told::new(failed(Reason::IsoDownloadFailed));
    let mut memory = Memory::default();
    rotate(&bench.hub);
    let reads = |bench: &Bench| bench.hub.with(|o| o.infra_env_reads);
    assert_eq!(asked(&bench, &isos, &mut memory).await, OLD);
    assert_eq!(reads(&bench), 0, "the first try goes by the watch");
    assert_eq!(asked(&bench, &isos, &mut memory).await, NEW);
    // The ISO is fetched. The watch is still late, and the pool keeps the newer URL.
    *isos.state.lock().expect("lock") = IsoState::Fetching {
        done: 1,
        total: Some(9),
        rate: None,
    };
    for _ in 0..60 {
        assert_eq!(asked(&bench, &isos, &mut memory).await, NEW);
    }
    assert_eq!(reads(&bench), 1, "nothing fails");
    // The API server was restored from a backup, where the URL is the old one.
    bench.hub.with(|o| o.history += 1);
    assert_eq!(asked(&bench, &isos, &mut memory).await, OLD);
}

#[tokio::test]
async fn the_api_server_is_asked_every_ten_seconds_and_only_where_the_source_refuses() {
    for (state, most) in [
        (failed(Reason::IsoDownloadFailed), 6),
        (failed(Reason::IsoUploadIncomplete), 0),
    ] {
        let bench = Bench::new();
        let isos = Told::new(state);
        let mut memory = Memory::default();
        for _ in 0..60 {
            let url = asked(&bench, &isos, &mut memory).await;
            assert_eq!(url, OLD, "the API server knows no other");
        }
        assert_eq!(bench.hub.with(|o| o.infra_env_reads), most);
    }
}
