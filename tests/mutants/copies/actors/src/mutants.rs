//! The planted defects, and which one is on.
//!
//! Guarantee: at most one is on, for one thread; none until a test says so.

use std::cell::Cell;

macro_rules! mutants {
    ($($name:ident $text:literal $found:expr;)*) => {
        /// A known fault that is put back in. `tests/mutants/defects` describes them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $text] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it does, in a phrase.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What finds it, as its page says.
            #[must_use]
            pub const fn found(self) -> &'static [&'static str] {
                match self { $(Self::$name => &$found,)* }
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));

thread_local! {
    static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this mutant is on for this thread.
#[must_use]
pub fn on(mutant: Mutant) -> bool {
    ON.get() == Some(mutant)
}

/// Whether one of these mutants is on for this thread.
#[must_use]
pub fn any(mutants: &[Mutant]) -> bool {
    mutants.iter().copied().any(on)
}

/// Switches one on for this thread, or all off.
pub fn set(mutant: Option<Mutant>) {
    ON.set(mutant);
}
