//! The corpus of the shipped recipes, byte by byte.
//!
//! The models under `assets/lab` were trained on these texts, and their figures are in the documentation. A change of a
//! word, of a share, or of the order of draws makes other models; it has to be a decision, so it has to fail here first.
//! The hashes are of the first twelve training tasks with seed 1, which `lens lab samples` prints.

use std::sync::Arc;

use lens_env::{
    Benchmark, BenchmarkOptions, EnvError, Environment, Expert, Profile, SplitInfo, Task, View,
    registry,
};
use lens_lab::corpus::{Sample, SampleKind};
use lens_lab::episodes::{Demonstrated, demonstrations};
use lens_lab::exercises::exercises;
use lens_lab::habits::habit_samples;
use lens_lab::recipe::{Recipe, Tokenizer};
use lens_lab::tokenizer;

/// Kinds, messages and answers in order.
fn hash(samples: &[Sample]) -> String {
    let mut hasher = blake3::Hasher::new();
    for sample in samples {
        let kind = match sample.kind {
            SampleKind::Exercise => 0,
            SampleKind::Act => 1,
            SampleKind::Counterfactual => 2,
            SampleKind::Corrupted => 3,
            SampleKind::Critique => 4,
            SampleKind::InstructionFollowing => 5,
            SampleKind::Habit => 6,
            SampleKind::Drill => 7,
        };
        hasher.update(&[kind]);
        for part in [&sample.message, &sample.answer] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

fn demonstrated(benchmark: &Arc<dyn Benchmark>, recipe: &Recipe) -> Demonstrated {
    let mut tasks = benchmark.tasks("train").expect("a split");
    tasks.truncate(12);
    demonstrations(benchmark, &tasks, &recipe.corpus_options(1, &**benchmark)).expect("samples")
}

fn open(name: &str) -> Arc<dyn Benchmark> {
    registry::open(name, &BenchmarkOptions::default()).expect("it is built in")
}

fn tokenizer_hash(benchmark: &dyn Benchmark, recipe: &Recipe, shown: &Demonstrated) -> String {
    let settings = Tokenizer { samples: 100, ..recipe.tokenizer };
    let splitting = tokenizer::splitting(benchmark.profile());
    let json =
        tokenizer::train(&shown.samples, &shown.turns, settings, splitting).expect("it is trained");
    blake3::hash(&json).to_hex().to_string()
}

#[test]
fn the_samples_exercises_and_tokens_of_alfworld_are_those_of_the_shipped_models() {
    let (benchmark, recipe) = (open("alfworld"), Recipe::shipped("alfworld").expect("shipped"));
    let shown = demonstrated(&benchmark, &recipe);
    let samples = &shown.samples;
    assert_eq!(samples.len(), 526);
    assert_eq!(hash(samples), "d55ac23c91d367b73e5f2651046749048141feda0a3dd7d69673e72aff5d2337");
    let exercises = exercises(samples, recipe.exercises.rounds, 1);
    assert_eq!(exercises.len(), 310);
    assert_eq!(
        hash(&exercises),
        "bc5ab00205d9e90c395b4894b38e5041f855b19204fa710891cb662a68e2271c"
    );
    let student = recipe.models.iter().find(|model| model.name == "student-small");
    let habits = student.and_then(|model| model.habits).expect("a student has some");
    let habits = habit_samples(&shown.turns, &habits, 1);
    assert_eq!(hash(&habits), "4c3ac6f66bd6eeb3d0e560c72a915c5739efd637ce42e47266cea10246e00240");
    assert_eq!(
        tokenizer_hash(&*benchmark, &recipe, &shown),
        "1f5ae8b8ee578b70a7b1a2b32802e75313d372dedd483c3ae517ce4d57cd3a78"
    );
}

#[test]
fn the_samples_and_tokens_of_webshop_are_the_same() {
    let (benchmark, recipe) = (open("webshop"), Recipe::shipped("webshop").expect("shipped"));
    let shown = demonstrated(&benchmark, &recipe);
    let samples = &shown.samples;
    assert_eq!(samples.len(), 141);
    assert_eq!(hash(samples), "ac36f5c0846fa7fc415b009846d880cd9030336242ae61403451eeac5b0fdc24");
    assert_eq!(
        tokenizer_hash(&*benchmark, &recipe, &shown),
        "b00f88f00623cb1c73b106d3ba549d49454302bdc1d2ea5663a755e5a191f592"
    );
    assert!(!shown.turns.is_empty(), "habits are made from the turns");
    // Every other kind that a mixture of this recipe names is there.
    for stage in recipe.models.iter().flat_map(|model| &model.stages) {
        for kind in stage.mixture.iter().filter(|&&kind| kind != SampleKind::Habit) {
            assert!(samples.iter().any(|sample| sample.kind == *kind), "no {}", kind.name());
        }
    }
}

/// A benchmark that has solutions and no expert.
struct WithoutExpert(Arc<dyn Benchmark>);

impl Benchmark for WithoutExpert {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    fn splits(&self) -> Vec<SplitInfo> {
        self.0.splits()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.0.tasks(split)
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        self.0.clone().environment()
    }

    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        self.0.reference_actions(task)
    }

    fn admits(&self, view: &View, action: &str) -> bool {
        self.0.admits(view, action)
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        None
    }
}

#[test]
fn the_samples_of_reference_solutions_are_the_same() {
    let benchmark: Arc<dyn Benchmark> = Arc::new(WithoutExpert(open("alfworld")));
    let shown = demonstrated(&benchmark, &Recipe::shipped("scienceworld").expect("shipped"));
    assert_eq!(shown.samples.len(), 129);
    assert_eq!(
        hash(&shown.samples),
        "7c159f8a8f67777f13d444b3f0c6b685b0835b8ff8cb1f393a4a583f9725a23a"
    );
}
