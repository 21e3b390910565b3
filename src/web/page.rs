//! The page: one HTML file with its style and its script inside. It loads nothing else, so it works offline.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("page/style.css");

/// The parts share one scope, as in one file.
const SCRIPT: &str = concat!(
    include_str!("page/dom.js"),
    include_str!("page/machines.js"),
    include_str!("page/machine.js"),
    include_str!("page/actors.js"),
    include_str!("page/live.js"),
);

/// The whole page.
pub const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style>",
    include_str!("page/style.css"),
    "</style>",
    include_str!("page/body.html"),
    "<script>",
    include_str!("page/dom.js"),
    include_str!("page/machines.js"),
    include_str!("page/machine.js"),
    include_str!("page/actors.js"),
    include_str!("page/live.js"),
    "</script></body></html>\n",
);

/// Value of the header `Content-Security-Policy`. The browser runs this style and this script, and no other.
pub static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});
