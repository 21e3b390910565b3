//! `agent-forge iso`: which ISO versions pools keep, where they come from, and which VMs mount them.
//!
//! It reads the pools from the API server and makes rows from their statuses. It asks each vCenter once what is in the
//! drives of its VMs. It uses the credentials of the kubeconfig, and changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_actors::{
    domain::names::{DatastorePath, ObjectKey},
    iso::of_pool::kept,
    migration::iso::shown,
    ports::vcenter::Drives,
    sessions::secret_ref,
};
use agent_forge_crds::VsphereAgentPool;
use anyhow::Context as _;
use clap::Args as ClapArgs;
use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;

use super::{
    AskVcenter, Asked,
    report::{self, Report, Verdict},
    sight,
    vcenters::Vcenters,
};
use crate::{
    args::Args,
    cluster::scope::{self, Part, Scope},
};

/// A Secret, and the namespace of the pools that use it.
type User = (ObjectKey, String);

/// What is in the drives of all VMs, or why that is not known.
type Mounted = Result<Drives, String>;

/// How many VMs are named in a row.
const NAMED: usize = 3;

/// What `agent-forge iso` shows.
#[derive(Clone, Debug, ClapArgs)]
pub struct IsoArgs {
    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,

    /// Whether vCenter is asked.
    #[command(flatten)]
    pub vcenter: AskVcenter,
}

/// The ISO versions that pools keep.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Isos {
    versions: Vec<Version>,
    /// Why it is not known what some VMs have mounted.
    unknown: BTreeSet<String>,
}

/// One version that a pool keeps. A `?` is not recorded.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    pool: String,
    current: bool,
    sha256: String,
    size: String,
    age: String,
    mounted_by: String,
    path: String,
    source: String,
}

/// Reads the pools, and what is in the drives of the VMs of their vCenters.
///
/// # Errors
/// The API server does not answer, or refuses the list of pools. A vCenter that does not answer is a note in the table.
pub async fn run(args: &Args, asked: &IsoArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let all = Scope::of(&args.namespaces).parts();
    let own = asked.asked.place.namespace.clone().map(|n| vec![Some(n)]);
    let pools = pools(client, own.as_deref().unwrap_or(&all)).await?;
    let mut mounted = BTreeMap::new();
    if !asked.vcenter.offline {
        let bound = args.secret_bound();
        let secrets: BTreeSet<User> = pools.iter().filter_map(|p| secret_of(p, bound)).collect();
        let mut recorded: Vec<_> = pools.iter().cloned().map(Arc::new).collect();
        if own.is_some() {
            // A refusal counts for the account, so a pool of another namespace may have it on record. Without the right to
            // list those, only the ones of this namespace are known.
            let others = self::pools(client, &all).await.unwrap_or_default();
            recorded.extend(others.into_iter().map(Arc::new));
        }
        let vcenters = Vcenters::new(args, client, recorded);
        for user in secrets {
            let found = in_drives(&vcenters, &user).await;
            mounted.insert(user, found.map_err(|e| format!("{e:#}")));
        }
        vcenters.close().await;
    }
    report::print(
        &isos(&pools, &mounted, Timestamp::now()),
        asked.asked.output,
    )
}

async fn pools(client: &Client, parts: &[Part]) -> anyhow::Result<Vec<VsphereAgentPool>> {
    let mut pools = Vec::new();
    for part in parts {
        let api: Api<VsphereAgentPool> = scope::api(client, part);
        let listed = api.list(&ListParams::default()).await;
        pools.extend(listed.context("listing VsphereAgentPools")?.items);
    }
    Ok(pools)
}

/// The Secret that the pool names, and the pool's namespace. `None` if the operator may not read the Secret.
fn secret_of(pool: &VsphereAgentPool, bound: &[String]) -> Option<User> {
    let secret = secret_ref::secret(pool, bound).ok()?;
    Some((secret, pool.namespace().unwrap_or_default()))
}

