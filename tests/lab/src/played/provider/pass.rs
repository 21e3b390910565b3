//! One pass over one AgentMachine, in the real provider's order.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    api::{ObjectMeta, PostParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};

use super::{
    super::{
        condition::{self, Condition, Shape},
        desk::Player,
        mirror::Object,
        nature,
        object::Facts as _,
        refusal,
    },
    AGENT_MACHINE_REF, BACKUP_LABEL, FINALIZER, HOOK, Owner, PAUSED, Play,
    bootstrap::{Bootstrap, token_secret},
    claim, conditions,
    hook::{self, HookState},
    owner_machine,
};

impl Player for Play {
    async fn pass(&self, key: &str) -> Result<Option<Duration>> {
        let Some(agent_machine) = self.agent_machines.get(key) else {
            return Ok(None);
        };
        // The mirror may show it a moment longer than it exists. Then its Machine would get the hook back.
        if agent_machine.is_deleting() && self.agent_machines.fetch(key).await?.is_none() {
            return Ok(None);
        }
        let Some(owner) = self.accepted_owner(&agent_machine) else {
            self.write_unowned(agent_machine).await?;
            return Ok(None);
        };
        let Some(machine) = self.machines.fetch(owner.name).await? else {
            if agent_machine.is_deleting() {
                self.drop_finalizer(&agent_machine).await?;
                return Ok(None);
            }
            bail!("owner Machine {} not found", owner.name);
        };
        let machine = self.ensure_hook(machine).await?;
        if agent_machine.annotation(PAUSED) == Some("true") {
            if agent_machine.is_deleting() {
                self.release(&agent_machine, &machine).await?;
            } else {
                self.ensure_marks(agent_machine, false).await?;
            }
            return Ok(None);
        }
        match hook::state(self.cluster.generation, self.cluster.machine_api, &machine) {
            HookState::NotReached => {}
            HookState::Passed => {
                self.drop_finalizer(&agent_machine).await?;
                return Ok(None);
            }
            HookState::Waiting => return self.let_go(&agent_machine, &machine).await,
        }
        self.ensure_token_secret(machine.text("/spec/bootstrap/dataSecretName"))
            .await?;
        let agent_machine = self.ensure_marks(agent_machine, true).await?;
        if !agent_machine.flag("/status/ready") {
            self.reserve(agent_machine, &Bootstrap::of(&machine))
                .await?;
        }
        Ok(None)
    }
}

