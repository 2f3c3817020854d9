//! FutureBridge-OPD: where the student is furthest from the teacher, the teacher's own turn is tried.
//!
//! Objective: that of TCOD-B2F, with one more row for each accepted bridge: the teacher's turn at the
//! fork, trained by the run's estimator with weight 1.
//! Needs: what TCOD-B2F needs, a teacher that can act, and environments that can be restored.
//! Leaves out: hints, internalization, token weights. Continuations are judged, never trained on. The base
//! branch executes the original action again instead of sampling a fresh response, and a branch that takes an action the
//! environment does not offer, or ends before all its turns, spoils the pair.

use super::exposure::{EpisodeSlot, Exposure};
use super::record::ForkRecord;
use super::rows::{RowKind, forked_episode, plain_rows, row};
use super::tcod::{Tcod, backward_exposure};
use super::{ForkPair, Located, Method, MethodSections, Needs, RunFacts, Supervised};
use crate::episode::{ScoredBatch, ScoredEpisode, ScoredTurn};
use crate::error::{InputError, OpdError};
use crate::locate::proposal::{Candidate, is_valid, top_kl};
use crate::validate::Validate;
use crate::validate::fork::{ForkKind, ForkResult};
use crate::validate::gate::{Completeness, Terminal, judge};
use crate::validate::value::BranchValue;

/// FutureBridge-OPD: the clock of `[tcod]`, the continuation turns of `[validate]`.
#[derive(Debug)]
pub struct FutureBridge {
    tcod: Tcod,
    validate: Validate,
    facts: RunFacts,
}

/// Mean of `log mu - log T` over all tokens of a turn: FutureBridge's disagreement.
pub fn turn_disagreement(turn: &ScoredTurn) -> Result<f64, InputError> {
    let gaps = turn.gaps()?;
    if gaps.is_empty() {
        return Err(InputError::Empty { what: "the turn" });
    }
    Ok(-gaps.iter().sum::<f64>() / gaps.len() as f64)
}

impl FutureBridge {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        let validate = Validate {
            temperature: 1.0,
            evaluator: BranchValue::TokenRatio,
            terminal: Terminal::Exclude,
            completeness: Completeness::Full,
            continuation_turns: sections.validate.continuation_turns,
            ..Validate::default()
        };
        Self { tcod: sections.tcod, validate, facts }
    }

    /// The most disagreeing turn but the last; `None` without reference actions or a second turn.
    fn candidate(episode: &ScoredEpisode) -> Result<Option<Candidate>, OpdError> {
        let Some((_, earlier)) = episode.turns.split_last() else { return Ok(None) };
        if episode.reference_actions.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let mut candidates = Vec::new();
        for turn in earlier.iter().filter(|turn| is_valid(turn)) {
            let at = OpdError::at(episode.episode, turn.turn);
            let divergence = turn_disagreement(turn).map_err(at)?;
            candidates.push(Candidate { turn: turn.turn, divergence });
        }
        Ok(top_kl(&candidates))
    }
}

impl Method for FutureBridge {
    fn needs(&self) -> Needs {
        Needs { reference_actions: true, teacher_acts: true, forks: true, ..Needs::LEAST }
    }

    fn validation(&self) -> Option<&Validate> {
        Some(&self.validate)
    }

    fn horizon(&self, _batch: u64) -> usize {
        self.facts.max_turns
    }

    fn exposure(&self, slot: &EpisodeSlot) -> Exposure {
        backward_exposure(slot, &self.tcod, self.facts.max_turns)
    }

    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        let mut forks = Vec::new();
        for episode in &batch.episodes {
            if let Some(chosen) = Self::candidate(episode)? {
                forks.push(self.validate.request(episode.episode, chosen, ForkKind::Bridge));
            }
        }
        Ok(Located { forks, horizon: self.facts.max_turns, tick: None })
    }

    fn refine(&self, batch: &ScoredBatch, forks: &[ForkPair<'_>]) -> Result<Supervised, OpdError> {
        let mut rows = plain_rows(batch);
        let mut records = Vec::with_capacity(forks.len());
        for (request, fork) in forks {
            let verdict = judge(fork, &self.validate)?;
            if let (true, ForkResult::Pair(pair)) = (verdict.accepted, &fork.result) {
                let episode = forked_episode(batch, fork)?;
                let bridge = &pair.guided.response;
                rows.push(row(batch.number, episode, fork.turn, RowKind::Bridge, bridge, true));
            }
            records.push(ForkRecord::new(request, fork, verdict, None));
        }
        Ok(Supervised { rows, forks: records, ..Supervised::default() })
    }
}
