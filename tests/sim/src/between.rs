//! Faults between check and effect: the world changes after the operator has checked, and right before a server handles
//! the request that was decided by it.
//!
//! Only harm that a client can prevent is played. A write to the API server carries uid and resourceVersion, so it has to be
//! refused. vCenter takes no precondition with `PowerOffVM_Task` and `Destroy_Task`; only their own refusals protect a VM.

use agent_forge_crds::external::agent::{
    AGENT_MACHINE_REF_LABEL, AGENT_MACHINE_REF_NAMESPACE_ANNOTATION,
};
use serde_json::{Value, json};

use crate::{
    kube::{
        ApiServer,
        store::{Kind, Name},
    },
    plan::Fault,
    vcenter::{VCenter, model::Ref, tasks::Work},
};

/// Changes the object that a write is about to hit. Returns whether it changed. Then the write must be refused.
pub(crate) fn object(api: &ApiServer, fault: Fault, kind: &Kind, name: &Name) -> bool {
    let Some(found) = api.get(kind, name) else {
        return false;
    };
    match fault {
        Fault::ObjectTouched => {
            let note = json!({"metadata": {"annotations": {"somebody": "was-here"}}});
            api.merge(kind, name, &note).is_ok()
        }
        Fault::ObjectReplaced => replace(api, kind, name, &found),
        Fault::AgentClaimed2m => claim(api, kind, name, &found),
        _ => false,
    }
}

/// Puts a copy with another uid in the place of the object, as a restore from a backup does.
fn replace(api: &ApiServer, kind: &Kind, name: &Name, found: &Value) -> bool {
    api.director.line(|| format!("    {} is replaced", name.1));
    api.write(|s, now| s.evict(kind, name, now));
    let created = api.create(kind, &name.0, found.clone());
    // A namespace in deletion takes no copy. The object is gone then.
    created.is_err() || api.set_status(kind, name, &found["status"]).is_ok()
}

/// An AgentMachine of another control plane claims the Agent, and lets it go after a while. One that is claimed already is
/// not claimed again.
fn claim(api: &ApiServer, kind: &Kind, name: &Name, found: &Value) -> bool {
    if found["metadata"]["labels"][AGENT_MACHINE_REF_LABEL].is_string() {
        return false;
    }
    let mark = |by: Value, at: Value| {
        json!({"metadata": {
            "labels": {AGENT_MACHINE_REF_LABEL: by},
            "annotations": {AGENT_MACHINE_REF_NAMESPACE_ANNOTATION: at},
        }})
    };
    let (api, kind, name) = (api.clone(), kind.clone(), name.clone());
    let claimed = api.merge(&kind, &name, &mark(json!("stranger"), json!("elsewhere")));
    let uid = found["metadata"]["uid"].clone();
    tokio::spawn(async move {
        tokio::time::sleep(Fault::AgentClaimed2m.lasts()).await;
        let now = api.get(&kind, &name);
        if now.is_some_and(|a| a["metadata"]["uid"] == uid) {
            let _ = api.merge(&kind, &name, &mark(Value::Null, Value::Null));
        }
    });
    claimed.is_ok()
}

/// Somebody switches the VM on, or off if it is on. A suspended VM stays: its workload decides how it goes on.
pub(crate) fn vm(vcenter: &VCenter, fault: Fault, vm: &Ref) {
    let state = vcenter.read(|i| i.vms.get(&vm.id).map(|vm| (vm.on, vm.suspended)));
    let Some((runs, false)) = state.filter(|_| fault == Fault::VmSwitched) else {
        return;
    };
    let work = if runs {
        Work::PowerOff(vm.clone())
    } else {
        Work::PowerOn(vm.clone())
    };
    let done = vcenter.write(|i| i.work(&work, &mut None));
    let word = if runs { "off" } else { "on" };
    vcenter
        .director
        .line(|| format!("    somebody switches {} {word}: {}", vm.id, done.is_ok()));
}
