//! Pictures of the consoles of guests that did not register. A refusal is a sentence, and no failure of the command.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use agent_forge_actors::{
    domain::{disk, managed_vm::ManagedVm, names::MoRef},
    sessions::secret_ref,
};
use anyhow::Context as _;
use jiff::Timestamp;

use super::vcenters::Vcenters;
use crate::{args::Args, machines::found::Found};

/// The VM of which a picture can help, or why none is taken. An Agent that registered says more than its console, and the
/// console of a host that serves is not for everybody.
///
/// # Errors
/// The sentence says why not.
pub fn subject(found: &Found) -> Result<(&ManagedVm, MoRef), String> {
    let child = found.child.as_ref().ok_or("there is no VsphereAgent")?;
    let vm = child.vm();
    let moref = vm.and_then(|vm| vm.moref.clone());
    let (Some(vm), Some(moref)) = (vm, moref) else {
        return Err("the VM is not made yet".to_owned());
    };
    if found.agent.is_some() || vm.agent_ref.is_some() || vm.served == Some(true) {
        return Err("the Agent of the VM has registered; look at the Agent".to_owned());
    }
    // It may serve, or show the system of a life before.
    let renewed = vm.generation.is_some_and(|life| life > 1) && disk::keeps(vm);
    if child.adopted || child.adopting || renewed {
        return Err("the VM has, or may have, the system of a cluster on its disk".to_owned());
    }
    if vm.power_state.as_deref() != Some("poweredOn") {
        return Err("the VM does not run".to_owned());
    }
    Ok((child, MoRef::new("VirtualMachine", moref)))
}

/// Whether the guest has not registered in time: in this attempt, or in the one before.
#[must_use]
pub fn is_late(found: &Found, now: Timestamp) -> bool {
    let Ok((child, _)) = subject(found) else {
        return false;
    };
    let deadline = child.vm().and_then(|vm| vm.discovery_deadline.as_ref());
    let status = child.object.status.as_ref();
    let failed_before = status.is_some_and(|s| s.last_failure.is_some());
    failed_before || deadline.is_some_and(|at| at.0 <= now)
}

/// The picture of the console of the VM on record, as a PNG. vCenter must show that VM under the reference.
///
/// # Errors
/// The person may not read the Secret, vCenter does not answer or refuses, or the VM is another one.
pub async fn picture(args: &Args, vcenters: &Vcenters, found: &Found) -> anyhow::Result<Vec<u8>> {
    let (child, moref) = subject(found).map_err(anyhow::Error::msg)?;
    let secret = secret_of(args, child, found)?;
    let credentials = vcenters.credentials(&secret, &child.key.namespace).await?;
    let session = vcenters.connect(&credentials).await?;
    let shown = session.observe(&moref).await?;
    let shown = shown.context("vCenter does not have the VM")?;
    let recorded = child.identity.as_ref().map(|identity| identity.bios_uuid);
    anyhow::ensure!(
        recorded.is_some() && shown.bios_uuid == recorded,
        "vCenter shows another VM under {moref}"
    );
    Ok(vcenters.screen(&credentials, &moref).await?)
}

/// The Secret on record, else the pool's.
///
/// # Errors
/// There is none, or the operator may not read it.
pub fn secret_of(
    args: &Args,
    child: &ManagedVm,
    found: &Found,
) -> anyhow::Result<agent_forge_actors::domain::names::ObjectKey> {
    let own = &child.key.namespace;
    let recorded = child.vm().and_then(|vm| vm.credentials_ref.as_ref());
    let secret = match (recorded, &found.pool) {
        (Some(reference), _) => secret_ref::secret_at(reference, own, args.secret_bound()),
        (None, Some(pool)) => secret_ref::secret(pool, args.secret_bound()),
        (None, None) => anyhow::bail!("neither a Secret nor a pool is on record"),
    };
    secret.map_err(|e| anyhow::anyhow!(e.message))
}

/// Writes a file that only its owner reads.
///
/// # Errors
/// The file cannot be written.
pub fn save(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let about = || format!("writing {}", path.display());
    let mut file = of_owner(path).with_context(about)?;
    file.write_all(bytes).with_context(about)
}

/// An empty file that only its owner reads, also if it was there with another mode.
///
/// # Errors
/// The file cannot be made.
pub fn of_owner(path: &Path) -> std::io::Result<File> {
    const MODE: u32 = 0o600;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(MODE);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        machines::{found::Kind, join::Join},
        testing::World,
    };
    use agent_forge_actors::domain::names::ObjectKey;

    fn found(world: &World) -> Found {
        let caches = world.caches();
        let key = ObjectKey::new("demo", "w-1");
        Join::new(&caches)
            .machine(Kind::VsphereAgent, &key)
            .expect("a machine")
    }

    fn unregistered() -> World {
        let mut world = World::serving();
        world.agent = json!(null);
        let vm = &mut world.child["status"]["vm"];
        for field in ["agentRef", "machineRef", "served"] {
            vm[field] = json!(null);
        }
        vm["moref"] = json!("vm-42");
        vm["powerState"] = json!("poweredOn");
        vm["discoveryDeadline"] = json!("2026-01-01T00:30:00Z");
        world
    }

    #[test]
    fn only_a_running_vm_whose_agent_did_not_register_has_a_picture() {
        let serving = World::serving();
        let why = subject(&found(&serving)).expect_err("refused");
        assert!(why.contains("has registered"), "{why}");
        let mut world = unregistered();
        let moref = subject(&found(&world))
            .map(|(_, moref)| moref)
            .expect("a VM");
        assert_eq!(moref.id, "vm-42");
        // It may show the system of a life before.
        world.child["status"]["vm"]["generation"] = json!(2);
        let why = subject(&found(&world)).expect_err("refused");
        assert!(why.contains("the system of a cluster"), "{why}");
        world.child["status"]["vm"]["generation"] = json!(null);
        world.child["status"]["vm"]["powerState"] = json!("poweredOff");
        let why = subject(&found(&world)).expect_err("refused");
        assert!(why.contains("does not run"), "{why}");
        world.child["status"]["vm"]["moref"] = json!(null);
        let why = subject(&found(&world)).expect_err("refused");
        assert!(why.contains("not made yet"), "{why}");
    }

    #[test]
    fn a_guest_is_late_after_its_deadline_or_after_a_failed_attempt() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let mut world = unregistered();
        assert!(!is_late(&found(&world), at("2026-01-01T00:29:59Z")));
        assert!(is_late(&found(&world), at("2026-01-01T00:30:00Z")));
        world.child["status"]["lastFailure"] = json!({"class": "NoGuest"});
        assert!(is_late(&found(&world), at("2026-01-01T00:01:00Z")));
        assert!(!is_late(
            &found(&World::serving()),
            at("2026-01-01T09:00:00Z")
        ));
    }
}
