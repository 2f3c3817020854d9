//! The tasks of an environment in another process: listed by it, or read from a file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::benchmark::{SplitInfo, Task};
use crate::error::EnvError;

/// The longest task file that is read.
const LARGEST_FILE: u64 = 256 << 20;

/// A task with what a reset needs.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTask {
    /// Its name and kind.
    pub task: Task,
    /// What the agent is asked to do, where the list says so.
    pub text: Option<String>,
    /// What the environment is reset with.
    pub reset: Map<String, Value>,
    /// Actions known to solve it.
    pub reference_actions: Option<Vec<String>>,
}

/// One line of a task file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskLine {
    /// The task's name, unique in the file.
    pub id: String,
    /// The kind of task, for tables.
    #[serde(default = "any_kind")]
    pub kind: String,
    /// The split it belongs to.
    #[serde(default = "train")]
    pub split: String,
    /// What the agent is asked to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What the environment is reset with.
    #[serde(default)]
    pub reset: Map<String, Value>,
    /// Actions known to solve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
}

/// The kind of a task that has none.
pub(crate) const ANY_KIND: &str = "task";

fn any_kind() -> String {
    ANY_KIND.to_owned()
}

fn train() -> String {
    "train".to_owned()
}

/// Tasks by split, in a fixed order.
#[derive(Debug, Clone, Default)]
pub struct TaskList {
    splits: Vec<(String, Vec<Arc<RemoteTask>>)>,
    by_id: HashMap<String, Arc<RemoteTask>>,
}

impl TaskList {
    /// Reads a task file.
    pub fn read(path: &Path) -> Result<Self, EnvError> {
        let read = |source| EnvError::Read { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(read)?.len();
        let malformed = |line, message: String| EnvError::Malformed {
            path: path.display().to_string(),
            line,
            message,
        };
        if size > LARGEST_FILE {
            return Err(malformed(None, format!("{size} bytes are too many for a task file")));
        }
        let text = crate::files::text(path)?;
        let mut list = Self::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let line: TaskLine = serde_json::from_str(line)
                .map_err(|error| malformed(Some(number), format!("not a task: {error}")))?;
            list.add(line).map_err(|message| malformed(Some(number), message))?;
        }
        if list.by_id.is_empty() {
            return Err(malformed(
                None,
                "it has no tasks; give one JSON object per line".to_owned(),
            ));
        }
        Ok(list)
    }

    /// Adds a task. The error says why it cannot be one.
    pub fn add(&mut self, line: TaskLine) -> Result<(), String> {
        if self.by_id.contains_key(&line.id) {
            return Err(format!("the task {:?} is there already; ids are unique", line.id));
        }
        let task = Arc::new(RemoteTask {
            task: Task { id: line.id.clone(), kind: line.kind },
            text: line.task,
            reset: line.reset,
            reference_actions: line.actions,
        });
        match self.splits.iter_mut().find(|(split, _)| *split == line.split) {
            Some((_, tasks)) => tasks.push(Arc::clone(&task)),
            None => self.splits.push((line.split, vec![Arc::clone(&task)])),
        }
        self.by_id.insert(line.id, task);
        Ok(())
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The splits and their sizes.
    pub fn splits(&self) -> Vec<SplitInfo> {
        let info =
            |(name, tasks): &(String, Vec<_>)| SplitInfo { name: name.clone(), tasks: tasks.len() };
        self.splits.iter().map(info).collect()
    }

    /// A split's tasks.
    pub fn of_split(&self, split: &str) -> Option<Vec<Task>> {
        let (_, tasks) = self.splits.iter().find(|(name, _)| name == split)?;
        Some(tasks.iter().map(|task| task.task.clone()).collect())
    }

    /// The task of that name.
    pub fn find(&self, id: &str) -> Option<Arc<RemoteTask>> {
        self.by_id.get(id).cloned()
    }

    /// The split to train on and those to evaluate on, where the names tell: `train`, and everything else.
    pub fn usual_splits(&self) -> (String, Vec<String>) {
        let names: Vec<&str> = self.splits.iter().map(|(name, _)| name.as_str()).collect();
        let first = names.first().copied().unwrap_or("train");
        let training = if names.contains(&"train") { "train" } else { first };
        let others: HashSet<&str> =
            names.iter().copied().filter(|name| *name != training).collect();
        let mut rest: Vec<String> =
            names.iter().filter(|name| others.contains(**name)).map(ToString::to_string).collect();
        if rest.is_empty() {
            rest.push(training.to_owned());
        }
        (training.to_owned(), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TaskList, EnvError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, text).unwrap();
        TaskList::read(&path)
    }

    #[test]
    fn tasks_keep_their_order_and_splits() {
        let list = read(concat!(
            r#"{"id": "a", "kind": "easy", "reset": {"seed": 1}}"#,
            "\n\n",
            r#"{"id": "b", "split": "test", "task": "Do b.", "actions": ["go"]}"#,
            "\n"
        ))
        .unwrap();
        assert_eq!(list.usual_splits(), ("train".to_owned(), vec!["test".to_owned()]));
        assert_eq!(list.of_split("train").unwrap()[0].kind, "easy");
        let b = list.find("b").unwrap();
        assert_eq!((b.text.as_deref(), b.task.kind.as_str()), (Some("Do b."), ANY_KIND));
        assert!(list.of_split("dev").is_none() && list.find("c").is_none());
    }

    #[test]
    fn errors_name_the_line() {
        for (text, wanted) in [
            ("{\"id\": \"a\"}\n{\"id\": \"a\"}\n", ":2: the task \"a\" is there already"),
            ("{\"id\": \"a\"}\n{\"name\": \"b\"}\n", ":2: not a task: unknown field"),
            ("\n", ": it has no tasks"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
