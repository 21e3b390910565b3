use super::*;

fn text(m: &Metrics) -> String {
    String::from_utf8(m.text().expect("text")).expect("utf-8")
}

#[test]
fn a_deleted_pools_series_disappear() {
    let m = Metrics::new().expect("families");
    let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
    let view = PoolView {
        waiting_on: BTreeMap::from([("ISONotReady".to_owned(), 2)]),
        phases: BTreeMap::from([("Bound".to_owned(), 1)]),
        buffer: BTreeMap::from([("ready".to_owned(), 1)]),
        buffer_classes: vec![(["large".to_owned(), "ready".to_owned()], 1)],
        foreign: vec![(["bare_metal", "true"], 1)],
        nodes: BTreeMap::from([("ours".to_owned(), 1)]),
        node_findings: BTreeMap::from([("VMWithoutNode".to_owned(), 1)]),
        conditions: vec![["Ready", "True", "Reconciled"].map(str::to_owned)],
        oldest_waiting: Some(jiff::Timestamp::UNIX_EPOCH),
        oldest_unready: Some(jiff::Timestamp::UNIX_EPOCH),
        oldest_deleting: Some(jiff::Timestamp::UNIX_EPOCH),
    };
    let gauges = PoolGauges {
        desired: 3,
        ..PoolGauges::default()
    };
    for pool in [&a, &b] {
        m.pool(pool, &gauges);
        m.pool_view(pool, &view);
        for (event, _) in MOMENTS {
            m.milestone(pool, event, 1.0);
        }
    }
    let shown = text(&m);
    let desired = r#"agent_forge_pool_capacity{namespace="ns",pool="a",state="desired",pool_namespace="ns"} 3"#;
    assert!(shown.contains(desired), "{shown}");
    let per_pool = catalog::ALL.iter().filter(|f| f.labels.contains(&"pool"));
    for family in per_pool {
        assert!(shown.contains(family.name), "{} is never set", family.name);
    }
    m.drop_pool(&a);
    let left = text(&m);
    assert!(
        !left.contains(r#"pool="a""#) && left.contains(r#"pool="b""#),
        "{left}"
    );
}

#[test]
fn counters_begin_at_0_and_the_process_tells_of_itself() {
    let shown = text(&Metrics::new().expect("families"));
    for series in [
        r#"agent_forge_actor_restarts_total{kind="vm"} 0"#,
        r#"agent_forge_vsphere_vm_operations_total{operation="give_up",result="success"} 0"#,
        r#"agent_forge_effects_total{effect="login",outcome="refused"} 0"#,
        r#"agent_forge_iso_operations_total{operation="upload",result="error"} 0"#,
        r#"agent_forge_actor_passes_total{kind="orphans",result="error"} 0"#,
        "agent_forge_trace_phases_dropped_total 0",
    ] {
        assert!(shown.contains(series), "{series}:\n{shown}");
    }
    for family in catalog::PROCESS {
        let typed = format!("# TYPE {} {}", family.name, family.kind.word());
        assert!(shown.contains(&typed), "{typed}:\n{shown}");
    }
    let of_the_process = shown.matches("# TYPE process_").count();
    assert_eq!(of_the_process, catalog::PROCESS.len(), "{shown}");
}

#[test]
fn a_moment_that_nothing_has_any_more_disappears_and_so_does_a_vcenter() {
    let m = Metrics::new().expect("families");
    let pool = ObjectKey::new("ns", "a");
    let since = jiff::Timestamp::from_second(1_700_000_000).expect("a moment");
    let waits = PoolView {
        oldest_waiting: Some(since),
        ..PoolView::default()
    };
    m.pool_view(&pool, &waits);
    let servers = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), 1)).collect();
    m.orphans(&servers(&["vc-a", "vc-b"]));
    m.sessions(&servers(&["vc-a", "vc-b"]));
    let oldest = r#"agent_forge_pool_oldest_waiting_timestamp_seconds{namespace="ns",pool="a",pool_namespace="ns"} 1700000000"#;
    let orphans = r#"agent_forge_orphan_vms{server="vc-a"} 1"#;
    let shown = text(&m);
    assert!(shown.contains(oldest) && shown.contains(orphans), "{shown}");
    m.pool_view(&pool, &PoolView::default());
    m.orphans(&servers(&["vc-b"]));
    m.sessions(&servers(&["vc-b"]));
    let left = text(&m);
    let gone = !left.contains("oldest_waiting_timestamp_seconds{") && !left.contains("vc-a");
    assert!(gone && left.contains("vc-b"), "{left}");
}

