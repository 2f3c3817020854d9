//! The configuration section `[environment]`: how to reach an environment in another process and how to read it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tasks::TaskList;
use crate::error::EnvError;
use crate::profile::{Profile, ScoreScale};
use crate::template::Template;

/// How the text of an action becomes what the environment takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActionFormat {
    /// The text itself, in the one field of the action that holds text.
    #[default]
    Text,
    /// The text is the action as a JSON object.
    Json,
    /// The text is a tool call: `{"name": ..., "arguments": {...}}`.
    Tool,
}

/// How rewards become the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RewardRule {
    /// The sum of all rewards.
    #[default]
    Sum,
    /// The latest reward.
    Last,
}

/// How a state in the middle of an episode is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotUse {
    /// By the environment's own snapshots where it has them, else by replaying.
    #[default]
    Auto,
    /// By replaying always.
    Replay,
}

/// An environment in another process, and how it is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvironmentOptions {
    /// The server's address, such as `http://127.0.0.1:8000` (openenv, agentgym).
    pub url: String,
    /// The program and its arguments (stdio).
    pub command: Vec<String>,
    /// The environment variable that holds the server's access token; empty means none is sent.
    pub token_variable: String,
    /// A file of tasks, one JSON object per line; unset means the environment lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<PathBuf>,
    /// A template for the text of the task, filled in with the first answer; empty means the answer's own `task` or
    /// `goal`.
    pub task: String,
    /// A template for the text of an observation; empty means the observation's only text, or its JSON.
    pub observation: String,
    /// Where an answer lists the admissible actions, as a JSON pointer such as `/observation/legal_actions`; empty means
    /// it lists none.
    pub actions: String,
    /// How the text of an action becomes what the environment takes.
    pub action_format: ActionFormat,
    /// The field of the action that takes the text; empty means the only required text field of the server's schema.
    pub action_field: String,
    /// Where an answer says whether the task is solved, as a JSON pointer; empty means the score decides.
    pub success: String,
    /// The score from which a finished task counts as solved, where the answer does not say.
    pub success_score: f64,
    /// How rewards become the score.
    pub reward: RewardRule,
    /// What the score means.
    pub score: ScoreScale,
    /// Past steps that every prompt shows.
    pub history: usize,
    /// How a state in the middle of an episode is put back.
    pub snapshot: SnapshotUse,
    /// How long a connection, a process start or a free session may take, in seconds.
    pub connect_seconds: f64,
    /// How long an answer may take, in seconds.
    pub answer_seconds: f64,
    /// The largest answer that is read, in MiB.
    pub max_message_mib: usize,
}

impl Default for EnvironmentOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            command: Vec::new(),
            token_variable: String::new(),
            tasks: None,
            task: String::new(),
            observation: String::new(),
            actions: String::new(),
            action_format: ActionFormat::Text,
            action_field: String::new(),
            success: String::new(),
            success_score: 1.0,
            reward: RewardRule::Sum,
            score: ScoreScale::None,
            history: 2,
            snapshot: SnapshotUse::Auto,
            connect_seconds: 10.0,
            answer_seconds: 60.0,
            max_message_mib: 16,
        }
    }
}

fn refuse(key: &str, message: impl Into<String>) -> EnvError {
    EnvError::Setting { key: format!("environment.{key}"), message: message.into() }
}

impl EnvironmentOptions {
    /// Checks what can be checked without reaching the environment; errors name the key.
    pub fn check(&self) -> Result<(), EnvError> {
        for (key, seconds) in
            [("connect_seconds", self.connect_seconds), ("answer_seconds", self.answer_seconds)]
        {
            // `Duration::from_secs_f64` panics beyond its range.
            if !(seconds > 0.0 && seconds <= 1e6) {
                return Err(refuse(key, format!("{seconds} is not between 0 and 1000000 seconds")));
            }
        }
        if !(1..=1024).contains(&self.max_message_mib) {
            return Err(refuse("max_message_mib", "give a number from 1 to 1024"));
        }
        if !self.success_score.is_finite() {
            return Err(refuse("success_score", "give a finite number"));
        }
        for (key, pointer) in [("actions", &self.actions), ("success", &self.success)] {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                return Err(refuse(key, "a JSON pointer starts with `/`"));
            }
        }
        for (key, template) in [("task", &self.task), ("observation", &self.observation)] {
            Template::new(template).map_err(|error| refuse(key, error.to_string()))?;
        }
        if self.action_format != ActionFormat::Text && !self.action_field.is_empty() {
            return Err(refuse("action_field", "only actions in the format `text` have one"));
        }
        Ok(())
    }

    /// Checks what a server's client needs.
    pub fn check_url(&self) -> Result<(), EnvError> {
        self.check()?;
        if self.url.is_empty() {
            return Err(refuse("url", "give the server's address, such as http://127.0.0.1:8000"));
        }
        if !self.command.is_empty() {
            return Err(refuse("command", "a server is reached by `environment.url` alone"));
        }
        Ok(())
    }

    /// Checks what the stdio protocol needs.
    pub fn check_command(&self) -> Result<(), EnvError> {
        self.check()?;
        if self.command.is_empty() {
            return Err(refuse("command", "give the program and its arguments"));
        }
        if !self.url.is_empty() {
            return Err(refuse("url", "a program is started by `environment.command` alone"));
        }
        Ok(())
    }

    /// A protocol's profile with what these options and the tasks say.
    pub(crate) fn profile(&self, base: &Profile, tasks: &TaskList) -> Profile {
        let mut profile = base.clone();
        let (train, eval) = tasks.usual_splits();
        profile.laboratory.train_split = train.clone().into();
        profile.laboratory.held_out_split = eval[0].clone().into();
        profile.train_split = train.into();
        profile.eval_splits = eval.into_iter().map(Cow::Owned).collect();
        profile.history = self.history;
        profile.score = self.score;
        profile
    }

    /// The access token, where one is to be sent.
    pub(crate) fn token(&self) -> Result<Option<String>, EnvError> {
        if self.token_variable.is_empty() {
            return Ok(None);
        }
        std::env::var(&self.token_variable).map(Some).map_err(|_| {
            refuse("token_variable", format!("the variable {} is not set", self.token_variable))
        })
    }

    pub(crate) fn connect_time(&self) -> Duration {
        Duration::from_secs_f64(self.connect_seconds)
    }

    pub(crate) fn answer_time(&self) -> Duration {
        Duration::from_secs_f64(self.answer_seconds)
    }

    pub(crate) fn max_message_bytes(&self) -> usize {
        self.max_message_mib << 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_key() {
        let standard = EnvironmentOptions::default;
        for (options, key) in [
            (EnvironmentOptions { answer_seconds: f64::NAN, ..standard() }, "answer_seconds"),
            (EnvironmentOptions { connect_seconds: 1e300, ..standard() }, "connect_seconds"),
            (EnvironmentOptions { max_message_mib: 0, ..standard() }, "max_message_mib"),
            (EnvironmentOptions { actions: "legal".to_owned(), ..standard() }, "actions"),
            (EnvironmentOptions { observation: "{{ x".to_owned(), ..standard() }, "observation"),
            (EnvironmentOptions { url: "http://h".to_owned(), ..standard() }, "command"),
        ] {
            let error = options.check_command().unwrap_err().to_string();
            assert!(error.starts_with(&format!("environment.{key}")), "{error}");
        }
        let command = vec!["python3".to_owned()];
        let error = EnvironmentOptions { command, ..standard() }.check_url().unwrap_err();
        assert!(error.to_string().starts_with("environment.url"), "{error}");
        assert!(standard().check().is_ok());
    }
}
