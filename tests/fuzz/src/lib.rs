//! Texts that others write, and what agent-forge must make of any of them.
//!
//! A [`Target`] is a function of bytes that panics when agent-forge breaks a property: what is accepted survives a round
//! trip, an error shows no secret, everything ends soon. [`run`] calls it with real examples and with changed copies of
//! them.
//!
//! Guarantee: the same seed gives the same inputs. Assumption: a target has no memory, so one input repeats a failure.

mod faults;
mod headers;
mod inventories;
mod kubeconfigs;
mod mutate;
pub mod run;
mod serials;
mod specs;
mod tasks;
mod urls;
mod vcenter;

/// A secret of the examples. No error may show it.
pub(crate) const SECRET: &str = "s3cr3t-0f-th3-t3st";

/// Something that reads texts of others.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What holds for each input, as a sentence.
    pub property: &'static str,
    /// Panics if the property does not hold for this input.
    pub check: fn(&[u8]),
    /// Real examples.
    pub examples: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target {
        name: "specs",
        property: "An accepted pool or VsphereAgent is written and read again as the same, and a bad value is named by its field.",
        check: specs::check,
        examples: specs::examples,
    },
    Target {
        name: "inventories",
        property: "The index finds each Agent that may run on a VM, and what is trimmed from an Agent changes no decision about it.",
        check: inventories::check,
        examples: inventories::examples,
    },
    Target {
        name: "serials",
        property: "A serial number, uuid, MAC address, marker or duration that is read prints as a text that is read as the same.",
        check: serials::check,
        examples: serials::examples,
    },
    Target {
        name: "faults",
        property: "Any reply of vCenter becomes a result or an error with a valid reason, a short message and no secret.",
        check: faults::check,
        examples: faults::examples,
    },
    Target {
        name: "tasks",
        property: "Whatever vCenter reports about a task, the wait for it ends, and its error is short and without a secret.",
        check: tasks::check,
        examples: tasks::examples,
    },
    Target {
        name: "headers",
        property: "An ISO's length and validators stay in their bounds, the same answer later shows the same ISO, and no error shows the token.",
        check: headers::check,
        examples: headers::examples,
    },
    Target {
        name: "urls",
        property: "A URL, host or datastore path that is accepted prints as one that is accepted, and shows no password and no token.",
        check: urls::check,
        examples: urls::examples,
    },
    Target {
        name: "kubeconfigs",
        property: "A kubeconfig makes clients or an error that shows no secret.",
        check: kubeconfigs::check,
        examples: kubeconfigs::examples,
    },
];

/// Runs a future to its end on this thread, with virtual time.
pub(crate) fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    runtime(true).block_on(future)
}

/// Runs a future to its end on this thread.
pub(crate) fn in_real_time<T>(future: impl Future<Output = T>) -> T {
    runtime(false).block_on(future)
}

fn runtime(paused: bool) -> tokio::runtime::Runtime {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build();
    built.unwrap_or_else(|e| panic!("no runtime: {e}"))
}

/// The input as text, for readers of texts. Bytes that are no UTF-8 are replaced.
pub(crate) fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// Texts as examples.
pub(crate) fn of(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Until;

    /// As many inputs as take about a second. A soak takes half a minute for each target.
    fn a_short_run(name: &str, inputs: usize) {
        let target = TARGETS.iter().find(|t| t.name == name);
        let target = target.unwrap_or_else(|| panic!("no target {name}"));
        let into = tempfile::tempdir().expect("a directory");
        if let Err(broken) = run::run(target, 1, Until::Inputs(inputs), into.path()) {
            let path = into.keep();
            panic!("{broken:#}\nThe input stays in {}", path.display());
        }
    }

    #[test]
    fn specs_hold() {
        a_short_run("specs", 2000);
    }

    #[test]
    fn inventories_hold() {
        a_short_run("inventories", 2000);
    }

    #[test]
    fn serials_hold() {
        a_short_run("serials", 5000);
    }

    #[test]
    fn faults_hold() {
        a_short_run("faults", 300);
    }

    #[test]
    fn tasks_hold() {
        a_short_run("tasks", 200);
    }

    #[test]
    fn headers_hold() {
        a_short_run("headers", 200);
    }

    #[test]
    fn urls_hold() {
        a_short_run("urls", 5000);
    }

    #[test]
    fn kubeconfigs_hold() {
        a_short_run("kubeconfigs", 100);
    }
}
