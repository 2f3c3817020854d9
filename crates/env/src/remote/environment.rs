//! One episode on the other side, with the history from which it can be made again.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use super::options::{RewardRule, SnapshotUse};
use super::{Answer, Outcome, RemoteBenchmark, RemoteTask, Session, count};
use crate::benchmark::Task;
use crate::environment::{Environment, Fnv, Snapshot, Status, View};
use crate::error::EnvError;

/// An episode that runs in another process.
pub struct RemoteEnvironment {
    benchmark: Arc<RemoteBenchmark>,
    session: Option<Box<dyn Session>>,
    episode: Option<Episode>,
}

/// What happened so far.
#[derive(Debug, Clone)]
struct Episode {
    task: Arc<RemoteTask>,
    /// The mark of the first view.
    first: u64,
    steps: Vec<Step>,
    view: View,
    /// The sum of rewards so far.
    total: f64,
}

/// An action and the mark of the view it led to.
#[derive(Debug, Clone)]
struct Step {
    action: Arc<str>,
    mark: u64,
}

/// What a snapshot holds.
struct Saved {
    episode: Episode,
    /// The other side's own snapshot, where it has them.
    state: Option<Value>,
}

/// A hash of everything a replay must bring back.
fn mark(view: &View) -> u64 {
    let mut hasher = Fnv::default();
    view.fingerprint().hash(&mut hasher);
    view.task.hash(&mut hasher);
    view.score.to_bits().hash(&mut hasher);
    matches!(view.status, Status::Ended { .. }).hash(&mut hasher);
    matches!(view.status, Status::Ended { success: true }).hash(&mut hasher);
    hasher.finish()
}

impl RemoteEnvironment {
    pub(super) fn new(benchmark: Arc<RemoteBenchmark>) -> Self {
        Self { benchmark, session: None, episode: None }
    }

    /// Puts a state back by replaying its actions, whatever the other side offers.
    pub fn restore_by_replay(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        let saved = snapshot.get::<Saved>()?;
        self.replay(&saved.episode)
    }

    /// Works with the session, opening one first where there is none. A failure closes it.
    fn work<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Session) -> Result<T, EnvError>,
    ) -> Result<T, EnvError> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(self.benchmark.session()?),
        };
        let outcome = work(&mut **session);
        if outcome.is_err() {
            self.session = None;
            count(&self.benchmark.counters.failures);
        }
        outcome
    }

    fn begin(&mut self, task: Arc<RemoteTask>) -> Result<Episode, EnvError> {
        let answer = self.work(|session| session.reset(&task))?;
        let text = answer.task.clone().or_else(|| task.text.clone()).unwrap_or_default();
        let view = self.view_of(answer, text, 0, 0.0);
        Ok(Episode { task, first: mark(&view), steps: Vec::new(), total: view.score, view })
    }

    /// Takes one step and puts it into the episode.
    fn advance(&mut self, episode: &mut Episode, action: &str) -> Result<(), EnvError> {
        let turn = episode.view.turn + 1;
        match self.work(|session| session.step(action))? {
            Outcome::Taken(answer) => {
                episode.total += answer.reward;
                let task = episode.view.task.clone();
                episode.view = self.view_of(answer, task, turn, episode.total);
            }
            Outcome::Refused(why) => {
                count(&self.benchmark.counters.refused_actions);
                episode.view.observation = why;
                episode.view.turn = turn;
            }
        }
        episode.steps.push(Step { action: action.into(), mark: mark(&episode.view) });
        Ok(())
    }

    fn view_of(&self, answer: Answer, task: String, turn: usize, total: f64) -> View {
        let options = &self.benchmark.options;
        let score = answer.score.unwrap_or(match options.reward {
            RewardRule::Sum => total,
            RewardRule::Last => answer.reward,
        });
        let success = answer.success.unwrap_or(score >= options.success_score);
        let status = if answer.done { Status::Ended { success } } else { Status::Running };
        View { task, observation: answer.observation, actions: answer.actions, turn, score, status }
    }

    /// Plays `wanted` again in a fresh episode and compares every view.
    fn replay(&mut self, wanted: &Episode) -> Result<View, EnvError> {
        self.episode = None;
        let mut episode = self.begin(Arc::clone(&wanted.task))?;
        if episode.first != wanted.first {
            return Err(self.not_repeatable(wanted, 0, "reset", &episode.view));
        }
        for (index, step) in wanted.steps.iter().enumerate() {
            self.advance(&mut episode, &step.action)?;
            if episode.steps.last().map(|last| last.mark) != Some(step.mark) {
                return Err(self.not_repeatable(wanted, index + 1, &step.action, &episode.view));
            }
        }
        count(&self.benchmark.counters.replayed);
        let view = episode.view.clone();
        self.episode = Some(episode);
        Ok(view)
    }

    /// Asks the other side for its own snapshot's state. `None` where that is not what was saved.
    fn restore_fast(&mut self, saved: &Saved, state: &Value) -> Option<View> {
        let answer = self.work(|session| session.restore(state)).ok()?;
        let wanted = &saved.episode;
        let task = wanted.view.task.clone();
        let restored = self.view_of(answer, task, wanted.view.turn, wanted.total);
        // Rewards are not given twice, so the score is the saved one.
        let view = View { score: wanted.view.score, ..restored };
        if mark(&view) != mark(&wanted.view) {
            return None;
        }
        count(&self.benchmark.counters.restored);
        self.episode = Some(wanted.clone());
        Some(view)
    }

    fn not_repeatable(&self, wanted: &Episode, step: usize, action: &str, view: &View) -> EnvError {
        count(&self.benchmark.counters.not_repeatable);
        EnvError::NotRepeatable(format!(
            "{}, step {step} ({action:?}): a replay shows something else than the first time: {:?}",
            wanted.task.task.id,
            head(&view.observation)
        ))
    }
}

/// The first characters of a text, for messages.
fn head(text: &str) -> String {
    text.chars().take(120).collect()
}

impl Environment for RemoteEnvironment {
    fn reset(&mut self, task: &Task) -> Result<View, EnvError> {
        self.episode = None;
        let task = self.benchmark.task(task)?;
        let episode = self.begin(task)?;
        let view = episode.view.clone();
        self.episode = Some(episode);
        Ok(view)
    }

    fn step(&mut self, action: &str) -> Result<View, EnvError> {
        let mut episode = self.episode.take().ok_or(EnvError::NotReset)?;
        if episode.view.status == Status::Running {
            self.advance(&mut episode, action)?;
        }
        let view = episode.view.clone();
        self.episode = Some(episode);
        Ok(view)
    }

    fn view(&self) -> Result<View, EnvError> {
        self.episode.as_ref().map(|episode| episode.view.clone()).ok_or(EnvError::NotReset)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EnvError> {
        let episode = self.episode.clone().ok_or(EnvError::NotReset)?;
        let state = match self.benchmark.options.snapshot {
            SnapshotUse::Auto => self.work(|session| session.snapshot())?,
            SnapshotUse::Replay => None,
        };
        Ok(Snapshot::new(Saved { episode, state }))
    }

    /// By the other side's snapshot where there is one and it brings back what was seen; else by replaying.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        let saved = snapshot.get::<Saved>()?;
        if let Some(state) = &saved.state
            && let Some(view) = self.restore_fast(saved, state)
        {
            return Ok(view);
        }
        self.replay(&saved.episode)
    }
}

impl Drop for RemoteEnvironment {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.benchmark.keep(session);
        }
    }
}
