//! Enums of words: each variant has the word that users see in the object.

/// Declares such an enum. A word without a variant, for example from another release, is kept as `Other` and written back
/// unchanged.
macro_rules! words {
    (
        $(#[$of:meta])+
        $kind:ident {
            $($(#[$doc:meta])+ $name:ident = $word:literal,)+
        }
    ) => {
        $(#[$of])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $kind {
            $($(#[$doc])+ $name,)+
            /// A word without a variant. Only `from` makes it, so that a word with a variant is never in here.
            Other(String),
        }

        impl $kind {
            /// Every variant except `Other`.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word in the object.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $kind {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$name,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $kind {
            fn from(word: String) -> Self {
                Self::from(word.as_str())
            }
        }

        impl From<$kind> for String {
            fn from(word: $kind) -> Self {
                word.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(super) use words;

#[cfg(test)]
mod tests {
    use crate::conditions::{Phase, Reason};

    #[test]
    fn each_word_leads_back_to_its_variant() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from(reason.as_str()), *reason);
        }
        for phase in Phase::ALL {
            assert_eq!(Phase::from(phase.as_str()), *phase);
        }
        for word in ["", "SystemError", "isoReady"] {
            assert_eq!(Reason::from(word), Reason::Other(word.to_owned()));
            assert_eq!(Reason::from(word).to_string(), word);
        }
    }
}
