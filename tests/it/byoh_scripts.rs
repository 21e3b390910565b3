//! The built-in payload of the BYOH installer: the bundle that a command makes, the scripts in a host of plain files, and the
//! judge of templates beside Go's own.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod host;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Arc,
};

use agent_forge_actors::byoh::scripts::{Bundle, Request, Scripts, judge_template, render};
use agent_forge_lab::tools;
use anyhow::{Result, ensure};
use http_body_util::Full;
use hyper::{Response, StatusCode, body::Bytes};
use sha2::{Digest as _, Sha256};

use self::host::{File, Host};
use crate::server;

/// Where the agent of BYOH keeps bundles. The folder above it is not there in a new host.
const DOWNLOADS: &str = "/var/lib/byoh/bundles";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The digest of a played image.
fn digest(name: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(name)))
}

/// The scripts for that image, before the agent replaces the key.
fn rendered(image: &str, version: &str) -> Scripts {
    let made = render(&Request {
        os_name: "linux".to_owned(),
        os_image: "Ubuntu 22.04.4 LTS".to_owned(),
        architecture: "amd64".to_owned(),
        kubernetes_version: version.to_owned(),
        bundle: Bundle {
            repository: "registry.example.com/byoh/kubernetes".to_owned(),
            digest: digest(image),
        },
    });
    made.unwrap()
}

/// The scripts for that image, as the agent runs them.
fn scripts(image: &str, version: &str) -> Scripts {
    let made = rendered(image, version);
    let on_host = |text: &str| text.replace("{{.BundleDownloadPath}}", DOWNLOADS);
    Scripts {
        install: on_host(&made.install),
        uninstall: on_host(&made.uninstall),
    }
}

/// A gzipped archive with these files.
fn archive(files: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("the file {file}\n")).unwrap();
    }
    let packed = std::process::Command::new("tar")
        .args(["--create", "--gzip", "--directory"])
        .arg(folder.path())
        .args(files)
        .output();
    packed.unwrap().stdout
}

/// What both sites offer, by path.
fn offered() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut offer = |path: &str, content: Vec<u8>, sum: &str, line: &dyn Fn(&str) -> String| {
        let digest = hex::encode(Sha256::digest(&content));
        files.insert(sum.to_owned(), line(&digest).into_bytes());
        files.insert(path.to_owned(), content);
    };
    for program in ["kubeadm", "kubectl", "kubelet"] {
        let path = format!("/k8s/release/v1.30.14/bin/linux/amd64/{program}");
        let content = format!("the program {program}\n").into_bytes();
        // Only the sum, without an end of the line.
        offer(&path, content, &format!("{path}.sha256"), &str::to_owned);
    }
    let path =
        "/hub/containerd/containerd/releases/download/v1.7.27/containerd-1.7.27-linux-amd64.tar.gz";
    let inside = [
        "bin/containerd",
        "bin/containerd-shim-runc-v2",
        "bin/ctr",
        "bin/containerd-stress",
    ];
    offer(
        path,
        archive(&inside),
        &format!("{path}.sha256sum"),
        &|sum| format!("{sum}  containerd-1.7.27-linux-amd64.tar.gz\n"),
    );
    let path = "/hub/opencontainers/runc/releases/download/v1.2.6";
    let sums = format!("{path}/runc.sha256sum");
    offer(
        &format!("{path}/runc.amd64"),
        b"the program runc\n".to_vec(),
        &sums,
        &|sum| format!("{}  runc.arm64\n{sum} *runc.amd64\n", "0".repeat(64)),
    );
    let path = "/hub/containernetworking/plugins/releases/download/v1.6.2/cni-plugins-linux-amd64-v1.6.2.tgz";
    let inside = ["./bridge", "./loopback", "./LICENSE", "./README.md"];
    offer(path, archive(&inside), &format!("{path}.sha256"), &|sum| {
        format!("{sum}  cni-plugins-linux-amd64-v1.6.2.tgz\n")
    });
    let path = "/hub/kubernetes-sigs/cri-tools/releases/download/v1.30.1/crictl-v1.30.1-linux-amd64.tar.gz";
    offer(
        path,
        archive(&["crictl"]),
        &format!("{path}.sha256"),
        &str::to_owned,
    );
    files
}

