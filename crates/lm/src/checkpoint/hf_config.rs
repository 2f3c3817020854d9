//! `config.json`: from Hugging Face's many spellings to a [`ModelConfig`], and back.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::dtype::Dtype;
use crate::config::{Family, MAX_POSITION, ModelConfig, RopeScaling};
use crate::error::LmError;

/// Sizes beyond these belong to no model and would only exhaust the memory.
const MAX_WIDTH: usize = 1 << 20;
const MAX_LAYERS: usize = 4096;
const MAX_VOCAB: usize = 1 << 26;

/// Reads a model's shape from the object in `config.json`. `path` is only used in messages.
pub fn parse(path: &Path, object: &Map<String, Value>) -> Result<ModelConfig, LmError> {
    let keys = Keys { path, object, inside: "" };
    let family = family(&keys)?;
    refuse_unsupported(&keys, family)?;

    let hidden_size = keys.size("hidden_size")?;
    let heads = keys.size("num_attention_heads")?;
    let max_position = keys.optional_size("max_position_embeddings")?.unwrap_or(match family {
        Family::Llama => 2048,
        Family::Qwen2 | Family::Qwen3 => 32_768,
    });
    let (rope_theta, rope_scaling) = rope(&keys, max_position)?;
    let config = ModelConfig {
        family,
        hidden_size,
        intermediate_size: keys.size("intermediate_size")?,
        layers: keys.size("num_hidden_layers")?,
        heads,
        kv_heads: keys.optional_size("num_key_value_heads")?.unwrap_or(heads),
        head_dim: match (keys.optional_size("head_dim")?, family) {
            (Some(head_dim), Family::Llama | Family::Qwen3) => head_dim,
            (None, Family::Qwen3) => 128,
            (_, Family::Qwen2) | (None, Family::Llama) => hidden_size / heads.max(1),
        },
        vocab_size: keys.size("vocab_size")?,
        max_position,
        rms_norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
        rope_theta,
        rope_scaling,
        tied_head: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
    };
    check(path, &config)?;
    Ok(config)
}

/// Checks that the numbers of a configuration fit together and fit a machine.
pub fn check(path: &Path, config: &ModelConfig) -> Result<(), LmError> {
    let wrong = |key: &str, problem: String| Err(LmError::config(path, key, problem));
    let limits = [
        ("hidden_size", config.hidden_size, MAX_WIDTH),
        ("intermediate_size", config.intermediate_size, MAX_WIDTH),
        ("num_hidden_layers", config.layers, MAX_LAYERS),
        ("num_attention_heads", config.heads, MAX_WIDTH),
        ("num_key_value_heads", config.kv_heads, MAX_WIDTH),
        ("head_dim", config.head_dim, MAX_WIDTH),
        ("vocab_size", config.vocab_size, MAX_VOCAB),
        ("max_position_embeddings", config.max_position, MAX_POSITION),
    ];
    for (key, size, limit) in limits {
        if size == 0 || size > limit {
            return wrong(key, format!("is {size}; it must be between 1 and {limit}"));
        }
    }
    if config.heads.saturating_mul(config.head_dim) > MAX_WIDTH {
        return wrong(
            "head_dim",
            format!(
                "times num_attention_heads is {} x {}, too wide",
                config.head_dim, config.heads
            ),
        );
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return wrong(
            "num_key_value_heads",
            format!(
                "is {}, which does not divide num_attention_heads = {}",
                config.kv_heads, config.heads
            ),
        );
    }
    if !config.head_dim.is_multiple_of(2) {
        return wrong(
            "head_dim",
            format!("is {}; rotary positions need an even one", config.head_dim),
        );
    }
    if config.max_position == 0 {
        return wrong("max_position_embeddings", "is 0".to_owned());
    }
    if !(config.rms_norm_eps > 0.0 && config.rms_norm_eps < 1.0) {
        return wrong(
            "rms_norm_eps",
            format!("is {}; it is a small positive number", config.rms_norm_eps),
        );
    }
    if !(config.rope_theta.is_finite() && config.rope_theta > 0.0) {
        return wrong("rope_theta", format!("is {}; it is a positive number", config.rope_theta));
    }
    match config.rope_scaling {
        Some(RopeScaling::Linear { factor } | RopeScaling::Llama3 { factor, .. })
            if !(factor.is_finite() && factor > 0.0) =>
        {
            wrong("factor", format!("of the rope scaling is {factor}; it is a positive number"))
        }
        Some(RopeScaling::Llama3 {
            low_freq_factor,
            high_freq_factor,
            original_max_position,
            ..
        }) if !(low_freq_factor > 0.0
            && high_freq_factor > low_freq_factor
            && high_freq_factor.is_finite()
            && original_max_position > 0) =>
        {
            wrong(
                "rope_scaling",
                format!(
                    "of type llama3 needs 0 < low_freq_factor < high_freq_factor and a positive \
                     original_max_position_embeddings, not {low_freq_factor}, {high_freq_factor} and {original_max_position}"
                ),
            )
        }
        _ => Ok(()),
    }
}

