//! The recipe: what a build makes, as a TOML file. The shipped recipes are in `configs/lab` and part of the program.

mod check;
mod read;

use lens_env::Benchmark;
use lens_lm::config::{Family, ModelConfig};
use lens_lm::train::AdamWConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::corpus::{Corpus, CorpusOptions, Sample, SampleKind};
use crate::habits::Habits;

/// A recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The benchmark whose tasks are demonstrated.
    pub benchmark: String,
    /// Which tasks are demonstrated.
    #[serde(default)]
    pub tasks: Tasks,
    /// Which samples the demonstrations give.
    pub corpus: Corpus,
    /// Exercises made from the samples.
    #[serde(default)]
    pub exercises: Exercises,
    /// The vocabulary that all models share.
    pub tokenizer: Tokenizer,
    /// What all stages of all models have in common.
    pub optimizer: Optimizer,
    /// The models to build.
    #[serde(rename = "model")]
    pub models: Vec<Model>,
}

/// Which tasks are demonstrated: those of the training split of the built-in set, and of further generated sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tasks {
    /// Sets of tasks to generate besides the built-in one; 0 where the benchmark cannot generate any.
    pub extra_sets: u64,
    /// Only tasks of these kinds. Empty means the kinds that the benchmark's profile recommends for small models.
    pub kinds: Vec<String>,
    /// At most this many tasks of each kind from each set; all of them by default.
    pub max_per_kind: Option<usize>,
}

/// Exercises made from the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Exercises {
    /// Exercises per list of commands with an object to take; each asks for another object.
    pub rounds: usize,
    /// Drills per list of commands; 0 where the benchmark has no expert that searches.
    pub drills: usize,
}

/// The vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    /// Tokens, special ones included.
    pub vocab_size: usize,
    /// About how many samples it is trained on; they are taken at equal distances from the corpus.
    pub samples: usize,
}

/// What all stages have in common: AdamW, with a linear warmup at the start of each stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// Decay rates of the first and the second moment.
    pub betas: (f64, f64),
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Share of a stage's steps in which the learning rate rises to its maximum.
    pub warmup: f64,
}

/// A model to build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name of its folder.
    pub name: String,
    /// The architecture: `qwen3`, `qwen2` (which is also Qwen2.5's) or `llama`.
    #[schemars(with = "String")]
    pub family: Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// The longest sequence, in tokens.
    pub max_position: usize,
    /// Standard deviation of the fresh weights.
    pub init_std: f64,
    /// The finished model of the same shape that its first stage starts from; fresh weights by default. It must come
    /// before this one in the recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<String>,
    /// The bad habits that its samples of kind `habit` show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub habits: Option<Habits>,
    /// The stages, in order. Each starts with a fresh optimizer from the model that the stage before it saved, so a
    /// build can continue after any of them.
    #[serde(rename = "stage")]
    pub stages: Vec<Stage>,
}

/// A stage of supervised training with a learning-rate schedule of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The kinds of sample it trains on. Every sample of these kinds is equally likely.
    pub mixture: Vec<SampleKind>,
    /// Optimizer steps.
    pub steps: u64,
    /// Samples per optimizer step.
    pub batch_size: usize,
    /// The highest learning rate.
    pub lr: f64,
    /// Weight of a prompt token in the first half of the steps; a response token has weight 1. A fresh model has the
    /// language to learn, and most of the language is in the prompts.
    #[serde(default)]
    pub prompt_weight: f32,
    /// Games that the model plays before the stage. Half of the stage's samples are then the expert's corrections of
    /// these games (DAgger).
    #[serde(default)]
    pub dagger_games: usize,
    /// The finished model that plays those games instead: a teacher learns to correct a student where the student ends
    /// up. It must come before this model in the recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dagger_player: Option<String>,
}

impl Stage {
    /// Whether it trains the model to act, and the model already knows the language, so that it can play games.
    pub fn is_play(&self) -> bool {
        self.mixture.contains(&SampleKind::Act) && self.prompt_weight == 0.0
    }

    /// The samples of the stage's kinds.
    pub fn select<'s>(&self, samples: &'s [Sample]) -> Vec<&'s Sample> {
        samples.iter().filter(|sample| self.mixture.contains(&sample.kind)).collect()
    }
}

impl Model {
    /// Whether the weights of the two have the same shapes.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.config(1) == other.config(1)
    }

    /// The architecture with a vocabulary of that size.
    pub fn config(&self, vocab_size: usize) -> ModelConfig {
        ModelConfig {
            family: self.family,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            vocab_size,
            max_position: self.max_position,
            rms_norm_eps: 1e-6,
            rope_theta: self.rope_theta,
            rope_scaling: None,
            tied_head: true,
            qkv_bias: self.family == Family::Qwen2,
            qk_norm: self.family == Family::Qwen3,
        }
    }
}

impl Optimizer {
    /// The optimizer's settings; the learning rate is set step by step.
    pub fn adamw(&self) -> AdamWConfig {
        AdamWConfig { betas: self.betas, weight_decay: self.weight_decay, ..AdamWConfig::default() }
    }

    /// Warmup steps of a stage.
    pub fn warmup_steps(&self, steps: u64) -> u64 {
        (steps as f64 * self.warmup) as u64
    }
}

impl Recipe {
    /// How the samples are made.
    pub fn corpus_options(&self, seed: u64, benchmark: &dyn Benchmark) -> CorpusOptions {
        let history = self.corpus.history.unwrap_or(benchmark.profile().history);
        CorpusOptions { seed, history, corpus: self.corpus }
    }

    /// The names of the models.
    pub fn model_names(&self) -> Vec<String> {
        self.models.iter().map(|model| model.name.clone()).collect()
    }

    /// Replaces the steps of every stage.
    pub fn set_steps(&mut self, steps: u64) {
        for stage in self.models.iter_mut().flat_map(|model| &mut model.stages) {
            stage.steps = steps;
        }
    }

    /// Puts DAgger rollouts of `games` games before every play stage.
    pub fn set_dagger_games(&mut self, games: usize) {
        for stage in self.models.iter_mut().flat_map(|model| &mut model.stages) {
            if stage.is_play() {
                stage.dagger_games = games;
            }
        }
    }

    /// The JSON schema of recipes.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warmup_of_the_shipped_stages_is_a_twentieth_rounded_down() {
        let recipe = Recipe::shipped("alfworld").expect("it is shipped");
        for stage in recipe.models.iter().flat_map(|model| &model.stages) {
            assert_eq!(recipe.optimizer.warmup_steps(stage.steps), stage.steps / 20);
        }
    }

    #[test]
    fn dagger_rollouts_come_before_play_stages_only() {
        let mut recipe = Recipe::shipped("alfworld").expect("it is shipped");
        recipe.set_dagger_games(5);
        let games: Vec<usize> =
            recipe.models[0].stages.iter().map(|stage| stage.dagger_games).collect();
        // Exercises and drills are no play, and in the second stage the model still learns the language.
        assert_eq!(games, [0, 0, 0, 5]);
    }
}
