//! The books of a run: metrics, TensorBoard, and every episode with its forks.
//!
//! `metrics.jsonl` holds numbers only that follow from the configuration and the seed, so that a resumed run writes the
//! same bytes; how long things took goes to `timings.jsonl`. The schema of both, and of the episode files, is in
//! `docs/reference/run-folder.md`.

use std::path::{Path, PathBuf};

use lens_agent::{BranchLog, Episode, ForkRun};
use lens_engine::LearnReport;
use lens_opd::diagnostics::support_by_depth;
use lens_opd::methods::rows::{RowKind, TrainRow};
use lens_opd::objective::plan::PlanCounts;
use serde_json::{Value, json};

use crate::error::TrainError;
use crate::evaluate::Evaluation;
use crate::files::{Journal, write_atomically};
use crate::iteration::Explored;
use crate::tensorboard::EventWriter;

/// Everything a run writes down as it goes.
#[derive(Debug)]
pub struct Books {
    metrics: Journal,
    timings: Journal,
    events: EventWriter,
    episodes: PathBuf,
}

impl Books {
    /// Opens the books in `folder`, cutting the metrics back to what the last checkpoint recorded.
    pub fn open(
        folder: &Path,
        metrics_length: u64,
        attempt: u64,
        resumed_at: u64,
    ) -> Result<Self, TrainError> {
        let episodes = folder.join("episodes");
        std::fs::create_dir_all(&episodes).map_err(TrainError::file("make", &episodes))?;
        let timings = folder.join("timings.jsonl");
        let kept = std::fs::metadata(&timings).map_or(0, |data| data.len());
        Ok(Self {
            metrics: Journal::open(&folder.join("metrics.jsonl"), metrics_length)?,
            timings: Journal::open(&timings, kept)?,
            events: EventWriter::create(&folder.join("tensorboard"), attempt, resumed_at)?,
            episodes,
        })
    }

    /// Books an explorer batch and its episodes.
    pub fn batch(
        &mut self,
        explored: &Explored,
        version: u64,
        waiting: usize,
        stale: u64,
    ) -> Result<(), TrainError> {
        let record = &explored.record;
        // Methods that do not compare favourite tokens have no support to book.
        let depth = support_by_depth(&explored.judged.batch.episodes, None).ok();
        let mut line = json!({
            "kind": "batch",
            "version": version,
            "waiting_rows": waiting,
            "stale_rows": stale,
            "complete_pairs": record.complete_pairs(),
            "accepted": record.accepted(),
            "reasons": record.reasons(),
            "guided_share": record.tokens.guided_share(),
            "support_by_depth": depth,
        });
        merge(&mut line, serde_json::to_value(record).unwrap_or_default());
        self.metrics.line(&line)?;
        let step = record.batch;
        self.events.scalar("locate/horizon", step, record.horizon as f64)?;
        if let Some(pace) = record.tick.as_ref().and_then(|tick| tick.pace) {
            self.events.scalar("locate/pace", step, pace)?;
        }
        let gains: Vec<f64> = record.forks.iter().filter_map(|fork| fork.verdict.gain).collect();
        if !gains.is_empty() {
            let mean = gains.iter().sum::<f64>() / gains.len() as f64;
            self.events.scalar("validate/gain", step, mean)?;
            let accepted = record.accepted() as f64 / gains.len() as f64;
            self.events.scalar("validate/accepted_share", step, accepted)?;
        }
        if let Some(share) = record.tokens.guided_share() {
            self.events.scalar("refine/guided_share", step, share)?;
        }
        self.events.scalar("rollout/successes", step, record.successes as f64)?;
        self.write_episodes(explored)
    }

    /// Books an optimiser step.
    pub fn step(
        &mut self,
        step: u64,
        report: &LearnReport,
        counts: PlanCounts,
        oldest: u64,
    ) -> Result<(), TrainError> {
        self.metrics.line(&json!({
            "kind": "step",
            "step": step,
            "loss": report.loss,
            "focus_loss": report.focus_loss,
            "internalization_loss": report.internalization_loss,
            "grad_norm": report.grad_norm,
            "skipped": report.skipped,
            "trajectories": counts.trajectories,
            "opd_tokens": counts.opd_tokens,
            "gi_tokens": counts.gi_tokens,
            "oldest_version": oldest,
        }))?;
        self.events.scalar("train/loss", step, report.loss)?;
        self.events.scalar("train/grad_norm", step, report.grad_norm)
    }

