//! What an InfraEnv puts into its ISO, and which hosts booted from an ISO with something else in it. Pure, but for [`read`].
//!
//! Each ISO of the assisted service has a `createdTime`, and every change of its content makes a new one. So a host is
//! outdated if its ISO is older than the first one with the present content. An NMStateConfig that comes for another host
//! makes a new ISO too, and outdates nobody else: only what the ISO says of the host's own cards counts.
//!
//! Guarantee: a host of which something is unknown is not outdated.
//!
//! Caveat: if the operator first sees an ISO after somebody has edited the InfraEnv and before the service has made the next ISO,
//! hosts that boot from it in that moment count as if they had the edit.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_crds::{
    Time,
    external::{infra_env::InfraEnv, nmstate_config::NMStateConfig},
    pool::{HostNetwork, ImageStatus, IsoStatus, MAX_HOST_NETWORKS},
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{domain::identity::MacAddress, ports::cluster::Cluster};

/// Bytes of a digest. They tell the contents of one InfraEnv apart, and prove nothing.
const DIGEST: usize = 8;

/// What an InfraEnv puts into the ISO that it offers, as it was first seen with that ISO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageContent {
    created: Time,
    content: String,
    networks: Networks,
}

/// What an InfraEnv gives the network cards of single hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Networks {
    /// It chooses nothing, or more than is kept.
    None,
    /// Digests by MAC address.
    Of(BTreeMap<String, String>),
    /// They could not be read.
    Unread,
}

/// When the service made the ISO on record.
#[must_use]
pub fn created(iso: &IsoStatus) -> Option<Time> {
    iso.image.as_ref()?.created.clone()
}

/// What the InfraEnv puts into its present ISO. `known`: as it was seen with that ISO before. `None`: the service does not say
/// when it made the ISO.
pub async fn read(
    cluster: &dyn Cluster,
    infra_env: &InfraEnv,
    known: Option<ImageContent>,
) -> Option<ImageContent> {
    let created = infra_env.created_time()?;
    let known = known.filter(|known| known.created == *created);
    let is_read = |known: &&ImageContent| known.networks != Networks::Unread;
    if let Some(known) = known.as_ref().filter(is_read) {
        return Some(known.clone());
    }
    let labels = infra_env.network_labels();
    let networks = if labels.is_empty() {
        Networks::None
    } else {
        let namespace = infra_env.namespace().unwrap_or_default();
        let (most, read) = (MAX_HOST_NETWORKS, |config: &NMStateConfig| {
            networks(config, &labels)
        });
        match cluster.live_network_configs(&namespace, most, &read).await {
            Ok(found) => within_bound(found),
            Err(e) => {
                // It is read again in each pass.
                if known.is_none() {
                    tracing::warn!("NMStateConfigs of namespace {namespace} are not known: {e}");
                }
                Networks::Unread
            }
        }
    };
    Some(ImageContent {
        created: created.clone(),
        content: content(infra_env),
        networks,
    })
}

/// `status.iso.image` once the ISO is on the datastore. `macs`: those of the pool's VMs. While the networks could not be read,
/// the ISO has no time: hosts that boot from it count as unknown, and the earlier record is what the next ISO is compared with.
#[must_use]
pub fn image(
    before: Option<&ImageStatus>,
    seen: &ImageContent,
    macs: &BTreeSet<MacAddress>,
) -> Option<ImageStatus> {
    let same_iso = before.filter(|b| b.created.as_ref() == Some(&seen.created));
    if let Some(before) = same_iso {
        return Some(before.clone());
    }
    let networks = match &seen.networks {
        Networks::None => None,
        Networks::Of(found) => Some(found),
        Networks::Unread => {
            return before.map(|before| ImageStatus {
                created: None,
                ..before.clone()
            });
        }
    };
    let since = |known: Option<(&String, &Option<Time>)>, now: &String| match known {
        Some((then, since)) if then == now => since.clone(),
        _ => before.map(|_| seen.created.clone()),
    };
    let content = before.map(|b| (&b.content, &b.content_since));
    Some(ImageStatus {
        created: Some(seen.created.clone()),
        content_since: since(content, &seen.content),
        content: seen.content.clone(),
        host_networks: networks.map(|now| {
            let before = before.and_then(|b| b.host_networks.as_ref());
            host_networks(before, now, &seen.created, macs)
        }),
    })
}

fn host_networks(
    before: Option<&Vec<HostNetwork>>,
    now: &BTreeMap<String, String>,
    created: &Time,
    macs: &BTreeSet<MacAddress>,
) -> Vec<HostNetwork> {
    let known: BTreeMap<&str, &HostNetwork> = (before.into_iter().flatten())
        .map(|h| (h.mac.as_str(), h))
        .collect();
    let new = before.map(|_| created.clone());
    let present = now.iter().map(|(mac, config)| {
        let same = known.get(mac.as_str()).filter(|h| h.config == *config);
        HostNetwork {
            mac: mac.clone(),
            config: config.clone(),
            since: same.map_or_else(|| new.clone(), |h| h.since.clone()),
        }
    });
    // A host whose configuration went still has it, until it boots again.
    let ours = |mac: &str| MacAddress::parse(mac).is_some_and(|mac| macs.contains(&mac));
    let gone = known
        .iter()
        .filter(|(mac, _)| !now.contains_key(**mac) && ours(mac));
    let gone = gone.map(|(mac, h)| HostNetwork {
        mac: (*mac).to_owned(),
        config: String::new(),
        since: if h.config.is_empty() {
            h.since.clone()
        } else {
            new.clone()
        },
    });
    present.chain(gone).take(MAX_HOST_NETWORKS).collect()
}

