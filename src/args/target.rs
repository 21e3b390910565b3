//! Flags that say which API server, and as whom. They have the names of kubectl.

use std::path::PathBuf;

use clap::{CommandFactory as _, Parser};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Which API server, and as whom.
#[derive(Clone, Debug, Default, Parser)]
pub struct TargetArgs {
    /// Kubeconfig to use instead of KUBECONFIG or the Pod's ServiceAccount.
    #[arg(
        long,
        env = "AGENT_FORGE_KUBECONFIG",
        value_name = "FILE",
        global = true
    )]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig, instead of the current one.
    #[arg(long, env = "AGENT_FORGE_CONTEXT", value_name = "NAME", global = true)]
    pub context: Option<String>,

    /// Cluster of the kubeconfig, instead of that of the context.
    #[arg(long, env = "AGENT_FORGE_CLUSTER", value_name = "NAME", global = true)]
    pub cluster: Option<String>,

    /// User of the kubeconfig, instead of that of the context.
    #[arg(long, env = "AGENT_FORGE_USER", value_name = "NAME", global = true)]
    pub user: Option<String>,

    /// Act as this user. The API server must allow it (verb `impersonate`).
    #[arg(
        long = "as",
        env = "AGENT_FORGE_AS",
        value_name = "USER",
        global = true
    )]
    pub as_user: Option<String>,

    /// Act as a member of this group. Can be given more than once, with --as.
    #[arg(
        long,
        env = "AGENT_FORGE_AS_GROUP",
        value_name = "GROUP",
        value_delimiter = ',',
        requires = "as_user",
        global = true
    )]
    pub as_group: Vec<String>,

    /// Deployment of the operator that runs. A command takes the operator's flags from it. Default: the only one in the
    /// cluster. `none`: the command's own flags count.
    #[arg(
        long,
        env = "AGENT_FORGE_OPERATOR",
        value_name = "NAMESPACE/NAME",
        global = true
    )]
    pub operator: Option<String>,
}

impl TargetArgs {
    /// Whether the flag with this id is one of these.
    #[must_use]
    pub fn has(id: &str) -> bool {
        Self::command()
            .get_arguments()
            .any(|arg| arg.get_id() == id)
    }

    /// Whether a part of a kubeconfig is chosen.
    #[must_use]
    pub fn chooses(&self) -> bool {
        self.context.is_some() || self.cluster.is_some() || self.user.is_some()
    }

    /// What is chosen of a kubeconfig.
    #[must_use]
    pub fn choice(&self) -> KubeConfigOptions {
        KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        }
    }

    /// The namespace that the context names. `None` if it names none, and in a Pod.
    #[must_use]
    pub fn namespace(&self) -> Option<String> {
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let file = file.ok()?;
        let name = self.context.as_ref().or(file.current_context.as_ref())?;
        let found = file.contexts.iter().find(|context| context.name == *name)?;
        let namespace = found.context.as_ref()?.namespace.clone();
        namespace.filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_the_chosen_context() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let text = "current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u, namespace: blue}}\n\
                    - {name: b, context: {cluster: c, user: u}}\n";
        std::fs::write(&path, text).expect("written");
        let of = |context: Option<&str>| {
            let target = TargetArgs {
                kubeconfig: Some(path.clone()),
                context: context.map(str::to_owned),
                ..TargetArgs::default()
            };
            target.namespace()
        };
        assert_eq!(of(None).as_deref(), Some("blue"));
        assert_eq!(of(Some("b")), None);
        assert_eq!(of(Some("none")), None);
    }
}
