//! Everything of a model directory except its weights.

use std::path::Path;

use serde_json::{Map, Value};

use super::companions::{Companions, parse_object, read_optional};
use super::hf_config::{self, ModelTokens};
use crate::chat::ChatTemplate;
use crate::config::ModelConfig;
use crate::error::LmError;
use crate::tokenizer::Tokenizer;

use super::dtype::Dtype;

/// A model's shape and its small files: what a save needs besides the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFiles {
    /// The shape.
    pub config: ModelConfig,
    /// `config.json` as it came, keys we do not use included.
    pub config_json: Map<String, Value>,
    /// Tokenizer, template and generation files.
    pub companions: Companions,
}

impl ModelFiles {
    /// Reads the small files of a model directory.
    pub fn read(directory: &Path) -> Result<Self, LmError> {
        let path = directory.join("config.json");
        let Some(bytes) = read_optional(&path)? else {
            let hint = if directory.extension().is_some_and(|end| end == "gguf") {
                "this is a GGUF file: turn it into a model directory with `lens model convert` first"
            } else {
                "a model is a directory with config.json, safetensors weights and tokenizer.json"
            };
            return Err(LmError::Missing { path, hint: hint.to_owned() });
        };
        let config_json = parse_object(&path, &bytes)?;
        let config = hf_config::parse(&path, &config_json)?;
        Ok(Self { config, config_json, companions: Companions::read(directory)? })
    }

    /// The small files of a new model.
    pub fn new(config: ModelConfig, tokens: &ModelTokens, companions: Companions) -> Self {
        let config_json = hf_config::render(&config, Dtype::F32, tokens);
        Self { config, config_json, companions }
    }

    /// The name or folder the model was made under, as `config.json` tells; else where its files came from.
    pub fn name(&self) -> String {
        match self.config_json.get("_name_or_path").and_then(Value::as_str) {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => self.companions.path("").display().to_string(),
        }
    }

    /// Loads the tokenizer, and checks that the model has a row for each of its tokens.
    pub fn tokenizer(&self) -> Result<Tokenizer, LmError> {
        let path = self.companions.path("tokenizer.json");
        let tokenizer = Tokenizer::from_json(&path, self.companions.tokenizer_json()?)?;
        if tokenizer.real_tokens() > self.config.vocab_size {
            return Err(LmError::Tokenizer {
                path,
                problem: format!(
                    "it knows {} tokens, but the model has only {} embeddings (vocab_size); they do not belong together",
                    tokenizer.real_tokens(),
                    self.config.vocab_size
                ),
            });
        }
        Ok(tokenizer)
    }

    /// Loads the chat template, with the special tokens templates may refer to.
    pub fn chat_template(&self) -> Result<ChatTemplate, LmError> {
        let Some((path, source)) = self.companions.chat_template()? else {
            return Err(LmError::Missing {
                path: self.companions.path("chat_template.jinja"),
                hint: "the model has no chat template (neither there nor in tokenizer_config.json); is it a base model?"
                    .to_owned(),
            });
        };
        let mut tokens = std::collections::BTreeMap::new();
        for key in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            if let Some(token) = self.companions.special_token(key)? {
                tokens.insert(key.to_owned(), token);
            }
        }
        ChatTemplate::new(&path, &source, tokens)
    }

    /// The ids that end a response: those of `generation_config.json`, else of `config.json`, and the tokenizer's
    /// `eos_token`, in increasing order.
    pub fn stop_ids(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, LmError> {
        let mut ids = self.companions.generation()?.eos_token_id;
        if ids.is_empty() {
            let listed = match self.config_json.get("eos_token_id") {
                Some(Value::Array(list)) => list.clone(),
                Some(one) => vec![one.clone()],
                None => Vec::new(),
            };
            ids.extend(
                listed.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()),
            );
        }
        if let Some(token) = self.companions.special_token("eos_token")? {
            ids.extend(tokenizer.id(&token));
        }
        ids.retain(|&id| (id as usize) < self.config.vocab_size);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}
