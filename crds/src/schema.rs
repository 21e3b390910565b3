//! Parts of the schema that the derive cannot express: no nulls, list maps, atomic references.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// DNS-1123 label, the format of namespaces.
pub(crate) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// DNS-1123 label, or empty.
pub(crate) const DNS_LABEL_OR_EMPTY: &str = "^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// DNS-1123 subdomain, the format of most object names.
pub(crate) const DNS_SUBDOMAIN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Registry and repository of an image, without tag and digest.
pub(crate) const REPOSITORY: &str =
    r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$";
/// Digest of an image.
pub(crate) const SHA256: &str = "^sha256:[0-9a-f]{64}$";
/// Identifier of a vSphere enumeration (guest, adapter, controller).
pub(crate) const VSPHERE_WORD: &str = "^[A-Za-z0-9_.-]+$";

/// Removes `null` from the schema at all levels. An absent value is never null in an object. So the API server drops
/// nulls and fills in defaults, as with the predecessor's schema.
pub(crate) fn no_nulls(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        strip(object);
    }
}

fn strip(object: &mut serde_json::Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(mut options)) = object.remove("anyOf") {
        options.retain(|option| option.get("type").is_none_or(|kind| kind != "null"));
        match options.as_slice() {
            [Value::Object(only)] => {
                for (key, value) in only {
                    // The keys of the field take precedence over those of its type.
                    object.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            _ => {
                object.insert("anyOf".into(), Value::Array(options));
            }
        }
    }
    for value in object.values_mut() {
        strip_value(value);
    }
}

fn strip_value(value: &mut Value) {
    match value {
        Value::Object(object) => strip(object),
        Value::Array(items) => items.iter_mut().for_each(strip_value),
        _ => {}
    }
}

/// A list of conditions, at most one of each type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One observation about the object, with the time since when it stands.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "Name of the observation, unique in the list.",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "Whether it holds.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "The cause as one word for programs.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "The cause as a sentence for people; may be empty.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Since when the status has this value.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "Generation of the spec that was looked at.",
                },
            },
        },
    })
}

/// A list of conditions in the form of Cluster API v1beta1, at most one of each type.
pub(crate) fn conditions_of_capi(_: &mut SchemaGenerator) -> Schema {
    let text = |meaning: &str| json_schema!({"type": "string", "description": meaning});
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One observation about the object, with the time since when it stands.",
            "required": ["lastTransitionTime", "status", "type"],
            "properties": {
                "type": text("Name of the observation, unique in the list."),
                "status": text("Whether it holds: True, False or Unknown."),
                "severity": text("How bad it is that it does not hold: Error, Warning or Info. Only where the status is False."),
                "reason": text("The cause as one word for programs."),
                "message": text("The cause as a sentence for people; may be empty."),
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Since when the status has this value.",
                },
            },
        },
    })
}

/// A reference to one object, which is always replaced as a whole.
pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    let text = |meaning: &str| json_schema!({"type": "string", "description": meaning});
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text("Group and version of the object."),
            "fieldPath": text("Part of the object that is meant; unused here."),
            "kind": text("Kind of the object."),
            "name": text("Name of the object."),
            "namespace": text("Namespace of the object."),
            "resourceVersion": text("Version of the object that was seen; unused here."),
            "uid": text("Identity of the object; a later object of the same name has another one."),
        },
    })
}

/// Root of a custom resource: the fields of every object, and the two parts of this kind.
pub(crate) fn root(meaning: &str, spec: &Schema, status: &Schema) -> Schema {
    json_schema!({
        "type": "object",
        "description": meaning,
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": "Group and version in which this object is written.",
            },
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    })
}

/// The same root, whose spec is required.
pub(crate) fn with_spec(mut root: Schema) -> Schema {
    root.insert("required".to_owned(), json!(["spec"]));
    root
}

/// The same root, of a kind without a status.
pub(crate) fn without_status(mut root: Schema) -> Schema {
    let properties = root.get_mut("properties").and_then(Value::as_object_mut);
    properties.map(|all| all.remove("status"));
    root
}
