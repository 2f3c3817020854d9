//! Validate: does the guidance improve the student's future?

pub mod fork;
pub mod gate;
pub mod value;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::OpdError;
use crate::locate::proposal::Candidate;
use crate::methods::RunFacts;
use crate::parameter::{count, number, positive, require};
use fork::{Coupling, ForkKind, ForkRequest, HintPrompt};
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
    /// Which random draws the two branches are made of: "independent" ones (the paper) or "common" ones, with which
    /// branches that do the same have gain exactly 0.
    pub coupling: Coupling,
    /// Pairs of branches per fork; the gain is the mean over them.
    pub pairs: usize,
    /// How far above 0 the mean gain must be, in its standard errors; needs at least two pairs.
    pub margin: f64,
    /// Whether branches are played to the end of the episode, so that `terminal = "outcome"` sees it; only the
    /// continuation turns are judged. The evaluators "outcome" and "progress" always do so.
    pub play_on: bool,
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
            coupling: Coupling::Independent,
            pairs: 1,
            margin: 0.0,
            play_on: false,
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
        count("validate.pairs", self.pairs as u64, 1..=1000)?;
        number("validate.margin", self.margin, 0.0..=100.0)?;
        require("validate.margin", self.margin, self.margin == 0.0 || self.pairs > 1, || {
            "0 with validate.pairs = 1: one pair has no standard error".to_owned()
        })?;
        count("validate.hint_tokens", self.hint_tokens as u64, 1..=100_000)
    }

    /// The fork that audits a proposed turn of an episode.
    pub fn request(&self, episode: u64, chosen: Candidate, kind: ForkKind) -> ForkRequest {
        ForkRequest {
            episode,
            turn: chosen.turn,
            kind,
            continuation_turns: self.continuation_turns,
            temperature: self.temperature,
            divergence: chosen.divergence,
            pairs: self.pairs,
            coupling: self.coupling,
            play_on: self.play_on || self.evaluator.is_of_end(),
            favorites: self.evaluator.needs_favorites(),
        }
    }

    /// What the guided branch gets: a hint.
    pub fn hint(&self) -> ForkKind {
        ForkKind::Hint { prompt: self.hint_prompt, tokens: self.hint_tokens }
    }
}
