//! Between text and tokens: the model's own tokenizer and chat template.

use crate::error::EngineError;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The system's instructions.
    System,
    /// The environment's side of the conversation.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word chat templates use.
    pub fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub text: String,
}

impl Message {
    /// A message of the environment's side.
    pub fn system(text: impl Into<String>) -> Self {
        Self { role: Role::System, text: text.into() }
    }

    /// The environment's side says something.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, text: text.into() }
    }

    /// A message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, text: text.into() }
    }
}

/// A tokenizer with a chat template.
pub trait Codec: Send + Sync {
    /// The tokens of a conversation, ready for the model to answer, thinking off.
    fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, EngineError>;

    /// The tokens of a response as the model would have written it, its end-of-turn token included.
    fn response(&self, text: &str) -> Result<Vec<u32>, EngineError>;

    /// The text of a response, special tokens left out.
    fn text(&self, tokens: &[u32]) -> Result<String, EngineError>;

    /// One token as a reader may see it, special tokens by their names.
    fn piece(&self, token: u32) -> String {
        self.text(&[token]).unwrap_or_default()
    }

    /// Whether the tokenizer calls a token special (end of turn, think markers).
    fn is_special(&self, token: u32) -> bool;

    /// Tokens that end a response.
    fn stop_tokens(&self) -> &[u32];
}