impl Play {
    /// The owner Machine, if this generation accepts its version.
    fn accepted_owner<'a>(&self, agent_machine: &'a Object) -> Option<Owner<'a>> {
        let owner = owner_machine(agent_machine)?;
        (!self.is_legacy() || owner.api_version.ends_with("/v1beta1")).then_some(owner)
    }

    /// Writes the conditions of an AgentMachine that no Machine owns.
    async fn write_unowned(&self, agent_machine: Object) -> Result<()> {
        match agent_machine.text("/status/agentRef/name").to_owned() {
            name if name.is_empty() => self.write_unreserved(agent_machine, None).await.map(drop),
            name => {
                self.follow_agent(agent_machine, &name, &Bootstrap::default())
                    .await
            }
        }
    }

    async fn ensure_hook(&self, machine: Object) -> Result<Object> {
        if machine.annotation(HOOK).is_some() || machine.is_deleting() {
            return Ok(machine);
        }
        self.machines
            .patch(&machine, json!({"metadata": {"annotations": {HOOK: ""}}}))
            .await
    }

    /// Adds the finalizer, unless the AgentMachine is being deleted, and the backup label if `backup` is set.
    async fn ensure_marks(&self, agent_machine: Object, backup: bool) -> Result<Object> {
        let mut metadata = Map::new();
        if !agent_machine.is_deleting() && !agent_machine.has_finalizer(FINALIZER) {
            let mut finalizers = agent_machine
                .metadata
                .finalizers
                .clone()
                .unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        if backup && agent_machine.label(BACKUP_LABEL).is_none() {
            metadata.insert("labels".to_owned(), json!({BACKUP_LABEL: "true"}));
        }
        if metadata.is_empty() {
            return Ok(agent_machine);
        }
        self.agent_machines
            .patch(&agent_machine, json!({"metadata": metadata}))
            .await
    }

    /// Unbinds the AgentMachine's Agent, even if another AgentMachine has claimed it. Releases the hook when the host
    /// is free.
    async fn let_go(&self, agent_machine: &Object, machine: &Object) -> Result<Option<Duration>> {
        let agent = match agent_machine.text("/status/agentRef/name") {
            "" => None,
            name => self.agents.fetch(name).await?,
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
        self.release(agent_machine, machine).await?;
        Ok(None)
    }

    /// Removes the hook, then the finalizer.
    async fn release(&self, agent_machine: &Object, machine: &Object) -> Result<()> {
        if machine.annotation(HOOK).is_some() {
            self.machines
                .patch(machine, json!({"metadata": {"annotations": {HOOK: null}}}))
                .await?;
        }
        self.drop_finalizer(agent_machine).await
    }

    async fn reserve(&self, agent_machine: Object, bootstrap: &Bootstrap) -> Result<()> {
        let name = agent_machine.text("/status/agentRef/name").to_owned();
        if !name.is_empty() {
            return self.follow_agent(agent_machine, &name, bootstrap).await;
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

    async fn search(&self, agent_machine: Object, bootstrap: &Bootstrap) -> Result<()> {
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
        self.follow_agent(agent_machine, agent.name(), bootstrap)
            .await
    }

    /// The reserved Agent as it is now, with this AgentMachine's label and the values of `bootstrap`. A label of another
    /// AgentMachine is overwritten.
    async fn reserved_agent(
        &self,
        agent_machine: &Object,
        name: &str,
        bootstrap: &Bootstrap,
    ) -> Result<Object> {
        let agent = self.agents.fetch(name).await?;
        let mut agent = agent.with_context(|| {
            format!(
                "Agent {name} of AgentMachine {} not found",
                agent_machine.name()
            )
        })?;
        if !bootstrap.is_in(&agent) {
            agent = self.agents.replace(&bootstrap.written_to(&agent)).await?;
        }
        if agent.label(AGENT_MACHINE_REF) != Some(agent_machine.name()) {
            tracing::debug!(
                agent = name,
                agent_machine = agent_machine.name(),
                "label written"
            );
            let label = json!({AGENT_MACHINE_REF: agent_machine.name()});
            let patch = json!({"metadata": {"labels": label}});
            agent = self.agents.merge(name, patch).await?;
        }
        Ok(agent)
    }

    /// Copies the Agent's conditions, and finally sets `status.ready`.
    async fn follow_agent(
        &self,
        agent_machine: Object,
        name: &str,
        bootstrap: &Bootstrap,
    ) -> Result<()> {
        let agent = self.reserved_agent(&agent_machine, name, bootstrap).await?;
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
        let list = condition::render(
            wanted,
            agent_machine.at("/status/conditions"),
            shape,
            nature::now(),
        );
        let generation = agent_machine.metadata.generation;
        conditions::arranged(list, generation.filter(|_| !self.is_legacy()))
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

    /// Removes the finalizer in whatever version the AgentMachine is: a conflict would come too late for a retry, because
    /// the current generation does nothing after the hook has passed.
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
            .merge(
                agent_machine.name(),
                json!({"metadata": {"finalizers": left}}),
            )
            .await;
        match gone {
            Err(error) if refusal::status(&error).is_some_and(|status| status.code == 404) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Creates the Secret with the ignition token, once for each bootstrap Secret.
    async fn ensure_token_secret(&self, bootstrap: &str) -> Result<()> {
        if bootstrap.is_empty() || self.tokens().contains(bootstrap) {
            return Ok(());
        }
        let labels = [
            ("agent-install.openshift.io/watch", "true"),
            (BACKUP_LABEL, "true"),
        ];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(token_secret(bootstrap)),
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
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        self.tokens().insert(bootstrap.to_owned());
        Ok(())
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
