//! The table of tests/mutants/README.md.

use std::fmt::Write as _;

use crate::{
    Mutant,
    cases::{CASES, WITHOUT},
    modelled,
};

/// The line before the table.
pub const BEGIN: &str = "<!-- mutants: cargo run -p agent-forge-mutants -- table -->\n";
/// The line after it.
pub const END: &str = "<!-- end of mutants -->\n";

/// Where the model checker finds a mutant, and which promise breaks. Empty if it does not.
fn modelled(mutant: Mutant) -> String {
    let found = modelled::CASES.iter().find(|(m, ..)| *m == mutant);
    found
        .map(|(_, world, promise)| format!("{world}: {promise}"))
        .unwrap_or_default()
}

/// The table, and after it the rows that have no mutant.
#[must_use]
pub fn table() -> String {
    let mut out = String::from(
        "\n| Rows | The fault, put back in | Workload | Fault | Oracle | Model checker |\n|---|---|---|---|---|---|\n",
    );
    for case in CASES {
        let _ = writeln!(
            out,
            "| {} | {} | `{}` | {} | `{}` | {} |",
            case.rows.join(", "),
            case.mutant.text(),
            case.workload,
            case.fault.map(|f| format!("`{f}`")).unwrap_or_default(),
            case.oracle.name(),
            modelled(case.mutant)
        );
    }
    out.push_str("\n| Row | Why it has no mutant |\n|---|---|\n");
    for (row, why) in WITHOUT {
        let _ = writeln!(out, "| {row} | {why} |");
    }
    out.push('\n');
    out
}
