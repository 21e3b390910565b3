//! The certificates that a pool names for its image service (`spec.iso.caBundleRef`).

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::{
    conditions::Reason,
    pool::{CaBundleRef, VsphereAgentPool},
};
use kube::ResourceExt;

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    ports::cluster::Cluster,
};

/// How long a read value is used. The operator does not watch ConfigMaps.
const FRESH: Duration = Duration::from_secs(20);

/// The last read: for which reference, when (monotonic), and the result.
#[derive(Clone, Debug)]
pub struct CaRead {
    named: CaBundleRef,
    at: Duration,
    bundle: Result<Option<String>, ReconcileError>,
}

/// The bundle that the pool names. `None` if it names none.
///
/// # Errors
/// The bundle is not available. The message says what to correct.
pub async fn bundle(
    cluster: &dyn Cluster,
    now: Duration,
    pool: &VsphereAgentPool,
    known: &mut Option<CaRead>,
) -> Result<Option<String>, ReconcileError> {
    let named = pool.spec.iso.as_ref().and_then(|i| i.ca_bundle_ref.clone());
    let Some(named) = named else {
        *known = None;
        return Ok(None);
    };
    let fresh = |k: &&CaRead| k.named == named && now.saturating_sub(k.at) < FRESH;
    if let Some(known) = known.as_ref().filter(fresh) {
        return known.bundle.clone();
    }
    let key = ObjectKey::new(pool.namespace().unwrap_or_default(), &named.name);
    let bundle = match cluster.config_map(&key).await {
        Ok(data) => chosen(&key, named.key(), data.as_ref()).map(Some),
        Err(e) => Err(ReconcileError::from(e)),
    };
    *known = Some(CaRead {
        named,
        at: now,
        bundle: bundle.clone(),
    });
    bundle
}

/// The certificates in the data of a ConfigMap. `None`: it does not exist. Pure.
///
/// # Errors
/// There are none under the key `entry`. The message says what to correct.
pub fn chosen(
    key: &ObjectKey,
    entry: &str,
    data: Option<&BTreeMap<String, String>>,
) -> Result<String, ReconcileError> {
    let no = |reason, why: String| {
        Err(ReconcileError::blocked(
            ErrorSource::Iso,
            reason,
            format!("spec.iso.caBundleRef: {why}"),
        ))
    };
    let Some(data) = data else {
        return no(
            Reason::IsoCaBundleMissing,
            format!("ConfigMap {key} does not exist; create it"),
        );
    };
    match data.get(entry) {
        None => no(
            Reason::IsoCaBundleMissing,
            format!("ConfigMap {key} has no key {entry:?} in its data; add it or name another key"),
        ),
        Some(pem) if !pem.contains("-----BEGIN CERTIFICATE-----") => no(
            Reason::InvalidIsoCaBundle,
            format!("key {entry:?} of ConfigMap {key} holds no PEM certificate"),
        ),
        Some(pem) => Ok(pem.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_no_certificate_is_named() {
        let key = ObjectKey::new("demo", "image-ca");
        let data = |k: &str, v: &str| BTreeMap::from([(k.to_owned(), v.to_owned())]);
        let pem = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n";
        let good = data("ca-bundle.crt", pem);
        assert_eq!(
            chosen(&key, "ca-bundle.crt", Some(&good)),
            Ok(pem.to_owned())
        );
        for (entry, data, reason, told) in [
            (
                "ca-bundle.crt",
                None,
                Reason::IsoCaBundleMissing,
                "demo/image-ca does not exist",
            ),
            (
                "other",
                Some(&good),
                Reason::IsoCaBundleMissing,
                "no key \"other\"",
            ),
            (
                "k",
                Some(&data("k", "-----BEGIN PRIVATE KEY-----")),
                Reason::InvalidIsoCaBundle,
                "no PEM certificate",
            ),
        ] {
            let no = chosen(&key, entry, data).expect_err(told);
            assert_eq!(no.reason, reason);
            assert!(no.message.contains(told) && no.message.contains("spec.iso.caBundleRef"));
        }
    }
}
