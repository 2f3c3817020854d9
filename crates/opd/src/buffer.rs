//! The buffer's rules: which rows are fresh enough, in which order they wait, and which go next.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::random::{Purpose, StreamKey};

/// How many optimizer steps a row's snapshot may lie behind the step that trains on it.
pub const MAX_STALENESS: u64 = 2;

/// Rows per optimizer step in the paper.
pub const TRAIN_BATCH_ROWS: usize = 64;

/// What happens to rows that wait while the student learns from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Staleness {
    /// Rows older than `train.max_staleness` are dropped (the paper).
    #[default]
    Paper,
    /// Every explored row is trained on once, however many optimizer steps a batch takes.
    Consume,
}

impl Staleness {
    /// How many optimizer steps a row may wait, given `train.max_staleness`.
    pub fn limit(self, max_staleness: u64) -> u64 {
        match self {
            Self::Paper => max_staleness,
            Self::Consume => u64::MAX,
        }
    }
}

/// Whether a row of snapshot `version` may be trained on at optimizer step `step` (from 1): `version >= step - staleness`.
pub fn is_fresh(version: u64, step: u64, max_staleness: u64) -> bool {
    version.saturating_add(max_staleness) >= step
}

/// Puts one explorer batch's rows into the run's own random order before they are queued.
///
/// In order of completion the front of the queue would hold short, mostly solved episodes.
pub fn shuffle_rows<T>(rows: &mut [T], seed: u64, batch: u64) {
    StreamKey::new(seed, batch, 0, Purpose::RowOrder, 0).open().shuffle(rows);
}

/// What to do with the queue before an optimizer step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pop {
    /// Positions of the rows to train on, oldest first; empty when there are too few.
    pub train: Vec<usize>,
    /// Positions of rows that are too old and go away.
    pub stale: Vec<usize>,
}

/// Plans the next train batch: the first `rows` fresh rows of the queue, first in, first out.
///
/// `versions` are the queued rows' snapshot versions, oldest row first. Stale rows met on the way are
/// dropped whether or not there are enough fresh ones.
pub fn plan_train_batch(versions: &[u64], step: u64, rows: usize, max_staleness: u64) -> Pop {
    let (mut train, mut stale) = (Vec::with_capacity(rows), Vec::new());
    for (position, &version) in versions.iter().enumerate() {
        if train.len() == rows {
            break;
        }
        if is_fresh(version, step, max_staleness) {
            train.push(position);
        } else {
            stale.push(position);
        }
    }
    if train.len() < rows {
        train.clear();
    }
    Pop { train, stale }
}
