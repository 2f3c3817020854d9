//! What differs between two configurations, and what may differ when a run is resumed.

use toml::Value;

use crate::schema::Config;

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key, dotted.
    pub key: String,
    /// The value before, as TOML; "unset" if there was none.
    pub before: String,
    /// The value after.
    pub after: String,
}

/// Keys a resumed run may change: how long it goes on, how often it looks, where files lie, how fast it is. The contents
/// of files are checked by hash.
const ALLOWED: &[&str] = &[
    "name",
    "output",
    "seeds",
    "threads",
    "memory.budget",
    "task.data",
    "task.references",
    "prompt.template",
    "student.path",
    "teacher.path",
    "student.urls",
    "student.key_env",
    "student.key_file",
    "student.concurrency",
    "student.timeout_seconds",
    "student.tensor_parallel",
    "student.memory_share",
    "student.flags",
    "teacher.urls",
    "teacher.key_env",
    "teacher.key_file",
    "teacher.concurrency",
    "teacher.timeout_seconds",
    "teacher.tensor_parallel",
    "teacher.memory_share",
    "teacher.flags",
    "learner.url",
    "learner.key_env",
    "learner.key_file",
    "learner.weights",
    "learner.transfer",
    "learner.gpus",
    "learner.tokens_per_gpu",
    "learner.flags",
    "learner.timeout_seconds",
    "rollout.timeout_seconds",
    "train.steps",
    "train.budget_tokens",
    "train.save_interval",
    "train.eval_interval",
    "train.keep_checkpoints",
    "train.max_skipped_steps",
    "train.recompute",
    "eval.workers",
    "eval.timeout_seconds",
];

impl Change {
    /// Whether a resumed run may have it.
    pub fn is_allowed(&self) -> bool {
        ALLOWED.contains(&self.key.as_str())
    }
}

/// Every key whose value differs, in the configuration's order.
pub fn between(before: &Config, after: &Config) -> Vec<Change> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    flatten(Value::try_from(before).ok(), String::new(), &mut old);
    flatten(Value::try_from(after).ok(), String::new(), &mut new);
    let value = |list: &[(String, String)], key: &str| {
        let found = list.iter().find(|(name, _)| name == key);
        found.map_or_else(|| "unset".to_owned(), |(_, value)| value.clone())
    };
    let gone = old.iter().filter(|(key, _)| !new.iter().any(|(name, _)| name == key));
    let keys = new.iter().chain(gone).map(|(key, _)| key.clone());
    let changes =
        keys.map(|key| Change { before: value(&old, &key), after: value(&new, &key), key });
    changes.filter(|change| change.before != change.after).collect()
}

fn flatten(value: Option<Value>, path: String, leaves: &mut Vec<(String, String)>) {
    match value {
        Some(Value::Table(table)) => {
            for (key, value) in table {
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(Some(value), path, leaves);
            }
        }
        Some(value) => leaves.push((path, value.to_string())),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_listed_and_only_some_are_allowed() {
        let before = Config::default();
        let mut after = before.clone();
        after.train.steps = 300;
        after.methods.locate.floor = Some(-9.0);
        let found = between(&before, &after);
        let keys: Vec<(&str, bool)> =
            found.iter().map(|change| (change.key.as_str(), change.is_allowed())).collect();
        assert_eq!(keys, [("locate.floor", false), ("train.steps", true)]);
        assert_eq!((found[0].before.as_str(), found[1].after.as_str()), ("unset", "300"));
        assert!(between(&after, &after).is_empty());
    }
}
