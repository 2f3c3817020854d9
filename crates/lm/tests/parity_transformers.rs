//! Checkpoints we save, loaded by `transformers`: same logits, same gradients, same tokenizer.
//! Needs a Python with torch and transformers, named by the environment variable `LENS_PYTHON`.

mod common;

use std::io::Write;
use std::process::Command;

use common::fixture;
use lens_lm::checkpoint::{Checkpoint, Dtype, ModelTokens, SaveOptions, save};

#[test]
fn transformers_computes_the_same_with_what_we_save() {
    let Some(python) = std::env::var_os("LENS_PYTHON") else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: LENS_PYTHON does not name a Python with transformers"
        );
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (family, dtype) in [("qwen3", Dtype::F32), ("qwen2", Dtype::Bf16), ("llama", Dtype::F16)] {
        let checkpoint = Checkpoint::open(&fixture(family)).expect("valid");
        let parameters = checkpoint.read_parameters().expect("readable");
        // Sharded and single files, the files' own configuration and one written anew.
        let fresh = lens_lm::checkpoint::ModelFiles::new(
            checkpoint.files.config.clone(),
            &ModelTokens::default(),
            checkpoint.files.companions.clone(),
        );
        let sharded = SaveOptions { dtype, shard_limit: 20_000 };
        for (name, files, options) in [
            ("same", &checkpoint.files, SaveOptions::new(dtype)),
            ("sharded", &checkpoint.files, sharded),
            ("fresh", &fresh, SaveOptions::new(Dtype::F32)),
        ] {
            let target = folder.path().join(family).join(name);
            save(&target, files, &parameters, &options).expect("saved");
            let output = Command::new(&python)
                .arg(fixture("make_fixtures.py"))
                .arg("--check")
                .arg(&target)
                .args(["--like", family])
                .output()
                .expect("LENS_PYTHON starts");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
