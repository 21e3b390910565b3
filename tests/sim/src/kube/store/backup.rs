//! A hub that is lost and restored: its objects as they were some time ago, or as a backup tool writes them.
//!
//! Guarantee: no event shows the change, as when an etcd is replaced under its API server. Every watch has to list
//! again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{Kind, Name, Store, text};

/// All objects at one moment.
#[derive(Clone, Debug)]
pub struct Backup(BTreeMap<Kind, BTreeMap<Name, Arc<Value>>>);

impl Store {
    /// All objects as they are now.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup(self.objects.clone())
    }

    /// An etcd is replaced by its backup: the objects of that group have the versions that they had then. (A real one does so
    /// with all, and counts on from there. Here no version is given twice, and played controllers never see an older one.)
    pub fn roll_back(&mut self, backup: &Backup, group: &str) {
        self.restore(backup);
        for (kind, objects) in &backup.0 {
            if kind.0 == group {
                self.objects.insert(kind.clone(), objects.clone());
            }
        }
    }

    /// A backup tool writes all objects again.
    pub fn restore(&mut self, backup: &Backup) {
        let lost = std::mem::replace(&mut self.objects, backup.0.clone());
        for (kind, objects) in &mut self.objects {
            let lost = lost.get(kind);
            for (name, object) in objects {
                if lost.and_then(|l| l.get(name)) != Some(&*object) {
                    self.revision += 1;
                    version(Arc::make_mut(object), self.revision);
                }
            }
        }
        self.begin_anew();
    }

    /// Replaces all objects by what `change` makes of them.
    pub fn rewrite(&mut self, mut change: impl FnMut(&Kind, &mut Value)) {
        let mut backup = self.backup();
        for (kind, objects) in &mut backup.0 {
            for object in objects.values_mut() {
                change(kind, Arc::make_mut(object));
            }
        }
        self.restore(&backup);
    }

    /// Restores the objects of these namespaces under new uids. Owner references get the new uids too, except in
    /// objects of the kinds `stale`, which keep those of the backup.
    pub fn rebear(&mut self, namespaces: &[&str], stale: &[Kind]) {
        let mut uids: BTreeMap<String, String> = BTreeMap::new();
        let all: BTreeSet<String> = self
            .objects
            .values()
            .flatten()
            .filter(|((namespace, _), _)| namespaces.contains(&namespace.as_str()))
            .map(|(_, o)| text(o, "/metadata/uid").to_owned())
            .collect();
        for old in all {
            uids.insert(old, self.uid());
        }
        let new = |old: &Value| uids.get(old.as_str().unwrap_or_default());
        self.rewrite(|kind, object| {
            if let Some(uid) = new(&object["metadata"]["uid"]) {
                object["metadata"]["uid"] = json!(uid);
            }
            let owners = object.pointer_mut("/metadata/ownerReferences");
            let owners = owners.and_then(Value::as_array_mut);
            let owners = owners.filter(|_| !stale.contains(kind));
            for owner in owners.into_iter().flatten() {
                if let Some(uid) = new(&owner["uid"]) {
                    owner["uid"] = json!(uid);
                }
            }
        });
    }

    fn begin_anew(&mut self) {
        self.revision += 1;
        self.compacted = self.revision;
        self.disasters.push(self.revision);
    }
}

fn version(object: &mut Value, revision: u64) {
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{now, store},
        *,
    };

    #[test]
    fn what_is_restored_is_as_it_was_under_a_new_version() {
        let (mut store, kind, name) = store();
        let before = store.get(&kind, &name).expect("thing");
        let backup = store.backup();
        store.delete(&kind, &name, &json!({}), now()).expect("held");
        let other = json!({"metadata": {"name": "b"}});
        store.create(&kind, "n", other, now()).expect("another");
        store.restore(&backup);
        assert_eq!(store.list(&kind, "").len(), 1);
        let after = store.get(&kind, &name).expect("thing");
        assert_eq!(after["metadata"].get("deletionTimestamp"), None);
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        let version = |o: &Value| {
            text(o, "/metadata/resourceVersion")
                .parse::<u64>()
                .expect("a number")
        };
        assert!(version(&after) > version(&before));
        assert_eq!(store.compacted, store.revision(), "all list anew");
    }

    #[test]
    fn what_is_reborn_has_new_uids_and_owners_that_follow() {
        let (mut store, kind, name) = store();
        let old = store.get(&kind, &name).expect("thing")["metadata"]["uid"].clone();
        let owned =
            json!({"metadata": {"name": "b", "ownerReferences": [{"name": "a", "uid": old}]}});
        store.create(&kind, "n", owned, now()).expect("owned");
        store.rebear(&["n"], &[]);
        let new = store.get(&kind, &name).expect("thing")["metadata"]["uid"].clone();
        assert_ne!(new, old);
        let owned = store
            .get(&kind, &("n".to_owned(), "b".to_owned()))
            .expect("owned");
        assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], new);
        assert!(store.orphans().is_empty());
        store.rebear(&["n"], &[kind]);
        assert_eq!(store.orphans().len(), 1, "its owner is another now");
    }
}
