//! What all episodes of a batch have in common.

use std::sync::Arc;
use std::time::Duration;

use lens_engine::Deadline;
use lens_env::{Benchmark, EnvError, PromptStyle, Window};

use crate::prompting::Prompting;

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
pub struct RolloutConfig {
    /// The benchmark being played.
    pub benchmark: Arc<dyn Benchmark>,
    /// What the configuration says about messages and actions.
    pub prompting: Prompting,
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
    /// How long a batch may take; `None` means any time.
    pub timeout: Option<Duration>,
    /// When the batch under way must be over.
    pub deadline: Deadline,
}

impl RolloutConfig {
    /// The same, with the time that runs from now.
    #[must_use]
    pub fn starting_now(&self) -> Self {
        let deadline = self.timeout.map_or(Deadline::never(), Deadline::after);
        Self { deadline, ..self.clone() }
    }

    /// The ordinary message of a turn.
    pub fn turn_message(&self, window: &Window) -> Result<String, EnvError> {
        self.prompting.turn_message(self.prompt_style(), window)
    }

    /// How the benchmark's turns become messages.
    pub fn prompt_style(&self) -> &PromptStyle {
        &self.benchmark.profile().prompt
    }
}
