//! A model's parameters, checked and packed.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::config::ModelConfig;
use crate::error::LmError;
use crate::kernels::packed::{Packed, WeightFormat};
use crate::tensor::Parameters;

/// Gives the values of a parameter by name.
pub(crate) type Values<'a> = dyn Fn(&str) -> Result<Cow<'a, [f32]>, LmError> + 'a;

#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) input_norm: Vec<f32>,
    pub(crate) post_norm: Vec<f32>,
    /// Empty unless queries and keys are normalized.
    pub(crate) q_norm: Vec<f32>,
    pub(crate) k_norm: Vec<f32>,
    /// Queries, keys and values below one another.
    pub(crate) qkv: Packed,
    pub(crate) o: Packed,
    /// Gate and up below one another.
    pub(crate) gate_up: Packed,
    pub(crate) down: Packed,
}

#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) format: WeightFormat,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vec<f32>,
    pub(crate) head: Packed,
    /// The embedding where it is not the head.
    embedding: Option<Packed>,
}

impl Weights {
    /// Packs checked parameters.
    pub(crate) fn pack(
        config: &ModelConfig,
        values: &Values<'_>,
        format: WeightFormat,
    ) -> Result<Self, LmError> {
        let (hidden, ff) = (config.hidden_size, config.intermediate_size);
        let matrix = |outputs, inputs| Packed::zeroed(format, outputs, inputs, false);
        let qk_norm = if config.qk_norm { config.head_dim } else { 0 };
        let layer = || Layer {
            input_norm: vec![0.0; hidden],
            post_norm: vec![0.0; hidden],
            q_norm: vec![0.0; qk_norm],
            k_norm: vec![0.0; qk_norm],
            qkv: Packed::zeroed(
                format,
                config.q_width() + 2 * config.kv_width(),
                hidden,
                config.qkv_bias,
            ),
            o: matrix(hidden, config.q_width()),
            gate_up: matrix(2 * ff, hidden),
            down: matrix(hidden, ff),
        };
        let mut weights = Self {
            format,
            layers: std::iter::repeat_with(layer).take(config.layers).collect(),
            norm: vec![0.0; hidden],
            head: matrix(config.vocab_size, hidden),
            embedding: (!config.tied_head).then(|| matrix(config.vocab_size, hidden)),
        };
        weights.fill(config, values)?;
        Ok(weights)
    }

    /// Packs other checked parameters into the same memory.
    pub(crate) fn fill(
        &mut self,
        config: &ModelConfig,
        values: &Values<'_>,
    ) -> Result<(), LmError> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let get = |name: &str| values(&format!("model.layers.{index}.{name}"));
            layer.input_norm.copy_from_slice(&get("input_layernorm.weight")?);
            layer.post_norm.copy_from_slice(&get("post_attention_layernorm.weight")?);
            if config.qk_norm {
                layer.q_norm.copy_from_slice(&get("self_attn.q_norm.weight")?);
                layer.k_norm.copy_from_slice(&get("self_attn.k_norm.weight")?);
            }
            let projection = |part: &str, kind: &str| get(&format!("self_attn.{part}_proj.{kind}"));
            let [q, k, v] = ["q", "k", "v"].map(|part| projection(part, "weight"));
            layer.qkv.fill(&[&q?, &k?, &v?]);
            if config.qkv_bias {
                let [q, k, v] = ["q", "k", "v"].map(|part| projection(part, "bias"));
                layer.qkv.fill_bias(&[&q?, &k?, &v?]);
            }
            layer.o.fill(&[&get("self_attn.o_proj.weight")?]);
            layer.gate_up.fill(&[&get("mlp.gate_proj.weight")?, &get("mlp.up_proj.weight")?]);
            layer.down.fill(&[&get("mlp.down_proj.weight")?]);
        }
        self.norm.copy_from_slice(&values("model.norm.weight")?);
        let table = self.embedding.as_mut();
        if let Some(table) = table {
            table.fill(&[&values("model.embed_tokens.weight")?]);
            self.head.fill(&[&values("lm_head.weight")?]);
        } else {
            self.head.fill(&[&values("model.embed_tokens.weight")?]);
        }
        Ok(())
    }

    /// The embedding of a token.
    pub(crate) fn embed(&self, token: u32, into: &mut [f32]) {
        self.embedding.as_ref().unwrap_or(&self.head).output_row(token as usize, into);
    }

    pub(crate) fn bytes(&self) -> usize {
        let norms = self.layers.iter().map(|layer| {
            layer.input_norm.len() + layer.post_norm.len() + layer.q_norm.len() + layer.k_norm.len()
        });
        let matrices = self
            .layers
            .iter()
            .flat_map(|layer| [&layer.qkv, &layer.o, &layer.gate_up, &layer.down])
            .chain([&self.head])
            .chain(&self.embedding);
        matrices.map(Packed::bytes).sum::<usize>() + 4 * (norms.sum::<usize>() + self.norm.len())
    }
}

/// Whether every parameter is there, has its shape and is finite.
pub(crate) fn check(config: &ModelConfig, parameters: &Parameters) -> Result<(), LmError> {
    check_shapes(config, &|name| parameters.get(name).map(|tensor| tensor.shape.clone()))?;
    for name in config.parameter_shapes().keys() {
        let tensor = &parameters[name];
        if tensor.len() != tensor.shape.iter().product::<usize>() {
            let problem = format!("has {} values for shape {:?}", tensor.len(), tensor.shape);
            return Err(LmError::Parameter { name: name.clone(), problem });
        }
        check_finite(name, &tensor.data)?;
    }
    Ok(())
}

pub(crate) fn check_shapes(
    config: &ModelConfig,
    shape: &dyn Fn(&str) -> Option<Vec<usize>>,
) -> Result<(), LmError> {
    for (name, expected) in config.parameter_shapes() {
        let problem = match shape(&name) {
            Some(found) if found == expected => continue,
            Some(found) => {
                format!("has shape {found:?}; the model's configuration says {expected:?}")
            }
            None => "is missing".to_owned(),
        };
        return Err(LmError::Parameter { name, problem });
    }
    Ok(())
}

pub(crate) fn check_finite(name: &str, values: &[f32]) -> Result<(), LmError> {
    match values.par_iter().position_first(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => Err(LmError::Parameter {
            name: name.to_owned(),
            problem: format!("holds {} at index {index}", values[index]),
        }),
    }
}
