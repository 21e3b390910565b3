//! The table of tests/mutants/README.md.

use std::fmt::Write as _;

use crate::cases::{CASES, WITHOUT};

/// The line before the table.
pub const BEGIN: &str = "<!-- mutants: cargo run -p agent-forge-mutants -- table -->\n";
/// The line after it.
pub const END: &str = "<!-- end of mutants -->\n";

/// The table, and after it the rows that have no mutant.
#[must_use]
pub fn table() -> String {
    let mut out = String::from(
        "\n| Rows | The fault, put back in | Workload | Fault | Oracle |\n|---|---|---|---|---|\n",
    );
    for case in CASES {
        let _ = writeln!(
            out,
            "| {} | {} | `{}` | {} | `{}` |",
            case.rows.join(", "),
            case.mutant.text(),
            case.workload,
            case.fault.map(|f| format!("`{f}`")).unwrap_or_default(),
            case.oracle.name()
        );
    }
    out.push_str("\n| Row | Why it has no mutant |\n|---|---|\n");
    for (row, why) in WITHOUT {
        let _ = writeln!(out, "| {row} | {why} |");
    }
    out.push('\n');
    out
}
