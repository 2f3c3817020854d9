//! IW-OPD, importance-weighted on-policy distillation (arXiv 2606.22600): early tokens, with most of the sequence's
//! disagreement still ahead of them, count more.
//!
//! Objective: `sum(m*w_t*l) / (number of trained tokens + epsilon)`, with `a_t = |log T - log mu|`, `P_t` the sum of `a`
//! before token `t`, `S` the sum of all, and `w_t = 1 + gamma * (1 - P_t / max(S, epsilon))`. The first token weighs
//! `1 + gamma`, no token less than 1.
//! Needs: what OPD needs.
//! Leaves out: the authors' signed variant and their schedules by position, which are off by default there too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::{student_turns, weighted_rows};
use super::{ForkPair, Method, MethodSections, RunFacts, Supervised};
use crate::episode::{ScoredBatch, ScoredEpisode};
use crate::error::OpdError;
use crate::objective::plan::{Denominator, LossTerms};
use crate::parameter::{number, positive};

/// What counts as one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// All student turns of an episode, one after the other.
    #[default]
    Episode,
    /// Each turn for itself.
    Turn,
}

/// IW-OPD's token weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IwOpd {
    /// Extra weight of a sequence's first token.
    pub gamma: f64,
    /// Guards the share of disagreement.
    pub epsilon: f64,
    /// What counts as one sequence.
    pub scope: Scope,
}

impl Default for IwOpd {
    fn default() -> Self {
        Self { gamma: 0.5, epsilon: 1e-8, scope: Scope::Episode }
    }
}

impl IwOpd {
    /// Refuses weights that mean nothing.
    pub fn check(&self, _facts: &RunFacts) -> Result<(), OpdError> {
        number("iw_opd.gamma", self.gamma, 0.0..=1e3)?;
        positive("iw_opd.epsilon", self.epsilon, 1.0)
    }

    /// The weights of one sequence, given each token's `log T - log mu`.
    pub fn weights(&self, gaps: &[f64]) -> Vec<f64> {
        let whole = gaps.iter().map(|gap| gap.abs()).sum::<f64>().max(self.epsilon);
        let mut before = 0.0;
        let mut weights = Vec::with_capacity(gaps.len());
        for gap in gaps {
            weights.push(1.0 + self.gamma * (1.0 - before / whole));
            before += gap.abs();
        }
        weights
    }

    /// The token weights of every student turn of an episode, by the turn's number.
    pub fn token_weights(
        &self,
        episode: &ScoredEpisode,
    ) -> Result<Vec<(usize, Vec<f64>)>, OpdError> {
        let turns = student_turns(episode)?;
        if self.scope == Scope::Turn {
            return Ok(turns
                .into_iter()
                .map(|(turn, gaps)| (turn.turn, self.weights(&gaps)))
                .collect());
        }
        let all: Vec<f64> = turns.iter().flat_map(|(_, gaps)| gaps).copied().collect();
        let mut weights = self.weights(&all).into_iter();
        let split = turns
            .into_iter()
            .map(|(turn, gaps)| (turn.turn, weights.by_ref().take(gaps.len()).collect()));
        Ok(split.collect())
    }
}

/// IW-OPD.
#[derive(Debug)]
pub struct ImportanceWeightedOpd {
    iw_opd: IwOpd,
    facts: RunFacts,
}

impl ImportanceWeightedOpd {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        Self { iw_opd: sections.iw_opd, facts }
    }
}

impl Method for ImportanceWeightedOpd {
    fn terms(&self) -> LossTerms {
        LossTerms { denominator: Denominator::Tokens, ..LossTerms::default() }
    }

    fn horizon(&self, _batch: u64) -> usize {
        self.facts.max_turns
    }

    fn refine(&self, batch: &ScoredBatch, _: &[ForkPair<'_>]) -> Result<Supervised, OpdError> {
        let rows = weighted_rows(batch, |episode| self.iw_opd.token_weights(episode))?;
        Ok(Supervised { rows, ..Supervised::default() })
    }
}
