//! The program that is judged: `onecopy`, as it was built together with the tests, or built now.

use std::path::{Path, PathBuf};

use testbed::build;

/// Where `cargo xtask test` has the program that it has built. Building it alone would be a build with other features of
/// its dependencies, so all of them would be built twice.
const BUILT: &str = "ONECOPY_TEST_PROGRAM";

/// The path of the program.
pub(crate) fn onecopy() -> PathBuf {
    if let Some(built) = std::env::var_os(BUILT) {
        return built.into();
    }
    let built = build::cargo().args(["build", "--quiet", "--package", "onecopy"]).status();
    assert!(built.expect("cargo runs").success(), "onecopy is built");
    let programs = Path::new(env!("CARGO_BIN_EXE_onecopy-conformance")).parent().expect("it is in a folder");
    programs.join("onecopy")
}
