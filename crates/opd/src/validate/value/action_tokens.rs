//! The teacher's mean log-likelihood of what is done.

use super::{Branch, InputError};
use crate::error::measured;

/// Mean teacher log-probability of the tokens inside the actions of the continuation.
///
/// `V = 1/N * sum over turns, over the content tokens of the turn's action of log T(x)`. What is said around the action
/// varies between branches without changing the future; the action does not. Turns without an action count nothing.
pub fn action_tokens(branch: &Branch) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for turn in &branch.continuation {
        for (position, token) in turn.action_content() {
            sum += measured(token.teacher_logprob, "teacher log-probability", position)?;
            count += 1;
        }
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "likelihood of the actions of a continuation" });
    }
    Ok(sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::super::example::{acting, branch, close, turn};
    use super::*;

    #[test]
    fn only_tokens_of_actions_count() {
        let futures = branch(vec![
            acting(turn(1, &[-50.0, -1.0, -2.0, -50.0, -99.0]), 1, 3),
            turn(2, &[-50.0, -50.0, -99.0]),
            acting(turn(3, &[-50.0, -6.0, -99.0]), 1, 3),
        ]);
        close(action_tokens(&futures).expect("scored"), -3.0);
        let silent = branch(vec![turn(1, &[-1.0, -99.0])]);
        assert!(action_tokens(&silent).is_err(), "no action, no value");
    }
}
