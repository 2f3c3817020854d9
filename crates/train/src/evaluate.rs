//! Evaluation: how well a student plays a split, by the paper's measures.

use std::collections::BTreeMap;

use lens_agent::{Plan, Setup, play};
use lens_engine::{Policy, Sampling};
use lens_env::Task;
use lens_opd::episode::EpisodeEnd;
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// How a split is played.
#[derive(Clone)]
pub struct Evaluator {
    /// The environments and their limits.
    pub setup: Setup,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Episodes played side by side.
    pub workers: usize,
}

/// What one played task came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The task.
    pub task: String,
    /// Its kind.
    pub kind: String,
    /// Whether it was solved.
    pub success: bool,
    /// The benchmark's score at the end.
    pub score: f64,
    /// Turns used; the limit where it was not solved.
    pub rounds: usize,
    /// How the episode ended.
    pub end: EpisodeEnd,
}

/// The measures of a group of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Tasks played.
    pub tasks: usize,
    /// Share solved, in percent.
    pub success_rate: f64,
    /// Mean score: 100 x reward on ALFWorld and WebShop, the native 0 to 100 on ScienceWorld, negative ones as 0.
    pub score: f64,
    /// Mean turns used.
    pub rounds: f64,
}

/// A split's evaluation at one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The split.
    pub split: String,
    /// The seed of the draws.
    pub seed: u64,
    /// All tasks together.
    pub all: Measures,
    /// Per kind of task.
    pub kinds: BTreeMap<String, Measures>,
    /// Every task.
    pub tasks: Vec<TaskResult>,
}

impl Evaluator {
    /// Plays `tasks` of `split` with draws named by `seed` and `step`.
    pub fn evaluate(
        &self,
        policy: &dyn Policy,
        split: &str,
        tasks: &[Task],
        seed: u64,
        step: u64,
        mut progress: impl FnMut(usize),
    ) -> Result<Evaluation, TrainError> {
        let native_hundred = self.setup.benchmark.name() == "scienceworld";
        let mut results = Vec::with_capacity(tasks.len());
        for (group, chunk) in tasks.chunks(self.workers.max(1)).enumerate() {
            let plans = chunk.iter().enumerate().map(|(place, task)| Plan {
                key: (group * self.workers.max(1) + place) as u64,
                task: task.clone(),
                exposure: Exposure::student(self.setup.turn_limit),
                reference: None,
                seed,
                batch: step,
                purpose: Purpose::Evaluation,
                sampling: self.sampling,
            });
            let episodes = play(&self.setup, policy, None, plans.collect(), false)?;
            for episode in episodes {
                let score = episode.score.max(0.0) * if native_hundred { 1.0 } else { 100.0 };
                results.push(TaskResult {
                    task: episode.plan.task.id.clone(),
                    kind: episode.plan.task.kind.clone(),
                    success: episode.success,
                    score,
                    rounds: episode.rounds(self.setup.turn_limit),
                    end: episode.end,
                });
            }
            progress(results.len());
        }
        let mut by_kind: BTreeMap<String, Vec<&TaskResult>> = BTreeMap::new();
        for result in &results {
            by_kind.entry(result.kind.clone()).or_default().push(result);
        }
        let kinds = by_kind.into_iter().map(|(kind, results)| (kind, measures(&results))).collect();
        let all = measures(&results.iter().collect::<Vec<_>>());
        Ok(Evaluation { split: split.to_owned(), seed, all, kinds, tasks: results })
    }
}

/// The measures of any group of results; seen and unseen pooled, for one.
pub fn measures(results: &[&TaskResult]) -> Measures {
    let count = results.len();
    let mean = |value: &dyn Fn(&TaskResult) -> f64| {
        if count == 0 {
            0.0
        } else {
            results.iter().map(|result| value(result)).sum::<f64>() / count as f64
        }
    };
    Measures {
        tasks: count,
        success_rate: mean(&|result| if result.success { 100.0 } else { 0.0 }),
        score: mean(&|result| result.score),
        rounds: mean(&|result| result.rounds as f64),
    }
}
