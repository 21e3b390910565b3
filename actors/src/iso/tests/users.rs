//! Before an old ISO is removed, users are asked about the drives of their VMs. Also: the effect of one VM that cannot
//! be read.

use std::{collections::BTreeSet, sync::Arc};

use super::upkeep::{old, pruned, settle};
use crate::{
    domain::names::ObjectKey,
    iso::{
        msg::IsoWant,
        testing::{
            bench::{Bench, want},
            store::{Store, Stored},
        },
    },
    sessions::users::User,
};

async fn with_old_iso() -> Bench {
    let mut bench = Bench::new().await;
    bench
        .store
        .with(|c| c.files.insert(old(1).to_string(), Stored::of_size(1)));
    settle(&mut bench).await;
    bench
}

/// The user of another pool, with VMs on record at these vCenters.
fn another(servers: &[&str]) -> User {
    User {
        secret: ObjectKey::new("other", "vcenter"),
        namespace: "other".to_owned(),
        servers: servers.iter().map(|s| (*s).to_owned()).collect(),
    }
}

/// The other user's login leads to that vCenter.
fn login(bench: &Bench, store: Arc<Store>) {
    let mut sessions = bench.sessions.0.lock().expect("lock");
    sessions.insert(another(&[]).secret, store);
}

fn letting_go(users: Vec<User>) -> IsoWant {
    IsoWant {
        prunable: vec![old(1)],
        users,
        ..want("a")
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_only_another_user_sees_keeps_its_iso() {
    for mounted in [true, false] {
        let mut bench = with_old_iso().await;
        let theirs = Arc::new(Store::default());
        if mounted {
            theirs.with(|c| c.mounted = vec![old(1).to_string()]);
        }
        login(&bench, theirs.clone());
        let (gone, kept) = pruned(&mut bench, &letting_go(vec![another(&[])])).await;
        assert_eq!(
            (gone.len(), kept.len()),
            if mounted { (0, 1) } else { (1, 0) }
        );
        assert!(theirs.count("mounted_isos") > 0, "it is asked");
    }
}

/// Its login does not work. It may be the user of VMs in this vCenter, or of another vCenter.
#[tokio::test(start_paused = true)]
async fn a_user_that_cannot_be_asked_counts_where_it_has_vms() {
    for (servers, stays) in [(["vc"], true), (["another"], false)] {
        let mut bench = with_old_iso().await;
        let (gone, kept) = pruned(&mut bench, &letting_go(vec![another(&servers)])).await;
        assert_eq!((gone.is_empty(), kept.len()), (stays, usize::from(stays)));
        if stays {
            assert!(kept[0].1.contains("other/vcenter"), "{}", kept[0].1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_cannot_be_read_holds_back_what_lies_on_its_datastores() {
    for (store, stays) in [(Some("ds1"), true), (None, true), (Some("ds2"), false)] {
        let mut bench = with_old_iso().await;
        bench
            .store
            .with(|c| c.unread.insert("away".to_owned(), store));
        let (gone, kept) = pruned(&mut bench, &letting_go(Vec::new())).await;
        assert_eq!(
            (gone.is_empty(), kept.len()),
            (stays, usize::from(stays)),
            "{store:?}"
        );
        let named: BTreeSet<bool> = kept
            .iter()
            .map(|(_, why)| why.contains("VM away"))
            .collect();
        assert!(!named.contains(&false), "{kept:?}");
    }
}
