//! A fresh model with random weights, from a small TOML description.

use std::path::{Path, PathBuf};

use lens_opd::random::{Purpose, StreamKey};
use rayon::prelude::*;
use serde::Deserialize;

use crate::checkpoint::{TensorSource, hf_config};
use crate::config::{Family, ModelConfig, RopeScaling};
use crate::error::LmError;
use crate::tensor::{Parameters, Tensor};

/// Values drawn from one stream. Part of what a seed means: changing it changes every model.
const BLOCK: usize = 1 << 16;
/// A vocabulary size that is not given is rounded up to a multiple of this.
const VOCAB_MULTIPLE: usize = 64;

const KEYS: [&str; 18] = [
    "family",
    "hidden_size",
    "intermediate_size",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab_size",
    "max_position",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "tied_head",
    "seed",
    "initializer_range",
    "tokenizer",
    // Inside rope_scaling:
    "type",
    "factor",
];

/// The description of a fresh model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitSpec {
    /// `qwen3`, `qwen2` or `llama`.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; as many as query heads when not given.
    pub kv_heads: Option<usize>,
    /// Width of a head; `hidden_size / heads` when not given.
    pub head_dim: Option<usize>,
    /// Rows of the embedding; the tokenizer's tokens, rounded up, when not given.
    pub vocab_size: Option<usize>,
    /// Longest sequence.
    #[serde(default = "default_max_position")]
    pub max_position: usize,
    /// Epsilon of every RMS norm.
    #[serde(default = "default_rms_norm_eps")]
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    #[serde(default = "default_rope_theta")]
    pub rope_theta: f64,
    /// Linear stretching of rotary positions.
    pub rope_scaling: Option<ScalingSpec>,
    /// Whether the output head is the embedding.
    #[serde(default = "default_tied_head")]
    pub tied_head: bool,
    /// What the weights are drawn from.
    #[serde(default)]
    pub seed: u64,
    /// Standard deviation of the weights.
    #[serde(default = "default_initializer_range")]
    pub initializer_range: f64,
    /// A folder with the tokenizer's files, relative to the description.
    pub tokenizer: Option<PathBuf>,
}

/// The stretching of rotary positions in a description.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum ScalingSpec {
    /// All positions by one factor.
    Linear {
        /// The stretch.
        factor: f64,
    },
    /// Llama 3's stretching.
    Llama3 {
        /// The overall stretch.
        factor: f64,
        /// Below this share of the original context a frequency is fully stretched.
        low_freq_factor: f64,
        /// Above this share a frequency is left alone.
        high_freq_factor: f64,
        /// The original context.
        original_max_position: usize,
    },
}

fn default_max_position() -> usize {
    4096
}

fn default_rms_norm_eps() -> f32 {
    1e-6
}

fn default_rope_theta() -> f64 {
    10_000.0
}

fn default_tied_head() -> bool {
    true
}

fn default_initializer_range() -> f64 {
    0.02
}

impl InitSpec {
    /// Reads a description; `path` is only used in messages. Unknown keys are errors.
    pub fn parse(path: &Path, text: &str) -> Result<Self, LmError> {
        let mut spec: Self = toml::from_str(text).map_err(|error| {
            let mut problem = error.to_string();
            if let Some(suggestion) = suggestion(&problem) {
                problem = format!("{}\ndid you mean `{suggestion}`?", problem.trim_end());
            }
            LmError::malformed(path, problem)
        })?;
        if let (Some(folder), Some(base)) = (&spec.tokenizer, path.parent()) {
            spec.tokenizer = Some(base.join(folder));
        }
        if !(spec.initializer_range > 0.0 && spec.initializer_range < 10.0) {
            let problem =
                format!("is {}; it must be positive and below 10", spec.initializer_range);
            return Err(LmError::config(path, "initializer_range", problem));
        }
        Ok(spec)
    }

