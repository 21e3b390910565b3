use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;

use super::{
    screen::{Key, View, draw, press, show},
    *,
};
use crate::testing::World;

fn overview(world: &World) -> Overview {
    let now = "2026-01-01T00:10:00Z".parse().expect("a time");
    rows::overview(&world.caches(), None, now)
}

fn bound(world: &mut World) {
    let entry = json!({"event": "Bound", "attempt": 1, "at": "2026-01-01T00:03:00.000000Z"});
    let timeline = world.child["status"]["timeline"]
        .as_array_mut()
        .expect("a timeline");
    timeline.push(entry);
}

/// A second VsphereAgent, which is not bound.
fn second(world: &World, failure: bool) -> serde_json::Value {
    let mut child = world.child.clone();
    child["metadata"]["name"] = json!("w-2");
    child["metadata"]["uid"] = json!("u-2");
    child["metadata"]["annotations"]["agent-forge.containeroo.ch/agent-machine-uid"] =
        json!("u-am-2");
    child["status"]["vm"]["phase"] = json!("Provisioning");
    child["status"]["timeline"] =
        json!([{"event": "Demanded", "attempt": 1, "at": "2026-01-01T00:08:00.000000Z"}]);
    child["status"]["waitingOn"] = json!([{"subject": "w-2", "reason": "ISOUploading"}]);
    if failure {
        child["status"]["lastFailure"] = json!({"class": "NoGuest", "count": 2});
    }
    child
}

#[test]
fn machines_have_phase_age_expected_time_and_last_failure() {
    let mut world = World::serving();
    bound(&mut world);
    world.child = json!([world.child, second(&world, true)]);
    let shown = overview(&world);
    let cells: Vec<_> = shown.machines.iter().map(machine_cells).collect();
    // What is not finished comes first.
    assert_eq!(
        cells[0],
        [
            "w-2",
            "demo/workers",
            "Provisioning",
            "2m",
            "Demanded 2m",
            "in 60s",
            "ISOUploading",
            "NoGuest x2"
        ]
    );
    assert_eq!(
        cells[1],
        [
            "w-1",
            "demo/workers",
            "Bound",
            "10m",
            "Bound 7m",
            "-",
            "-",
            "-"
        ]
    );
    let pool = pool_cells(&shown.pools[0]);
    assert_eq!(
        pool,
        ["demo/workers", "?", "1 Bound, 1 Provisioning", "3m", "0"]
    );
    assert_eq!(shown.verdict(), Verdict::Findings);
    let json = serde_json::to_value(&shown).expect("JSON");
    assert_eq!(json["machines"][0]["expectedSeconds"], json!(60));
    // A host in the buffer waits as long as it likes.
    let metadata = &mut world.child[1]["metadata"];
    metadata["labels"] = json!({"agent-forge.containeroo.ch/created-for": "buffer"});
    metadata["annotations"] = json!({});
    assert_eq!(overview(&world).machines[0].expected_seconds, None);
}

#[test]
fn an_agent_machine_without_a_record_waits_and_what_is_much_too_late_is_counted() {
    let shown = overview(&World::waiting());
    let cells = machine_cells(&shown.machines[0]);
    assert_eq!(cells[..3], ["w-1", "demo/workers", "Waiting"]);
    assert_eq!(cells[6], "NoSuitableAgents");
    assert_eq!(shown.verdict(), Verdict::Nothing);
    // The pool has decided why it gets none.
    let mut waits = World::waiting();
    waits.pool["status"]["waitingOn"] =
        json!([{"subject": "AgentMachine/demo-demo/w-1", "reason": "CreateCapReached"}]);
    assert_eq!(
        machine_cells(&overview(&waits).machines[0])[6],
        "CreateCapReached"
    );
    let mut world = World::serving();
    bound(&mut world);
    let mut late = second(&world, false);
    late["status"]["timeline"][0]["at"] = json!("2026-01-01T00:03:30.000000Z");
    world.child = json!([world.child, late]);
    let shown = overview(&world);
    assert_eq!(shown.pools[0].late, 1);
    assert!(shown.text().contains("3m late"), "{}", shown.text());
}

