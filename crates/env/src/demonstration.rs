//! Experts at play: what they saw, what they thought, what they did.

use crate::{Decision, EnvError, Environment, Expert, PastStep, Status, Task, View, Window};

/// One step of a demonstration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemonstratedStep {
    /// What the expert saw.
    pub window: Window,
    /// What it did and why.
    pub decision: Decision,
}

/// An expert's episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Demonstration {
    /// The steps.
    pub steps: Vec<DemonstratedStep>,
    /// The view at the end.
    pub last: View,
}

impl Demonstration {
    /// Whether the task was done.
    pub fn success(&self) -> bool {
        self.last.status == (Status::Ended { success: true })
    }
}

/// Lets an expert play a task until it ends, the expert has no answer, or `turn_limit` turns are taken. The expert sees
/// `history` earlier steps.
pub fn demonstrate(
    environment: &mut dyn Environment,
    expert: &dyn Expert,
    task: &Task,
    turn_limit: usize,
    history: usize,
) -> Result<Demonstration, EnvError> {
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut steps = Vec::new();
    while view.status == Status::Running && view.turn < turn_limit {
        let window = Window::new(&view, &past, history);
        let Some(decision) = expert.decide(&window) else { break };
        let next = environment.step(&decision.action)?;
        past.push(PastStep {
            step: view.turn,
            observation: std::mem::take(&mut view.observation),
            action: decision.action.clone(),
        });
        steps.push(DemonstratedStep { window, decision });
        view = next;
    }
    Ok(Demonstration { steps, last: view })
}
