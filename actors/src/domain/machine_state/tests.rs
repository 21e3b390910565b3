use super::*;
use crate::testing::{self as t, World, with};

fn of(world: &World) -> MachineState {
    let s = world.observed();
    machine_state(
        &s.children[0],
        t::CONTROL_PLANE,
        &s.machines,
        &s.agent_machines,
    )
}

#[test]
fn machine_and_agent_machine_together_tell() {
    type Change = fn(&mut World);
    let all: [(&str, Change, MachineState); 8] = [
        ("both there", |_| {}, MachineState::Alive),
        (
            "the Machine is being deleted",
            |w| w.machines[0].deleting = true,
            MachineState::Leaving,
        ),
        (
            "the AgentMachine is being deleted first (trap K)",
            |w| t::delete(&mut w.agent_machines[0]),
            MachineState::Leaving,
        ),
        (
            "the AgentMachine is gone, its Machine not yet (trap K)",
            |w| w.agent_machines.clear(),
            MachineState::Alive,
        ),
        (
            "the Machine is not in view, its AgentMachine is",
            |w| w.machines.clear(),
            MachineState::Alive,
        ),
        (
            "both gone (fault 3: also while nobody looked)",
            |w| {
                w.machines.clear();
                w.agent_machines.clear();
            },
            MachineState::Gone,
        ),
        (
            "another Machine has the name: its hub may have been restored, and the AgentMachine not yet",
            |w| {
                w.agent_machines.clear();
                w.machines[0].uid = "other".to_owned();
            },
            MachineState::Unknown(
                "Machine demo-demo/a exists with another uid than the recorded one".to_owned(),
            ),
        ),
        (
            "nobody was recorded",
            |w| {
                w.children[0].spec.goal = None;
                w.children[0].metadata.labels = None;
                w.children[0].metadata.annotations = None;
            },
            MachineState::Nobody,
        ),
    ];
    for (what, change, expected) in all {
        assert_eq!(
            of(&with(World::discovered("a"), change)),
            expected,
            "{what}"
        );
    }
}

#[test]
fn what_only_looks_like_gone_is_unknown() {
    // An AgentMachine of that name with another uid.
    let renewed = with(World::discovered("a"), |w| {
        w.machines.clear();
        w.agent_machines[0].metadata.uid = Some("other".to_owned());
    });
    assert!(matches!(of(&renewed), MachineState::Unknown(why) if why.contains("AgentMachine")));
    // A hub was restored with new uids: the record's identity does not come from the object's uid.
    let restored = with(World::discovered("a"), |w| {
        w.agent_machines.clear();
        w.machines[0].uid = "new".to_owned();
        w.children[0].metadata.uid = Some("new".to_owned());
    });
    assert!(
        matches!(of(&restored), MachineState::Unknown(why) if why.contains("Machine demo-demo/a"))
    );
    // The pool was pointed at another control plane.
    let s = World::discovered("a").observed();
    let moved = with(World::discovered("a"), |w| {
        let vm = w.children[0].status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("vm").machine_ref = Some(k8s_openapi::api::core::v1::ObjectReference {
            namespace: Some(t::CONTROL_PLANE.to_owned()),
            ..Default::default()
        });
    })
    .observed();
    assert_eq!(
        machine_state(&s.children[0], "elsewhere", &s.machines[..0], &[]),
        MachineState::Gone
    );
    assert!(matches!(
        machine_state(&moved.children[0], "elsewhere", &moved.machines[..0], &[]),
        MachineState::Unknown(why) if why.contains("controlPlaneNamespace")
    ));
}

#[test]
fn a_record_of_the_predecessor_goes_by_name() {
    let old = |w: &mut World| {
        let c = &mut w.children[0];
        c.metadata.annotations = None;
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut()).expect("vm");
        (vm.attempt, vm.moref) = (None, None);
    };
    assert_eq!(of(&with(World::discovered("a"), old)), MachineState::Alive);
    let gone = with(with(World::discovered("a"), old), |w| {
        w.machines.clear();
        w.agent_machines.clear();
    });
    assert_eq!(of(&gone), MachineState::Gone);
    let leaving = with(with(World::discovered("a"), old), |w| {
        w.agent_machines.clear();
        w.machines[0].deleting = true;
    });
    assert_eq!(of(&leaving), MachineState::Leaving);
}