/// The `config.json` of a model that has none yet, in the spelling every version of `transformers` and vLLM reads.
pub fn render(config: &ModelConfig, dtype: Dtype, tokens: &ModelTokens) -> Map<String, Value> {
    let (architecture, model_type) = match config.family {
        Family::Qwen3 => ("Qwen3ForCausalLM", "qwen3"),
        Family::Qwen2 => ("Qwen2ForCausalLM", "qwen2"),
        Family::Llama => ("LlamaForCausalLM", "llama"),
    };
    let rope_scaling = match config.rope_scaling {
        None => Value::Null,
        Some(RopeScaling::Linear { factor }) => json!({"rope_type": "linear", "factor": factor}),
        Some(RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position,
        }) => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_max_position,
        }),
    };
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("architectures", json!([architecture]));
    if config.family != Family::Qwen2 {
        put("attention_bias", json!(false));
    }
    put("attention_dropout", json!(0.0));
    if let Some(id) = tokens.bos {
        put("bos_token_id", json!(id));
    }
    if let Some(id) = tokens.eos {
        put("eos_token_id", json!(id));
    }
    if config.family != Family::Qwen2 {
        put("head_dim", json!(config.head_dim));
    }
    put("hidden_act", json!("silu"));
    put("hidden_size", json!(config.hidden_size));
    put("initializer_range", json!(0.02));
    put("intermediate_size", json!(config.intermediate_size));
    put("max_position_embeddings", json!(config.max_position));
    if config.family == Family::Llama {
        put("mlp_bias", json!(false));
    }
    put("model_type", json!(model_type));
    put("num_attention_heads", json!(config.heads));
    put("num_hidden_layers", json!(config.layers));
    put("num_key_value_heads", json!(config.kv_heads));
    if let Some(id) = tokens.pad {
        put("pad_token_id", json!(id));
    }
    put("rms_norm_eps", json!(shortest(config.rms_norm_eps)));
    put("rope_scaling", rope_scaling);
    put("rope_theta", json!(config.rope_theta));
    put("tie_word_embeddings", json!(config.tied_head));
    put("torch_dtype", json!(dtype.torch_name()));
    put("use_cache", json!(true));
    if config.family != Family::Llama {
        put("use_sliding_window", json!(false));
    }
    put("vocab_size", json!(config.vocab_size));
    object
}

/// The ids `config.json` knows besides the shape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelTokens {
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of turn.
    pub eos: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
}

/// The decimal number a person would have written for an f32.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

fn family(keys: &Keys<'_>) -> Result<Family, LmError> {
    let model_type = keys.text("model_type")?;
    let class = keys
        .object
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let unknown = |found: &str| LmError::UnknownArchitecture {
        path: keys.path.to_owned(),
        found: found.to_owned(),
    };
    let family = match model_type {
        Some("qwen3") => Family::Qwen3,
        Some("qwen2") => Family::Qwen2,
        Some("llama") => Family::Llama,
        Some(other) => return Err(unknown(other)),
        None => match class {
            "Qwen3ForCausalLM" => Family::Qwen3,
            "Qwen2ForCausalLM" => Family::Qwen2,
            "LlamaForCausalLM" => Family::Llama,
            other => return Err(unknown(other)),
        },
    };
    if !class.is_empty() && !class.ends_with("ForCausalLM") {
        return Err(unknown(class));
    }
    Ok(family)
}