/// The ISO of a host says something else than the one on record. `booted`: when the service made the host's. `macs`: its cards.
#[must_use]
pub fn is_outdated(iso: Option<&IsoStatus>, booted: Option<&Time>, macs: &[MacAddress]) -> bool {
    let Some((image, booted)) = iso.and_then(|iso| iso.image.as_ref()).zip(booted) else {
        return false;
    };
    let later = |since: &Option<Time>| since.as_ref().is_some_and(|since| since.0 > booted.0);
    let own = |h: &&HostNetwork| MacAddress::parse(&h.mac).is_some_and(|mac| macs.contains(&mac));
    let mut networks = image.host_networks.iter().flatten().filter(own);
    later(&image.content_since) || networks.any(|h| later(&h.since))
}

/// A digest of what all hosts get. A field that is empty counts as absent, so that a default that a newer definition writes
/// changes nothing.
fn content(infra_env: &InfraEnv) -> String {
    let spec = &infra_env.spec;
    let filled = |value: &Option<Value>| match value {
        Some(Value::Object(map)) if map.is_empty() => Value::Null,
        Some(Value::Array(list)) if list.is_empty() => Value::Null,
        Some(Value::String(text)) if text.is_empty() => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    };
    digest(&json!([
        filled(&spec.proxy),
        filled(&spec.additional_trust_bundle),
        filled(&spec.ssh_authorized_key),
        filled(&spec.kernel_arguments),
        filled(&spec.ignition_config_override),
        filled(&spec.additional_ntp_sources),
        spec.os_image_version.as_ref().filter(|v| !v.is_empty()),
        infra_env.network_labels(),
    ]))
}

/// The configuration by MAC address, if it has these labels.
fn networks(config: &NMStateConfig, labels: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let own = config.labels();
    if labels
        .iter()
        .any(|(key, value)| own.get(key) != Some(value))
    {
        return Vec::new();
    }
    let digest = digest(&json!([config.spec.interfaces, config.spec.config]));
    let macs = config.spec.interfaces.iter();
    let macs = macs.filter_map(|card| MacAddress::parse(&card.mac_address));
    macs.map(|mac| (mac.to_string(), digest.clone())).collect()
}

fn within_bound(found: BTreeMap<String, String>) -> Networks {
    match found.len() <= MAX_HOST_NETWORKS {
        true => Networks::Of(found),
        false => Networks::None,
    }
}

