//! The run's log: metrics, timings, TensorBoard, and every episode with its forks.
//!
//! `metrics.jsonl` holds numbers only that follow from the configuration and the seed, so that a resumed run writes the
//! same bytes; how long things took goes to `timings.jsonl`. The lines are the types of `lens-records`; the page
//! `docs/reference/run-folder.md` explains them.

mod convert;
mod scalars;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lens_engine::{Codec, LearnReport};
use lens_opd::objective::plan::PlanCounts;
use lens_records::metrics::{Record, SpentTokens, StepLine};
use lens_records::timings::TimingLine;
use lens_records::{FORMAT, write};

use crate::error::TrainError;
use crate::evaluate::Evaluation;
use crate::files::{Journal, write_atomically};
use crate::iteration::Explored;
use scalars::Scalars;

/// Everything a run writes down as it goes.
#[derive(Debug)]
pub struct RunLog {
    metrics: Journal,
    timings: Journal,
    text: Journal,
    scalars: Scalars,
    episodes: PathBuf,
    /// Optimizer steps done, as far as the log was told.
    step: u64,
}

impl RunLog {
    /// Opens the log in `folder`, cutting the metrics back to what the last checkpoint recorded. The run goes on after
    /// `step` optimizer steps and `batch` explorer batches.
    pub fn open(
        folder: &Path,
        metrics_length: u64,
        step: u64,
        batch: u64,
    ) -> Result<Self, TrainError> {
        let episodes = folder.join("episodes");
        std::fs::create_dir_all(&episodes).map_err(TrainError::file("make", &episodes))?;
        let timings = folder.join("timings.jsonl");
        let kept = std::fs::metadata(&timings).map_or(0, |data| data.len());
        Ok(Self {
            metrics: Journal::open(&folder.join("metrics.jsonl"), metrics_length)?,
            timings: Journal::open(&timings, kept)?,
            text: Journal::open_rotating(&folder.join("log.txt"))?,
            scalars: Scalars::create(&folder.join("tensorboard"), step, batch)?,
            episodes,
            step,
        })
    }

    /// Logs an explorer batch and its episodes. `version` is the snapshot that played it; `codec` turns tokens into
    /// text.
    pub fn batch(
        &mut self,
        explored: &Explored,
        version: u64,
        waiting: usize,
        stale: u64,
        spent: SpentTokens,
        codec: &dyn Codec,
    ) -> Result<(), TrainError> {
        let mut line = convert::batch_line(explored, version, waiting, stale);
        line.spent = Some(spent);
        self.step = version;
        self.scalars.batch(now(), &line)?;
        let solved = explored.episodes.iter().filter(|episode| episode.success).count();
        let kept = line.forks.iter().filter(|fork| fork.verdict.accepted).count();
        self.note(&format!(
            "batch {}: {solved} of {} episodes solved, {kept} of {} forks kept, {waiting} rows wait, {stale} were too old",
            explored.record.batch,
            explored.episodes.len(),
            line.forks.len()
        ))?;
        self.append(&Record::Batch(Box::new(line)))?;
        let name = format!("batch-{:06}.jsonl.zst", explored.record.batch);
        let path = self.episodes.join(name);
        let lines: Vec<_> = (0..explored.episodes.len())
            .map(|index| convert::episode_line(explored, index, codec))
            .collect();
        write_atomically(&path, &write::packed_episodes(&lines)?)
    }

    /// Logs an optimizer step that followed explorer batch `batch`.
    pub fn step(
        &mut self,
        batch: u64,
        step: u64,
        report: &LearnReport,
        counts: PlanCounts,
        oldest: u64,
    ) -> Result<(), TrainError> {
        let line = StepLine {
            format: FORMAT,
            step,
            batch: Some(batch),
            loss: finite(report.loss),
            focus_loss: finite(report.focus_loss),
            internalization_loss: finite(report.internalization_loss),
            grad_norm: finite(report.grad_norm),
            skipped: report.skipped,
            trajectories: counts.trajectories as u64,
            opd_tokens: counts.tokens.opd + counts.tokens.teacher_nll + counts.tokens.bridge,
            gi_tokens: counts.tokens.internalize,
            trained: Some(convert::token_counts(&counts.tokens)),
            internalize_share: (counts.internalized > 0).then_some(counts.internalize_share),
            tokens: Some(report.tokens as u64),
            oldest_version: oldest,
        };
        if !report.skipped {
            self.step = step;
        }
        self.scalars.step(now(), &line)?;
        let skipped = if report.skipped { ", skipped: not finite" } else { "" };
        self.note(&format!(
            "step {step}: loss {:.5}, gradient norm {:.4}, {} tokens{skipped}",
            report.loss, report.grad_norm, report.tokens
        ))?;
        self.append(&Record::Step(line))
    }

    /// Logs an evaluation.
    pub fn evaluation(
        &mut self,
        step: u64,
        batch: u64,
        evaluation: &Evaluation,
    ) -> Result<(), TrainError> {
        let line = convert::eval_line(step, batch, evaluation);
        self.scalars.evaluation(now(), &line)?;
        let all = &evaluation.all;
        self.note(&format!(
            "step {step}: {} {:.1} % of {} tasks solved",
            evaluation.split, all.success_rate, all.tasks
        ))?;
        self.append(&Record::Eval(line))
    }

    /// Logs how long a stage took; kept apart from the numbers that must not depend on the clock.
    pub fn timing(&mut self, stage: &str, batch: u64, seconds: f64) -> Result<(), TrainError> {
        let at = now();
        let line =
            TimingLine { format: FORMAT, stage: stage.to_owned(), batch, seconds, at: Some(at) };
        self.scalars.timing(at, self.step, &line)?;
        self.timings.bytes(&write::line(&line)?)
    }

    /// Writes a line for people into `log.txt`.
    pub fn note(&mut self, text: &str) -> Result<(), TrainError> {
        let at = humantime::format_rfc3339_seconds(SystemTime::now());
        self.text.bytes(format!("{at} {text}\n").as_bytes())
    }

    /// The metrics so far, packed.
    pub fn packed_metrics(&self) -> Result<Vec<u8>, TrainError> {
        let path = self.metrics.path();
        let metrics = std::fs::read(path).map_err(TrainError::file("read", path))?;
        zstd::encode_all(metrics.as_slice(), 3).map_err(TrainError::file("pack", path))
    }

    /// Makes the metrics durable and gives the length a checkpoint records.
    pub fn sync(&mut self) -> Result<u64, TrainError> {
        self.metrics.sync()
    }

    fn append(&mut self, record: &Record) -> Result<(), TrainError> {
        self.metrics.bytes(&write::line(record)?)
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}
