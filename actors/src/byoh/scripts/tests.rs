//! Tables: which hosts get scripts, what is in them, and which scripts of users are refused.

use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn request() -> Request {
    Request {
        os_name: "linux".to_owned(),
        os_image: "Ubuntu 22.04.1 LTS".to_owned(),
        architecture: "amd64".to_owned(),
        kubernetes_version: "v1.30.14".to_owned(),
        bundle: Bundle {
            repository: "registry.example.com:5000/byoh/kubernetes".to_owned(),
            digest: DIGEST.to_owned(),
        },
    }
}

#[test]
fn hosts_of_the_table_get_scripts_and_others_do_not() {
    let on = |name: &str, image: &str| {
        render(&Request {
            os_name: name.to_owned(),
            os_image: image.to_owned(),
            ..request()
        })
    };
    for image in [
        "Ubuntu 20.04.6 LTS",
        "Ubuntu 22.04 LTS",
        "Ubuntu 24.04.2 LTS",
        "Red Hat Enterprise Linux 9.4 (Plow)",
        "Rocky Linux 9.4 (Blue Onyx)",
        "AlmaLinux 9.4 (Seafoam Ocelot)",
    ] {
        assert!(on("linux", image).is_ok(), "{image}");
    }
    for (name, image) in [
        ("linux", "Ubuntu 22.10"),
        ("linux", "Ubuntu 22.04.1"),
        ("linux", "Ubuntu 18.04.6 LTS"),
        ("linux", "Ubuntu 22.041 LTS"),
        ("linux", "Red Hat Enterprise Linux 8.10 (Ootpa)"),
        ("linux", "Rocky Linux 90.1"),
        ("linux", "Debian GNU/Linux 12 (bookworm)"),
        ("linux", "Unknown"),
        ("linux", ""),
        ("windows", "Ubuntu 22.04.1 LTS"),
        ("", "Ubuntu 22.04.1 LTS"),
    ] {
        let refused = Unsupported::System {
            name: name.to_owned(),
            image: image.to_owned(),
        };
        assert_eq!(on(name, image), Err(refused));
    }
}

