//! A run without playing: the method's own clock at pace 1, the buffer's own rule of staleness.

use lens_config::Config;
use lens_opd::OpdError;
use lens_opd::buffer::plan_train_batch;
use lens_opd::episode::{DivergenceSource, ScoredBatch};
use lens_opd::methods::Driver;
use lens_opd::methods::exposure::{Control, EpisodeSlot};

use super::typical::Episodes;
use crate::failure::Failure;

/// Share of forks that are taken to be accepted.
const ACCEPTED: f64 = 0.5;

/// What the batches of a run come to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Played {
    pub(super) batches: u64,
    pub(super) student_turns: u64,
    pub(super) teacher_turns: u64,
    pub(super) forks: u64,
    /// Rows trained on; rows that are too old to be trained on do not count.
    pub(super) trained_rows: u64,
    /// Rows that wait in the queue at once.
    pub(super) queued_rows: u64,
}

/// Walks through the run. `reference` is how long successful episodes are, where the method replays them.
pub(super) fn walk(
    config: &Config,
    reference: Option<usize>,
    seen: &Episodes,
) -> Result<Played, Failure> {
    let user = |error: OpdError| Failure::User(error.into());
    let (rollout, train) = (&config.rollout, &config.train);
    let mut method = Driver::new(config.method, &config.methods, config.facts(0)).map_err(user)?;
    let needs = method.needs();
    let episodes = (rollout.batch_size * rollout.repeat_times) as f64;
    let per_episode = if needs.hints { config.methods.locate.proposals_per_episode } else { 1 };
    let (mut played, mut step) = (Played::default(), 0);
    // Whole turns and forks are counted over the run, not batch by batch, so that roundings do not add up.
    let (mut by_student, mut by_teacher, mut forked) = (0.0, 0.0, 0.0);
    let mut queue: Vec<u64> = Vec::new();
    let stale = train.staleness.limit(train.max_staleness);
    while step < train.steps {
        played.batches += 1;
        let slot = EpisodeSlot {
            batch: played.batches,
            version: step,
            episode: 0,
            reference_actions: reference,
        };
        let exposure = method.exposure(&slot);
        let limit = exposure.horizon.saturating_sub(exposure.prefix).max(1);
        let turns = episodes * seen.turns(played.batches, limit);
        let share = match exposure.control {
            Control::Student => 0.0,
            Control::Mixed { teacher_share, .. } => teacher_share,
        };
        by_teacher += share * turns;
        by_student += (1.0 - share) * turns;
        // FutureBridge never forks at the last turn.
        let forks = if needs.forks {
            episodes * seen.forks(played.batches, limit, per_episode, needs.hints)
        } else {
            0.0
        };
        forked += forks;
        // An empty batch has no frontier to measure: the clock ticks at pace 1.
        let empty = ScoredBatch {
            number: played.batches,
            divergence: DivergenceSource::Full,
            episodes: Vec::new(),
        };
        method.locate(&empty).map_err(user)?;
        // A probe in which no episode began must not keep the walk from ending.
        let rows = ((turns + ACCEPTED * forks).round() as usize).max(1);
        queue.extend(std::iter::repeat_n(step, rows));
        played.queued_rows = played.queued_rows.max(queue.len() as u64);
        while step < train.steps {
            let pop = plan_train_batch(&queue, step + 1, train.batch_size, stale);
            let gone = pop.train.len() + pop.stale.len();
            if pop.train.is_empty() {
                queue.drain(..pop.stale.len());
                break;
            }
            queue.drain(..gone);
            played.trained_rows += pop.train.len() as u64;
            step += 1;
        }
    }
    played.student_turns = by_student.round() as u64;
    played.teacher_turns = by_teacher.round() as u64;
    played.forks = forked.round() as u64;
    Ok(played)
}
