//! Changed copies of examples.

/// An input never grows beyond this many bytes.
const LONGEST: usize = 32 << 10;
/// Most changes of one copy.
const MOST_CHANGES: usize = 6;
/// Texts that have a meaning for some reader.
const WORDS: [&[u8]; 24] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"0",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\0",
    b"\r\n",
    b"..",
    b"/",
    b"%2f",
    b"%00",
    b"://",
    b"@",
    b"[::1]",
    b"_typeName",
    b"_value",
    "\u{202e}\u{fffd}".as_bytes(),
];

/// A source of inputs: the examples, and changed copies of them.
pub(crate) struct Mutator {
    examples: Vec<Vec<u8>>,
    random: fastrand::Rng,
    given: usize,
}

impl Mutator {
    /// Always the same inputs for the same examples and seed.
    pub(crate) fn new(examples: Vec<Vec<u8>>, seed: u64) -> Self {
        Self {
            examples,
            random: fastrand::Rng::with_seed(seed),
            given: 0,
        }
    }

    /// First each example as it is, then changed ones without end.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        self.given += 1;
        if let Some(example) = self.examples.get(self.given - 1) {
            return example.clone();
        }
        let mut input = self
            .random
            .choice(&self.examples)
            .cloned()
            .unwrap_or_default();
        for _ in 0..self.random.usize(1..=MOST_CHANGES) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(..=input.len());
        let span = self.random.usize(..=(input.len() - at).min(64));
        match self.random.u8(..8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.u8(..8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.random.u8(..);
                }
            }
            2 => drop(input.drain(at..at + span)),
            3 => {
                let copy = input[at..at + span].to_vec();
                let times = self.random.usize(1..=64);
                input.splice(at..at, copy.repeat(times));
            }
            4 => {
                let word = self.random.choice(WORDS).unwrap_or_default();
                input.splice(at..at + span, word.iter().copied());
            }
            5 => {
                let word = self.random.choice(WORDS).unwrap_or_default();
                input.splice(at..at, word.iter().copied());
            }
            6 => {
                let other = self
                    .random
                    .choice(&self.examples)
                    .cloned()
                    .unwrap_or_default();
                let from = self.random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.truncate(at),
        }
        input.truncate(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_inputs_and_begins_with_the_examples() {
        let examples = vec![b"one".to_vec(), b"another".to_vec()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(examples.clone(), seed);
            (0..100).map(|_| mutator.next()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
        assert_eq!(inputs(7)[..2], examples);
        assert!(inputs(7).iter().all(|input| input.len() <= LONGEST));
    }
}
