//! Where people read more. Texts name a page by its path in the repository, such as `docs/how-to/power.md`. What is printed
//! has its address, at the tag of this release. A build without the address of a repository prints the path.

/// Address of the repository, from the workspace's `Cargo.toml`. Empty if it names none.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// The release.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How each path begins.
const FOLDER: &str = "docs/";

/// The text with the address of each page that it names by its path.
#[must_use]
pub fn linked(text: &str) -> String {
    linked_to(REPOSITORY, VERSION, text)
}

fn linked_to(repository: &str, version: &str, text: &str) -> String {
    if repository.is_empty() {
        return text.to_owned();
    }
    let home = repository.trim_end_matches('/');
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(FOLDER) {
        let (before, path) = rest.split_at(at);
        all += before;
        // In the middle of a longer path or of an address it is no page of ours.
        let begins = !all.ends_with(is_of_path);
        let length = page(path).filter(|_| begins);
        if length.is_some() {
            all += &format!("{home}/blob/v{version}/");
        }
        let (done, next) = path.split_at(length.unwrap_or(FOLDER.len()));
        all += done;
        rest = next;
    }
    all + rest
}

/// Length of the path at the beginning of the text, if it is one of a page.
fn page(text: &str) -> Option<usize> {
    let end = text.find(|c| !is_of_path(c)).unwrap_or(text.len());
    let whole = &text[..end];
    let file = whole.find(".md").map(|at| at + ".md".len())?;
    let anchor = text[file..].strip_prefix('#').map_or(0, |anchor| {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
        1 + anchor.find(ends).unwrap_or(anchor.len())
    });
    Some(file + anchor)
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['/', '-', '_', '.'].contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_of_a_page_becomes_its_address_at_the_release() {
        let at = "https://git.example/forge/blob/v1.2.3/docs";
        for (text, linked) in [
            (
                "See docs/how-to/power.md",
                format!("See {at}/how-to/power.md"),
            ),
            (
                "power (docs/how-to/power.md). Or (docs/reference/reasons.md#vm) then.",
                format!("power ({at}/how-to/power.md). Or ({at}/reference/reasons.md#vm) then."),
            ),
            (
                "{\"page\":\"docs/how-to/power.md#a-b\"}",
                format!("{{\"page\":\"{at}/how-to/power.md#a-b\"}}"),
            ),
            ("docs/how-to/power.md.", format!("{at}/how-to/power.md.")),
        ] {
            for repository in ["https://git.example/forge", "https://git.example/forge/"] {
                assert_eq!(linked_to(repository, "1.2.3", text), linked, "{text}");
            }
        }
    }

    #[test]
    fn what_names_no_page_of_ours_stays() {
        for text in [
            "",
            "docs/",
            "docs/how-to",
            "see docs/ and mydocs/how-to/power.md",
            "https://git.example/forge/blob/v1/docs/how-to/power.md",
            "[ds] docs/a.iso",
        ] {
            assert_eq!(linked_to("https://git.example/forge", "1", text), text);
        }
        assert_eq!(
            linked_to("", "1", "See docs/how-to/power.md"),
            "See docs/how-to/power.md"
        );
        let once = linked("See docs/how-to/power.md");
        assert_eq!(linked(&once), once, "an address stays as it is");
    }
}
