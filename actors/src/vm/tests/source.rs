//! The InfraEnv whose ISO a VM boots from is deleted or replaced before the VM exists.

use agent_forge_crds::conditions::Reason;

use super::*;
use crate::{iso::of_pool, testing::infra_env};

/// The ISO on the datastore belongs to the InfraEnv with that uid.
fn iso_of(bench: &Bench, uid: &str) {
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("pool");
        let lies = pool.status.as_mut().and_then(|s| s.iso.as_mut());
        let mut reference = of_pool::reference(&infra_env());
        reference.uid = Some(uid.to_owned());
        lies.expect("an ISO").infra_env_ref = Some(reference);
    });
}

#[tokio::test]
async fn no_vm_is_made_of_an_infra_env_that_is_gone() {
    let mut bench = Bench::new();
    bench.hub.with(|o| o.infra_env_is_gone = true);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::InfraEnvNotFound));
    // The ISO is removed between the record and the create.
    let mut bench = Bench::new();
    bench.site.with(|i| {
        i.creates = [VcErrorKind::Fault(Fault::TaskInProgress)].into();
    });
    bench.pass().await;
    bench.hub.with(|o| o.infra_env_is_gone = true);
    for _ in 0..5 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    assert_eq!(bench.waits_on(), Some(Reason::InfraEnvNotFound));
    assert_eq!(bench.times(E::CreateVm), 1);
    bench.hub.with(|o| o.infra_env_is_gone = false);
    bench.until(Bench::is_on).await;
}

/// The operator would take its record for one that somebody removed, and would record an identity with the InfraEnv of that time.
#[tokio::test]
async fn a_new_vsphere_agent_does_not_look_old_to_a_clock_that_is_set_ahead() {
    let mut bench = Bench::new();
    bench.hub.with(|o| o.infra_env_is_gone = true);
    bench.clock.jump(10 * MINUTE);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::InfraEnvNotFound));
    assert_eq!(bench.vm().bios_uuid, None, "no identity is recorded");
}

/// Its record names the InfraEnv of the ISO at that time. The VM is not made from the next ISO under that record.
#[tokio::test]
async fn a_vm_that_does_not_exist_yet_begins_anew_with_another_infra_env() {
    let mut bench = Bench::new();
    let uid = infra_env().metadata.uid.expect("a uid");
    iso_of(&bench, "deleted since");
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::IsoSourceChanged));
    iso_of(&bench, &uid);
    bench.site.with(|i| {
        i.creates = [VcErrorKind::Fault(Fault::TaskInProgress)].into();
    });
    bench.pass().await;
    assert_eq!(bench.times(E::CreateVm), 1);
    // As if the record had been made for an InfraEnv that was deleted since.
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        let source = vm.expect("recorded").infra_env_ref.as_mut();
        source.expect("recorded").uid = Some("deleted since".to_owned());
        let version = child.metadata.resource_version.as_deref();
        let version: u64 = version.and_then(|v| v.parse().ok()).unwrap_or(0);
        child.metadata.resource_version = Some((version + 100).to_string());
    });
    bench.restart();
    bench.until(Bench::is_on).await;
    let vm = bench.vm();
    assert_eq!(vm.attempt, Some(2));
    assert_eq!(vm.infra_env_ref.and_then(|r| r.uid), Some(uid));
}
