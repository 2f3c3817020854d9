//! What a continuation is worth.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fork::Branch;
use crate::error::{InputError, measured};
use crate::objective::distribution::log_softmax;

/// How a continuation is valued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BranchValue {
    /// Mean teacher log-likelihood of the content tokens (the paper).
    #[default]
    TeacherLikelihood,
    /// Share of tokens the teacher finds likelier than the student does (FutureBridge).
    TokenRatio,
}

impl BranchValue {
    /// The branch's value on its continuation turns, the fork turn excluded (eq. future-evaluator).
    pub fn of(self, branch: &Branch) -> Result<f64, InputError> {
        match self {
            Self::TeacherLikelihood => teacher_likelihood(branch),
            Self::TokenRatio => token_ratio(branch),
        }
    }
}

/// Mean teacher log-probability of the continuation's content tokens (eq. future-evaluator).
///
/// The log-probabilities were taken at the request's temperature; see [`tempered_log_probability`].
pub fn teacher_likelihood(branch: &Branch) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for turn in &branch.continuation {
        for (position, token) in turn.content() {
            sum += measured(token.teacher_logprob, "teacher log-probability", position)?;
            count += 1;
        }
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "teacher likelihood of a continuation" });
    }
    Ok(sum / count as f64)
}

/// Share of the continuation's tokens with `log p_T > log p_S`, pooled over turns (FutureBridge's gate).
pub fn token_ratio(branch: &Branch) -> Result<f64, InputError> {
    let (mut preferred, mut count) = (0_usize, 0_usize);
    for turn in &branch.continuation {
        for (position, token) in turn.tokens.iter().enumerate() {
            let teacher = measured(token.teacher_logprob, "teacher log-probability", position)?;
            let student = measured(token.student_logprob, "student log-probability", position)?;
            preferred += usize::from(teacher > student);
            count += 1;
        }
    }
    if count == 0 {
        return Err(InputError::Empty { what: "the continuation" });
    }
    Ok(preferred as f64 / count as f64)
}

/// Log-probability of `token` under `softmax(logits / tau)` (eq. future-evaluator).
pub fn tempered_log_probability(logits: &[f32], token: u32, tau: f64) -> Result<f64, InputError> {
    if !(tau.is_finite() && tau > 0.0) {
        let (what, expected) = ("temperature tau", "positive");
        return Err(InputError::OutOfRange { what, position: 0, value: tau, expected });
    }
    let log_probabilities = log_softmax(logits, tau, "teacher logit")?;
    log_probabilities
        .get(token as usize)
        .copied()
        .ok_or(InputError::UnknownToken { token, vocabulary: logits.len() })
}
