//! Environments in other processes, in any language.
//!
//! A [`Connector`] opens [`Session`]s: one running episode on the other side of a pipe or a socket. Everything that
//! does not depend on the wire is here: tasks and splits, what counts as success, and forks. A state is put back by the
//! other side's own snapshot where it offers one, and otherwise by replaying the episode's actions into a fresh
//! session; either way what comes back is compared with what was seen the first time, so an environment that is not
//! repeatable is noticed and counted instead of trained on.

mod environment;
pub(crate) mod http;
pub mod options;
pub(crate) mod reader;
pub mod tasks;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

pub use environment::RemoteEnvironment;
pub use options::{EnvironmentOptions, RewardRule, SnapshotUse};
pub use tasks::{RemoteTask, TaskList};

use crate::benchmark::{Benchmark, SplitInfo, Task};
use crate::environment::{Actions, Environment};
use crate::error::EnvError;
use crate::expert::Expert;
use crate::names;
use crate::profile::{CommandStyle, Laboratory, Profile, PromptStyle, ScoreScale};
use crate::registry::BenchmarkOptions;

/// What the other side says after a reset or a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the agent is asked to do; `None` where the answer does not say.
    pub task: Option<String>,
    /// What the agent sees.
    pub observation: String,
    /// What it may do now.
    pub actions: Actions,
    /// The reward of this step; 0 where there is none.
    pub reward: f64,
    /// The environment's own score of the state, where it has one. Without it the score is made of the rewards.
    pub score: Option<f64>,
    /// Whether the episode is over.
    pub done: bool,
    /// Whether the task is solved, where the environment says so.
    pub success: Option<bool>,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The environment took it.
    Taken(Answer),
    /// It is not an action of this environment; the agent is told so and the turn counts.
    Refused(String),
}

/// One running episode on the other side. After an error the session is dropped and its process or socket closed.
pub trait Session: Send {
    /// Starts a task from its beginning.
    fn reset(&mut self, task: &RemoteTask) -> Result<Answer, EnvError>;

    /// Carries out one action.
    fn step(&mut self, action: &str) -> Result<Outcome, EnvError>;

    /// Saves the state where the other side can; what is returned can be restored in any session of the connector.
    fn snapshot(&mut self) -> Result<Option<Value>, EnvError>;

    /// Puts a saved state back.
    fn restore(&mut self, state: &Value) -> Result<Answer, EnvError>;
}

/// Opens sessions.
pub trait Connector: Send + Sync {
    /// The name of the protocol, for messages.
    fn protocol(&self) -> &'static str;

    /// Opens a session.
    fn connect(&self) -> Result<Box<dyn Session>, EnvError>;

    /// How many sessions are worth keeping open between episodes.
    fn spare_sessions(&self) -> usize;
}

/// What happened so far, for `lens env check` and a run's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteReport {
    /// Sessions opened.
    pub sessions: u64,
    /// States put back by the other side's snapshots.
    pub restored: u64,
    /// States put back by replaying.
    pub replayed: u64,
    /// Restores that came out different: the environment is not repeatable.
    pub not_repeatable: u64,
    /// Actions that were refused before they reached the environment.
    pub refused_actions: u64,
    /// Sessions lost to a failure.
    pub failures: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    sessions: AtomicU64,
    restored: AtomicU64,
    replayed: AtomicU64,
    not_repeatable: AtomicU64,
    refused_actions: AtomicU64,
    failures: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A benchmark whose environments run elsewhere.
pub struct RemoteBenchmark {
    profile: Profile,
    tasks: TaskList,
    options: EnvironmentOptions,
    connector: Box<dyn Connector>,
    spare: Mutex<Vec<Box<dyn Session>>>,
    counters: Counters,
}

impl RemoteBenchmark {
    /// A benchmark with these tasks.
    pub fn new(
        profile: Profile,
        tasks: TaskList,
        options: EnvironmentOptions,
        connector: Box<dyn Connector>,
    ) -> Self {
        let (spare, counters) = (Mutex::default(), Counters::default());
        Self { profile, tasks, options, connector, spare, counters }
    }