#[test]
fn the_table_has_the_machines_of_the_page_and_what_is_finished_comes_last() {
    let mut world = World::serving();
    let mut gone = second(&world, false);
    gone["spec"]["poolRef"]["name"] = json!("gone");
    gone["status"]["vm"] = json!({"name": "w-2", "phase": "Provisioning"});
    let own = std::mem::take(&mut world.child);
    world.child = gone;
    let shown = overview(&world);
    let cells: Vec<_> = shown.machines.iter().map(machine_cells).collect();
    assert_eq!(cells[0][..3], ["w-2", "demo/gone", "Provisioning"]);
    assert_eq!(cells[0][6], "PoolNotFound");
    assert_eq!(cells[1][..3], ["w-1", "demo/workers", "Foreign"]);
    assert_eq!(shown.pools[0].ready, "PoolNotFound");
    // The reason that a person has to act on comes first.
    world.child = own;
    world.child["status"]["waitingOn"] = json!([
        {"subject": "w-1", "reason": "ISOUploading"}, {"subject": "w-1", "reason": "InvalidSpec"},
    ]);
    assert_eq!(
        machine_cells(&overview(&world).machines[0])[6],
        "InvalidSpec"
    );
}

#[test]
fn the_screen_shows_both_tables_scrolls_and_tells_trouble() {
    let mut world = World::serving();
    world.child = json!([world.child, second(&world, false)]);
    let mut view = View {
        shown: overview(&world),
        trouble: None,
        first: 0,
    };
    let drawn = |view: &View| {
        let mut terminal = Terminal::new(TestBackend::new(160, 16)).expect("a terminal");
        terminal.draw(|frame| draw(frame, view)).expect("drawn");
        format!("{}", terminal.backend())
    };
    let screen = drawn(&view);
    for said in ["Pools", "Machines (2)", "w-1", "w-2", "q: end"] {
        assert!(screen.contains(said), "{said}: {screen}");
    }
    assert!(press(&mut view, Key::Down) && press(&mut view, Key::Down));
    assert_eq!(view.first, 1);
    let screen = drawn(&view);
    assert!(
        screen.contains("w-1") && !screen.contains("w-2 "),
        "{screen}"
    );
    assert!(press(&mut view, Key::Up));
    view.trouble = Some("no answer".to_owned());
    assert!(drawn(&view).contains("not up to date: no answer"));
    assert!(!press(&mut view, Key::End));
}

/// A reading that never ends delays neither a key nor a signal.
#[tokio::test(start_paused = true)]
async fn keys_and_signals_are_heard_while_a_slow_cluster_is_read() {
    let first = overview(&World::serving());
    for by_key in [true, false] {
        let mut terminal = Terminal::new(TestBackend::new(160, 16)).expect("a terminal");
        let view = View {
            shown: first.clone(),
            trouble: None,
            first: 0,
        };
        let (asked, mut was_asked) = tokio::sync::mpsc::channel(1);
        let (tell, mut keys) = tokio::sync::mpsc::channel(1);
        let (signal, heard) = tokio::sync::oneshot::channel::<()>();
        let read = async || {
            asked.send(()).await.expect("heard");
            std::future::pending().await
        };
        let stop = async {
            let _ = heard.await;
        };
        let every = Duration::from_secs(5);
        let table = show(&mut terminal, view, every, (read, &mut keys, stop));
        let user = async {
            was_asked.recv().await.expect("it is read");
            if by_key {
                tell.send(Ok(Key::End)).await.expect("heard");
                let () = std::future::pending().await;
            }
            signal.send(()).expect("heard");
            let () = std::future::pending().await;
        };
        let limit = tokio::time::timeout(Duration::from_secs(60), async {
            tokio::select! {
                ended = table => ended.expect("an end"),
                () = user => {}
            }
        });
        limit.await.unwrap_or_else(|_| panic!("by key: {by_key}"));
    }
}
