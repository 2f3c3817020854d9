//! One published version of the student beside its teacher.

use lens_opd::episode::{DivergenceSource, TopPair};

use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::policy::Policy;
use crate::target::Target;

/// A response to judge, in the context it was written in.
#[derive(Debug, Clone)]
pub struct ScoreCall {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The response's tokens.
    pub response: Vec<u32>,
    /// The log-probability of each token as the student drew it; `None` for tokens it did not draw.
    pub drawn: Option<Vec<f32>>,
    /// Whether both models are compared at every position, or only the teacher asked about the realized tokens.
    pub compare: bool,
    /// Whether the response may be trained on, so that the answer must hold a target.
    pub trainable: bool,
    /// Temperature of the teacher's log-probabilities of the realized tokens.
    pub temperature: f32,
}

/// What both models say about one position. What was not measured is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// The teacher's log-probability of the realized token.
    pub teacher_logprob: Option<f32>,
    /// The student's log-probability of the realized token.
    pub student_logprob: Option<f32>,
    /// Both models' favorite tokens.
    pub top: Option<TopPair>,
    /// `KL(student || teacher)`, measured as [`Models::divergence`] says.
    pub kl: Option<f32>,
}

/// A judged response.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// One entry per response token.
    pub positions: Vec<Position>,
    /// What the response is pulled toward by the run's estimator, if the call asked for it.
    pub target: Option<Target>,
}

/// A response written with a hint in view, to be learned without it.
#[derive(Debug, Clone)]
pub struct CrossContext {
    /// The prompt with the hint.
    pub hinted_prompt: Vec<u32>,
    /// The prompt without it.
    pub plain_prompt: Vec<u32>,
    /// The response.
    pub response: Vec<u32>,
}

/// What the student itself says about such a response in both contexts.
#[derive(Debug, Clone, PartialEq)]
pub struct Internalized {
    /// Its distributions under the hinted context: the frozen target (eq. gi-distributions).
    pub target: Target,
    /// Mean `KL(hinted || plain)` over the response: the internalization gap. `None` where it was not measured.
    pub gap: Option<f64>,
}

/// A student as it was published, and its teacher. Frozen: answers do not change while a version is in use.
pub trait Models: Send + Sync {
    /// The student.
    fn student(&self) -> &dyn Policy;

    /// The teacher: hints and teacher turns.
    fn teacher(&self) -> &dyn Policy;

    /// How divergences are measured; the run records it.
    fn divergence(&self) -> DivergenceSource;

    /// Judges all responses. A comparison that cannot be made is an error, never an answer without one.
    fn compare(
        &self,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError>;

    /// The student's own distributions under a hint, as targets.
    fn internalize(
        &self,
        calls: &[CrossContext],
        deadline: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError>;
}
