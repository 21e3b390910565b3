//! Empties CD-ROM drives.
//!
//! An edit needs the whole device with its real keys. The ISO goes away when the backing becomes the drive of a client
//! that does not exist.
//!
//! A guest that has mounted the medium locks the tray. vCenter then asks a question (`runtime.question`, message
//! `msg.cdromdisconnect.locked`, choices yes and no), and the task waits for the answer. The task keeps waiting when
//! the process that began it dies. Until then no other change of the VM can begin (`TaskInProgress`).

use std::time::Duration;

use agent_forge_actors::{
    domain::{failure::Class, names::MoRef},
    ports::{
        effect::Effect,
        permit::Permit,
        vcenter::{Ended, Fault, TaskEnd, Tasks as _, VcError, VcErrorKind, VcResult, VmAt},
    },
};
use serde_json::Value;

use super::observation::{iso_of, key, number_of};
use crate::vsphere::rpc::{
    call::Call,
    client::Client,
    properties::Question,
    wire::{
        device::{CdromBacking, CdromDrive, Connectable, Device, DeviceChange},
        vm::{AnswerVm, ReconfigVm, VirtualMachineConfigSpec},
    },
};

/// How often the client looks for a question while the task runs. A task without a question ends sooner.
const ASK: Duration = Duration::from_secs(1);
const LOCKED: &str = "cdromdisconnect.locked";
const DEVICES: &str = "config.hardware.device";
const QUESTION: &str = "runtime.question";

