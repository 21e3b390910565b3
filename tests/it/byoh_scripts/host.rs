//! A host of plain files: a small Debian below a folder, entered by `chroot`. Programs that would change a real host are played
//! by `stub.sh`.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// What the scripts and the stub use of Debian.
const REAL: &str = "bash cat chmod cmp cp cut dirname env grep head id install ln ls mkdir mv rm rmdir sed sha256sum sort stat sync \
     tac tail touch tr wc";
/// What `stub.sh` plays, and what is only asked for.
const PLAYED: &str =
    "imgpkg modprobe sysctl swapoff swapon systemctl conntrack ip iptables mount nsenter";

const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
     /swap.img                               file\t\t2097148\t\t0\t\t-2\n";

/// Mounts a folder on another one, and enters the host. What the kernel tells of mounts is that of the script's own process.
const BIND: &str = r#"mount --bind "$2" "$3" && mount --bind "/proc/$$/mountinfo" "$1/proc/self/mountinfo" || exit 125
exec chroot "$1" /bin/bash -c "$4""#;
/// How that ends where nothing can be mounted.
const CANNOT_BIND: i32 = 125;

/// A folder that is a host.
pub struct Host {
    root: tempfile::TempDir,
    enter: Vec<&'static str>,
}

/// One file, folder or link of a host: its mode, what is in it, and when it was written.
pub type File = (u32, Vec<u8>, (i64, i64));

