//! Flags of the leader election. They have the names that the components of Kubernetes use.

use std::time::Duration;

use agent_forge_actors::{
    migration::lease::{Guard, Kin},
    runtime::lease::{BadTiming, Timing},
};
use clap::{Parser, builder::BoolishValueParser};

use super::duration;

/// How instances agree on the one that acts.
#[derive(Clone, Debug, Parser)]
pub struct LeaseArgs {
    /// Act only while holding the Lease `agent-forge`. Needed wherever two instances can run at the same time.
    #[arg(long, env = "AGENT_FORGE_LEADER_ELECT", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub leader_elect: bool,

    /// Namespace of the Lease. Default: the Pod's namespace, or that of the kubeconfig.
    #[arg(
        long,
        env = "AGENT_FORGE_LEADER_ELECTION_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    pub leader_election_namespace: Option<String>,

    /// How long other instances leave an unchanged Lease alone.
    #[arg(long, env = "AGENT_FORGE_LEADER_ELECT_LEASE_DURATION", default_value = "45s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_lease_duration: Duration,

    /// A leader whose renewals are not acknowledged for this long ends. No call may take longer than the rest of the
    /// lease duration.
    #[arg(long, env = "AGENT_FORGE_LEADER_ELECT_RENEW_DEADLINE", default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Duration,

    /// How often a standby instance reads the Lease.
    #[arg(long, env = "AGENT_FORGE_LEADER_ELECT_RETRY_PERIOD", default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_retry_period: Duration,

    /// Namespace of the predecessor. Its Lease `agent-forge-operator.containeroo.ch` is looked for there and in the
    /// operator's own namespace. While another process holds that Lease, the operator changes nothing.
    #[arg(
        long,
        env = "AGENT_FORGE_PREDECESSOR_LEASE_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    pub predecessor_lease_namespace: Option<String>,

    /// uid of the Pod (downward API). A container that restarts in the Pod continues with its own Lease.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
}

impl LeaseArgs {
    /// The times of the leader election.
    ///
    /// # Errors
    /// The times do not fit together.
    pub fn timing(&self) -> Result<Timing, BadTiming> {
        Timing::new(
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        )
    }

    /// The namespaces in which the predecessor's Lease is looked for, and how it is treated there. `namespace` is the
    /// operator's own. A dry run only looks at it, so that the predecessor may act meanwhile.
    #[must_use]
    pub fn guards(&self, namespace: &str, dry_run: bool) -> Vec<(String, Guard)> {
        let guard = |required| Guard {
            kin: Kin::of(namespace),
            holds: self.leader_elect && !dry_run,
            required,
            follows: dry_run,
        };
        let named = self.predecessor_lease_namespace.as_deref();
        let own = (namespace.to_owned(), guard(named == Some(namespace)));
        let other = named.filter(|named| *named != namespace);
        let other = other.map(|named| (named.to_owned(), guard(true)));
        [Some(own), other].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predecessors_lease_is_looked_for_here_and_where_it_is_said_to_be() {
        let read = |flags: &[&str]| {
            let args = [&["agent-forge"], flags].concat();
            LeaseArgs::try_parse_from(args).expect("accepted")
        };
        let guards = |flags: &[&str]| {
            let guards = read(flags).guards("ours", false).into_iter();
            let told = guards.map(|(namespace, g)| (namespace, g.required, g.holds));
            told.collect::<Vec<_>>()
        };
        let row = |namespace: &str, required, holds| (namespace.to_owned(), required, holds);
        assert_eq!(guards(&[]), [row("ours", false, false)]);
        let elects = "--leader-elect";
        assert_eq!(guards(&[elects]), [row("ours", false, true)]);
        assert_eq!(
            guards(&[elects, "--predecessor-lease-namespace=old"]),
            [row("ours", false, true), row("old", true, true)]
        );
        assert_eq!(
            guards(&["--predecessor-lease-namespace=ours"]),
            [row("ours", true, false)]
        );
        let looks = |dry_run| {
            let guards = read(&[elects]).guards("ours", dry_run).into_iter();
            let how = guards.map(|(_, g)| (g.holds, g.follows));
            how.collect::<Vec<_>>()
        };
        assert_eq!(looks(false), [(true, false)]);
        assert_eq!(looks(true), [(false, true)]);
    }
}
