//! Evaluation: how well a student plays a split, by the paper's measures.

use std::collections::BTreeMap;

use lens_agent::{Episode, Plan, RolloutConfig, play};
use lens_engine::{Codec, Policy, Sampling};
use lens_env::{ScoreScale, Task};
use lens_opd::episode::EpisodeEnd;
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;
use lens_opd::stats::metrics::{self, EvalEpisode};
use lens_records::FORMAT;
use lens_records::episodes::{EpisodeLine, Tokens, TurnLine};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// How a split is played.
#[derive(Clone)]
pub struct Evaluator {
    /// The environments and their limits.
    pub config: RolloutConfig,
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
    /// The benchmark's own score at the end.
    pub score: f64,
    /// Turns taken.
    pub turns: usize,
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
    /// Mean score of 100; `None` for a benchmark without one.
    pub score: Option<f64>,
    /// Mean turns used, the limit where a task was not solved.
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
    /// Plays `tasks` of `split` with draws named by `seed`, `split` and `step`. `progress` is told how many have ended.
    pub fn evaluate(
        &self,
        policy: &dyn Policy,
        split: &str,
        tasks: &[Task],
        seed: u64,
        step: u64,
        progress: impl FnMut(usize),
    ) -> Result<Evaluation, TrainError> {
        self.evaluate_keeping(policy, split, tasks, seed, step, progress, |_| {})
    }

    /// The same; `keep` is given every episode as it was played.
    pub fn evaluate_keeping(
        &self,
        policy: &dyn Policy,
        split: &str,
        tasks: &[Task],
        seed: u64,
        step: u64,
        mut progress: impl FnMut(usize),
        mut keep: impl FnMut(&Episode),
    ) -> Result<Evaluation, TrainError> {
        let mut results = Vec::with_capacity(tasks.len());
        let config = self.config.starting_now();
        let workers = self.workers.max(1);
        for (group, chunk) in tasks.chunks(workers).enumerate() {
            let plans = chunk.iter().enumerate().map(|(index, task)| Plan {
                key: split_key(split) << 32 | (group * workers + index) as u64,
                task: task.clone(),
                exposure: Exposure::student(config.turn_limit),
                reference: None,
                seed,
                batch: step,
                purpose: Purpose::Evaluation,
                sampling: self.sampling,
            });
            let done = results.len();
            let episodes = play(&config, policy, None, plans.collect(), false, &mut |ended, _| {
                progress(done + ended);
            })?;
            for episode in episodes {
                keep(&episode);
                results.push(TaskResult {
                    task: episode.plan.task.id.clone(),
                    kind: episode.plan.task.kind.clone(),
                    success: episode.success,
                    score: episode.score,
                    turns: episode.prefix + episode.turns.len(),
                    end: episode.end,
                });
            }
        }
        let mut by_kind: BTreeMap<String, Vec<&TaskResult>> = BTreeMap::new();
        for result in &results {
            by_kind.entry(result.kind.clone()).or_default().push(result);
        }
        let mut kinds = BTreeMap::new();
        for (kind, results) in by_kind {
            kinds.insert(kind, self.measures(&results)?);
        }
        let all = self.measures(&results.iter().collect::<Vec<_>>())?;
        Ok(Evaluation { split: split.to_owned(), seed, all, kinds, tasks: results })
    }

    /// The measures of any group of results; seen and unseen games pooled, for one.
    pub fn measures(&self, results: &[&TaskResult]) -> Result<Measures, TrainError> {
        measures(self.config.benchmark.profile().score, self.config.turn_limit, results)
    }
}

/// The measures of results whose score means what `scale` says.
pub fn measures(
    scale: ScoreScale,
    turn_limit: usize,
    results: &[&TaskResult],
) -> Result<Measures, TrainError> {
    let episodes: Vec<EvalEpisode> = results
        .iter()
        .map(|result| EvalEpisode {
            success: result.success,
            score: result.score,
            turns: result.turns,
        })
        .collect();
    let measure = match scale {
        ScoreScale::None => metrics::alfworld,
        ScoreScale::ZeroToOne => metrics::webshop,
        ScoreScale::Points => metrics::scienceworld,
    };
    let broken =
        |reason: lens_opd::error::InputError| TrainError::Measures { what: "evaluation", reason };
    let result = measure(&episodes).map_err(broken)?;
    let rounds = metrics::rounds(&episodes, turn_limit).map_err(broken)?;
    let (success_rate, score) = (result.success_rate, result.score);
    Ok(Measures { tasks: results.len(), success_rate, score, rounds })
}

/// An episode of an evaluation as a line of an episode file, the `number`th one. No teacher has judged it.
pub fn transcript(episode: &Episode, number: u64, codec: &dyn Codec) -> EpisodeLine {
    let turns = episode.turns.iter().map(|turn| TurnLine {
        turn: turn.number as u64,
        actor: "student".to_owned(),
        observation: turn.view.observation.clone(),
        response: turn.text.clone(),
        action: turn.action.clone(),
        prompt: codec.text(&turn.prompt).ok(),
        tokens: Tokens {
            ids: turn.response.clone(),
            student_logprobs: turn.logprobs.iter().map(|&logprob| Some(logprob)).collect(),
            ..Tokens::default()
        },
        dropped: None,
    });
    EpisodeLine {
        format: FORMAT,
        batch: 0,
        episode: number,
        task: episode.plan.task.id.clone(),
        task_kind: episode.plan.task.kind.clone(),
        goal: episode.turns.first().map(|turn| turn.view.task.clone()),
        version: episode.version,
        horizon: episode.plan.exposure.horizon as u64,
        prefix: episode.prefix as u64,
        end: serde_json::to_value(episode.end)
            .ok()
            .and_then(|end| end.as_str().map(str::to_owned))
            .unwrap_or_default(),
        success: episode.success,
        score: Some(episode.score),
        failure: episode.failure.clone(),
        turns: turns.collect(),
        forks: Vec::new(),
        token_text: BTreeMap::new(),
    }
}

/// Names a split in the streams of its draws, so that two splits share none.
fn split_key(split: &str) -> u64 {
    let hash = split
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_and_unseen_tasks_share_no_stream() {
        assert_ne!(split_key("valid_seen"), split_key("valid_unseen"));
    }
}