    /// Books an evaluation.
    pub fn evaluation(
        &mut self,
        step: u64,
        batch: u64,
        evaluation: &Evaluation,
    ) -> Result<(), TrainError> {
        self.metrics.line(&json!({
            "kind": "eval",
            "step": step,
            "batch": batch,
            "split": evaluation.split,
            "all": evaluation.all,
            "kinds": evaluation.kinds,
        }))?;
        let tag = format!("eval/{}/success_rate", evaluation.split);
        self.events.scalar(&tag, step, evaluation.all.success_rate)
    }

    /// Books how long a stage took; kept apart from the numbers that must not depend on the clock.
    pub fn timing(&mut self, stage: &str, batch: u64, seconds: f64) -> Result<(), TrainError> {
        self.timings.line(&json!({ "stage": stage, "batch": batch, "seconds": seconds }))
    }

    /// Makes the metrics durable and gives the length a checkpoint records.
    pub fn sync(&mut self) -> Result<u64, TrainError> {
        self.metrics.sync()
    }

    fn write_episodes(&self, explored: &Explored) -> Result<(), TrainError> {
        let mut text = Vec::new();
        for (place, episode) in explored.episodes.iter().enumerate() {
            let line = episode_line(explored, place, episode);
            text.extend(line.to_string().into_bytes());
            text.push(b'\n');
        }
        let name = format!("batch-{:06}.jsonl.zst", explored.record.batch);
        let path = self.episodes.join(name);
        let packed =
            zstd::encode_all(text.as_slice(), 3).map_err(TrainError::file("write", &path))?;
        write_atomically(&path, &packed)
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            into.entry(key).or_insert(value);
        }
    }
}

fn episode_line(explored: &Explored, place: usize, episode: &Episode) -> Value {
    let scored = &explored.judged.batch.episodes[place];
    let weights = |turn: usize| -> Option<&TrainRow> {
        explored.plain_rows.iter().find(|row| {
            row.episode == episode.plan.key && row.turn == turn && row.kind == RowKind::Opd
        })
    };
    let turns: Vec<Value> = episode
        .turns
        .iter()
        .zip(&scored.turns)
        .map(|(turn, scored)| {
            let kl: Vec<Option<f32>> = scored.tokens.iter().map(|token| token.kl).collect();
            let teacher: Vec<Option<f32>> =
                scored.tokens.iter().map(|token| token.teacher_logprob).collect();
            json!({
                "turn": turn.number,
                "actor": turn.actor,
                "observation": turn.view.observation,
                "response": turn.text,
                "action": turn.action,
                "tokens": turn.response,
                "student_logprobs": turn.logprobs,
                "teacher_logprobs": teacher,
                "kl": kl,
                "weights": weights(turn.number).map(|row| &row.weights),
                "dropped": turn.dropped,
            })
        })
        .collect();
    let forks: Vec<Value> = explored
        .forks
        .iter()
        .filter(|fork| fork.finished.episode == episode.plan.key)
        .map(|fork| fork_line(explored, fork))
        .collect();
    json!({
        "batch": explored.record.batch,
        "episode": episode.plan.key,
        "task": episode.plan.task.id,
        "task_kind": episode.plan.task.kind,
        "version": episode.version,
        "horizon": episode.plan.exposure.horizon,
        "prefix": episode.prefix,
        "end": episode.end,
        "success": episode.success,
        "score": episode.score,
        "failure": episode.failure,
        "turns": turns,
        "forks": forks,
    })
}

fn fork_line(explored: &Explored, fork: &ForkRun) -> Value {
    let branch = |log: &BranchLog| -> Vec<Value> {
        log.turns
            .iter()
            .map(|turn| {
                json!({ "observation": turn.observation, "response": turn.text, "action": turn.action })
            })
            .collect()
    };
    let record = explored.record.forks.iter().find(|record| {
        record.request.episode == fork.finished.episode && record.request.turn == fork.finished.turn
    });
    json!({
        "turn": fork.finished.turn,
        "hint": fork.hint,
        "base": branch(&fork.base),
        "guided": branch(&fork.guided),
        "record": record,
    })
}
