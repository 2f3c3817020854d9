//! The shipped pair leaves the method room to act: the first batches of a run show it.
//!
//! A whole run is needed to judge the gain (`lens lab check`). What the first batches can tell is here, with bounds a
//! little wider than the aims, so that chance does not fail it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lens_config::resolve;
use lens_engine::native::{LearnerOptions, NativeEngine};
use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};
use lens_lab::regime::{Row, run_rows};
use lens_lm::model::WeightFormat;
use lens_lm::train::{AdamWConfig, TrainerOptions};
use lens_records::RunFolder;
use lens_train::{Opening, Progress, Run, RunInputs};

struct Silent;

impl Progress for Silent {}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of a run of `steps` steps with the shipped small student.
fn rows(folder: &Path, steps: u64) -> Vec<Row> {
    let overrides = [
        format!("train.steps={steps}"),
        format!("train.eval_interval={}", steps + 1),
        "eval.tasks_during_training=1".to_owned(),
        format!("output=\"{}\"", folder.display()),
    ];
    let mut config =
        resolve(&[root().join("configs/laboratory.toml")], &overrides).expect("sound").config;
    config.student.path = root().join("assets/lab/student-small");
    config.teacher.path = root().join("assets/lab/teacher");
    let options = LearnerOptions {
        format: WeightFormat::F32,
        loss: config.loss,
        optimizer: AdamWConfig { lr: config.optimizer.lr, ..AdamWConfig::default() },
        training: TrainerOptions::default(),
    };
    let engine =
        NativeEngine::load(&config.student.path, &config.teacher.path, WeightFormat::F32, options)
            .expect("it loads");
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let inputs = RunInputs { config, seed: 42, benchmark, engine: Box::new(engine) };
    let mut run = Run::open(inputs, Opening::New, &mut Silent).expect("it opens");
    run.run(&AtomicBool::new(false), &mut Silent).expect("it runs");
    let folder = RunFolder::open(run.path()).expect("it has records");
    run_rows(&lens_report::Run::load(folder)).expect("they can be read")
}

#[test]
fn the_shipped_pair_stays_in_the_regime() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rows = rows(folder.path(), 6);
    let values = |quantity: &str| {
        let row = rows.iter().find(|row| row.quantity.starts_with(quantity));
        row.unwrap_or_else(|| panic!("no {quantity}")).values.clone()
    };
    let gap = values("internalization gap");
    assert!(gap[0] >= 0.25, "the gap starts at {}", gap[0]);
    let targets = values("target tokens");
    assert!((0.12..0.6).contains(&targets[0]) && targets[1] > 1.4 * targets[0], "{targets:?}");
    let competence = values("frontier competence");
    assert!(competence[0] > 0.3 && competence[2] == 0.0, "{competence:?}");
    assert!(values("content tokens")[0] >= 25.0);
}