async fn in_drives(vcenters: &Vcenters, (key, namespace): &User) -> anyhow::Result<Drives> {
    Ok(vcenters.session(key, namespace).await?.drives().await?)
}

/// One row for each version that a pool's status names. The current version is marked.
fn isos(pools: &[VsphereAgentPool], mounted: &BTreeMap<User, Mounted>, now: Timestamp) -> Isos {
    let of_pool = |pool| {
        let known = secret_of(pool, &[]).and_then(|user| mounted.get(&user));
        versions(pool, known, now)
    };
    Isos {
        versions: pools.iter().flat_map(of_pool).collect(),
        unknown: mounted.iter().flat_map(unknown).collect(),
    }
}

impl Report for Isos {
    fn text(&self) -> String {
        if self.versions.is_empty() {
            return "no pool has an ISO yet\n".to_owned();
        }
        let row = |v: &Version| {
            let mark = if v.current { "*" } else { " " };
            vec![
                v.pool.clone(),
                format!("{mark}{}", v.sha256.get(..12).unwrap_or(&v.sha256)),
                v.size.clone(),
                v.age.clone(),
                v.mounted_by.clone(),
                v.path.clone(),
                v.source.clone(),
            ]
        };
        let header = [
            "POOL",
            "SHA-256",
            "SIZE",
            "AGE",
            "MOUNTED BY",
            "PATH",
            "SOURCE",
        ];
        let mut text = report::table(&header, self.versions.iter().map(row));
        if !self.unknown.is_empty() {
            text += "\nNot known which VMs have them mounted:\n";
            text.extend(
                self.unknown
                    .iter()
                    .map(|line| report::one_line(line) + "\n"),
            );
        }
        text
    }

    fn verdict(&self) -> Verdict {
        if self.unknown.is_empty() {
            Verdict::Nothing
        } else {
            Verdict::Unknown
        }
    }
}

/// Notes about the vCenter of a Secret: what is not known about all of its VMs, or about some of them.
fn unknown(((key, _), found): (&User, &Mounted)) -> Vec<String> {
    match found {
        Err(why) => vec![format!("{key}: {why}")],
        Ok(drives) => {
            let some = drives.unknown.iter().take(NAMED);
            let mut lines: Vec<String> = some
                .map(|(vm, unread)| format!("{key}: VM {vm}: {}", unread.error.message))
                .collect();
            let more = drives.unknown.len().saturating_sub(NAMED);
            if more > 0 {
                lines.push(format!("{key}: and {more} more VMs"));
            }
            lines
        }
    }
}

fn versions(pool: &VsphereAgentPool, known: Option<&Mounted>, now: Timestamp) -> Vec<Version> {
    let Some(iso) = pool.status.as_ref().and_then(|s| s.iso.as_ref()) else {
        return Vec::new();
    };
    let current = iso
        .stored_path
        .as_deref()
        .and_then(|p| DatastorePath::parse(p).ok());
    let name = format!(
        "{}/{}",
        pool.namespace().unwrap_or_default(),
        pool.name_any()
    );
    let row = |entry: &agent_forge_crds::pool::IsoHistoryEntry| {
        let path = kept::place(pool, entry);
        // If the file was looked for and not found, the status has no path but keeps the digest.
        let somewhere = iso.path.is_some() || iso.stored_path.is_some();
        let current = somewhere
            && iso.sha256.as_ref() == Some(&entry.sha256)
            && iso.path.as_ref().is_none_or(|path| *path == entry.path)
            && current.as_ref().is_none_or(|at| Some(at) == path.as_ref());
        let url = entry.url.as_ref().or(iso.url.as_ref().filter(|_| current));
        let mut source = url.map_or_else(|| "?".to_owned(), |url| shown(url));
        if current && iso.volatile == Some(true) {
            source += " (volatile)";
        }
        Version {
            pool: name.clone(),
            current,
            sha256: entry.sha256.clone(),
            size: entry.size_bytes.map_or_else(|| "?".to_owned(), size),
            age: entry
                .uploaded_at
                .as_ref()
                .map_or_else(|| "?".to_owned(), |t| report::age(now, t.0)),
            mounted_by: mounts(path.as_ref(), known),
            path: path.map_or_else(|| entry.path.clone(), |p| p.to_string()),
            source,
        }
    };
    iso.history.iter().map(row).collect()
}

