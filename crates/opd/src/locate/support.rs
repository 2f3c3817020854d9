//! How much of its own weight the student gives to the teacher's favorite token.

use crate::episode::{ScoredBatch, ScoredTurn, TopPair};
use crate::error::{InputError, OpdError, log_probability};

/// A favorite token's log-probability, or the floor that stands in for one an engine left out.
///
/// Engines that return only the top few tokens cannot say how likely the other model's favorite
/// is. Whoever knows the engine sets a floor; without one such a position is an error.
pub(crate) fn or_floor(
    value: Option<f32>,
    floor: Option<f32>,
    what: &'static str,
    position: usize,
) -> Result<f64, InputError> {
    let value = value.or(floor).ok_or(InputError::Missing { what, position })?;
    log_probability(value, what, position)
}

/// Soft support of the teacher's token, `min(1, p(vT)/p(vS))` (eq. frontier-soft-support).
pub fn soft_support(top: &TopPair, floor: Option<f32>, position: usize) -> Result<f64, InputError> {
    if top.agree() {
        return Ok(1.0);
    }
    let teacher_token = or_floor(top.student_at_teacher, floor, "log p_S(vT)", position)?;
    let student_token = or_floor(top.student_at_student, floor, "log p_S(vS)", position)?;
    Ok((teacher_token - student_token).exp().min(1.0))
}

/// Episode competence: mean soft support over a turn's content tokens (eq. frontier-soft-support).
pub fn turn_competence(turn: &ScoredTurn, floor: Option<f32>) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for (position, token) in turn.content() {
        let top = token.top.ok_or(InputError::Missing { what: "top-1 tokens", position })?;
        sum += soft_support(&top, floor, position)?;
        count += 1;
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "competence" });
    }
    Ok(sum / count as f64)
}

/// The competence of every episode that reached turn number `depth` (eq. frontier-soft-support).
///
/// The paper counts turns from 1, so the frontier of horizon `K` is our turn `K - 1`. Episodes
/// whose frontier turn was dropped or has no content tokens are not valid and are left out.
pub fn frontier_competences(
    batch: &ScoredBatch,
    depth: usize,
    floor: Option<f32>,
) -> Result<Vec<f64>, OpdError> {
    let mut competences = Vec::new();
    let Some(frontier) = depth.checked_sub(1) else { return Ok(competences) };
    for episode in &batch.episodes {
        let Some(turn) = episode.turn(frontier) else { continue };
        if turn.drop_reason().is_some() || turn.content().next().is_none() {
            continue;
        }
        let at = OpdError::at(episode.episode, frontier);
        competences.push(turn_competence(turn, floor).map_err(at)?);
    }
    Ok(competences)
}

/// The median; an even count gives the mean of the two middle values. `None` for an empty slice.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}
