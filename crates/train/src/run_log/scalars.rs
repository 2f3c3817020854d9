//! Which numbers TensorBoard gets, under which tags.
//!
//! There are two axes. Everything is written by optimizer step, batches at the step of the snapshot that played them;
//! what belongs to batches is also written by batch, into `batches/`, which TensorBoard shows as a run of its own.
//! Shares are fractions from 0 to 1, values of log-likelihood and KL are in nats, times in seconds.

use std::path::Path;

use lens_records::metrics::{BatchLine, EvalLine, StepLine};
use lens_records::timings::TimingLine;

use crate::error::TrainError;
use crate::tensorboard::EventWriter;

/// The event files of a run.
#[derive(Debug)]
pub(super) struct Scalars {
    by_step: EventWriter,
    by_batch: EventWriter,
}

impl Scalars {
    /// New event files for a run that goes on after `step` optimizer steps and `batch` explorer batches.
    pub(super) fn create(folder: &Path, step: u64, batch: u64) -> Result<Self, TrainError> {
        Ok(Self {
            by_step: EventWriter::create(folder, step)?,
            by_batch: EventWriter::create(&folder.join("batches"), batch)?,
        })
    }

    pub(super) fn batch(&mut self, now: f64, line: &BatchLine) -> Result<(), TrainError> {
        for (tag, value) in batch_scalars(line) {
            self.by_step.scalar(now, tag, line.version, value)?;
            self.by_batch.scalar(now, tag, line.batch, value)?;
        }
        Ok(())
    }

    pub(super) fn step(&mut self, now: f64, line: &StepLine) -> Result<(), TrainError> {
        let guided = line.gi_tokens as f64 / (line.gi_tokens + line.opd_tokens).max(1) as f64;
        let values = [
            ("train/loss", line.loss),
            ("train/focus_loss", line.focus_loss),
            ("train/internalization_loss", line.internalization_loss),
            ("train/grad_norm", line.grad_norm),
            ("train/tokens", line.tokens.map(|tokens| tokens as f64)),
            ("train/internalization_token_share", Some(guided)),
            ("train/staleness", Some(line.step.saturating_sub(line.oldest_version + 1) as f64)),
        ];
        for (tag, value) in values {
            if let Some(value) = value {
                self.by_step.scalar(now, tag, line.step, value)?;
            }
        }
        Ok(())
    }

    pub(super) fn evaluation(&mut self, now: f64, line: &EvalLine) -> Result<(), TrainError> {
        let values = [
            ("success", Some(line.all.success_rate / 100.0)),
            ("score", line.all.score.map(|score| score / 100.0)),
            ("rounds", Some(line.all.rounds)),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                let tag = format!("eval/{}/{name}", line.split);
                self.by_step.scalar(now, &tag, line.step, value)?;
            }
        }
        Ok(())
    }

    pub(super) fn timing(
        &mut self,
        now: f64,
        step: u64,
        line: &TimingLine,
    ) -> Result<(), TrainError> {
        let tag = format!("time/{}_seconds", line.stage);
        self.by_step.scalar(now, &tag, step, line.seconds)?;
        self.by_batch.scalar(now, &tag, line.batch, line.seconds)
    }
}

/// The numbers of an explorer batch. What was not measured is left out.
fn batch_scalars(line: &BatchLine) -> Vec<(&'static str, f64)> {
    let gains: Vec<f64> = line.forks.iter().filter_map(|fork| fork.verdict.gain).collect();
    let gaps: Vec<f64> = line.forks.iter().filter_map(|fork| fork.internalization_gap).collect();
    let focus = line.forks.iter().filter_map(|fork| fork.focus);
    let (target, content) = focus.fold((0.0, 0.0), |(target, content), mass| {
        (target + mass.target_mass, content + mass.content_mass)
    });
    let episodes: u64 = line.terminations.values().sum();
    let forks = line.forks.len() as f64;
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let rollout = line.rollout.unwrap_or_default();
    let turns = rollout.turns as f64;
    let values = [
        ("locate/horizon", Some(line.horizon as f64)),
        ("locate/pace", line.tick.and_then(|tick| tick.pace)),
        ("locate/competence", line.tick.and_then(|tick| tick.competence)),
        ("validate/gain", mean(&gains)),
        ("validate/accepted_share", share(line.accepted as f64, forks)),
        ("validate/complete_share", share(line.complete_pairs as f64, forks)),
        ("refine/guided_share", line.guided_share),
        ("refine/internalization_gap", mean(&gaps)),
        ("refine/target_mass_share", share(target, content)),
        ("rollout/success", share(line.successes as f64, episodes as f64)),
        ("rollout/kl", rollout.kl),
        ("rollout/student_nll", rollout.student_nll),
        ("rollout/teacher_nll", rollout.teacher_nll),
        ("rollout/agreement", rollout.agreement),
        ("rollout/parsed_share", share(rollout.parsed_turns as f64, turns)),
        ("rollout/response_tokens", share(rollout.response_tokens as f64, turns)),
        ("rollout/rounds", share(turns, episodes as f64)),
        ("buffer/waiting_rows", Some(line.waiting_rows as f64)),
        ("buffer/stale_rows", Some(line.stale_rows as f64)),
    ];
    values.into_iter().filter_map(|(tag, value)| Some((tag, value?))).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
