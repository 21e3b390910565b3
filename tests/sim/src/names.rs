//! Kinds of things that people name in plans and commands.

/// An enum whose values have a name and a phrase. A name is read where a value is expected.
macro_rules! named {
    ($(#[$meta:meta])* $of:ident, $kind:literal: $($value:ident $name:literal $text:literal;)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $of {
            $(#[doc = $text] $value,)*
        }

        impl $of {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            /// The name in plans and commands.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            /// What it means, in a phrase.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$value => $text,)* }
            }
        }

        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $of {
            type Err = anyhow::Error;

            fn from_str(text: &str) -> anyhow::Result<Self> {
                let found = Self::ALL.iter().find(|v| v.name() == text).copied();
                anyhow::Context::with_context(found, || {
                    format!("no {} is called {text}; `sim list` shows all", $kind)
                })
            }
        }
    };
}
pub(crate) use named;
