//! VM folders. Missing segments of a path are created one by one.

use agent_forge_actors::{
    effect::Effect,
    model::names::MoRef,
    ports::vcenter::{Fault, VcResult},
};
use serde::Serialize;

use super::{
    cache::STRUCTURE,
    call::Call,
    client::Client,
    lookup::{candidates, unresolved},
    wire::Ref,
};

#[derive(Serialize)]
struct CreateFolder<'a> {
    name: &'a str,
}

impl Client {
    /// The folder at `path` below the datacenter's `vm` folder. An empty path means that folder itself.
    pub(super) async fn folder(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &str,
    ) -> VcResult<MoRef> {
        let key = (datacenter.clone(), path.to_owned());
        let ensure = self.ensure_folder(effect, datacenter, path);
        self.cache.folders.get_or(key, STRUCTURE, ensure).await
    }

    async fn ensure_folder(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &str,
    ) -> VcResult<MoRef> {
        let below = self.datacenter_path(datacenter).await?;
        let root = format!("{below}/vm");
        let Some(wanted) = candidates(&below, "vm", path).into_iter().next() else {
            return Err(unresolved("folder", path, "not a folder path"));
        };
        let wanted = wanted.trim_matches('/').to_owned();
        if let Some(found) = self.at_path(&wanted).await? {
            return if found.kind == "Folder" {
                Ok(found)
            } else {
                Err(unresolved(
                    "folder",
                    path,
                    format!("the object of that path is a {}", found.kind),
                ))
            };
        }
        let Some(mut parent) = self.at_path(&root).await? else {
            return Err(unresolved(
                "folder",
                path,
                "the datacenter's VM folder is not visible to this user",
            ));
        };
        let Some(rest) = wanted.strip_prefix(&format!("{root}/")) else {
            return Err(unresolved(
                "folder",
                path,
                "not below the VM folder of the datacenter",
            ));
        };
        let mut here = root;
        for name in rest.split('/') {
            if name.is_empty() {
                return Err(unresolved("folder", path, "a folder name is empty"));
            }
            here = format!("{here}/{name}");
            parent = match self.at_path(&here).await? {
                Some(found) if found.kind == "Folder" => found,
                Some(found) => {
                    return Err(unresolved(
                        "folder",
                        path,
                        format!("{here} is a {}", found.kind),
                    ));
                }
                None => self.create_folder(effect, &parent, name, &here).await?,
            };
        }
        Ok(parent)
    }

    async fn create_folder(
        &self,
        effect: &Effect,
        parent: &MoRef,
        name: &str,
        path: &str,
    ) -> VcResult<MoRef> {
        let call = Call::new(parent, "CreateFolder", &CreateFolder { name }).about(path);
        let undecodable = || {
            unresolved(
                "folder",
                path,
                "vCenter did not say which folder it created",
            )
        };
        match self.mutate::<Ref>(effect, call).await {
            Ok(created) => created.map(MoRef::from).ok_or_else(undecodable),
            // Another caller was quicker, most likely for another VM of the same pool.
            Err(e) => match e.fault() {
                Some(Fault::DuplicateName {
                    holder: Some(holder),
                    ..
                }) if holder.kind == "Folder" => Ok(holder.clone()),
                Some(Fault::DuplicateName { .. }) => match self.at_path(path).await? {
                    Some(found) if found.kind == "Folder" => Ok(found),
                    _ => Err(e),
                },
                _ => Err(e),
            },
        }
    }
}
