//! What several methods do alike.

use super::record::{BatchRecord, terminations};
use super::rows::{TrainRow, dropped_turns, plain_rows, token_counts};
use super::{Located, Needs, Refined, TeacherDetail};
use crate::episode::{ScoredBatch, ScoredEpisode};
use crate::error::OpdError;
use crate::validate::fork::{FinishedFork, ForkRequest};

/// A student and a teacher that scores it: the least any method needs.
pub(super) const NEEDS: Needs = Needs {
    teacher_detail: TeacherDetail::SampledLogProbs,
    reference_actions: false,
    teacher_acts: false,
    hints: false,
    forks: false,
    snapshot_targets: false,
};

/// Every turn with every token alike, for methods that run no forks.
pub(super) fn refine_without_forks(
    batch: &ScoredBatch,
    located: &Located,
    forks: &[FinishedFork],
) -> Result<Refined, OpdError> {
    paired(located, forks)?;
    let rows = plain_rows(batch);
    let record = record(batch, located, &rows);
    Ok(Refined { rows, record })
}

/// The forks asked for, each with its outcome. A missing, repeated or unknown fork is an error.
pub(super) fn paired<'a>(
    located: &'a Located,
    forks: &'a [FinishedFork],
) -> Result<Vec<(&'a ForkRequest, &'a FinishedFork)>, OpdError> {
    let refuse = |episode, turn, message| Err(OpdError::Fork { episode, turn, message });
    for fork in forks {
        let asked =
            |request: &ForkRequest| (request.episode, request.turn) == (fork.episode, fork.turn);
        if !located.forks.iter().any(asked) {
            return refuse(fork.episode, fork.turn, "it was not asked for");
        }
    }
    let mut pairs = Vec::with_capacity(located.forks.len());
    for request in &located.forks {
        let mut outcomes =
            forks.iter().filter(|f| (f.episode, f.turn) == (request.episode, request.turn));
        let Some(outcome) = outcomes.next() else {
            return refuse(request.episode, request.turn, "its outcome is missing");
        };
        if outcomes.next().is_some() {
            return refuse(request.episode, request.turn, "it has two outcomes");
        }
        pairs.push((request, outcome));
    }
    Ok(pairs)
}

/// The record of a batch without forks; methods add what is theirs.
pub(super) fn record(batch: &ScoredBatch, located: &Located, rows: &[TrainRow]) -> BatchRecord {
    BatchRecord {
        batch: batch.number,
        divergence: batch.divergence,
        horizon: located.horizon,
        tick: located.tick,
        teacher_share: None,
        mean_prefix: None,
        terminations: terminations(batch),
        successes: batch.episodes.iter().filter(|episode| episode.success).count() as u64,
        dropped_turns: dropped_turns(batch),
        forks: Vec::new(),
        tokens: token_counts(rows),
    }
}

/// Mean number of replayed turns; `None` without episodes.
pub(super) fn mean_prefix(batch: &ScoredBatch) -> Option<f64> {
    let sum: usize = batch.episodes.iter().map(|episode| episode.prefix).sum();
    (!batch.episodes.is_empty()).then(|| sum as f64 / batch.episodes.len() as f64)
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

/// Refuses a count of zero.
pub(super) fn at_least_one(key: &'static str, value: usize) -> Result<(), OpdError> {
    if value == 0 {
        let expected = "must be at least 1";
        return Err(OpdError::Parameter { key, value: "0".to_owned(), expected });
    }
    Ok(())
}
