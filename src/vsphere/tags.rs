//! Tags, by the Automation API.

use agent_forge_actors::{
    effect::Effect,
    model::names::MoRef,
    ports::vcenter::{Fault, VcError, VcResult},
};
use serde::{Deserialize, Serialize};

use super::{client::Client, http::segment, lookup::unresolved, reply::decode};

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
    /// Attaches tags; already attached is success.
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
            let reply = self
                .automation(effect, ASSOCIATION.to_owned(), action, vm, &body)
                .await?;
            match decode::<BatchAnswer>(&reply.body) {
                Ok(Some(answer)) if answer.success => return Ok(()),
                // One by one, then: the failing one will name itself.
                _ => {}
            }
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
                Err(e)
                    if not_found(&e)
                        || matches!(e.fault(), Some(Fault::InvalidArgument { .. })) =>
                {
                    return Err(unresolved(
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

fn not_found(error: &VcError) -> bool {
    matches!(error.fault(), Some(Fault::Other { type_name, .. }) if type_name == "NOT_FOUND")
}
