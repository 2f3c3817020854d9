//! The buffer: rows with what they need to be learned, in the order they wait.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use lens_engine::{LearnRow, Supervision};
use lens_opd::buffer::plan_train_batch;
use lens_opd::error::OpdError;
use lens_opd::methods::rows::TrainRow;
use lens_opd::objective::LossParams;
use lens_opd::objective::plan::{LossPlan, PlanCounts, Terms};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::files::write_durably;

/// A row and what it needs to be learned.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedRow {
    /// What the method made.
    pub row: TrainRow,
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The response's tokens.
    pub response: Vec<u32>,
    /// What the tokens are pulled towards.
    pub supervision: Supervision,
}

/// Rows waiting to be learned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue {
    rows: VecDeque<QueuedRow>,
    dropped_stale: u64,
}

/// A train batch ready for the learner.
#[derive(Debug)]
pub struct TrainBatch {
    /// The rows with their coefficients.
    pub rows: Vec<LearnRow>,
    /// Sums for the books.
    pub counts: PlanCounts,
    /// How stale the oldest row is: optimiser steps behind the step that trains on it.
    pub oldest_version: u64,
}

impl Queue {
    /// Adds rows at the end.
    pub fn push(&mut self, rows: Vec<QueuedRow>) {
        self.rows.extend(rows);
    }

    /// Rows waiting.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows dropped so far because they were too old.
    pub fn dropped_stale(&self) -> u64 {
        self.dropped_stale
    }

    /// The oldest snapshot version a waiting row still needs.
    pub fn versions_needed(&self) -> Vec<u64> {
        let mut versions: Vec<u64> = self
            .rows
            .iter()
            .filter_map(|row| match row.supervision {
                Supervision::Snapshot { version, .. } => Some(version),
                _ => None,
            })
            .collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// Takes the next train batch for optimiser step `step` (from 1), dropping rows that are too old. `None` when
    /// there are not enough rows.
    pub fn pop(
        &mut self,
        step: u64,
        rows: usize,
        max_staleness: u64,
        loss: &LossParams,
        terms: &Terms,
    ) -> Result<Option<TrainBatch>, OpdError> {
        let versions: Vec<u64> = self.rows.iter().map(|row| row.row.version).collect();
        let pop = plan_train_batch(&versions, step, rows, max_staleness);
        self.dropped_stale += pop.stale.len() as u64;
        let (mut taken, mut kept) = (Vec::with_capacity(pop.train.len()), VecDeque::new());
        for (place, row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            if pop.train.binary_search(&place).is_ok() {
                taken.push(row);
            } else if pop.stale.binary_search(&place).is_err() {
                kept.push_back(row);
            }
        }
        self.rows = kept;
        if taken.is_empty() {
            return Ok(None);
        }
        let plain: Vec<TrainRow> = taken.iter().map(|row| row.row.clone()).collect();
        let plan = LossPlan::new(&plain, loss, terms)?;
        let oldest_version = plain.iter().map(|row| row.version).min().unwrap_or(0);
        let rows = taken
            .into_iter()
            .enumerate()
            .map(|(place, row)| LearnRow {
                prompt: row.prompt,
                response: row.response,
                coefficients: plan
                    .coefficients(place)
                    .unwrap_or_default()
                    .iter()
                    .map(|&coefficient| coefficient as f32)
                    .collect(),
                supervision: row.supervision,
            })
            .collect();
        Ok(Some(TrainBatch { rows, counts: plan.counts(), oldest_version }))
    }

    /// Writes the queue into a checkpoint. The teacher's hidden states are not written: the teacher is frozen and gives
    /// the same ones again. A snapshot's are, because that snapshot is gone.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), TrainError> {
        let mut targets: Vec<u8> = Vec::new();
        let rows: Vec<SavedRow> = self
            .rows
            .iter()
            .map(|row| {
                let supervision = match &row.supervision {
                    Supervision::Teacher { teacher_logprobs, rollout_logprobs, .. } => {
                        SavedSupervision::Teacher {
                            teacher_logprobs: teacher_logprobs.clone(),
                            rollout_logprobs: rollout_logprobs.clone(),
                        }
                    }
                    Supervision::Snapshot { hidden, version } => {
                        let start = targets.len();
                        targets.extend(hidden.iter().flat_map(|value| value.to_le_bytes()));
                        SavedSupervision::Snapshot {
                            start,
                            values: hidden.len(),
                            version: *version,
                        }
                    }
                    Supervision::Tokens => SavedSupervision::Tokens,
                };
                SavedRow {
                    row: row.row.clone(),
                    prompt: row.prompt.clone(),
                    response: row.response.clone(),
                    supervision,
                }
            })
            .collect();
        let saved = SavedQueue { dropped_stale: self.dropped_stale, rows };
        let path = folder.join("queue.json");
        let json = serde_json::to_vec(&saved).map_err(|error| TrainError::Checkpoint {
            path: path.clone(),
            message: error.to_string(),
        })?;
        write_durably(&path, &json)?;
        write_durably(&folder.join("queue-targets.f32"), &targets)
    }

