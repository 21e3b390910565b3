//! Attaches tags through the Automation API.

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        effect::Effect,
        vcenter::{Fault, VcError, VcResult},
    },
};
use serde::{Deserialize, Serialize};

use crate::vsphere::rpc::{client::Client, http::segment, reply::decode};

#[derive(Serialize)]
struct ObjectId<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: &'a str,
}

#[derive(Serialize)]
struct Attach<'a> {
    object_id: ObjectId<'a>,
}

#[derive(Serialize)]
struct AttachMultiple<'a> {
    object_id: ObjectId<'a>,
    tag_ids: &'a [String],
}

#[derive(Deserialize)]
struct BatchAnswer {
    success: bool,
}

fn object_id(vm: &MoRef) -> ObjectId<'_> {
    ObjectId {
        kind: &vm.kind,
        id: &vm.id,
    }
}

impl Client {
    /// Attaches tags. An attached one is success.
    pub(super) async fn tag(
        &self,
        effect: &Effect,
        vm: &MoRef,
        tag_ids: &[String],
    ) -> VcResult<()> {
        const ASSOCIATION: &str = "/api/cis/tagging/tag-association";
        if tag_ids.len() > 1 {
            let body = AttachMultiple {
                object_id: object_id(vm),
                tag_ids,
            };
            let action = "action=attach-multiple-tags-to-object";
            let path = ASSOCIATION.to_owned();
            match self.automation(effect, path, action, vm, &body).await {
                Ok(reply) => {
                    let answer = decode::<BatchAnswer>(&reply.body);
                    if answer.is_ok_and(|a| a.is_some_and(|a| a.success)) {
                        return Ok(());
                    }
                }
                Err(e) if names_no_tag(&e) => {}
                Err(e) => return Err(e),
            }
            // Attach them one by one, to see which one fails.
        }
        for tag in tag_ids {
            let path = format!("{ASSOCIATION}/{}", segment(tag));
            let body = Attach {
                object_id: object_id(vm),
            };
            match self
                .automation(effect, path, "action=attach", vm, &body)
                .await
            {
                Ok(_) => {}
                Err(e) if matches!(e.fault(), Some(Fault::AlreadyExists(_))) => {}
                Err(e) if names_no_tag(&e) => {
                    return Err(VcError::unresolved(
                        "vmTags",
                        tag,
                        "no tag of that id is visible to this user",
                    ));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Whether an id belongs to no tag. The answer does not say which id.
fn names_no_tag(error: &VcError) -> bool {
    match error.fault() {
        Some(Fault::Other { type_name, .. }) => type_name == "NOT_FOUND",
        Some(Fault::InvalidArgument { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::{
        domain::names::ObjectKey,
        ports::{
            effect::{EffectKind, Subject},
            vcenter::VcErrorKind,
        },
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::vsphere::rpc::played;

    const GOOD: &str = "urn:good";
    const WRONG: &str = "urn:wrong";

    /// The result of attaching both tags: the call for all ends with `together`, and the calls for each tag end as they
    /// should.
    async fn attached(together: (u16, Value)) -> VcResult<()> {
        let client = played::client(move |last, _| match last {
            "tag-association" => together.clone(),
            GOOD => (204, Value::Null),
            _ => (404, json!({"error_type": "NOT_FOUND"})),
        });
        let effect = Effect::new(
            EffectKind::AttachTags,
            Subject::Object(ObjectKey::new("ns", "vm")),
        );
        let vm = MoRef::new("VirtualMachine", "vm-1");
        client
            .tag(&effect, &vm, &[GOOD.to_owned(), WRONG.to_owned()])
            .await
    }

    #[tokio::test]
    async fn of_several_tags_the_wrong_one_is_named_however_that_is_told() {
        let failed = |kind: &str| json!({"error_type": kind});
        for together in [
            (200, json!({"success": false, "error_messages": []})),
            (400, failed("INVALID_ARGUMENT")),
            (404, failed("NOT_FOUND")),
        ] {
            let told = attached(together.clone()).await.expect_err("one is wrong");
            let wanted = VcErrorKind::Unresolved {
                field: "vmTags",
                value: WRONG.to_owned(),
            };
            assert_eq!(told.kind, wanted, "{together:?}: {told}");
        }
        attached((200, json!({"success": true})))
            .await
            .expect("all at once");
        let denied = attached((403, failed("UNAUTHORIZED"))).await;
        let denied = denied.expect_err("denied");
        assert!(
            matches!(denied.fault(), Some(Fault::NoPermission { .. })),
            "{denied}"
        );
    }
}
