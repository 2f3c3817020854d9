//! One training iteration: Algorithm 1 of the paper, up to the optimiser step.

use std::sync::Arc;

use lens_agent::fork::ForkSetting;
use lens_agent::score::Judged;
use lens_agent::{Episode, ForkRun, Plan, Setup, play, run_forks, score_batch};
use lens_engine::{Policy, Sampling, Supervision, Teacher};
use lens_env::Task;
use lens_opd::buffer::shuffle_rows;
use lens_opd::error::OpdError;
use lens_opd::methods::exposure::Slot;
use lens_opd::methods::record::BatchRecord;
use lens_opd::methods::rows::{RowKind, TrainRow};
use lens_opd::methods::{Located, Method, TeacherDetail};
use lens_opd::objective::Estimator;
use lens_opd::random::Purpose;

use crate::error::TrainError;
use crate::queue::QueuedRow;

/// What one explorer batch needs besides the method and the models.
#[derive(Clone)]
pub struct Explorer {
    /// The environments and their limits.
    pub setup: Setup,
    /// The run's seed.
    pub seed: u64,
    /// How the student's tokens are drawn.
    pub sampling: Sampling,
    /// Episodes per task.
    pub repeat_times: usize,
    /// The longest hint.
    pub hint_tokens: usize,
    /// The token estimator, which decides what rows carry.
    pub estimator: Estimator,
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
    /// The rows as the method made them, before shuffling: token weights for the books.
    pub plain_rows: Vec<TrainRow>,
}

impl Explorer {
    /// Plays explorer batch `number` (from 1) on `tasks` and turns it into rows.
    pub fn explore(
        &self,
        method: &mut dyn Method,
        student: &Arc<dyn Policy>,
        teacher: &dyn Teacher,
        number: u64,
        tasks: Vec<Task>,
    ) -> Result<Explored, TrainError> {
        let needs = method.needs();

        // Locate: adaptive exposure and turn proposal.
        let plans = self.plans(&*method, number, tasks)?;
        let acting: &dyn Policy = teacher;
        let acting = needs.teacher_acts.then_some(acting);
        let episodes = play(&self.setup, student.as_ref(), acting, plans, needs.forks)?;
        let detail = needs.teacher_detail == TeacherDetail::TopTokens;
        let judged =
            score_batch(&self.setup, student.as_ref(), teacher, number, &episodes, detail)?;
        let located = method.locate(&judged.batch)?;

        // Validate: paired future continuations.
        let forks = self.validate(student.as_ref(), teacher, number, &episodes, &located)?;
        let finished: Vec<_> = forks.iter().map(|fork| fork.finished.clone()).collect();

        // Refine: guidance internalisation and token focusing.
        let refined = method.refine(&judged.batch, &located, &finished)?;
        let mut rows = refined
            .rows
            .iter()
            .map(|row| self.queued(row, &episodes, &judged, &forks))
            .collect::<Result<Vec<_>, _>>()?;
        shuffle_rows(&mut rows, self.seed, number);
        Ok(Explored {
            rows,
            record: refined.record,
            episodes,
            judged,
            forks,
            plain_rows: refined.rows,
        })
    }

    fn plans(
        &self,
        method: &dyn Method,
        batch: u64,
        tasks: Vec<Task>,
    ) -> Result<Vec<Plan>, TrainError> {
        let needs_reference = method.needs().reference_actions;
        let mut plans = Vec::with_capacity(tasks.len() * self.repeat_times);
        for task in tasks {
            let reference =
                if needs_reference { self.setup.benchmark.reference_actions(&task)? } else { None };
            for _ in 0..self.repeat_times {
                let key = plans.len() as u64;
                let reference_actions = reference.as_ref().map(Vec::len);
                let slot = Slot { batch, episode: key, reference_actions };
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
        student: &dyn Policy,
        teacher: &dyn Teacher,
        batch: u64,
        episodes: &[Episode],
        located: &Located,
    ) -> Result<Vec<ForkRun>, TrainError> {
        if located.forks.is_empty() {
            return Ok(Vec::new());
        }
        let setting = ForkSetting {
            seed: self.seed,
            batch,
            sampling: self.sampling,
            hint_tokens: self.hint_tokens,
        };
        Ok(run_forks(&self.setup, &setting, student, teacher, episodes, &located.forks)?)
    }

    /// A method's row with the tokens and targets it is about.
    fn queued(
        &self,
        row: &TrainRow,
        episodes: &[Episode],
        judged: &Judged,
        forks: &[ForkRun],
    ) -> Result<QueuedRow, TrainError> {
        let lost = |what: &str| OpdError::Episode {
            episode: row.episode,
            message: format!("a {:?} row names turn {}, but {what}", row.kind, row.turn),
        };
        let place = episodes
            .iter()
            .position(|episode| episode.plan.key == row.episode)
            .ok_or_else(|| lost("there is no such episode"))?;
        let turn_place = episodes[place]
            .turns
            .iter()
            .position(|turn| turn.number == row.turn)
            .ok_or_else(|| lost("there is no such turn"))?;
        let turn = &episodes[place].turns[turn_place];
        let fork = || {
            let found = forks.iter().find(|fork| {
                fork.finished.episode == row.episode && fork.finished.turn == row.turn
            });
            found.ok_or_else(|| lost("no fork was run there"))
        };
        let sampled = self.estimator == Estimator::K1Pg;
        let (response, supervision) = match row.kind {
            RowKind::Opd => {
                let scored = &judged.batch.episodes[place].turns[turn_place].tokens;
                let teacher_logprobs = scored.iter().map(|token| token.teacher_logprob).collect();
                let supervision = Supervision::Teacher {
                    hidden: judged.hidden[place][turn_place].clone(),
                    teacher_logprobs: if sampled { teacher_logprobs } else { None },
                    rollout_logprobs: sampled.then(|| turn.logprobs.clone()),
                };
                (turn.response.clone(), supervision)
            }
            RowKind::TeacherNll => (turn.response.clone(), Supervision::Tokens),
            RowKind::Gi => {
                let fork = fork()?;
                let supervision = match &fork.target {
                    Some(target) => Supervision::Snapshot {
                        hidden: target.hidden.clone(),
                        version: row.version,
                    },
                    None => Supervision::Tokens,
                };
                (fork.guided_response.clone(), supervision)
            }
            RowKind::Bridge => {
                let fork = fork()?;
                let lens_opd::validate::fork::ForkResult::Pair(pair) = &fork.finished.result else {
                    return Err(lost("its fork has no branches").into());
                };
                let tokens = &pair.guided.response.tokens;
                let teacher_logprobs = tokens.iter().map(|token| token.teacher_logprob).collect();
                let rollout_logprobs = tokens.iter().map(|token| token.student_logprob).collect();
                let supervision = Supervision::Teacher {
                    hidden: None,
                    teacher_logprobs: if sampled { teacher_logprobs } else { None },
                    rollout_logprobs: if sampled { rollout_logprobs } else { None },
                };
                (fork.guided_response.clone(), supervision)
            }
        };
        Ok(QueuedRow { row: row.clone(), prompt: turn.prompt.clone(), response, supervision })
    }
}
