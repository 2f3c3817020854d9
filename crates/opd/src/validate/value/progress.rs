//! How far the task was brought.

use super::{Branch, InputError};

/// The benchmark's own score where the branch ended.
///
/// `V = score` on the benchmark's scale: of ScienceWorld points, of WebShop the reward of a purchase, of ALFWorld the
/// outcome, because it has no other score. Branches are played on to the end of the episode for it.
pub fn progress(branch: &Branch) -> Result<f64, InputError> {
    let (what, position) = ("the score at the end of a branch", 0);
    let value = branch.score.ok_or(InputError::Missing { what, position })?;
    if value.is_finite() { Ok(value) } else { Err(InputError::NotFinite { what, position, value }) }
}

#[cfg(test)]
mod tests {
    use super::super::example::branch;
    use super::*;

    #[test]
    fn the_score_is_taken_as_it_is_and_must_be_there() {
        let scored = |score| progress(&Branch { score, ..branch(Vec::new()) });
        assert_eq!(scored(Some(0.25)), Ok(0.25));
        assert!(scored(None).is_err() && scored(Some(f64::NAN)).is_err());
    }
}
