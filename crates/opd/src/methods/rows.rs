//! Rows to train on. A row names the tokens it is about; the loop that made them still holds them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::TokenCounts;
use crate::episode::{Actor, ScoredBatch, ScoredEpisode, ScoredTurn, TurnDrop};
use crate::error::OpdError;
use crate::validate::fork::FinishedFork;

/// What a row's tokens are and which loss they get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// The student's own turn; the run's token estimator.
    Opd,
    /// The hinted response after the hint-free context; `KL(q_H || p_0)`.
    #[serde(alias = "gi")]
    Internalize,
    /// A turn the teacher played; negative log-likelihood.
    TeacherNll,
    /// The teacher's bridge at a validated turn; the run's token estimator, with the student's
    /// log-probabilities of the teacher's tokens as the rollout's.
    Bridge,
}

/// One row: a prompt, a response and a weight for each of the response's tokens.
///
/// (batch, episode, turn, kind) is unique. For [`RowKind::Opd`] and [`RowKind::TeacherNll`] prompt and
/// response are that turn's; for [`RowKind::Internalize`] and [`RowKind::Bridge`] the prompt is that turn's
/// (hint-free) and the response is the guided branch's at the fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainRow {
    /// The explorer batch.
    pub batch: u64,
    /// The episode's key inside it.
    pub episode: u64,
    /// The turn, from 0 at reset.
    pub turn: usize,
    /// What the tokens are.
    pub kind: RowKind,
    /// Version of the snapshot that rolled out the episode.
    pub version: u64,
    /// Whether the row owes its weights, or its existence, to an accepted fork.
    pub validated: bool,
    /// `m*r`: one weight per response token.
    pub weights: Vec<f32>,
    /// The explorer batch the row came from.
    #[serde(default)]
    pub shape: BatchShape,
}

/// How many rows an explorer batch gave, which says how many trajectories a train batch of its rows stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BatchShape {
    /// Rows of all kinds.
    pub rows: usize,
    /// Episodes.
    pub trajectories: usize,
    /// Internalization rows.
    pub internalized: usize,
}

/// The ordinary rows of a batch: every turn that was played and not dropped, all tokens with weight 1.
pub fn plain_rows(batch: &ScoredBatch) -> Vec<TrainRow> {
    let mut rows = Vec::new();
    for episode in &batch.episodes {
        for turn in episode.turns.iter().filter(|turn| turn.drop_reason().is_none()) {
            let kind = match turn.actor {
                Actor::Student => RowKind::Opd,
                Actor::Teacher => RowKind::TeacherNll,
            };
            rows.push(row(batch.number, episode, turn.turn, kind, turn, false));
        }
    }
    rows
}

/// A row of kind `kind` at `turn`, all tokens of `response` with weight 1.
pub(super) fn row(
    batch: u64,
    episode: &ScoredEpisode,
    turn: usize,
    kind: RowKind,
    response: &ScoredTurn,
    validated: bool,
) -> TrainRow {
    TrainRow {
        batch,
        episode: episode.episode,
        turn,
        kind,
        version: episode.version,
        validated,
        weights: vec![1.0; response.tokens.len()],
        shape: BatchShape::default(),
    }
}

/// The episode a fork belongs to.
pub(super) fn forked_episode<'a>(
    batch: &'a ScoredBatch,
    fork: &FinishedFork,
) -> Result<&'a ScoredEpisode, OpdError> {
    batch.episode(fork.episode).ok_or(OpdError::Fork {
        episode: fork.episode,
        turn: fork.turn,
        message: "the batch has no such episode",
    })
}

/// How many turns have no row, by reason.
pub fn dropped_turns(batch: &ScoredBatch) -> BTreeMap<TurnDrop, u64> {
    let mut dropped = BTreeMap::new();
    let turns = batch.episodes.iter().flat_map(|episode| &episode.turns);
    for reason in turns.filter_map(ScoredTurn::drop_reason) {
        *dropped.entry(reason).or_insert(0) += 1;
    }
    dropped
}

/// Tokens by kind of row.
pub fn token_counts(rows: &[TrainRow]) -> TokenCounts {
    let of =
        |kind| rows.iter().filter(|row| row.kind == kind).map(|row| row.weights.len() as u64).sum();
    TokenCounts {
        opd: of(RowKind::Opd),
        internalize: of(RowKind::Internalize),
        teacher_nll: of(RowKind::TeacherNll),
        bridge: of(RowKind::Bridge),
    }
}

/// The turns of an episode with a row of the student's own tokens, in order, with each token's `log T - log mu`.
pub fn student_turns(episode: &ScoredEpisode) -> Result<Vec<(&ScoredTurn, Vec<f64>)>, OpdError> {
    let turns = episode
        .turns
        .iter()
        .filter(|turn| turn.actor == Actor::Student && turn.drop_reason().is_none());
    turns
        .map(|turn| {
            let gaps = turn.gaps().map_err(OpdError::at(episode.episode, turn.turn))?;
            Ok((turn, gaps))
        })
        .collect()
}

/// Plain rows whose student turns get the weights that `weights` gives for an episode, by the turn's number.
pub fn weighted_rows(
    batch: &ScoredBatch,
    weights: impl Fn(&ScoredEpisode) -> Result<Vec<(usize, Vec<f64>)>, OpdError>,
) -> Result<Vec<TrainRow>, OpdError> {
    let mut rows = plain_rows(batch);
    for episode in &batch.episodes {
        for (turn, weights) in weights(episode)? {
            let wanted = (episode.episode, turn, RowKind::Opd);
            if let Some(row) =
                rows.iter_mut().find(|row| (row.episode, row.turn, row.kind) == wanted)
            {
                row.weights = weights.into_iter().map(|weight| weight as f32).collect();
            }
        }
    }
    Ok(rows)
}
