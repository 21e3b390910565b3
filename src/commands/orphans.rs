//! `agent-forge orphans`: VMs with this cluster's marker that no VsphereAgent records. The judgement is that of the
//! operator's scan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_actors::{
    domain::names::MoRef,
    orphans::judge::{self, Orphan, Why},
    ports::{
        cluster::View as _,
        vcenter::{MarkedVm, VCenter},
    },
    sessions::users,
};
use agent_forge_crds::{VsphereAgent, names::RESTORED_FROM_ANNOTATION};
use clap::Args as ClapArgs;
use serde::Serialize;

use super::{
    Asked,
    report::{self, Report, Verdict},
    sight::{self, Sight},
    vcenters::Vcenters,
};
use crate::{args::Args, cluster::view::Caches};

/// What `agent-forge orphans` shows.
#[derive(Clone, Debug, ClapArgs)]
pub struct OrphansArgs {
    /// Which VMs, by the namespace in their marker, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,
}

/// The orphans.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Orphans {
    /// Identity of this cluster.
    cluster_id: String,
    orphans: Vec<Row>,
    /// VMs with the marker of another cluster.
    of_others: usize,
    /// VMs without configuration: their owner is not known.
    bare: Vec<String>,
    /// vCenters that could not be asked.
    unknown: BTreeSet<String>,
}

/// One VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    server: String,
    vm: String,
    moref: String,
    power: &'static str,
    owner: String,
    attempt: u32,
    why: &'static str,
    fate: &'static str,
    /// A command that gives it to the VsphereAgent of that name, which was restored with another uid.
    link: Option<String>,
}

/// What the users of one vCenter see.
#[derive(Default)]
struct Sightings {
    marked: BTreeMap<String, MarkedVm>,
    bare: BTreeSet<String>,
}

/// Looks for orphans.
///
/// # Errors
/// The cluster cannot be read.
pub async fn run(args: &Args, asked: &OrphansArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let before = Sight::with(args, client).await?;
    let vcenters = Vcenters::new(args, &before.client, before.caches.pools());
    let mut unknown = BTreeSet::new();
    let mut seen: BTreeMap<String, Sightings> = BTreeMap::new();
    for user in users::all(&before.caches, args.secret_bound()) {
        let session = vcenters.session(&user.secret, &user.namespace).await;
        let found = match session {
            Ok(session) => survey(session, &mut seen).await,
            Err(e) => Err(e),
        };
        if let Err(e) = found {
            unknown.insert(format!(
                "{} for pools of {}: {e:#}",
                user.secret, user.namespace
            ));
        }
    }
    vcenters.close().await;
    // The record of a VM is older than the VM. So a list from after the survey has the record of each VM in it.
    let after = Sight::with(args, client).await?;
    let report = judge(
        &after.caches,
        &seen,
        unknown,
        asked.asked.place.namespace.as_deref(),
    );
    report::print(&report, asked.asked.output)
}

async fn survey(
    session: Arc<dyn VCenter>,
    seen: &mut BTreeMap<String, Sightings>,
) -> anyhow::Result<()> {
    let survey = session.survey().await?;
    let seen = seen.entry(session.server().to_owned()).or_default();
    let marked = survey
        .marked
        .iter()
        .map(|vm| (vm.moref.id.clone(), vm.clone()));
    seen.marked.extend(marked);
    let bare = survey.bare.iter();
    seen.bare
        .extend(bare.map(|vm| format!("{} ({}): {}", vm.name, vm.moref.id, vm.connection_state)));
    Ok(())
}