/// Runs the command that makes a bundle, while loopback plays the sites.
async fn bundle(files: BTreeMap<String, Vec<u8>>, out: &Path) -> Result<Output> {
    let files = Arc::new(files);
    let sites = server::answering(move |request| {
        let found = files.get(request.uri().path()).cloned();
        async move {
            let mut answer = Response::new(Full::new(Bytes::new()));
            match found {
                Some(content) => *answer.body_mut() = Full::new(content.into()),
                None => *answer.status_mut() = StatusCode::NOT_FOUND,
            }
            answer
        }
    })
    .await;
    let done = tokio::process::Command::new(root().join("config/byoh/bundle"))
        .args(
            "--kubernetes v1.30.14 --containerd 1.7.27 --runc v1.2.6 --cni v1.6.2 --crictl v1.30.1"
                .split(' '),
        )
        .args(["--arch", "amd64", "--out"])
        .arg(out)
        .env("KUBERNETES_SITE", format!("http://{sites}/k8s"))
        .env("GITHUB", format!("http://{sites}/hub"))
        .stdin(Stdio::null())
        .output();
    Ok(done.await?)
}

async fn bundled(out: &Path) -> Result<()> {
    let done = bundle(offered(), out).await?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "no bundle: {said}");
    Ok(())
}

#[tokio::test]
async fn a_bundle_holds_what_its_publishers_say_and_a_list_of_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    bundled(&first).await?;
    bundled(&second).await?;
    let sums = fs::read_to_string(first.join("SHA256SUMS"))?;
    let again = fs::read_to_string(second.join("SHA256SUMS"))?;
    let names: Vec<&str> = sums.lines().map(|line| &line[66..]).collect();
    let expected = [
        "BUNDLE",
        "SOURCES",
        "root/etc/containerd/config.toml",
        "root/etc/modules-load.d/agent-forge.conf",
        "root/etc/sysctl.d/99-agent-forge.conf",
        "root/etc/systemd/system/containerd.service",
        "root/etc/systemd/system/kubelet.service",
        "root/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
        "root/opt/cni/bin/bridge",
        "root/opt/cni/bin/loopback",
        "root/usr/bin/containerd",
        "root/usr/bin/containerd-shim-runc-v2",
        "root/usr/bin/crictl",
        "root/usr/bin/ctr",
        "root/usr/bin/kubeadm",
        "root/usr/bin/kubectl",
        "root/usr/bin/kubelet",
        "root/usr/bin/runc",
    ];
    assert_eq!(names, expected);
    for line in sums.lines() {
        let content = fs::read(first.join(&line[66..]))?;
        assert_eq!(line[..64], hex::encode(Sha256::digest(content)), "{line}");
    }
    // Apart from the port in the addresses of the sources, two runs make the same.
    let same = |text: &str| {
        text.lines()
            .filter(|l| !l.ends_with("SOURCES"))
            .collect::<String>()
    };
    assert_eq!(same(&sums), same(&again));
    let sources = fs::read_to_string(first.join("SOURCES"))?;
    assert_eq!(sources.lines().count(), 7, "{sources}");
    // What is there is not touched.
    let done = bundle(offered(), &first).await?;
    assert!(!done.status.success());
    assert_eq!(fs::read_to_string(first.join("SHA256SUMS"))?, sums);
    Ok(())
}

