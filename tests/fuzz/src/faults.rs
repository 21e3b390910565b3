//! Replies of vCenter to a call that changes something.

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{effect::EffectKind, permit::Permit, vcenter::VmAt},
};

use crate::vcenter;

/// Statuses that an input's first byte chooses from.
const STATUSES: [u16; 8] = [500, 200, 400, 401, 403, 404, 503, 204];

/// A call with any reply ends with a result, or with an error that can be shown.
pub(crate) fn check(data: &[u8]) {
    let Some((first, body)) = data.split_first() else {
        return;
    };
    let status = STATUSES[usize::from(*first) % STATUSES.len()];
    let reply = (status, body.to_vec());
    let called = crate::in_virtual_time(async {
        let answers = Box::new(move |_| reply.clone());
        let vcenter = vcenter::session("PowerOnVM_Task", answers).await?;
        let at = VmAt {
            moref: MoRef::new("VirtualMachine", "vm-1"),
            change_version: None,
        };
        let permit = Permit::issue(vcenter::effect(EffectKind::PowerOn), at);
        vcenter.power_on(&permit).await
    });
    match called {
        Ok(task) => assert!(!task.0.is_empty(), "a task without an id"),
        Err(error) => vcenter::presentable(&error, body),
    }
}

pub(crate) fn examples() -> Vec<Vec<u8>> {
    let object = r#"{"_typeName":"ManagedObjectReference","type":"Folder","value":"group-v3"}"#;
    crate::of(&[
        &format!(
            "0{{\"_typeName\":\"NoPermission\",\"object\":{object},\"privilegeId\":\"VirtualMachine.Interact.PowerOn\"}}"
        ),
        r#"0{"_typeName":"NotAuthenticated","privilegeId":"System.View"}"#,
        r#"0{"_typeName":"InvalidLogin","faultMessage":[]}"#,
        r#"0{"_typeName":"InsufficientResourcesFault","faultMessage":[{"key":"com.vmware.x","message":"not enough memory"}]}"#,
        r#"0{"_typeName":"InvalidPowerState","requestedState":"poweredOn","existingState":{"_typeName":"VirtualMachinePowerState","_value":"poweredOn"}}"#,
        r#"0{"_typeName":"NoDiskSpace","datastore":"ds1","file":"[ds1] a/a.vmx"}"#,
        r#"0{"_typeName":"vim.fault.Unheard","faultMessage":[{"message":"something"}]}"#,
        r#"1{"_typeName":"ManagedObjectReference","type":"Task","value":"task-12"}"#,
        r#"1{"_typeName":"ManagedObjectReference","type":"Task","value":""}"#,
        r#"4{"error_type":"UNAUTHORIZED","messages":[{"default_message":"not allowed"}]}"#,
        "6<html><body>Service Unavailable</body></html>",
        "7",
    ])
}