/// Records work in a vCenter and on one of its datastores.
fn work(m: &Metrics, server: &str, cache: &str) {
    m.request(&RequestRecord {
        server,
        operation: "CreateVM_Task",
        failure: None,
        duration: std::time::Duration::from_secs(1),
    });
    for task in ["CreateVM_Task", "PowerOnVM_Task"] {
        m.task_began(server, task);
        m.task_ended(server, task, 1.0);
    }
    m.iso_transfer(cache, Some((1, 2)));
    m.iso_transferred(cache, 3.0);
}

#[test]
fn with_their_last_pool_the_series_of_a_vcenter_and_of_a_datastore_disappear() {
    let m = Metrics::new().expect("families");
    let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
    for pool in [&a, &b] {
        m.pool_uses(pool, "vc-one", "vc-one/dc/ds");
    }
    work(&m, "vc-one", "vc-one/dc/ds");
    let of = |server: &str| text(&m).matches(server).count();
    let shown = of("vc-one");
    for family in [
        "requests_total",
        "request_duration_seconds_bucket",
        "task_duration_seconds_bucket",
        "tasks_in_flight",
    ] {
        let series = format!("agent_forge_vsphere_{family}{{");
        assert!(text(&m).contains(&series), "{series}");
    }
    // One pool moves to another vCenter, the other stays.
    m.pool_uses(&a, "vc-two", "vc-two/dc/ds");
    work(&m, "vc-two", "vc-two/dc/ds");
    assert_eq!((of("vc-one"), of("vc-two")), (shown, shown));
    m.drop_pool(&b);
    assert_eq!((of("vc-one"), of("vc-two")), (0, shown));
    // The session of that vCenter lives on for a while, and so may a transfer.
    work(&m, "vc-one", "vc-one/dc/ds");
    assert_eq!(of("vc-one"), 0);
    m.pool_uses(&b, "vc-one", "vc-one/dc/ds");
    work(&m, "vc-one", "vc-one/dc/ds");
    assert_eq!(of("vc-one"), shown);
}

