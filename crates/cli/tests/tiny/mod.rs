//! Models of a few thousand parameters and a run of a few seconds, for tests of the whole program.

use std::path::Path;
use std::sync::Arc;

use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};

/// A teacher and a student that know the format and little else.
pub(crate) fn build_models(folder: &Path) {
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let mut tasks = benchmark.tasks("train").expect("a split");
    tasks.retain(|task| task.kind == "pick_and_place_simple");
    tasks.truncate(40);
    lens_lab::tiny::pair(&benchmark, &tasks, folder).expect("it learns");
}

/// `--set` before each value.
pub(crate) fn sets(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|&value| ["--set".to_owned(), value.to_owned()]).collect()
}

/// The settings of a run of a few seconds with the models and the run folders in `folder`.
pub(crate) fn settings(folder: &Path) -> Vec<String> {
    let mut arguments = sets(&[
        "seeds=[7]",
        "task.turn_limit=4",
        "locate.residence=2",
        "rollout.batch_size=4",
        "rollout.max_prompt_tokens=1500",
        "rollout.max_response_tokens=64",
        "train.batch_size=4",
        "train.eval_interval=100",
        "eval.max_tokens=64",
        "eval.tasks_during_training=2",
        "optimizer.lr=1e-3",
        "task.eval_splits=[\"valid_unseen\"]",
        "teacher.weights=f32",
    ]);
    let inside = |key: &str, name: &str| format!("{key}={}", folder.join(name).display());
    arguments.extend(sets(&[
        &inside("output", ""),
        &inside("student.path", "student-small"),
        &inside("teacher.path", "teacher"),
    ]));
    arguments
}