fn digest(value: &Value) -> String {
    hex::encode(&Sha256::digest(value.to_string().as_bytes())[..DIGEST])
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).expect("a time"))
    }

    fn infra_env(spec: Value) -> InfraEnv {
        let object = json!({"metadata": {"name": "infra", "namespace": "demo"}, "spec": spec});
        serde_json::from_value(object).expect("it parses")
    }

    fn seen(second: i64, spec: Value, configs: &[(&str, &str)]) -> ImageContent {
        let env = infra_env(spec);
        let all: Vec<NMStateConfig> = configs
            .iter()
            .map(|(mac, config)| {
                let object = json!({
                    "metadata": {"name": mac.replace(':', "-"), "labels": {"env": "a"}},
                    "spec": {"config": {"dns": config}, "interfaces": [{"name": "eth0", "macAddress": mac}]},
                });
                serde_json::from_value(object).expect("it parses")
            })
            .collect();
        let labels = env.network_labels();
        ImageContent {
            created: at(second),
            content: content(&env),
            networks: match labels.is_empty() {
                true => Networks::None,
                false => within_bound(all.iter().flat_map(|c| networks(c, &labels)).collect()),
            },
        }
    }

    /// Records one ISO after the other, and tells after the last one whether a host with that card, which booted from the ISO
    /// of that second, is outdated.
    fn outdated(isos: &[ImageContent], booted: Option<i64>, mac: &str) -> bool {
        let mac = MacAddress::parse(mac).expect("an address");
        let mut image_now = None;
        for seen in isos {
            image_now = image(image_now.as_ref(), seen, &[mac].into());
        }
        let iso = IsoStatus {
            image: image_now,
            ..IsoStatus::default()
        };
        is_outdated(Some(&iso), booted.map(at).as_ref(), &[mac])
    }

    const MAC: &str = "00:50:56:00:00:01";
    const OTHER: &str = "00:50:56:00:00:02";

    #[test]
    fn each_field_that_a_guest_gets_outdates_the_hosts_that_booted_before() {
        let plain = json!({"proxy": {}, "sshAuthorizedKey": ""});
        for change in [
            json!({"proxy": {"httpProxy": "http://proxy.example"}}),
            json!({"additionalTrustBundle": "PEM"}),
            json!({"sshAuthorizedKey": "ssh-ed25519 AAAA"}),
            json!({"osImageVersion": "4.20"}),
            json!({"kernelArguments": [{"operation": "append", "value": "quiet"}]}),
            json!({"ignitionConfigOverride": "{}"}),
            json!({"additionalNTPSources": ["ntp.example"]}),
            json!({"nmStateConfigLabelSelector": {"matchLabels": {"env": "a"}}}),
        ] {
            let isos = [seen(1, plain.clone(), &[]), seen(2, change.clone(), &[])];
            assert!(outdated(&isos, Some(1), MAC), "{change}");
            assert!(
                !outdated(&isos, Some(2), MAC),
                "{change}: it has the new one"
            );
            assert!(!outdated(&isos, None, MAC), "{change}: unknown");
            assert!(
                !outdated(&isos[1..], Some(1), MAC),
                "{change}: unknown before"
            );
        }
    }

    #[test]
    fn what_no_guest_gets_outdates_nobody() {
        let isos = [
            seen(1, json!({"proxy": {}}), &[]),
            seen(
                2,
                json!({"agentLabels": {"a": "b"}, "agentApproval": {"autoApprove": true}}),
                &[],
            ),
            seen(3, json!({"sshAuthorizedKey": ""}), &[]),
        ];
        assert!(!outdated(&isos, Some(1), MAC));
    }

    #[test]
    fn only_the_network_configuration_of_its_own_cards_outdates_a_host() {
        let spec = json!({"nmStateConfigLabelSelector": {"matchLabels": {"env": "a"}}});
        let iso = |second, configs: &[(&str, &str)]| seen(second, spec.clone(), configs);
        let own = [(MAC, "one")];
        let steps: [(&str, Vec<ImageContent>, bool); 6] = [
            (
                "one comes for another host",
                vec![iso(1, &own), iso(2, &[(MAC, "one"), (OTHER, "x")])],
                false,
            ),
            (
                "another host's changes",
                vec![
                    iso(1, &[(MAC, "one"), (OTHER, "x")]),
                    iso(2, &[(MAC, "one"), (OTHER, "y")]),
                ],
                false,
            ),
            (
                "its own changes",
                vec![iso(1, &own), iso(2, &[(MAC, "two")])],
                true,
            ),
            (
                "its own comes",
                vec![
                    iso(1, &[(OTHER, "x")]),
                    iso(2, &[(OTHER, "x"), (MAC, "one")]),
                ],
                true,
            ),
            (
                "its own goes",
                vec![iso(1, &own), iso(2, &[]), iso(3, &[])],
                true,
            ),
            (
                "all are as they were",
                vec![iso(1, &own), iso(2, &own)],
                false,
            ),
        ];
        for (what, isos, expected) in steps {
            assert_eq!(outdated(&isos, Some(1), MAC), expected, "{what}");
            let last = isos.last().map(|seen| seen.created.0.as_second());
            assert!(
                !outdated(&isos, last, MAC),
                "{what}: it booted the last one"
            );
        }
    }

    #[test]
    fn what_could_not_be_read_for_one_iso_is_compared_with_the_next_one() {
        let spec = json!({"nmStateConfigLabelSelector": {"matchLabels": {"env": "a"}}});
        let iso = |second, config| seen(second, spec.clone(), &[(MAC, config)]);
        let unread = |second| ImageContent {
            networks: Networks::Unread,
            ..iso(second, "")
        };
        let isos = [iso(1, "one"), unread(2), iso(3, "two")];
        assert!(
            outdated(&isos, Some(1), MAC),
            "changed at the second or third"
        );
        assert!(!outdated(&isos, Some(3), MAC));
        // A host that boots from the second one does not know from when it is.
        let first = image(None, &isos[0], &BTreeSet::new());
        let second = image(first.as_ref(), &isos[1], &BTreeSet::new());
        assert_eq!(second.map(|image| image.created), Some(None));
        // The same ISO is read later.
        let isos = [iso(1, "one"), unread(2), iso(2, "two")];
        assert!(outdated(&isos, Some(1), MAC));
        let isos = [iso(1, "one"), unread(2), iso(2, "one")];
        assert!(!outdated(&isos, Some(1), MAC));
        assert!(image(None, &unread(1), &BTreeSet::new()).is_none());
    }

    #[test]
    fn too_many_configurations_are_unknown() {
        let spec = json!({"nmStateConfigLabelSelector": {"matchLabels": {"env": "a"}}});
        let macs: Vec<String> = (0..=MAX_HOST_NETWORKS)
            .map(|n| format!("00:50:56:00:{:02x}:{:02x}", n / 256, n % 256))
            .collect();
        let all =
            |config| -> Vec<(&str, &str)> { macs.iter().map(|m| (m.as_str(), config)).collect() };
        let many = [
            seen(1, spec.clone(), &all("one")),
            seen(2, spec, &all("two")),
        ];
        assert!(!outdated(&many, Some(1), MAC));
    }
}
