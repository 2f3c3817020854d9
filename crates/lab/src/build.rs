//! A whole build: tasks, corpus, tokenizer, then every stage of every model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_engine::LearnReport;
use lens_env::{Benchmark, BenchmarkOptions, EnvError, Profile, Task, registry};
use lens_train::TrainError;

use crate::corpus::Sample;
use crate::dagger::Rollouts;
use crate::episodes::{Demonstrated, demonstrations};
use crate::error::LabError;
use crate::exercises::{drills, exercises};
use crate::habits::habit_samples;
use crate::recipe::{Model, Recipe, Stage};
use crate::stage::Builder;
use crate::tokenizer::{self, TokenizerOrigin};

/// A build.
#[derive(Debug, Clone, PartialEq)]
pub struct Build {
    /// What to build.
    pub recipe: Recipe,
    /// The seed of the generated tasks, the draws and the weights.
    pub seed: u64,
    /// Where the models go, one folder each.
    pub out: PathBuf,
    /// Only these models; empty means all.
    pub only: Vec<String>,
    /// Stages to skip at the start of every model; the models in `out` must have completed them.
    pub skip_stages: usize,
}

/// A stage of a build, for progress reports.
#[derive(Debug, Clone, Copy)]
pub struct StageRun<'a> {
    /// The model.
    pub model: &'a Model,
    /// The stage.
    pub stage: &'a Stage,
    /// The stage's index in the model, 0-based.
    pub index: usize,
    /// The model's parameters.
    pub parameters: usize,
    /// The model's folder.
    pub folder: &'a Path,
}