#[tokio::test]
async fn a_download_that_is_not_what_its_publisher_says_gives_no_bundle() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let all = offered();
    let mut played = Vec::new();
    for (path, content) in &all {
        let mut changed = all.clone();
        let another = if path.contains(".sha256") {
            let lines = std::str::from_utf8(content)?.lines();
            lines
                .map(|line| format!("x{}\n", &line[1..]))
                .collect::<String>()
                .into_bytes()
        } else {
            [content, &b"0"[..]].concat()
        };
        changed.insert(path.clone(), another);
        played.push((path, changed));
    }
    let (path, mut missing) = (all.keys().next().unwrap(), all.clone());
    missing.remove(path);
    played.push((path, missing));
    assert_eq!(played.len(), 15);
    for (path, files) in played {
        let done = bundle(files, &out).await?;
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            !done.status.success() && said.contains("bundle: "),
            "{path}: {said}"
        );
        assert_eq!(fs::read_dir(folder.path())?.count(), 0, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn shellcheck_finds_nothing() -> Result<()> {
    let program = tokio::task::spawn_blocking(|| {
        // A machine without pip may have it.
        tools::shellcheck().or_else(|error| {
            let there = std::process::Command::new("shellcheck")
                .arg("--version")
                .output();
            there
                .map(|_| PathBuf::from("shellcheck"))
                .map_err(|_| error)
        })
    });
    let program = match program.await? {
        Ok(program) => program,
        Err(error) => {
            eprintln!("SKIPPED: there is no shellcheck: {error:#}");
            return Ok(());
        }
    };
    let folder = tempfile::tempdir()?;
    let made = scripts("one", "v1.30.14");
    let checked = |text: &str| -> Result<Output> {
        let file = folder.path().join("script");
        fs::write(&file, text)?;
        let mut command = std::process::Command::new(&program);
        Ok(command.args(["--shell", "bash"]).arg(file).output()?)
    };
    // The judge finds what is wrong.
    assert!(!checked("rm -rf $folder/*\n")?.status.success());
    let own = ["config/byoh/bundle", "tests/it/byoh_scripts/stub.sh"];
    let own = own.map(|file| fs::read_to_string(root().join(file)).unwrap());
    for text in own.iter().chain([&made.install, &made.uninstall]) {
        let done = checked(text)?;
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{said}");
    }
    Ok(())
}

type Files = BTreeMap<PathBuf, File>;

/// The paths in which two hosts differ. The time counts if `times`, apart from what the kernel shows.
fn differ(before: &Files, after: &Files, times: bool) -> Vec<String> {
    let all = before.keys().chain(after.keys());
    let is_same = |path: &&PathBuf| match (before.get(*path), after.get(*path)) {
        (Some(a), Some(b)) => {
            let by_time = times && !path.starts_with("proc");
            (a.0, &a.1) == (b.0, &b.1) && (!by_time || a.2 == b.2)
        }
        _ => false,
    };
    let differs = all.filter(|path| !is_same(path));
    let mut paths: Vec<String> = differs.map(|p| p.display().to_string()).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// No path.
const NONE: [&str; 0] = [];

/// A host to which the bundle `one` is offered. `None`: this machine has none.
async fn host() -> Result<Option<Host>> {
    let Some(host) = Host::new()? else {
        return Ok(None);
    };
    let folder = tempfile::tempdir()?;
    let made = folder.path().join("bundle");
    bundled(&made).await?;
    host.offer(&made, &digest("one"))?;
    Ok(Some(host))
}

#[tokio::test]
async fn a_second_install_changes_nothing_and_uninstall_brings_the_host_back() -> Result<()> {
    let Some(host) = host().await? else {
        return Ok(());
    };
    let (before, script) = (host.files()?, scripts("one", "v1.30.14"));
    host.succeed(&script.install)?;
    let installed = host.files()?;
    for (path, text) in [
        ("usr/bin/kubelet", "the program kubelet\n"),
        ("proc/sys/net/ipv4/ip_forward", "1\n"),
        ("proc/sys/net/bridge/bridge-nf-call-iptables", "1\n"),
        (
            "etc/fstab",
            "/dev/sda1 / ext4 defaults 0 1\n#/old none swap sw 0 0\n#agent-forge# /swap.img\tnone\tswap\tsw\t0\t0\n",
        ),
        (
            "proc/swaps",
            "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
        ),
    ] {
        assert_eq!(fs::read_to_string(host.path(path))?, text, "{path}");
    }
    let modes = |path: &str| installed[Path::new(path)].0 & 0o7777;
    assert_eq!(
        (modes("usr/bin/runc"), modes("opt/cni/bin/bridge")),
        (0o755, 0o755)
    );
    assert_eq!(modes("etc/systemd/system/kubelet.service"), 0o644);
    for path in [
        "sys/module/overlay",
        "sys/module/br_netfilter",
        "run/containerd.pid",
        "etc/systemd/system/multi-user.target.wants/kubelet.service",
    ] {
        assert!(installed.contains_key(Path::new(path)), "{path}");
    }
    // What is there is not fetched again.
    let calls = host.succeed(&script.install)?;
    assert!(
        !calls.iter().any(|call| call.starts_with("imgpkg")),
        "{calls:?}"
    );
    assert_eq!(differ(&installed, &host.files()?, true), NONE);
    // What somebody changed is repaired.
    host.write("usr/bin/kubelet", "another\n")?;
    fs::remove_file(host.path("opt/cni/bin/bridge"))?;
    host.succeed(&script.install)?;
    assert_eq!(differ(&installed, &host.files()?, false), NONE);
    // What runs on the node writes, and kubeadm reset leaves most of it.
    for path in [
        "etc/kubernetes/pki/ca.crt",
        "var/lib/kubelet/config.yaml",
        "var/lib/cni/cache/a",
        "var/log/pods/a/0.log",
    ] {
        host.write(path, "of the node\n")?;
    }
    host.write("etc/kubernetes/kubelet.conf", "of the node\n")?;
    let node = host.files()?;
    let refused = host.run(&script.uninstall, "")?;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("kubeadm reset first"));
    assert!(!refused.status.success());
    assert_eq!(differ(&node, &host.files()?, false), NONE);
    fs::remove_file(host.path("etc/kubernetes/kubelet.conf"))?;
    for _ in 0..2 {
        host.succeed(&script.uninstall)?;
        assert_eq!(differ(&before, &host.files()?, false), NONE);
    }
    Ok(())
}

#[tokio::test]
async fn a_script_that_ends_anywhere_is_continued_and_undone() -> Result<()> {
    let Some(host) = host().await? else {
        return Ok(());
    };
    let (before, script) = (host.files()?, scripts("one", "v1.30.14"));
    let calls = host.succeed(&script.install)?.len();
    let installed = host.files()?;
    let undone = host.succeed(&script.uninstall)?.len();
    assert!(calls > 9 && undone > 8, "{calls} and {undone} calls");
    for call in 1..=calls {
        for (when, continued) in [("before", call % 2 == 0), ("after", call % 2 == 1)] {
            let fails = format!("{when} {call}");
            let done = host.run(&script.install, &fails)?;
            assert!(!done.status.success(), "{fails}");
            if continued {
                host.succeed(&script.install)?;
                assert_eq!(differ(&installed, &host.files()?, false), NONE, "{fails}");
            }
            host.succeed(&script.uninstall)?;
            assert_eq!(differ(&before, &host.files()?, false), NONE, "{fails}");
        }
    }
    for call in 1..=undone {
        host.succeed(&script.install)?;
        // What the kernel refuses does not stop it.
        host.run(&script.uninstall, &format!("before {call}"))?;
        // The agent runs kubeadm reset before the next try.
        assert_eq!(
            host.path("var/lib/agent-forge-installer").exists(),
            host.path("usr/bin/kubeadm").exists(),
            "call {call}"
        );
        host.succeed(&script.uninstall)?;
        let left = differ(&before, &host.files()?, false);
        let of_kernel = |path: &String| ["proc/", "sys/"].iter().any(|at| path.starts_with(at));
        assert!(left.iter().all(of_kernel), "call {call}: {left:?}");
        host.as_booted()?;
        assert_eq!(differ(&before, &host.files()?, false), NONE, "call {call}");
    }
    Ok(())
}

/// A disk of the host, of which a folder is mounted where the installer would remove everything.
#[tokio::test]
async fn nothing_is_removed_while_a_folder_of_others_is_mounted_below() -> Result<()> {
    let Some(host) = host().await? else {
        return Ok(());
    };
    host.write("srv/volumes/data", "of others\n")?;
    let (before, script) = (host.files()?, scripts("one", "v1.30.14"));
    let bundle = format!("{DOWNLOADS}/agent-forge/{}", &digest("one")[7..]);
    for (folder, below) in [
        ("/var/lib/kubelet", ""),
        ("/var/lib/kubelet", "/pods/a volume"),
        (bundle.as_str(), "/root"),
    ] {
        let at = format!("{folder}{below}");
        host.succeed(&script.install)?;
        fs::create_dir_all(host.path(&at))?;
        let installed = host.files()?;
        let Some(refused) = host.run_bound(&script.uninstall, "srv/volumes", &at)? else {
            return Ok(());
        };
        let said = String::from_utf8_lossy(&refused.stderr);
        let named = format!("{at} is mounted, and {folder}");
        assert!(!refused.status.success() && said.contains(&named), "{said}");
        assert_eq!(differ(&installed, &host.files()?, false), NONE, "{at}");
        host.succeed(&script.uninstall)?;
        assert_eq!(differ(&before, &host.files()?, false), NONE, "{at}");
    }
    Ok(())
}

#[tokio::test]
async fn another_bundle_takes_the_place_of_the_first() -> Result<()> {
    let Some(host) = host().await? else {
        return Ok(());
    };
    let (before, first) = (host.files()?, scripts("one", "v1.30.14"));
    let other = host.offer(
        &host.path("stub/images").join(&digest("one")[7..]),
        &digest("two"),
    )?;
    fs::rename(
        other.join("root/opt/cni/bin/bridge"),
        other.join("root/opt/cni/bin/vlan"),
    )?;
    let sums = fs::read_to_string(other.join("SHA256SUMS"))?;
    fs::write(
        other.join("SHA256SUMS"),
        sums.replace("bin/bridge", "bin/vlan"),
    )?;
    let second = scripts("two", "v1.30.14");
    host.succeed(&second.install)?;
    let installed = host.files()?;
    host.succeed(&second.uninstall)?;
    host.succeed(&first.install)?;
    // The agent begins again with a new Secret after an install that failed.
    host.succeed(&second.install)?;
    assert_eq!(differ(&installed, &host.files()?, false), NONE);
    // The script that the host got with the first one undoes what is there.
    host.succeed(&first.uninstall)?;
    assert_eq!(differ(&before, &host.files()?, false), NONE);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_used_is_said_and_nothing_of_others_is_touched() -> Result<()> {
    let Some(host) = host().await? else {
        return Ok(());
    };
    let (before, script) = (host.files()?, scripts("one", "v1.30.14"));
    let refused = |script: &str, reason: &str| -> Result<()> {
        let there = host.files()?;
        let done = host.run(script, "")?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(
            !done.status.success() && said.contains(reason),
            "{reason}: {said}"
        );
        // Apart from the record and the bundle, nothing is there.
        let left = differ(&there, &host.files()?, false);
        let own = |path: &String| {
            path.starts_with("var/lib/byoh") || path.starts_with("var/lib/agent-forge-installer")
        };
        ensure!(left.iter().all(own), "{reason}: {left:?}");
        Ok(())
    };
    for tool in ["imgpkg", "conntrack"] {
        let (place, away) = (
            host.path("usr/local/bin").join(tool),
            host.path("stub/away"),
        );
        fs::rename(&place, &away)?;
        refused(&script.install, &format!("{tool} is missing"))?;
        assert_eq!(
            differ(&host.files()?, &before, false),
            [format!("usr/local/bin/{tool}")]
        );
        fs::rename(&away, &place)?;
    }
    refused(
        &script.install.replace(DOWNLOADS, "bundles"),
        "begin with a slash",
    )?;
    refused(
        &scripts("one", "v1.30.13").install,
        "is not for kubernetes=v1.30.13",
    )?;
    let arm = script
        .install
        .replace("architecture='amd64'", "architecture='arm64'");
    refused(&arm, "is not for architecture=arm64")?;
    host.write("usr/bin/kubelet", "of others\n")?;
    refused(&script.install, "/usr/bin/kubelet is on the host already")?;
    host.succeed(&script.uninstall)?;
    assert_eq!(
        fs::read_to_string(host.path("usr/bin/kubelet"))?,
        "of others\n"
    );
    fs::remove_file(host.path("usr/bin/kubelet"))?;
    let image = host.path("stub/images").join(&digest("one")[7..]);
    let sums = fs::read_to_string(image.join("SHA256SUMS"))?;
    fs::write(image.join("root/usr/bin/runc"), "another\n")?;
    refused(&script.install, "does not hold what its SHA256SUMS says")?;
    let another = hex::encode(Sha256::digest("another\n"));
    fs::create_dir_all(image.join("root/x"))?;
    let escaped = format!("{sums}{another}  root/x/../usr/bin/runc\n");
    let escaped: String = escaped
        .lines()
        .filter(|l| !l.ends_with("root/usr/bin/runc") || l.contains(".."))
        .map(|l| format!("{l}\n"))
        .collect();
    fs::write(image.join("SHA256SUMS"), escaped)?;
    refused(&script.install, "which is no path of a file")?;
    host.succeed(&script.uninstall)?;
    assert_eq!(differ(&before, &host.files()?, false), NONE);
    Ok(())
}

/// Pieces that are near to what the judge accepts. None of them is a feature of Go's templates that the judge refuses though it works.
const PIECES: [&str; 18] = [
    "{{",
    "{{",
    "{{",
    "}}",
    "}}",
    "}}",
    ".BundleDownloadPath",
    ".BundleDownloadPath",
    ".BundleDownloadPath",
    " ",
    "\n",
    "-",
    "- ",
    " -",
    "{",
    "}",
    ".Other",
    "\u{a0}é",
];

#[tokio::test]
async fn the_judge_of_templates_agrees_with_go() -> Result<()> {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut texts: Vec<String> = [
        "",
        "{{/* a */}}",
        "{{/* {{.A}} */}}{{.BundleDownloadPath}}",
        "{{\"a\"}}",
        "{{\u{b}.BundleDownloadPath}}",
    ]
    .map(str::to_owned)
    .into();
    let made = rendered("one", "v1.33.1");
    texts.extend([made.install, made.uninstall]);
    let fixed = texts.len();
    for _ in 0..20_000 {
        let length = random.usize(1..10);
        texts.push(
            (0..length)
                .map(|_| PIECES[random.usize(..PIECES.len())])
                .collect(),
        );
    }
    let given = texts.clone();
    let path = "/var/lib/byoh/a b";
    let executed = tokio::task::spawn_blocking(move || tools::template::executed(&given, path));
    let executed = executed.await??;
    assert_eq!(executed.len(), texts.len());
    let (mut accepted, mut with_key) = (0, 0);
    for (at, (text, go)) in texts.iter().zip(&executed).enumerate() {
        let works = go.as_ref().is_ok_and(|made| !made.contains("<no value>"));
        let judged = judge_template(text);
        if judged.is_ok() {
            assert!(
                works,
                "seed {seed}: {text:?} is accepted, and Go says {go:?}"
            );
            accepted += 1;
            with_key += usize::from(text.contains("{{"));
        } else if at >= fixed {
            assert!(
                !works,
                "seed {seed}: {text:?} is refused ({judged:?}), and Go makes {go:?}"
            );
        }
    }
    assert!(
        accepted > 500 && with_key > 50,
        "{accepted} accepted, {with_key} with a key"
    );
    assert!(texts.len() - accepted > 5_000);
    Ok(())
}
