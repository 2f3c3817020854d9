//! LENS-OPD: teach at the right depth, the right decision, the right token.
//!
//! Objective: `sum(m*r*l) / (sum(m*r) + epsilon) + lambda_GI * w * sum over internalization rows of mean KL(q_H || p_0)`.
//! `r` differs from 1 only on the turn an accepted fork validated; internalization rows exist only for accepted forks;
//! `w` is `refine.internalize_aggregation`.
//! Needs: a teacher that names its favorite tokens and writes hints, environments that can be
//! restored, and a snapshot whose distributions under the hint can be kept as targets.
//! Leaves out: teacher actions, reference actions, rewards. Continuations are judged, never trained on.
//!
//! The ablations of the paper's table 3 are one key each: `locate.clock = "fixed-f2b"`,
//! `locate.proposal = "last-turn"`, `refine.internalize = false`, `refine.focus = false`,
//! `validate.hint_prompt = "reconsideration"`.

use super::record::ForkRecord;
use super::rows::{RowKind, TrainRow, forked_episode, plain_rows, row};
use super::sod::Sod;
use super::{
    ForkPair, Located, Method, MethodSections, Needs, RunFacts, Supervised, TeacherDetail,
};
use crate::episode::{ScoredBatch, ScoredEpisode};
use crate::error::OpdError;
use crate::locate::fixed::forward_horizon;
use crate::locate::horizon::{HorizonClock, HorizonState};
use crate::locate::proposal::{ProposalKey, candidates, propose};
use crate::locate::support::frontier_competences;
use crate::locate::{Clock, Locate};
use crate::objective::plan::{Denominator, LossTerms};
use crate::refine::focus::{FocusMass, focus};
use crate::refine::{Refine, UnvalidatedTurns};
use crate::validate::Validate;
use crate::validate::fork::{FinishedFork, ForkRequest, ForkResult};
use crate::validate::gate::judge_against;
use crate::validate::value::Stages;

/// LENS-OPD.
#[derive(Debug)]
pub struct Lens {
    locate: Locate,
    validate: Validate,
    refine: Refine,
    sod: Sod,
    facts: RunFacts,
    clock: HorizonClock,
}

impl Lens {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        let MethodSections { locate, validate, refine, sod, .. } = *sections;
        let clock = HorizonClock::new(locate, &facts);
        Self { locate, validate, refine, sod, facts, clock }
    }

    fn forks(&self, batch: &ScoredBatch) -> Result<Vec<ForkRequest>, OpdError> {
        let mut forks = Vec::new();
        for episode in &batch.episodes {
            let candidates = candidates(episode, batch.divergence)?;
            let key = ProposalKey {
                seed: self.facts.seed,
                batch: batch.number,
                episode: episode.episode,
            };
            let count = self.locate.proposals_per_episode;
            for chosen in propose(self.locate.proposal, &candidates, count, key) {
                let kind = self.validate.hint();
                forks.push(self.validate.request(episode.episode, chosen, kind));
            }
        }
        Ok(forks)
    }

    /// What an accepted fork adds: weights on the original turn, and the hinted response as a row.
    fn absorb(
        &self,
        batch: &ScoredBatch,
        fork: &FinishedFork,
        rows: &mut Vec<TrainRow>,
    ) -> Result<Option<FocusMass>, OpdError> {
        let missing = || OpdError::Fork {
            episode: fork.episode,
            turn: fork.turn,
            message: "the batch has no such turn",
        };
        let episode = forked_episode(batch, fork)?;
        let original = episode.turn(fork.turn).ok_or_else(missing)?;
        let wanted = (fork.episode, fork.turn, RowKind::Opd);
        let target = rows
            .iter_mut()
            .find(|row| (row.episode, row.turn, row.kind) == wanted)
            .ok_or_else(missing)?;
        target.validated = true;
        let mut mass = None;
        if self.refine.focus {
            let focused = focus(original, &self.refine, self.locate.floor)
                .map_err(OpdError::at(fork.episode, fork.turn))?;
            target.weights = focused.weights.iter().map(|&r| r as f32).collect();
            mass = Some(focused.mass);
        }
        if let (true, ForkResult::Pair(pair)) = (self.refine.internalize, &fork.result) {
            let response = &pair.guided.response;
            if !(self.refine.skip_unchanged && response.acts_like(original)) {
                let kind = RowKind::Internalize;
                rows.push(row(batch.number, episode, fork.turn, kind, response, true));
            }
        }
        Ok(mass)
    }
}