/// Names of the VMs that mount the file: three, and how many more. Also says of how many VMs this is not known.
fn mounts(path: Option<&DatastorePath>, known: Option<&Mounted>) -> String {
    let (Some(path), Some(Ok(all))) = (path, known) else {
        return "?".to_owned();
    };
    // Retention decides by the same rule.
    let has = all.isos.iter().filter(|m| m.may_be(path));
    let vms: BTreeSet<&str> = has.map(|m| m.vm.as_str()).collect();
    let shown: Vec<&str> = vms.iter().take(NAMED).copied().collect();
    let known = match vms.len().saturating_sub(shown.len()) {
        _ if vms.is_empty() => None,
        0 => Some(shown.join(",")),
        more => Some(format!("{} and {more} more", shown.join(","))),
    };
    let unread = match all.unknown.len() {
        0 => None,
        1 => Some("unknown: 1 VM cannot be read".to_owned()),
        n => Some(format!("unknown: {n} VMs cannot be read")),
    };
    let parts: Vec<String> = known.into_iter().chain(unread).collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join("; ")
    }
}

fn size(bytes: i64) -> String {
    format!("{:.1}Mi", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use agent_forge_actors::ports::vcenter::{MountedIso, Unread, VcError, VcErrorKind};

    use super::*;

    fn table(
        pools: &[VsphereAgentPool],
        mounted: &BTreeMap<User, Mounted>,
        now: Timestamp,
    ) -> String {
        isos(pools, mounted, now).text()
    }

    fn no() -> VcError {
        VcError {
            kind: VcErrorKind::NoAnswer,
            operation: "RetrievePropertiesEx",
            subject: "VM".to_owned(),
            message: "may not be read".to_owned(),
            concealed: false,
        }
    }

    #[test]
    fn each_version_has_a_row_with_who_mounts_it() {
        let (new, old) = ("a".repeat(64), "b".repeat(64));
        let pool: VsphereAgentPool = serde_json::from_value(json!({
            "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgentPool",
            "metadata": {"name": "w", "namespace": "demo"},
            "spec": {"vsphere": {"credentialsSecretRef": {"name": "vc"}, "isoDatastore": "isos"}},
            "status": {"iso": {
                "sha256": new, "url": "https://img/byapikey/SECRET/x.iso", "volatile": true,
                "storedPath": format!("[isos] p/{new}.iso"), "path": format!("p/{new}.iso"),
                "history": [
                    {"sha256": new, "path": format!("p/{new}.iso"), "sizeBytes": 1 << 20,
                     "uploadedAt": "2026-01-02T00:00:00Z"},
                    {"sha256": old, "path": format!("p/{old}.iso"), "uploadedAt": "2026-01-01T00:00:00Z",
                     "url": "https://before/byapikey/SECRET/x.iso"},
                    {"sha256": new, "path": format!("own/{new}.iso"), "uploadedAt": "2025-12-31T00:00:00Z"},
                    {"sha256": new, "path": format!("p/{new}.iso"), "datastore": "left"},
                ],
            }},
        }))
        .expect("a pool");
        let drive = |vm: &str, sha: &str| MountedIso {
            iso: format!("[isos] /p/{sha}.iso"),
            vm: vm.to_owned(),
        };
        let now = "2026-01-02T00:05:00Z".parse().expect("a time");
        let drives: Vec<_> = (1..=5).map(|n| drive(&format!("vm-{n}"), &old)).collect();
        let all = |isos: Vec<MountedIso>, unread: &[&str]| Drives {
            isos,
            unknown: unread
                .iter()
                .map(|vm| {
                    let unread = Unread {
                        error: no(),
                        datastores: None,
                    };
                    ((*vm).to_owned(), unread)
                })
                .collect(),
        };
        let key = (ObjectKey::new("demo", "vc"), "demo".to_owned());
        let shown = table(
            std::slice::from_ref(&pool),
            &BTreeMap::from([(key.clone(), Ok(all(drives.clone(), &[])))]),
            now,
        );
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|l| {
                l.split("  ")
                    .map(str::trim)
                    .filter(|c| !c.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(lines.len(), 5, "{shown}");
        let current = ["demo/w", "*aaaaaaaaaaaa", "1.0Mi", "5m", "-"];
        assert_eq!(lines[1][..5], current, "{shown}");
        assert!(
            shown.contains("https://img/byapikey/REDACTED/x.iso (volatile)"),
            "{shown}"
        );
        assert_eq!(
            lines[2][1..5],
            ["bbbbbbbbbbbb", "?", "24h", "vm-1,vm-2,vm-3 and 2 more"],
            "{shown}"
        );
        assert_eq!(
            lines[2][6], "https://before/byapikey/REDACTED/x.iso",
            "{shown}"
        );
        let copy = [
            "aaaaaaaaaaaa",
            "?",
            "2d",
            "-",
            &format!("[isos] own/{new}.iso"),
            "?",
        ];
        assert_eq!(lines[3][1..], copy, "a copy is not the current one");
        let left = format!("[left] p/{new}.iso");
        let left = ["aaaaaaaaaaaa", "?", "?", "-", &left, "?"];
        assert_eq!(lines[4][1..], left, "nor is what lies elsewhere");
        // One VM could not be read. The table shows what is known, and must not say that no VM mounts a file.
        let partly = |unread: &[&str]| {
            let known = all(drives[..1].to_vec(), unread);
            table(
                std::slice::from_ref(&pool),
                &BTreeMap::from([(key.clone(), Ok(known))]),
                now,
            )
        };
        let one = partly(&["hidden"]);
        for said in [
            "  vm-1; unknown: 1 VM cannot be read  ",
            "  unknown: 1 VM cannot be read  ",
            "\nNot known which VMs have them mounted:\ndemo/vc: VM hidden: may not be read\n",
        ] {
            assert!(one.contains(said), "{said:?}\n{one}");
        }
        assert!(!one.contains("  -  "), "{one}");
        // A VM that keeps a version from being deleted is shown, even if vCenter does not show a datastore path.
        let mut odd = drive("vm-odd", &old);
        odd.iso = format!("[] /vmfs/volumes/5f3e-17/p/{old}.iso");
        let shown = table(
            std::slice::from_ref(&pool),
            &BTreeMap::from([(key.clone(), Ok(all(vec![odd], &[])))]),
            now,
        );
        let rows: Vec<&str> = shown.lines().filter(|l| l.contains("vm-odd")).collect();
        assert!(
            matches!(rows[..], [row] if row.contains(" bbbbbbbbbbbb ")),
            "{shown}"
        );
        let many = partly(&["e", "d", "c", "b", "a"]);
        assert!(
            many.contains("vm-1; unknown: 5 VMs cannot be read"),
            "{many}"
        );
        assert!(
            many.ends_with("VM c: may not be read\ndemo/vc: and 2 more VMs\n"),
            "{many}"
        );
        let mut lost = pool.clone();
        let iso = lost.status.as_mut().and_then(|s| s.iso.as_mut());
        let iso = iso.expect("an ISO");
        (iso.path, iso.stored_path) = (None, None);
        let nowhere = table(&[lost], &BTreeMap::new(), now);
        assert!(!nowhere.contains('*'), "no VM gets it: {nowhere}");
        let unknown = table(
            &[pool],
            &BTreeMap::from([(key, Err("no answer".to_owned()))]),
            now,
        );
        assert!(
            unknown.contains("demo/vc: no answer") && unknown.contains("  ?  "),
            "{unknown}"
        );
        assert_eq!(
            table(&[], &BTreeMap::new(), now),
            "no pool has an ISO yet\n"
        );
    }
}
