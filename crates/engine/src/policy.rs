//! Writing responses.

use lens_opd::random::StreamKey;

use crate::codec::Codec;
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Temperature; 0 takes the most likely token.
    pub temperature: f32,
    /// Nucleus sampling; 1 is off.
    pub top_p: f32,
    /// Only the k most likely tokens; `None` is off.
    pub top_k: Option<usize>,
    /// Only tokens at least this share as likely as the most likely one; 0 is off.
    pub min_p: f32,
}

impl Sampling {
    /// The most likely token, always.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: None, min_p: 0.0 };

    /// The model's own distribution at `temperature`.
    pub fn at(temperature: f32) -> Self {
        Self { temperature, ..Self::GREEDY }
    }
}

/// One response to write.
#[derive(Debug, Clone)]
pub struct GenerateCall {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The longest prompt allowed; a longer one fails, it is never cut.
    pub max_prompt_tokens: usize,
    /// The longest response.
    pub max_new_tokens: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// The stream they are drawn from.
    pub stream: StreamKey,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn.
    Stop,
    /// The limit of tokens was reached.
    Length,
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The tokens, the end-of-turn token included.
    pub tokens: Vec<u32>,
    /// The log-probability of each token as it was drawn, temperature applied.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A frozen model that writes responses.
pub trait Policy: Send + Sync {
    /// Its tokenizer and chat template.
    fn codec(&self) -> &dyn Codec;

    /// Optimizer steps its weights have seen (0 for a model that does not learn).
    fn version(&self) -> u64;

    /// How many calls it takes at once from callers of their own. `None`: it answers one batch at a time, and larger
    /// batches are faster; what depends on its answers should ask for them together.
    fn concurrency(&self) -> Option<usize> {
        None
    }

    /// Writes all responses. The outer error is a failure of the engine as a whole.
    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError>;
}
