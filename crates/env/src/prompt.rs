//! A prompt of the user's own: a template of one turn's message, in a file.
//!
//! The template has the slots of the built-in prompts under the same names, and the same things as lists for templates
//! that write them differently. A template that reads anything else, or cannot be rendered, is refused before a run
//! starts, with its line.

use std::path::{Path, PathBuf};

use minijinja::Error;
use serde_json::{Value, json};

use crate::error::EnvError;
use crate::template::Template;

/// The configuration key that names the file.
const KEY: &str = "prompt.template";
/// The longest template.
const LONGEST: u64 = 1 << 20;
/// Names every template may use.
const BUILT_IN: [&str; 5] = ["range", "dict", "namespace", "debug", "loop"];

/// A checked template of a turn's message.
#[derive(Debug, Clone)]
pub struct PromptTemplate {
    path: PathBuf,
    template: Template,
}

/// What a template sees: texts as the built-in prompts write them, then lists.
fn example(history: bool, listed: bool) -> Value {
    let step = json!({"step": 1, "observation": "You see a mug.", "action": "look"});
    let list = |items: &[&str]| if listed { json!(items) } else { json!([]) };
    json!({
        "task_description": "put a mug on the desk.",
        "step_count": 1,
        "history_length": 1,
        "action_history": "[Observation 1: 'You see a mug.', Action 1: 'look']",
        "current_step": 2,
        "current_observation": "You see a desk.",
        "admissible_actions": "'look'",
        "available_actions": "'look'",
        "action_templates": "open OBJ",
        "objects": "door",
        "history": if history { json!([step]) } else { json!([]) },
        "commands": list(&["look"]),
        "templates": list(&["open OBJ"]),
        "object_list": list(&["door"]),
    })
}

impl PromptTemplate {
    /// Reads and checks a template. Errors name the file and the line.
    pub fn read(path: &Path) -> Result<Self, EnvError> {
        let failed =
            |error: std::io::Error| refuse(path, None, &format!("cannot be read: {error}"));
        if std::fs::metadata(path).map_err(failed)?.len() > LONGEST {
            return Err(refuse(path, None, "it is longer than 1 MiB"));
        }
        let source = crate::files::text(path)?;
        Self::new(path, &source)
    }

    /// Checks a template that is at hand as text; `path` is what errors call it.
    pub fn new(path: &Path, source: &str) -> Result<Self, EnvError> {
        // An editor ends the last line; a prompt does not.
        let source = source.trim_end_matches('\n');
        let wrong = |error: Error| refuse(path, error.line(), &plain(&error));
        let template = Template::strict(source).map_err(wrong)?;
        let known = example(true, true);
        for name in template.names().map_err(wrong)? {
            if known.get(&name).is_none() && !BUILT_IN.contains(&name.as_str()) {
                let names: Vec<&str> = known
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                let message = format!("there is no `{name}`; there are {}", names.join(", "));
                return Err(refuse(path, line_with(source, &name), &message));
            }
        }
        for (history, listed) in [(true, true), (false, false)] {
            template.render(&example(history, listed)).map_err(wrong)?;
        }
        Ok(Self { path: path.to_owned(), template })
    }

    /// The message for the values of a turn.
    pub fn render(&self, values: &Value) -> Result<String, EnvError> {
        self.template
            .render(values)
            .map_err(|error| refuse(&self.path, error.line(), &plain(&error)))
    }
}

fn refuse(path: &Path, line: Option<usize>, message: &str) -> EnvError {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    EnvError::Setting {
        key: KEY.to_owned(),
        message: format!("{}{line}: {message}", path.display()),
    }
}

/// The error without the place, which is said apart.
fn plain(error: &Error) -> String {
    let kind = error.kind().to_string();
    error.detail().map_or_else(|| kind.clone(), |detail| format!("{kind}: {detail}"))
}

/// The first line that names a variable.
fn line_with(source: &str, name: &str) -> Option<usize> {
    let mut lines = (1..).zip(source.lines());
    lines.find(|(_, line)| line.contains(name)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(source: &str) -> Result<PromptTemplate, EnvError> {
        PromptTemplate::new(Path::new("mine.jinja"), source)
    }

    #[test]
    fn a_faulty_template_is_refused_with_key_file_and_line() {
        for (source, words) in [
            ("Do this:\n{{ task_description", "prompt.template: mine.jinja:2: syntax error"),
            ("a\nb\n{{ task }}", "prompt.template: mine.jinja:3: there is no `task`; there are"),
            ("a\n{{ history[0].seen }}", "prompt.template: mine.jinja:2: undefined value"),
            ("{% include 'other' %}", "prompt.template: mine.jinja:1: template not found"),
            (
                "a\n{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                "engine ran out of fuel",
            ),
        ] {
            let error = checked(source).unwrap_err().to_string();
            assert!(error.contains(words), "{source:?}: {error}");
        }
    }

    #[test]
    fn lists_are_there_for_templates_that_write_them_differently() {
        let template = checked(
            "{% for past in history %}{{ past.step }}. {{ past.action }}\n{% endfor %}{{ commands | tojson }}",
        )
        .unwrap();
        assert_eq!(template.render(&example(true, true)).unwrap(), "1. look\n[\"look\"]");
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let error = PromptTemplate::read(Path::new("nowhere/mine.jinja")).unwrap_err();
        assert!(error.to_string().contains("nowhere/mine.jinja"), "{error}");
    }
}
