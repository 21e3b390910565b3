//! The planted defects, as `tests/mutants/defects` describes them: reading the pages, and planting the defects in sources.
//!
//! The build script of `tests/mutants/copies/actors` compiles this file too, so it uses only the standard library.
//! Guarantee: planting fails unless the product's text of each change is found exactly once in its file.

use std::{collections::BTreeSet, fmt::Write as _, ops::Range};

/// A defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// Its name in Rust.
    pub name: String,
    /// What it does, in a phrase.
    pub text: String,
    /// What finds it, one sentence each.
    pub found: Vec<String>,
}

/// One place that a defect changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The page that describes it.
    pub page: String,
    /// The defect under whose heading it is.
    pub defect: String,
    /// The file, seen from `actors/src`.
    pub file: String,
    /// What the product has there.
    pub product: String,
    /// What the copy has there, with `on(..)` where it asks for a defect.
    pub copy: String,
}

/// All that some pages describe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    /// The defects.
    pub all: Vec<Defect>,
    /// What they change.
    pub changes: Vec<Change>,
}

impl Defects {
    /// Adds those of a page.
    ///
    /// # Errors
    /// The page does not have the form that tests/mutants/README.md describes.
    pub fn add(&mut self, page: &str, text: &str) -> Result<(), String> {
        let mut lines = text.lines().peekable();
        let (mut defect, mut file) = (None, None);
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("## ") {
                let phrase = lines.by_ref().find(|l| !l.is_empty()).unwrap_or_default();
                let found: Vec<String> = lines
                    .by_ref()
                    .skip_while(|l| l.is_empty())
                    .take_while(|l| !l.is_empty())
                    .map(str::to_owned)
                    .collect();
                if found.is_empty() || !found.iter().all(|l| l.starts_with("Found by ")) {
                    return Err(format!(
                        "{page}: {name}: the line below the phrase says \"Found by ..\""
                    ));
                }
                if self.all.iter().any(|d| d.name == name) {
                    return Err(format!("{page}: {name} is there twice"));
                }
                self.all.push(Defect {
                    name: name.to_owned(),
                    text: phrase.to_owned(),
                    found,
                });
                (defect, file) = (Some(name), None);
            } else if let Some(at) = line.strip_prefix("In `") {
                file = at.strip_suffix("`:");
            } else if line == FENCE {
                let (Some(defect), Some(file)) = (defect, file.take()) else {
                    return Err(format!(
                        "{page}: a block has no line \"In `file`:\" before it, or there are more than two"
                    ));
                };
                let product = block(lines.by_ref());
                let copy = lines.by_ref().find(|l| !l.is_empty());
                if copy != Some(FENCE) {
                    return Err(format!(
                        "{page}: {defect}: the block of the copy is missing after that of the product in {file}"
                    ));
                }
                self.changes.push(Change {
                    page: page.to_owned(),
                    defect: defect.to_owned(),
                    file: file.to_owned(),
                    product,
                    copy: block(lines.by_ref()),
                });
            }
        }
        Ok(())
    }

    /// The source of `file`, with the defects planted; what is wrong with the changes of that file.
    ///
    /// # Errors
    /// All that is wrong, one sentence each.
    pub fn plant(&self, file: &str, source: &str) -> Result<String, Vec<String>> {
        let (mut places, mut wrong) = (Vec::new(), Vec::new());
        for change in self.changes.iter().filter(|c| c.file == file) {
            let found = occurrences(source, &change.product);
            let copy = self.guarded(&change.copy);
            match (&found[..], copy) {
                ([place], Ok((copy, _))) => places.push((place.clone(), copy, change)),
                ([_], Err(e)) => wrong.push(change.complain(&e)),
                _ => wrong.push(change.complain(&format!(
                    "the product has this text {} times, not once. The product's text changed; update the page:\n{}",
                    found.len(),
                    change.product
                ))),
            }
        }
        places.sort_by_key(|(place, ..)| place.start);
        for pair in places.windows(2) {
            if let [(one, _, first), (other, _, second)] = pair
                && one.end > other.start
            {
                wrong.push(second.complain(&format!(
                    "its text overlaps with that of {}. Make one change of the two, which asks for both defects",
                    first.defect
                )));
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let mut planted = source.to_owned();
        for (place, copy, _) in places.into_iter().rev() {
            planted.replace_range(place, &copy);
        }
        Ok(planted)
    }

    /// What is wrong with all of them together: changes of files that are not there, defects that change nothing.
    #[must_use]
    pub fn flaws(&self, files: &BTreeSet<String>) -> Vec<String> {
        let stray = self.changes.iter().filter(|c| !files.contains(&c.file));
        let mut wrong: Vec<String> = stray
            .map(|c| {
                c.complain("there is no such file. The product's files moved; update the page")
            })
            .collect();
        let asked: BTreeSet<String> = self
            .changes
            .iter()
            .filter_map(|c| self.guarded(&c.copy).ok())
            .flat_map(|(_, names)| names)
            .collect();
        let idle = self.all.iter().filter(|d| !asked.contains(&d.name));
        wrong.extend(idle.map(|d| format!("the defect {} changes nothing", d.name)));
        wrong
    }

    /// The list for the macro `mutants!` of the copy.
    #[must_use]
    pub fn list(&self) -> String {
        let mut list = "mutants! {\n".to_owned();
        for Defect { name, text, found } in &self.all {
            let _ = writeln!(list, "    {name} {text:?} {found:?};");
        }
        list + "}\n"
    }

    /// `text` with each `on(..)` as Rust, and the defects that it asks for.
    fn guarded(&self, text: &str) -> Result<(String, Vec<String>), String> {
        let (mut rust, mut asked, mut rest) = (String::new(), Vec::new(), text);
        while let Some((before, after)) = rest.split_once("on(") {
            rust.push_str(before);
            let is_ours = after.starts_with(|c: char| c.is_ascii_uppercase())
                && !rust.ends_with(|c: char| c == '_' || c == '.' || c.is_alphanumeric());
            rest = after;
            let Some((names, after)) = after.split_once(')').filter(|_| is_ours) else {
                rust.push_str("on(");
                continue;
            };
            rest = after;
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            if let Some(name) = names
                .iter()
                .find(|n| self.all.iter().all(|d| d.name != **n))
            {
                return Err(format!("there is no defect {name}"));
            }
            let paths: Vec<String> = names
                .iter()
                .map(|n| format!("crate::mutants::Mutant::{n}"))
                .collect();
            let _ = match &paths[..] {
                [one] => write!(rust, "crate::mutants::on({one})"),
                several => write!(rust, "crate::mutants::any(&[{}])", several.join(", ")),
            };
            asked.extend(names.into_iter().map(str::to_owned));
        }
        if asked.is_empty() {
            return Err("the text of the copy asks for no defect, as with `on(Name)`".to_owned());
        }
        rust.push_str(rest);
        Ok((rust, asked))
    }
}

impl Change {
    fn complain(&self, what: &str) -> String {
        format!(
            "defect {} in actors/src/{}, by tests/mutants/defects/{}: {what}",
            self.defect, self.file, self.page
        )
    }
}

const FENCE: &str = "```rust";

fn block<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = lines.take_while(|line| *line != "```").collect();
    lines.join("\n")
}

/// Where `text` is in `source`, whatever the lines of both are indented by.
fn occurrences(source: &str, text: &str) -> Vec<Range<usize>> {
    let (mut flat, mut places, mut at) = (String::new(), Vec::new(), 0);
    for line in source.split_inclusive('\n') {
        let kept = line.trim_start_matches([' ', '\t']);
        let start = at + line.len() - kept.len();
        places.extend(start..start + kept.len());
        flat.push_str(kept);
        at += line.len();
    }
    let text: Vec<&str> = text.lines().map(str::trim_start).collect();
    let text = text.join("\n");
    flat.match_indices(&text)
        .filter(|_| !text.is_empty())
        .map(|(from, _)| places[from]..places[from + text.len() - 1] + 1)
        .collect()
}
