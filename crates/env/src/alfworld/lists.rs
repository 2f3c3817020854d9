//! TCOD's task lists: the Hard games, and a successful action list for most training games.

use std::collections::HashMap;
use std::path::Path;

use crate::{EnvError, files};

/// The lists' file names, and the splits they describe.
const FILES: [(&str, &str); 4] = [
    ("train_expert.jsonl", "train"),
    ("train_hard.jsonl", "hard"),
    ("test.jsonl", "valid_seen"),
    ("test_unseen.jsonl", "valid_unseen"),
];

/// What TCOD's lists say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// The splits that were found, with the ids of their games in the lists' order.
    pub splits: Vec<(String, Vec<String>)>,
    /// For the training games, TCOD's successful actions; empty for games on which its teacher failed.
    pub actions: HashMap<String, Vec<String>>,
}

#[derive(serde::Deserialize)]
struct Line {
    game_file: String,
    actions: Option<Vec<String>>,
}

impl Lists {
    /// Reads whichever of the four files the folder has. None at all is an error.
    pub fn read(folder: &Path) -> Result<Self, EnvError> {
        let mut lists = Self::default();
        for (file, split) in FILES {
            let path = folder.join(file);
            let text = match files::text(&path) {
                Ok(text) => text,
                Err(EnvError::Read { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut ids = Vec::new();
            for (index, text) in
                text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty())
            {
                let line: Line = serde_json::from_str(text).map_err(|error| EnvError::Malformed {
                    path: path.display().to_string(),
                    line: Some(index + 1),
                    message: format!("not a line of a task list ({error}); expected {{\"game_file\": ..., \"actions\": [...]}}"),
                })?;
                let id = line.game_file.strip_suffix("/game.tw-pddl").unwrap_or(&line.game_file);
                let mut folders: Vec<&str> = id.rsplit('/').take(3).collect();
                folders.reverse();
                let id = folders.join("/");
                if let Some(actions) = line.actions {
                    lists.actions.insert(id.clone(), actions);
                }
                ids.push(id);
            }
            lists.splits.push((split.to_owned(), ids));
        }
        if lists.splits.is_empty() {
            return Err(EnvError::Missing {
                what: format!("a task list in {}", folder.display()),
                hint: format!(
                    "the folder should have one of {} (TCOD's repository has them under TCOD_examples/alfworld/alfworld_data)",
                    FILES.map(|(file, _)| file).join(", ")
                ),
            });
        }
        Ok(lists)
    }
}