    /// What happened so far.
    pub fn report(&self) -> RemoteReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteReport {
            sessions: read(&self.counters.sessions),
            restored: read(&self.counters.restored),
            replayed: read(&self.counters.replayed),
            not_repeatable: read(&self.counters.not_repeatable),
            refused_actions: read(&self.counters.refused_actions),
            failures: read(&self.counters.failures),
        }
    }

    /// An environment of its own type.
    pub fn play(self: &Arc<Self>) -> RemoteEnvironment {
        RemoteEnvironment::new(Arc::clone(self))
    }

    fn session(&self) -> Result<Box<dyn Session>, EnvError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(session) = spare {
            return Ok(session);
        }
        count(&self.counters.sessions);
        self.connector.connect()
    }

    fn keep(&self, session: Box<dyn Session>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.connector.spare_sessions() {
            spare.push(session);
        }
    }

    fn task(&self, task: &Task) -> Result<Arc<RemoteTask>, EnvError> {
        self.tasks.find(&task.id).ok_or_else(|| EnvError::Unknown {
            what: "task",
            name: task.id.clone(),
            benchmark: self.profile.name.to_string(),
            hint: "tasks are named by the environment or its task file".to_owned(),
        })
    }
}

impl Benchmark for RemoteBenchmark {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn splits(&self) -> Vec<SplitInfo> {
        self.tasks.splits()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.tasks.of_split(split).ok_or_else(|| EnvError::Unknown {
            what: "split",
            name: split.to_owned(),
            benchmark: self.profile.name.to_string(),
            hint: format!(
                "there are {}",
                self.splits().into_iter().map(|split| split.name).collect::<Vec<_>>().join(", ")
            ),
        })
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.play()))
    }

    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        Ok(self.task(task)?.reference_actions.clone())
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        None
    }
}

/// The profile of a protocol, before an environment has said more about itself.
pub(crate) const fn profile(name: &'static str, summary: &'static str) -> Profile {
    Profile {
        name: Cow::Borrowed(name),
        summary: Cow::Borrowed(summary),
        turn_limit: 30,
        train_split: Cow::Borrowed("train"),
        eval_splits: names!["test"],
        pooled_splits: names![],
        history: 2,
        prompt: PromptStyle {
            template: Cow::Borrowed(include_str!("prompt.txt")),
            commands: CommandStyle::Quoted,
            hidden_commands: names![],
            fold_history: false,
        },
        score: ScoreScale::None,
        laboratory: Laboratory {
            expert: false,
            train_split: Cow::Borrowed("train"),
            held_out_split: Cow::Borrowed("test"),
            kinds: names![],
            numbered_names: false,
            marked_pages: false,
            generated: false,
        },
    }
}

/// Opens an environment by the options of the list of benchmarks. Goals and seeds mean nothing to it.
pub(crate) fn open_listed(
    profile: &Profile,
    options: &BenchmarkOptions,
    open: fn(&EnvironmentOptions) -> Result<Arc<RemoteBenchmark>, EnvError>,
) -> Result<Arc<dyn Benchmark>, EnvError> {
    options.without_goals(profile)?;
    options.without_seed(profile)?;
    Ok(open(&options.environment)?)
}

/// The tasks of the file that the options name, or those that `listed` finds.
pub(crate) fn tasks(
    options: &EnvironmentOptions,
    listed: impl FnOnce() -> Result<Option<TaskList>, EnvError>,
) -> Result<TaskList, EnvError> {
    if let Some(path) = &options.tasks {
        return TaskList::read(path);
    }
    listed()?.filter(|tasks| !tasks.is_empty()).ok_or_else(|| EnvError::Setting {
        key: "environment.tasks".to_owned(),
        message:
            "the environment lists no tasks; give a file with one JSON object per line, such as \
                  {\"id\": \"1\", \"split\": \"train\", \"reset\": {\"seed\": 1}}"
                .to_owned(),
    })
}

/// A failure of the other side.
pub(crate) fn failed(backend: &'static str, message: impl Into<String>) -> EnvError {
    EnvError::Backend { backend, message: message.into() }
}
