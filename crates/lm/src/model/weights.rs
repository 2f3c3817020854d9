//! A model's parameters, checked and packed.

use rayon::prelude::*;

use crate::checkpoint::TensorSource;
use crate::config::ModelConfig;
use crate::error::LmError;
use crate::kernels::packed::Packed;
use crate::kernels::weight_format::WeightFormat;
use crate::tensor::Parameters;

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
        source: &dyn TensorSource,
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
        weights.fill(config, source)?;
        Ok(weights)
    }

    /// Packs other parameters into the same memory. Only a few megabytes are read at a time.
    pub(crate) fn fill(
        &mut self,
        config: &ModelConfig,
        source: &dyn TensorSource,
    ) -> Result<(), LmError> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let name = |part: &str| format!("model.layers.{index}.{part}");
            let vectors = [
                ("input_layernorm", &mut layer.input_norm),
                ("post_attention_layernorm", &mut layer.post_norm),
                ("self_attn.q_norm", &mut layer.q_norm),
                ("self_attn.k_norm", &mut layer.k_norm),
            ];
            for (part, values) in vectors.into_iter().filter(|(_, values)| !values.is_empty()) {
                read_checked(source, &name(&format!("{part}.weight")), 0, values)?;
            }
            let projections = |kind: &str| {
                ["q", "k", "v"].map(|part| name(&format!("self_attn.{part}_proj.{kind}")))
            };
            fill_stacked(&mut layer.qkv, source, &projections("weight"))?;
            if config.qkv_bias {
                let [mut q, mut k, mut v] =
                    [config.q_width(), config.kv_width(), config.kv_width()]
                        .map(|width| vec![0.0; width]);
                for (name, bias) in projections("bias").iter().zip([&mut q, &mut k, &mut v]) {
                    read_checked(source, name, 0, bias)?;
                }
                layer.qkv.fill_bias(&[&q, &k, &v]);
            }
            fill_stacked(&mut layer.o, source, &[name("self_attn.o_proj.weight")])?;
            let gate_up = [name("mlp.gate_proj.weight"), name("mlp.up_proj.weight")];
            fill_stacked(&mut layer.gate_up, source, &gate_up)?;
            fill_stacked(&mut layer.down, source, &[name("mlp.down_proj.weight")])?;
        }
        read_checked(source, "model.norm.weight", 0, &mut self.norm)?;
        let embedding = ["model.embed_tokens.weight".to_owned()];
        match &mut self.embedding {
            Some(table) => {
                fill_stacked(table, source, &embedding)?;
                fill_stacked(&mut self.head, source, &["lm_head.weight".to_owned()])
            }
            None => fill_stacked(&mut self.head, source, &embedding),
        }
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
        check_finite(name, 0, &tensor.data)?;
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

/// Packs matrices below one another.
fn fill_stacked(
    packed: &mut Packed,
    source: &dyn TensorSource,
    names: &[String],
) -> Result<(), LmError> {
    let inputs = packed.inputs();
    let mut ends = Vec::new();
    let mut end = 0;
    for name in names {
        end += source.shape(name).map_or(0, |shape| shape[0]);
        ends.push(end);
    }
    packed.fill_by(|rows, mut out| {
        let mut row = rows.start;
        let mut begin = 0;
        for (name, &end) in names.iter().zip(&ends) {
            let count = end.min(rows.end).saturating_sub(row);
            let (part, rest) = std::mem::take(&mut out).split_at_mut(count * inputs);
            if count > 0 {
                read_checked(source, name, (row - begin) * inputs, part)?;
            }
            (row, out, begin) = (row + count, rest, end);
        }
        Ok(())
    })
}

/// Reads values of a parameter from value `first` on; all must be finite.
fn read_checked(
    source: &dyn TensorSource,
    name: &str,
    first: usize,
    out: &mut [f32],
) -> Result<(), LmError> {
    source.read_values(name, first, out)?;
    check_finite(name, first, out)
}

fn check_finite(name: &str, first: usize, values: &[f32]) -> Result<(), LmError> {
    match values.par_iter().position_first(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => Err(LmError::Parameter {
            name: name.to_owned(),
            problem: format!("holds {} at index {}", values[index], first + index),
        }),
    }
}