    /// The model's shape. `tokens` is the number of tokens of its tokenizer, if it has one.
    pub fn config(&self, path: &Path, tokens: Option<usize>) -> Result<ModelConfig, LmError> {
        let vocab_size = match (self.vocab_size, tokens) {
            (Some(size), Some(tokens)) if size < tokens => {
                let problem = format!("is {size}, but the tokenizer has {tokens} tokens");
                return Err(LmError::config(path, "vocab_size", problem));
            }
            (Some(size), _) => size,
            (None, Some(tokens)) => tokens.next_multiple_of(VOCAB_MULTIPLE),
            (None, None) => {
                return Err(LmError::config(
                    path,
                    "vocab_size",
                    "is needed when no tokenizer is given",
                ));
            }
        };
        let head_dim = match self.head_dim {
            Some(head_dim) => head_dim,
            None if self.heads > 0 && self.hidden_size.is_multiple_of(self.heads) => {
                self.hidden_size / self.heads
            }
            None => {
                let problem = format!(
                    "is needed: {} heads do not divide hidden_size = {}",
                    self.heads, self.hidden_size
                );
                return Err(LmError::config(path, "head_dim", problem));
            }
        };
        if self.family == Family::Qwen2 && head_dim * self.heads != self.hidden_size {
            let problem = format!("is {head_dim}; Qwen2 has no other than hidden_size / heads");
            return Err(LmError::config(path, "head_dim", problem));
        }
        if self.family == Family::Llama && !self.hidden_size.is_multiple_of(self.heads.max(1)) {
            return Err(LmError::config(path, "heads", "must divide hidden_size in a Llama model"));
        }
        let config = ModelConfig {
            family: self.family,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads.unwrap_or(self.heads),
            head_dim,
            vocab_size,
            max_position: self.max_position,
            rms_norm_eps: self.rms_norm_eps,
            rope_theta: self.rope_theta,
            rope_scaling: self.rope_scaling.map(|scaling| match scaling {
                ScalingSpec::Linear { factor } => RopeScaling::Linear { factor },
                ScalingSpec::Llama3 {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position,
                } => RopeScaling::Llama3 {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position,
                },
            }),
            tied_head: self.tied_head,
            qkv_bias: self.family == Family::Qwen2,
            qk_norm: self.family == Family::Qwen3,
        };
        hf_config::check(path, &config)?;
        Ok(config)
    }
}

/// The known key closest to the unknown one a message names.
fn suggestion(message: &str) -> Option<&'static str> {
    let unknown = message.split("unknown field `").nth(1)?.split('`').next()?;
    let close = |key: &&str| strsim::jaro_winkler(unknown, key);
    let best = KEYS.into_iter().max_by(|a, b| close(a).total_cmp(&close(b)))?;
    (close(&best) > 0.8).then_some(best)
}

/// The weights of a fresh model, drawn when they are asked for: normal for matrices, one for norms, zero for biases.
/// Each block of a tensor has its own stream, named by the tensor, so neither the number of threads nor the other
/// tensors of the model change a value.
#[derive(Debug, Clone)]
pub struct FreshWeights {
    config: ModelConfig,
    seed: u64,
    initializer_range: f64,
}

impl FreshWeights {
    /// Weights with a standard deviation of `initializer_range`.
    pub fn new(config: ModelConfig, seed: u64, initializer_range: f64) -> Self {
        Self { config, seed, initializer_range }
    }

    /// All of them in memory.
    pub fn parameters(&self) -> Result<Parameters, LmError> {
        self.config
            .parameter_shapes()
            .into_iter()
            .map(|(name, shape)| {
                let mut tensor = Tensor::zeros(&shape);
                self.read_values(&name, 0, &mut tensor.data)?;
                Ok((name, tensor))
            })
            .collect()
    }

    fn draw_block(&self, stream_name: u64, block: usize, skip: usize, out: &mut [f32]) {
        let key = StreamKey::new(self.seed, stream_name, block as u64, Purpose::Weights, 0);
        let mut stream = key.open();
        for _ in 0..skip {
            stream.normal();
        }
        out.fill_with(|| (stream.normal() * self.initializer_range) as f32);
    }
}

