//! The recipe: tokenizer, teacher, students.

use std::path::Path;

use lens_engine::native::{LearnerOptions, NativeLearner};
use lens_engine::{Codec, EngineError, LearnReport, Message};
use lens_lm::checkpoint::{Dtype, ModelFiles, ModelTokens};
use lens_lm::config::{Family, ModelConfig};
use lens_lm::error::LmError;
use lens_lm::init::FreshWeights;
use lens_lm::kernels::packed::WeightFormat;
use lens_lm::tokenizer::{Splitting, chatml_companions, chatml_tokens, train_bpe_with};
use lens_lm::train::AdamWConfig;
use lens_opd::objective::LossParams;
use lens_train::TrainError;
use lens_train::sft::{Example, SftOptions, fine_tune};
use rayon::prelude::*;

use crate::corpus::{Lesson, Text};

/// Tokens of the laboratory's vocabulary.
pub const VOCABULARY: usize = 2048;

/// A laboratory model to build.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPlan {
    /// Its folder's name.
    pub name: &'static str,
    /// Its shape.
    pub config: ModelConfig,
    /// Which lessons it gets.
    pub lessons: &'static [Lesson],
    /// Optimiser steps of supervised learning.
    pub steps: u64,
    /// The highest learning rate.
    pub lr: f64,
}

/// What the recipe can fail with.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A model's files or shape.
    #[error(transparent)]
    Model(#[from] LmError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Learning.
    #[error(transparent)]
    Train(#[from] TrainError),
}

fn shape(
    family: Family,
    hidden_size: usize,
    layers: usize,
    intermediate_size: usize,
) -> ModelConfig {
    ModelConfig {
        family,
        hidden_size,
        intermediate_size,
        layers,
        heads: hidden_size / 32,
        kv_heads: 1,
        head_dim: 32,
        vocab_size: VOCABULARY,
        max_position: 4096,
        rms_norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tied_head: true,
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
    }
}

/// Everything a teacher learns; students learn all but commenting.
const TEACHER: &[Lesson] = &[Lesson::Act, Lesson::Comment, Lesson::Obey];
const STUDENT: &[Lesson] = &[Lesson::Act, Lesson::Obey];

/// The laboratory's models: a Qwen3 teacher with two students, and a Qwen2.5 pair for the cross-family table.
pub fn plans() -> Vec<ModelPlan> {
    let plan = |name, config, lessons, steps, lr| ModelPlan { name, config, lessons, steps, lr };
    vec![
        plan("teacher", shape(Family::Qwen3, 192, 6, 512), TEACHER, 3000, 2e-3),
        plan("student-small", shape(Family::Qwen3, 96, 3, 256), STUDENT, 1500, 2e-3),
        plan("student-large", shape(Family::Qwen3, 160, 5, 448), STUDENT, 1500, 2e-3),
        plan("teacher-qwen2.5", shape(Family::Qwen2, 160, 5, 448), TEACHER, 3000, 2e-3),
        plan("student-qwen2.5", shape(Family::Qwen2, 96, 3, 256), STUDENT, 1500, 2e-3),
    ]
}

/// Trains the tokenizer on a sample of the texts; gives its `tokenizer.json`.
pub fn tokenizer(texts: &[Text], sample: usize) -> Result<Vec<u8>, LabError> {
    let stride = (texts.len() / sample.max(1)).max(1);
    let sample: Vec<String> = texts
        .iter()
        .step_by(stride)
        .flat_map(|text| [text.message.clone(), text.answer.clone()])
        .collect();
    Ok(train_bpe_with(&sample, VOCABULARY, &chatml_tokens(), Splitting::Phrases)?)
}

/// A fresh model of a plan's shape with the laboratory's tokenizer.
pub fn fresh(
    plan: &ModelPlan,
    tokenizer_json: &[u8],
    seed: u64,
) -> Result<NativeLearner, LabError> {
    let companions = chatml_companions(tokenizer_json.to_vec())?;
    let files = ModelFiles::new(plan.config.clone(), &ModelTokens::default(), companions);
    let parameters = FreshWeights::new(plan.config.clone(), seed, 0.02).parameters()?;
    let options = LearnerOptions {
        format: WeightFormat::F32,
        loss: LossParams::default(),
        top_k: 0,
        optimizer: AdamWConfig {
            lr: plan.lr,
            betas: (0.9, 0.95),
            weight_decay: 0.05,
            ..AdamWConfig::default()
        },
        recompute: false,
    };
    Ok(NativeLearner::fresh(files, parameters, options)?)
}

/// The texts of a plan's lessons as tokens.
pub fn examples(
    learner: &NativeLearner,
    texts: &[Text],
    lessons: &[Lesson],
) -> Result<Vec<Example>, LabError> {
    let codec = learner.codec();
    let examples: Result<Vec<Example>, EngineError> = texts
        .par_iter()
        .filter(|text| lessons.contains(&text.lesson))
        .map(|text| {
            Ok(Example {
                prompt: codec.prompt(&[Message::user(&text.message)])?,
                response: codec.response(&text.answer)?,
            })
        })
        .collect();
    Ok(examples?)
}

/// Teaches a fresh model its lessons and writes it to `directory` in bfloat16.
pub fn build(
    plan: &ModelPlan,
    tokenizer_json: &[u8],
    texts: &[Text],
    seed: u64,
    directory: &Path,
    on_step: impl FnMut(u64, &LearnReport),
) -> Result<(), LabError> {
    let mut learner = fresh(plan, tokenizer_json, seed)?;
    let examples = examples(&learner, texts, plan.lessons)?;
    let options = SftOptions {
        steps: plan.steps,
        batch_size: 32,
        lr: plan.lr,
        warmup: plan.steps / 20,
        prompt_weight: 0.1,
        seed,
    };
    fine_tune(&mut learner, &examples, &options, on_step)?;
    learner.save_model_as(directory, Dtype::Bf16)?;
    Ok(())
}