fn judge(
    caches: &Caches,
    seen: &BTreeMap<String, Sightings>,
    unknown: BTreeSet<String>,
    namespace: Option<&str>,
) -> Orphans {
    let cluster_id = caches.cluster_id();
    let (children, pools) = (caches.all_children(), caches.pools());
    let mut found = Orphans {
        orphans: Vec::new(),
        of_others: 0,
        bare: Vec::new(),
        unknown,
        cluster_id,
    };
    for (server, seen) in seen {
        let vms: Vec<MarkedVm> = seen.marked.values().cloned().collect();
        let is_other = |vm: &&MarkedVm| vm.marker.cluster_id != found.cluster_id;
        found.of_others += vms.iter().filter(is_other).count();
        found
            .bare
            .extend(seen.bare.iter().map(|vm| format!("{server}: {vm}")));
        // The operator removes only what it saw in two scans.
        let known: BTreeSet<MoRef> = vms.iter().map(|vm| vm.moref.clone()).collect();
        let records = children.iter().map(AsRef::as_ref);
        let mut orphans = judge::orphans(&vms, records, &found.cluster_id);
        orphans.retain(|orphan| {
            let over = caches.over_bound(&orphan.vm.marker.namespace);
            let is_known = over.is_none();
            found.unknown.extend(over);
            is_known
        });
        let row = |orphan: Orphan| {
            let goes = judge::may_go(&orphan, &known, pools.iter().map(AsRef::as_ref));
            Row {
                server: server.clone(),
                vm: orphan.vm.name.clone(),
                moref: orphan.vm.moref.id.clone(),
                power: orphan.vm.power.as_str(),
                owner: format!("{}/{}", orphan.vm.marker.namespace, orphan.vm.marker.name),
                attempt: orphan.vm.marker.attempt,
                why: orphan.why.explain(),
                link: link(&orphan, &children),
                fate: if goes {
                    "never ran; the operator removes it after its second scan"
                } else {
                    "stays; remove it by hand if nothing needs it"
                },
            }
        };
        let wanted = |o: &Orphan| namespace.is_none_or(|n| o.vm.marker.namespace == n);
        found
            .orphans
            .extend(orphans.into_iter().filter(wanted).map(row));
    }
    found
}

/// A VsphereAgent has the name in the mark and another uid: its hub was restored from a backup, or somebody made it anew.
fn link(orphan: &Orphan, children: &[Arc<VsphereAgent>]) -> Option<String> {
    let marker = &orphan.vm.marker;
    let at = |c: &&Arc<VsphereAgent>| {
        c.metadata.namespace.as_ref() == Some(&marker.namespace)
            && c.metadata.name.as_ref() == Some(&marker.name)
    };
    let child = children
        .iter()
        .find(at)
        .filter(|_| orphan.why == Why::NoRecord)?;
    let recorded = child.status.as_ref().and_then(|s| s.vm.as_ref());
    // The record of a restored one says that this is its VM; an empty one may find the first.
    let fits = recorded.map_or(marker.attempt == 1, |vm| {
        vm.moref.as_ref() == Some(&orphan.vm.moref.id)
    });
    fits.then(|| {
        format!(
            "kubectl annotate va {} -n {} {RESTORED_FROM_ANNOTATION}={}/{}",
            marker.name, marker.namespace, marker.uid, marker.attempt
        )
    })
}

