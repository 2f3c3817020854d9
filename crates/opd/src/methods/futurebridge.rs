//! FutureBridge-OPD: where the student is furthest from the teacher, the teacher's own turn is tried.
//!
//! Objective: that of TCOD-B2F, with one more row for each accepted bridge: the teacher's turn at the
//! fork, trained by the run's estimator with weight 1.
//! Needs: what TCOD-B2F needs, a teacher that can act, and environments that can be restored.
//! Leaves out: hints, internalisation, token weights. Continuations are judged, never trained on. The base
//! branch executes the original action again instead of sampling a fresh response, and a branch that ends
//! before all its turns spoils the pair.

use serde::{Deserialize, Serialize};

use super::exposure::{Exposure, Slot};
use super::record::ForkRecord;
use super::rows::{RowKind, plain_rows, row};
use super::state::{BatchCounter, MethodState};
use super::tcod_b2f::backward_exposure;
use super::{
    FinishedFork, ForkRequest, Located, Method, MethodKind, Needs, Refined, Setting, common,
};
use crate::episode::{ScoredBatch, ScoredEpisode, ScoredTurn};
use crate::error::{InputError, OpdError, measured};
use crate::locate::proposal::{Candidate, is_valid, top_kl};
use crate::objective::plan::Terms;
use crate::validate::evaluator::Evaluator;
use crate::validate::fork::{ForkKind, ForkResult};
use crate::validate::gate::{Completeness, Rules, Terminal, judge};

/// Knobs of FutureBridge-OPD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FutureBridgeParams {
    /// Explorer batches per turn taken off the prefix.
    pub eta: u32,
    /// Continuation turns `H`.
    pub continuation_turns: usize,
}

impl Default for FutureBridgeParams {
    fn default() -> Self {
        Self { eta: 5, continuation_turns: 3 }
    }
}

/// FutureBridge-OPD.
#[derive(Debug)]
pub struct FutureBridge {
    params: FutureBridgeParams,
    setting: Setting,
    counter: BatchCounter,
}

/// Mean of `log mu - log T` over all tokens of a turn: FutureBridge's disagreement.
pub fn turn_disagreement(turn: &ScoredTurn) -> Result<f64, InputError> {
    let mut sum = 0.0;
    for (position, token) in turn.tokens.iter().enumerate() {
        sum += measured(token.student_logprob, "student log-probability", position)?
            - measured(token.teacher_logprob, "teacher log-probability", position)?;
    }
    if turn.tokens.is_empty() {
        return Err(InputError::Empty { what: "the turn" });
    }
    Ok(sum / turn.tokens.len() as f64)
}

impl FutureBridge {
    /// FutureBridge-OPD for a run.
    pub fn new(params: FutureBridgeParams, setting: Setting) -> Result<Self, OpdError> {
        common::at_least_one("eta", params.eta as usize)?;
        common::at_least_one("continuation_turns", params.continuation_turns)?;
        Ok(Self { params, setting, counter: BatchCounter::default() })
    }

    fn rules(&self) -> Rules {
        Rules {
            evaluator: Evaluator::TokenRatio,
            terminal: Terminal::Exclude,
            completeness: Completeness::Full,
            continuation_turns: self.params.continuation_turns,
        }
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
    fn kind(&self) -> MethodKind {
        MethodKind::FutureBridge
    }

    fn needs(&self) -> Needs {
        Needs { reference_actions: true, teacher_acts: true, forks: true, ..common::NEEDS }
    }

    fn terms(&self) -> Terms {
        Terms::default()
    }

    fn exposure(&self, slot: &Slot) -> Exposure {
        backward_exposure(slot, self.params.eta, self.setting.max_turns)
    }

    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        self.counter.expect(batch)?;
        let mut forks = Vec::new();
        for episode in &batch.episodes {
            if let Some(chosen) = Self::candidate(episode)? {
                forks.push(ForkRequest {
                    episode: episode.episode,
                    turn: chosen.turn,
                    kind: ForkKind::Bridge,
                    continuation_turns: self.params.continuation_turns,
                    score_temperature: 1.0,
                    divergence: chosen.divergence,
                });
            }
        }
        self.counter.advance();
        Ok(Located { forks, horizon: self.setting.max_turns, tick: None })
    }

    fn refine(
        &self,
        batch: &ScoredBatch,
        located: &Located,
        forks: &[FinishedFork],
    ) -> Result<Refined, OpdError> {
        let mut rows = plain_rows(batch);
        let mut records = Vec::with_capacity(forks.len());
        for (request, fork) in common::paired(located, forks)? {
            let verdict = judge(fork, &self.rules())?;
            if let (true, ForkResult::Pair(pair)) = (verdict.accepted, &fork.result) {
                let episode = common::forked_episode(batch, fork)?;
                let bridge = &pair.guided.response;
                rows.push(row(batch.number, episode, fork.turn, RowKind::Bridge, bridge, true));
            }
            records.push(ForkRecord::new(request, fork, verdict, None));
        }
        let mut record = common::record(batch, located, &rows);
        record.mean_prefix = common::mean_prefix(batch);
        record.forks = records;
        Ok(Refined { rows, record })
    }

    fn state(&self) -> MethodState {
        self.counter.state(self.kind(), None)
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), OpdError> {
        self.counter.restore(MethodKind::FutureBridge, state)
    }
}
