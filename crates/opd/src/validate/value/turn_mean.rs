//! The teacher's mean log-likelihood, every turn alike.

use super::{Branch, InputError};
use crate::episode::ScoredTurn;
use crate::error::measured;

/// Mean over continuation turns of each turn's mean teacher log-probability of its content tokens.
///
/// `V = 1/n * sum over the n turns with content of (1/|C_t| * sum over C_t of log T(x))`. A turn that explains itself at
/// length weighs as much as one that does not.
pub fn turn_mean(branch: &Branch) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for turn in &branch.continuation {
        if let Some(mean) = likelihood_of_turn(turn)? {
            sum += mean;
            count += 1;
        }
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "per-turn likelihood of a continuation" });
    }
    Ok(sum / count as f64)
}

/// Mean teacher log-probability of a turn's content tokens; `None` without content.
pub(super) fn likelihood_of_turn(turn: &ScoredTurn) -> Result<Option<f64>, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for (position, token) in turn.content() {
        sum += measured(token.teacher_logprob, "teacher log-probability", position)?;
        count += 1;
    }
    Ok((count > 0).then(|| sum / count as f64))
}

#[cfg(test)]
mod tests {
    use super::super::example::{branch, close, turn};
    use super::*;

    #[test]
    fn turns_count_alike_however_long_they_are() {
        let futures = branch(vec![
            turn(1, &[-1.0, -99.0]),
            turn(2, &[-2.0, -3.0, -4.0, -99.0]),
            turn(3, &[-99.0]),
        ]);
        close(turn_mean(&futures).expect("scored"), -2.0);
        assert!(turn_mean(&branch(vec![turn(1, &[-99.0])])).is_err(), "no content");
    }
}