impl TensorSource for FreshWeights {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.config.parameter_shapes().remove(name)
    }

    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        if name.ends_with("norm.weight") {
            out.fill(1.0);
            return Ok(());
        }
        if name.ends_with("bias") {
            out.fill(0.0);
            return Ok(());
        }
        let hash = blake3::hash(name.as_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&hash.as_bytes()[..8]);
        let stream_name = u64::from_le_bytes(word);
        let into_block = first % BLOCK;
        let (head, rest) = out.split_at_mut((BLOCK - into_block).min(out.len()));
        self.draw_block(stream_name, first / BLOCK, into_block, head);
        rest.par_chunks_mut(BLOCK).enumerate().for_each(|(number, part)| {
            self.draw_block(stream_name, first / BLOCK + 1 + number, 0, part);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "family = 'qwen3'\nhidden_size = 64\nintermediate_size = 96\nlayers = 2\nheads = 4\nkv_heads = 2\nvocab_size = 2000\nseed = 7\n";

    fn spec() -> InitSpec {
        InitSpec::parse(Path::new("spec.toml"), SPEC).expect("a valid description")
    }

    fn weights(seed: u64) -> FreshWeights {
        let config = spec().config(Path::new("spec.toml"), None).expect("a valid shape");
        FreshWeights::new(config, seed, 0.02)
    }

    #[test]
    fn weights_depend_on_the_seed_and_on_nothing_else() {
        let parameters = weights(7).parameters().expect("drawn");
        assert_eq!(parameters, weights(7).parameters().expect("drawn"));
        assert_ne!(parameters, weights(8).parameters().expect("drawn"));
        let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        assert_eq!(parameters, single.install(|| weights(7).parameters().expect("drawn")));
        // Any piece is the same as in the whole.
        let name = "model.embed_tokens.weight";
        for (first, length) in [(0, 10), (BLOCK - 3, 7), (BLOCK + 11, 100), (5, 2 * BLOCK - 20_000)]
        {
            let mut piece = vec![0.0; length];
            weights(7).read_values(name, first, &mut piece).expect("drawn");
            assert_eq!(piece, parameters[name].data[first..first + length]);
        }
    }

    #[test]
    fn matrices_are_normal_norms_one_and_no_two_tensors_alike() {
        let parameters = weights(7).parameters().expect("drawn");
        let embedding = &parameters["model.embed_tokens.weight"].data;
        let mean = embedding.iter().sum::<f32>() / embedding.len() as f32;
        let variance = embedding.iter().map(|v| v * v).sum::<f32>() / embedding.len() as f32;
        assert!(mean.abs() < 4e-4 && (variance.sqrt() - 0.02).abs() < 4e-4, "{mean} {variance}");
        assert!(
            parameters["model.layers.1.self_attn.q_norm.weight"].data.iter().all(|&v| v == 1.0)
        );
        let (a, b) = ("model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight");
        assert_ne!(parameters[a].data, parameters[b].data);
    }

    #[test]
    fn a_misspelt_key_is_named_with_a_suggestion() {
        let error = InitSpec::parse(Path::new("spec.toml"), &SPEC.replace("kv_heads", "kv_head"))
            .expect_err("an unknown key")
            .to_string();
        assert!(error.contains("spec.toml") && error.contains("line 6"), "{error}");
        assert!(error.contains("did you mean `kv_heads`?"), "{error}");
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused_by_name() {
        let wrong = |from: &str, to: &str| {
            InitSpec::parse(Path::new("spec.toml"), &SPEC.replace(from, to))
                .and_then(|spec| spec.config(Path::new("spec.toml"), Some(1900)))
                .expect_err("impossible")
                .to_string()
        };
        assert!(wrong("kv_heads = 2", "kv_heads = 3").contains("num_key_value_heads"));
        assert!(wrong("heads = 4", "heads = 5").contains("head_dim"));
        assert!(wrong("vocab_size = 2000", "vocab_size = 1800").contains("1900 tokens"));
        assert!(wrong("seed = 7", "initializer_range = -1").contains("initializer_range"));
        assert!(wrong("layers = 2", "layers = 100000000").contains("num_hidden_layers"));
        let none = InitSpec::parse(Path::new("s"), &SPEC.replace("vocab_size = 2000", ""))
            .and_then(|spec| spec.config(Path::new("s"), Some(1900)))
            .expect("sized by the tokenizer");
        assert_eq!(none.vocab_size, 1920);
    }
}