impl Host {
    /// A host with swap, before anything was installed. `None` with a line that says why this machine has none.
    pub fn new() -> Result<Option<Self>> {
        let root = tempfile::tempdir()?;
        for folder in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(root.path().join("usr").join(folder))?;
        }
        for folder in ["bin", "sbin", "lib", "lib64"] {
            let real = Path::new("/").join(folder);
            if real.is_symlink() {
                symlink(fs::read_link(real)?, root.path().join(folder))?;
            }
        }
        let mut host = Self {
            root,
            enter: Vec::new(),
        };
        for program in REAL.split_whitespace() {
            host.take(program)?;
        }
        let ways: [&[&str]; 2] = [&["chroot"], &["unshare", "--map-root-user", "chroot"]];
        let enters = |way: &&&[&str]| {
            let tried = Command::new(way[0])
                .args(&way[1..])
                .arg(host.root.path())
                .args(["/bin/bash", "-c", "[ $(id -u) = 0 ]"])
                .output();
            tried.is_ok_and(|done| done.status.success())
        };
        let Some(way) = ways.iter().find(enters) else {
            eprintln!("SKIPPED: neither chroot nor unshare --map-root-user can be used here");
            return Ok(None);
        };
        host.enter = way.to_vec();
        host.furnish()?;
        Ok(Some(host))
    }

    /// Copies a program of this machine, with its libraries.
    fn take(&self, program: &str) -> Result<()> {
        let found = Command::new("which").arg(program).output()?;
        let path = String::from_utf8(found.stdout)?.trim().to_owned();
        let linked = Command::new("ldd").arg(&path).output()?;
        let linked = String::from_utf8(linked.stdout)?;
        let libraries = linked
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        for file in libraries.chain([path.as_str()]) {
            let to = self.path(file);
            if !to.exists() {
                fs::create_dir_all(to.parent().context("a folder")?)?;
                fs::copy(file, &to).with_context(|| format!("{program}: copy {file}"))?;
            }
        }
        Ok(())
    }

    fn furnish(&self) -> Result<()> {
        for folder in [
            "dev",
            "etc/cni/net.d",
            "etc/systemd/system/multi-user.target.wants",
            "proc/self",
            "proc/sys/net/ipv4",
            "run",
            "stub/images",
            "sys/module",
            "tmp",
            "usr/local/bin",
            "var/lib",
            "var/log",
        ] {
            fs::create_dir_all(self.path(folder))?;
        }
        for (file, text) in [
            ("dev/null", ""),
            ("etc/cni/net.d/theirs.conf", "of others\n"),
            (
                "etc/fstab",
                "/dev/sda1 / ext4 defaults 0 1\n#/old none swap sw 0 0\n/swap.img\tnone\tswap\tsw\t0\t0\n",
            ),
            ("etc/systemd/system/theirs.service", "of others\n"),
            (
                "proc/self/mountinfo",
                "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n",
            ),
            ("proc/swaps", SWAPS),
            ("proc/sys/net/ipv4/ip_forward", "0\n"),
            ("stub/fails", ""),
            ("stub/swaps", SWAPS),
        ] {
            fs::write(self.path(file), text)?;
        }
        for program in PLAYED.split_whitespace() {
            let to = self.path("usr/local/bin").join(program);
            fs::write(&to, include_str!("stub.sh"))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Where that path of the host is on this machine.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Writes a file of the host, with its folders.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.path(path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        Ok(fs::write(path, text)?)
    }

    /// Puts the folder `from` where imgpkg finds the image with that digest.
    pub fn offer(&self, from: &Path, digest: &str) -> Result<PathBuf> {
        let to = self
            .path("stub/images")
            .join(digest.trim_start_matches("sha256:"));
        let done = Command::new("cp").arg("-R").arg(from).arg(&to).status()?;
        ensure!(done.success(), "copy {}", from.display());
        Ok(to)
    }

    /// Runs a script as the agent of BYOH does. `fails`: see `stub.sh`.
    pub fn run(&self, script: &str, fails: &str) -> Result<Output> {
        let mut command = Command::new(self.enter[0]);
        command.args(&self.enter[1..]).arg(self.root.path());
        self.ended(command.args(["/bin/bash", "-c", script]), fails)
    }

    /// Runs a script while the folder `from` of the host is mounted on its folder `to`, too. The kernel tells of it. `None` with a line
    /// that says why this machine cannot.
    pub fn run_bound(&self, script: &str, from: &str, to: &str) -> Result<Option<Output>> {
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if self.enter[0] == "unshare" {
            command.arg("--map-root-user");
        }
        command.args(["bash", "-c", BIND, "bash"]);
        command.args([self.root.path(), &self.path(from), &self.path(to)]);
        let done = self.ended(command.arg(script), "")?;
        if done.status.code() == Some(CANNOT_BIND) {
            eprintln!("SKIPPED: mount --bind cannot be used here");
            return Ok(None);
        }
        Ok(Some(done))
    }

    fn ended(&self, command: &mut Command, fails: &str) -> Result<Output> {
        self.write("stub/calls", "")?;
        self.write("stub/fails", fails)?;
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .output()
            .context("enter the host")
    }

    /// Runs a script that has to end well. Returns which programs it called.
    pub fn succeed(&self, script: &str) -> Result<Vec<String>> {
        let done = self.run(script, "")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "the script failed: {said}");
        let calls = fs::read_to_string(self.path("stub/calls"))?;
        Ok(calls.lines().map(str::to_owned).collect())
    }

    /// What the kernel shows after a boot: no module that is not asked for, and the values of the start.
    pub fn as_booted(&self) -> Result<()> {
        for folder in ["proc/sys/net/bridge", "sys/module"] {
            if self.path(folder).exists() {
                fs::remove_dir_all(self.path(folder))?;
            }
        }
        fs::create_dir(self.path("sys/module"))?;
        self.write("proc/sys/net/ipv4/ip_forward", "0\n")?;
        self.write("proc/swaps", SWAPS)
    }

    /// Everything below the root, apart from what plays the host.
    pub fn files(&self) -> Result<BTreeMap<PathBuf, File>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let path = entry.path();
                let inside = path.strip_prefix(self.root.path())?.to_owned();
                if ["dev", "stub", "usr/lib", "lib64"]
                    .iter()
                    .any(|own| inside == Path::new(own))
                {
                    continue;
                }
                let about = fs::symlink_metadata(&path)?;
                let content = if about.is_symlink() {
                    fs::read_link(&path)?.into_os_string().into_encoded_bytes()
                } else if about.is_dir() {
                    folders.push(path);
                    Vec::new()
                } else {
                    fs::read(&path)?
                };
                found.insert(
                    inside,
                    (about.mode(), content, (about.mtime(), about.mtime_nsec())),
                );
            }
        }
        Ok(found)
    }
}
