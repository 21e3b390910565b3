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

macro_rules! targets {
    ($($name:ident $property:literal;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            property: $property,
            check: $name::check,
            examples: $name::examples,
        },)*];
    };
}

// The module of each, and its property.
targets! {
    specs "An accepted pool or VsphereAgent is written and read again as the same, and a bad value is named by its field.";
    inventories "The index finds each Agent that may run on a VM, and what is trimmed from an Agent changes no decision about it.";
    serials "A serial number, uuid, MAC address, marker or duration that is read prints as a text that is read as the same.";
    faults "Any reply of vCenter becomes a result or an error with a valid reason, a short message and no secret.";
    tasks "Whatever vCenter reports about a task, the wait for it ends, and its error is short and without a secret.";
    headers "An ISO's length and validators stay in their bounds, the same answer later shows the same ISO, and no error shows the token.";
    urls "A URL, host or datastore path that is accepted prints as one that is accepted, and shows no password and no token.";
    kubeconfigs "A kubeconfig makes clients or an error that shows no secret.";
}

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
    fn an_accepted_spec_is_read_again_as_the_same() {
        a_short_run("specs", 2000);
    }

    #[test]
    fn the_index_finds_each_agent_that_may_run_on_a_vm() {
        a_short_run("inventories", 2000);
    }

    #[test]
    fn what_is_read_prints_as_a_text_that_is_read_as_the_same() {
        a_short_run("serials", 5000);
    }

    #[test]
    fn any_reply_of_vcenter_becomes_a_result_or_an_error_that_can_be_shown() {
        a_short_run("faults", 300);
    }

    #[test]
    fn the_wait_for_a_task_ends_whatever_vcenter_reports() {
        a_short_run("tasks", 200);
    }

    #[test]
    fn an_iso_stays_in_its_bounds_whatever_its_server_answers() {
        a_short_run("headers", 200);
    }

    #[test]
    fn an_accepted_url_prints_as_one_that_is_accepted_and_shows_no_secret() {
        a_short_run("urls", 5000);
    }

    #[test]
    fn a_kubeconfig_makes_clients_or_an_error_that_shows_no_secret() {
        a_short_run("kubeconfigs", 100);
    }
}
