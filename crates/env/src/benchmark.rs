//! The immutable part of a benchmark: its tasks and splits.

use std::sync::Arc;

use crate::environment::Environment;
use crate::error::EnvError;
use crate::expert::Expert;

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

/// Games, catalogues and splits, shared by any number of running episodes.
pub trait Benchmark: Send + Sync {
    /// The benchmark's name: "alfworld", "webshop", "scienceworld", ...
    fn name(&self) -> &str;

    /// The longest episode the paper allows on this benchmark (30, 15, 30).
    fn default_turn_limit(&self) -> usize;

    /// The splits there are.
    fn splits(&self) -> Vec<SplitInfo>;

    /// A split's tasks, in their fixed order.
    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError>;

    /// A fresh environment; call `reset` on it before anything else.
    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError>;

    /// Actions that are known to solve the task, where the benchmark has them (TCOD-B2F, FutureBridge).
    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError>;

    /// An expert that plays from what an agent sees, where the benchmark has one.
    fn expert(&self) -> Option<Box<dyn Expert>>;
}
