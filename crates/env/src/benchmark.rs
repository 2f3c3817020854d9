//! The immutable part of a benchmark: its tasks and splits.

use std::sync::Arc;

use crate::environment::{Environment, View};
use crate::error::EnvError;
use crate::expert::Expert;
use crate::profile::Profile;

/// One task of a benchmark.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Task {
    /// The task's name, unique in its benchmark (a game's path, a session number, a task and variation).
    pub id: String,
    /// The kind of task, for tables per type.
    pub kind: String,
}

/// A named list of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitInfo {
    /// The split's name, as used on the command line and in configurations.
    pub name: String,
    /// How many tasks it has.
    pub tasks: usize,
}

/// Games, catalogs and splits, shared by any number of running episodes.
pub trait Benchmark: Send + Sync {
    /// What is fixed about this benchmark: name, splits, limits, prompt, score.
    fn profile(&self) -> &Profile;

    /// The splits there are.
    fn splits(&self) -> Vec<SplitInfo>;

    /// A split's tasks, in their fixed order.
    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError>;

    /// A fresh environment; call `reset` on it before anything else.
    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError>;

    /// Actions that are known to solve the task, where the benchmark has them (TCOD-B2F, FutureBridge).
    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError>;

    /// Whether the environment would carry out `action` at `view`, as far as the view can tell.
    fn admits(&self, view: &View, action: &str) -> bool {
        view.actions.admit(action)
    }

    /// An expert that plays from what an agent sees, where the benchmark has one.
    fn expert(&self) -> Option<Box<dyn Expert>>;
}
