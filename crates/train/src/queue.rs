//! The buffer: rows with what they need to be learned, in the order they wait.

use std::collections::VecDeque;
use std::path::Path;

use lens_engine::{Engine, LearnRow, Target};
use lens_opd::buffer::plan_train_batch;
use lens_opd::error::OpdError;
use lens_opd::methods::rows::TrainRow;
use lens_opd::objective::Loss;
use lens_opd::objective::plan::{LossPlan, LossTerms, PlanCounts};
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
    /// What the tokens are pulled toward, as the engine says it.
    pub target: Target,
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
    /// Sums for the log.
    pub counts: PlanCounts,
    /// The smallest snapshot version in the batch.
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

    /// The targets that queued rows still refer to, in the order of the rows.
    pub fn targets(&self) -> Vec<&Target> {
        self.rows.iter().map(|row| &row.target).collect()
    }

    /// Returns the batch for optimizer step `step` (1-based), oldest rows first, or `None` if fewer than `rows` fresh rows
    /// are queued.
    ///
    /// Rows whose snapshot is more than `max_staleness` steps old are removed and counted, even when this returns `None`.
    pub fn pop(
        &mut self,
        step: u64,
        rows: usize,
        max_staleness: u64,
        loss: &Loss,
        terms: &LossTerms,
    ) -> Result<Option<TrainBatch>, OpdError> {
        let versions: Vec<u64> = self.rows.iter().map(|row| row.row.version).collect();
        let pop = plan_train_batch(&versions, step, rows, max_staleness);
        self.dropped_stale += pop.stale.len() as u64;
        let (mut taken, mut kept) = (Vec::with_capacity(pop.train.len()), VecDeque::new());
        for (index, row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            if pop.train.binary_search(&index).is_ok() {
                taken.push(row);
            } else if pop.stale.binary_search(&index).is_err() {
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
            .map(|(index, row)| LearnRow {
                prompt: row.prompt,
                response: row.response,
                coefficients: plan
                    .coefficients(index)
                    .unwrap_or_default()
                    .iter()
                    .map(|&coefficient| coefficient as f32)
                    .collect(),
                target: row.target,
            })
            .collect();
        Ok(Some(TrainBatch { rows, counts: plan.counts(), oldest_version }))
    }

    /// Writes the engine and the queue into a checkpoint. Rows and what the engine keeps for them belong together.
    pub(crate) fn save(&self, engine: &dyn Engine, folder: &Path) -> Result<(), TrainError> {
        let targets = engine.save(folder, &self.targets())?;
        let rows = self.rows.iter().zip(targets).map(|(row, target)| SavedRow {
            row: row.row.clone(),
            prompt: row.prompt.clone(),
            response: row.response.clone(),
            target,
        });
        let saved = SavedQueue { dropped_stale: self.dropped_stale, rows: rows.collect() };
        let path = folder.join("state/queue.json");
        let json = serde_json::to_vec(&saved).map_err(|error| TrainError::Checkpoint {
            path: path.clone(),
            message: error.to_string(),
        })?;
        write_durably(&path, &json)
    }

    /// Reads what [`Queue::save`] wrote, and resumes the engine from it.
    pub(crate) fn load(engine: &mut dyn Engine, folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join("state/queue.json");
        let json = std::fs::read(&path).map_err(TrainError::file("read", &path))?;
        let saved: SavedQueue = serde_json::from_slice(&json).map_err(|error| {
            TrainError::Checkpoint { path: path.clone(), message: error.to_string() }
        })?;
        let (rows, targets): (Vec<_>, Vec<_>) = saved
            .rows
            .into_iter()
            .map(|row| ((row.row, row.prompt, row.response), row.target))
            .unzip();
        let targets = engine.load(folder, &targets)?;
        if targets.len() != rows.len() {
            let message = format!("{} rows have {} targets", rows.len(), targets.len());
            return Err(TrainError::Checkpoint { path, message });
        }
        let rows = rows
            .into_iter()
            .zip(targets)
            .map(|((row, prompt, response), target)| QueuedRow { row, prompt, response, target });
        Ok(Self { rows: rows.collect(), dropped_stale: saved.dropped_stale })
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
    /// What the engine gave to find the row's target again.
    #[serde(alias = "supervision")]
    target: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use lens_engine::scripted::{Scripted, ScriptedEngine, ScriptedPolicy};
    use lens_opd::methods::rows::{BatchShape, RowKind};

    use super::*;

    fn row(version: u64, turn: usize) -> QueuedRow {
        QueuedRow {
            row: TrainRow {
                batch: 1,
                episode: turn as u64,
                turn,
                kind: RowKind::Opd,
                version,
                validated: false,
                weights: vec![1.0, 1.0],
                shape: BatchShape { rows: 4, trajectories: 4, internalized: 0 },
            },
            prompt: vec![1, 2],
            response: vec![3, 4],
            target: Target::tokens(),
        }
    }

    fn engine() -> ScriptedEngine {
        let policy = || ScriptedPolicy::saying("<action>look</action>");
        ScriptedEngine::new(Scripted::new(policy(), policy()))
    }

    #[test]
    fn a_saved_queue_comes_back_as_it_was() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut queue = Queue::default();
        queue.push(vec![row(3, 0), row(3, 1), row(4, 2)]);
        queue.save(&engine(), folder.path()).expect("it can be written");
        let read = Queue::load(&mut engine(), folder.path()).expect("it can be read");
        assert_eq!(read, queue);
    }

    #[test]
    fn stale_rows_are_dropped_and_counted_and_order_is_kept() {
        let mut queue = Queue::default();
        queue.push((0..4).map(|turn| row(turn as u64, turn)).collect());
        let (loss, terms) = (Loss::default(), LossTerms::default());
        let batch = queue.pop(3, 2, 2, &loss, &terms).expect("it plans").expect("two fresh rows");
        assert_eq!((batch.rows.len(), batch.oldest_version), (2, 1));
        assert_eq!((queue.dropped_stale(), queue.len()), (1, 1));
        assert!(queue.pop(4, 2, 2, &loss, &terms).expect("it plans").is_none());
        assert_eq!(queue.len(), 1);
    }
}
