//! Pools and VsphereAgents, as people and other controllers write them.

use agent_forge_actors::placement::request;
use agent_forge_crds::{VsphereAgent, VsphereAgentPool};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Every read object survives a round trip. What placement refuses of a pool has the name of its field.
pub(crate) fn check(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    again::<VsphereAgent>(&value);
    if let Some(pool) = again::<VsphereAgentPool>(&value)
        && let Err(refused) = request::place_request(&pool)
    {
        let known = refused.message.starts_with("spec.");
        assert!(known, "no field is named: {}", refused.message);
    }
}

/// The object, if the value is one. Panics if it is another one after it was written and read.
fn again<T: Serialize + DeserializeOwned + PartialEq>(value: &Value) -> Option<T> {
    let object: T = serde_json::from_value(value.clone()).ok()?;
    let written = serde_json::to_value(&object).unwrap_or_else(|e| panic!("not written: {e}"));
    let read = serde_json::from_value::<T>(written.clone());
    let read = read.unwrap_or_else(|e| panic!("not read again: {e} in {written}"));
    assert!(
        read == object,
        "another object after a round trip: {written}"
    );
    Some(object)
}

/// The fixtures of the schema's tests, and the shipped sample.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../../crds/tests/fixtures/pool.yaml"),
        include_str!("../../../crds/tests/fixtures/agent.yaml"),
        include_str!("../../../config/samples/vsphereagentpool.yaml"),
        include_str!("../examples/vsphereagent.yaml"),
    ];
    let json = |text: &&str| {
        let value: Value = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        value.to_string().into_bytes()
    };
    texts.iter().map(json).collect()
}