impl Report for Orphans {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.orphans.is_empty() {
            let place = match self.unknown.is_empty() {
                true => "",
                false => " in what could be asked, which is not all",
            };
            text += &format!("no orphan VM of cluster {}{place}\n", self.cluster_id);
        } else {
            let rows = self.orphans.iter().map(|o| {
                let vm = format!("{} ({})", o.vm, o.moref);
                let owner = format!("{} #{}", o.owner, o.attempt);
                vec![
                    o.server.clone(),
                    vm,
                    o.power.to_owned(),
                    owner,
                    o.why.to_owned(),
                    o.fate.to_owned(),
                ]
            });
            text += &report::table(&["VCENTER", "VM", "POWER", "MARKER", "WHY", "FATE"], rows);
            text += "\ndocs/runbooks/AgentForgeOrphanVMs.md says how to remove one by hand\n";
            let links: Vec<&String> = self
                .orphans
                .iter()
                .filter_map(|o| o.link.as_ref())
                .collect();
            if !links.is_empty() {
                text += "\nIf the hub was restored with new uids, these lines give VMs to their VsphereAgents (docs/how-to/restore-a-hub.md):\n";
            }
            for link in links {
                text += &format!("{}\n", report::one_line(link));
            }
        }
        if self.of_others > 0 {
            text += &format!(
                "{} VMs have the marker of another cluster\n",
                self.of_others
            );
        }
        for vm in &self.bare {
            text += &format!(
                "not known whose it is, vCenter shows no configuration: {}\n",
                report::one_line(vm)
            );
        }
        for why in &self.unknown {
            text += &format!("could not ask: {}\n", report::one_line(why));
        }
        text
    }

    fn verdict(&self) -> Verdict {
        if !self.unknown.is_empty() {
            Verdict::Unknown
        } else if self.orphans.is_empty() && self.bare.is_empty() {
            Verdict::Nothing
        } else {
            Verdict::Findings
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::{
        domain::{marker::Marker, names::ObjectKey},
        ports::vcenter::PowerState,
    };

    use super::*;
    use crate::testing::{CHILD_UID, CLUSTER, World};

    fn vm(moref: &str, cluster: &str, uid: &str, power: PowerState) -> MarkedVm {
        MarkedVm {
            moref: MoRef::new("VirtualMachine", moref),
            name: format!("name-{moref}"),
            marker: Marker {
                cluster_id: cluster.to_owned(),
                namespace: "demo".to_owned(),
                name: "w-1".to_owned(),
                uid: uid.to_owned(),
                attempt: 1,
            },
            power,
            has_boot_order: false,
            marks: Default::default(),
            num_cpus: None,
            memory_mib: None,
        }
    }

    fn seen(vms: Vec<MarkedVm>) -> BTreeMap<String, Sightings> {
        let marked = vms
            .into_iter()
            .map(|vm| (vm.moref.id.clone(), vm))
            .collect();
        let seen = Sightings {
            marked,
            bare: BTreeSet::new(),
        };
        BTreeMap::from([("vc".to_owned(), seen)])
    }

    fn found(vms: Vec<MarkedVm>, unknown: &[&str], namespace: Option<&str>) -> Orphans {
        let unknown = unknown.iter().map(|u| (*u).to_owned()).collect();
        let caches = World::serving().caches();
        judge(&caches, &seen(vms), unknown, namespace)
    }

    #[test]
    fn a_recorded_vm_is_no_orphan_and_others_are_told_with_their_fate() {
        let (on, off) = (PowerState::On, PowerState::Off);
        let recorded = vm("vm-42", CLUSTER, CHILD_UID, on);
        let clean = found(vec![recorded.clone()], &[], None);
        assert_eq!(clean.verdict(), Verdict::Nothing);
        assert!(
            clean.text().contains("no orphan VM of cluster cluster"),
            "{}",
            clean.text()
        );
        let all = vec![
            recorded,
            vm("vm-1", CLUSTER, "u-gone", on),
            vm("vm-2", CLUSTER, "u-gone", off),
            vm("vm-3", "another", "u-gone", on),
            vm("vm-4", CLUSTER, CHILD_UID, on),
        ];
        let some = found(all, &[], None);
        let fates: Vec<_> = some
            .orphans
            .iter()
            .map(|o| (o.moref.as_str(), o.fate.split(';').next()))
            .collect();
        assert_eq!(
            fates,
            [
                ("vm-1", Some("stays")),
                ("vm-2", Some("never ran")),
                ("vm-4", Some("stays"))
            ]
        );
        assert_eq!((some.of_others, some.verdict()), (1, Verdict::Findings));
        let text = some.text();
        for said in [
            "name-vm-1 (vm-1)",
            "it is a copy of the VM",
            "AgentForgeOrphanVMs.md",
            "1 VMs have the marker of another",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let elsewhere = found(vec![vm("vm-1", CLUSTER, "u-gone", on)], &[], Some("x"));
        assert_eq!(elsewhere.orphans, []);
    }

    #[test]
    fn a_vm_of_a_namespace_of_which_a_part_is_unknown_is_no_orphan() {
        let caches = World::serving().caches();
        let large = ObjectKey::new("demo", "large");
        assert!(!caches.meter.put("Agent", &large, None, u64::MAX));
        let vms = vec![vm("vm-1", CLUSTER, "u-gone", PowerState::Off)];
        let report = judge(&caches, &seen(vms), BTreeSet::new(), None);
        assert_eq!(report.orphans, []);
        assert_eq!(report.verdict(), Verdict::Unknown);
        let text = report.text();
        assert!(text.contains("could not ask: namespace demo "), "{text}");
    }

    #[test]
    fn a_vcenter_that_could_not_be_asked_is_no_good_news() {
        let report = found(vec![], &["demo/vc: no answer"], None);
        assert_eq!(report.verdict(), Verdict::Unknown);
        assert!(report.text().contains("could not ask: demo/vc: no answer"));
    }
}
