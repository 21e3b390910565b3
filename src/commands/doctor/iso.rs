//! Whether the image server answers with an ISO, seen from here.

use agent_forge_actors::{
    iso::of_pool::ca,
    pool::observed::Observed,
    ports::iso_source::{IsoRequest, IsoSource as _, IsoUrl},
};
use agent_forge_crds::conditions::Reason;

use agent_forge_actors::domain::{failure::ReconcileError, names::ObjectKey};
use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use super::Check;
use crate::{
    args::Args,
    iso_source::{self, HttpIsoSource},
};

/// The checks of the ISO's address, if the pool has one.
pub async fn checks(args: &Args, client: &Client, about: &str, s: &Observed) -> Vec<Check> {
    let url = s.infra_env.as_ref().and_then(|i| i.iso_download_url());
    let Some(url) = url else {
        return Vec::new();
    };
    let Ok(url) = IsoUrl::parse(url.expose()) else {
        let message = "status.isoDownloadURL of the InfraEnv is no http(s) URL";
        let invalid = Check::because("image", about, &Reason::InvalidIsoUrl, message);
        return vec![invalid];
    };
    let mut all: Vec<Check> = transport(about, &url).into_iter().collect();
    all.push(download(args, client, about, s, url).await);
    all
}

/// Nobody can tell who wrote what comes over plain http.
pub fn transport(about: &str, url: &IsoUrl) -> Option<Check> {
    let says = format!(
        "{} is plain http: anybody on the way can change what the hosts boot",
        url.redacted()
    );
    let todo = "Let the image service use https. Its CA may be your own.";
    let page = "docs/how-to/manage-the-iso.md#trust-an-image-service-with-its-own-ca";
    let found = Check::yellow("transport", about, says).todo(todo, page);
    url.is_plain().then_some(found)
}

async fn download(args: &Args, client: &Client, about: &str, s: &Observed, url: IsoUrl) -> Check {
    let check = "image";
    let ca_pem = match bundle(client, s).await {
        Ok(Ok(pem)) => pem,
        Ok(Err(trouble)) => {
            let (reason, message) = (trouble.reason, trouble.message);
            return Check::because(check, about, &reason, message);
        }
        Err(unread) => {
            let says = format!("the image server is not asked: {unread:#}");
            let page = "docs/how-to/manage-the-iso.md";
            return Check::yellow(check, about, says).todo("Ask with another user.", page);
        }
    };
    let extra_ca_pem = args
        .iso_ca_file
        .as_ref()
        .and_then(|path| std::fs::read_to_string(path).ok());
    let source = HttpIsoSource::new(iso_source::Options {
        allow_local: args.iso_allow_local_source,
        max_bytes: args.iso_max_bytes,
        extra_ca_pem,
        ..iso_source::Options::default()
    });
    let source = match source {
        Ok(source) => source,
        Err(e) => return Check::yellow(check, about, e.to_string()),
    };
    let shown = url.redacted();
    let request = IsoRequest { url, ca_pem };
    // The download is dropped as soon as it has begun.
    match source.open(&request).await {
        Ok(_) => Check::green(check, about, format!("{shown} can be downloaded from here")),
        Err(e) => {
            let trouble = ReconcileError::from(e);
            Check::because(check, about, &trouble.reason, trouble.message)
        }
    }
}

/// The certificates in the ConfigMap that the pool names. The outer error: it cannot be read.
async fn bundle(
    client: &Client,
    s: &Observed,
) -> anyhow::Result<Result<Option<String>, ReconcileError>> {
    let iso = s.pool.spec.iso.as_ref();
    let Some(named) = iso.and_then(|iso| iso.ca_bundle_ref.as_ref()) else {
        return Ok(Ok(None));
    };
    let key = ObjectKey::new(&s.key.namespace, &named.name);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await;
    let found = found.with_context(|| format!("reading ConfigMap {key} with its CA"))?;
    let data = found.map(|map| map.data.unwrap_or_default());
    Ok(ca::chosen(&key, named.key(), data.as_ref()).map(Some))
}
