//! Experts that write demonstrations: they see what an agent's prompt shows and nothing else.

use crate::environment::Actions;

/// One earlier step as the prompt shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastStep {
    /// The step's number, counted from 0.
    pub step: usize,
    /// What was seen before acting.
    pub observation: String,
    /// What was done.
    pub action: String,
}

/// What an agent's prompt shows: the task, the latest steps, the present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// What the agent is asked to do.
    pub task: String,
    /// The latest steps, oldest first; the paper shows two.
    pub history: Vec<PastStep>,
    /// Steps taken so far.
    pub steps_taken: usize,
    /// The environment's latest text.
    pub observation: String,
    /// What may be done now.
    pub actions: Actions,
}

/// What an expert would do and why, in one short sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The reason, in words an agent could have written.
    pub thought: String,
    /// The action.
    pub action: String,
}

/// A player whose next action is a function of the window alone, so that a model can learn to imitate it.
pub trait Expert: Send {
    /// The next action, or `None` where the expert is at a loss.
    fn decide(&self, window: &Window) -> Option<Decision>;
}
