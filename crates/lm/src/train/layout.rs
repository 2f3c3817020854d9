//! Where each parameter lies in the flat vectors of weights, gradients and moments.
//!
//! One flat vector makes the optimizer a single pass, and putting q, k, v (and gate, up) side by side lets
//! one matrix product serve all of them. Hugging Face names stay the only names outside this module.

use std::ops::Range;

use crate::config::ModelConfig;

/// A named tensor's place.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Hugging Face name.
    pub(super) name: String,
    /// Sizes, outermost first.
    pub(super) shape: Vec<usize>,
    /// Its values in the flat vector.
    pub(super) range: Range<usize>,
}

/// The places of one block's parameters.
#[derive(Debug, Clone)]
pub(super) struct LayerLayout {
    pub(super) input_norm: Range<usize>,
    /// q, k and v projections stacked: `q_width + 2 * kv_width` rows.
    pub(super) qkv: Range<usize>,
    pub(super) qkv_bias: Option<Range<usize>>,
    /// Query norm, then key norm.
    pub(super) qk_norm: Option<(Range<usize>, Range<usize>)>,
    pub(super) o: Range<usize>,
    pub(super) post_norm: Range<usize>,
    /// gate and up projections stacked.
    pub(super) gate_up: Range<usize>,
    pub(super) down: Range<usize>,
}

/// The places of all parameters.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) embed: Range<usize>,
    pub(super) layers: Vec<LayerLayout>,
    pub(super) final_norm: Range<usize>,
    /// The output head; the embedding itself when tied.
    pub(super) head: Range<usize>,
    /// Every tensor, in the order of the flat vector.
    pub(super) entries: Vec<Entry>,
    /// Length of the flat vectors.
    pub(super) total: usize,
}

impl Layout {
    pub(super) fn new(config: &ModelConfig) -> Self {
        let (hidden, ff) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        let mut entries: Vec<Entry> = Vec::new();
        let mut total = 0;
        let mut put = |name: String, shape: Vec<usize>| {
            let range = total..total + shape.iter().product::<usize>();
            total = range.end;
            entries.push(Entry { name, shape, range: range.clone() });
            range
        };
        let embed = put("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden]);
        let join = |first: &Range<usize>, last: &Range<usize>| first.start..last.end;
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let mut put = |name: &str, shape: &[usize]| {
                put(format!("model.layers.{layer}.{name}"), shape.to_vec())
            };
            let input_norm = put("input_layernorm.weight", &[hidden]);
            let q_weight = put("self_attn.q_proj.weight", &[q, hidden]);
            put("self_attn.k_proj.weight", &[kv, hidden]);
            let v_weight = put("self_attn.v_proj.weight", &[kv, hidden]);
            let qkv_bias = config.qkv_bias.then(|| {
                let q_bias = put("self_attn.q_proj.bias", &[q]);
                put("self_attn.k_proj.bias", &[kv]);
                let v_bias = put("self_attn.v_proj.bias", &[kv]);
                join(&q_bias, &v_bias)
            });
            let qk_norm = config.qk_norm.then(|| {
                (
                    put("self_attn.q_norm.weight", &[config.head_dim]),
                    put("self_attn.k_norm.weight", &[config.head_dim]),
                )
            });
            let o = put("self_attn.o_proj.weight", &[hidden, q]);
            let post_norm = put("post_attention_layernorm.weight", &[hidden]);
            let gate = put("mlp.gate_proj.weight", &[ff, hidden]);
            let up = put("mlp.up_proj.weight", &[ff, hidden]);
            let down = put("mlp.down_proj.weight", &[hidden, ff]);
            layers.push(LayerLayout {
                input_norm,
                qkv: join(&q_weight, &v_weight),
                qkv_bias,
                qk_norm,
                o,
                post_norm,
                gate_up: join(&gate, &up),
                down,
            });
        }
        let final_norm = put("model.norm.weight".to_owned(), vec![hidden]);
        let head = if config.tied_head {
            embed.clone()
        } else {
            put("lm_head.weight".to_owned(), vec![config.vocab_size, hidden])
        };
        Self { embed, layers, final_norm, head, entries, total }
    }

    /// The place of a tensor by name.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Family;

    #[test]
    fn the_layout_holds_exactly_the_configuration_s_parameters() {
        for (tied_head, qkv_bias, qk_norm) in [(true, false, true), (false, true, false)] {
            let config = ModelConfig {
                family: Family::Qwen3,
                hidden_size: 8,
                intermediate_size: 12,
                layers: 3,
                heads: 4,
                kv_heads: 2,
                head_dim: 6,
                vocab_size: 20,
                max_position: 64,
                rms_norm_eps: 1e-6,
                rope_theta: 1e4,
                rope_scaling: None,
                tied_head,
                qkv_bias,
                qk_norm,
            };
            let layout = Layout::new(&config);
            let found: std::collections::BTreeMap<_, _> =
                layout.entries.iter().map(|e| (e.name.clone(), e.shape.clone())).collect();
            assert_eq!(found, config.parameter_shapes());
            assert_eq!(layout.total, config.parameter_count());
            let mut end = 0;
            for entry in &layout.entries {
                assert_eq!(entry.range.start, end, "{} leaves a gap", entry.name);
                end = entry.range.end;
            }
        }
    }
}
