//! What all episodes of a batch have in common.

use std::sync::Arc;

use lens_engine::Deadline;
use lens_env::{Benchmark, PromptStyle};

/// What a turn's prompt contains of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// Each turn's prompt stands alone.
    Window,
    /// Earlier turns also stay in the conversation.
    Chat,
}

/// What all episodes of a batch have in common.
#[derive(Clone)]
pub struct Setup {
    /// The benchmark being played.
    pub benchmark: Arc<dyn Benchmark>,
    /// What prompts contain of the past.
    pub context: Context,
    /// Past steps shown in every prompt.
    pub history: usize,
    /// The environment's limit of turns, `T_max`.
    pub turn_limit: usize,
    /// Longest prompt; a longer one ends the episode with a reason.
    pub max_prompt_tokens: usize,
    /// Longest response.
    pub max_response_tokens: usize,
    /// When the batch must be over.
    pub deadline: Deadline,
}

impl Setup {
    /// How the benchmark's turns become messages.
    pub fn prompt_style(&self) -> &PromptStyle {
        &self.benchmark.profile().prompt
    }
}
