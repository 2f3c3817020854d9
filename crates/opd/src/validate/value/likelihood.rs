//! The paper's value: the teacher's mean log-likelihood per token.

use super::Branch;
use crate::error::{InputError, measured};
use crate::objective::distribution::log_softmax;

/// Mean teacher log-probability of the continuation's content tokens (eq. future-evaluator).
///
/// `V = 1/N * sum over turns, over content tokens of log T(x)`. The log-probabilities were taken at the request's
/// temperature; see [`tempered_log_probability`].
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

#[cfg(test)]
mod tests {
    use super::super::example::{branch, close, turn};
    use super::*;

    #[test]
    fn tokens_count_alike_whatever_turn_they_are_of_and_the_end_of_turn_does_not() {
        let futures = branch(vec![turn(1, &[-1.0, -99.0]), turn(2, &[-2.0, -3.0, -4.0, -99.0])]);
        close(teacher_likelihood(&futures).expect("scored"), -2.5);
        assert!(teacher_likelihood(&branch(vec![turn(1, &[-99.0])])).is_err(), "no content");
    }
}
