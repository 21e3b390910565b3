//! One pass over one AgentMachine, in the real provider's order.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    api::{ObjectMeta, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use super::{
    super::{
        condition::{self, Condition, Shape},
        desk::Player,
        mirror::Object,
        nature,
        object::Facts as _,
        refusal,
    },
    BACKUP_LABEL, FINALIZER, HOOK, PAUSED, Play, claim, conditions,
    hook::{self, HookState},
    owner_machine,
};

/// What is left to do after the check of the deletion hook.
enum Next {
    Go(Object),
    Stop(Option<Duration>),
}

impl Player for Play {
    async fn pass(&self, key: &str) -> Result<Option<Duration>> {
        let Some(agent_machine) = self.agent_machines.get(key) else {
            return Ok(None);
        };
        let Some(machine) = self.machine_of(&agent_machine).await? else {
            if agent_machine.is_deleting() {
                self.drop_finalizer(&agent_machine).await?;
            } else {
                self.write_unreserved(agent_machine, None).await?;
            }
            return Ok(None);
        };
        let agent_machine = match self.deletion_hook(agent_machine, &machine).await? {
            Next::Go(agent_machine) => agent_machine,
            Next::Stop(again) => return Ok(again),
        };
        if agent_machine.annotation(PAUSED).is_some() || agent_machine.flag("/status/ready") {
            return Ok(None);
        }
        let bootstrap = machine.text("/spec/bootstrap/dataSecretName");
        if bootstrap.is_empty() {
            return Ok(None);
        }
        self.reserve(agent_machine, bootstrap).await?;
        Ok(None)
    }
}

impl Play {
    /// The owner that this generation accepts. For an AgentMachine under deletion, an owner that is gone counts as
    /// none.
    async fn machine_of(&self, agent_machine: &Object) -> Result<Option<Object>> {
        let Some(owner) = owner_machine(agent_machine) else {
            return Ok(None);
        };
        if self.is_legacy() && !owner.api_version.ends_with("/v1beta1") {
            return Ok(None);
        }
        match self.machines.fetch(owner.name).await? {
            Some(machine) => Ok(Some(machine)),
            None if agent_machine.is_deleting() => Ok(None),
            None => bail!("owner Machine {} not found", owner.name),
        }
    }

    async fn deletion_hook(&self, mut agent_machine: Object, machine: &Object) -> Result<Next> {
        let mut machine = machine.clone();
        if machine.annotation(HOOK).is_none() && !machine.is_deleting() {
            machine = self
                .machines
                .patch(&machine, json!({"metadata": {"annotations": {HOOK: ""}}}))
                .await?;
            self.ensure_token_secret(machine.text("/spec/bootstrap/dataSecretName"))
                .await?;
        }
        if !agent_machine.is_deleting() && !agent_machine.has_finalizer(FINALIZER) {
            let mut finalizers = agent_machine
                .metadata
                .finalizers
                .clone()
                .unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            let metadata = json!({"finalizers": finalizers, "labels": {BACKUP_LABEL: "true"}});
            agent_machine = self
                .agent_machines
                .patch(&agent_machine, json!({"metadata": metadata}))
                .await?;
        }
        match hook::state(self.cluster.generation, &machine) {
            HookState::NotReached => Ok(Next::Go(agent_machine)),
            HookState::Passed => {
                self.drop_finalizer(&agent_machine).await?;
                Ok(Next::Stop(None))
            }
            HookState::Waiting => self.let_go(&agent_machine, &machine).await.map(Next::Stop),
        }
    }

    /// Unbinds the AgentMachine's Agent, even if another AgentMachine has claimed it. Releases the hook when the host
    /// is free.
    async fn let_go(&self, agent_machine: &Object, machine: &Object) -> Result<Option<Duration>> {
        let name = agent_machine.text("/status/agentRef/name");
        let paused = agent_machine.annotation(PAUSED).is_some() && agent_machine.is_deleting();
        let agent = match name {
            "" => None,
            _ if paused => None,
            _ => self.agents.fetch(name).await?,
        };
        if let Some(agent) = agent {
            let agent = if claim::is_claimed(&agent) {
                tracing::debug!(
                    agent = agent.name(),
                    agent_machine = agent_machine.name(),
                    "unbound"
                );
                self.agents.replace(&claim::unbound(&agent)).await?
            } else {
                agent
            };
            if !hook::releases(agent.text("/status/debugInfo/state")) {
                return Ok(Some(self.hook_poll));
            }
        }
        if machine.annotation(HOOK).is_some() {
            self.machines
                .patch(machine, json!({"metadata": {"annotations": {HOOK: null}}}))
                .await?;
        }
        self.drop_finalizer(agent_machine).await?;
        Ok(None)
    }

    async fn reserve(&self, agent_machine: Object, bootstrap: &str) -> Result<()> {
        let name = agent_machine.text("/status/agentRef/name").to_owned();
        if !name.is_empty() {
            let agent = self.agents.fetch(&name).await?;
            let agent = agent.with_context(|| {
                format!(
                    "Agent {name} of AgentMachine {} not found",
                    agent_machine.name()
                )
            });
            return self.follow_agent(agent_machine, agent?).await;
        }
        if self.is_legacy() && agent_machine.at("/status/conditions").is_none() {
            // If its status does not fit the CRD, the legacy provider always stops here.
            let written = self.write_unreserved(agent_machine.clone(), None).await?;
            if written.at("/status/conditions").is_none() {
                return Ok(());
            }
            return self.search(written, bootstrap).await;
        }
        self.search(agent_machine, bootstrap).await
    }

