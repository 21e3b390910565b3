//! Writes the files that are generated from the types: `config/crd` with its copies for Helm and OLM (no flag) and
//! `docs/reference/crds.md` (`--docs`).
//! `--check` writes nothing, and fails if one of them is out of date.

use agent_forge_crds::manifest;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

const USAGE: &str = "usage: crdgen [--docs | --check]
  (no flag)  write config/crd and its copies in config/chart-crds and config/olm
  --docs     write docs/reference/crds.md
  --check    write nothing; fail when a file is missing or differs";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("crdgen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => write(manifest::crd_files()?),
        ["--docs"] => write(vec![manifest::reference_file()]),
        ["--check"] => {
            let mut files = manifest::crd_files()?;
            files.push(manifest::reference_file());
            Ok(check(files))
        }
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

/// Workspace root, relative to this package. Without Cargo, the current directory.
fn root() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(PathBuf::new, |package| PathBuf::from(package).join(".."))
}

fn write(files: Vec<(String, String)>) -> Result<ExitCode, Box<dyn Error>> {
    for (path, content) in files {
        let target = root().join(&path);
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&target, content).map_err(|error| format!("{path}: {error}"))?;
        eprintln!("crdgen: wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

fn check(files: Vec<(String, String)>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (path, content) in files {
        match fs::read_to_string(root().join(&path)) {
            Ok(present) if present == content => {}
            Ok(_) => {
                eprintln!("crdgen: {path} differs; run cargo crdgen and cargo crdgen --docs");
                code = ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("crdgen: {path}: {error}; run cargo crdgen and cargo crdgen --docs");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
