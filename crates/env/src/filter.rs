//! A benchmark narrowed to some kinds of task.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::benchmark::{Benchmark, SplitInfo, Task};
use crate::environment::{Environment, View};
use crate::error::EnvError;
use crate::expert::Expert;
use crate::profile::Profile;

/// A benchmark that offers only the tasks of some kinds; everything else is the whole benchmark's.
pub struct TaskFilter {
    whole: Arc<dyn Benchmark>,
    kinds: BTreeSet<String>,
}

impl TaskFilter {
    /// Keeps the tasks of `kinds`. A kind that no split has is refused by name.
    pub fn new(whole: Arc<dyn Benchmark>, kinds: &[String]) -> Result<Self, EnvError> {
        let mut known = BTreeSet::new();
        for split in whole.splits() {
            known.extend(whole.tasks(&split.name)?.into_iter().map(|task| task.kind));
        }
        match kinds.iter().find(|kind| !known.contains(*kind)) {
            None => Ok(Self { whole, kinds: kinds.iter().cloned().collect() }),
            Some(unknown) => Err(EnvError::Unknown {
                what: "kind of task",
                name: unknown.clone(),
                benchmark: whole.profile().name.to_string(),
                hint: format!("it has {}", known.into_iter().collect::<Vec<_>>().join(", ")),
            }),
        }
    }
}

impl Benchmark for TaskFilter {
    fn profile(&self) -> &Profile {
        self.whole.profile()
    }

    fn splits(&self) -> Vec<SplitInfo> {
        let narrowed = |split: SplitInfo| {
            let tasks = self.tasks(&split.name).map_or(0, |tasks| tasks.len());
            SplitInfo { tasks, ..split }
        };
        self.whole.splits().into_iter().map(narrowed).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let mut tasks = self.whole.tasks(split)?;
        tasks.retain(|task| self.kinds.contains(&task.kind));
        Ok(tasks)
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        self.whole.clone().environment()
    }

    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        self.whole.reference_actions(task)
    }

    fn admits(&self, view: &View, action: &str) -> bool {
        self.whole.admits(view, action)
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        self.whole.expert()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alfworld::{Alfworld, Options};

    fn narrowed(kinds: &[&str]) -> Result<TaskFilter, EnvError> {
        let whole = Arc::new(Alfworld::built_in(&Options::default())?);
        TaskFilter::new(whole, &kinds.iter().map(|&kind| kind.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_tasks_of_the_kinds_are_left() {
        let kinds = ["look_at_obj_in_light", "pick_and_place_simple"];
        let two = narrowed(&kinds).unwrap();
        let tasks = two.tasks("train").unwrap();
        assert!(tasks.iter().all(|task| kinds.contains(&task.kind.as_str())));
        let one: usize = kinds
            .iter()
            .map(|&kind| narrowed(&[kind]).unwrap().tasks("train").unwrap().len())
            .sum();
        assert_eq!(tasks.len(), one);
        assert!(two.splits().iter().any(|split| split.name == "train" && split.tasks == one));
        let mut environment = Arc::new(two).environment().unwrap();
        assert!(environment.reset(&tasks[0]).is_ok());
    }

    #[test]
    fn an_unknown_kind_is_named() {
        let error = narrowed(&["pick_and_plaice"]).err().expect("refused").to_string();
        assert!(
            error.contains("pick_and_plaice") && error.contains("pick_and_place_simple"),
            "{error}"
        );
    }
}
