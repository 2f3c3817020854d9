//! FutureBridge's value: how often the teacher likes a token better than the student does.

use super::Branch;
use crate::error::{InputError, measured};

/// Share of the continuation's tokens with `log p_T > log p_S`, pooled over turns (FutureBridge's gate).
///
/// `V = 1/N * sum over all tokens of 1[log T(x) > log S(x)]`.
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

#[cfg(test)]
mod tests {
    use super::super::example::{branch, close, turn};
    use super::*;

    #[test]
    fn every_token_counts_and_a_tie_is_not_preferred() {
        // The student gives every token -1.
        let futures = branch(vec![turn(1, &[-0.5, -1.0]), turn(2, &[-2.0, -0.1, -0.1])]);
        close(token_ratio(&futures).expect("scored"), 0.6);
    }
}
