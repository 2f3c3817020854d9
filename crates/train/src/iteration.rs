//! One training iteration: Algorithm 1 of the paper, up to the optimizer step.

use std::sync::Arc;
use std::time::Instant;

use lens_agent::{
    Episode, ForkConfig, ForkRun, Judged, Plan, RolloutConfig, play, run_forks, score_batch,
};
use lens_engine::{Models, Policy, Sampling, Target};
use lens_env::Task;
use lens_opd::buffer::shuffle_rows;
use lens_opd::error::OpdError;
use lens_opd::methods::exposure::EpisodeSlot;
use lens_opd::methods::record::BatchRecord;
use lens_opd::methods::rows::{RowKind, TrainRow};
use lens_opd::methods::{Driver, Located, TeacherDetail};
use lens_opd::random::Purpose;

use crate::error::TrainError;
use crate::queue::QueuedRow;
use crate::references::References;

/// What one explorer batch needs besides the method and the models.
#[derive(Clone)]
pub struct Rollout {
    /// The environments and their limits.
    pub config: RolloutConfig,
    /// The run's seed.
    pub seed: u64,
    /// How the student's tokens are drawn.
    pub sampling: Sampling,
    /// Episodes per task.
    pub repeat_times: usize,
    /// Successful episodes, for methods that replay them.
    pub references: Arc<References>,
}

/// An explorer batch that was played, judged, audited and turned into rows.
pub struct Explored {
    /// Rows for the buffer, in the order they are queued.
    pub rows: Vec<QueuedRow>,
    /// What the method reports.
    pub record: BatchRecord,
    /// The episodes.
    pub episodes: Vec<Episode>,
    /// What the teacher said of them.
    pub judged: Judged,
    /// The forks.
    pub forks: Vec<ForkRun>,
    /// The rows as the method made them, before shuffling: token weights for the log.
    pub plain_rows: Vec<TrainRow>,
    /// Seconds each stage took, by its name.
    pub seconds: [(&'static str, f64); 3],
}

/// How far a batch has come, for someone who watches.
pub type Watch<'a> = &'a mut dyn FnMut(Stage);

/// A stage of an explorer batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Episodes are played: this many have ended.
    Playing {
        /// Episodes that have ended.
        ended: usize,
        /// All episodes of the batch.
        episodes: usize,
    },
    /// The teacher judges them.
    Scoring,
    /// This many forks are run.
    Forking(usize),
}

impl Rollout {
    /// Plays explorer batch `number` (from 1) on `tasks` and turns it into rows.
    pub fn explore(
        &self,
        method: &mut Driver,
        models: &dyn Models,
        number: u64,
        tasks: Vec<Task>,
        watch: Watch<'_>,
    ) -> Result<Explored, TrainError> {
        let needs = method.needs();
        let config = self.config.starting_now();

        let mut clock = Instant::now();
        let mut lap = || std::mem::replace(&mut clock, Instant::now()).elapsed().as_secs_f64();

        // Locate: adaptive exposure and turn proposal.
        let plans = self.plans(method, models.student().version(), number, tasks)?;
        let teacher: Option<&dyn Policy> = needs.teacher_acts.then(|| models.teacher());
        let episodes = play(
            &config,
            models.student(),
            teacher,
            plans,
            needs.forks,
            &mut |ended, episodes| {
                watch(Stage::Playing { ended, episodes });
            },
        )?;
        let playing = lap();
        watch(Stage::Scoring);
        let detail = needs.teacher_detail == TeacherDetail::TopTokens;
        let judged = score_batch(&config, models, number, &episodes, detail)?;
        let located = method.locate(&judged.batch)?;

        let scoring = lap();

        // Validate: paired future continuations.
        watch(Stage::Forking(located.forks.len()));
        let snapshot_targets = needs.snapshot_targets;
        let forks =
            self.validate(&config, models, number, &episodes, &located, snapshot_targets)?;
        let finished: Vec<_> = forks.iter().map(|fork| fork.finished.clone()).collect();

        // Refine: guidance internalization and token focusing.
        let refined = method.refine(&judged.batch, &located, &finished)?;
        let mut rows = refined
            .rows
            .iter()
            .map(|row| queued(row, &episodes, &judged, &forks))
            .collect::<Result<Vec<_>, _>>()?;
        shuffle_rows(&mut rows, self.seed, number);
        Ok(Explored {
            rows,
            record: refined.record,
            episodes,
            judged,
            forks,
            plain_rows: refined.rows,
            seconds: [("play", playing), ("score", scoring), ("fork", lap())],
        })
    }

    fn plans(
        &self,
        method: &Driver,
        version: u64,
        batch: u64,
        tasks: Vec<Task>,
    ) -> Result<Vec<Plan>, TrainError> {
        let needs_reference = method.needs().reference_actions;
        let mut plans = Vec::with_capacity(tasks.len() * self.repeat_times);
        for task in tasks {
            let reference = if needs_reference {
                self.references.actions(&*self.config.benchmark, &task)?
            } else {
                None
            };
            for _ in 0..self.repeat_times {
                let key = plans.len() as u64;
                let reference_actions = reference.as_ref().map(Vec::len);
                let slot = EpisodeSlot { batch, version, episode: key, reference_actions };
                plans.push(Plan {
                    key,
                    task: task.clone(),
                    exposure: method.exposure(&slot),
                    reference: reference.clone(),
                    seed: self.seed,
                    batch,
                    purpose: Purpose::Rollout,
                    sampling: self.sampling,
                });
            }
        }
        Ok(plans)
    }

    fn validate(
        &self,
        config: &RolloutConfig,
        models: &dyn Models,
        batch: u64,
        episodes: &[Episode],
        located: &Located,
        snapshot_targets: bool,
    ) -> Result<Vec<ForkRun>, TrainError> {
        if located.forks.is_empty() {
            return Ok(Vec::new());
        }
        let forks =
            ForkConfig { seed: self.seed, batch, sampling: self.sampling, snapshot_targets };
        Ok(run_forks(config, &forks, models, episodes, &located.forks)?)
    }
}

/// A method's row with the tokens and the target it is about.
fn queued(
    row: &TrainRow,
    episodes: &[Episode],
    judged: &Judged,
    forks: &[ForkRun],
) -> Result<QueuedRow, TrainError> {
    let lost = |what: &str| OpdError::Episode {
        episode: row.episode,
        message: format!("a {:?} row names turn {}, but {what}", row.kind, row.turn),
    };
    let index = episodes
        .iter()
        .position(|episode| episode.plan.key == row.episode)
        .ok_or_else(|| lost("there is no such episode"))?;
    let turn_index = episodes[index]
        .turns
        .iter()
        .position(|turn| turn.number == row.turn)
        .ok_or_else(|| lost("there is no such turn"))?;
    let turn = &episodes[index].turns[turn_index];
    let (response, target) = match row.kind {
        RowKind::Opd => (&turn.response, judged.targets[index][turn_index].clone()),
        RowKind::TeacherNll => (&turn.response, Some(Target::tokens())),
        RowKind::Internalize | RowKind::Bridge => {
            let fork = forks.iter().find(|fork| {
                fork.finished.episode == row.episode && fork.finished.turn == row.turn
            });
            let fork = fork.ok_or_else(|| lost("no fork was run there"))?;
            (&fork.guided_response, fork.target.clone())
        }
    };
    let target = target.ok_or_else(|| lost("nothing says what it is pulled toward"))?;
    Ok(QueuedRow {
        row: row.clone(),
        prompt: turn.prompt.clone(),
        response: response.clone(),
        target,
    })
}
