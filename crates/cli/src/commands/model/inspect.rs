//! `lens model inspect`: what a model is, before anything is done with it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use lens_lm::checkpoint::{Checkpoint, ModelFiles, TensorSource};
use lens_lm::config::{Family, ModelConfig, RopeScaling};
use lens_lm::error::LmError;
use lens_lm::gguf::GgufModel;
use serde_json::{Value, json};

use super::{compare, is_single_file};
use crate::failure::Failure;

const HEADING: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// What to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) tensors: bool,
    pub(super) check: bool,
    pub(super) compare: bool,
    pub(super) json: bool,
}

/// One stored tensor.
struct Stored {
    name: String,
    shape: Vec<usize>,
    form: String,
}

/// The facts that are shown.
struct Facts {
    config: ModelConfig,
    tensors: Vec<Stored>,
    files: usize,
    bytes: u64,
    tokenizer: Result<TokenizerFacts, LmError>,
    /// Parameters whose values were read and found finite.
    checked: Option<usize>,
}

struct TokenizerFacts {
    tokens: usize,
    special: usize,
    hash: String,
    template: Option<String>,
    thinking: bool,
    stop: Vec<(u32, String)>,
}

pub(super) fn run(model: &Path, wanted: Wanted, out: &mut dyn Write) -> Result<(), Failure> {
    let facts = gather(model, wanted.check)?;
    let costs = wanted.compare.then(|| compare::costs(model)).transpose()?;
    if wanted.json {
        let mut object = facts.json(wanted.tensors);
        if let Some(costs) = costs {
            object["rounding"] = json!(costs);
        }
        writeln!(out, "{object:#}")?;
        return Ok(());
    }
    facts.print(model, wanted.tensors, out)?;
    if let Some(costs) = costs {
        writeln!(out)?;
        for cost in costs {
            writeln!(out, "  {:<14} {}", format!("as {}", cost.format()), cost.line())?;
        }
    }
    Ok(())
}

fn gather(path: &Path, check: bool) -> Result<Facts, Failure> {
    if is_single_file(path) {
        let model = GgufModel::open(path)?;
        let tensors = model
            .header()
            .tensors
            .iter()
            .map(|(name, info)| Stored {
                name: name.clone(),
                shape: info.shape.clone(),
                form: info
                    .kind
                    .map_or_else(|number| format!("form {number}"), |kind| kind.to_string()),
            })
            .collect();
        let bytes = std::fs::metadata(path)?.len();
        let checked = check.then(|| read_everything(model.config(), &model, path)).transpose()?;
        let tokenizer = model.files().and_then(|files| tokenizer_facts(&files));
        return Ok(Facts {
            config: model.config().clone(),
            tensors,
            files: 1,
            bytes,
            tokenizer,
            checked,
        });
    }
    let checkpoint = Checkpoint::open(path)?;
    let tensors = checkpoint
        .weights
        .tensors()
        .map(|(name, entry, _)| Stored {
            name: name.to_owned(),
            shape: entry.shape.clone(),
            form: entry.dtype.as_ref().map_or_else(String::clone, ToString::to_string),
        })
        .collect();
    let bytes = checkpoint.weights.tensors().map(|(_, entry, _)| entry.end - entry.begin).sum();
    let config = checkpoint.files.config.clone();
    let checked = check.then(|| read_everything(&config, &checkpoint.weights, path)).transpose()?;
    Ok(Facts {
        tensors,
        files: checkpoint.weights.file_count(),
        bytes,
        tokenizer: tokenizer_facts(&checkpoint.files),
        config,
        checked,
    })
}

/// Reads every weight, a piece at a time; one that is not finite is an error that names its tensor.
fn read_everything(
    config: &ModelConfig,
    source: &dyn TensorSource,
    path: &Path,
) -> Result<usize, LmError> {
    let mut piece = vec![0.0; 1 << 20];
    let mut read = 0;
    for (name, shape) in config.parameter_shapes() {
        let count: usize = shape.iter().product();
        for first in (0..count).step_by(piece.len()) {
            let length = piece.len().min(count - first);
            source.read_values(&name, first, &mut piece[..length])?;
            if let Some(at) = piece[..length].iter().position(|value| !value.is_finite()) {
                return Err(LmError::Tensor {
                    path: path.to_owned(),
                    tensor: name,
                    problem: format!("is {} at value {}", piece[at], first + at),
                });
            }
            read += length;
        }
    }
    Ok(read)
}

