//! URLs of ISOs and of vCenters, host patterns, and paths on datastores.

use agent_forge_actors::{
    domain::{
        names::DatastorePath,
        server::{HostPattern, ServerRule},
    },
    ports::iso_source::IsoUrl,
};

use crate::SECRET;

/// What is accepted prints as something that is accepted as the same. What is shown of a URL has no user, no query and
/// no token.
pub(crate) fn check(data: &[u8]) {
    let text = crate::text(data);
    iso(&text);
    server(&text);
    if let Ok(pattern) = text.parse::<HostPattern>() {
        let again = pattern.to_string().parse::<HostPattern>();
        assert_eq!(again.as_ref(), Ok(&pattern), "{pattern}");
    }
    if let Ok(path) = DatastorePath::parse(&text) {
        let again = DatastorePath::parse(&path.to_string());
        assert_eq!(again.as_ref(), Ok(&path), "{path}");
        assert!(!path.path.split('/').any(|part| part == ".."), "{path}");
    }
}

fn iso(text: &str) {
    let Ok(url) = IsoUrl::parse(text) else {
        return;
    };
    let shown = url.redacted();
    assert_eq!(format!("{url} {url:?}"), format!("{shown} {shown}"));
    let again = IsoUrl::parse(&shown).unwrap_or_else(|e| panic!("{shown}: {e}"));
    assert_eq!(again.redacted(), shown, "what is shown stays as it is");
    let bare = again.expose();
    let hidden = bare.username().is_empty() && bare.password().is_none() && bare.query().is_none();
    assert!(hidden && bare.fragment().is_none(), "{shown}");
    assert_eq!(again.server(), url.server());
    let (path, shown_path) = (url.expose().path(), again.expose().path());
    let same_depth = path.matches('/').count() == shown_path.matches('/').count();
    assert!(!url.is_assisted() || same_depth, "{shown}");
    if url.is_assisted() {
        let segments = |url: &IsoUrl| -> Vec<String> {
            let all = url.expose().path_segments().into_iter().flatten();
            all.map(str::to_owned).collect()
        };
        for (pair, shown) in segments(&url).windows(2).zip(segments(&again).windows(2)) {
            let is_token = matches!(pair[0].as_str(), "byapikey" | "bytoken");
            assert!(!is_token || shown[1] == "REDACTED", "{shown:?}");
        }
    }
}

fn server(text: &str) {
    let rule = ServerRule::default();
    match rule.parse(text) {
        Ok(url) => {
            assert_eq!(rule.parse(url.as_str()).as_ref(), Ok(&url), "{url}");
            let plain = url.username().is_empty() && url.password().is_none();
            assert!(
                plain && url.scheme() == "https" && url.path() == "/",
                "{url}"
            );
        }
        Err(error) => {
            let said = error.to_string();
            let hidden = !text.contains(&format!(":{SECRET}@")) || !said.contains(SECRET);
            assert!(hidden, "{said}");
        }
    }
}

pub(crate) fn examples() -> Vec<Vec<u8>> {
    let iso = |path: &str| format!("https://img.example:8443/{path}");
    let texts = [
        iso(&format!("byapikey/{SECRET}/4.19/x86_64/full.iso")),
        iso(&format!(
            "bytoken/{SECRET}/4.19/x86_64/minimal.iso?x={SECRET}"
        )),
        iso(&format!("/bytoken/{SECRET}/4.19/x86_64/full.iso")),
        iso("byid/5d0f7b1c/4.19/x86_64/full.iso"),
        format!("http://user:{SECRET}@mirror/{SECRET}/x.iso#{SECRET}"),
        "vcenter.example.com".to_owned(),
        "https://vcenter.example.com:443/sdk".to_owned(),
        format!("https://user:{SECRET}@vcenter.example.com"),
        "[2001:db8::1]:8443".to_owned(),
        "*.example.com".to_owned(),
        "169.254.169.254".to_owned(),
        "[iso-datastore] agent-forge/demo/demo-worker/discovery.iso".to_owned(),
        "[vsan] 5d0f7b1c-6f0e/../x".to_owned(),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}
