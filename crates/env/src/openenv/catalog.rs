//! What a server says over HTTP: where its socket is, and its tasks.

use serde_json::{Value, json};

use super::PROTOCOL;
use crate::error::EnvError;
use crate::remote::failed;
use crate::remote::http::Http;
use crate::remote::tasks::{ANY_KIND, TaskLine, TaskList};

/// Tasks asked for at a time where the list is only a preview.
const PAGE: usize = 1000;
/// The most tasks of a split that are taken.
const MOST_TASKS: usize = 1_000_000;

/// The address of the socket.
pub(super) fn socket_address(http: &Http) -> String {
    let (scheme, rest) = http.base().split_once("://").unwrap_or(("http", http.base()));
    let scheme = if scheme == "https" || scheme == "wss" { "wss" } else { "ws" };
    format!("{scheme}://{rest}/ws")
}

/// The tasks of the server's Task API; `None` where it has none.
pub(super) fn tasks(http: &Http) -> Result<Option<TaskList>, EnvError> {
    let Some(names) = http.get("/list_environments")? else { return Ok(None) };
    let Some(name) = names[0].as_str() else { return Ok(None) };
    let Some(splits) = http.get(&format!("/{name}/splits"))? else { return Ok(None) };
    let mut list = TaskList::default();
    for split in splits.as_array().into_iter().flatten() {
        let Some(split) = split["name"].as_str().or(split.as_str()) else { continue };
        for (index, task) in tasks_of(http, name, split)?.iter().enumerate() {
            let line = task_line(split, index, task);
            // Names need only be unique in their split there.
            let again = TaskLine { id: format!("{split}/{}", line.id), ..line.clone() };
            list.add(line).or_else(|_| list.add(again)).map_err(|why| failed(PROTOCOL, why))?;
        }
    }
    Ok((!list.is_empty()).then_some(list))
}

/// All tasks of a split; the list itself may be a preview.
fn tasks_of(http: &Http, name: &str, split: &str) -> Result<Vec<Value>, EnvError> {
    let ask = |route: &str, body: &Value| {
        http.post(&format!("/{name}/{route}"), body).map(Option::unwrap_or_default)
    };
    let listed = ask("tasks", &json!({"split": split}))?;
    let mut tasks = listed["tasks"].as_array().cloned().unwrap_or_default();
    let count = ask("num_tasks", &json!({"split": split}))?["num_tasks"].as_u64();
    let count = count.unwrap_or(tasks.len() as u64).min(MOST_TASKS as u64) as usize;
    while tasks.len() < count {
        let stop = (tasks.len() + PAGE).min(count);
        let range = json!({"split": split, "start": tasks.len(), "stop": stop});
        match ask("task_range", &range)?["tasks"].as_array() {
            Some(more) if !more.is_empty() => tasks.extend(more.iter().cloned()),
            _ => break,
        }
    }
    Ok(tasks)
}

/// A task of the Task API: any JSON, chosen by its split and index. The seed makes episodes repeatable where the
/// environment uses one.
fn task_line(split: &str, index: usize, task: &Value) -> TaskLine {
    let text = |key: &str| match &task[key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    TaskLine {
        id: text("id").unwrap_or_else(|| format!("{split}/{index}")),
        kind: text("kind").unwrap_or_else(|| ANY_KIND.to_owned()),
        split: split.to_owned(),
        task: text("task").or_else(|| text("goal")),
        reset: [("split", json!(split)), ("index", json!(index)), ("seed", json!(index))]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        actions: None,
    }
}
