//! Judging what a student wrote, token by token.

use std::sync::Arc;

use lens_opd::episode::{DivergenceSource, TopPair};

use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::policy::Policy;

/// A response to judge, in the context it was written in.
#[derive(Debug, Clone)]
pub struct ScoreCall {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The response's tokens.
    pub response: Vec<u32>,
    /// Whether both models are compared at every position, or only the teacher asked about the realised tokens.
    pub compare: bool,
    /// Temperature of the teacher's log-probabilities of the realised tokens.
    pub temperature: f32,
}

/// What both models say about one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// The teacher's log-probability of the realised token.
    pub teacher_logprob: Option<f32>,
    /// The snapshot's log-probability of the realised token.
    pub student_logprob: Option<f32>,
    /// Both models' favourite tokens.
    pub top: Option<TopPair>,
    /// `KL(snapshot || teacher)`, as [`Teacher::divergence`] says.
    pub kl: Option<f32>,
}

/// A judged response.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredRow {
    /// One entry per response token.
    pub positions: Vec<Position>,
    /// The teacher's last hidden states at these positions, where the teacher is on this machine: what the
    /// full-vocabulary loss needs, instead of positions x vocabulary.
    pub teacher_hidden: Option<Arc<Vec<f32>>>,
}

/// A frozen model that judges what a student's snapshot wrote.
pub trait Teacher: Policy {
    /// How divergences are measured; the run records it.
    fn divergence(&self) -> DivergenceSource;

    /// Judges all responses against the snapshot that wrote them.
    fn score(
        &self,
        student: &dyn Policy,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<ScoredRow, CallFailure>>, EngineError>;
}
