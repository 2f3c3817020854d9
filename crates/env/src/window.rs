//! What an agent's prompt shows of an episode.

use crate::environment::{Actions, View};

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

/// The task, the latest steps, the present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// What the agent is asked to do.
    pub task: String,
    /// The latest steps, oldest first.
    pub history: Vec<PastStep>,
    /// Steps taken so far.
    pub steps_taken: usize,
    /// The environment's latest text.
    pub observation: String,
    /// What may be done now.
    pub actions: Actions,
}

impl Window {
    /// The window at `view` with at most `length` of the steps before it.
    pub fn new(view: &View, past: &[PastStep], length: usize) -> Self {
        Self {
            task: view.task.clone(),
            history: past[past.len().saturating_sub(length)..].to_vec(),
            steps_taken: view.turn,
            observation: view.observation.clone(),
            actions: view.actions.clone(),
        }
    }
}