/// Multiplies the weights of an episode's turns that no accepted fork validated.
fn scale_turns(rows: &mut [TrainRow], episode: &ScoredEpisode, factors: &[(usize, f64)]) {
    let unvalidated = rows
        .iter_mut()
        .filter(|row| row.episode == episode.episode && row.kind == RowKind::Opd && !row.validated);
    for row in unvalidated {
        let factor = factors.iter().find(|(turn, _)| *turn == row.turn).map_or(1.0, |one| one.1);
        for weight in &mut row.weights {
            *weight = (f64::from(*weight) * factor) as f32;
        }
    }
}

impl Method for Lens {
    fn needs(&self) -> Needs {
        Needs {
            teacher_detail: TeacherDetail::TopTokens,
            hints: true,
            forks: true,
            snapshot_targets: self.refine.internalize,
            ..Needs::LEAST
        }
    }

    fn terms(&self) -> LossTerms {
        let denominator = match self.refine.unvalidated {
            UnvalidatedTurns::Equal => Denominator::Weights,
            UnvalidatedTurns::Stepwise => Denominator::Tokens,
        };
        LossTerms {
            denominator,
            internalize_weight: self.refine.internalize_weight,
            internalize_aggregation: self.refine.internalize_aggregation,
            ..LossTerms::default()
        }
    }

    fn validation(&self) -> Option<&Validate> {
        Some(&self.validate)
    }

    fn horizon(&self, batch: u64) -> usize {
        let deepest = self.locate.deepest(&self.facts);
        match self.locate.clock {
            Clock::GapAdaptive => self.clock.depth(),
            Clock::FixedF2b => forward_horizon(batch, 1, self.locate.residence, deepest),
            Clock::Full => deepest,
        }
    }

    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        let horizon = self.horizon(batch.number);
        let forks = self.forks(batch)?;
        let tick = match self.locate.clock {
            Clock::GapAdaptive => {
                let competences = frontier_competences(batch, horizon, self.locate.floor)?;
                Some(self.clock.tick(&competences)?)
            }
            Clock::FixedF2b | Clock::Full => None,
        };
        Ok(Located { forks, horizon, tick })
    }

    fn refine(&self, batch: &ScoredBatch, forks: &[ForkPair<'_>]) -> Result<Supervised, OpdError> {
        let (stages, mut rows) = (Stages::of(batch), plain_rows(batch));
        let mut records = Vec::with_capacity(forks.len());
        for (request, fork) in forks {
            let verdict = judge_against(fork, &self.validate, &stages)?;
            let focus = if verdict.accepted { self.absorb(batch, fork, &mut rows)? } else { None };
            records.push(ForkRecord::new(request, fork, verdict, focus));
        }
        if self.refine.unvalidated == UnvalidatedTurns::Stepwise {
            for episode in &batch.episodes {
                scale_turns(&mut rows, episode, &self.sod.turn_weights(episode)?);
            }
        }
        Ok(Supervised { rows, forks: records, ..Supervised::default() })
    }

    fn state(&self) -> serde_json::Value {
        match self.locate.clock {
            Clock::GapAdaptive => serde_json::to_value(self.clock.state()).unwrap_or_default(),
            Clock::FixedF2b | Clock::Full => serde_json::Value::Null,
        }
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), OpdError> {
        if self.locate.clock != Clock::GapAdaptive {
            return Ok(());
        }
        let horizon: HorizonState = serde::Deserialize::deserialize(state).map_err(|error| {
            OpdError::State { message: format!("it holds no gap-adaptive clock: {error}") }
        })?;
        self.clock.restore(&horizon)
    }
}
