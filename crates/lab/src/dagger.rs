//! DAgger rollouts: the model plays, and the expert says at every turn what it would have done.
//!
//! A model trained only on states the expert reaches does not know how to continue from its own mistakes. Its rollouts
//! show which states it reaches; the expert, which decides from the prompt's window alone, labels them.

use std::collections::BTreeMap;
use std::sync::Arc;

use lens_agent::{Context, Episode, Plan, Prompting, RolloutConfig, play};
use lens_engine::{Deadline, Policy, Sampling};
use lens_env::{Benchmark, Expert, Task, Window};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::{Purpose, StreamKey};

use crate::corpus::{CorpusOptions, Critique, Sample};
use crate::episodes::turn_samples;
use crate::error::LabError;

/// Games played concurrently.
const CONCURRENT: usize = 128;

/// Sampling in rollouts: a higher temperature than in evaluation, so that more mistakes are seen.
const SAMPLING: Sampling = Sampling { temperature: 0.6, top_p: 1.0, top_k: None, min_p: 0.0 };

/// The longest prompt and the longest answer in a rollout, in tokens.
const MAX_PROMPT: usize = 1536;
const MAX_ANSWER: usize = 96;

/// How often a model agrees with the expert at the turns where the expert's action starts with a given verb.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Those turns.
    pub turns: usize,
    /// Turns at which the model took the same action.
    pub agreed: usize,
    /// The verbs of the model's other actions, with their counts.
    pub instead: BTreeMap<String, usize>,
}

/// Rollouts with the expert's labels.
#[derive(Debug, Clone, Default)]
pub struct Rollouts {
    /// The samples of every labeled turn.
    pub samples: Vec<Sample>,
    /// The expert's critique of the model's action at every labeled turn.
    pub critiques: Vec<Critique>,
    /// Games played.
    pub games: usize,
    /// Games solved.
    pub solved: usize,
    /// Agreement at the labeled turns by the expert's verb.
    pub by_verb: BTreeMap<String, Agreement>,
}

impl Rollouts {
    /// Labeled turns: the expert decided something, and the turn does not repeat the one before it.
    pub fn turns(&self) -> usize {
        self.by_verb.values().map(|agreement| agreement.turns).sum()
    }

    /// Labeled turns at which the model took the expert's action.
    pub fn agreed(&self) -> usize {
        self.by_verb.values().map(|agreement| agreement.agreed).sum()
    }

    fn compare(&mut self, right: &str, done: Option<&str>) {
        let entry = self.by_verb.entry(verb(right).to_owned()).or_default();
        entry.turns += 1;
        if done == Some(right) {
            entry.agreed += 1;
        } else {
            let done = done.map_or(UNREADABLE, verb);
            *entry.instead.entry(done.to_owned()).or_default() += 1;
        }
    }
}

/// What stands in place of a verb where the answer has no action.
const UNREADABLE: &str = "nothing that could be read";

/// The first word of a command.
fn verb(action: &str) -> &str {
    action.split([' ', '[']).next().unwrap_or_default()
}

/// How the games of a rollout are played.
pub fn rollout_config(benchmark: &Arc<dyn Benchmark>, options: &CorpusOptions) -> RolloutConfig {
    RolloutConfig {
        benchmark: benchmark.clone(),
        prompting: Prompting::default(),
        context: Context::Window,
        history: options.history,
        turn_limit: options.corpus.turn_limit,
        max_prompt_tokens: MAX_PROMPT,
        max_response_tokens: MAX_ANSWER,
        timeout: None,
        deadline: Deadline::never(),
    }
}

/// Plays `tasks` with `policy` and labels the turns. `batch` keys the draws. Without an expert there are no rollouts.
pub fn rollouts(
    config: &RolloutConfig,
    policy: &dyn Policy,
    tasks: &[Task],
    batch: u64,
    options: &CorpusOptions,
) -> Result<Rollouts, LabError> {
    let mut rollouts = Rollouts::default();
    let Some(expert) = config.benchmark.expert() else { return Ok(rollouts) };
    for (group, tasks) in tasks.chunks(CONCURRENT).enumerate() {
        let plans = tasks.iter().enumerate().map(|(index, task)| Plan {
            key: (group * CONCURRENT + index) as u64,
            task: task.clone(),
            exposure: Exposure::student(config.turn_limit),
            reference: None,
            seed: options.seed,
            batch,
            purpose: Purpose::Rollout,
            sampling: SAMPLING,
        });
        for episode in play(config, policy, None, plans.collect(), false, &mut |_, _| {})? {
            rollouts.label(config, &*expert, &episode, batch, options);
        }
    }
    Ok(rollouts)
}

impl Rollouts {
    /// Adds an episode with the expert's labels.
    fn label(
        &mut self,
        config: &RolloutConfig,
        expert: &dyn Expert,
        episode: &Episode,
        batch: u64,
        options: &CorpusOptions,
    ) {
        self.games += 1;
        self.solved += usize::from(episode.success);
        let key = StreamKey::new(options.seed, batch, episode.plan.key, Purpose::Data, 1);
        let mut draws = key.open();
        let style = config.prompt_style();
        for turn in &episode.turns {
            let past = &episode.past[..turn.number.min(episode.past.len())];
            // Once all steps that a prompt shows are the same, the next prompt is the same, and one label is enough.
            let repeated = past
                .iter()
                .rev()
                .take_while(|step| {
                    step.observation == turn.view.observation
                        && Some(&*step.action) == turn.action.as_deref()
                })
                .count();
            if repeated > config.history.max(1) {
                continue;
            }
            let window = Window::new(&turn.view, past, config.history);
            let Some(decision) = expert.decide(&window) else { continue };
            self.compare(&decision.action, turn.action.as_deref());
            let plan = turn.action.as_deref().unwrap_or(&decision.action);
            self.critiques.push(Critique::new(style, &window, &decision, plan));
            let samples = &mut self.samples;
            turn_samples(style, &window, &decision, plan, &options.corpus, &mut draws, samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_counted_by_the_experts_verb() {
        let mut rollouts = Rollouts::default();
        rollouts.compare("take cup 1 from shelf 2", Some("take cup 1 from shelf 2"));
        rollouts.compare("take cup 1 from shelf 2", Some("take cup 2 from shelf 2"));
        rollouts.compare("take cup 1 from shelf 2", None);
        rollouts.compare("search[red box]", Some("click[buy now]"));
        assert_eq!((rollouts.turns(), rollouts.agreed()), (4, 1));
        let take = &rollouts.by_verb["take"];
        assert_eq!((take.turns, take.agreed), (3, 1));
        assert_eq!(take.instead["take"], 1);
        assert_eq!(take.instead["nothing that could be read"], 1);
        assert_eq!(rollouts.by_verb["search"].instead["click"], 1);
    }
}
