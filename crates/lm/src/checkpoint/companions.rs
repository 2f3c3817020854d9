//! The small files beside the weights. Tokenizer files are kept byte for byte, because tools disagree about what a
//! re-serialized tokenizer means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::LmError;
use crate::file::read_limited;

/// Files that travel with a model unchanged.
const KEPT: [&str; 11] = [
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

/// Larger than any tokenizer; a file beyond it is not one.
pub(super) const MAX_FILE: u64 = 512 << 20;

/// The tokenizer, template and generation files of a model, as they are on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Companions {
    /// Where they came from, for messages.
    pub directory: PathBuf,
    /// File name to content.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Companions {
    /// Reads the files that are there.
    pub fn read(directory: &Path) -> Result<Self, LmError> {
        let mut files = BTreeMap::new();
        for name in KEPT {
            if let Some(bytes) = read_optional(&directory.join(name))? {
                files.insert(name.to_owned(), bytes);
            }
        }
        Ok(Self { directory: directory.to_owned(), files })
    }

    /// The path of a file, whether it is there or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A JSON object among the files.
    pub fn json(&self, name: &str) -> Result<Option<Map<String, Value>>, LmError> {
        self.files.get(name).map(|bytes| parse_object(&self.path(name), bytes)).transpose()
    }

    /// The bytes of `tokenizer.json`.
    pub fn tokenizer_json(&self) -> Result<&[u8], LmError> {
        if let Some(bytes) = self.files.get("tokenizer.json") {
            return Ok(bytes);
        }
        let other = ["tokenizer.model", "vocab.json"].iter().find(|n| self.files.contains_key(**n));
        let hint = match other {
            Some(name) => format!(
                "there is only {name}; load the model once with `transformers` (a fast tokenizer) and save it again"
            ),
            None => {
                "copy the tokenizer files of the model it was made from into this folder".to_owned()
            }
        };
        Err(LmError::Missing { path: self.path("tokenizer.json"), hint })
    }

    /// What `generation_config.json` says; empty when there is none.
    pub fn generation(&self) -> Result<GenerationConfig, LmError> {
        let Some(bytes) = self.files.get("generation_config.json") else {
            return Ok(GenerationConfig::default());
        };
        serde_json::from_slice(bytes).map_err(|error| {
            LmError::malformed(&self.path("generation_config.json"), error.to_string())
        })
    }

    /// A special token of `tokenizer_config.json` (or `special_tokens_map.json`), such as `eos_token`.
    pub fn special_token(&self, key: &str) -> Result<Option<String>, LmError> {
        for name in ["tokenizer_config.json", "special_tokens_map.json"] {
            let Some(object) = self.json(name)? else { continue };
            let found = match object.get(key) {
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Object(token)) => {
                    token.get("content").and_then(Value::as_str).map(str::to_owned)
                }
                _ => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The chat template and the file it is in: `chat_template.jinja`, else `chat_template.json`, else
    /// `tokenizer_config.json`. Of several named templates the one called `default` is meant.
    pub fn chat_template(&self) -> Result<Option<(PathBuf, String)>, LmError> {
        let plain = "chat_template.jinja";
        if let Some(bytes) = self.files.get(plain) {
            let text = String::from_utf8(bytes.clone())
                .map_err(|_| LmError::malformed(&self.path(plain), "not UTF-8 text"))?;
            return Ok(Some((self.path(plain), text)));
        }
        for name in ["chat_template.json", "tokenizer_config.json"] {
            let Some(object) = self.json(name)? else { continue };
            let template = match object.get("chat_template") {
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Array(named)) => named
                    .iter()
                    .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"))
                    .and_then(|entry| entry.get("template").and_then(Value::as_str))
                    .map(str::to_owned),
                _ => None,
            };
            if let Some(text) = template {
                return Ok(Some((self.path(name), text)));
            }
        }
        Ok(None)
    }
}

/// What `generation_config.json` recommends. Unknown keys are other engines' business.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationConfig {
    /// Ids that end a response.
    #[serde(deserialize_with = "one_or_many")]
    pub eos_token_id: Vec<u32>,
    /// Begin of sequence.
    pub bos_token_id: Option<u32>,
    /// Padding.
    pub pad_token_id: Option<u32>,
    /// Whether to sample at all.
    pub do_sample: Option<bool>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Sampling among the most likely.
    pub top_k: Option<u32>,
    /// Sampling above a share of the most likely.
    pub min_p: Option<f64>,
    /// Penalty on repeated tokens.
    pub repetition_penalty: Option<f64>,
}

/// Ids may be one number, a list, or null.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        One(u32),
        Many(Vec<u32>),
    }
    Ok(match Option::<Ids>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Ids::One(id)) => vec![id],
        Some(Ids::Many(ids)) => ids,
    })
}

/// Reads a small file, or nothing when it is not there.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, LmError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => read_limited(path, MAX_FILE).map(Some),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LmError::io(path, "look at it")(error)),
    }
}

/// Parses a JSON object.
pub(crate) fn parse_object(path: &Path, bytes: &[u8]) -> Result<Map<String, Value>, LmError> {
    serde_json::from_slice(bytes)
        .map_err(|error| LmError::malformed(path, format!("not a JSON object: {error}")))
}
