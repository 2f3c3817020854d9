//! What tasks and episodes of a configuration look like: measured where it is cheap, bounded where it is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use lens_agent::{Plan, Turn, play};
use lens_config::Config;
use lens_config::schema::EngineName;
use lens_engine::Codec;
use lens_engine::native::NativeCodec;
use lens_env::{Benchmark, Task, Window};
use lens_lm::checkpoint::ModelFiles;
use lens_opd::OpdError;
use lens_opd::methods::Driver;
use lens_opd::methods::exposure::{EpisodeSlot, Exposure};
use lens_opd::random::Purpose;
use lens_train::iteration::Rollout;
use lens_train::references::References;
use lens_train::run::{prompting, rollout, rollout_config};

use super::walk::walk;
use crate::assemble;
use crate::failure::Failure;
use crate::progress::PlayingBar;
use crate::terminal::say;

/// Tasks whose first prompt is measured.
const SAMPLE: usize = 16;
/// Batches of the run that a probe visits.
const STOPS: usize = 16;
/// Bytes of a typical token, where there is no tokenizer to count with.
const BYTES_PER_TOKEN: usize = 4;

/// What some tasks of the benchmark look like.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Typical {
    /// Mean tokens of a first prompt.
    pub(super) prompt: usize,
    /// Mean actions of a successful episode, where the configuration has some.
    pub(super) reference: Option<usize>,
    /// Tasks played in one evaluation.
    pub(super) eval_tasks: u64,
    /// How long episodes are.
    pub(super) episodes: Episodes,
    /// Tokens of a response.
    pub(super) response: usize,
}

/// How long episodes are and where they can be forked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Episodes {
    /// As long as the method lets them, every turn readable: an upper bound.
    AtMost,
    /// As some episodes of the student were, by the explorer batch as which they were played: for each turn, whether it
    /// could be forked.
    Seen(BTreeMap<u64, Vec<Vec<bool>>>),
}

impl Episodes {
    /// Mean turns of an episode of batch `batch` in which the student has at most `limit`.
    pub(super) fn turns(&self, batch: u64, limit: usize) -> f64 {
        match self {
            Self::AtMost => limit as f64,
            Self::Seen(seen) => {
                mean(nearest(seen, batch).iter().map(|turns| turns.len().min(limit)))
            }
        }
    }

    /// Mean forks of such an episode: `each` at most, and none at its last turn unless `last`.
    pub(super) fn forks(&self, batch: u64, limit: usize, each: usize, last: bool) -> f64 {
        let spare = usize::from(!last);
        match self {
            Self::AtMost => each.min(limit.saturating_sub(spare)) as f64,
            Self::Seen(seen) => mean(nearest(seen, batch).iter().map(|turns| {
                let turns = &turns[..turns.len().min(limit).saturating_sub(spare)];
                turns.iter().filter(|&&readable| readable).count().min(each)
            })),
        }
    }
}

/// The episodes played as the batch that is nearest to `batch`.
fn nearest(seen: &BTreeMap<u64, Vec<Vec<bool>>>, batch: u64) -> &[Vec<bool>] {
    let closest = seen.iter().min_by_key(|(played, _)| played.abs_diff(batch));
    closest.map_or(&[], |(_, episodes)| episodes)
}

fn mean(values: impl ExactSizeIterator<Item = usize>) -> f64 {
    let count = values.len().max(1);
    values.sum::<usize>() as f64 / count as f64
}

impl Typical {
    /// Measures the prompts of some tasks, spread over the training split, and plays `probe` of them with the student.
    pub(super) fn measure(
        config: &Config,
        student: &ModelFiles,
        response: usize,
        probe: usize,
    ) -> Result<Self, Failure> {
        let benchmark = assemble::benchmark(config)?;
        let codec = codec(student)?;
        let prompting = prompting(config)?;
        let references = References::open(&config.task.references).unwrap_or(References::None);
        let tasks = benchmark.tasks(&config.task.train_split)?;
        let mut environment = benchmark.clone().environment()?;
        let (mut tokens, mut prompts) = (0, 0);
        let mut lengths = Vec::new();
        for task in spread(&tasks, SAMPLE) {
            let view = environment.reset(task)?;
            let window = Window::new(&view, &[], 0);
            let message = prompting.turn_message(&benchmark.profile().prompt, &window)?;
            tokens += match &codec {
                Some(codec) => codec
                    .prompt(&prompting.messages(&[], &message))
                    .map_err(|error| Failure::Runtime(error.into()))?
                    .len(),
                None => message.len().div_ceil(BYTES_PER_TOKEN),
            };
            prompts += 1;
            lengths.extend(references.actions(&*benchmark, task)?.map(|actions| actions.len()));
        }
        let mut eval_tasks = 0;
        for split in &config.task.eval_splits {
            let all = benchmark.tasks(split)?.len();
            let limit = config.eval.tasks_during_training;
            eval_tasks += if limit == 0 { all } else { all.min(limit) } as u64;
        }
        let reference =
            (!lengths.is_empty()).then(|| lengths.iter().sum::<usize>() / lengths.len());
        let mut typical = Self {
            prompt: tokens / prompts.max(1),
            reference,
            eval_tasks,
            episodes: Episodes::AtMost,
            response,
        };
        if probe > 0 {
            let tasks: Vec<Task> = spread(&tasks, probe).cloned().collect();
            typical.play(config, &benchmark, references, &tasks)?;
        }
        Ok(typical)
    }