/// Settings that would silently change the results if they were ignored.
fn refuse_unsupported(keys: &Keys<'_>, family: Family) -> Result<(), LmError> {
    let refuse = |key: &str, problem: &str| Err(LmError::config(keys.path, key, problem));
    if let Some(act) = keys.text("hidden_act")?
        && !matches!(act, "silu" | "swish")
    {
        return Err(LmError::config(
            keys.path,
            "hidden_act",
            format!("is `{act}`; only silu is implemented"),
        ));
    }
    if family != Family::Qwen2 && keys.flag("attention_bias")? == Some(true) {
        return refuse("attention_bias", "is true; biased attention is implemented for qwen2 only");
    }
    if keys.flag("mlp_bias")? == Some(true) {
        return refuse("mlp_bias", "is true; biased feed-forward layers are not implemented");
    }
    if keys.flag("rope_interleaved")? == Some(true) {
        return refuse(
            "rope_interleaved",
            "is true; interleaved rotary positions are not implemented",
        );
    }
    if keys.object.get("quantization_config").is_some_and(|value| !value.is_null()) {
        return refuse(
            "quantization_config",
            "is set; quantized checkpoints cannot be read, take the unquantized model or a GGUF file",
        );
    }
    if let Some(types) = keys.object.get("layer_types").and_then(Value::as_array) {
        if types.iter().any(|kind| kind.as_str() != Some("full_attention")) {
            return refuse(
                "layer_types",
                "names layers other than full_attention, which are not implemented",
            );
        }
    } else if family != Family::Llama
        && keys.flag("use_sliding_window")? == Some(true)
        && keys.optional_size("max_window_layers")?.unwrap_or(28)
            < keys.optional_size("num_hidden_layers")?.unwrap_or(0)
    {
        return refuse(
            "use_sliding_window",
            "is true; sliding-window attention is not implemented",
        );
    }
    Ok(())
}

/// The base and stretching of rotary positions, from `rope_parameters` (new) or `rope_theta` and `rope_scaling` (old).
fn rope(keys: &Keys<'_>, max_position: usize) -> Result<(f64, Option<RopeScaling>), LmError> {
    let mut parameters = keys.nested("rope_parameters")?;
    // Models with several kinds of layers nest once more; only full attention gets this far.
    if let Some(inner) = &parameters
        && let Some(full) = inner.nested("full_attention")?
    {
        parameters = Some(full);
    }
    let scaling = match parameters {
        Some(found) => Some(found),
        None => keys.nested("rope_scaling")?,
    };
    let theta = match &scaling {
        Some(inner) => inner.number("rope_theta")?,
        None => None,
    };
    let theta = theta.or(keys.number("rope_theta")?).unwrap_or(10_000.0);
    let Some(inner) = scaling else { return Ok((theta, None)) };
    for source in [&inner, keys] {
        if source.number("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
            return Err(source
                .wrong("partial_rotary_factor", "is not 1; only full rotation is implemented"));
        }
    }
    let kind = match inner.text("rope_type")? {
        Some(kind) => Some(kind),
        None => inner.text("type")?,
    };
    match kind.unwrap_or("default") {
        "default" => Ok((theta, None)),
        "linear" => Ok((theta, Some(RopeScaling::Linear { factor: inner.needed_number("factor")? }))),
        "llama3" => {
            let original = inner.optional_size("original_max_position_embeddings")?;
            let original = match original {
                Some(size) => size,
                None => keys.optional_size("original_max_position_embeddings")?.unwrap_or(max_position),
            };
            let scaling = RopeScaling::Llama3 {
                factor: inner.needed_number("factor")?,
                low_freq_factor: inner.needed_number("low_freq_factor")?,
                high_freq_factor: inner.needed_number("high_freq_factor")?,
                original_max_position: original,
            };
            Ok((theta, Some(scaling)))
        }
        other => Err(inner.wrong(
            "rope_type",
            &format!(
                "is `{other}`; linear and llama3 are implemented. A model that was trained without scaling works \
                 within its original length when the scaling is removed"
            ),
        )),
    }
}

/// Typed access to an object, with errors that name the key.
struct Keys<'a> {
    path: &'a Path,
    object: &'a Map<String, Value>,
    inside: &'static str,
}

impl<'a> Keys<'a> {
    fn wrong(&self, key: &str, problem: &str) -> LmError {
        let key =
            if self.inside.is_empty() { key.to_owned() } else { format!("{}.{key}", self.inside) };
        LmError::config(self.path, &key, problem)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, LmError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        // Some tools write whole numbers as 32768.0.
        let whole = value.as_u64().or_else(|| {
            value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..1e15).contains(v)).map(|v| v as u64)
        });
        whole
            .and_then(|number| usize::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| self.wrong(key, &format!("is {value}; it must be a whole number")))
    }

    fn size(&self, key: &str) -> Result<usize, LmError> {
        self.optional_size(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, LmError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_f64()
            .map(Some)
            .ok_or_else(|| self.wrong(key, &format!("is {value}; it must be a number")))
    }

    fn needed_number(&self, key: &str) -> Result<f64, LmError> {
        self.number(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, LmError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.wrong(key, &format!("is {value}; it must be true or false")))
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, LmError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.wrong(key, &format!("is {value}; it must be a string")))
    }

    fn nested(&self, key: &'static str) -> Result<Option<Self>, LmError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let object = value
            .as_object()
            .ok_or_else(|| self.wrong(key, &format!("is {value}; it must be an object")))?;
        Ok(Some(Self { path: self.path, object, inside: key }))
    }
}
