//! What several test files need.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::Write;
use std::path::{Path, PathBuf};

/// A committed checkpoint made with `transformers`: `qwen3`, `qwen2` or `llama`.
pub(crate) fn fixture(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(family)
}

/// A copy of a fixture that a test may damage.
pub(crate) fn copy_of(family: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in std::fs::read_dir(fixture(family)).expect("the fixture is committed") {
        let entry = entry.expect("listable");
        if entry.path().is_dir() {
            continue;
        }
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    copy
}

/// The folder of real models and recordings beside the project, or `None` (said on standard error) when it is absent.
pub(crate) fn shared(inside: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LENS_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join(inside);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("LENS_REQUIRE_SHARED").is_none_or(|value| value != "1"),
        "{} is required and absent",
        path.display()
    );
    let _ = writeln!(std::io::stderr(), "skipped: ../shared is not beside the project");
    None
}
