//! Datastore files.

use bytes::Bytes;
use serde_json::{Value, json};

use super::model::{Fault, File, Inventory, boxed};

/// Datastore and path of `[datastore] path`.
///
/// # Errors
/// `InvalidDatastorePath`.
pub fn split(path: &str) -> Result<(String, String), Fault> {
    let parts = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let invalid = || Fault::new("InvalidDatastorePath", json!({"datastorePath": path}));
    let (store, file) = parts.ok_or_else(invalid)?;
    let file = file.trim().trim_end_matches('/');
    Ok((store.to_owned(), file.to_owned()))
}

fn file_fault(kind: &str, path: &str) -> Fault {
    Fault::new(kind, json!({"file": path}))
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/'))
}

impl Inventory {
    fn has_store(&self, name: &str) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|(r, n)| r.kind == "Datastore" && n.name == name)
    }

    /// Whether a directory exists. The root of a datastore always does.
    #[must_use]
    pub fn is_directory(&self, store: &str, path: &str) -> bool {
        let key = (store.to_owned(), path.to_owned());
        path.is_empty() && self.has_store(store) || self.directories.contains(&key)
    }

    /// `HostDatastoreBrowserSearchResults` of a directory.
    ///
    /// # Errors
    /// `FileNotFound`.
    pub fn browse(&self, directory: &str, patterns: &[Value]) -> Result<Value, Fault> {
        let (store, path) = split(directory)?;
        if !self.is_directory(&store, &path) {
            return Err(file_fault("FileNotFound", directory));
        }
        let fits =
            |name: &str| patterns.is_empty() || patterns.iter().any(|p| p == "*" || p == name);
        let direct = |full: &str| {
            let rest = if path.is_empty() {
                Some(full)
            } else {
                full.strip_prefix(&path)?.strip_prefix('/')
            }?;
            (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
        };
        let mut files = Vec::new();
        for (_, full) in self.directories.iter().filter(|(s, _)| *s == store) {
            if let Some(name) = direct(full).filter(|n| fits(n)) {
                files.push(json!({"_typeName": "FolderFileInfo", "path": name}));
            }
        }
        for ((_, full), file) in self.files.iter().filter(|((s, _), _)| *s == store) {
            if let Some(name) = direct(full).filter(|n| fits(n)) {
                files.push(json!({
                    "_typeName": "IsoImageFileInfo", "path": name, "fileSize": file.bytes.len(), "modification": file.modified,
                }));
            }
        }
        Ok(
            json!({"_typeName": "HostDatastoreBrowserSearchResults", "folderPath": directory, "file": files}),
        )
    }

    /// Makes a directory with its parents.
    ///
    /// # Errors
    /// `FileAlreadyExists`, `FileNotFound` for an unknown datastore.
    pub fn make_directory(&mut self, name: &str) -> Result<(), Fault> {
        let (store, path) = split(name)?;
        if !self.has_store(&store) {
            return Err(Fault::new("InvalidDatastore", json!({"name": store})));
        }
        let taken = self.is_directory(&store, &path)
            || self.files.contains_key(&(store.clone(), path.clone()));
        if taken {
            return Err(file_fault("FileAlreadyExists", name));
        }
        self.parents(&store, &format!("{path}/x"));
        Ok(())
    }

    /// Makes the directories above a file.
    pub fn parents(&mut self, store: &str, path: &str) {
        let mut at = 0;
        while let Some(next) = path[at..].find('/') {
            self.directories
                .insert((store.to_owned(), path[..at + next].to_owned()));
            at += next + 1;
        }
    }

    /// The name of a connected drive of a running VM that uses this file, or a file below this path.
    fn opened(&self, store: &str, path: &str) -> bool {
        let name = format!("[{store}] {path}");
        let running = self.vms.values().filter(|vm| vm.on);
        running
            .flat_map(|vm| &vm.devices)
            .filter(|d| d["_typeName"] == "VirtualCdrom" && d["connectable"]["connected"] == true)
            .filter_map(|d| d["backing"]["fileName"].as_str())
            .any(|open| open == name || is_below(open, &name))
    }

    /// Moves a file into a directory that exists. The option `force` is not simulated.
    ///
    /// # Errors
    /// `FileNotFound`, `FileAlreadyExists`, `FileLocked`.
    pub fn move_file(&mut self, from: &str, to: &str) -> Result<(), Fault> {
        let (source, target) = (split(from)?, split(to)?);
        if !self.files.contains_key(&source) {
            return Err(file_fault("FileNotFound", from));
        }
        if source == target {
            return Ok(());
        }
        if self.opened(&source.0, &source.1) {
            return Err(file_fault("FileLocked", from));
        }
        if self.files.contains_key(&target) || self.is_directory(&target.0, &target.1) {
            return Err(file_fault("FileAlreadyExists", to));
        }
        let parent = target.1.rsplit_once('/').map_or("", |(p, _)| p);
        if !self.is_directory(&target.0, parent) {
            return Err(file_fault("FileNotFound", to));
        }
        if let Some(file) = self.files.remove(&source) {
            self.files.insert(target, file);
        }
        Ok(())
    }

    /// Deletes a file, or a directory with its content.
    ///
    /// # Errors
    /// `FileNotFound`, `FileLocked`.
    pub fn delete_file(&mut self, name: &str) -> Result<(), Fault> {
        let (store, path) = split(name)?;
        let key = (store.clone(), path.clone());
        let known = self.files.contains_key(&key) || self.directories.contains(&key);
        if !known {
            return Err(file_fault("FileNotFound", name));
        }
        if self.opened(&store, &path) {
            return Err(file_fault("FileLocked", name));
        }
        let stays = |s: &str, p: &str| s != store || (p != path && !is_below(p, &path));
        self.files.retain(|(s, p), _| stays(s, p));
        self.directories.retain(|(s, p)| stays(s, p));
        Ok(())
    }

    /// Stores an upload. The directory has to exist.
    ///
    /// # Errors
    /// An HTTP status.
    pub fn upload(
        &mut self,
        store: &str,
        path: &str,
        bytes: Bytes,
        modified: String,
    ) -> Result<u16, u16> {
        let parent = path.rsplit_once('/').map_or("", |(p, _)| p);
        if !self.is_directory(store, parent) {
            return Err(404);
        }
        if self.opened(store, path) {
            return Err(500);
        }
        let key = (store.to_owned(), path.to_owned());
        let old = self.files.insert(key, File { bytes, modified });
        Ok(if old.is_some() { 200 } else { 201 })
    }

    /// The result of a search task.
    #[must_use]
    pub fn boxed_search(found: Value) -> Value {
        // A data object contains its type name and needs no wrapper. An array does.
        if found.is_array() {
            boxed("ArrayOfHostDatastoreBrowserSearchResults", found)
        } else {
            found
        }
    }
}
