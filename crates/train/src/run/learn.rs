//! Optimizer steps: alone, or while the next batch is explored.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use lens_config::Config;
use lens_engine::{Engine, Observed};
use lens_opd::objective::plan::LossTerms;

use super::watch::Watchdog;
use super::{Progress, Run, State};
use crate::error::TrainError;
use crate::files::write_atomically;
use crate::meter::Meter;
use crate::queue::Queue;
use crate::run_log::RunLog;

impl Run {
    /// Optimizer steps while there are enough fresh rows, then a new student.
    pub(super) fn learn(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        let (started, before, terms) = (Instant::now(), self.state.step, self.method.terms());
        self.learning().steps(&terms, progress, &mut |_| {})?;
        self.publish(before)?;
        self.log.timing("learn", self.state.batch, started.elapsed().as_secs_f64())
    }

    /// Optimizer steps on the rows that wait, while the published student explores the next batch; then a new student.
    /// What is explored depends on the published weights alone, so how the two are interleaved changes nothing.
    pub(super) fn explore_while_learning(
        &mut self,
        progress: &mut dyn Progress,
    ) -> Result<(), TrainError> {
        let (started, before, terms) = (Instant::now(), self.state.step, self.method.terms());
        let number = self.state.batch + 1;
        let tasks = self.order.batch(number, self.config.rollout.batch_size);
        let meter = Arc::new(Meter::default());
        let models = Observed::new(self.engine.models(), meter.clone());
        let (sender, stages) = mpsc::channel();
        let Self { config, folder, rollout, method, engine, queue, log, state, watchdog, .. } =
            self;
        let engine = &mut **engine;
        let mut learning = Learning { config, folder, engine, queue, log, state, watchdog };
        let (explored, learned) = thread::scope(|scope| {
            let models = &models;
            let explorer = scope.spawn(move || {
                rollout.explore(method, models, number, tasks, &mut |stage| {
                    // The receiver is gone once learning has failed.
                    let _ = sender.send(stage);
                })
            });
            let learned = learning.steps(&terms, progress, &mut |progress| {
                for stage in stages.try_iter() {
                    progress.exploring(number, stage);
                }
            });
            let seconds = started.elapsed().as_secs_f64();
            if learned.is_ok() {
                for stage in &stages {
                    progress.exploring(number, stage);
                }
            }
            (explorer.join(), learned.map(|()| seconds))
        });
        let seconds = learned?;
        let explored = explored.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        self.log.timing("learn", self.state.batch, seconds)?;
        self.take(explored, before, &models, meter.spent(), started, progress)?;
        self.publish(before)
    }

    /// Publishes the student if there were steps since `before`.
    fn publish(&mut self, before: u64) -> Result<(), TrainError> {
        if self.state.step > before {
            self.engine.publish(&self.queue.targets())?;
        }
        Ok(())
    }

    fn learning(&mut self) -> Learning<'_> {
        Learning {
            config: &self.config,
            folder: &self.folder,
            engine: &mut *self.engine,
            queue: &mut self.queue,
            log: &mut self.log,
            state: &mut self.state,
            watchdog: &mut self.watchdog,
        }
    }
}

/// The parts of a run that learning changes.
struct Learning<'a> {
    config: &'a Config,
    folder: &'a Path,
    engine: &'a mut dyn Engine,
    queue: &'a mut Queue,
    log: &'a mut RunLog,
    state: &'a mut State,
    watchdog: &'a mut Watchdog,
}

impl Learning<'_> {
    /// Steps while there are enough fresh rows; `between` is called before each.
    fn steps(
        &mut self,
        terms: &LossTerms,
        progress: &mut dyn Progress,
        between: &mut dyn FnMut(&mut dyn Progress),
    ) -> Result<(), TrainError> {
        let train = &self.config.train;
        while self.state.step < train.steps {
            between(progress);
            let step = self.state.step + 1;
            let loss = &self.config.loss;
            let limit = train.staleness.limit(train.max_staleness);
            let batch = self.queue.pop(step, train.batch_size, limit, loss, terms)?;
            let Some(batch) = batch else { break };
            let report = self.engine.learn(&batch.rows)?;
            self.state.spent.student += report.tokens as u64;
            self.log.step(self.state.batch, step, &report, batch.counts, batch.oldest_version)?;
            if report.skipped {
                self.state.skipped += 1;
                self.state.skipped_in_a_row += 1;
                let dump = dump(self.folder, step, self.state.skipped, &batch.rows)?;
                if self.state.skipped_in_a_row >= train.max_skipped_steps {
                    let steps = self.state.skipped_in_a_row;
                    return Err(TrainError::NotFinite { steps, dump });
                }
                continue;
            }
            self.state.skipped_in_a_row = 0;
            self.state.step = step;
            progress.learned(step, &report);
            if let Some(warning) = self.watchdog.step(step, &report) {
                self.log.note(&warning)?;
                progress.note(&warning);
            }
        }
        Ok(())
    }
}

/// Writes the rows of a step that was not finite, for inspection.
fn dump(
    folder: &Path,
    step: u64,
    count: u64,
    rows: &[lens_engine::LearnRow],
) -> Result<PathBuf, TrainError> {
    let dumps = folder.join("dumps");
    std::fs::create_dir_all(&dumps).map_err(TrainError::file("make", &dumps))?;
    let path = dumps.join(format!("step-{step:06}-skip-{count}.json"));
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "prompt": row.prompt,
                "response": row.response,
                "coefficients": row.coefficients,
            })
        })
        .collect();
    write_atomically(&path, serde_json::Value::Array(rows).to_string().as_bytes())?;
    Ok(path)
}
