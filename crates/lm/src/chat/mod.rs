//! Conversations to prompts, with the model's own template.
//!
//! Templates are written for Python's Jinja inside `transformers`, so the environment here imitates that one: blocks eat
//! the newline behind them, Python's string methods exist, `tojson` prints like Python, and `raise_exception` and
//! `strftime_now` are there.

mod budget;
mod date;
mod guard;
mod python_json;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use date::Date;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde::{Deserialize, Serialize};

use crate::error::LmError;
use crate::tokenizer::Tokenizer;

/// A compact template for models of our own: ChatML turns, earlier thoughts left out, thinking can be switched off.
pub const CHATML_TEMPLATE: &str = include_str!("chatml.jinja");

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Thoughts kept apart from the answer, for templates that know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
}

impl Message {
    fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: content.into(), reasoning_content: None }
    }

    /// A system turn.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A user turn.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// An assistant turn.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// How to render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether the prompt ends with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Passed to the template when set. Qwen3 closes its thoughts at once when it is false.
    pub enable_thinking: Option<bool>,
    /// What `strftime_now` means by now; a template that asks for it without one fails.
    pub today: Option<Date>,
}

impl Default for ChatOptions {
    /// A prompt to be answered without thinking.
    fn default() -> Self {
        Self { add_generation_prompt: true, enable_thinking: Some(false), today: None }
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
    tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Compiles a template. `tokens` are the special tokens by the name templates use (`eos_token`); `path` is only used
    /// in messages.
    pub fn new(
        path: &Path,
        source: &str,
        tokens: BTreeMap<String, String>,
    ) -> Result<Self, LmError> {
        let guarded = guard::guarded(source).map_err(|refusal| LmError::ChatTemplate {
            path: path.to_owned(),
            problem: format!("line {}: {}", refusal.line, refusal.problem),
        })?;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| failure(path, &error))?;
        environment.set_syntax(syntax);
        budget::limit(&mut environment);
        environment.add_function("raise_exception", |message: String| -> Result<Value, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned("chat", guarded).map_err(|error| failure(path, &error))?;
        Ok(Self { path: path.to_owned(), environment, tokens })
    }

    /// Renders a conversation to text.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, LmError> {
        self.render_values(Value::from(Serde(messages)), options)
    }

    /// Renders messages with fields of their own (tool calls, for example).
    pub fn render_json(
        &self,
        messages: &serde_json::Value,
        options: &ChatOptions,
    ) -> Result<String, LmError> {
        self.render_values(Value::from(Serde(messages)), options)
    }

    fn render_values(&self, messages: Value, options: &ChatOptions) -> Result<String, LmError> {
        let mut context: BTreeMap<&str, Value> =
            self.tokens.iter().map(|(name, token)| (name.as_str(), Value::from(token))).collect();
        context.insert("messages", messages);
        context.insert("add_generation_prompt", Value::from(options.add_generation_prompt));
        // `transformers` always passes these two, so templates may test them without asking whether they exist.
        context.insert("tools", Value::from(()));
        context.insert("documents", Value::from(()));
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking", Value::from(thinking));
        }
        let today = options.today;
        context.insert(
            "strftime_now",
            Value::from_function(move |format: String| match today {
                Some(date) => Ok(date.format(&format)),
                None => Err(minijinja::Error::new(
                    ErrorKind::InvalidOperation,
                    "the template asks for today's date, which was not given",
                )),
            }),
        );
        self.environment
            .get_template("chat")
            .and_then(|template| template.render(context))
            .map_err(|error| failure(&self.path, &error))
    }

    /// Renders a conversation to the tokens a model is given.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Vec<u32>, LmError> {
        tokenizer.encode(&self.render(messages, options)?)
    }
}

fn failure(path: &Path, error: &minijinja::Error) -> LmError {
    let place = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let mut problem = format!("{place}{}", error.kind());
    if let Some(detail) = error.detail() {
        problem = format!("{place}{detail} ({})", error.kind());
    }
    if error.kind() == ErrorKind::OutOfFuel {
        problem = format!("{place}it does not come to an end within {} steps", budget::FUEL);
    }
    LmError::ChatTemplate { path: path.to_owned(), problem }
}
