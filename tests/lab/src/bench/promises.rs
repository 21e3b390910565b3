//! What every shipped program and every run must hold. Goals may be missed; these may not. No side effects.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::{Program, Run, proc::Usage};

/// Most bytes of the stripped program.
pub(super) const MOST_BYTES: u64 = 25_000_000;

/// A promise, and whether it holds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Promise {
    /// What is promised.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// Whether it holds.
    pub kept: bool,
}

/// The promises for a program and its measurements.
pub(super) fn judge(program: &Program, runs: &[Run]) -> Vec<Promise> {
    let seen: Vec<Usage> = runs.iter().flat_map(usages).collect();
    vec![size(program), openssl(program), children(&seen)]
}

/// Every measurement of an operator process.
fn usages(run: &Run) -> impl Iterator<Item = Usage> {
    let idle = run.idle.as_ref().map(|i| i.usage);
    let restart = run.restart.as_ref().map(|r| r.usage);
    [Some(run.before), Some(run.after), idle, restart]
        .into_iter()
        .flatten()
}

fn size(program: &Program) -> Promise {
    Promise {
        what: "the release binary has at most 25 MB",
        found: format!("{:.1} MB", program.bytes as f64 / 1e6),
        kept: program.bytes <= MOST_BYTES,
    }
}

fn openssl(program: &Program) -> Promise {
    let found: Vec<&str> = program.openssl().collect();
    Promise {
        what: "no OpenSSL linked",
        kept: found.is_empty(),
        found: match found.as_slice() {
            [] => "none".to_owned(),
            found => found.join(", "),
        },
    }
}

fn children(seen: &[Usage]) -> Promise {
    let spawned = seen.iter().filter(|u| !u.never_spawned()).count();
    Promise {
        what: "no child process, ever",
        found: match spawned {
            0 => format!("none in {} looks", seen.len()),
            some => format!("in {some} of {} looks", seen.len()),
        },
        kept: spawned == 0,
    }
}

/// # Errors
/// A promise is broken.
pub(super) fn verdict(promises: &[Promise]) -> Result<()> {
    let broken: Vec<&str> = promises
        .iter()
        .filter(|p| !p.kept)
        .map(|p| p.what)
        .collect();
    ensure!(broken.is_empty(), "broken: {}", broken.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            made: "release".to_owned(),
            bytes: MOST_BYTES,
            libraries: vec!["libc.so.6".to_owned()],
        }
    }

    fn broken(program: &Program, seen: &[Usage]) -> Vec<&'static str> {
        let all = [size(program), openssl(program), children(seen)];
        assert_eq!(verdict(&all).is_ok(), all.iter().all(|p| p.kept));
        let broken = all.into_iter().filter(|p| !p.kept);
        broken.map(|p| p.what).collect()
    }

    #[test]
    fn each_promise_is_broken_by_what_it_is_about_alone() {
        let quiet = Usage::default();
        assert!(broken(&program(), &[quiet]).is_empty());
        let large = Program {
            bytes: MOST_BYTES + 1,
            ..program()
        };
        assert_eq!(broken(&large, &[quiet]), [size(&large).what]);
        let linked = Program {
            libraries: vec!["libssl.so.3".to_owned()],
            ..program()
        };
        assert_eq!(broken(&linked, &[quiet]), [openssl(&linked).what]);
        assert_eq!(openssl(&linked).found, "libssl.so.3");
        for busy in [
            Usage {
                children: 1,
                ..quiet
            },
            Usage {
                child_faults: 7,
                ..quiet
            },
        ] {
            let seen = [quiet, busy];
            assert_eq!(broken(&program(), &seen), [children(&seen).what]);
        }
    }
}