fn tokenizer_facts(files: &ModelFiles) -> Result<TokenizerFacts, LmError> {
    let tokenizer = files.tokenizer()?;
    let template = files.companions.chat_template()?;
    let stop = files
        .stop_ids(&tokenizer)?
        .into_iter()
        .map(|id| (id, tokenizer.token(id).unwrap_or("?").to_owned()))
        .collect();
    Ok(TokenizerFacts {
        tokens: tokenizer.real_tokens(),
        special: tokenizer.special_flags().iter().filter(|flag| **flag).count(),
        hash: tokenizer.vocabulary_hash().to_string(),
        thinking: template.as_ref().is_some_and(|(_, source)| source.contains("enable_thinking")),
        template: template
            .and_then(|(path, _)| Some(path.file_name()?.to_string_lossy().into_owned())),
        stop,
    })
}

/// What holding a model costs, in bytes.
struct Memory {
    f32: u64,
    bf16: u64,
    int8: u64,
    cache_per_token: u64,
    training: u64,
}

impl Memory {
    fn of(config: &ModelConfig) -> Self {
        let parameters = config.parameter_count() as u64;
        // Norms and biases stay f32; each int8 row has an f32 scale.
        let (mut rows, mut small) = (0, 0);
        for shape in config.parameter_shapes().values() {
            match shape[..] {
                [out, _] => rows += out as u64,
                _ => small += shape.iter().product::<usize>() as u64,
            }
        }
        Self {
            f32: 4 * parameters,
            bf16: 2 * (parameters - small) + 4 * small,
            int8: (parameters - small) + 4 * rows + 4 * small,
            cache_per_token: 4 * 2 * (config.layers * config.kv_width()) as u64,
            // Master weights, gradients and AdamW's two moments.
            training: 16 * parameters,
        }
    }
}

impl Facts {
    fn json(&self, tensors: bool) -> Value {
        let memory = Memory::of(&self.config);
        let tokenizer = match &self.tokenizer {
            Ok(facts) => json!({
                "tokens": facts.tokens,
                "special": facts.special,
                "vocabulary_hash": facts.hash,
                "chat_template": facts.template,
                "thinking_switch": facts.thinking,
                "stop": facts.stop.iter().map(|(id, token)| json!({"id": id, "token": token})).collect::<Vec<_>>(),
            }),
            Err(error) => json!({"missing": error.to_string()}),
        };
        let mut object = json!({
            "config": self.config,
            "parameters": self.config.parameter_count(),
            "stored": {"files": self.files, "bytes": self.bytes, "forms": self.forms()},
            "tokenizer": tokenizer,
            "memory_bytes": {
                "weights_f32": memory.f32,
                "weights_bf16": memory.bf16,
                "weights_int8": memory.int8,
                "cache_per_token_f32": memory.cache_per_token,
                "training_state": memory.training,
            },
        });
        if let Some(checked) = self.checked {
            object["finite_parameters"] = json!(checked);
        }
        if tensors {
            object["tensors"] = self
                .tensors
                .iter()
                .map(|t| json!({"name": t.name, "shape": t.shape, "form": t.form}))
                .collect();
        }
        object
    }

    /// Values in each stored form.
    fn forms(&self) -> BTreeMap<&str, usize> {
        let mut forms = BTreeMap::new();
        for tensor in &self.tensors {
            *forms.entry(tensor.form.as_str()).or_default() +=
                tensor.shape.iter().product::<usize>();
        }
        forms
    }

