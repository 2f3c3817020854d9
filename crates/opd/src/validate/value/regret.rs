//! What a continuation gives away against the teacher's favorites.

use super::{Branch, InputError};
use crate::error::measured;

/// Mean over content tokens of the teacher's log-probability less that of its favorite token.
///
/// `V = 1/N * sum over turns, over content tokens of (log T(x) - max over v of log T(v))`, never above 0. Where the
/// teacher itself is undecided, a token that is not its favorite costs little.
pub fn regret(branch: &Branch) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for turn in &branch.continuation {
        for (position, token) in turn.content() {
            let favorite = token.top.and_then(|top| top.teacher_at_teacher);
            let best = measured(favorite, "log p_T(vT)", position)?;
            sum += measured(token.teacher_logprob, "teacher log-probability", position)? - best;
            count += 1;
        }
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "regret of a continuation" });
    }
    Ok(sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::super::example::{branch, close, favorite, turn};
    use super::*;

    #[test]
    fn the_favorite_costs_nothing_and_its_log_probability_is_measured() {
        let futures = branch(vec![
            favorite(turn(1, &[-1.0, -99.0]), -1.0),
            favorite(turn(2, &[-2.0, -4.0, -99.0]), -0.5),
        ]);
        close(regret(&futures).expect("scored"), -(1.5 + 3.5) / 3.0);
        assert!(regret(&branch(vec![turn(1, &[-1.0, -99.0])])).is_err(), "no favorites, no regret");
    }
}
