//! The model's own tokenizer and chat template.

use lens_lm::chat::{self, ChatOptions, ChatTemplate};
use lens_lm::checkpoint::ModelFiles;
use lens_lm::tokenizer::Tokenizer;

use crate::codec::{Codec, Message};
use crate::error::EngineError;

/// Marks around thoughts: text for the tokenizer, but never content of a response.
const THINK_MARKS: [&str; 2] = ["<think>", "</think>"];

/// A tokenizer and a chat template from a model's directory.
#[derive(Debug)]
pub struct NativeCodec {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    stop: Vec<u32>,
    end_of_turn: u32,
    think: Vec<u32>,
}

impl NativeCodec {
    /// Reads both from a model's small files.
    pub fn new(files: &ModelFiles) -> Result<Self, EngineError> {
        let tokenizer = files.tokenizer()?;
        let template = files.chat_template()?;
        let stop = files.stop_ids(&tokenizer)?;
        let named =
            files.companions.special_token("eos_token")?.and_then(|token| tokenizer.id(&token));
        let end_of_turn = named.or(stop.first().copied()).ok_or_else(|| {
            EngineError::Request(
                "the model names no token that ends a response (eos_token in tokenizer_config.json or eos_token_id in generation_config.json)"
                    .to_owned(),
            )
        })?;
        let think = THINK_MARKS.iter().filter_map(|mark| tokenizer.id(mark)).collect();
        Ok(Self { tokenizer, template, stop, end_of_turn, think })
    }

    /// The tokenizer itself.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl Codec for NativeCodec {
    fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, EngineError> {
        let messages: Vec<chat::Message> = messages
            .iter()
            .map(|message| match message.role {
                crate::Role::System => chat::Message::system(&message.text),
                crate::Role::User => chat::Message::user(&message.text),
                crate::Role::Assistant => chat::Message::assistant(&message.text),
            })
            .collect();
        Ok(self.template.encode(&self.tokenizer, &messages, &ChatOptions::default())?)
    }

    fn response(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let mut tokens = self.tokenizer.encode(text)?;
        tokens.push(self.end_of_turn);
        Ok(tokens)
    }

    fn text(&self, tokens: &[u32]) -> Result<String, EngineError> {
        Ok(self.tokenizer.decode_text(tokens)?)
    }

    fn piece(&self, token: u32) -> String {
        let text = self.tokenizer.decode_text(&[token]).unwrap_or_default();
        if text.is_empty() {
            return self.tokenizer.token(token).unwrap_or_default().to_owned();
        }
        text
    }

    fn is_special(&self, token: u32) -> bool {
        self.tokenizer.is_special(token) || self.think.contains(&token)
    }

    fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }
}