#[test]
fn the_page_repeats_the_table_of_systems() {
    let page = include_str!("../../../../docs/how-to/byoh-installer.md");
    let rows: Vec<&str> = page.lines().filter(|l| l.ends_with("tried |")).collect();
    let expected: Vec<String> = SYSTEMS
        .iter()
        .map(|system| {
            let tried = if system.tried { "tried" } else { "untried" };
            format!("| {}{} | amd64, arm64 | {tried} |", system.name, system.end)
        })
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn what_cannot_be_in_a_script_is_refused() {
    let of = |version: &str| {
        render(&Request {
            kubernetes_version: version.to_owned(),
            ..request()
        })
    };
    assert_eq!(of("1.30.14"), of("v1.30.14"));
    for version in [
        "",
        "v1",
        "v1.30",
        "v1.23.17",
        "v2.0.0",
        "vv1.30.1",
        "v1.30.1-rc.1",
        "v1.30.x",
        "v1.+30.1",
        "v1.30.1'",
    ] {
        let refused = Unsupported::Kubernetes(version.to_owned());
        assert_eq!(of(version), Err(refused));
    }
    let on = |architecture: &str| {
        render(&Request {
            architecture: architecture.to_owned(),
            ..request()
        })
    };
    assert!(on("arm64").is_ok());
    let refused = Unsupported::Architecture("s390x".to_owned());
    assert_eq!(on("s390x"), Err(refused));
    let upper = DIGEST.to_uppercase();
    for (repository, digest) in [
        ("", DIGEST),
        ("-o/etc", DIGEST),
        ("a b", DIGEST),
        ("a'$(reboot)", DIGEST),
        ("a/{{.Key}}", DIGEST),
        ("a@b", DIGEST),
        ("a/b", ""),
        ("a/b", &DIGEST[..70]),
        ("a/b", &DIGEST[7..]),
        ("a/b", &upper),
    ] {
        let bundle = Bundle {
            repository: repository.to_owned(),
            digest: digest.to_owned(),
        };
        let refused = Unsupported::Bundle(format!("{repository}@{digest}"));
        let request = Request {
            bundle,
            ..request()
        };
        assert_eq!(render(&request), Err(refused));
    }
}

#[test]
fn scripts_say_what_was_asked_and_pass_the_judge() {
    let made = render(&request()).expect("scripts");
    assert_eq!(Ok(&made), render(&request()).as_ref());
    let image = format!("image='registry.example.com:5000/byoh/kubernetes@{DIGEST}'\n");
    assert!(made.install.contains(&image));
    assert!(made.install.contains("kubernetes='v1.30.14'\n"));
    assert!(made.install.contains("in imgpkg conntrack ip "));
    for script in [&made.install, &made.uninstall] {
        assert_eq!(judge_template(script), Ok(()));
        let left = ["%IMAGE%", "%KUBERNETES%", "%ARCHITECTURE%", "%TOOLS%"];
        assert!(left.iter().all(|name| !script.contains(name)));
    }
    let newer = Request {
        kubernetes_version: "1.32.0".to_owned(),
        ..request()
    };
    let newer = render(&newer).expect("scripts").install;
    assert!(newer.contains("kubernetes='v1.32.0'\n") && !newer.contains("conntrack"));
}

#[test]
fn the_judge_names_the_line() {
    for accepted in [
        "",
        "echo }} { {",
        "cd {{.BundleDownloadPath}}/{{.BundleDownloadPath}}",
        "{{ .BundleDownloadPath }}",
        "{{\t\r\n.BundleDownloadPath\n}}",
        "a {{- .BundleDownloadPath -}} b",
        "{{-\n.BundleDownloadPath\t-}}",
        "{{.BundleDownloadPath}}}}",
    ] {
        assert_eq!(judge_template(accepted), Ok(()), "{accepted:?}");
    }
    for (text, line, part) in [
        ("{{", 1, "`{{`"),
        ("a\nb {{.Bundle}}\n", 2, "`{{.Bundle`"),
        (
            "\n\n{{.BUNDLE_DOWNLOAD_PATH}}",
            3,
            "`{{.BUNDLE_DOWNLOAD_PATH`",
        ),
        (
            "{{.BundleDownloadPath}}\n{{BundleDownloadPath}}",
            2,
            "{{BundleDownloadPath`",
        ),
        ("{{{.BundleDownloadPath}}}", 1, "`{{{.Bundle"),
        ("{{.BundleDownloadPath", 1, "`{{.BundleDownloadPath`"),
        ("{{.BundleDownloadPath }", 1, "`{{.BundleDownloadPath `"),
        ("{{.BundleDownloadPaths}}", 1, "Paths`"),
        ("{{.BundleDownloadPath.x}}", 1, ".x`"),
        ("{{. BundleDownloadPath}}", 1, "`{{. Bundle"),
        ("{{-.BundleDownloadPath}}", 1, "`{{-.Bundle"),
        ("{{.BundleDownloadPath-}}", 1, "Path-`"),
        ("{{.BundleDownloadPath - }}", 1, "Path - `"),
        ("{{\u{a0}.BundleDownloadPath}}", 1, "\u{a0}.Bundle"),
        ("{{\u{b}.BundleDownloadPath}}", 1, "\u{b}.Bundle"),
        ("{{/* a comment */}}", 1, "/* a comment */`"),
        ("{{ if .BundleDownloadPath }}x{{ end }}", 1, "`{{ if"),
        ("docker ps --format '{{.Names}}'", 1, "`{{.Names`"),
        ("a\nb\0", 2, "NUL"),
    ] {
        let refused = judge_template(text).expect_err(text);
        assert_eq!(refused.line, line, "{text:?}");
        assert!(refused.what.contains(part), "{text:?}: {}", refused.what);
    }
    let long = "#23456789\n".repeat(12_288);
    assert_eq!(judge_template(&long), Ok(()));
    let refused = judge_template(&format!("{long}x")).expect_err("too long");
    assert_eq!(refused.line, 12_289);
    assert!(refused.what.contains("longer"), "{}", refused.what);
}
