//! The models under `assets/lab`: whole, small enough, of one vocabulary, and as good as they should be.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lens_config::resolve;
use lens_engine::native::{LearnerOptions, NativeEngine, NativePolicy};
use lens_engine::{Call, GenerateCall, ObservedEngine, Observer, Sampling};
use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};
use lens_lab::build::open_set;
use lens_lab::corpus::{Corpus, CorpusOptions};
use lens_lab::critique::{followed_critiques, teacher_critiques};
use lens_lab::dagger;
use lens_lab::recipe::Recipe;
use lens_lab::tokenizer::TokenizerOrigin;
use lens_lm::checkpoint::Checkpoint;
use lens_lm::model::WeightFormat;
use lens_lm::train::{AdamWConfig, TrainerOptions};
use lens_train::diagnose::{Examination, Findings};
use lens_train::references::References;
use lens_train::run::{evaluator, rollout, rollout_config};
use lens_train::tasks::TaskOrder;

/// Bytes that all shipped models together may take.
const BUDGET: u64 = 48_000_000;

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
    let tokenizer = |name: &str| {
        std::fs::read(assets().join(name).join("tokenizer.json")).expect("a tokenizer")
    };
    let recipe = Recipe::shipped("alfworld").expect("it is shipped");
    for name in ["teacher", "student-small", "student-large", "teacher-qwen2.5", "student-qwen2.5"]
    {
        let model = recipe.models.iter().find(|model| model.name == name).expect("a recipe");
        let checkpoint = Checkpoint::open(&assets().join(name)).expect("it is whole");
        let config = model.config(recipe.tokenizer.vocab_size);
        assert_eq!(checkpoint.files.config, config, "{name}");
        checkpoint.read_parameters().expect("every weight is finite");
        assert!(tokenizer(name) == tokenizer(""), "{name} has another vocabulary");
    }
}

#[test]
fn the_scienceworld_pair_matches_its_recipe_and_shares_a_vocabulary() {
    let folder = assets().join("scienceworld");
    let recipe = Recipe::shipped("scienceworld").expect("it is shipped");
    let shared = std::fs::read(folder.join("tokenizer.json")).expect("a tokenizer");
    for name in ["teacher", "student-small"] {
        let model = recipe.models.iter().find(|model| model.name == name).expect("a recipe");
        let checkpoint = Checkpoint::open(&folder.join(name)).expect("it is whole");
        assert_eq!(checkpoint.files.config, model.config(recipe.tokenizer.vocab_size), "{name}");
        checkpoint.read_parameters().expect("every weight is finite");
        let own = std::fs::read(folder.join(name).join("tokenizer.json")).expect("a tokenizer");
        assert!(own == shared, "{name} has another vocabulary");
    }
    // A later build into the folder reuses the tokenizer only if the recipe still is the one it was made from.
    let origin = std::fs::read(folder.join("tokenizer-origin.json")).expect("a record");
    let origin: TokenizerOrigin = serde_json::from_slice(&origin).expect("a record");
    assert_eq!(origin, TokenizerOrigin::new(&recipe, 1));
}

#[test]
fn the_webshop_pair_matches_its_recipe_and_configuration_and_the_teacher_shops_better() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("configs/laboratory-webshop.toml");
    let config = resolve(&[file], &[]).expect("it is right").config;
    let recipe = Recipe::shipped("webshop").expect("it is shipped");
    assert_eq!(Some(config.rollout.history), recipe.corpus.history);
    assert_eq!(config.eval.history, config.rollout.history);
    let tokenizer = std::fs::read(assets().join("webshop/tokenizer.json")).expect("it is shipped");
    let benchmark = open_set("webshop", &[], 1, 0).expect("it is built in");
    let score = |name: &str| {
        let folder = root.join(format!("assets/lab/webshop/{name}"));
        let model = recipe.models.iter().find(|model| model.name == name).expect("a recipe");
        let checkpoint = Checkpoint::open(&folder).expect("it is whole");
        assert_eq!(checkpoint.files.config, model.config(recipe.tokenizer.vocab_size), "{name}");
        assert!(bytes(&folder) < 5_950_000, "{name}: {} bytes", bytes(&folder));
        let own = std::fs::read(folder.join("tokenizer.json")).expect("a tokenizer");
        assert!(own == tokenizer, "{name} has another vocabulary");
        let policy = NativePolicy::load(&folder, WeightFormat::F32).expect("it loads");
        let mut tasks = benchmark.tasks("test").expect("a split");
        tasks.truncate(16);
        let evaluator =
            evaluator(&config, &rollout_config(&config, &benchmark).expect("a sound prompt"));
        let result = evaluator.evaluate(&policy, "test", &tasks, 1, 0, |_| {}).expect("it plays");
        result.all.success_rate
    };
    assert_eq!(config.student.path, Path::new("assets/lab/webshop/student-small"));
    assert_eq!(config.teacher.path, Path::new("assets/lab/webshop/teacher"));
    let (teacher, student) = (score("teacher"), score("student-small"));
    assert!(teacher > student, "{teacher} and {student} % of sixteen tasks");
}

/// Success rate in percent on the first games of the unseen houses.
fn success(model: &str) -> f64 {
    let overrides =
        ["rollout.max_response_tokens=80", "rollout.max_prompt_tokens=1536", "eval.max_tokens=80"];
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let mut config = resolve(&[], &overrides).expect("it is right").config;
    config.eval.workers = 60;
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let policy = NativePolicy::load(&assets().join(model), WeightFormat::F32).expect("it loads");
    let mut tasks = benchmark.tasks("valid_unseen").expect("a split");
    tasks.truncate(60);
    let evaluator =
        evaluator(&config, &rollout_config(&config, &benchmark).expect("a sound prompt"));
    let result =
        evaluator.evaluate(&policy, "valid_unseen", &tasks, 1, 0, |_| {}).expect("it plays");
    result.all.success_rate
}