    /// Reads what [`Queue::save`] wrote.
    pub(crate) fn load(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join("queue.json");
        let broken = |message: String| TrainError::Checkpoint { path: path.clone(), message };
        let json = std::fs::read(&path).map_err(TrainError::file("read", &path))?;
        let saved: SavedQueue =
            serde_json::from_slice(&json).map_err(|error| broken(error.to_string()))?;
        let targets_path = folder.join("queue-targets.f32");
        let targets =
            std::fs::read(&targets_path).map_err(TrainError::file("read", &targets_path))?;
        let mut rows = VecDeque::with_capacity(saved.rows.len());
        for row in saved.rows {
            let supervision = match row.supervision {
                SavedSupervision::Teacher { teacher_logprobs, rollout_logprobs } => {
                    Supervision::Teacher { hidden: None, teacher_logprobs, rollout_logprobs }
                }
                SavedSupervision::Snapshot { start, values, version } => {
                    let bytes = start
                        .checked_add(values * 4)
                        .and_then(|end| targets.get(start..end))
                        .ok_or_else(|| {
                            broken("a target lies outside queue-targets.f32".to_owned())
                        })?;
                    let hidden = bytes
                        .chunks_exact(4)
                        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                        .collect();
                    Supervision::Snapshot { hidden: Arc::new(hidden), version }
                }
                SavedSupervision::Tokens => Supervision::Tokens,
            };
            rows.push_back(QueuedRow {
                row: row.row,
                prompt: row.prompt,
                response: row.response,
                supervision,
            });
        }
        Ok(Self { rows, dropped_stale: saved.dropped_stale })
    }
}

#[derive(Serialize, Deserialize)]
struct SavedQueue {
    dropped_stale: u64,
    rows: Vec<SavedRow>,
}

#[derive(Serialize, Deserialize)]
struct SavedRow {
    row: TrainRow,
    prompt: Vec<u32>,
    response: Vec<u32>,
    supervision: SavedSupervision,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedSupervision {
    Teacher { teacher_logprobs: Option<Vec<f32>>, rollout_logprobs: Option<Vec<f32>> },
    Snapshot { start: usize, values: usize, version: u64 },
    Tokens,
}

#[cfg(test)]
mod tests {
    use lens_opd::methods::rows::RowKind;

    use super::*;

    fn row(version: u64, turn: usize, supervision: Supervision) -> QueuedRow {
        QueuedRow {
            row: TrainRow {
                batch: 1,
                episode: turn as u64,
                turn,
                kind: RowKind::Opd,
                version,
                validated: false,
                weights: vec![1.0, 1.0],
            },
            prompt: vec![1, 2],
            response: vec![3, 4],
            supervision,
        }
    }

    #[test]
    fn a_saved_queue_comes_back_as_it_was() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut queue = Queue::default();
        let hidden = Arc::new(vec![0.1, -2.5e-8, f32::MIN_POSITIVE]);
        queue.push(vec![
            row(3, 0, Supervision::Tokens),
            row(3, 1, Supervision::Snapshot { hidden, version: 3 }),
            row(
                4,
                2,
                Supervision::Teacher {
                    hidden: None,
                    teacher_logprobs: Some(vec![-0.1, -0.3]),
                    rollout_logprobs: None,
                },
            ),
        ]);
        queue.save(folder.path()).expect("it can be written");
        assert_eq!(Queue::load(folder.path()).expect("it can be read"), queue);
        assert_eq!(queue.versions_needed(), [3]);
    }

    #[test]
    fn stale_rows_are_dropped_and_counted_and_order_is_kept() {
        let mut queue = Queue::default();
        queue.push((0..4).map(|turn| row(turn as u64, turn, Supervision::Tokens)).collect());
        let (loss, terms) = (LossParams::default(), Terms::default());
        let batch = queue.pop(3, 2, 2, &loss, &terms).expect("it plans").expect("two fresh rows");
        assert_eq!((batch.rows.len(), batch.oldest_version), (2, 1));
        assert_eq!((queue.dropped_stale(), queue.len()), (1, 1));
        assert!(queue.pop(4, 2, 2, &loss, &terms).expect("it plans").is_none());
        assert_eq!(queue.len(), 1);
    }
}