    fn print(&self, path: &Path, tensors: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let config = &self.config;
        let family = match config.family {
            Family::Qwen3 => "Qwen3",
            Family::Qwen2 => "Qwen2",
            Family::Llama => "Llama",
        };
        writeln!(out, "{HEADING}{family}{HEADING:#} {DIM}{}{DIM:#}", path.display())?;
        let head = if config.tied_head { "the embedding" } else { "separate" };
        let mut lines = vec![
            ("parameters", thousands(config.parameter_count())),
            ("layers", config.layers.to_string()),
            ("width", format!("{}, feed-forward {}", config.hidden_size, config.intermediate_size)),
            (
                "heads",
                format!(
                    "{} query, {} key/value, each {} wide",
                    config.heads, config.kv_heads, config.head_dim
                ),
            ),
            ("positions", format!("{}{}", thousands(config.max_position), describe_rope(config))),
            ("output head", head.to_owned()),
        ];
        let forms: Vec<String> = self.forms().keys().map(ToString::to_string).collect();
        let files =
            if self.files == 1 { "1 file".to_owned() } else { format!("{} files", self.files) };
        lines.push(("stored", format!("{} in {files}, {}", forms.join(", "), bytes(self.bytes))));
        if let Some(checked) = self.checked {
            lines.push(("checked", format!("all {} values are finite", thousands(checked))));
        }
        match &self.tokenizer {
            Ok(facts) => {
                let padding = config.vocab_size - facts.tokens;
                lines.push((
                    "vocabulary",
                    format!(
                        "{} rows: {} tokens and {padding} of padding",
                        thousands(config.vocab_size),
                        thousands(facts.tokens)
                    ),
                ));
                lines.push((
                    "token map",
                    format!("{}, {} special tokens", facts.hash, facts.special),
                ));
                let template = match (&facts.template, facts.thinking) {
                    (None, _) => "none".to_owned(),
                    (Some(file), true) => format!("{file}, thinking can be switched off"),
                    (Some(file), false) => file.clone(),
                };
                lines.push(("chat template", template));
                let stop: Vec<String> =
                    facts.stop.iter().map(|(id, token)| format!("{token} ({id})")).collect();
                lines.push((
                    "ends with",
                    if stop.is_empty() { "unknown".to_owned() } else { stop.join(", ") },
                ));
            }
            Err(error) => {
                lines.push(("vocabulary", format!("{} rows", thousands(config.vocab_size))));
                lines.push(("tokenizer", format!("none: {error}")));
            }
        }
        let memory = Memory::of(config);
        lines.push((
            "memory",
            format!(
                "weights {} in f32, {} in bf16, {} in int8",
                bytes(memory.f32),
                bytes(memory.bf16),
                bytes(memory.int8)
            ),
        ));
        lines.push((
            "",
            format!("key/value cache {} a token in f32", bytes(memory.cache_per_token)),
        ));
        lines.push(("", format!("training state {}, and activations", bytes(memory.training))));
        for (label, text) in lines {
            writeln!(out, "  {label:<14} {text}")?;
        }
        writeln!(out)?;
        self.print_tensors(tensors, out)
    }

    fn print_tensors(&self, all: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let mut rows: Vec<(String, String, &str, usize)> = Vec::new();
        for tensor in &self.tensors {
            let name = if all { tensor.name.clone() } else { without_layer(&tensor.name) };
            let shape =
                tensor.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ");
            match rows
                .iter_mut()
                .find(|row| row.0 == name && row.1 == shape && row.2 == tensor.form)
            {
                Some(row) => row.3 += 1,
                None => rows.push((name, shape, &tensor.form, 1)),
            }
        }
        let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
        let shape_width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
        for (name, shape, form, count) in rows {
            let times = if count > 1 { format!("{count} times") } else { String::new() };
            let line = format!("  {name:<width$}  {shape:>shape_width$}  {form:<5} {times}");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn describe_rope(config: &ModelConfig) -> String {
    let scaling = match config.rope_scaling {
        None => String::new(),
        Some(RopeScaling::Linear { factor }) => format!(", stretched {factor} times"),
        Some(RopeScaling::Llama3 { factor, original_max_position, .. }) => {
            format!(
                ", stretched {factor} times from {} as Llama 3",
                thousands(original_max_position)
            )
        }
    };
    format!(" (rotary base {}{scaling})", config.rope_theta)
}

/// A tensor's name with the number of its layer replaced by a star.
fn without_layer(name: &str) -> String {
    name.split('.')
        .map(
            |part| {
                if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
                    "*"
                } else {
                    part
                }
            },
        )
        .collect::<Vec<_>>()
        .join(".")
}

/// 1234567 as 1,234,567.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with three significant digits.
fn bytes(count: u64) -> String {
    let mut size = count as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if size < 1000.0 {
            break;
        }
        size /= 1000.0;
        unit = next;
    }
    if unit == "B" || size >= 100.0 {
        format!("{size:.0} {unit}")
    } else {
        format!("{size:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let words: Vec<String> = [0, 999, 1000, 1_234_567].map(thousands).to_vec();
        assert_eq!(words, ["0", "999", "1,000", "1,234,567"]);
        let sizes: Vec<String> =
            [0, 999, 1500, 123_456, 7_031_645, 5_000_000_000].map(bytes).to_vec();
        assert_eq!(sizes, ["0 B", "999 B", "1.5 kB", "123 kB", "7.0 MB", "5.0 GB"]);
        assert_eq!(
            without_layer("model.layers.12.mlp.up_proj.weight"),
            "model.layers.*.mlp.up_proj.weight"
        );
    }
}