#[test]
fn the_teachers_play_well_and_the_students_poorly() {
    let teacher = success("teacher");
    assert!((60.0..=90.0).contains(&teacher), "the teacher solves {teacher} %");
    // Sixty games say it to within ten percent or so.
    // The Qwen2.5 pair has half the parameters, so that all fit into the budget.
    for (model, aim) in [
        ("student-small", 5.0..=25.0),
        ("student-large", 20.0..=60.0),
        ("teacher-qwen2.5", 45.0..=75.0),
        ("student-qwen2.5", 2.0..=25.0),
    ] {
        let solved = success(model);
        assert!(aim.contains(&solved), "{model} solves {solved} %, not {aim:?}");
    }
}

#[test]
fn the_teacher_sees_what_is_wrong_and_the_student_does_what_it_is_told() {
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let options = CorpusOptions { seed: 1, history: 2, corpus: Corpus::act_only(10) };
    let mut tasks = benchmark.tasks("valid_unseen").expect("a split");
    tasks.truncate(24);
    let load = |name: &str| NativePolicy::load(&assets().join(name), WeightFormat::F32);
    let (teacher, student) = (load("teacher").expect("it loads"), load("student-small"));
    let student = student.expect("it loads");
    let config = dagger::rollout_config(&benchmark, &options);
    let played = dagger::rollouts(&config, &student, &tasks, 0, &options).expect("it plays");
    let report = teacher_critiques(&teacher, &played.critiques).expect("it answers");
    assert!(report.plans > 60, "{report:?}");
    assert!(2 * report.named > report.plans, "{report:?}");
    assert!(5 * report.approved < report.plans, "{report:?}");
    let report = followed_critiques(&student, &played.critiques).expect("it answers");
    assert!(report.plans > 60 && 3 * report.followed > 2 * report.plans, "{report:?}");
}

/// Remembers what the teacher was asked to write.
#[derive(Default)]
struct Listening {
    asked: Mutex<Vec<GenerateCall>>,
}

impl Observer for Listening {
    fn answered(&self, call: &Call<'_>, _time: Duration) {
        if let Call::Teacher(calls, _) = call {
            self.asked.lock().expect("nobody panicked").extend_from_slice(calls);
        }
    }
}

/// The examination of a fresh copy of the small student, and what the teacher was asked to write.
fn examined() -> (Findings, Vec<GenerateCall>) {
    let overrides = ["rollout.max_response_tokens=80", "rollout.max_prompt_tokens=1536"];
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let mut config = resolve(&[], &overrides).expect("it is right").config;
    config.task.turn_limit = 8;
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let options = LearnerOptions {
        format: WeightFormat::F32,
        loss: config.loss,
        optimizer: AdamWConfig { lr: 1e-4, ..AdamWConfig::default() },
        training: TrainerOptions::default(),
    };
    let (student, teacher) = (assets().join("student-small"), assets().join("teacher"));
    let engine =
        NativeEngine::load(&student, &teacher, WeightFormat::F32, options).expect("it loads");
    let listening = Arc::new(Listening::default());
    let mut engine = ObservedEngine::new(engine, listening.clone());
    let references = Arc::new(References::None);
    let examination = Examination {
        rollout: rollout(
            &config,
            rollout_config(&config, &benchmark).expect("a sound prompt"),
            7,
            references,
        ),
        sections: config.methods.clone(),
        forks: 3,
        loss: config.loss,
    };
    let order = TaskOrder::new(benchmark.tasks("train").expect("a split"), 7);
    let batches = vec![order.batch(1, 5), order.batch(2, 5)];
    let findings = examination.examine(&mut engine, batches, |_| {}).expect("it examines");
    let asked = listening.asked.lock().expect("nobody panicked").clone();
    (findings, asked)
}

#[test]
fn the_diagnostics_of_section_3_are_measured_on_a_frozen_student() {
    let (findings, asked) = examined();
    assert_eq!(findings.episodes, 10);
    // Full length from the first batch on, several forks an episode.
    assert!(findings.support.iter().any(|depth| depth.turn == 7), "{:?}", findings.support);
    assert!(findings.support.iter().all(|depth| (0.0..=1.0).contains(&depth.support)));
    let gain = findings.gain.expect("forks with two futures");
    assert!(gain.forks > findings.episodes && gain.trajectories > 0, "{gain:?}");
    assert_eq!(gain.forks, findings.forks.len());
    // One step toward the teacher raises its tokens, on average over all that disagree.
    let (mut sum, mut tokens) = (0.0, 0);
    for group in &findings.responses {
        let response = group.response.as_ref().map_or(0.0, |interval| interval.estimate);
        sum += response * group.tokens as f64;
        tokens += group.tokens;
    }
    assert!(tokens > 0 && sum > 0.0, "{tokens} tokens moved by {sum} in all");
    assert_eq!(examined().0, findings);
    // The cue: greedy, at most 80 tokens, once for every fork.
    assert!(
        asked.iter().all(|call| call.sampling == Sampling::GREEDY && call.max_new_tokens == 80)
    );
    let mut forks: Vec<_> = asked
        .iter()
        .map(|call| (call.stream.step, call.stream.episode, call.stream.branch))
        .collect();
    forks.sort_unstable();
    forks.dedup();
    assert_eq!(forks.len(), asked.len());
    assert!(asked.len() >= gain.forks);
}