    async fn search(&self, agent_machine: Object, bootstrap: &str) -> Result<()> {
        let found = match self.find_agent(&agent_machine, bootstrap).await {
            Ok(found) => found,
            Err(error) => {
                self.write_unreserved(agent_machine, Some(&format!("{error:#}")))
                    .await?;
                return Ok(());
            }
        };
        let Some(agent) = found else {
            self.write_unreserved(agent_machine, None).await?;
            return Ok(());
        };
        tracing::debug!(
            agent = agent.name(),
            agent_machine = agent_machine.name(),
            "claimed"
        );
        tokio::time::sleep(self.claim_step).await;
        let mut agent_machine = agent_machine;
        if !self.is_legacy() {
            let wanted = conditions::reserved(self.cluster.generation, &agent);
            agent_machine = self.write_conditions(agent_machine, &wanted).await?;
            tokio::time::sleep(self.claim_step).await;
        }
        let agent_machine = self.record_agent(agent_machine, &agent).await?;
        self.follow_agent(agent_machine, agent).await
    }

    /// Copies the Agent's conditions, restores a lost label, and finally sets `status.ready`.
    async fn follow_agent(&self, agent_machine: Object, agent: Object) -> Result<()> {
        let agent = if agent.label(super::AGENT_MACHINE_REF).is_none() {
            tracing::debug!(
                agent = agent.name(),
                agent_machine = agent_machine.name(),
                "label put back"
            );
            self.agents
                .replace(&claim::relabelled(&agent, agent_machine.name()))
                .await?
        } else {
            agent
        };
        let wanted = conditions::reserved(self.cluster.generation, &agent);
        let ready = conditions::are_ready(&wanted);
        if self.is_legacy() {
            let mut status = claim::reference(&agent);
            if agent_machine.at("/status/agentRef").is_some() {
                // Addresses are computed once.
                status.clear();
            }
            let list = self.rendered(&agent_machine, &wanted);
            status.insert("conditions".to_owned(), list);
            if ready {
                status.insert("ready".to_owned(), json!(true));
            }
            self.write_status(agent_machine, Value::Object(status))
                .await?;
            return Ok(());
        }
        let agent_machine = self.write_conditions(agent_machine, &wanted).await?;
        if ready {
            self.agent_machines
                .patch_status(&agent_machine, json!({"ready": true}))
                .await?;
        }
        Ok(())
    }

    async fn write_unreserved(
        &self,
        agent_machine: Object,
        trouble: Option<&str>,
    ) -> Result<Object> {
        let wanted = conditions::unreserved(self.cluster.generation, trouble);
        self.write_conditions(agent_machine, &wanted).await
    }

    async fn write_conditions(
        &self,
        agent_machine: Object,
        wanted: &[Condition],
    ) -> Result<Object> {
        let list = self.rendered(&agent_machine, wanted);
        if agent_machine.at("/status/conditions") == Some(&list) {
            return Ok(agent_machine);
        }
        self.write_status(agent_machine, json!({ "conditions": list }))
            .await
    }

    fn rendered(&self, agent_machine: &DynamicObject, wanted: &[Condition]) -> Value {
        let shape = if self.is_legacy() {
            Shape::Capi
        } else {
            Shape::Metav1
        };
        condition::render(
            wanted,
            agent_machine.at("/status/conditions"),
            shape,
            nature::now(),
        )
    }

    /// Writes a part of the status. If the CRD refuses it, it is lost without a retry, as in the real provider.
    async fn write_status(&self, agent_machine: Object, status: Value) -> Result<Object> {
        match self
            .agent_machines
            .patch_status(&agent_machine, status)
            .await
        {
            Err(error) if refusal::is_invalid(&error) => {
                tracing::debug!(agent_machine = agent_machine.name(), %error, "status does not fit this CRD");
                Ok(agent_machine)
            }
            written => written,
        }
    }

    async fn drop_finalizer(&self, agent_machine: &Object) -> Result<()> {
        if !agent_machine.has_finalizer(FINALIZER) {
            return Ok(());
        }
        let mut left = agent_machine
            .metadata
            .finalizers
            .clone()
            .unwrap_or_default();
        left.retain(|finalizer| finalizer != FINALIZER);
        let gone = self
            .agent_machines
            .patch(agent_machine, json!({"metadata": {"finalizers": left}}))
            .await;
        match gone {
            Err(error) if refusal::status(&error).is_some_and(|status| status.code == 404) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    async fn ensure_token_secret(&self, bootstrap: &str) -> Result<()> {
        if bootstrap.is_empty() {
            return Ok(());
        }
        let labels = [
            ("agent-install.openshift.io/watch", "true"),
            (BACKUP_LABEL, "true"),
        ];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(claim::token_secret(bootstrap)),
                labels: Some(
                    labels
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .into(),
                ),
                ..ObjectMeta::default()
            },
            string_data: Some([("ignition-token".to_owned(), nature::uuid().to_string())].into()),
            ..Secret::default()
        };
        match self.secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
