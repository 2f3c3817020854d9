//! What a decoder model looks like: one block with switches covers Qwen3, Qwen2/Qwen2.5 and Llama.

use serde::{Deserialize, Serialize};

/// The longest sequence any model may be meant for; the longest known today is 10 million.
pub const MAX_POSITION: usize = 1 << 24;

/// The families we load, train and save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Qwen3: RMS norm on queries and keys, no bias.
    Qwen3,
    /// Qwen2 and Qwen2.5: bias on q, k and v.
    Qwen2,
    /// Llama and its relatives (SmolLM2): neither.
    Llama,
}

/// How rotary positions are stretched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum RopeScaling {
    /// Llama 3's frequency-dependent scaling.
    Llama3 {
        /// The overall stretch.
        factor: f64,
        /// Below this share of the original context a frequency is fully stretched.
        low_freq_factor: f64,
        /// Above this share a frequency is left alone.
        high_freq_factor: f64,
        /// The context length the model was first trained with.
        original_max_position: usize,
    },
    /// Plain linear stretching of positions.
    Linear {
        /// The stretch.
        factor: f64,
    },
}

/// The shape of a decoder model. Sizes follow Hugging Face's `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Which family's names and switches apply.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head, independent of `hidden_size / heads`.
    pub head_dim: usize,
    /// Rows of the embedding, padding included.
    pub vocab_size: usize,
    /// Longest sequence the positions are meant for.
    pub max_position: usize,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Stretching of rotary positions, if any.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the output head is the embedding.
    pub tied_head: bool,
    /// Whether q, k and v projections carry a bias (Qwen2).
    pub qkv_bias: bool,
    /// Whether queries and keys are normalized per head (Qwen3).
    pub qk_norm: bool,
}

impl ModelConfig {
    /// Width of all query heads together.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Every parameter's Hugging Face name and shape, in the order of the ordered map.
    pub fn parameter_shapes(&self) -> std::collections::BTreeMap<String, Vec<usize>> {
        let (hidden, ff) = (self.hidden_size, self.intermediate_size);
        let mut shapes = std::collections::BTreeMap::new();
        shapes.insert("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, hidden]);
        shapes.insert("model.norm.weight".to_owned(), vec![hidden]);
        if !self.tied_head {
            shapes.insert("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]);
        }
        for layer in 0..self.layers {
            let mut put = |name: &str, shape: Vec<usize>| {
                shapes.insert(format!("model.layers.{layer}.{name}"), shape);
            };
            put("input_layernorm.weight", vec![hidden]);
            put("post_attention_layernorm.weight", vec![hidden]);
            put("self_attn.q_proj.weight", vec![self.q_width(), hidden]);
            put("self_attn.k_proj.weight", vec![self.kv_width(), hidden]);
            put("self_attn.v_proj.weight", vec![self.kv_width(), hidden]);
            put("self_attn.o_proj.weight", vec![hidden, self.q_width()]);
            put("mlp.gate_proj.weight", vec![ff, hidden]);
            put("mlp.up_proj.weight", vec![ff, hidden]);
            put("mlp.down_proj.weight", vec![hidden, ff]);
            if self.qkv_bias {
                put("self_attn.q_proj.bias", vec![self.q_width()]);
                put("self_attn.k_proj.bias", vec![self.kv_width()]);
                put("self_attn.v_proj.bias", vec![self.kv_width()]);
            }
            if self.qk_norm {
                put("self_attn.q_norm.weight", vec![self.head_dim]);
                put("self_attn.k_norm.weight", vec![self.head_dim]);
            }
        }
        shapes
    }

    /// Number of parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameter_shapes().values().map(|shape| shape.iter().product::<usize>()).sum()
    }

    /// The inverse frequencies of the rotary embedding, `head_dim / 2` of them, scaling applied.
    pub fn rope_inverse_frequencies(&self) -> Vec<f64> {
        (0..self.head_dim / 2)
            .map(|i| {
                let plain = self.rope_theta.powf(-2.0 * i as f64 / self.head_dim as f64);
                match self.rope_scaling {
                    None => plain,
                    Some(RopeScaling::Linear { factor }) => plain / factor,
                    Some(RopeScaling::Llama3 {
                        factor,
                        low_freq_factor,
                        high_freq_factor,
                        original_max_position,
                    }) => {
                        let context = original_max_position as f64;
                        let wavelength = std::f64::consts::TAU / plain;
                        if wavelength < context / high_freq_factor {
                            plain
                        } else if wavelength > context / low_freq_factor {
                            plain / factor
                        } else {
                            let smooth = (context / wavelength - low_freq_factor)
                                / (high_freq_factor - low_freq_factor);
                            (1.0 - smooth) * plain / factor + smooth * plain
                        }
                    }
                }
            })
            .collect()
    }
}
