//! The models under `assets/lab`: whole, small enough, of one vocabulary, and as good as they should be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_config::resolve;
use lens_engine::native::NativePolicy;
use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};
use lens_lab::recipe;
use lens_lm::checkpoint::Checkpoint;
use lens_lm::kernels::packed::WeightFormat;
use lens_train::run::{evaluator, setup};

/// The models of the recipe that are shipped; the Qwen2.5 pair is built on demand.
const SHIPPED: [&str; 3] = ["teacher", "student-small", "student-large"];
/// Bytes that all shipped models together may take.
const BUDGET: u64 = 16_000_000;

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/lab")
}

fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("the models are shipped");
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                bytes(&path)
            } else {
                std::fs::metadata(&path).expect("a file").len()
            }
        })
        .sum()
}

#[test]
fn all_of_them_fit_into_the_budget_and_match_the_recipe() {
    assert!(bytes(&assets()) < BUDGET, "{} bytes", bytes(&assets()));
    let tokenizer = |folder: &Path| std::fs::read(folder.join("tokenizer.json")).expect("a file");
    let shared = tokenizer(&assets());
    for plan in recipe::plans().into_iter().filter(|plan| SHIPPED.contains(&plan.name)) {
        let folder = assets().join(plan.name);
        let checkpoint = Checkpoint::open(&folder).expect("it is whole");
        assert_eq!(checkpoint.files.config, plan.config, "{}", plan.name);
        checkpoint.read_parameters().expect("every weight is finite");
        assert!(tokenizer(&folder) == shared, "{} has another vocabulary", plan.name);
    }
}

/// Success rate in percent on the first games of the unseen houses.
fn success(model: &str) -> f64 {
    let overrides =
        ["rollout.max_response_tokens=48", "rollout.max_prompt_tokens=1536", "eval.max_tokens=48"];
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let mut config = resolve(&[], &overrides).expect("it is right").config;
    config.eval.workers = 60;
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let policy = NativePolicy::load(&assets().join(model), WeightFormat::F32).expect("it loads");
    let mut tasks = benchmark.tasks("valid_unseen").expect("a split");
    tasks.truncate(60);
    let evaluator = evaluator(&config, &setup(&config, &benchmark));
    let result =
        evaluator.evaluate(&policy, "valid_unseen", &tasks, 1, 0, |_| {}).expect("it plays");
    result.all.success_rate
}

#[test]
fn the_teacher_plays_well_and_the_student_poorly() {
    let (teacher, student) = (success("teacher"), success("student-small"));
    assert!((35.0..=95.0).contains(&teacher), "the teacher solves {teacher} %");
    assert!((2.0..=35.0).contains(&student), "the small student solves {student} %");
    assert!(student + 10.0 < teacher, "{student} % and {teacher} %: there is little to teach");
}
