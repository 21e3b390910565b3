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

/// One check, if the pool has an ISO address.
pub async fn checks(args: &Args, client: &Client, about: &str, s: &Observed) -> Option<Check> {
    let check = "image";
    let url = s.infra_env.as_ref()?.iso_download_url()?.clone();
    let Ok(url) = IsoUrl::parse(url.expose()) else {
        let message = "status.isoDownloadURL of the InfraEnv is no http(s) URL";
        return Some(Check::because(
            check,
            about,
            &Reason::InvalidIsoUrl,
            message,
        ));
    };
    let ca_pem = match bundle(client, s).await {
        Ok(Ok(pem)) => pem,
        Ok(Err(trouble)) => {
            let (reason, message) = (trouble.reason, trouble.message);
            return Some(Check::because(check, about, &reason, message));
        }
        Err(unread) => {
            let says = format!("the image server is not asked: {unread:#}");
            let page = "docs/how-to/manage-the-iso.md";
            return Some(Check::yellow(check, about, says).todo("Ask with another user.", page));
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
        Err(e) => return Some(Check::yellow(check, about, e.to_string())),
    };
    let shown = url.redacted();
    let request = IsoRequest { url, ca_pem };
    // The download is dropped as soon as it has begun.
    Some(match source.open(&request).await {
        Ok(_) => Check::green(check, about, format!("{shown} can be downloaded from here")),
        Err(e) => {
            let trouble = ReconcileError::from(e);
            Check::because(check, about, &trouble.reason, trouble.message)
        }
    })
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
