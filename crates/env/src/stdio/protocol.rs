//! The messages.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Actions;
use crate::profile::ScoreScale;
use crate::remote::Answer;
use crate::remote::tasks::TaskLine;

/// What we say, one line each.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Request<'a> {
    /// Who are you?
    Hello { version: u32 },
    /// Which tasks are there?
    Tasks,
    /// Start a task.
    Reset { task: &'a str, data: &'a Map<String, Value> },
    /// Act.
    Step { action: &'a str },
    /// Save the state.
    Snapshot,
    /// Put a state back.
    Restore { state: &'a Value },
}

/// What the program says, one line each. Unknown keys are ignored, so that a program can say more.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Reply {
    /// What the program can do.
    Hello(Hello),
    /// Its tasks.
    Tasks { tasks: Vec<TaskLine> },
    /// What the agent sees.
    View(View),
    /// A state, kept by us and given back as it is.
    Snapshot { state: Value },
    /// What went wrong; the process is not used any further.
    Error { message: String },
}

impl Reply {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Tasks { .. } => "tasks",
            Self::View(_) => "view",
            Self::Snapshot { .. } => "snapshot",
            Self::Error { .. } => "error",
        }
    }
}

/// What a program can do.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// Whether it answers `snapshot` and `restore`.
    #[serde(default)]
    pub(super) snapshot: bool,
    /// The longest episode.
    #[serde(default)]
    pub(super) turn_limit: Option<usize>,
    /// What its score means.
    #[serde(default)]
    pub(super) score: Option<ScoreScale>,
}

/// What the agent sees.
#[derive(Debug, Deserialize)]
pub(super) struct View {
    #[serde(default)]
    task: Option<String>,
    observation: String,
    /// The commands to choose from; `null` or nothing means any text.
    #[serde(default)]
    actions: Option<Vec<String>>,
    #[serde(default)]
    score: Option<f64>,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    success: Option<bool>,
}

impl From<View> for Answer {
    fn from(view: View) -> Self {
        Self {
            task: view.task,
            observation: view.observation,
            actions: view.actions.map_or(Actions::Free, Actions::Commands),
            reward: 0.0,
            // A program without a score is judged by `success` alone.
            score: Some(view.score.unwrap_or(f64::from(u8::from(view.success == Some(true))))),
            done: view.done,
            success: view.success,
        }
    }
}
