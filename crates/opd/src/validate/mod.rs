//! Validate: does the guidance improve the student's future?

pub mod fork;
pub mod gate;
pub mod value;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::OpdError;
use crate::methods::RunFacts;
use crate::parameter::{count, positive};
use fork::HintPrompt;
use gate::{Completeness, Terminal};
use value::BranchValue;

/// Validate: forks, hints and the gate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Validate {
    /// Turns each branch plays after the fork turn (the paper's H).
    pub continuation_turns: usize,
    /// Temperature of the teacher's log-probabilities of a continuation (the paper's tau).
    pub temperature: f64,
    /// What a continuation is worth.
    pub evaluator: BranchValue,
    /// What a branch that ends the task counts for.
    pub terminal: Terminal,
    /// How long branches must be.
    pub completeness: Completeness,
    /// The longest hint in tokens.
    pub hint_tokens: usize,
    /// How the hint is put to the student.
    pub hint_prompt: HintPrompt,
}

impl Default for Validate {
    fn default() -> Self {
        Self {
            continuation_turns: 3,
            temperature: 1.0,
            evaluator: BranchValue::TeacherLikelihood,
            terminal: Terminal::Exclude,
            completeness: Completeness::Natural,
            hint_tokens: 80,
            hint_prompt: HintPrompt::FeedbackIncorporation,
        }
    }
}

impl Validate {
    /// Refuses values with which no pair could be judged.
    pub fn check(&self, _facts: &RunFacts) -> Result<(), OpdError> {
        count("validate.continuation_turns", self.continuation_turns as u64, 1..=1000)?;
        positive("validate.temperature", self.temperature, 100.0)?;
        count("validate.hint_tokens", self.hint_tokens as u64, 1..=100_000)
    }
}
