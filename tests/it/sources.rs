//! Tests that sources and documents agree: named files exist, and listed reasons are used.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use agent_forge_crds::conditions::Reason;

/// Folders of the repository with texts for people, and (`KINDS`) the kinds of files.
const FOLDERS: [&str; 6] = ["actors", "config", "crds", "docs", "src", "tests"];
const KINDS: [&str; 5] = ["rs", "go", "md", "yaml", "toml"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn is_kind(path: &Path, kinds: &[&str]) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| kinds.contains(&e))
}

/// All files below `at` of these kinds, by their path in the repository.
fn files(at: &str, kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(at)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.file_name() != "target" {
                folders.push(path);
            } else if kind.is_file() && is_kind(&path, kinds) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Words that look like a path of a file, from the root of the repository or of a crate.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c));
    text.split(between)
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            let first = word.split('/').next().unwrap_or_default();
            word.contains('/') && FOLDERS.contains(&first) && is_kind(Path::new(word), &KINDS)
        })
}

/// Whether a file named in `from` exists, relative to the repository or to a folder above `from`.
fn is_there(from: &Path, name: &str) -> bool {
    let mut seen_from = from.ancestors().skip(1);
    seen_from.any(|folder| root().join(folder).join(name).is_file())
}

#[test]
fn files_that_are_named_exist() {
    let mut all = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    for folder in FOLDERS {
        all.extend(files(folder, &KINDS));
    }
    // The examples in this file are not real paths.
    all.retain(|path| path != Path::new("tests/it/sources.rs"));
    let (mut seen, mut missing) = (0, Vec::new());
    for path in &all {
        for name in named(&read(path)) {
            seen += 1;
            // A tool runs in another folder there.
            let elsewhere = name == "tests/alerts.yaml";
            if !elsewhere && !is_there(path, name) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(seen > 100, "only {seen} names in {} files", all.len());
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A page that the menu lacks is not on the site (docs/book.toml).
#[test]
fn the_menu_of_the_site_has_each_page_once() {
    let itself = Path::new("docs/SUMMARY.md");
    let menu = read(itself);
    let links = menu.split("](").skip(1);
    let named = links.filter_map(|link| link.split(')').next());
    let mut named: Vec<PathBuf> = named.map(|page| Path::new("docs").join(page)).collect();
    let mut pages = files("docs", &["md"]);
    pages.retain(|page| page != itself);
    named.sort();
    assert_eq!(named, pages);
}

/// Folders with modules that documents name as a path.
const MODULES: [&str; 3] = ["actors/src", "src", "tests/it"];

/// Whether `path` (`a::b::c`) leads from `folder` through modules, and perhaps to a function in the last one.
fn is_module(folder: &str, path: &str) -> bool {
    let (mut at, mut text) = (PathBuf::from(folder), String::new());
    path.split("::").all(|part| {
        let below = at.join(part);
        let files = [below.with_extension("rs"), below.join("mod.rs")];
        if let Some(file) = files.iter().find(|f| root().join(f).is_file()) {
            text = read(file);
            at = below;
            return true;
        }
        let inside = [format!("mod {part} {{"), format!("fn {part}(")];
        inside.iter().any(|item| text.contains(item))
    })
}

#[test]
fn modules_that_are_named_exist() {
    let mut all = files("docs", &["md"]);
    all.push(PathBuf::from("CONTRIBUTING.md"));
    let between = |c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c));
    let snake = |name: &&str| name.contains("::") && !name.contains(char::is_uppercase);
    let (mut seen, mut missing) = (0, Vec::new());
    for path in &all {
        let text = read(path);
        let words = text.split(between).map(|word| word.trim_matches(':'));
        for name in words.filter(snake) {
            seen += 1;
            if !MODULES.iter().any(|folder| is_module(folder, name)) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(seen > 15, "only {seen} names");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A reason that is never used would make people look for something that cannot happen.
#[test]
fn reasons_that_are_listed_are_given() {
    let product: Vec<String> = ["actors/src", "src"]
        .iter()
        .flat_map(|folder| files(folder, &["rs"]))
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| read(&path))
        .collect();
    let mut listed: Vec<String> = Reason::ALL
        .iter()
        .map(|reason| format!("Reason::{reason:?}"))
        .collect();
    for module in ["action", "event"] {
        let list = read(Path::new(&format!("crds/src/conditions/{module}.rs")));
        let constants = list
            .lines()
            .filter_map(|line| line.strip_prefix("pub const "));
        let names = constants.filter_map(|constant| constant.split(':').next());
        listed.extend(names.map(|name| format!("{module}::{name}")));
    }
    let is_given = |name: &str, source: &String| {
        let mut uses = source.split(name).skip(1);
        uses.any(|rest| !rest.starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric()))
    };
    // A fault of vCenter gives the reason with its own name.
    let faults = read(Path::new("actors/src/ports/vcenter/error.rs"));
    let is_fault = |name: &str| {
        let word = name.trim_start_matches("Reason::");
        faults.contains(&format!("=> \"{word}\","))
    };
    listed.retain(|name| !is_fault(name) && !product.iter().any(|s| is_given(name, s)));
    assert!(listed.is_empty(), "{listed:#?}");
}

/// A cell without Markdown, and with links from the root of the repository.
fn plain(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell.trim();
    while let Some((before, link)) = rest.split_once('[') {
        let (name, after) = link.split_once("](").unwrap();
        let (to, after) = after.split_once(')').unwrap();
        let to = match to.strip_prefix("../") {
            Some(above) => format!("docs/{above}"),
            None => format!("docs/reference/{to}"),
        };
        text += &format!("{before}{name} ({to})");
        rest = after;
    }
    (text + rest).replace('`', "")
}

/// Whoever is called at night begins with what explains itself.
#[test]
fn each_runbook_begins_its_check_with_a_command_of_ours() {
    let runbooks = files("docs/runbooks", &["md"]);
    assert!(runbooks.len() > 15, "{runbooks:?}");
    for path in runbooks {
        let page = read(&path);
        let (_, check) = page.split_once("## Check\n").expect("a check");
        let block = check.trim_start().strip_prefix("```\n");
        let block = block.unwrap_or_else(|| panic!("{}: no commands first", path.display()));
        let mut lines = block.lines().filter(|line| !line.starts_with("NS="));
        let first = lines.next().unwrap_or_default();
        // In the operator's own container, where its flags and rights count.
        let in_pod =
            "kubectl exec -n agent-forge-system deploy/agent-forge -- /agent-forge doctor ";
        assert!(first.starts_with(in_pod), "{}: {first}", path.display());
    }
}

/// `agent-forge explain` says what the page says, and the page explains each reason once. Runbooks refer to it for the
/// remedy. In its tables of reasons, a first cell with code is a message.
#[test]
fn the_page_and_the_table_of_reasons_agree() {
    let page = read(Path::new("docs/reference/reasons.md"));
    let (mut section, mut of_reasons, mut explained) = (String::new(), false, Vec::new());
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let kept = title.to_lowercase().replace(' ', "-");
            let kept: String = kept
                .chars()
                .filter(|c| c.is_alphanumeric() || *c == '-')
                .collect();
            section = format!("docs/reference/reasons.md#{kept}");
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let first = cells[0].trim();
        of_reasons = line.starts_with('|') && (of_reasons || first.starts_with("Reason"));
        if !of_reasons || first.starts_with("Reason") || first.contains(['-', '`']) {
            continue;
        }
        for word in first.split(", ") {
            let reason = Reason::from(word);
            let about = reason.about();
            assert_eq!(about.meaning, plain(cells[1]), "{reason}");
            let remedy = cells.get(2).map_or("None.".to_owned(), |cell| plain(cell));
            assert_eq!(about.remedy, remedy, "{reason}");
            assert_eq!(about.section.page(), section, "{reason}");
            explained.push(word);
        }
    }
    let mut all: Vec<&str> = Reason::ALL.iter().map(Reason::as_str).collect();
    explained.sort_unstable();
    all.sort_unstable();
    assert_eq!(explained, all, "each once, and no other");
}

/// The role in the documents is the one that `agent-forge privileges` prints.
#[test]
fn the_documents_tell_the_role_that_the_command_prints() {
    use agent_forge::commands::privileges::ROLE;
    let page = read(Path::new("docs/reference/vsphere.md"));
    for privilege in ROLE {
        let cell = format!("`{}`", privilege.id);
        let row = page.lines().find(|line| line.contains(&cell));
        let row = row.unwrap_or_else(|| panic!("{cell} is not on the page"));
        let on = row.split('|').nth(2).unwrap_or(row);
        let words = privilege.on.words();
        let listed = row.starts_with('|') && on.trim() == words;
        let told = !row.starts_with('|') && row.contains(words);
        assert!(listed || told, "{cell}: {row}");
    }
    let page = read(Path::new("docs/how-to/credentials-and-privileges.md"));
    let command = page.split("govc role.create agent-forge").nth(1).unwrap();
    let command = command.split("govc ").next().unwrap();
    let mut told: Vec<&str> = command
        .split_whitespace()
        .filter(|word| *word != "\\")
        .collect();
    let always = ROLE.iter().filter(|p| p.feature.is_none()).map(|p| p.id);
    let mut always: Vec<&str> = always.collect();
    told.sort_unstable();
    always.sort_unstable();
    assert_eq!(told, always);
    for privilege in ROLE.iter().filter(|p| p.feature.is_some()) {
        assert!(
            page.contains(&format!("`{}`", privilege.id)),
            "{}",
            privilege.id
        );
    }
}

/// Helm reads nothing outside a chart, so the charts have copies of other files of `config`.
#[test]
fn the_copies_in_the_charts_equal_their_originals() {
    let folders = [
        "admission",
        "crd",
        "overlays/byoh-installer",
        "prometheus",
        "rbac",
    ];
    let charts = ["config/chart/files", "config/chart-crds/files"];
    let copies: Vec<PathBuf> = charts.iter().flat_map(|at| files(at, &["yaml"])).collect();
    assert_eq!(copies.len(), 20, "{copies:?}");
    for copy in copies {
        let original = |folder| {
            let path = Path::new("config").join(folder).join(copy.file_name()?);
            root().join(&path).is_file().then_some(path)
        };
        let original = folders.into_iter().find_map(original);
        let original = original.unwrap_or_else(|| panic!("{}: of what?", copy.display()));
        assert!(
            read(&copy) == read(&original),
            "{} is out of date; config/chart/README.md says how to copy {}",
            copy.display(),
            original.display()
        );
    }
}

#[test]
fn the_charts_have_the_version_of_the_operator() {
    for chart in ["chart", "chart-crds"] {
        let about = read(Path::new(&format!("config/{chart}/Chart.yaml")));
        for key in ["version", "appVersion"] {
            let line = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
            assert!(about.lines().any(|l| l == line), "{chart}: {line}");
        }
    }
}

/// A bundle of OLM is one folder of whole manifests, so it repeats other files of `config`.
#[test]
fn the_bundle_for_olm_equals_its_originals() {
    use serde_json::{Value, json};
    let yaml =
        |path: &str| -> Value { serde_saphyr::from_str(&read(Path::new(path))).expect("YAML") };
    let at = |value: &Value, place: &str| -> Value {
        let found = value.pointer(place);
        found
            .unwrap_or_else(|| panic!("{place} is not there"))
            .clone()
    };
    let bundle = "config/olm/manifests";
    let copies = [
        (
            "manager/pod_disruption_budget",
            "agent-forge_pod_disruption_budget",
        ),
        ("prometheus/prometheus_rule", "agent-forge_prometheus_rule"),
        (
            "overlays/openshift/trusted_ca",
            "agent-forge-trusted-ca_config_map",
        ),
        ("rbac/view_role", "agent-forge-view_cluster_role"),
        ("rbac/edit_role", "agent-forge-edit_cluster_role"),
        ("rbac/veto_role", "agent-forge-veto_cluster_role"),
        (
            "rbac/metrics_reader_role",
            "agent-forge-metrics-reader_cluster_role",
        ),
        (
            "crd/agent-forge.containeroo.ch_vsphereagentpools",
            "agent-forge.containeroo.ch_vsphereagentpools",
        ),
        (
            "crd/agent-forge.containeroo.ch_vsphereagents",
            "agent-forge.containeroo.ch_vsphereagents",
        ),
    ];
    assert_eq!(files(bundle, &["yaml"]).len(), copies.len() + 3);
    for (original, copy) in copies {
        let text = read(Path::new(&format!("config/{original}.yaml")));
        // OLM chooses the namespace.
        let text = text.replace("\n  namespace: agent-forge-system\n", "\n");
        // OLM reads the first document of a file. A comment before `---` would be that document.
        let text = text.split_once("\n---\n").map_or(&*text, |(_, rest)| rest);
        let copied = read(Path::new(&format!("{bundle}/{copy}.yaml")));
        assert!(
            copied == text,
            "{copy}.yaml is out of date; config/olm/README.md says how to copy it"
        );
    }

    // Service and ServiceMonitor as the overlay for OpenShift makes them.
    let without_namespace = |path: &str| {
        let mut object = yaml(path);
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("namespace");
        object
    };
    let mut service = without_namespace("config/default/metrics_service.yaml");
    let overlay = yaml("config/overlays/openshift/metrics_service.yaml");
    service["metadata"]["annotations"] = at(&overlay, "/metadata/annotations");
    assert_eq!(
        yaml(&format!("{bundle}/agent-forge-metrics_service.yaml")),
        service
    );
    let mut monitor = without_namespace("config/prometheus/service_monitor.yaml");
    let overlay = yaml("config/overlays/openshift/service_monitor.yaml");
    monitor["spec"]["endpoints"][0]["tlsConfig"] = at(&overlay, "/0/value");
    assert_eq!(
        yaml(&format!("{bundle}/agent-forge_service_monitor.yaml")),
        monitor
    );

    let version = env!("CARGO_PKG_VERSION");
    let csv = yaml(&format!(
        "{bundle}/agent-forge.v{version}.clusterserviceversion.yaml"
    ));
    let image = format!("registry.example.com/agent-forge:{version}");
    let tag = at(
        &yaml("config/manager/kustomization.yaml"),
        "/images/0/newTag",
    );
    assert_eq!(tag, version);
    assert_eq!(
        at(&csv, "/metadata/name"),
        json!(format!("agent-forge.v{version}"))
    );
    assert_eq!(at(&csv, "/spec/version"), version);
    assert_eq!(
        at(&csv, "/metadata/annotations/containerImage"),
        json!(image)
    );
    assert_eq!(
        at(&csv, "/spec/relatedImages"),
        json!([{"name": "manager", "image": image}])
    );
    let example = at(&csv, "/metadata/annotations/alm-examples");
    let example: Value = serde_json::from_str(example.as_str().unwrap()).expect("JSON");
    assert_eq!(
        example,
        json!([yaml("config/samples/vsphereagentpool.yaml")])
    );

    let rules = |files: &[&str]| -> Vec<Value> {
        let of = |file: &&str| at(&yaml(file), "/rules").as_array().unwrap().clone();
        files.iter().flat_map(of).collect()
    };
    let everywhere = rules(&[
        "config/rbac/manager_role.yaml",
        "config/rbac/credentials_role.yaml",
        "config/rbac/metrics_auth_role.yaml",
    ]);
    assert_eq!(
        at(&csv, "/spec/install/spec/clusterPermissions"),
        json!([{"serviceAccountName": "agent-forge", "rules": everywhere}])
    );
    // With some namespaces only, the operator reads each of them and its own, as in the overlay `namespaced`.
    let namespace = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]});
    assert!(rules(&["config/overlays/namespaced/served/role.yaml"]).contains(&namespace));
    let mut served = rules(&["config/rbac/leader_election_role.yaml"]);
    served.push(namespace);
    assert_eq!(
        at(&csv, "/spec/install/spec/permissions"),
        json!([{"serviceAccountName": "agent-forge", "rules": served}])
    );

    let overlay = yaml("config/overlays/openshift/deployment.yaml");
    let overlay = at(&overlay, "/spec/template/spec");
    let deployment = yaml("config/manager/deployment.yaml");
    let mut spec = at(&deployment, "/spec");
    spec["template"]["metadata"]["annotations"]["openshift.io/required-scc"] =
        json!("restricted-v2");
    spec["template"]["spec"]["volumes"] = at(&overlay, "/volumes");
    let manager = &mut spec["template"]["spec"]["containers"][0];
    manager["image"] = json!(image);
    manager["volumeMounts"] = at(&overlay, "/containers/0/volumeMounts");
    let args = manager["args"].as_array_mut().unwrap();
    args.push(at(
        &yaml("config/overlays/openshift/arguments.yaml"),
        "/0/value",
    ));
    args.push(json!("--namespaces=$(TARGET_NAMESPACES)"));
    let env = manager["env"].as_array_mut().unwrap();
    env.push(json!({
        "name": "TARGET_NAMESPACES",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}},
    }));
    env.extend(
        at(&overlay, "/containers/0/env")
            .as_array()
            .unwrap()
            .clone(),
    );
    let expected = json!([{
        "name": "agent-forge",
        "label": at(&deployment, "/metadata/labels"),
        "spec": spec,
    }]);
    assert_eq!(at(&csv, "/spec/install/spec/deployments"), expected);

    let beside = yaml("config/olm/beside/kustomization.yaml");
    let patch = at(&beside, "/patches/0/patch");
    let patch: Value = serde_saphyr::from_str(patch.as_str().unwrap()).expect("YAML");
    assert_eq!(patch, yaml("config/overlays/openshift/network_policy.yaml"));
}

