//! What the tests that need Java and the simulator share.

use std::path::PathBuf;
use std::sync::Arc;

use lens_env::scienceworld::java::Java;
use lens_env::scienceworld::package::{self, Package};
use lens_env::scienceworld::{Options, PoolLimits, ScienceWorld};

/// Whether Java and the simulator are there. If not, says so, and fails where they are required.
pub(crate) fn available() -> bool {
    let found = Java::find().and_then(|_| Package::find(None, &package::cache_folder()));
    match found {
        Ok(_) => true,
        Err(error) => {
            let required =
                std::env::var_os("LENS_REQUIRE_SCIENCEWORLD").is_some_and(|value| value == "1");
            assert!(!required, "LENS_REQUIRE_SCIENCEWORLD=1, but {error}");
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// A benchmark of its own, with a cache of its own for gold paths.
pub(crate) fn open(change: impl FnOnce(&mut Options)) -> Arc<ScienceWorld> {
    let mut options = Options {
        cache: Some(cache()),
        limits: PoolLimits { hosts: 2, ..PoolLimits::default() },
        ..Options::default()
    };
    change(&mut options);
    ScienceWorld::open(options).expect("Java and the simulator are there")
}

/// A folder under the target directory, so that a test run neither uses nor fills the user's cache.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("scienceworld-cache")
}
