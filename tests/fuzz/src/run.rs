//! Calls a target again and again.

use std::{
    cell::Cell,
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::Once,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{Target, mutate::Mutator};

/// An input that takes longer breaks the target's promise to end soon. A busy machine needs a part of it.
const LONGEST: Duration = Duration::from_secs(5);

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this many inputs.
    Inputs(usize),
    /// After this time.
    Elapsed(Duration),
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Inputs that were tried.
    pub inputs: usize,
    /// The longest time that one of them took.
    pub longest: Duration,
}

/// Calls `target` with its examples and with changed copies of them.
///
/// # Errors
/// The property does not hold for an input, or it took too long. The input is in the file that the error names, below
/// `into`.
pub fn run(target: &Target, seed: u64, until: Until, into: &Path) -> Result<Report> {
    let mut mutator = Mutator::new((target.examples)(), seed);
    let (start, mut inputs, mut longest) = (Instant::now(), 0, Duration::ZERO);
    loop {
        let done = match until {
            Until::Inputs(count) => inputs >= count,
            Until::Elapsed(time) => start.elapsed() >= time,
        };
        if done {
            return Ok(Report { inputs, longest });
        }
        let input = mutator.next();
        let begun = Instant::now();
        let held = holds(target, &input);
        let took = begun.elapsed();
        inputs += 1;
        longest = longest.max(took);
        let why = match held {
            Err(why) => why,
            Ok(()) if took > LONGEST => format!("it took {took:?}"),
            Ok(()) => continue,
        };
        let path = keep(target, &input, into)?;
        bail!(
            "{}: input {inputs} of seed {seed} breaks the promise \"{}\": {why}\nIt is in {path}. Repeat it with: cargo run -p agent-forge-fuzz -- --replay {path} {}",
            target.name,
            target.property,
            target.name,
            path = path.display(),
        );
    }
}

/// Calls `target` once.
///
/// # Errors
/// Why the property does not hold. A panic of a background task counts too.
pub fn holds(target: &Target, input: &[u8]) -> Result<(), String> {
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
    let before = PANICS.get();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    match outcome {
        Ok(()) if PANICS.get() == before => Ok(()),
        Ok(()) => Err("a task in the background panicked".to_owned()),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("a panic without a text").to_owned())
        }
    }
}

fn keep(target: &Target, input: &[u8], into: &Path) -> Result<PathBuf> {
    fs::create_dir_all(into).with_context(|| format!("create {}", into.display()))?;
    let path = into.join(format!("{}.input", target.name));
    fs::write(&path, input).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
