//! SOD, step-wise on-policy distillation (arXiv 2605.07725): turns where the student strays further from the teacher than
//! at its first turn count less, turns where it is closer count a little more.
//!
//! Objective: `sum(m*w_k*l) / (number of trained tokens + epsilon)`, with `d_k` the mean of `|log mu - log T|` over turn
//! `k` and `w_k = coef * min((d_1 + eps) / (d_k + eps), 1 + delta)`. The denominator counts tokens, so that the weights
//! change the size of the step and not only its split.
//! Needs: what OPD needs.
//! Leaves out: the paper's GRPO term; there are no reward rows here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::{student_turns, weighted_rows};
use super::{ForkPair, Method, MethodSections, RunFacts, Supervised};
use crate::episode::{ScoredBatch, ScoredEpisode};
use crate::error::OpdError;
use crate::objective::plan::{Denominator, LossTerms};
use crate::parameter::{number, positive};

/// SOD's turn weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sod {
    /// Guards the ratio of distances.
    pub epsilon: f64,
    /// A turn weighs at most one plus this.
    pub delta: f64,
    /// Factor on every weight.
    pub coef: f64,
}

impl Default for Sod {
    fn default() -> Self {
        Self { epsilon: 1e-6, delta: 0.2, coef: 1.0 }
    }
}

impl Sod {
    /// Refuses weights that mean nothing.
    pub fn check(&self, _facts: &RunFacts) -> Result<(), OpdError> {
        positive("sod.epsilon", self.epsilon, 1.0)?;
        number("sod.delta", self.delta, 0.0..=1e3)?;
        positive("sod.coef", self.coef, 1e3)
    }

    /// The weight of every student turn of an episode, by the turn's number.
    ///
    /// The first student turn with a row is the measure of all others, also after a replayed prefix.
    pub fn turn_weights(&self, episode: &ScoredEpisode) -> Result<Vec<(usize, f64)>, OpdError> {
        let mut first = None;
        let mut weights = Vec::new();
        for (turn, gaps) in student_turns(episode)? {
            let distance = gaps.iter().map(|gap| gap.abs()).sum::<f64>() / gaps.len() as f64;
            let entry = *first.get_or_insert(distance);
            let ratio = (entry + self.epsilon) / (distance + self.epsilon);
            weights.push((turn.turn, self.coef * ratio.min(1.0 + self.delta)));
        }
        Ok(weights)
    }
}

/// SOD.
#[derive(Debug)]
pub struct StepwiseOpd {
    sod: Sod,
    facts: RunFacts,
}

impl StepwiseOpd {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        Self { sod: sections.sod, facts }
    }
}

impl Method for StepwiseOpd {
    fn terms(&self) -> LossTerms {
        LossTerms { denominator: Denominator::Tokens, ..LossTerms::default() }
    }

    fn horizon(&self, _batch: u64) -> usize {
        self.facts.max_turns
    }

    fn refine(&self, batch: &ScoredBatch, _: &[ForkPair<'_>]) -> Result<Supervised, OpdError> {
        let rows = weighted_rows(batch, |episode| {
            let weights = self.sod.turn_weights(episode)?;
            let tokens = |turn| episode.turn(turn).map_or(0, |turn| turn.tokens.len());
            Ok(weights.into_iter().map(|(turn, w)| (turn, vec![w; tokens(turn)])).collect())
        })?;
        Ok(Supervised { rows, ..Supervised::default() })
    }
}
