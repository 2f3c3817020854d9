//! From GGUF metadata to a [`ModelConfig`].

use std::path::Path;

use super::header::Header;
use super::value::Value;
use crate::checkpoint::hf_config;
use crate::config::{Family, ModelConfig, RopeScaling};
use crate::error::LmError;

/// Typed access to the metadata, with errors that name the key.
pub(super) struct Metadata<'a> {
    pub(super) path: &'a Path,
    pub(super) header: &'a Header,
}

impl<'a> Metadata<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.header.metadata.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, LmError> {
        self.typed(key, "text", Value::as_str)
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, LmError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn array(&self, key: &str) -> Result<Option<&'a [Value]>, LmError> {
        self.typed(key, "a list", Value::as_array)
    }

    pub(super) fn id(&self, key: &str) -> Result<Option<u32>, LmError> {
        // -1 stands for "none" in some files.
        let found = self.typed(key, "a token id", |value| match value {
            Value::Negative(-1) => Some(None),
            other => other.as_u64().and_then(|id| u32::try_from(id).ok()).map(Some),
        })?;
        Ok(found.flatten().filter(|&id| id != u32::MAX))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, LmError> {
        self.typed(key, "a number", Value::as_f64)
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, LmError> {
        self.typed(key, "one whole number", |value| {
            let one = match value.as_array() {
                // Some writers give one value per layer; only equal ones can be read.
                Some([first, rest @ ..]) if rest.iter().all(|other| other == first) => first,
                _ => value,
            };
            one.as_u64().and_then(|size| usize::try_from(size).ok())
        })
    }

    fn size(&self, key: &str) -> Result<usize, LmError> {
        self.optional_size(key)?.ok_or_else(|| LmError::config(self.path, key, "is missing"))
    }

    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LmError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| {
            LmError::config(self.path, key, format!("must be {wanted}, not {value:.60?}"))
        })
    }
}

/// The model's shape. `rope_factors` are the values of the tensor `rope_freqs.weight`, if the file has it; `tied` tells
/// whether the output head is the embedding.
pub(super) fn config(
    metadata: &Metadata<'_>,
    rope_factors: Option<&[f32]>,
    tied: bool,
) -> Result<ModelConfig, LmError> {
    let path = metadata.path;
    let architecture = metadata
        .text("general.architecture")?
        .ok_or_else(|| LmError::config(path, "general.architecture", "is missing"))?;
    let family = match architecture {
        "llama" => Family::Llama,
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        other => {
            return Err(LmError::UnknownArchitecture {
                path: path.to_owned(),
                found: other.to_owned(),
            });
        }
    };
    let key = |name: &str| format!("{architecture}.{name}");
    if metadata.optional_size(&key("expert_count"))?.is_some_and(|experts| experts > 0) {
        return Err(LmError::config(
            path,
            &key("expert_count"),
            "is set; mixtures of experts are not implemented",
        ));
    }
    let hidden_size = metadata.size(&key("embedding_length"))?;
    let heads = metadata.size(&key("attention.head_count"))?;
    let head_dim = match metadata.optional_size(&key("attention.key_length"))? {
        Some(length) => length,
        None => hidden_size / heads.max(1),
    };
    for name in ["attention.value_length", "rope.dimension_count"] {
        if let Some(length) = metadata.optional_size(&key(name))?
            && length != head_dim
        {
            let problem =
                format!("is {length}, but heads are {head_dim} wide; that is not implemented");
            return Err(LmError::config(path, &key(name), problem));
        }
    }
    let embedding = metadata.header.tensors.get("token_embd.weight");
    let vocab_size = embedding.and_then(|tensor| tensor.shape.first().copied());
    let max_position = metadata.size(&key("context_length"))?;
    let rope_theta = metadata.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    let mut config = ModelConfig {
        family,
        hidden_size,
        intermediate_size: metadata.size(&key("feed_forward_length"))?,
        layers: metadata.size(&key("block_count"))?,
        heads,
        kv_heads: metadata.optional_size(&key("attention.head_count_kv"))?.unwrap_or(heads),
        head_dim,
        vocab_size: vocab_size
            .ok_or_else(|| LmError::tensor(path, "token_embd.weight", "is missing"))?,
        max_position,
        rms_norm_eps: metadata.number(&key("attention.layer_norm_rms_epsilon"))?.ok_or_else(
            || LmError::config(path, &key("attention.layer_norm_rms_epsilon"), "is missing"),
        )? as f32,
        rope_theta,
        rope_scaling: scaling(metadata, &key("rope.scaling"))?,
        tied_head: tied,
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
    };
    hf_config::check(path, &config)?;
    if let Some(factors) = rope_factors {
        config.rope_scaling = Some(llama3_scaling(path, &config, factors)?);
    }
    Ok(config)
}

fn scaling(metadata: &Metadata<'_>, prefix: &str) -> Result<Option<RopeScaling>, LmError> {
    let kind = format!("{prefix}.type");
    match metadata.text(&kind)? {
        None | Some("none") => Ok(None),
        Some("linear") => {
            let key = format!("{prefix}.factor");
            let factor = metadata
                .number(&key)?
                .ok_or_else(|| LmError::config(metadata.path, &key, "is missing"))?;
            Ok((factor != 1.0).then_some(RopeScaling::Linear { factor }))
        }
        Some(other) => Err(LmError::config(
            metadata.path,
            &kind,
            format!(
                "is `{other}`; linear and llama3 (by the tensor rope_freqs.weight) are implemented"
            ),
        )),
    }
}

/// GGUF stores Llama 3's scaling as the divisors it leads to. All published models use the bands 1 and 4 of an original
/// length of 8192 and differ in the factor, so that is what is looked for.
fn llama3_scaling(
    path: &Path,
    config: &ModelConfig,
    factors: &[f32],
) -> Result<RopeScaling, LmError> {
    let factor = factors.iter().fold(0.0_f32, |most, &f| most.max(f));
    let scaling = RopeScaling::Llama3 {
        factor: f64::from(factor),
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 8192,
    };
    let plain = ModelConfig { rope_scaling: None, ..config.clone() }.rope_inverse_frequencies();
    let scaled =
        ModelConfig { rope_scaling: Some(scaling), ..config.clone() }.rope_inverse_frequencies();
    let explained = factors.len() == plain.len()
        && factors.iter().zip(plain.iter().zip(&scaled)).all(|(&stored, (plain, scaled))| {
            (f64::from(stored) * scaled / plain - 1.0).abs() < 1e-3
        });
    if !explained {
        return Err(LmError::tensor(
            path,
            "rope_freqs.weight",
            "holds divisors of rotary frequencies that Llama 3's published scaling does not explain",
        ));
    }
    Ok(scaling)
}
