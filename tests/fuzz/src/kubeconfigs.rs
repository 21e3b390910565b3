//! Kubeconfig files.

use std::fs;

use agent_forge::{args::TargetArgs, cluster::client};

use crate::SECRET;

/// Words of a kubeconfig that run a program or read another file. Inputs with them are left out: the client does what
/// they say, and that is not what is checked here.
const NOT_TRIED: [&str; 6] = [
    "exec",
    "auth-provider",
    "cmd-path",
    "/dev",
    "/proc",
    "tokenFile",
];

/// Clients, or an error that names the file and shows no secret. Nothing is sent.
pub(crate) fn check(data: &[u8]) {
    let text = crate::text(data);
    if NOT_TRIED.iter().any(|word| text.contains(word)) {
        return;
    }
    // An error is accepted: another target may have chosen the same implementation before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap_or_else(|e| panic!("no directory: {e}"));
    let path = directory.path().join("kubeconfig");
    fs::write(&path, data).unwrap_or_else(|e| panic!("not written: {e}"));
    let target = TargetArgs {
        kubeconfig: Some(path.clone()),
        ..TargetArgs::default()
    };
    let connected = crate::in_real_time(client::connect(&target));
    if let Err(error) = connected {
        let said = format!("{error:#} {error:?}");
        assert!(
            said.contains("kubeconfig") || said.contains("client"),
            "{said}"
        );
        assert!(!said.contains(SECRET), "a secret is shown: {said}");
    }
}

pub(crate) fn examples() -> Vec<Vec<u8>> {
    let token = include_str!("../examples/kubeconfig.yaml").replace("SECRET", SECRET);
    let json = r#"{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:6443"}}],
        "users":[{"name":"a","user":{"username":"admin","password":"SECRET"}}],
        "contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"current-context":"a"}"#;
    vec![
        token.into_bytes(),
        json.replace("SECRET", SECRET).into_bytes(),
    ]
}