    /// Plays `tasks` as explorer batches spread over the run would, and remembers what was seen.
    fn play(
        &mut self,
        config: &Config,
        benchmark: &Arc<dyn Benchmark>,
        references: References,
        tasks: &[Task],
    ) -> Result<(), Failure> {
        if config.student.engine != EngineName::Native {
            return Err(Failure::user_with_hint(
                "a probe plays with the student on this machine, and student.engine names a server",
                "leave --probe out, or pass --set student.engine=native",
            ));
        }
        let policy =
            assemble::policy(&config.student.path, "student.path", config.student.weights)?;
        let settings = rollout_config(config, benchmark)?.starting_now();
        let seed = config.seeds.first().copied().unwrap_or_default();
        let plans = self.plans(
            config,
            &rollout(config, settings.clone(), seed, Arc::new(references)),
            tasks,
        )?;
        let mut bar = PlayingBar::new(tasks.len(), "probe");
        let episodes = play(&settings, &policy, None, plans, false, &mut |ended, _| {
            bar.turn("the student plays", ended);
        })
        .map_err(|error| Failure::Runtime(error.into()))?;
        bar.finish();
        let mut seen: BTreeMap<u64, Vec<Vec<bool>>> = BTreeMap::new();
        for episode in &episodes {
            let readable = |turn: &Turn| turn.action.is_some() && turn.dropped.is_none();
            let turns = episode.turns.iter().map(readable).collect();
            seen.entry(episode.plan.batch).or_default().push(turns);
        }
        let turns: Vec<_> = episodes.iter().flat_map(|episode| &episode.turns).collect();
        self.prompt = mean(turns.iter().map(|turn| turn.prompt.len())).round() as usize;
        self.response = mean(turns.iter().map(|turn| turn.response.len())).round() as usize;
        self.episodes = Episodes::Seen(seen);
        Ok(())
    }

    /// Methods that replay actions begin elsewhere in every batch, so their probe is spread over the run; the others
    /// play from the start, and the method's horizon is applied to what was seen.
    fn plans(
        &self,
        config: &Config,
        rollout: &Rollout,
        tasks: &[Task],
    ) -> Result<Vec<Plan>, Failure> {
        let user = |error: OpdError| Failure::User(error.into());
        let method = Driver::new(config.method, &config.methods, config.facts(0)).map_err(user)?;
        let replays = method.needs().reference_actions;
        let reference = if replays { self.reference } else { None };
        let batches = walk(config, reference, &Episodes::AtMost)?.batches;
        let mut plans = Vec::with_capacity(tasks.len());
        for (number, task) in tasks.iter().enumerate() {
            let mut plan = Plan {
                key: number as u64,
                task: task.clone(),
                exposure: Exposure::student(rollout.config.turn_limit),
                reference: None,
                seed: rollout.seed,
                batch: 1,
                purpose: Purpose::Rollout,
                sampling: rollout.sampling,
            };
            if replays {
                plan.batch = 1 + (number % STOPS) as u64 * batches / STOPS as u64;
                plan.reference = rollout.references.actions(&*rollout.config.benchmark, task)?;
                plan.exposure = method.exposure(&EpisodeSlot {
                    batch: plan.batch,
                    version: 0,
                    episode: plan.key,
                    reference_actions: plan.reference.as_ref().map(Vec::len),
                });
            }
            plans.push(plan);
        }
        Ok(plans)
    }
}

/// About `count` tasks, evenly spaced.
fn spread(tasks: &[Task], count: usize) -> impl Iterator<Item = &Task> {
    tasks.iter().step_by((tasks.len() / count.max(1)).max(1)).take(count)
}

/// The student's codec; `None` where it has no tokenizer yet.
fn codec(student: &ModelFiles) -> Result<Option<NativeCodec>, Failure> {
    if !student.companions.files.contains_key("tokenizer.json") {
        say("note: the student has no tokenizer.json; prompts are counted as four bytes per token");
        return Ok(None);
    }
    NativeCodec::new(student).map(Some).map_err(|error| Failure::User(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_counts_readable_turns_up_to_the_horizon() {
        let episodes = vec![vec![false, true, true], vec![false], vec![true, false]];
        let seen = Episodes::Seen([(1, episodes), (9, vec![vec![true; 4]])].into());
        assert_eq!(seen.turns(2, 2), 5.0 / 3.0);
        assert_eq!(seen.forks(2, 1, 1, true), 1.0 / 3.0);
        assert_eq!(seen.forks(2, 3, 1, true), 2.0 / 3.0);
        assert_eq!(seen.forks(2, 3, 2, true), 1.0, "two of one episode, one of another");
        assert_eq!(seen.forks(2, 2, 1, false), 1.0 / 3.0, "never at an episode's last turn");
        assert_eq!(seen.turns(8, 9), 4.0, "the nearest batch that was played");
        assert_eq!(Episodes::AtMost.forks(1, 4, 9, false), 3.0);
    }
}
