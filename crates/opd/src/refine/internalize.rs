//! Guidance internalization: what the student did with the hint, it learns to do without.
//!
//! The target is the frozen snapshot's distribution in the hinted context, at every token of the hinted
//! response; the learner reads the same response after the hint-free context. A remote snapshot that
//! cannot give whole distributions gives its top tokens, and one bucket holds the rest.

use crate::error::InputError;
use crate::objective::TokenLoss;
use crate::objective::forward_kl::{TopTarget, forward_kl, forward_kl_topk};

/// The frozen target `q_H` at one token of the hinted response (eq. gi-distributions).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target<'a> {
    /// The snapshot's logits under the hinted context.
    Logits(&'a [f32]),
    /// Its most likely tokens with their log-probabilities.
    Top(&'a [TopTarget]),
}

/// Loss of one hinted response: value and gradient at every token.
#[derive(Debug, Clone, PartialEq)]
pub struct InternalizationLoss {
    /// `g * (1/M) * sum of KL(q_H || p_0)`.
    pub value: f64,
    /// Its gradient with respect to the learner's logits, one vector per token.
    pub gradients: Vec<Vec<f64>>,
}

/// The mean divergence over a hinted response, `g/M * sum KL(q_H || p_0)` (eq. gi-objective).
pub fn internalization_loss(
    accepted: bool,
    targets: &[Target<'_>],
    learner_logits: &[&[f32]],
) -> Result<InternalizationLoss, InputError> {
    let tokens = targets.len();
    if tokens == 0 {
        return Err(InputError::Empty { what: "the hinted response" });
    }
    if learner_logits.len() != tokens {
        let (what, found) = ("learner logits of the hinted response", learner_logits.len());
        return Err(InputError::Length { what, expected: tokens, found });
    }
    let scale = if accepted { 1.0 / tokens as f64 } else { 0.0 };
    let mut loss = InternalizationLoss { value: 0.0, gradients: Vec::with_capacity(tokens) };
    for (target, logits) in targets.iter().zip(learner_logits) {
        let token = token_loss(target, logits)?;
        loss.value += scale * token.value;
        loss.gradients.push(token.gradient.into_iter().map(|g| scale * g).collect());
    }
    Ok(loss)
}

/// The divergence `KL(q_H || p_0)` at one token (eq. gi-objective).
pub fn token_loss(target: &Target<'_>, learner_logits: &[f32]) -> Result<TokenLoss, InputError> {
    match target {
        Target::Logits(logits) => forward_kl(logits, learner_logits),
        Target::Top(top) => forward_kl_topk(top, learner_logits),
    }
}
