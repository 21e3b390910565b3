//! A kubeconfig that somebody else wrote: which server it names, and how it opens it. Pure.
//!
//! Its author chooses where the operator connects to and what it sends. So only fields with bytes of their own count. A field
//! that runs a program, reads a file of the operator, chooses a proxy, or weakens TLS is refused. So is each field that is not
//! known here: a later release of Kubernetes may give it any of these meanings.

use std::fmt;

use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::server::ServerRule;

/// How a hosted cluster is opened.
#[derive(Clone)]
pub struct HostedAccess {
    /// The API server: scheme, host and port.
    pub server: Url,
    /// `certificate-authority-data`, base64. `None`: the roots of the system count.
    pub authority: Option<String>,
    /// Who asks.
    pub user: HostedUser,
}

/// Who asks the API server of a hosted cluster.
#[derive(Clone)]
pub enum HostedUser {
    /// `token`.
    Token(SecretString),
    /// `client-certificate-data` and `client-key-data`, base64.
    Certificate(String, SecretString),
}

impl fmt::Debug for HostedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedAccess")
            .field("server", &self.server.as_str())
            .finish_non_exhaustive()
    }
}

/// Fields of a cluster that say nothing of the connection.
const HARMLESS: [&str; 2] = ["extensions", "disable-compression"];
/// Why each of these fields is refused.
const REFUSED: [(&str, &str); 17] = [
    ("exec", "it runs a program"),
    ("auth-provider", "it runs a plugin"),
    ("certificate-authority", FILE),
    ("client-certificate", FILE),
    ("client-key", FILE),
    ("tokenFile", FILE),
    ("token-file", FILE),
    ("proxy-url", "only the operator's own proxy is used"),
    (
        "insecure-skip-tls-verify",
        "the certificate of the server is always checked",
    ),
    (
        "tls-server-name",
        "the certificate has to be for the host in server",
    ),
    ("as", IMPERSONATION),
    ("as-uid", IMPERSONATION),
    ("as-groups", IMPERSONATION),
    ("as-user-extra", IMPERSONATION),
    ("username", PASSWORD),
    ("password", PASSWORD),
    ("impersonate", IMPERSONATION),
];
const FILE: &str =
    "it names a file of the operator; use the field of that name that ends with -data, or token";
const IMPERSONATION: &str = "nobody is impersonated";
const PASSWORD: &str = "use token";

/// What a kubeconfig opens.
///
/// # Errors
/// A sentence that names the field, and no value that could be secret.
pub fn judge(config: &Value, rule: &ServerRule) -> Result<HostedAccess, String> {
    let Some(root) = config.as_object() else {
        return Err("it is no kubeconfig: a mapping with clusters, users and contexts".to_owned());
    };
    let wanted = text(root, "current-context").ok_or("current-context is missing")?;
    let context = entry(root, "contexts", "context", wanted)?;
    let named = |field: &str| {
        let missing = || format!("contexts[].context.{field} is missing");
        text(context, field).ok_or_else(missing)
    };
    let cluster = entry(root, "clusters", "cluster", named("cluster")?)?;
    let user = entry(root, "users", "user", named("user")?)?;
    accept(
        cluster,
        "clusters[].cluster",
        &["server", "certificate-authority-data"],
    )?;
    let of_user = ["token", "client-certificate-data", "client-key-data"];
    accept(user, "users[].user", &of_user)?;
    let server = text(cluster, "server").ok_or("clusters[].cluster.server is missing")?;
    let server = rule
        .parse(server)
        .map_err(|e| format!("clusters[].cluster.server: {e}"))?;
    Ok(HostedAccess {
        server,
        authority: text(cluster, "certificate-authority-data").map(str::to_owned),
        user: who(user)?,
    })
}

fn who(user: &Map<String, Value>) -> Result<HostedUser, String> {
    let certificate = text(user, "client-certificate-data");
    match (text(user, "token"), certificate, text(user, "client-key-data")) {
        (Some(token), None, None) => Ok(HostedUser::Token(token.to_owned().into())),
        (None, Some(certificate), Some(key)) => {
            let key = key.to_owned().into();
            Ok(HostedUser::Certificate(certificate.to_owned(), key))
        }
        (None, None, None) => Err(
            "users[].user has neither token nor client-certificate-data with client-key-data".to_owned(),
        ),
        _ => Err(
            "users[].user has to have either token, or client-certificate-data with client-key-data"
                .to_owned(),
        ),
    }
}

/// The one entry of that name in a list of the kubeconfig.
fn entry<'a>(
    root: &'a Map<String, Value>,
    list: &str,
    field: &str,
    name: &str,
) -> Result<&'a Map<String, Value>, String> {
    let all = root.get(list).and_then(Value::as_array);
    let named = |e: &&Value| e.get("name").and_then(Value::as_str) == Some(name);
    let mut found = all.into_iter().flatten().filter(named);
    let (Some(first), None) = (found.next(), found.next()) else {
        return Err(format!(
            "{list} has not exactly one entry for the current context"
        ));
    };
    let value = first.get(field).and_then(Value::as_object);
    value.ok_or_else(|| format!("{list}[].{field} is missing"))
}

/// A text, if it is there and not empty.
fn text<'a>(of: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    let text = of.get(field)?.as_str()?;
    Some(text.trim()).filter(|t| !t.is_empty())
}

/// Nothing was set in it.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

