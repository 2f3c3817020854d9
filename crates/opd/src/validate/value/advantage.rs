//! The teacher's log-likelihood against what a step of that kind usually has.

use std::collections::BTreeMap;

use super::turn_mean::likelihood_of_turn;
use super::{Branch, InputError};
use crate::episode::{Actor, ScoredBatch, ScoredTurn};

/// How many turns the mean of all turns weighs in the usual value of one kind of step.
const PRIOR_TURNS: f64 = 4.0;

/// Mean over continuation turns of the turn's mean teacher log-probability less what its kind of step usually has.
///
/// `V = 1/n * sum over the n turns with content of (l_t - b(k_t))`, with `l_t` the mean of `log T(x)` over the content
/// of turn `t`, `k_t` the kind of step, and `b` from [`Stages`]. Progress leads to steps that students do less well than
/// walking about; without `b` it looks like a loss. The number of the turn cannot stand for the stage: both branches
/// play the same numbers, so a baseline by number cancels.
pub fn advantage(branch: &Branch, stages: &Stages) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for turn in &branch.continuation {
        if let Some(mean) = likelihood_of_turn(turn)? {
            sum += mean - stages.usual(turn);
            count += 1;
        }
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "advantage of a continuation" });
    }
    Ok(sum / count as f64)
}

/// What the student's turns are usually worth to the teacher, by kind of step: the first token of the action.
///
/// Measured on the explored batch itself, which was played before any fork, so no branch enters its own baseline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stages {
    mean: f64,
    kinds: BTreeMap<u32, (f64, usize)>,
}

impl Stages {
    /// Measures the turns of a batch. Turns that were not scored do not count.
    pub fn of(batch: &ScoredBatch) -> Self {
        let (mut sum, mut count) = (0.0, 0_usize);
        let mut kinds: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
        let turns = batch.episodes.iter().flat_map(|episode| &episode.turns);
        for turn in
            turns.filter(|turn| turn.actor == Actor::Student && turn.drop_reason().is_none())
        {
            let Ok(Some(mean)) = likelihood_of_turn(turn) else { continue };
            sum += mean;
            count += 1;
            if let Some(kind) = kind(turn) {
                let entry = kinds.entry(kind).or_default();
                *entry = (entry.0 + mean, entry.1 + 1);
            }
        }
        Self { mean: if count == 0 { 0.0 } else { sum / count as f64 }, kinds }
    }

    /// The usual value of a turn like this one: the mean of its kind, drawn toward the mean of all where the kind is
    /// rare; 0 where nothing was measured.
    pub fn usual(&self, turn: &ScoredTurn) -> f64 {
        let known = kind(turn).and_then(|kind| self.kinds.get(&kind));
        let (sum, count) = known.copied().unwrap_or_default();
        (sum + PRIOR_TURNS * self.mean) / (count as f64 + PRIOR_TURNS)
    }
}

/// The kind of step a turn takes: the first token of its action.
fn kind(turn: &ScoredTurn) -> Option<u32> {
    turn.action_content().next().map(|(_, token)| token.id)
}

#[cfg(test)]
mod tests {
    use super::super::example::{acting, branch, close, turn};
    use super::*;
    use crate::episode::{DivergenceSource, EpisodeEnd, ScoredEpisode};

    /// A turn whose action begins with the token `kind`.
    fn step(number: usize, kind: u32, logprob: f32) -> ScoredTurn {
        let mut turn = acting(turn(number, &[logprob, -99.0]), 0, 1);
        turn.tokens[0].id = kind;
        turn
    }

    fn batch(turns: Vec<ScoredTurn>) -> ScoredBatch {
        let episode = ScoredEpisode {
            episode: 0,
            version: 0,
            prefix: 0,
            reference_actions: None,
            end: EpisodeEnd::TurnLimit,
            success: false,
            turns,
        };
        ScoredBatch { number: 1, divergence: DivergenceSource::Full, episodes: vec![episode] }
    }

    #[test]
    fn a_step_is_measured_against_its_kind_and_a_rare_kind_against_all() {
        let turns = (0..4).map(|n| step(n, 7, -1.0)).chain((4..8).map(|n| step(n, 8, -3.0)));
        let stages = Stages::of(&batch(turns.collect()));
        // The mean of all is -2; four turns of a kind weigh as much as it.
        close(stages.usual(&step(0, 7, 0.0)), -1.5);
        close(stages.usual(&step(0, 8, 0.0)), -2.5);
        close(stages.usual(&step(0, 9, 0.0)), -2.0);
        let futures = branch(vec![step(1, 7, -1.0), step(2, 8, -3.5)]);
        close(advantage(&futures, &stages).expect("scored"), f64::midpoint(0.5, -1.0));
        close(advantage(&futures, &Stages::default()).expect("scored"), -2.25);
    }
}
