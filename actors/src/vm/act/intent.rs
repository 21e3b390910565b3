//! Intent before effect: finalizer, identity and place are recorded before the first write to vCenter. So a process
//! that dies in between leaves no VM that the next process cannot find.

use agent_forge_crds::{
    names::AGENT_FINALIZER,
    pool::{CredentialsSecretRef, SOURCE_VSPHERE_AGENT},
};
use kube::ResourceExt;
use std::time::Duration;

use super::executor::{Done, Executor, StepOutcome, defect};
use crate::{
    domain::{identity::BiosUuid, names::DatastorePath, template},
    guard,
    iso::content,
    placement::request,
    ports::{cluster::OwnPatch, effect::EffectKind},
    sessions::{of_vm::Reached, secret_ref},
    vm::{memory::Memory, place, step::Loss},
};

impl Executor<'_> {
    pub(super) async fn add_finalizer(&self) -> Done {
        let object = &self.observed.child.object;
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(AGENT_FINALIZER.to_owned());
        let patch = OwnPatch {
            finalizers: Some(finalizers),
            ..OwnPatch::default()
        };
        let permit = guard::harmless(self.effect(EffectKind::AddFinalizer), self.at())?;
        self.context.cluster.patch_child(&permit, &patch).await?;
        // The watch then shows the object with its finalizer.
        Ok(StepOutcome::Pause(Duration::from_secs(2)))
    }

    pub(super) async fn record_identity(&self, memory: &mut Memory) -> Done {
        let lost = self.observed.loss(self.context, memory) != Loss::None;
        memory.lost = lost;
        let pool = self.pool()?;
        let request = request::place_request(pool)?;
        let secret = secret_ref::secret(pool, &self.context.settings.secret_namespaces)?;
        let session = self
            .context
            .sessions
            .session(&secret, &self.observed.child.pool.namespace)
            .await?;
        let effect = self.effect(EffectKind::CreateFolder);
        let placed = self
            .context
            .placer
            .place(session.clone(), effect, request.clone())
            .await?;
        let child = &self.observed.child;
        let mut vm = self.vm();
        let attempt = vm.attempt.and_then(|a| u32::try_from(a).ok()).unwrap_or(0) + 1;
        let cluster_id = self.context.view.cluster_id();
        let owner = child.owner_uid(attempt);
        vm.bios_uuid = Some(BiosUuid::derive(&cluster_id, owner, attempt).to_string());
        vm.attempt = i32::try_from(attempt).ok();
        // Written in the predecessor's form: if it takes over again, it finds the VM by its notes.
        vm.owner_uid = Some(owner.to_owned());
        vm.source = Some(SOURCE_VSPHERE_AGENT.to_owned());
        let uid8: String = owner.chars().filter(|c| *c != '-').take(8).collect();
        let file = format!("{name}-{uid8}-{attempt}/{name}.vmx", name = child.vm_name);
        let path =
            DatastorePath::new(&placed.datastore.0, &file).map_err(|e| defect(&e.to_string()))?;
        vm.vm_path = Some(path.to_string());
        vm.placement = Some(place::record(&placed, &request));
        Reached::by(session.as_ref()).record(&mut vm);
        vm.credentials_ref = Some(CredentialsSecretRef {
            name: secret.name,
            namespace: Some(secret.namespace),
        });
        // The ISO that the VM boots from. It decides for which InfraEnv the guest registers its Agent.
        let iso = pool.status.as_ref().and_then(|s| s.iso.as_ref());
        vm.infra_env_ref = iso.and_then(|iso| iso.infra_env_ref.clone());
        vm.iso_created = iso.and_then(content::created);
        // If the record was lost, the VM may exist already, made with other hardware.
        vm.template = (!lost).then(|| template::record(&request.hardware));
        let mut record = self.observed.record();
        record.cluster_id = Some(cluster_id);
        record.vm = Some(vm);
        let next = self
            .save_record(EffectKind::RecordIdentity, record, memory)
            .await?;
        // If the record was lost, the VM may exist already, and this actor may have reset it.
        let reset = memory.reset.take().filter(|_| lost);
        memory.forget_vm();
        memory.create_not_sent = !lost;
        memory.reset = reset;
        Ok(StepOutcome::Object(next))
    }
}
