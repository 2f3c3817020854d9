//! What a method saw and decided in one explorer batch: the raw material of the paper's figures 3 to 8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rows::{dropped_turns, token_counts};
use super::{Located, Needs, Supervised};
use crate::episode::{DivergenceSource, EpisodeEnd, ScoredBatch, TurnDrop};
use crate::locate::horizon::Tick;
use crate::refine::focus::FocusMass;
use crate::validate::fork::{FinishedFork, ForkRequest, ForkResult};
use crate::validate::gate::Verdict;

/// Tokens by kind of row: of a batch as it was made, or of an optimizer step as it was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenCounts {
    /// The student's own turns.
    pub opd: u64,
    /// Hinted responses.
    #[serde(alias = "gi")]
    pub internalize: u64,
    /// The teacher's turns.
    pub teacher_nll: u64,
    /// Bridges.
    pub bridge: u64,
}

impl TokenCounts {
    /// Share of the tokens that guidance wrote (figure 4c, over trained tokens); `None` without tokens.
    pub fn guided_share(&self) -> Option<f64> {
        let guided = self.internalize + self.teacher_nll + self.bridge;
        let all = guided + self.opd;
        (all > 0).then(|| guided as f64 / all as f64)
    }
}

/// One fork: what it asked, what came of it, what it changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkRecord {
    /// What was asked for, the divergence `D_t` included.
    pub request: ForkRequest,
    /// Values, gain and gate.
    pub verdict: Verdict,
    /// The reason code of a closed gate.
    pub reason: Option<String>,
    /// Mean `KL(q_H || p_0)` of the hinted response under the snapshot, where it was measured.
    pub internalization_gap: Option<f64>,
    /// Where the weight of the focused turn went; only of accepted forks.
    pub focus: Option<FocusMass>,
}

impl ForkRecord {
    pub(super) fn new(
        request: &ForkRequest,
        fork: &FinishedFork,
        verdict: Verdict,
        focus: Option<FocusMass>,
    ) -> Self {
        let internalization_gap = match &fork.result {
            ForkResult::Pair(pair) => pair.internalization_gap,
            ForkResult::Dropped(_) => None,
        };
        let reason = verdict.reason.map(|reason| reason.to_string());
        Self { request: *request, verdict, reason, internalization_gap, focus }
    }
}

/// Everything a method reports about one explorer batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// The explorer batch, from 1.
    pub batch: u64,
    /// How divergences were measured.
    pub divergence: DivergenceSource,
    /// The horizon the batch was rolled out with.
    pub horizon: usize,
    /// The gap-adaptive clock's tick: competence, pace, next horizon. `None` with a fixed clock.
    pub tick: Option<Tick>,
    /// Mean number of replayed turns (B2F curricula).
    pub mean_prefix: Option<f64>,
    /// Episodes by the way they ended (figure 3b).
    pub terminations: BTreeMap<EpisodeEnd, u64>,
    /// Episodes that solved their task.
    pub successes: u64,
    /// Turns without a row, by reason.
    pub dropped_turns: BTreeMap<TurnDrop, u64>,
    /// Every fork (figures 4a, 4b, 4d).
    pub forks: Vec<ForkRecord>,
    /// Tokens of the rows made; what was trained, after staleness, is in the optimizer steps' records.
    pub tokens: TokenCounts,
    /// What else the method logs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
}

impl BatchRecord {
    pub(super) fn new(
        batch: &ScoredBatch,
        located: &Located,
        supervised: &Supervised,
        needs: Needs,
    ) -> Self {
        let replayed: usize = batch.episodes.iter().map(|episode| episode.prefix).sum();
        let replays = needs.reference_actions && !batch.episodes.is_empty();
        let measures = supervised.measures.iter();
        Self {
            batch: batch.number,
            divergence: batch.divergence,
            horizon: located.horizon,
            tick: located.tick,
            mean_prefix: replays.then(|| replayed as f64 / batch.episodes.len() as f64),
            terminations: terminations(batch),
            successes: batch.episodes.iter().filter(|episode| episode.success).count() as u64,
            dropped_turns: dropped_turns(batch),
            forks: supervised.forks.clone(),
            tokens: token_counts(&supervised.rows),
            measures: measures.map(|(&name, &value)| (name.to_owned(), value)).collect(),
        }
    }

    /// Forks whose branches were both valued.
    pub fn complete_pairs(&self) -> usize {
        self.forks.iter().filter(|fork| fork.verdict.is_complete()).count()
    }

    /// Forks that opened the gate.
    pub fn accepted(&self) -> usize {
        self.forks.iter().filter(|fork| fork.verdict.accepted).count()
    }

    /// How many forks each reason code closed.
    pub fn reasons(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for reason in self.forks.iter().filter_map(|fork| fork.reason.as_deref()) {
            *counts.entry(reason).or_insert(0) += 1;
        }
        counts
    }
}

/// How many episodes ended in which way.
fn terminations(batch: &ScoredBatch) -> BTreeMap<EpisodeEnd, u64> {
    let mut counts = BTreeMap::new();
    for episode in &batch.episodes {
        *counts.entry(episode.end).or_insert(0) += 1;
    }
    counts
}
