//! `agent-forge validate`: whether a file would be accepted, and whether the operator could use it. Offline.
//!
//! Three looks: the schema of the definition, its CEL rules, and the operator's own reading of the values.

mod cel;
mod semantics;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use agent_forge_crds::{manifest::structural, names};
use clap::Args as ClapArgs;
use serde::Serialize;

use super::{
    manifest_file::{self, Document},
    report::{self, Output, Report, Verdict},
};

/// What `agent-forge validate` reads.
#[derive(Clone, Debug, ClapArgs)]
pub struct ValidateArgs {
    /// A file with manifests, in YAML or JSON. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// How the result is printed.
    #[arg(
        long,
        short,
        env = "AGENT_FORGE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub output: Output,
}

/// What is wrong with the objects of a file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// The objects that were checked.
    checked: Vec<String>,
    /// What is wrong.
    problems: Vec<Problem>,
    /// Rules that only the API server can check.
    unchecked: Vec<String>,
    /// Kinds that are not the operator's.
    ignored: Vec<String>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The object.
    object: String,
    /// Which look found it.
    found_by: FoundBy,
    /// What is wrong, with the field.
    message: String,
}

/// How a problem was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FoundBy {
    /// The API server would refuse the object: the schema.
    Schema,
    /// The API server would refuse the object: a CEL rule.
    Rule,
    /// The API server would accept it, and the operator could not use it.
    Meaning,
}

/// Checks the file.
///
/// # Errors
/// It cannot be read.
pub fn run(asked: &ValidateArgs) -> anyhow::Result<Verdict> {
    let documents = manifest_file::read(&asked.file)?;
    report::print(&validate(&documents), asked.output)
}

/// Checks the objects.
#[must_use]
pub fn validate(documents: &[Document]) -> Validation {
    let mut all = Validation {
        checked: Vec::new(),
        problems: Vec::new(),
        unchecked: Vec::new(),
        ignored: Vec::new(),
    };
    for document in documents {
        let namespace = document.namespace.as_ref().map(|n| format!("{n}/"));
        let object = format!(
            "{} {}{}",
            document.kind,
            namespace.unwrap_or_default(),
            document.name
        );
        let Some(schema) = manifest_file::schema(&document.kind) else {
            all.ignored.push(object);
            continue;
        };
        let problem = |found_by, message| Problem {
            object: object.clone(),
            found_by,
            message,
        };
        let before = all.problems.len();
        let api = document.object["apiVersion"].as_str().unwrap_or_default();
        let is_served = [names::VERSION, names::NEXT_VERSION]
            .iter()
            .any(|version| api.split_once('/') == Some((names::GROUP, version)));
        if !is_served {
            let (usual, next) = (names::API_VERSION, names::NEXT_VERSION);
            let message = format!("apiVersion: {api:?} must be {usual:?} (or {next} of its group)");
            all.problems.push(problem(FoundBy::Schema, message));
        }
        if document.name.is_empty() {
            all.problems.push(problem(
                FoundBy::Schema,
                "metadata.name: is required".to_owned(),
            ));
        }
        let found = structural::problems(&schema, &document.object);
        all.problems
            .extend(found.into_iter().map(|m| problem(FoundBy::Schema, m)));
        for rule in structural::rules(&schema, &document.object) {
            match cel::holds(rule.rule, rule.value) {
                Some(true) => {}
                Some(false) => {
                    let message = format!("{}: {}", rule.path, rule.message);
                    all.problems.push(problem(FoundBy::Rule, message));
                }
                None => all
                    .unchecked
                    .push(format!("{object}: {}: {}", rule.path, rule.message)),
            }
        }
        if all.problems.len() == before && document.kind == "VsphereAgentPool" {
            let found = semantics::problems(&document.object);
            all.problems
                .extend(found.into_iter().map(|m| problem(FoundBy::Meaning, m)));
        }
        all.checked.push(object);
    }
    let twice = semantics::conflicts(documents);
    all.problems
        .extend(twice.into_iter().map(|(object, message)| Problem {
            object,
            found_by: FoundBy::Meaning,
            message,
        }));
    all
}

impl Report for Validation {
    fn text(&self) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            let by = match problem.found_by {
                FoundBy::Schema => "the API server refuses it (schema)",
                FoundBy::Rule => "the API server refuses it (rule)",
                FoundBy::Meaning => "the operator cannot use it",
            };
            text += &format!(
                "{}: {}\n    {}\n",
                problem.object,
                by,
                report::one_line(&problem.message)
            );
        }
        for rule in &self.unchecked {
            text += &format!("not checked here, the API server does: {rule}\n");
        }
        for object in &self.ignored {
            text += &format!("not checked, not a kind of agent-forge: {object}\n");
        }
        if self.checked.is_empty() {
            text += "the file has no VsphereAgentPool and no VsphereAgent\n";
        } else if self.problems.is_empty() {
            text += &format!("valid: {}\n", self.checked.join(", "));
        }
        text
    }

    fn verdict(&self) -> Verdict {
        if !self.problems.is_empty() {
            Verdict::Findings
        } else if self.checked.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Nothing
        }
    }
}
