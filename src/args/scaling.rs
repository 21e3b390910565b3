//! Flags that limit what the operator does at once in a vCenter, how full datastores get, and what of a namespace is kept in
//! memory.

use agent_forge_actors::ports::slots::turns::Limits;
use clap::Parser;

use crate::cluster::bound::Bound;

/// Limits for each vCenter and each namespace.
#[derive(Clone, Debug, Parser)]
pub struct ScalingArgs {
    /// Tasks under way in one vCenter. One more task may power a VM off or destroy it.
    #[arg(long, env = "AGENT_FORGE_MAX_CONCURRENT_VCENTER_TASKS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_concurrent_vcenter_tasks: u16,

    /// VMs that are created at once in one vCenter, as a part of its tasks. Default: three quarters of
    /// --max-concurrent-vcenter-tasks.
    #[arg(long, env = "AGENT_FORGE_MAX_CONCURRENT_CREATES", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_concurrent_creates: Option<u16>,

    /// VMs that are created at once on one datastore. Default: --max-concurrent-creates.
    #[arg(long, env = "AGENT_FORGE_MAX_CONCURRENT_CREATES_PER_DATASTORE", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_concurrent_creates_per_datastore: Option<u16>,

    /// Space that stays free on a datastore, in GiB. A VM that would leave less gets another datastore, or waits.
    #[arg(
        long,
        env = "AGENT_FORGE_MIN_FREE_DATASTORE_GIB",
        default_value_t = 0,
        value_name = "GIB"
    )]
    pub min_free_datastore_gib: u32,

    /// The most that is kept in memory of one namespace's objects, in MiB. Beyond it nothing of that namespace is made or
    /// ended.
    #[arg(long, env = "AGENT_FORGE_MAX_NAMESPACE_CACHE_MIB", default_value_t = Bound::MIB, value_parser = clap::value_parser!(u32).range(1..), value_name = "MIB")]
    pub max_namespace_cache_mib: u32,

    /// The most objects of one namespace that are kept in memory.
    #[arg(long, env = "AGENT_FORGE_MAX_NAMESPACE_OBJECTS", default_value_t = Bound::OBJECTS, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub max_namespace_objects: u32,
}

impl ScalingArgs {
    /// The limits of tasks. Creates never get more than all tasks.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let tasks = self.max_concurrent_vcenter_tasks;
        let share = (tasks * 3 / 4).max(1);
        let creates = self.max_concurrent_creates.unwrap_or(share).min(tasks);
        let there = self.max_concurrent_creates_per_datastore.unwrap_or(creates);
        Limits {
            tasks: tasks.into(),
            creates: creates.into(),
            creates_per_datastore: there.min(creates).into(),
        }
    }

    /// What is kept of each namespace.
    #[must_use]
    pub fn bound(&self) -> Bound {
        Bound::of(self.max_namespace_cache_mib, self.max_namespace_objects)
    }

    /// Bytes that stay free on a datastore.
    #[must_use]
    pub fn min_free_bytes(&self) -> u64 {
        u64::from(self.min_free_datastore_gib) << 30
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creates_get_a_share_of_the_tasks() {
        let limits = |flags: &[&str]| {
            let args = [&["agent-forge"], flags].concat();
            let limits = ScalingArgs::try_parse_from(args)
                .expect("accepted")
                .limits();
            (limits.tasks, limits.creates, limits.creates_per_datastore)
        };
        let tasks = |n| format!("--max-concurrent-vcenter-tasks={n}");
        assert_eq!(limits(&[]), (8, 6, 6));
        assert_eq!(limits(&[&tasks(1)]), (1, 1, 1));
        assert_eq!(limits(&[&tasks(2)]), (2, 1, 1));
        assert_eq!(limits(&[&tasks(1000)]), (1000, 750, 750));
        let both = [
            "--max-concurrent-creates=4",
            "--max-concurrent-creates-per-datastore=2",
        ];
        assert_eq!(limits(&both), (8, 4, 2));
        assert_eq!(limits(&["--max-concurrent-creates=20"]), (8, 8, 8));
    }

    #[test]
    fn a_namespace_has_a_bound_in_mib_and_in_objects() {
        let bound = |flags: &[&str]| {
            let args = [&["agent-forge"], flags].concat();
            ScalingArgs::try_parse_from(args).map(|args| args.bound())
        };
        assert_eq!(bound(&[]).expect("accepted"), Bound::default());
        let both = ["--max-namespace-cache-mib=2", "--max-namespace-objects=3"];
        let wanted = Bound {
            bytes: 2 << 20,
            objects: 3,
        };
        assert_eq!(bound(&both).expect("accepted"), wanted);
        assert!(bound(&["--max-namespace-objects=0"]).is_err());
    }
}
