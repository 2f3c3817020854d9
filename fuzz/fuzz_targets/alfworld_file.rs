//! Any bytes are an ALFWorld game file or an error that names the file.
#![no_main]

use lens_env::alfworld::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = file::load("fuzz/game.tw-pddl", bytes) {
        assert!(error.to_string().starts_with("fuzz/game.tw-pddl"));
    }
});
