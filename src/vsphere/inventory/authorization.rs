//! Which privileges a user has. Only the commands ask: the operator learns it from the faults of its calls.

use agent_forge_actors::{domain::names::MoRef, ports::vcenter::VcResult};
use serde::{Deserialize, Serialize};

use crate::vsphere::rpc::{call::Call, client::Client, wire::Ref};

/// A privilege that each role has. An answer without it is not about this user.
const BASE: &str = "System.Read";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HasUserPrivilegeOnEntities<'a> {
    entities: [Ref; 1],
    user_name: &'a str,
    priv_id: Vec<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntityPrivilege {
    #[serde(default)]
    priv_availability: Vec<PrivilegeAvailability>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrivilegeAvailability {
    priv_id: String,
    is_granted: bool,
}

impl Client {
    /// The privileges of `ids` that the session's user lacks on that object. `None`: vCenter does not say.
    pub(crate) async fn lacking(&self, on: &MoRef, ids: &[&str]) -> VcResult<Option<Vec<String>>> {
        let session = self
            .session(crate::vsphere::rpc::session::Asked::ByCall)
            .await?;
        let Some(manager) = session.endpoint.content.authorization_manager.clone() else {
            return Ok(None);
        };
        let arguments = HasUserPrivilegeOnEntities {
            entities: [on.into()],
            user_name: &self.credentials.username,
            priv_id: std::iter::once(BASE).chain(ids.iter().copied()).collect(),
        };
        let call = Call::new(&manager.into(), "HasUserPrivilegeOnEntities", &arguments)
            .about(on.to_string());
        let answer = self
            .read::<Vec<EntityPrivilege>>(call)
            .await?
            .unwrap_or_default();
        let all: Vec<_> = answer
            .into_iter()
            .flat_map(|entity| entity.priv_availability)
            .collect();
        if !all.iter().any(|p| p.priv_id == BASE && p.is_granted) {
            return Ok(None);
        }
        let lacks = all.into_iter().filter(|p| !p.is_granted);
        Ok(Some(lacks.map(|p| p.priv_id).collect()))
    }
}
