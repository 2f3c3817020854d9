//! A model's own play, corrected: what the expert would have done wherever the model went.
//!
//! A model that only ever saw the expert's states does not know how to go on from its own mistakes. Its games show
//! where it goes; the expert, which decides from the prompt's window alone, says what was right there.

use std::collections::BTreeMap;
use std::sync::Arc;

use lens_agent::{Context, Plan, RolloutConfig, play};
use lens_engine::{Deadline, Policy, Sampling};
use lens_env::{Benchmark, Task, Window};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::{Purpose, StreamKey};

use crate::corpus::{CorpusOptions, Text, lessons};
use crate::recipe::LabError;

/// Games played side by side.
const SIDE_BY_SIDE: usize = 128;

/// How tokens are drawn in a model's own play; a little warmer than in evaluation, so that more mistakes are met.
const SAMPLING: Sampling = Sampling { temperature: 0.6, top_p: 1.0, top_k: None, min_p: 0.0 };

/// The longest prompt and the longest answer of a model's own games, in tokens.
const MAX_PROMPT: usize = 1536;
const MAX_ANSWER: usize = 48;

/// What a model did where the expert would have used a certain verb.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Such turns.
    pub turns: usize,
    /// Those at which the model did the same.
    pub agreed: usize,
    /// The verbs of what it did at the others.
    pub instead: BTreeMap<String, usize>,
}

/// Corrected games.
#[derive(Debug, Clone, Default)]
pub struct OwnPlay {
    /// The lessons of every turn.
    pub texts: Vec<Text>,
    /// Games played.
    pub games: usize,
    /// Games solved.
    pub solved: usize,
    /// The turns at which the expert knew what to do, of those that do not repeat the one before, by the expert's verb.
    pub by_verb: BTreeMap<String, Agreement>,
}

impl OwnPlay {
    /// Turns at which the expert knew what to do.
    pub fn turns(&self) -> usize {
        self.by_verb.values().map(|one| one.turns).sum()
    }

    /// Turns at which the model did what the expert would have done.
    pub fn agreed(&self) -> usize {
        self.by_verb.values().map(|one| one.agreed).sum()
    }

    fn compare(&mut self, right: &str, done: Option<&str>) {
        let entry = self.by_verb.entry(verb(right).to_owned()).or_default();
        entry.turns += 1;
        if done == Some(right) {
            entry.agreed += 1;
        } else {
            let done = done.map_or("nothing that could be read", verb);
            *entry.instead.entry(done.to_owned()).or_default() += 1;
        }
    }
}

/// The first word of a command.
fn verb(action: &str) -> &str {
    action.split([' ', '[']).next().unwrap_or_default()
}

/// How games are played whose turns the expert is asked about.
pub fn rollout_config(benchmark: &Arc<dyn Benchmark>, options: &CorpusOptions) -> RolloutConfig {
    RolloutConfig {
        benchmark: benchmark.clone(),
        context: Context::Window,
        history: options.history,
        turn_limit: options.turn_limit,
        max_prompt_tokens: MAX_PROMPT,
        max_response_tokens: MAX_ANSWER,
        timeout: None,
        deadline: Deadline::never(),
    }
}

/// Lets `policy` play `tasks` and gives the expert's lessons of every turn. `batch` names the draws.
pub fn own_play(
    config: &RolloutConfig,
    policy: &dyn Policy,
    tasks: &[Task],
    batch: u64,
    options: &CorpusOptions,
) -> Result<OwnPlay, LabError> {
    let mut own = OwnPlay::default();
    let Some(expert) = config.benchmark.expert() else { return Ok(own) };
    for (group, tasks) in tasks.chunks(SIDE_BY_SIDE).enumerate() {
        let plans = tasks.iter().enumerate().map(|(place, task)| Plan {
            key: (group * SIDE_BY_SIDE + place) as u64,
            task: task.clone(),
            exposure: Exposure::student(config.turn_limit),
            reference: None,
            seed: options.seed,
            batch,
            purpose: Purpose::Rollout,
            sampling: SAMPLING,
        });
        for episode in play(config, policy, None, plans.collect(), false, &mut |_, _| {})? {
            own.games += 1;
            own.solved += usize::from(episode.success);
            let key = StreamKey::new(options.seed, batch, episode.plan.key, Purpose::Data, 1);
            let mut draws = key.open();
            for turn in &episode.turns {
                let past = &episode.past[..turn.number.min(episode.past.len())];
                // A model that is stuck writes the same turn over and over; one lesson of it is enough.
                let stuck = past.last().is_some_and(|last| {
                    last.observation == turn.view.observation
                        && Some(&*last.action) == turn.action.as_deref()
                });
                if stuck {
                    continue;
                }
                let window = Window::new(&turn.view, past, config.history);
                let Some(decision) = expert.decide(&window) else { continue };
                let plan = turn.action.as_deref();
                own.compare(&decision.action, plan);
                lessons(
                    config.prompt_style(),
                    &window,
                    &decision,
                    plan.unwrap_or(&decision.action),
                    options,
                    &mut draws,
                    &mut own.texts,
                );
            }
        }
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_counted_by_the_experts_verb() {
        let mut own = OwnPlay::default();
        own.compare("take cup 1 from shelf 2", Some("take cup 1 from shelf 2"));
        own.compare("take cup 1 from shelf 2", Some("take cup 2 from shelf 2"));
        own.compare("take cup 1 from shelf 2", None);
        own.compare("search[red box]", Some("click[buy now]"));
        assert_eq!((own.turns(), own.agreed()), (4, 1));
        let take = &own.by_verb["take"];
        assert_eq!((take.turns, take.agreed), (3, 1));
        assert_eq!(take.instead["take"], 1);
        assert_eq!(take.instead["nothing that could be read"], 1);
        assert_eq!(own.by_verb["search"].instead["click"], 1);
    }
}
