//! Experts that write demonstrations: they see what an agent's prompt shows and nothing else.

use serde::{Deserialize, Serialize};

use crate::window::Window;

/// What an expert would do and why, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The reason, in words an agent could have written.
    pub thought: String,
    /// The action.
    pub action: String,
}

/// How an episode stands at a turn, as far as the window shows it. A laboratory student has its own share of lapses in
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Situation {
    /// Something here is to be handled now.
    Decisive,
    /// What was looked for is not here.
    Search,
    /// What was looked for is at hand and on its way.
    Carry,
    /// The latest step led away from the goal: something was left behind, forgotten, or done to no purpose.
    Lost,
    /// Both of the latest steps changed nothing.
    Stuck,
}

/// A way to decide wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// The right command is overlooked, or a part of the task forgotten.
    Overlook,
    /// The player is confused about what it did and what it holds, and looks around to no purpose.
    Dither,
}

/// A player whose next action is a function of the window alone, so that a model can learn to imitate it.
pub trait Expert: Send {
    /// Returns the next action, or `None` where the expert does not know one.
    fn decide(&self, window: &Window) -> Option<Decision>;

    /// How the episode stands. `None` where the expert does not know, or does not tell situations apart.
    fn situation(&self, _window: &Window) -> Option<Situation> {
        None
    }

    /// What the expert would do in a lapse; never what it decides. `None` where that lapse is not possible here.
    fn lapse(&self, _window: &Window, _lapse: Lapse) -> Option<Decision> {
        None
    }

    /// Other words for phrases of the expert's thoughts, as pairs of its phrase and the other one.
    fn rewordings(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}
