//! Whether the image server answers with an ISO, seen from here.

use agent_forge_actors::{
    pool::observed::Observed,
    ports::iso_source::{IsoRequest, IsoSource as _, IsoUrl},
};
use agent_forge_crds::conditions::Reason;

use super::Check;
use crate::{
    args::Args,
    iso_source::{self, HttpIsoSource},
};

/// One check, if the pool has an ISO address.
pub async fn checks(args: &Args, about: &str, s: &Observed) -> Option<Check> {
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
    if let Some(reference) = s
        .pool
        .spec
        .iso
        .as_ref()
        .and_then(|iso| iso.ca_bundle_ref.as_ref())
    {
        let says = format!(
            "the image server is not asked: its CA is in ConfigMap {}",
            reference.name
        );
        return Some(Check::green(check, about, says));
    }
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
    let request = IsoRequest { url, ca_pem: None };
    // The download is dropped as soon as it has begun.
    Some(match source.open(&request).await {
        Ok(_) => Check::green(check, about, format!("{shown} can be downloaded from here")),
        Err(e) => {
            let trouble = agent_forge_actors::domain::failure::ReconcileError::from(e);
            Check::because(check, about, &trouble.reason, trouble.message)
        }
    })
}
