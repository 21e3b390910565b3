//! Compiles the mutants in, here and nowhere else.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=mutants");
}
