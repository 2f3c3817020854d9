//! The smallest models that know a benchmark's format: made in seconds, for tests of the whole loop.

use std::path::Path;
use std::sync::Arc;

use lens_env::{Benchmark, Task};

use crate::corpus::{CorpusOptions, Lesson, corpus};
use crate::recipe::{self, Course, LabError, ModelPlan, School};

/// How the texts of tiny models are made.
pub const CORPUS: CorpusOptions = CorpusOptions {
    seed: 3,
    stray: 0.0,
    retold: 0.0,
    slips: 0.0,
    comments: 0.5,
    obeyed: 0.5,
    history: 2,
    turn_limit: 6,
};

/// A plan of some ten thousand parameters and a hundred steps.
pub fn plan(name: &'static str, lessons: &'static [Lesson]) -> ModelPlan {
    let mut plan: ModelPlan = recipe::plans().remove(1);
    plan.config.hidden_size = 32;
    plan.config.heads = 2;
    plan.config.kv_heads = 1;
    plan.config.head_dim = 16;
    plan.config.layers = 2;
    plan.config.intermediate_size = 64;
    let course =
        Course { lessons, steps: 100, batch: 32, lr: 1e-2, prompt_weight: 0.1, own_games: 0 };
    ModelPlan { name, courses: vec![course], ..plan }
}

/// A `teacher` and a `student-small` in `folder` that know the format of `tasks` and little else.
pub fn pair(benchmark: &Arc<dyn Benchmark>, tasks: &[Task], folder: &Path) -> Result<(), LabError> {
    let texts = corpus(benchmark, tasks, &CORPUS)?;
    let tokenizer = recipe::tokenizer(&texts, 200, recipe::splitting(benchmark.profile()))?;
    let plans = [
        plan("teacher", &[Lesson::Act, Lesson::Comment, Lesson::Obey]),
        plan("student-small", &[Lesson::Act, Lesson::Obey]),
    ];
    for (seed, plan) in (1..).zip(plans) {
        let school = School {
            benchmark,
            tokenizer_json: &tokenizer,
            texts: &texts,
            corpus: CorpusOptions { seed, ..CORPUS },
        };
        school.teach(&plan, 0, &folder.join(plan.name), |_| {}, |_, _| {})?;
    }
    Ok(())
}
