//! One stage of one model: load or initialize, roll out, train, save.

use std::path::Path;
use std::sync::Arc;

use lens_engine::native::{LearnerOptions, NativeLearner, NativePolicy};
use lens_engine::{Codec, EngineError, LearnReport, Message};
use lens_env::Benchmark;
use lens_lm::checkpoint::{Dtype, ModelFiles, ModelTokens};
use lens_lm::init::FreshWeights;
use lens_lm::model::WeightFormat;
use lens_lm::tokenizer::chatml_companions;
use lens_lm::train::TrainerOptions;
use lens_opd::objective::Loss;
use lens_opd::random::{Purpose, StreamKey};
use lens_train::sft::{Example, SftOptions, fine_tune};

use crate::corpus::{CorpusOptions, Sample, SampleKind};
use crate::dagger::{self, Rollouts};
use crate::error::LabError;
use crate::habits::{Turn, habit_samples};
use crate::recipe::{Model, Optimizer, Stage};

/// What all stages of a build have in common.
pub struct Builder<'a> {
    /// The benchmark of the DAgger rollouts.
    pub benchmark: &'a Arc<dyn Benchmark>,
    /// The tokenizer that all models share.
    pub tokenizer_json: &'a [u8],
    /// Tokens of that tokenizer's vocabulary.
    pub vocab_size: usize,
    /// The corpus, exercises included.
    pub samples: &'a [Sample],
    /// The demonstrated turns, from which samples of habits are made.
    pub turns: &'a [Turn],
    /// How samples are made, the seed included.
    pub corpus: CorpusOptions,
    /// The optimizer of every stage.
    pub optimizer: Optimizer,
}

impl Builder<'_> {
    /// Runs stage `index` (0-based) of a model and writes the model to `directory` in bfloat16.
    ///
    /// The first stage starts from fresh weights, or from the finished model that the recipe names and that lies beside
    /// `directory`; every other stage from the model in `directory`. `on_rollouts` gets the DAgger rollouts, if the
    /// stage has any.
    pub fn run_stage(
        &self,
        model: &Model,
        index: usize,
        directory: &Path,
        on_rollouts: impl FnOnce(&Rollouts),
        on_step: impl FnMut(u64, &LearnReport),
    ) -> Result<(), LabError> {
        let stage = model.stages.get(index).ok_or_else(|| LabError::NoStage {
            model: model.name.clone(),
            stages: model.stages.len(),
            stage: index + 1,
        })?;
        let habits = self.habits(model, stage);
        let mut samples = stage.select(self.samples);
        samples.extend(&habits);
        if samples.is_empty() {
            let mixture: Vec<_> = stage.mixture.iter().map(|kind| kind.name()).collect();
            return Err(LabError::NoSamples {
                model: model.name.clone(),
                stage: index + 1,
                mixture: mixture.join(", "),
            });
        }
        let mut learner = match &model.starts_from {
            None if index == 0 => self.fresh(model)?,
            Some(other) if index == 0 => {
                NativeLearner::load(&directory.with_file_name(other), self.learner_options())?
            }
            _ => NativeLearner::load(directory, self.learner_options())?,
        };
        let seed = self.corpus.seed + index as u64;
        let rollouts;
        if stage.dagger_games > 0 {
            let player = match &stage.dagger_player {
                Some(name) => {
                    NativePolicy::load(&directory.with_file_name(name), WeightFormat::F32)?
                }
                None => learner.snapshot()?,
            };
            rollouts = self.rollouts(&player, stage.dagger_games, index)?;
            on_rollouts(&rollouts);
            let corrections = stage.select(&rollouts.samples);
            // As many demonstrations as corrections.
            StreamKey::new(seed, 0, 0, Purpose::Data, 2).open().shuffle(&mut samples);
            samples.truncate(corrections.len());
            samples.extend(corrections);
        }
        let options = self.sft_options(stage, seed);
        let example = |codec: &dyn Codec, number: usize| example(codec, samples[number]);
        fine_tune(&mut learner, samples.len(), example, &options, on_step)?;
        learner.save_model_as(directory, Dtype::Bf16)?;
        Ok(())
    }

    /// The samples of the model's habits, if the stage trains on them.
    fn habits(&self, model: &Model, stage: &Stage) -> Vec<Sample> {
        match &model.habits {
            Some(habits) if stage.mixture.contains(&SampleKind::Habit) => {
                habit_samples(self.turns, habits, self.corpus.seed)
            }
            _ => Vec::new(),
        }
    }

    fn sft_options(&self, stage: &Stage, seed: u64) -> SftOptions {
        SftOptions {
            steps: stage.steps,
            batch_size: stage.batch_size,
            lr: stage.lr,
            warmup: self.optimizer.warmup_steps(stage.steps),
            prompt_weight: stage.prompt_weight,
            seed,
        }
    }

    fn learner_options(&self) -> LearnerOptions {
        LearnerOptions {
            format: WeightFormat::F32,
            loss: Loss::default(),
            optimizer: self.optimizer.adamw(),
            // Sums over other micro-batches round otherwise, and the shipped models were built with these.
            training: TrainerOptions {
                micro_batch_tokens: 4096,
                logit_bytes: 256 << 20,
                ..TrainerOptions::default()
            },
        }
    }

    /// A model with fresh weights and the build's tokenizer.
    fn fresh(&self, model: &Model) -> Result<NativeLearner, LabError> {
        let config = model.config(self.vocab_size);
        let companions = chatml_companions(self.tokenizer_json.to_vec())?;
        let files = ModelFiles::new(config.clone(), &ModelTokens::default(), companions);
        let weights = FreshWeights::new(config, self.corpus.seed, model.init_std);
        Ok(NativeLearner::fresh(files, weights.parameters()?, self.learner_options())?)
    }

    fn rollouts(
        &self,
        player: &NativePolicy,
        games: usize,
        index: usize,
    ) -> Result<Rollouts, LabError> {
        let mut tasks = self.benchmark.tasks(&self.benchmark.profile().laboratory.train_split)?;
        let key = StreamKey::new(self.corpus.seed, index as u64, 0, Purpose::TaskOrder, 0);
        key.open().shuffle(&mut tasks);
        tasks.truncate(games);
        let config = dagger::rollout_config(self.benchmark, &self.corpus);
        dagger::rollouts(&config, player, &tasks, index as u64, &self.corpus)
    }
}

fn example(codec: &dyn Codec, sample: &Sample) -> Result<Example, EngineError> {
    Ok(Example {
        prompt: codec.prompt(&[Message::user(&sample.message)])?,
        response: codec.response(&sample.answer)?,
    })
}