/// A command that selects no test succeeds, and proves nothing. A filter must be in the path of a source file or in the name of a function.
#[test]
fn each_test_command_in_a_document_selects_a_test() {
    let mut pages = [files("docs", &["md"]), files("tests", &["md"])].concat();
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from));
    let functions = |text: &str| -> String { text.lines().filter(|l| l.contains("fn ")).collect() };
    let mut names = String::new();
    for folder in ["src", "actors", "crds", "tests"] {
        for path in files(folder, &["rs"]) {
            let stem = path.with_extension("");
            names += &format!("{}\n{}\n", stem.display(), functions(&read(&path)));
        }
    }
    let (mut seen, mut empty) = (0, Vec::new());
    for path in &pages {
        for rest in read(path).split("cargo test").skip(1) {
            let end = rest.find(['`', '\n', '|', '#']).unwrap_or(rest.len());
            let mut words = rest[..end].split_whitespace();
            seen += 1;
            while let Some(word) = words.next() {
                match word {
                    "-p" | "--test" | "--features" => _ = words.next(),
                    flag if flag.starts_with('-') => {}
                    filter => {
                        let filter = filter.trim_end_matches("::").replace("::", "/");
                        if !names.contains(&filter) {
                            empty.push(format!("{}: cargo test{}", path.display(), &rest[..end]));
                        }
                    }
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} commands");
    assert!(empty.is_empty(), "{empty:#?}");
}
