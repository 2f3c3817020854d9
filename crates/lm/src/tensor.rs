//! Plain row-major tensors and the named set of them that makes a model.

use std::collections::BTreeMap;

/// A dense row-major f32 tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// `shape.iter().product()` values.
    pub data: Vec<f32>,
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), data: vec![0.0; shape.iter().product()] }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether the tensor holds no value.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}

/// A model's parameters under their Hugging Face names (`model.layers.0.self_attn.q_proj.weight`, ...),
/// matrices stored out x in as Hugging Face does. The map is ordered, so every walk over it is deterministic.
pub type Parameters = BTreeMap<String, Tensor>;