/// Refuses each field that is set and not among `known`.
fn accept(of: &Map<String, Value>, place: &str, known: &[&str]) -> Result<(), String> {
    for (field, value) in of {
        let field = field.as_str();
        if is_unset(value) || HARMLESS.contains(&field) {
            continue;
        }
        if known.contains(&field) {
            if !value.is_string() {
                return Err(format!("{place}.{field} has to be a text"));
            }
            continue;
        }
        let why = REFUSED.iter().find(|(name, _)| *name == field);
        return Err(match why {
            Some((name, why)) => format!("{place}.{name} is not accepted: {why}"),
            None => {
                let shown: String = field.chars().take(63).collect();
                format!("{place} has the field {shown:?}, which is not accepted: it is not known")
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": "https://api.demo.example:6443", "certificate-authority-data": "QQ==",
                "insecure-skip-tls-verify": false, "proxy-url": "",
            }}],
            "users": [{"name": "u", "user": {"token": "t0ken"}}],
        })
    }

    fn refused(config: &Value) -> String {
        let said = judge(config, &ServerRule::default()).expect_err("refused");
        assert!(!said.contains("t0ken"), "{said}");
        said
    }

    #[test]
    fn a_kubeconfig_with_bytes_of_its_own_opens_its_server() {
        let access = judge(&config(), &ServerRule::default()).expect("usable");
        assert_eq!(access.server.as_str(), "https://api.demo.example:6443/");
        assert_eq!(access.authority.as_deref(), Some("QQ=="));
        assert!(matches!(access.user, HostedUser::Token(_)));
        assert!(!format!("{access:?}").contains("t0ken"));
        let mut signed = config();
        signed["users"][0]["user"] =
            json!({"client-certificate-data": "QQ==", "client-key-data": "Qg=="});
        let access = judge(&signed, &ServerRule::default()).expect("usable");
        assert!(matches!(access.user, HostedUser::Certificate(..)));
    }

    #[test]
    fn each_field_that_reaches_further_is_refused_by_its_name() {
        for (list, of, field, value) in [
            ("users", "user", "exec", json!({"command": "sh"})),
            ("users", "user", "auth-provider", json!({"name": "gcp"})),
            ("users", "user", "tokenFile", json!("/var/run/token")),
            ("users", "user", "client-certificate", json!("/c.pem")),
            ("users", "user", "client-key", json!("/k.pem")),
            ("users", "user", "as", json!("root")),
            ("users", "user", "as-uid", json!("0")),
            ("users", "user", "as-groups", json!(["system:masters"])),
            ("users", "user", "as-user-extra", json!({"a": ["b"]})),
            ("users", "user", "username", json!("kubeadmin")),
            ("users", "user", "password", json!("p")),
            ("users", "user", "futureField", json!(1)),
            (
                "clusters",
                "cluster",
                "certificate-authority",
                json!("/ca.pem"),
            ),
            ("clusters", "cluster", "proxy-url", json!("http://p:3128")),
            (
                "clusters",
                "cluster",
                "insecure-skip-tls-verify",
                json!(true),
            ),
            (
                "clusters",
                "cluster",
                "insecure-skip-tls-verify",
                json!("true"),
            ),
            ("clusters", "cluster", "tls-server-name", json!("x")),
        ] {
            let mut hostile = config();
            hostile[list][0][of][field] = value;
            let said = refused(&hostile);
            let named = said.contains(&format!("{list}[].{of}")) && said.contains(field);
            assert!(named, "{field}: {said}");
        }
    }

    #[test]
    fn its_server_is_judged_as_a_vcenter_is() {
        for (server, why) in [
            ("https://127.0.0.1:6443", "loopback"),
            ("https://169.254.169.254", "metadata"),
            ("https://localhost:6443", "loopback"),
            ("http://api.demo.example", "https"),
            ("https://u:p@api.demo.example", "user name"),
            ("https://api.demo.example/k8s/clusters/c", "end after"),
            ("file:///etc/passwd", "https"),
        ] {
            let mut hostile = config();
            hostile["clusters"][0]["cluster"]["server"] = json!(server);
            let said = refused(&hostile);
            let named = said.contains("clusters[].cluster.server") && said.contains(why);
            assert!(named, "{server}: {said}");
        }
        let rule = ServerRule {
            allowed: vec!["vc.example".parse().expect("a host")],
            ..ServerRule::default()
        };
        let said = judge(&config(), &rule).expect_err("not among them");
        assert!(said.contains("--allowed-vcenters"), "{said}");
    }

    #[test]
    fn what_is_missing_or_there_twice_is_said() {
        let twice = |list: &str| {
            let mut all = config();
            let first = all[list][0].clone();
            all[list].as_array_mut().expect("a list").push(first);
            all
        };
        let without = |path: &[&str]| {
            let mut all = config();
            let (last, way) = path.split_last().expect("a path");
            let mut at = &mut all;
            for step in way {
                at = if *step == "0" {
                    &mut at[0]
                } else {
                    &mut at[*step]
                };
            }
            at.as_object_mut().expect("an object").remove(*last);
            all
        };
        for (hostile, named) in [
            (json!("text"), "no kubeconfig"),
            (without(&["current-context"]), "current-context"),
            (without(&["clusters"]), "clusters"),
            (without(&["users"]), "users"),
            (
                without(&["contexts", "0", "context", "user"]),
                "contexts[].context.user",
            ),
            (
                without(&["clusters", "0", "cluster", "server"]),
                "clusters[].cluster.server",
            ),
            (without(&["users", "0", "user", "token"]), "token"),
            (twice("clusters"), "clusters"),
            (twice("users"), "users"),
            (twice("contexts"), "contexts"),
        ] {
            let said = refused(&hostile);
            assert!(said.contains(named), "{named}: {said}");
        }
    }
}
