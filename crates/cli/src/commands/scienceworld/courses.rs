//! Courses through tasks, the same for both sides of a comparison.

use std::sync::Arc;

use lens_env::scienceworld::ScienceWorld;
use lens_env::scienceworld::catalog::TaskType;
use lens_env::{Environment, Status};
use lens_opd::random::{Purpose, StreamKey};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Tasks of eight kinds, in different rooms and with small and large lists of valid actions.
const TASKS: [(&str, i32); 8] = [
    ("boil", 0),
    ("use-thermometer", 7),
    ("power-component", 1),
    ("find-plant", 3),
    ("grow-plant", 2),
    ("chemistry-mix", 4),
    ("lifespan-shortest-lived", 5),
    ("mendelian-genetics-known-plant", 6),
];

/// A task and what to do in it.
#[derive(Debug, Clone)]
pub(super) struct Course {
    pub(super) kind: &'static TaskType,
    pub(super) variation: i32,
    pub(super) actions: Vec<String>,
}

impl Course {
    /// The first `length` actions.
    pub(super) fn prefix(&self, length: usize) -> Self {
        let actions = self.actions.iter().take(length).cloned().collect();
        Self { actions, ..self.clone() }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "task": self.kind.name, "variation": self.variation, "actions": self.actions })
    }
}

/// Walks at random among the valid actions, without those that end an episode or take much time.
pub(super) fn walk(benchmark: &Arc<ScienceWorld>, turns: usize) -> Result<Vec<Course>, Failure> {
    let mut courses = Vec::new();
    for (number, (name, variation)) in TASKS.into_iter().enumerate() {
        let kind = TaskType::find(name)
            .ok_or_else(|| Failure::user(format!("there is no task {name}")))?;
        let mut stream = StreamKey::new(0, 0, number as u64, Purpose::Rollout, 0).open();
        let mut environment = benchmark.scienceworld_environment();
        let mut view = environment.reset(&kind.task(variation))?;
        let mut actions = Vec::new();
        while actions.len() < turns && view.status == Status::Running {
            let valid = environment.valid_actions()?;
            let harmless: Vec<&String> = valid
                .iter()
                .filter(|action| {
                    !["focus", "reset", "wait"].iter().any(|word| action.starts_with(word))
                })
                .collect();
            let choice = stream.below(harmless.len() as u64).unwrap_or(0) as usize;
            let action =
                harmless.get(choice).map_or("look around", |action| action.as_str()).to_owned();
            view = environment.step(&action)?;
            actions.push(action);
        }
        courses.push(Course { kind, variation, actions });
    }
    Ok(courses)
}