impl Client {
    /// Takes these ISOs out of the VM's drives. It overrules a locked tray until the task ends.
    pub(super) async fn empty_drives<'a>(
        &'a self,
        permit: &Permit<VmAt>,
        isos: &[String],
    ) -> VcResult<Ended<'a>> {
        let (effect, vm) = (permit.effect(), &permit.of().moref);
        let isos = isos.to_vec();
        let (mut device_change, asked) = self.drives_with(vm, &isos).await?;
        // The task of an earlier process still waits for this answer. It changes the VM.
        let question = asked.filter(|q| is_of_locked_tray(q) && !device_change.is_empty());
        let change_version = permit
            .of()
            .change_version
            .clone()
            .filter(|_| question.is_none());
        if let Some(question) = question {
            self.answer(effect, vm, &question).await?;
            tokio::time::sleep(ASK).await;
            (device_change, _) = self.drives_with(vm, &isos).await?;
        }
        if device_change.is_empty() {
            return Ok(Box::pin(async { Ok(TaskEnd::Success(None)) }));
        }
        let spec = VirtualMachineConfigSpec {
            change_version,
            device_change,
            ..VirtualMachineConfigSpec::default()
        };
        let call = Call::new(vm, "ReconfigVM_Task", &ReconfigVm { spec });
        let awaited = self.awaits(effect.kind.name());
        let task = self.start(permit, call).await?;
        let (effect, vm) = (effect.clone(), vm.clone());
        Ok(Box::pin(async move {
            let _awaited = awaited;
            let ended = self.wait(&task);
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    biased;
                    end = &mut ended => {
                        let left = async { Ok(self.drives_with(&vm, &isos).await?.0.len()) };
                        let end = end.flatten()?;
                        settled(&end, &vm, left).await?;
                        return Ok(end);
                    }
                    () = tokio::time::sleep(ASK) => self.overrule(&effect, &vm).await?,
                }
            }
        }))
    }

    /// The changes that empty the VM's drives with these ISOs, and the VM's open question.
    async fn drives_with(
        &self,
        vm: &MoRef,
        isos: &[String],
    ) -> VcResult<(Vec<DeviceChange>, Option<Value>)> {
        let question = Question::about(vm.to_string())
            .read("VirtualMachine", &[DEVICES, QUESTION])
            .from(vm, Vec::new());
        let (mut changes, mut asked) = (Vec::new(), None);
        for properties in &self.retrieve(question).await? {
            properties.require_readable(&[DEVICES])?;
            let devices = properties.list(DEVICES).iter();
            changes.extend(devices.filter_map(|d| emptied(d, isos)));
            asked = asked.or_else(|| properties.value(QUESTION).cloned());
        }
        Ok((changes, asked))
    }

    /// Answers the question of a locked tray, if vCenter asks it. If vCenter does not answer, the next look asks again.
    async fn overrule(&self, effect: &Effect, vm: &MoRef) -> VcResult<()> {
        let asked = Question::about(vm.to_string())
            .read("VirtualMachine", &[QUESTION])
            .from(vm, Vec::new());
        let found = match self.retrieve(asked).await {
            Ok(found) => found,
            Err(e) if e.class() == Class::Transient => {
                tracing::debug!(vm = %vm, error = %e, "what the VM asks is not known");
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        match found.iter().find_map(|p| p.value(QUESTION)) {
            Some(question) => self.answer(effect, vm, question).await,
            None => Ok(()),
        }
    }

    /// Answers this question if it is about a locked tray. A user must answer any other question.
    async fn answer(&self, effect: &Effect, vm: &MoRef, question: &Value) -> VcResult<()> {
        let text = |key: &str| {
            question
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let Some(choice) = yes(question).filter(|_| is_of_locked_tray(question)) else {
            let call = Call::new(vm, "AnswerVM", &());
            return Err(call.failure(
                VcErrorKind::NoAnswer,
                format!(
                    "the VM asks a question, answer it in the vSphere client: {}",
                    text("text")
                ),
            ));
        };
        let answer = AnswerVm {
            question_id: text("id").to_owned(),
            answer_choice: choice,
        };
        tracing::info!(vm = %vm, "the guest has locked its CD-ROM tray; it is overruled");
        let answered = self
            .mutate::<Value>(effect, Call::new(vm, "AnswerVM", &answer))
            .await;
        match answered {
            // Another answer was first, or the outcome is unknown: the next look shows it.
            Err(e)
                if e.class() == Class::Transient
                    || matches!(e.fault(), Some(Fault::InvalidArgument { .. })) =>
            {
                tracing::debug!(vm = %vm, error = %e, "the question was not answered");
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// Whether the drives are empty now. The outcome of a forgotten task is unknown: then `left` counts the drives that are
/// not empty.
async fn settled(
    end: &TaskEnd,
    vm: &MoRef,
    left: impl Future<Output = VcResult<usize>>,
) -> VcResult<()> {
    if matches!(end, TaskEnd::Success(_)) || left.await? == 0 {
        return Ok(());
    }
    Err(VcError::new(
        VcErrorKind::NoAnswer,
        "ReconfigVM_Task",
        vm.to_string(),
        "vCenter does not know the task any more, and the CD-ROM drive is not empty",
    ))
}

/// The change that empties this device, if it is a drive with one of these ISOs.
fn emptied(device: &Value, isos: &[String]) -> Option<DeviceChange> {
    let iso = iso_of(device)?;
    isos.iter().find(|i| *i == iso)?;
    Some(DeviceChange::edit(Device::VirtualCdrom(CdromDrive {
        key: key(device)?,
        controller_key: number_of(device, "controllerKey")?,
        unit_number: number_of(device, "unitNumber")?,
        connectable: Connectable::UNPLUGGED,
        backing: CdromBacking::VirtualCdromRemotePassthroughBackingInfo {
            device_name: String::new(),
            exclusive: false,
            use_auto_detect: false,
        },
    })))
}

fn is_of_locked_tray(question: &Value) -> bool {
    let named = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .is_some_and(|text| text.contains(LOCKED))
    };
    let messages = question.get("message").and_then(Value::as_array);
    named(question.get("text"))
        || messages.is_some_and(|all| all.iter().any(|m| named(m.get("id"))))
}

/// Key of the choice "yes" in any language. The label's id or its English text shows it. Otherwise it is the first of
/// two.
fn yes(question: &Value) -> Option<String> {
    let choices = question.pointer("/choice/choiceInfo")?.as_array()?;
    let says_yes = |choice: &&Value| {
        ["label", "summary"].iter().any(|key| {
            let text = choice.get(*key).and_then(Value::as_str).unwrap_or_default();
            text.to_lowercase().ends_with("yes")
        })
    };
    let only_two = choices.first().filter(|_| choices.len() == 2);
    let chosen = choices.iter().find(says_yes).or(only_two)?;
    Some(chosen.get("key")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_question_of_a_locked_tray_is_answered_with_yes() {
        let ask = |id: &str, choices: Value| {
            json!({
                "id": "7", "text": "Really?", "message": [{"id": id, "text": "?"}],
                "choice": {"choiceInfo": choices, "defaultIndex": 1},
            })
        };
        let two = |one: &str, other: &str| json!([{"key": "0", "label": one}, {"key": "1", "label": other}]);
        let locked = "msg.cdromdisconnect.locked";
        for (question, ours, wanted) in [
            (ask(locked, two("button.yes", "button.no")), true, Some("0")),
            (ask(locked, two("No", "Yes")), true, Some("1")),
            (ask(locked, two("Ja", "Nein")), true, Some("0")),
            (
                ask(locked, json!([{"key": "0", "label": "OK"}])),
                true,
                None,
            ),
            (
                ask("msg.uuid.altered", two("Moved", "Copied")),
                false,
                Some("0"),
            ),
        ] {
            assert_eq!(is_of_locked_tray(&question), ours, "{question}");
            assert_eq!(yes(&question).as_deref(), wanted, "{question}");
        }
    }

    #[tokio::test]
    async fn a_forgotten_task_has_emptied_the_drives_only_where_they_are_empty() {
        let vm = MoRef::new("VirtualMachine", "vm-7");
        let told = |end: TaskEnd, left| {
            let vm = vm.clone();
            async move { settled(&end, &vm, std::future::ready(left)).await }
        };
        assert_eq!(
            told(TaskEnd::Success(None), Ok(1)).await,
            Ok(()),
            "not looked at"
        );
        let after = |left| told(TaskEnd::Vanished, left);
        assert_eq!(after(Ok(0)).await, Ok(()));
        let full = after(Ok(1)).await.expect_err("the ISO is still there");
        assert_eq!(full.class(), Class::Transient, "it is tried again");
        let silent = VcError {
            kind: VcErrorKind::Unreachable,
            ..full
        };
        assert_eq!(after(Err(silent.clone())).await, Err(silent));
    }

    #[test]
    fn only_drives_with_an_iso_that_is_named_are_emptied() {
        let drive = |backing: &str| {
            json!({
                "_typeName": "VirtualCdrom", "key": 16000, "controllerKey": 15000, "unitNumber": 0,
                "backing": {"_typeName": backing, "fileName": "[isos] a.iso"},
            })
        };
        let ours = ["[isos] a.iso".to_owned()];
        let emptied = |device: &Value| super::emptied(device, &ours);
        let change = emptied(&drive("VirtualCdromIsoBackingInfo")).expect("a change");
        let change = serde_json::to_value(change).expect("serialises");
        assert_eq!(change["operation"], "edit");
        assert_eq!(change["device"]["key"], 16000);
        assert_eq!(change["device"]["connectable"]["startConnected"], false);
        assert_eq!(
            change["device"]["backing"]["_typeName"],
            "VirtualCdromRemotePassthroughBackingInfo"
        );
        assert!(emptied(&drive("VirtualCdromRemotePassthroughBackingInfo")).is_none());
        assert!(emptied(&json!({"_typeName": "VirtualDisk", "key": 1})).is_none());
        let rescue = super::emptied(
            &drive("VirtualCdromIsoBackingInfo"),
            &["[isos] b.iso".to_owned()],
        );
        assert!(rescue.is_none(), "somebody else's");
    }
}