/// Hears how a build proceeds.
pub trait BuildProgress {
    /// The demonstrations gave this many samples.
    fn samples(&mut self, _count: usize) {}
    /// A stage starts.
    fn started(&mut self, _run: &StageRun<'_>) {}
    /// The stage's DAgger rollouts are done.
    fn rollouts(&mut self, _run: &StageRun<'_>, _rollouts: &Rollouts) {}
    /// Optimizer step `step` (1-based) is done.
    fn step(&mut self, _run: &StageRun<'_>, _step: u64, _report: &LearnReport) {}
    /// The model of the stage is saved.
    fn finished(&mut self, _run: &StageRun<'_>) {}
}

/// The seed of set `set` of a build with seed `seed`; never the built-in set's.
pub fn set_seed(seed: u64, set: u64) -> u64 {
    1_000_000 + seed * 1000 + set
}

/// Opens a set of a benchmark's tasks. Set 0 is the built-in one. Every other set is generated from a seed of its own, so
/// that none of its tasks is in a validation split of the built-in set.
pub fn open_set(
    benchmark: &str,
    kinds: &[String],
    seed: u64,
    set: u64,
) -> Result<Arc<dyn Benchmark>, EnvError> {
    let options = BenchmarkOptions {
        kinds: kinds.to_vec(),
        seed: (set > 0).then_some(set_seed(seed, set)),
        ..BenchmarkOptions::default()
    };
    registry::open(benchmark, &options)
}

impl Build {
    /// The samples of the build, exercises included, and those of the habits of the models to build.
    pub fn samples(&self) -> Result<Vec<Sample>, LabError> {
        let profile = registry::profile(&self.recipe.benchmark)?;
        self.check(profile)?;
        let built_in = self.open_set(profile, 0)?;
        let Demonstrated { mut samples, turns } = self.demonstrations(profile, &built_in)?;
        self.add_exercises(&*built_in, &mut samples);
        for habits in self.models()?.iter().filter_map(|model| model.habits.as_ref()) {
            samples.extend(habit_samples(&turns, habits, self.seed));
        }
        Ok(samples)
    }

    /// Builds the models.
    pub fn run(&self, progress: &mut dyn BuildProgress) -> Result<(), LabError> {
        let profile = registry::profile(&self.recipe.benchmark)?;
        self.check(profile)?;
        let models = self.models()?;
        let built_in = self.open_set(profile, 0)?;
        let options = self.recipe.corpus_options(self.seed, &*built_in);
        let Demonstrated { mut samples, turns } = self.demonstrations(profile, &built_in)?;
        progress.samples(samples.len());
        std::fs::create_dir_all(&self.out).map_err(|source| TrainError::File {
            action: "create",
            path: self.out.clone(),
            source,
        })?;
        let settings = self.recipe.tokenizer;
        let origin = TokenizerOrigin::new(&self.recipe, self.seed);
        let tokenizer_json = tokenizer::reuse_or_train(&self.out, &origin, || {
            tokenizer::train(&samples, &turns, settings, tokenizer::splitting(profile))
        })?;
        self.add_exercises(&*built_in, &mut samples);
        let builder = Builder {
            benchmark: &built_in,
            tokenizer_json: &tokenizer_json,
            vocab_size: settings.vocab_size,
            samples: &samples,
            turns: &turns,
            corpus: options,
            optimizer: self.recipe.optimizer,
        };
        for model in models {
            self.build_model(&builder, model, progress)?;
        }
        Ok(())
    }

    /// Adds the exercises and drills that the samples give.
    fn add_exercises(&self, benchmark: &dyn Benchmark, samples: &mut Vec<Sample>) {
        let settings = self.recipe.exercises;
        let mut added = exercises(samples, settings.rounds, self.seed);
        if let Some(expert) = benchmark.expert() {
            added.extend(drills(&*expert, samples, settings.drills, self.seed));
        }
        samples.extend(added);
    }

    fn build_model(
        &self,
        builder: &Builder<'_>,
        model: &Model,
        progress: &mut dyn BuildProgress,
    ) -> Result<(), LabError> {
        let folder = self.out.join(&model.name);
        let parameters = model.config(builder.vocab_size).parameter_count();
        for (index, stage) in model.stages.iter().enumerate().skip(self.skip_stages) {
            let run = StageRun { model, stage, index, parameters, folder: &folder };
            progress.started(&run);
            let progress = std::cell::RefCell::new(&mut *progress);
            builder.run_stage(
                model,
                index,
                &folder,
                |rollouts| progress.borrow_mut().rollouts(&run, rollouts),
                |step, report| progress.borrow_mut().step(&run, step, report),
            )?;
            progress.into_inner().finished(&run);
        }
        Ok(())
    }

    /// Refuses a recipe that its own rules or the benchmark's profile forbid.
    fn check(&self, profile: &Profile) -> Result<(), LabError> {
        self.recipe.check()?;
        let name = &profile.name;
        if self.recipe.tasks.extra_sets > 0 && !profile.laboratory.generated {
            let message = format!("must be 0: the tasks of {name} are not generated");
            return Err(LabError::bad("tasks.extra_sets", message));
        }
        if profile.laboratory.expert {
            return Ok(());
        }
        for (number, model) in self.recipe.models.iter().enumerate() {
            for (index, stage) in model.stages.iter().enumerate() {
                if stage.dagger_games > 0 {
                    let key = format!("model[{number}].stage[{index}].dagger_games");
                    let message = format!("must be 0: {name} has no expert to label rollouts");
                    return Err(LabError::bad(key, message));
                }
            }
        }
        Ok(())
    }

    fn models(&self) -> Result<Vec<&Model>, LabError> {
        let models = &self.recipe.models;
        for name in &self.only {
            if !models.iter().any(|model| model.name == *name) {
                let known = self.recipe.model_names();
                return Err(LabError::UnknownModel { name: name.clone(), known });
            }
        }
        let wanted = |model: &&Model| self.only.is_empty() || self.only.contains(&model.name);
        Ok(models.iter().filter(wanted).collect())
    }

    fn open_set(&self, profile: &Profile, set: u64) -> Result<Arc<dyn Benchmark>, EnvError> {
        let recommended: Vec<String>;
        let kinds = if self.recipe.tasks.kinds.is_empty() {
            recommended = profile.laboratory.kinds.iter().map(ToString::to_string).collect();
            &recommended
        } else {
            &self.recipe.tasks.kinds
        };
        open_set(&self.recipe.benchmark, kinds, self.seed, set)
    }

    /// The samples of the built-in set and of the generated ones.
    fn demonstrations(
        &self,
        profile: &Profile,
        built_in: &Arc<dyn Benchmark>,
    ) -> Result<Demonstrated, LabError> {
        let options = self.recipe.corpus_options(self.seed, &**built_in);
        let mut all = demonstrations(built_in, &self.tasks(&**built_in)?, &options)?;
        for set in 1..=self.recipe.tasks.extra_sets {
            let benchmark = self.open_set(profile, set)?;
            let more = demonstrations(&benchmark, &self.tasks(&*benchmark)?, &options)?;
            all.samples.extend(more.samples);
            all.turns.extend(more.turns);
        }
        Ok(all)
    }

    /// The tasks of a set that are demonstrated.
    fn tasks(&self, benchmark: &dyn Benchmark) -> Result<Vec<Task>, EnvError> {
        let mut tasks = benchmark.tasks(&benchmark.profile().laboratory.train_split)?;
        if let Some(max) = self.recipe.tasks.max_per_kind {
            let mut taken: BTreeMap<String, usize> = BTreeMap::new();
            tasks.retain(|task| {
                let taken = taken.entry(task.kind.clone()).or_default();
                *taken += 1;
                *taken <= max
            });
        }
        Ok(tasks)
    }
}
