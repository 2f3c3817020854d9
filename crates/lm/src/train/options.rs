//! How a trainer works, and what that takes in memory.

use super::TrainError;
use super::adapters::LoraOptions;
use super::moments::MomentFormat;
use crate::config::ModelConfig;

/// Whether a layer's activations are kept from the forward pass or computed again in the backward pass. The results are
/// the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Kept, except those of a row that is too long for [`TrainerOptions::activation_bytes`].
    #[default]
    Auto,
    /// Computed again: a third more work, and more tokens go through the model at a time.
    Always,
    /// Kept, however long a row is.
    Never,
}

/// How a trainer works, apart from the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainerOptions {
    /// Whether activations are computed again in the backward pass.
    pub recompute: Recompute,
    /// Tokens that take part in the softmax; logits of ids from here on are cut. `None`: the whole vocabulary.
    pub real_vocab: Option<usize>,
    /// Most tokens that go through the model at a time (one row at least).
    pub micro_batch_tokens: usize,
    /// Bytes of kept activations; fewer tokens go through the model at a time when they would need more.
    pub activation_bytes: usize,
    /// Bytes of positions x vocabulary values the output head may hold at a time (16 positions at least).
    pub logit_bytes: usize,
    /// Train adapters of a frozen model instead of the model itself.
    pub lora: Option<LoraOptions>,
    /// How the optimizer's moments are kept.
    pub moments: MomentFormat,
}

/// Bytes of activations kept of every token of a micro-batch until the backward pass.
pub fn activation_bytes_per_token(config: &ModelConfig, recompute: bool) -> usize {
    let c = config;
    let kept_once = 2 * c.q_width() + 2 * c.kv_width() + c.hidden_size + 2 * c.intermediate_size;
    let kept = if recompute {
        c.layers * c.hidden_size + kept_once
    } else {
        c.layers * (c.hidden_size + kept_once)
    };
    kept * size_of::<f32>()
}

/// Bytes that a micro-batch of `tokens` tokens needs besides its kept activations: one layer's packed weights, the
/// buffers of the backward pass, and the output head's logits if half of the tokens carry loss.
pub fn scratch_bytes(config: &ModelConfig, options: &TrainerOptions, tokens: usize) -> usize {
    let c = config;
    let (hidden, ff) = (c.hidden_size, c.intermediate_size);
    let packed = hidden * (2 * c.q_width() + 2 * c.kv_width() + 3 * ff);
    let backward = tokens * (2 * ff + 6 * hidden + 4 * c.q_width() + 2 * c.kv_width());
    let logits = (options.logit_bytes / size_of::<f32>()).min(tokens * c.vocab_size);
    (packed + backward + logits) * size_of::<f32>()
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            recompute: Recompute::Auto,
            real_vocab: None,
            micro_batch_tokens: 1024,
            activation_bytes: 1 << 30,
            logit_bytes: 64 << 20,
            lora: None,
            moments: MomentFormat::F32,
        }
    }
}

impl TrainerOptions {
    /// Whether the model can be trained in this way.
    pub(super) fn check(&self, config: &ModelConfig) -> Result<(), TrainError> {
        let fail = |reason: String| Err(TrainError::Config(reason));
        let sizes = [
            ("hidden_size", config.hidden_size),
            ("intermediate_size", config.intermediate_size),
            ("layers", config.layers),
            ("heads", config.heads),
            ("kv_heads", config.kv_heads),
            ("head_dim", config.head_dim),
            ("vocab_size", config.vocab_size),
            ("max_position", config.max_position),
        ];
        if let Some((name, _)) = sizes.iter().find(|&&(_, size)| size == 0) {
            return fail(format!("`{name}` is 0"));
        }
        if !config.heads.is_multiple_of(config.kv_heads) {
            return fail(format!(
                "{} heads cannot share {} key heads evenly",
                config.heads, config.kv_heads
            ));
        }
        if !config.head_dim.is_multiple_of(2) {
            return fail(format!(
                "head_dim {} is odd, rotary positions pair values",
                config.head_dim
            ));
        }
        match self.real_vocab {
            Some(real) if real == 0 || real > config.vocab_size => fail(format!(
                "real_vocab is {real}, expected 1 to the vocabulary's {}",
                config.vocab_size
            )),
            _ => Ok(()),
        }
    }
}
