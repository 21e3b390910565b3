//! The first data of a lab's etcd: those of an API server that was started once, with its CRDs established.
//!
//! A first boot creates roles, priority classes and CRDs, and builds the API description again for each CRD. It takes
//! two to three times the processor time of a later boot, and a run of all tests boots dozens of labs. So the data
//! directory of one first boot is kept on each machine, under a key of all its inputs. Each lab starts on a copy of its
//! own.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, task::spawn_blocking};

use super::crds;
use crate::{
    parts::{ApiServer, Etcd, kubeconfig, leash::HeldDirectory},
    patience::ANSWER,
    tools::{self, cache},
};

/// Change this value when older data must no longer be used.
const MAKING: &str = "1";
const PREFIX: &str = "seed-";
/// The file that proves a complete seed. It appears when the directory with it is renamed.
const WHOLE: &str = "etcd/member/snap/db";
/// The copy checks blocks of this size for zeros, because etcd reserves far more space than it fills.
const BLOCK: usize = 64 * 1024;

/// Fills `data`, the data directory of an etcd that is about to start, so that `definitions` are established.
///
/// # Errors
/// The first boot fails, or the store of this machine cannot be read or written.
pub(super) async fn plant(definitions: &[Value], data: &Path) -> Result<()> {
    let (definitions, data) = (definitions.to_vec(), data.to_owned());
    let runtime = Handle::current();
    spawn_blocking(move || {
        let key = key(&[tools::etcd()?, tools::kube_apiserver()?], &definitions)?;
        let whole = cache::entry(&key, WHOLE, |into| {
            cache::forget_old(PREFIX, &key);
            runtime.block_on(first_boot(&definitions, &into.join("etcd")))
        })
        .context("create the first data of the lab's etcd")?;
        let seed = whole
            .ancestors()
            .nth(3)
            .context("a seed has a parent directory")?;
        copy(seed, &data)
    })
    .await
    .context("copy the first data of the lab's etcd")?
}

/// Name of the seed in the store. It depends on the programs and on the definitions.
fn key(programs: &[PathBuf], definitions: &[Value]) -> Result<String> {
    let mut digest = Sha256::new_with_prefix(MAKING);
    for program in programs {
        let file = fs::metadata(program).with_context(|| format!("read {}", program.display()))?;
        digest.update(format!("{}:{}:", program.display(), file.len()));
    }
    for definition in definitions {
        digest.update(definition.to_string());
    }
    let digest = hex::encode(digest.finalize());
    Ok(format!("{PREFIX}{}", &digest[..16]))
}

async fn first_boot(definitions: &[Value], into: &Path) -> Result<()> {
    let directory = tempfile::Builder::new()
        .prefix("agent-forge-seed-")
        .tempdir()
        .context("create a temporary directory")?;
    let dir = directory.path();
    let _held = HeldDirectory::new(dir)?;
    let etcd = Etcd::start(dir).await?;
    let server = ApiServer::start(dir, etcd.url()).await?;
    let admin = kubeconfig::kubeconfig(server.endpoint(), "lab-admin", server.admin(), "default");
    let client = kubeconfig::client(&kubeconfig::config(admin).await?)?;
    crds::establish(&client, definitions).await?;
    crds::served(&client, definitions, &server.process).await?;
    server.process.stop(ANSWER).await?;
    etcd.process.stop(ANSWER).await?;
    copy(&Etcd::data(dir), into)
}

/// Copies a directory with its content. A block of zeros becomes a hole in the file.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    // etcd refuses a directory that others may read.
    let permissions = fs::metadata(from)
        .with_context(|| format!("read {}", from.display()))?
        .permissions();
    fs::set_permissions(to, permissions).with_context(|| format!("guard {}", to.display()))?;
    for item in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let item: PathBuf = item
            .with_context(|| format!("list {}", from.display()))?
            .path();
        let target = to.join(item.file_name().unwrap_or_default());
        if item.is_dir() {
            copy(&item, &target)?;
        } else {
            copy_file(&item, &target)
                .with_context(|| format!("copy {} to {}", item.display(), target.display()))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let mut block = vec![0; BLOCK];
    let mut length = 0_u64;
    loop {
        let read = source.read(&mut block)?;
        if read == 0 {
            break;
        }
        length += read as u64;
        let bytes = &block[..read];
        if bytes.iter().all(|byte| *byte == 0) {
            target.seek(SeekFrom::Current(i64::try_from(read)?))?;
        } else {
            target.write_all(bytes)?;
        }
    }
    target.set_len(length)?;
    target.set_permissions(source.metadata()?.permissions())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_definitions_or_programs_are_another_seed() {
        let root = tempfile::tempdir().expect("temporary directory");
        let program = root.path().join("etcd");
        let of = |definitions: &[Value]| {
            key(std::slice::from_ref(&program), definitions).expect("the program is there")
        };
        let (one, two) = (json!({"kind": "One"}), json!({"kind": "Two"}));
        fs::write(&program, "old").expect("writable");
        let first = of(std::slice::from_ref(&one));
        assert_eq!(first, of(std::slice::from_ref(&one)));
        assert_ne!(first, of(&[one.clone(), two]));
        fs::write(&program, "newer").expect("writable");
        assert_ne!(first, of(&[one]));
    }
}
