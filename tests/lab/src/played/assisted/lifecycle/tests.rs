use super::{super::host::HostFacts, *};

const CLUSTER: (&str, &str) = ("ns", "hc");

struct Run {
    host: Host,
    now: Instant,
    delays: Delays,
}

impl Run {
    fn new() -> Self {
        let now = Instant::now();
        let delays = Delays::default();
        Self {
            host: Host::new("env", HostFacts::bare_metal(1), now),
            now,
            delays,
        }
    }

    /// Lets time pass until nothing moves, or an hour is over. Returns the states on the way.
    fn settle(&mut self) -> Vec<&'static str> {
        let end = self.now + Duration::from_secs(3600);
        let mut states = vec![self.host.state.name()];
        while let Some(due) = advance(&mut self.host, &self.delays, self.now) {
            if states.last() != Some(&self.host.state.name()) {
                states.push(self.host.state.name());
            }
            if due > end {
                break;
            }
            self.now = due;
        }
        if states.last() != Some(&self.host.state.name()) {
            states.push(self.host.state.name());
        }
        states
    }

    fn installed() -> Self {
        let mut run = Self::new();
        run.settle();
        run.host.approved = true;
        let cluster = (CLUSTER.0.to_owned(), CLUSTER.1.to_owned());
        bind(&mut run.host, cluster, run.now).unwrap_or_else(|error| panic!("{error}"));
        run.settle();
        run
    }
}

#[test]
fn wrong_boot_order_ends_in_a_user_action() {
    let mut run = Run::new();
    run.host.next_boot = NextBoot::Image;
    run.host.approved = true;
    run.settle();
    bind(&mut run.host, ("a".into(), "b".into()), run.now)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(run.settle().last(), Some(&"installing-pending-user-action"));
    assert_eq!(run.host.info, Some(BOOTED_IMAGE));
    let mut run = Run::installed();
    assert_eq!(register(&mut run.host, run.now), Answer::Accepted);
    assert_eq!(run.host.state.name(), "installing-pending-user-action");
    assert_eq!(run.host.info, Some(BOOTED_IMAGE));
    let second = register(&mut run.host, run.now);
    assert_eq!(second, Answer::Forbidden, "a second one is refused");
    assert_eq!(run.settle(), ["installing-pending-user-action"]);
    boot_disk(&mut run.host, run.now);
    assert_eq!(run.settle().last(), Some(&"added-to-existing-cluster"));
    assert_eq!(run.host.info, None);
}

#[test]
fn an_install_that_starts_over_fails() {
    let mut run = Run::new();
    run.settle();
    run.host.approved = true;
    bind(&mut run.host, ("a".into(), "b".into()), run.now)
        .unwrap_or_else(|error| panic!("{error}"));
    while !run.host.state.installs() {
        run.now = advance(&mut run.host, &run.delays, run.now).unwrap_or_else(|| panic!("stuck"));
    }
    assert_eq!(register(&mut run.host, run.now), Answer::Accepted);
    assert_eq!(run.settle(), ["error"]);
    assert_eq!(run.host.info, Some(RESTARTED));
}

#[test]
fn a_reclaim_without_power_times_out_and_cannot_be_cut_short() {
    let mut run = Run::installed();
    run.host.powered = false;
    unbind(&mut run.host, run.now).unwrap_or_else(|error| panic!("{error}"));
    let early = register(&mut run.host.clone(), run.now);
    assert_eq!(early, Answer::TryAgain);
    assert_eq!(
        run.settle(),
        ["reclaiming", "unbinding-pending-user-action"]
    );
}

#[test]
fn a_reclaim_that_stalls_times_out_with_power_too() {
    let mut run = Run::installed();
    run.host.reclaim_stalls = true;
    unbind(&mut run.host, run.now).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        run.settle(),
        ["reclaiming", "unbinding-pending-user-action"]
    );
    let system = Some((run.host.facts.disk_id.clone(), Content::System));
    assert_eq!(run.host.written, system, "it got no discovery");
    assert_eq!(register(&mut run.host, run.now), Answer::Accepted);
    assert_eq!(run.settle(), ["discovering-unbound", "known-unbound"]);
}

#[test]
fn a_reclaim_leaves_discovery_on_the_disk_and_an_install_a_system() {
    let mut run = Run::installed();
    let disk = run.host.facts.disk_id.clone();
    let system = Some((disk.clone(), Content::System));
    assert_eq!(run.host.written, system);
    unbind(&mut run.host, run.now).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(run.host.stage, 0, "its progress is gone");
    run.settle();
    let discovery = Content::Discovery("env".to_owned());
    assert_eq!(run.host.written, Some((disk, discovery)));
    bind(&mut run.host, ("a".into(), "b".into()), run.now)
        .unwrap_or_else(|error| panic!("{error}"));
    run.settle();
    assert_eq!(run.host.written, system);
}

#[test]
fn a_host_with_a_new_disk_shows_the_old_inventory_until_it_reports() {
    let mut run = Run::installed();
    run.host.reclaim_stalls = true;
    unbind(&mut run.host, run.now).unwrap_or_else(|error| panic!("{error}"));
    run.settle();
    assert_eq!(run.host.state, HostState::UnbindingPendingUserAction);
    let old = run.host.facts.clone();
    assert_eq!(register(&mut run.host, run.now), Answer::Accepted);
    run.host.facts.disk_id = "another".to_owned();
    assert_eq!(run.host.state.name(), "discovering-unbound");
    assert_eq!(run.host.validation, Validation::Passing, "a stale one");
    assert_eq!(run.host.shown, Some(old.clone()));
    run.settle();
    assert_eq!(run.host.shown.as_ref(), Some(&run.host.facts));
    let hosts = super::super::host::Hosts::default();
    hosts.note_disk(&run.host);
    assert_eq!(hosts.content(&old.disk_id), Some(Content::System));
    assert_eq!(hosts.content("another"), None, "it is empty");
}
