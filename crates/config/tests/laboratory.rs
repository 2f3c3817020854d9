//! The laboratory's own configurations: they resolve, and differ from one another in nothing but the benchmark and the length of its texts.

use std::path::Path;

use lens_config::Config;

fn laboratory(file: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(file);
    lens_config::resolve(&[path], &[]).expect("a ready file resolves").config
}

#[test]
fn every_benchmark_has_the_same_settings() {
    let alfworld = laboratory("laboratory.toml");
    assert_eq!(alfworld.task.benchmark, "alfworld");
    let others =
        [("laboratory-webshop.toml", "webshop"), ("laboratory-scienceworld.toml", "scienceworld")];
    for (file, benchmark) in others {
        let other = laboratory(file);
        assert_eq!(other.task.benchmark, benchmark, "{file}");
        let (name, task) = (alfworld.name.clone(), alfworld.task.clone());
        let memory = alfworld.memory.clone();
        let (student, teacher) = (alfworld.student.clone(), alfworld.teacher.clone());
        // How long texts are depends on the benchmark.
        let mut rollout = other.rollout.clone();
        rollout.history = alfworld.rollout.history;
        rollout.max_response_tokens = alfworld.rollout.max_response_tokens;
        let mut eval = other.eval.clone();
        eval.history = alfworld.eval.history;
        eval.max_tokens = alfworld.eval.max_tokens;
        eval.tasks_during_training = alfworld.eval.tasks_during_training;
        let same = Config { name, task, student, teacher, rollout, eval, memory, ..other };
        assert_eq!(same, alfworld, "{file}");
    }
}