#[test]
fn a_task_that_outlives_the_series_of_its_vcenter_leaves_no_debt() {
    let m = Metrics::new().expect("families");
    let pool = ObjectKey::new("ns", "a");
    let shown = |count: i64| {
        let series =
            format!(r#"agent_forge_vsphere_tasks_in_flight{{server="vc",task="destroy"}} {count}"#);
        let text = text(&m);
        assert!(text.lines().any(|l| l == series), "{series}\n{text}");
    };
    m.pool_uses(&pool, "vc", "vc/dc/ds");
    m.task_began("vc", "destroy");
    shown(1);
    m.drop_pool(&pool);
    m.pool_uses(&pool, "vc", "vc/dc/ds");
    m.task_ended("vc", "destroy", 1.0);
    shown(0);
    m.task_began("vc", "destroy");
    shown(1);
}

#[test]
fn what_is_not_said_any_more_disappears() {
    let m = Metrics::new().expect("families");
    let pool = ObjectKey::new("ns", "a");
    let waits = |reason: &str| PoolView {
        waiting_on: BTreeMap::from([(reason.to_owned(), 1)]),
        ..PoolView::default()
    };
    m.pool_view(&pool, &waits("ISONotReady"));
    m.pool_view(&pool, &waits("NameConflict"));
    let left = text(&m);
    assert!(
        left.contains("NameConflict") && !left.contains("ISONotReady"),
        "{left}"
    );
}

#[test]
fn a_vm_that_outlives_its_pool_revives_no_series() {
    let m = Metrics::new().expect("families");
    let pool = ObjectKey::new("ns", "a");
    m.pool(&pool, &PoolGauges::default());
    m.destroyed(&pool, 1.0);
    assert!(text(&m).contains(r#"pool="a""#));
    m.drop_pool(&pool);
    m.destroyed(&pool, 2.0);
    m.milestone(&pool, MOMENTS[0].0, 2.0);
    assert!(!text(&m).contains(r#"pool="a""#), "{}", text(&m));
    // A new pool with that name counts again.
    m.pool(&pool, &PoolGauges::default());
    m.destroyed(&pool, 3.0);
    let counted = r#"agent_forge_machine_duration_seconds_count{namespace="ns",pool="a",until="destroyed",pool_namespace="ns"} 1"#;
    assert!(text(&m).contains(counted), "{}", text(&m));
}

/// The families of the predecessor, with its names. Dashboards and alerts of its users query them.
const PREDECESSORS: [(&str, &str, &[&str]); 6] = [
    (
        "agent_forge_vsphere_vm_operations_total",
        "counter",
        &["operation", "result"],
    ),
    (
        "agent_forge_iso_operations_total",
        "counter",
        &["operation", "result"],
    ),
    (
        "agent_forge_pool_capacity",
        "gauge",
        &["namespace", "pool", "state"],
    ),
    (
        "agent_forge_pool_vm_cpu_cores",
        "gauge",
        &["namespace", "pool"],
    ),
    (
        "agent_forge_pool_vm_memory_bytes",
        "gauge",
        &["namespace", "pool"],
    ),
    (
        "agent_forge_pool_vm_disk_bytes",
        "gauge",
        &["namespace", "pool"],
    ),
];

#[test]
fn the_predecessors_families_keep_their_names_labels_and_states() {
    let m = Metrics::new().expect("families");
    let gauges = PoolGauges {
        desired: 1,
        agent_machines: 2,
        waiting_agent_machines: 3,
        unready_agent_machines: 4,
        without_agent: 5,
        matching_agents: 6,
        bound_agents: 7,
        available_agents: 8,
        pending_owned_vms: 9,
        demand_deficit: 10,
        ..PoolGauges::default()
    };
    m.pool(&ObjectKey::new("ns", "a"), &gauges);
    m.vm_operation("create", true);
    m.iso_operation("upload", false);
    let shown = text(&m);
    for (name, kind, labels) in PREDECESSORS {
        assert!(shown.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        let start = format!("{name}{{");
        let series: Vec<&str> = shown
            .lines()
            .filter_map(|l| l.strip_prefix(&start))
            .collect();
        assert!(!series.is_empty(), "no series of {name}");
        for one in series {
            let (said, _) = one.split_once('}').expect("labels");
            let said: Vec<&str> = said
                .split(',')
                .filter_map(|l| Some(l.split_once('=')?.0))
                // Ours, beside those of the predecessor.
                .filter(|label| *label != catalog::POOL_NAMESPACE)
                .collect();
            assert_eq!(said, labels, "{name}");
        }
    }
    for (value, state) in [
        "desired",
        "agent_machines",
        "waiting_agent_machines",
        "unready_agent_machines",
        "without_agent",
        "matching_agents",
        "bound_agents",
        "available_agents",
        "pending_owned_vms",
        "demand_deficit",
    ]
    .iter()
    .enumerate()
    {
        let line = format!(
            "agent_forge_pool_capacity{{namespace=\"ns\",pool=\"a\",state=\"{state}\",pool_namespace=\"ns\"}} {}\n",
            value + 1
        );
        assert!(shown.contains(&line), "{line}{shown}");
    }
    let states = shown.matches("agent_forge_pool_capacity{").count();
    assert_eq!(states, 10);
    for series in [
        r#"agent_forge_vsphere_vm_operations_total{operation="create",result="success"} 1"#,
        r#"agent_forge_iso_operations_total{operation="upload",result="error"} 1"#,
    ] {
        assert!(shown.contains(series), "{series}:\n{shown}");
    }
}
