//! VsphereAgents that earlier code wrote are read as before.

use agent_forge_crds::agent::VsphereAgent;
use agent_forge_sim::states;
use serde_json::Value;

/// The fields of `was` that `is` does not have with the same value.
fn lost(was: &Value, is: Option<&Value>, at: &str, all: &mut Vec<String>) {
    let fields = was.as_object().zip(is.and_then(Value::as_object));
    let rows = was.as_array().zip(is.and_then(Value::as_array));
    if let Some((was, is)) = fields {
        for (name, value) in was {
            lost(value, is.get(name), &format!("{at}/{name}"), all);
        }
    } else if let Some((was, is)) = rows.filter(|(was, is)| was.len() == is.len()) {
        for (row, value) in was.iter().enumerate() {
            lost(value, is.get(row), &format!("{at}/{row}"), all);
        }
    } else if is != Some(was) {
        all.push(format!("{at}: {was} became {is:?}"));
    }
}

#[test]
fn objects_of_earlier_code_are_read_as_before() {
    let mut wrong = Vec::new();
    for (state, object) in states::recorded().expect("the recorded states") {
        let read = serde_json::from_value::<VsphereAgent>(object.clone());
        let read = read.unwrap_or_else(|e| panic!("{state}: {e}"));
        let again = serde_json::to_value(&read).expect("JSON");
        lost(&object, Some(&again), &state, &mut wrong);
        let is = states::summary(&states::read(&object).expect("a VsphereAgent"));
        if is != state {
            wrong.push(format!("{state}: is read as {is}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
