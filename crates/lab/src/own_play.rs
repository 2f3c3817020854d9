//! A model's own play, corrected: what the expert would have done wherever the model went.
//!
//! A model that only ever saw the expert's states does not know how to go on from its own mistakes. Its games show
//! where it goes; the expert, which decides from the prompt's window alone, says what was right there.

use lens_agent::{Plan, Setup, play};
use lens_engine::{Policy, Sampling};
use lens_env::{Task, Window};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::{Purpose, StreamKey};

use crate::corpus::{CorpusOptions, Text, lessons};
use crate::recipe::LabError;

/// Games played side by side.
const SIDE_BY_SIDE: usize = 128;

/// How tokens are drawn in a model's own play; a little warmer than in evaluation, so that more mistakes are met.
const SAMPLING: Sampling = Sampling { temperature: 0.6, top_p: 1.0, top_k: None, min_p: 0.0 };

/// Corrected games.
#[derive(Debug, Clone, Default)]
pub struct OwnPlay {
    /// The lessons of every turn.
    pub texts: Vec<Text>,
    /// Games played.
    pub games: usize,
    /// Games solved.
    pub solved: usize,
    /// Turns at which the expert knew what to do, of those that do not repeat the one before.
    pub turns: usize,
    /// Turns at which the model did what the expert would have done.
    pub agreed: usize,
}

/// Lets `policy` play `tasks` and gives the expert's lessons of every turn. `batch` names the draws.
pub fn own_play(
    setup: &Setup,
    policy: &dyn Policy,
    tasks: &[Task],
    batch: u64,
    options: &CorpusOptions,
) -> Result<OwnPlay, LabError> {
    let mut own = OwnPlay::default();
    let Some(expert) = setup.benchmark.expert() else { return Ok(own) };
    for (group, tasks) in tasks.chunks(SIDE_BY_SIDE).enumerate() {
        let plans = tasks.iter().enumerate().map(|(place, task)| Plan {
            key: (group * SIDE_BY_SIDE + place) as u64,
            task: task.clone(),
            exposure: Exposure::student(setup.turn_limit),
            reference: None,
            seed: options.seed,
            batch,
            purpose: Purpose::Rollout,
            sampling: SAMPLING,
        });
        for episode in play(setup, policy, None, plans.collect(), false)? {
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
                let window = Window::of(&turn.view, past, setup.history);
                let Some(decision) = expert.decide(&window) else { continue };
                own.turns += 1;
                own.agreed += usize::from(turn.action.as_deref() == Some(&*decision.action));
                let plan = turn.action.as_deref();
                lessons(
                    setup.wording,
                    &window,
                    &decision,
                    plan,
                    options,
                    &mut draws,
                    &mut own.texts,
                );
            }
        }
    }
    Ok(own)
}
