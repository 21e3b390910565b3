//! The files in the repository equal the files generated from the types.

use crate::files;
use agent_forge_crds::manifest;
use std::fs;

#[test]
fn files_in_the_repository_are_the_generated_ones() {
    let mut expected = manifest::crd_files().unwrap();
    expected.push(manifest::reference_file());
    for (path, content) in expected {
        let present = fs::read_to_string(files::workspace().join(&path)).unwrap_or_default();
        assert!(
            present == content,
            "{path} is out of date; run cargo crdgen and cargo crdgen --docs"
        );
    }
}
